"""Parameters that are numbers, blocks without a number of threads, names of slices."""

import pytest
import tilelang.language as T
import torch

from grader import ir
from grader.simulator import run


def test_parameters_that_are_numbers(read):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), n: T.int32, Y: T.Tensor((64,), "float32")):
        with T.Kernel(T.ceildiv(n, 16), threads=32) as bx:
            for i in T.Parallel(16):
                if bx * 16 + i < n:
                    Y[bx * 16 + i] = X[bx * 16 + i] * T.cast(n, "float32")

    kernel = read(main)
    x, y = torch.rand(64), torch.zeros(64)
    assert not run(kernel, [x, y], scalars={"n": 40}).faults
    assert torch.equal(y, torch.where(torch.arange(64) < 40, x * 40, 0))
    with pytest.raises(ValueError, match="'n' has no value"):
        run(kernel, [x, y])


def test_a_block_has_128_threads_unless_it_says_otherwise(read):
    @T.prim_func
    def main(Y: T.Tensor((128,), "int32")):
        with T.Kernel(1) as _bx:
            tx = T.get_thread_binding()
            Y[tx] = tx

    kernel, y = read(main), torch.zeros(128, dtype=torch.int32)
    assert kernel.threads == (128, 1, 1)
    assert not run(kernel, [y]).faults
    assert y.tolist() == list(range(128))


def test_a_name_for_a_slice(read):
    @T.prim_func
    def main(X: T.Tensor((64, 32), "float16"), Y: T.Tensor((64, 32), "float16")):
        with T.Kernel(4, threads=32) as bx:
            tile = T.alloc_shared((16, 32), "float16")
            here = X[bx * 16 : bx * 16 + 16, 0:32]
            T.copy(here, tile)
            T.copy(tile, Y[bx * 16, 0])

    x, y = torch.rand(64, 32).half(), torch.zeros(64, 32).half()
    kernel = read(main)
    assert isinstance(kernel, ir.Kernel)
    assert not run(kernel, [x, y]).faults
    assert torch.equal(x, y)

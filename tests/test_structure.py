"""Are two kernels the same up to integer constants?"""

from pathlib import Path

import pytest
from attacks.attack import add, honest_add, matmul
from attacks.on_output import half, zeros
from kernels import json_of

from grader import ir
from grader.ir.structure import difference


def read(build, **sizes):
    return ir.read(json_of(build(**sizes)))


@pytest.mark.parametrize(
    ("build", "one", "other"),
    [
        (add(honest_add), {"N": 1000}, {"N": 2**28}),
        (matmul(), {"M": 256, "N": 256, "K": 256}, {"M": 200, "N": 328, "K": 4096}),
    ],
)
def test_sizes_make_no_difference(build, one, other):
    assert difference(read(build, **one), read(build, **other)) is None


def test_neither_do_names():
    def other_names(N):
        import tilelang.language as T

        @T.prim_func
        def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), Z: T.Tensor((N,), "float32")):
            with T.Kernel(T.ceildiv(N, 512), threads=128) as block:
                for lane in T.Parallel(512):
                    if block * 512 + lane < N:
                        Z[block * 512 + lane] = X[block * 512 + lane] + Y[block * 512 + lane]

        return main

    assert difference(read(add(honest_add), N=1000), read(other_names, N=1000)) is None


def test_a_constant_that_is_no_integer_does():
    one, other = (read(matmul(scale=scale), M=64, N=64, K=64) for scale in (2.0, 3.0))
    assert difference(one, other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (matmul(), matmul(clear=False)),
        (matmul(), matmul(accumulator="float16")),
        (matmul(), matmul(tile="bfloat16")),
        (matmul(), matmul(scale=2)),
    ],
)
def test_statements_and_dtypes_do(one, other):
    sizes = {"M": 256, "N": 256, "K": 256}
    found = difference(read(one, **sizes), read(other, **sizes))
    assert found is not None
    back = difference(read(other, **sizes), read(one, **sizes))
    assert (back.first, back.second) == (found.second, found.first)


def test_the_first_statement_that_differs_is_named():
    found = difference(read(add(honest_add), N=4096), read(add(zeros), N=4096))
    assert found.first.file.endswith("attack.py")
    assert found.second.file.endswith("on_output.py")
    text = Path(found.second.file).read_text().splitlines()[found.second.number - 1]
    assert text.strip() == "C[bx * 1024 + i] = 0.0"


def test_half_of_the_work_is_the_same_but_for_a_number():
    """Why this comparison proves nothing: the judge looks at values and accesses."""
    assert difference(read(add(honest_add), N=4096), read(add(half), N=4096)) is None

"""T.copy's options, copies within one buffer, T.transpose, T.im2col, T.annotate_safe_value."""

import pytest
import tilelang.language as T
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.functional import conv2d

from grader.simulator import FaultKind, Unsupported, run


def test_options_of_a_copy_change_nothing(simulate):
    @T.prim_func
    def main(X: T.Tensor((32, 64), "float16"), Y: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_shared((32, 64), "float16")
            T.copy(X, x, eviction_policy="evict_first", prefer_instruction="tma")
            T.copy(x, Y, coalesced_width=4, disable_tma=True)

    x, y = torch.randn(32, 64).half(), torch.zeros(32, 64).half()
    simulate(main, x, y)
    assert torch.equal(x, y)


def test_layouts_of_loops_change_nothing(simulate):
    from tilelang.layout import Fragment

    rows = Fragment((32, 64), forward_thread_fn=lambda i, j: i * 4 + j // 16, forward_index_fn=lambda i, j: j % 16)

    @T.prim_func
    def main(X: T.Tensor((32, 64), "float32"), Y: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_fragment((32, 64), "float32")
            T.copy(X, x, loop_layout=rows)
            for i, j in T.Parallel(32, 64, loop_layout=rows):
                x[i, j] = x[i, j] + 1.0
            T.copy(x, Y)

    x, y = torch.randn(32, 64), torch.zeros(32, 64)
    simulate(main, x, y)
    assert torch.equal(x + 1, y)


def test_copies_that_belong_to_clusters_are_refused(read):
    @T.prim_func
    def main(X: T.Tensor((32, 64), "float16"), Y: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_shared((32, 64), "float16")
            T.copy_cluster(X, x, cluster_mask=3)
            T.copy(x, Y)

    with pytest.raises(Unsupported, match="cluster_mask"):
        run(read(main), [torch.zeros(32, 64).half()] * 2)


def moved(source: int, target: int, columns: int):
    """A tile of ``columns`` columns of an 8×16 buffer, copied within it."""

    @T.prim_func
    def main(X: T.Tensor((8, 16), "float32"), Y: T.Tensor((8, 16), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_shared((8, 16), "float32")
            T.copy(X, x)
            T.copy(x[0:8, source : source + columns], x[0:8, target : target + columns])
            T.copy(x, Y)

    return main


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.integers(0, 12), target=st.integers(0, 12), columns=st.integers(2, 4))
def test_copies_within_a_buffer_race_exactly_if_they_overlap(simulate, source, target, columns):
    x, y = torch.randn(8, 16), torch.zeros(8, 16)
    result = simulate(moved(source, target, columns), x, y, faulty=True)
    expected = x.clone()
    expected[:, target : target + columns] = x[:, source : source + columns]
    assert torch.equal(y, expected)
    overlap = source != target and abs(source - target) < columns
    assert [fault.kind for fault in result.faults] == [FaultKind.RACE] * overlap


@pytest.mark.parametrize("shape", [(8, 24), (2, 6, 10)])
def test_transpose(simulate, shape):
    turned = (*shape[:-2], shape[-1], shape[-2])

    @T.prim_func
    def main(X: T.Tensor(shape, "float16"), Y: T.Tensor(turned, "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_shared(shape, "float16")
            y = T.alloc_shared(turned, "float32")
            T.copy(X, x)
            T.transpose(x, y)
            T.copy(y, Y)

    x, y = torch.randn(shape).half(), torch.zeros(turned)
    simulate(main, x, y)
    assert torch.equal(y, x.transpose(-1, -2).float())


def test_a_transpose_within_a_tile(simulate):
    @T.prim_func
    def main(X: T.Tensor((16, 16), "float32"), Y: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_shared((16, 16), "float32")
            T.copy(X, x)
            T.transpose(x[0:4, 8:16], x[8:16, 0:4])
            T.transpose(x, x)
            T.copy(x, Y)

    x, y = torch.randn(16, 16), torch.zeros(16, 16)
    result = simulate(main, x, y, faulty=True)
    expected = x.clone()
    expected[8:16, 0:4] = x[0:4, 8:16].t()
    assert torch.equal(y, expected.t())
    assert [fault.kind for fault in result.faults] == [FaultKind.RACE]  # the second


def convolution(n, size, c, f, k, stride, dilation, padding, block_m=16, block_n=32, block_k=16):
    out = (size + 2 * padding - dilation * (k - 1) - 1) // stride + 1
    rows = n * out * out

    @T.prim_func
    def main(
        X: T.Tensor((n, size, size, c), "float16"),
        W: T.Tensor((k * k * c, f), "float16"),
        Y: T.Tensor((rows, f), "float32"),
    ):
        with T.Kernel(T.ceildiv(f, block_n), T.ceildiv(rows, block_m), threads=128) as (bx, by):
            x = T.alloc_shared((block_m, block_k), "float16")
            w = T.alloc_shared((block_k, block_n), "float16")
            y = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(y)
            for step in T.Pipelined(T.ceildiv(k * k * c, block_k), num_stages=2):
                T.im2col(X, x, by, step, k, stride, dilation, padding)
                T.copy(W[step * block_k, bx * block_n], w)
                T.gemm(x, w, y)
            T.copy(y, Y[by * block_m, bx * block_n])

    return main


@pytest.mark.parametrize(
    ("k", "stride", "dilation", "padding"), [(3, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (1, 1, 1, 0)]
)
def test_im2col_makes_a_convolution_a_product(simulate, k, stride, dilation, padding):
    n, size, c, f = 2, 7, 32, 32
    x = torch.randint(-4, 5, (n, size, size, c)).half()
    w = torch.randint(-4, 5, (k, k, c, f)).half()
    exact = conv2d(
        x.double().permute(0, 3, 1, 2), w.double().permute(3, 2, 0, 1), None, stride, padding, dilation
    ).permute(0, 2, 3, 1)
    y = torch.zeros(exact.numel() // f, f)
    simulate(convolution(n, size, c, f, k, stride, dilation, padding), x, w.reshape(-1, f), y)
    assert torch.equal(y.double(), exact.reshape(-1, f))


def test_an_im2col_that_tilelang_gets_wrong_is_refused(read):
    with pytest.raises(Unsupported, match="padding"):
        run(
            read(convolution(1, 8, 32, 32, 3, 1, 1, 0)),
            [torch.zeros(1, 8, 8, 32).half(), torch.zeros(288, 32).half(), torch.zeros(36, 32)],
        )


def padded(pipelined: bool, disable_tma: bool = False, dtype: str = "float32", value=7.0):
    @T.prim_func
    def main(X: T.Tensor((10, 32), dtype), Y: T.Tensor((16, 32), dtype)):
        with T.Kernel(2, threads=128) as bx:
            x = T.alloc_shared((8, 16), dtype)
            T.annotate_safe_value({X: value})
            if pipelined:
                for k in T.Pipelined(2, num_stages=2):
                    T.copy(X[bx * 8, k * 16], x, disable_tma=disable_tma)
                    T.copy(x, Y[bx * 8, k * 16])
            else:
                for k in T.serial(2):
                    T.copy(X[bx * 8, k * 16], x)
                    T.copy(x, Y[bx * 8, k * 16])

    return main


@pytest.mark.parametrize(("pipelined", "disable_tma"), [(False, False), (True, True)])
def test_safe_values_stand_for_what_is_out_of_bounds(simulate, pipelined, disable_tma):
    x, y = torch.randn(10, 32), torch.zeros(16, 32)
    simulate(padded(pipelined, disable_tma), x, y)
    assert torch.equal(y, torch.cat((x, torch.full((6, 32), 7.0))))
    simulate(padded(pipelined, disable_tma, value=-T.infinity("float32")), x, y)
    assert torch.equal(y, torch.cat((x, torch.full((6, 32), float("-inf")))))


def test_a_safe_value_that_some_cards_ignore_is_refused(simulate, read):
    with pytest.raises(Unsupported, match=r"'X'.*disable_tma"):
        run(read(padded(pipelined=True)), [torch.zeros(10, 32), torch.zeros(16, 32)])
    y = torch.ones(16, 32)
    simulate(padded(pipelined=True, value=0.0), torch.ones(10, 32), y)
    assert y.sum() == 320

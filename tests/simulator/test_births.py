"""Where a value that is not finite was born, and where it only passes by."""

import math

import pytest
import tilelang.language as T
import torch

INF = math.inf


def births(simulate, kernel, *tensors, **options):
    return simulate(kernel, *tensors, faulty=True, births=True, **options).births


def seen(found):
    return [
        (b.buffer, b.line.number, b.block, b.index, str(b.value), b.expression, tuple(map(str, b.operands)))
        for b in found.found
    ]


def test_a_division_by_zero_in_a_later_block(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            t = T.alloc_fragment((16,), "float32")
            for i in T.Parallel(16):
                t[i] = 1.0 / X[bx * 16 + i] + 1.0  # division
            for i in T.Parallel(16):
                Y[bx * 16 + i] = t[i] * 2.0

    x, y = torch.arange(64.0) + 1, torch.zeros(64)
    assert seen(births(simulate, main, x, y)) == []
    x[37] = 0.0
    found = births(simulate, main, x, y)
    assert seen(found) == [
        ("t", line_of("division"), (2, 0, 0), (5,), "inf", "1 / X[bx * 16 + i]", ("1.0", "0.0"))
    ]
    assert y[37] == INF
    assert found.behind(1, (37,)) is found.found[0]


def _masked_softmax(n: int, strict: bool):
    @T.prim_func
    def main(X: T.Tensor((n, n), "float32"), Y: T.Tensor((n, n), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            s = T.alloc_fragment((n, n), "float32")
            top = T.alloc_fragment((n,), "float32")
            T.fill(top, -T.infinity("float32"))
            for i, j in T.Parallel(n, n):
                s[i, j] = T.if_then_else((j < i) if strict else (j <= i), X[i, j], -T.infinity("float32"))
            T.reduce_max(s, top, dim=1, clear=False)
            for i, j in T.Parallel(n, n):
                Y[i, j] = T.exp2(s[i, j] - top[i])  # exp2

    return main


def test_a_mask_of_minus_infinity_is_no_birth_but_a_difference_of_masks_is(simulate, line_of):
    x, y = torch.randn(8, 8), torch.zeros(8, 8)
    assert seen(births(simulate, _masked_softmax(8, strict=False), x, y)) == []
    assert y.isfinite().all()
    # Row 0 has nothing but masked scores: -inf - -inf.
    found = births(simulate, _masked_softmax(8, strict=True), x, y)
    assert seen(found) == [("Y", line_of("exp2"), (0, 0, 0), (0, 0), "nan", "s[i, j] - top[i]", ("-inf", "-inf"))]
    assert y[0].isnan().all()
    assert y[1:].isfinite().all()


def test_branches_that_are_not_taken_bear_nothing(simulate):
    @T.prim_func
    def main(X: T.Tensor((16,), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(16):
                Y[i] = T.if_then_else(X[i] > 0.0, T.log(X[i]), 0.0)
                if X[i] > 0.0:
                    Y[i] = T.sqrt(X[i])

    assert seen(births(simulate, main, torch.randn(16), torch.zeros(16))) == []


@pytest.mark.parametrize("bad", [math.nan, INF, -INF])
def test_what_comes_in_is_not_born_here(simulate, bad):
    @T.prim_func
    def main(X: T.Tensor((16, 16), "float16"), Y: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((16, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(X, a)
            T.clear(c)
            T.gemm(a, a, c, transpose_B=True)
            for i, j in T.Parallel(16, 16):
                c[i, j] = c[i, j] + 1.0
            T.copy(c, Y)

    x = torch.ones(16, 16).half()
    x[3, 5] = bad
    y = torch.zeros(16, 16)
    assert seen(births(simulate, main, x, y)) == []
    assert not y.isfinite().all()


@pytest.mark.parametrize("transposed", [False, True])
def test_an_overflow_in_a_product_next_to_one_that_came_in(simulate, line_of, transposed):
    @T.prim_func
    def main(A: T.Tensor((16, 32), "float16"), B: T.Tensor((32, 16), "float16"), Y: T.Tensor((16, 16), "float16")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((32, 16) if transposed else (16, 32), "float16")
            b = T.alloc_shared((32, 16), "float16")
            c = T.alloc_fragment((16, 16), "float16")
            if transposed:
                for i, j in T.Parallel(32, 16):
                    a[i, j] = A[j, i]
            else:
                T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_A=transposed)  # product
            T.copy(c, Y)

    a, b, y = torch.ones(16, 32).half(), torch.ones(32, 16).half(), torch.zeros(16, 16).half()
    a[2, 0] = INF
    a[7], b[:, 9] = 200.0, 200.0
    found = births(simulate, main, a, b, y)
    ((buffer, line, _block, index, value, _text, _operands),) = seen(found)
    assert (buffer, line, index, value) == ("c", line_of("product"), (7, 9), "inf")
    assert y[2].isinf().all()


def test_a_conversion_that_overflows(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((4, 8), "float32"), Y: T.Tensor((4, 8), "float16")):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((4, 8), "float32")
            y = T.alloc_fragment((4, 8), "float16")
            T.copy(X, x)
            T.copy(x, y)  # to halves
            T.copy(y, Y)

    x = torch.zeros(4, 8)
    x[1, 1], x[2, 3] = INF, -1e5
    found = births(simulate, main, x, torch.zeros(4, 8).half())
    assert seen(found)[0][:5] == ("y", line_of("to halves"), (0, 0, 0), (2, 3), "-inf")
    assert len(found.found) == 1


def test_a_reduction_and_a_variable(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((4, 8), "float32"), Y: T.Tensor((4,), "float32"), Z: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((4, 8), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(X, x)
            T.reduce_sum(x, total, dim=1)  # sum
            T.copy(total, Y)
            inverse = 1.0 / X[0, 0]  # let
            Z[0] = inverse

    x = torch.zeros(4, 8)
    x[1, 1] = INF
    x[2] = 3e38
    found = seen(births(simulate, main, x, torch.zeros(4), torch.zeros(1)))
    assert [item[4:5] + item[:2] + item[3:4] for item in found] == [
        ("inf", "total", found[0][1], (2,)),
        ("inf", "inverse", line_of("let"), ()),
    ]


def test_each_block_has_its_first_and_the_elements_block_is_asked(simulate):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(16):
                Y[bx * 16 + i] = T.rsqrt(X[bx * 16 + i])

    x = torch.ones(64)
    x[20], x[21], x[50] = 0.0, 0.0, -1.0
    found = births(simulate, main, x, torch.zeros(64), outputs=(1,))
    assert [(b.block[0], b.index) for b in found.found] == [(1, (20,)), (3, (50,))]
    assert found.behind(1, (50,)).index == (50,)
    assert found.behind(1, (21,)).index == (20,)
    assert found.behind(1, (0,)) is found.found[0]  # its own block bears nothing


def test_a_run_without_it_has_none(simulate):
    @T.prim_func
    def main(Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(16):
                Y[i] = 1.0 / T.cast(i, "float32")

    assert simulate(main, torch.zeros(16)).births is None


def test_tile_operations_of_every_kind(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((8, 8), "float32"), Z: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_shared((8, 8), "float32")
            turned = T.alloc_shared((8, 8), "float32")
            top = T.alloc_reducer((8,), "float32", op="max")
            highest = T.alloc_fragment((8,), "float32")
            T.copy(X, x)
            T.transpose(x, turned)
            T.reducer_init(top)  # -inf, a start
            for i, j in T.Parallel(8, 8):
                T.reducer_update(top[i], x[i, j])
            T.finalize_reducer(top, highest)
            T.copy(highest, Z)
            T.cumsum(turned, dim=1)  # running sum
            T.copy(turned, Y)

    x = torch.ones(8, 8)
    assert seen(births(simulate, main, x, torch.zeros(8, 8), torch.zeros(8))) == []
    x[:, 3] = 1e38  # row 3 after the transposition: the fourth sum is too large
    found = births(simulate, main, x, torch.zeros(8, 8), torch.zeros(8))
    assert [item[:5] for item in seen(found)] == [("turned", line_of("running sum"), (0, 0, 0), (3, 3), "inf")]

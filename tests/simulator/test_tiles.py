"""Tile operations: copies of every form, fills, matrix products, reductions, and views."""

import pytest
import tilelang.language as T
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.ir import nodes

NAN = float("nan")


def test_copies_between_ranks_and_subregions(simulate):
    @T.prim_func
    def main(X: T.Tensor((2, 8, 3, 16), "float16"), Y: T.Tensor((3, 8, 2, 16), "float32")):
        with T.Kernel(2, 3, threads=32) as (bx, by):
            a = T.alloc_shared((8, 16), "float16")
            b = T.alloc_shared((4, 8, 16), "float32")
            T.copy(X[bx, 0:8, by, :], a)
            T.copy(a[0:4, 0:8], b[2, 0:4, 8:16])
            T.copy(a[4:8, 0:8], b[2, 4:8, 8:16])
            T.copy(a[0:8, 8:16], b[2, 0:8, 0:8])
            T.copy(b[2, 0:8, 0:16], Y[by, :, bx, :])

    x, y = torch.randn(2, 8, 3, 16).half(), torch.full((3, 8, 2, 16), NAN)
    result = simulate(main, x, y)
    assert torch.equal(y, x.permute(2, 1, 0, 3).float().roll(8, 3))
    assert bool(result.written[1].all())
    assert result.guarded == 0


def test_guarded_copies_give_zero_and_drop(simulate):
    @T.prim_func
    def main(X: T.Tensor((10, 10), "float32"), Y: T.Tensor((10, 10), "float32"), Z: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((8, 8), "float32")
            T.copy(X[6, 7], a)
            T.copy(a, Y[6, 7])
            T.copy(a, Z[0, 0])

    x, y, z = torch.randn(10, 10), torch.full((10, 10), NAN), torch.full((16, 16), NAN)
    result = simulate(main, x, y, z)
    assert torch.equal(z[:4, :3], x[6:, 7:])
    assert not z[4:8, :8].any()
    assert not z[:8, 3:8].any()
    assert torch.equal(y[6:, 7:], x[6:, 7:])
    assert y[:6].isnan().all()
    assert int(result.written[1].sum()) == 12
    assert int(result.written[2].sum()) == 64
    assert result.guarded == 2 * (64 - 12)
    assert result.traffic.read() == 12 * 4
    assert result.traffic.written() == (12 + 64) * 4


def test_a_copy_wholly_outside_is_zero(simulate):
    @T.prim_func
    def main(X: T.Tensor((4, 8), "float32"), Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(8, threads=32) as bx:
            a = T.alloc_shared((8,), "float32")
            T.copy(X[bx, 0:8], a)
            T.copy(a, Y[bx, 0:8])

    x, y = torch.randn(4, 8), torch.full((8, 8), NAN)
    result = simulate(main, x, y)
    assert torch.equal(y, torch.cat((x, torch.zeros(4, 8))))
    assert result.guarded == 4 * 8


def _copy_kernel(rows: int, columns: int, starts: tuple, extents: tuple, into: tuple) -> nodes.Kernel:
    """X[starts : starts + extents] -> tile -> Y[into : into + extents], by hand: any start, any extent."""

    def const(value: int) -> nodes.Const:
        return nodes.Const("int32", value)

    def consts(*values: int) -> tuple[nodes.Const, ...]:
        return tuple(map(const, values))

    x, y = (
        nodes.Buffer(name, "float32", consts(rows, columns), (), nodes.Storage(name, "global")) for name in "XY"
    )
    tile = nodes.Buffer("tile", "float32", consts(*extents), (), nodes.Storage("tile", "shared.dyn"))

    def copy(source: nodes.Buffer, low: tuple, target: nodes.Buffer, to: tuple) -> nodes.Stmt:
        regions = (
            nodes.Region("handle", source, consts(*low), consts(*extents), 1),
            nodes.Region("handle", target, consts(*to), consts(*extents), 2),
        )
        return nodes.Evaluate(nodes.Line("k.py", 1), nodes.Call("handle", "tl.tileop.copy", regions))

    body = nodes.Seq(None, (copy(x, starts, tile, (0, 0)), copy(tile, (0, 0), y, into)))
    threads = tuple(nodes.Var("int32", name) for name in ("tx", "ty", "tz"))
    grid = (nodes.Grid(nodes.Var("int32", "bx"), "x", const(1)),)
    return nodes.Kernel((x, y), (), grid, (32, 1, 1), threads, (tile,), (), body)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    starts=st.tuples(st.integers(-12, 12), st.integers(-12, 12)),
    extents=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    into=st.tuples(st.integers(-12, 12), st.integers(-12, 12)),
)
def test_any_copy_is_a_zero_filled_slice(simulate, shape, starts, extents, into):
    margin = 30
    x = torch.arange(1.0, 1.0 + shape[0] * shape[1]).reshape(shape)
    y = torch.full(shape, NAN)
    result = simulate(_copy_kernel(*shape, starts, extents, into), x, y)
    padded = torch.zeros(shape[0] + 2 * margin, shape[1] + 2 * margin)
    padded[margin : margin + shape[0], margin : margin + shape[1]] = x
    a, b = (margin + start for start in starts)
    tile = padded[a : a + extents[0], b : b + extents[1]]
    landed = torch.full_like(padded, NAN)
    a, b = (margin + start for start in into)
    landed[a : a + extents[0], b : b + extents[1]] = tile
    expected = landed[margin : margin + shape[0], margin : margin + shape[1]]
    assert torch.equal(y.nan_to_num(nan=-1.0), expected.nan_to_num(nan=-1.0))
    assert torch.equal(result.written[1], ~expected.isnan())
    assert result.guarded == 2 * extents[0] * extents[1] - int((tile != 0).sum()) - int((~expected.isnan()).sum())


def test_fill_and_clear(simulate):
    @T.prim_func
    def main(Y: T.Tensor((8, 8), "int32"), Z: T.Tensor((8, 8), "float16")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((8, 8), "int32")
            b = T.alloc_fragment((8, 8), "float16")
            T.fill(a, 7)
            T.clear(a[2:4, 0:8])
            T.copy(a, Y)
            T.fill(b, 0.1)
            T.copy(b, Z)

    y, z = torch.zeros(8, 8, dtype=torch.int32), torch.zeros(8, 8).half()
    simulate(main, y, z)
    assert y.sum(1).tolist() == [56, 56, 0, 0, 56, 56, 56, 56]
    assert torch.equal(z, torch.full((8, 8), 0.1).half())


def product(dtype: str, accumulator: str, ta: bool, tb: bool, m: int = 32, n: int = 48, k: int = 64, clear=False):
    a_shape, b_shape = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    @T.prim_func
    def main(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, n), accumulator)):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared(a_shape, dtype)
            b = T.alloc_shared(b_shape, dtype)
            c = T.alloc_fragment((m, n), accumulator)
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 1)
            T.gemm(a, b, c, transpose_A=ta, transpose_B=tb, clear_accum=clear)
            T.copy(c, C)

    return main


def _transposed(x: torch.Tensor) -> torch.Tensor:
    integers = x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])
    return integers.t().contiguous().view(x.dtype)


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn", "int8"])
def test_gemm(simulate, dtype, ta, tb):
    accumulator = "int32" if dtype == "int8" else "float32"
    held = getattr(torch, dtype)
    draw = torch.randint(-128, 128, (32, 64)).float() if dtype == "int8" else torch.randn(32, 64)
    other = torch.randint(-128, 128, (64, 48)).float() if dtype == "int8" else torch.randn(64, 48)
    a, b = draw.to(held), other.to(held)
    seen = [x.view(torch.int32).bitwise_and(-8192).view(x.dtype) if dtype == "float32" else x for x in (a, b)]
    exact = 1 + seen[0].double() @ seen[1].double()
    a, b = _transposed(a) if ta else a, _transposed(b) if tb else b
    c = torch.zeros(32, 48, dtype=getattr(torch, accumulator))
    simulate(product(dtype, accumulator, ta, tb), a, b, c)
    if dtype == "int8":
        assert torch.equal(c.double(), exact)
    else:
        assert torch.allclose(c.double(), exact, rtol=1e-5, atol=1e-4)


def test_gemm_clears_its_accumulator_if_asked(simulate):
    a, b, c = torch.randn(32, 64).half(), torch.randn(64, 48).half(), torch.zeros(32, 48)
    simulate(product("float16", "float32", False, False, clear=True), a, b, c)
    assert torch.allclose(c.double(), a.double() @ b.double(), atol=1e-4)


def test_a_half_accumulator_is_rounded(simulate):
    a, b, c = torch.ones(32, 4096).half(), torch.ones(4096, 48).half(), torch.zeros(32, 48).half()
    simulate(product("float16", "float16", False, False, k=4096), a, b, c)
    # 1 + 16 n is exact in half up to 2048; above, only even numbers are.
    assert c[0, 0] == 4096
    a *= 0.1
    simulate(product("float16", "float16", False, False, k=4096), a, b, c)
    exact = 1 + 4096 * float(a[0, 0])
    assert abs(float(c[0, 0]) - exact) > 2  # rounded 256 times
    assert abs(float(c[0, 0]) - exact) < 100


REDUCE = {
    "sum": (T.reduce_sum, lambda x, d: x.sum(d), lambda a, b: a + b),
    "max": (T.reduce_max, lambda x, d: x.amax(d), torch.maximum),
    "min": (T.reduce_min, lambda x, d: x.amin(d), torch.minimum),
    "absmax": (T.reduce_absmax, lambda x, d: x.abs().amax(d), torch.maximum),
    "abssum": (T.reduce_abssum, lambda x, d: x.abs().sum(d), lambda a, b: a + b),
}


@pytest.mark.parametrize("kind", REDUCE)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_reductions(simulate, kind, dim, dtype):
    function, exact, join = REDUCE[kind]
    out = (40,) if dim == 0 else (24,)

    @T.prim_func
    def main(X: T.Tensor((24, 40), dtype), Y: T.Tensor((2, *out), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((24, 40), dtype)
            y = T.alloc_fragment(out, dtype)
            T.copy(X, x)
            function(x, y, dim=dim)
            T.copy(y, Y[0, 0])
            T.fill(y, 5)
            if kind == "absmax":
                T.reduce_absmax(x, y, dim=dim, clear=False)
            elif kind == "abssum":
                T.fill(y, 0)
                T.reduce_abssum(x, y, dim=dim)
            else:
                function(x, y, dim=dim, clear=False)
            T.copy(y, Y[1, 0])

    held = getattr(torch, dtype)
    x = (10 * torch.randn(24, 40)).to(held)
    y = torch.zeros((2, *out), dtype=held)
    simulate(main, x, y)
    first = exact(x.double(), dim)
    second = first if kind == "abssum" else join(torch.tensor(5.0).double(), first)
    bound = 0.05 if dtype == "float16" else 1e-4
    assert torch.allclose(y.double(), torch.stack((first, second)), rtol=1e-2 * bound + 1e-6, atol=bound * 10)


def test_reduce_max_ignores_nan_as_the_card_does(simulate):
    @T.prim_func
    def main(X: T.Tensor((2, 8), "float32"), Y: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((2, 8), "float32")
            y = T.alloc_fragment((2,), "float32")
            T.copy(X, x)
            T.reduce_max(x, y, dim=1)
            T.copy(y, Y)

    x, y = torch.arange(16.0).reshape(2, 8), torch.zeros(2)
    x[0, 7] = NAN
    simulate(main, x, y)
    assert y.tolist() == [6.0, 15.0]


def test_reshape_and_view_alias(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((64,), "float32"), Z: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((8, 8), "float32")
            flat = T.reshape(a, (64,))
            bits = T.view(a, (64,), "int32")
            T.copy(X, a)
            for i in T.Parallel(64):
                flat[i] = flat[i] + 1.0
            for i, j in T.Parallel(8, 8):
                a[i, j] = a[i, j] * 2.0
            T.copy(flat, Y)
            T.copy(bits, Z)

    x, y, z = torch.randn(8, 8), torch.zeros(64), torch.zeros(64, dtype=torch.int32)
    simulate(main, x, y, z)
    assert torch.equal(y, ((x + 1) * 2).flatten())
    assert torch.equal(z, y.view(torch.int32))


def test_views_of_another_width_know_what_is_written(simulate):
    @T.prim_func
    def main(Y: T.Tensor((8,), "float32"), Z: T.Tensor((16,), "float16")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((16,), "float16")
            wide = T.view(a, (8,), "float32")
            for i in T.Parallel(8):
                wide[i] = T.cast(i, "float32")
            T.copy(a, Z)
            for i in T.Parallel(8):
                Y[i] = wide[i]

    y, z = torch.zeros(8), torch.zeros(16).half()
    simulate(main, y, z)
    assert torch.equal(y, torch.arange(8.0))
    assert torch.equal(z.view(torch.float32), y)


def test_parameters_that_lie_inside_other_tensors(simulate):
    @T.prim_func
    def main(X: T.Tensor((4, 8), "float32"), Y: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((4, 8), "float32")
            T.copy(X, a)
            T.copy(a, Y)

    both = torch.full((5, 4, 8), NAN)
    both[2] = torch.randn(4, 8)
    simulate(main, both[2], both[3])
    assert torch.equal(both[2], both[3])
    assert both[[0, 1, 4]].isnan().all()


def test_layouts_and_swizzles_have_no_effect(simulate):
    import tilelang

    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({a: tilelang.layout.make_swizzled_layout(a)})
            T.use_swizzle(4)
            T.copy(X, a)
            T.sync_threads()
            T.copy(a, Y)

    x, y = torch.randn(64, 64).half(), torch.zeros(64, 64).half()
    simulate(main, x, y)
    assert torch.equal(x, y)

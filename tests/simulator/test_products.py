"""T.gemm: which dtypes go together, TF32, accumulators, operands in fragments, options."""

from math import isnan

import pytest
import tilelang.language as T
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.simulator import Unsupported, run
from grader.simulator.tileops.products import tf32


def product(a_type, c_type, b_type=None, m=32, n=32, k=64, where=("shared", "shared", "fragment"), **options):
    b_type = b_type or a_type
    allocate = {"fragment": T.alloc_fragment, "shared": T.alloc_shared}

    @T.prim_func
    def main(A: T.Tensor((m, k), a_type), B: T.Tensor((k, n), b_type), C: T.Tensor((m, n), c_type)):
        with T.Kernel(1, threads=128) as _bx:
            a = allocate[where[0]]((m, k), a_type)
            b = allocate[where[1]]((k, n), b_type)
            c = allocate[where[2]]((m, n), c_type)
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 1)
            T.gemm(a, b, c, **options)
            T.copy(c, C)

    return main


def operand(dtype: str, *shape: int) -> torch.Tensor:
    held = getattr(torch, dtype)
    if held.is_floating_point:
        return torch.randint(-8, 9, shape).float().to(held)
    info = torch.iinfo(held)
    return torch.randint(info.min, info.max + 1, shape).to(held)


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("float16", "float16", "float16"),
        ("float16", "float16", "float32"),
        ("bfloat16", "bfloat16", "float32"),
        ("float32", "float32", "float32"),
        ("float64", "float64", "float64"),
        ("float8_e4m3fn", "float8_e4m3fn", "float32"),
        ("float8_e5m2", "float8_e5m2", "float16"),
        ("float8_e4m3fn", "float8_e5m2", "float32"),
        ("int8", "int8", "int32"),
        ("uint8", "uint8", "int32"),
    ],
)
def test_small_integers_are_multiplied_exactly_in_every_dtype(simulate, a, b, c):
    x, y = operand(a, 32, 64), operand(b, 64, 32)
    if c == "float16":
        x, y = (t.float().clamp(-2, 2).to(t.dtype) for t in (x, y))
    z = torch.zeros(32, 32, dtype=getattr(torch, c))
    simulate(product(a, c, b), x, y, z)
    assert torch.equal(z.double(), 1 + x.double() @ y.double())


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("float16", "bfloat16", "float32"),
        ("uint8", "int8", "int32"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("float16", "float16", "int32"),
        ("float32", "float32", "float16"),
        ("int8", "int8", "float32"),
    ],
)
def test_products_that_tilelang_does_not_compile_are_refused(read, a, b, c):
    tensors = [operand(a, 32, 64), operand(b, 64, 32), torch.zeros(32, 32, dtype=getattr(torch, c))]
    with pytest.raises(Unsupported, match="matrix product of"):
        run(read(product(a, c, b)), tensors)


def test_where_tiles_may_lie(simulate, read):
    x, y, z = operand("float16", 32, 64), operand("float16", 64, 32), torch.zeros(32, 32)
    for where in (("fragment", "shared", "fragment"), ("shared", "fragment", "fragment")):
        simulate(product("float16", "float32", where=where), x, y, z)
        assert torch.equal(z, 1 + x.float() @ y.float())
    with pytest.raises(Unsupported, match="fragment"):
        run(read(product("float16", "float32", where=("shared", "shared", "shared"))), [x, y, z])


def test_policies_make_no_difference_and_further_options_are_refused(simulate, read):
    x, y, z = operand("float16", 32, 64), operand("float16", 64, 32), torch.zeros(32, 32)
    for policy in (T.GemmWarpPolicy.Square, T.GemmWarpPolicy.FullRow, T.GemmWarpPolicy.FullCol):
        simulate(product("float16", "float32", policy=policy), x, y, z)
        assert torch.equal(z, 1 + x.float() @ y.float())
    with pytest.raises(Unsupported, match="wg_wait"):
        run(read(product("float16", "float32", annotations={"wg_wait": -1})), [x, y, z])


def test_an_accumulator_is_cleared_in_the_first_turn(simulate):
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float16"), B: T.Tensor((64, 32), "float16"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            for k in T.serial(2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c, clear_accum=k == 0)
            T.copy(c, C)

    x, y, z = operand("float16", 32, 64), operand("float16", 64, 32), torch.zeros(32, 32)
    simulate(main, x, y, z)
    assert torch.equal(z, x.float() @ y.float())


def test_float32_operands_are_cut_to_tf32(simulate):
    x, y, z = torch.zeros(32, 64), torch.zeros(64, 32), torch.zeros(32, 32)
    x[0, 0], x[1, 0] = 1 + 2**-10 + 2**-11, -1 - 2**-11
    y[0] = 1.0
    simulate(product("float32", "float32"), x, y, z)
    assert (z[0, 0], z[1, 0]) == (2 + 2**-10, 0.0)


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32, allow_nan=True, allow_infinity=True))
def test_tf32_is_the_next_of_eleven_bits_towards_zero(value):
    cut = float(tf32(torch.tensor([value]))[0])
    if isnan(value):
        assert isnan(cut)
    elif abs(value) >= 2**-126:
        assert abs(cut) <= abs(value)
        assert cut == value or abs(value - cut) < abs(cut) * 2**-10
        assert float(tf32(torch.tensor([cut]))[0]) == cut


def test_a_half_accumulator_is_rounded_after_each_instruction(simulate):
    """2048 + 1 is no half; sums of one instruction's 16 (or, of 8-bit floats, 32) products are exact."""
    for dtype, depth in (("float16", 16), ("float8_e4m3fn", 32)):
        held = getattr(torch, dtype)
        x, y = torch.zeros(32, 64), torch.zeros(64, 32)
        x[:, 0], y[0] = 32.0, 64.0
        x[:, depth - 1], y[depth - 1] = 1.0, 1.0  # 2048 + 1, and the 1 of before, in one instruction: 2050
        x[:, depth], y[depth] = 1.0, 1.0  # 2050 + 1 in another: a tie, to even
        z = torch.zeros(32, 32).half()
        simulate(product(dtype, "float16"), x.to(held), y.to(held), z)
        assert torch.equal(z, torch.full_like(z, 2052.0))


def test_tfloat32_is_rounded_when_it_is_stored_and_exact_after(simulate):
    @T.prim_func
    def main(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((32, 32), T.tfloat32)
            b = T.alloc_shared((32, 32), T.tfloat32)
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    # Ten bits of the fraction: halves go away from zero, what is less than half an ulp is lost.
    values = [1.0, 1 + 2**-10, 1 + 2**-11, -(1 + 2**-11), 1 + 2**-12, float("inf"), 2**-130]
    rounded = [1.0, 1 + 2**-10, 1 + 2**-10, -(1 + 2**-10), 1.0, float("inf"), 2**-130]
    a, c = torch.zeros(32, 32), torch.zeros(32, 32)
    a[: len(values), 0] = torch.tensor(values)
    b = torch.zeros(32, 32)
    b[0, 0] = 1.0
    simulate(main, a, b, c)
    assert c[: len(values), 0].tolist() == rounded

"""T.ieee_* in every rounding mode, by exact rational arithmetic; T.clz."""

import math
from fractions import Fraction

import pytest
import tilelang.language as T
import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.simulator import Unsupported, rounding

MODES = ("rn", "rz", "ru", "rd")
INF = math.inf
TINY = 2.0**-149
LARGEST = float(torch.finfo(torch.float32).max)


def beside(value: float, towards: float) -> float:
    return float(torch.nextafter(torch.tensor(value), torch.tensor(towards)))


def bracket(reaches) -> tuple[float, float]:
    """The float32 values around an exact one: ``reaches(x)`` says whether it is at least x. By bisection."""
    low, high = -(0xFF << 23), 0xFF << 23  # in the order of floats, from -inf to inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reaches(value_of(middle)) else (low, middle)
    return value_of(low), value_of(high)


def value_of(place: int) -> float:
    return math.copysign(float(torch.tensor(abs(place), dtype=torch.int32).view(torch.float32)), place)


def directed(reaches, equals, negative: bool, mode: str) -> float:
    low, high = bracket(reaches)
    if low > -INF and equals(low):
        return low
    return {"rd": low, "ru": high, "rz": high if negative else low}[mode]


def of(exact: Fraction, mode: str) -> float:
    return directed(
        lambda x: x == -INF or (x < INF and exact >= Fraction(x)), lambda x: exact == Fraction(x), exact < 0, mode
    )


def root(exact: Fraction, mode: str) -> float:
    return directed(
        lambda x: x <= 0 or (x < INF and exact >= Fraction(x) ** 2),
        lambda x: exact == Fraction(x) ** 2,
        False,
        mode,
    )


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOATS, FLOATS, FLOATS, st.sampled_from(MODES[1:]))
def test_directed_rounding_is_that_of_the_exact_result(a, b, c, mode):
    x, y, z = (torch.tensor(value, dtype=torch.float32) for value in (a, b, c))
    p, q, r = Fraction(a), Fraction(b), Fraction(c)

    def found(name: str, *values: torch.Tensor) -> float:
        return float(rounding.DIRECTED[f"tl.ieee_{name}"](*values, mode=mode))

    assert found("add", x, y) == of(p + q, mode)
    assert found("sub", x, y) == of(p - q, mode)
    assert found("mul", x, y) == of(p * q, mode)
    assert found("fmaf", x, y, z) == of(p * q + r, mode)
    if b:
        assert found("fdiv", x, y) == of(p / q, mode)
        assert found("frcp", y) == of(1 / q, mode)
    if a >= 0:
        assert found("fsqrt", x) == root(p, mode)


@given(FLOATS, FLOATS, FLOATS)
def test_fused_products_are_rounded_once(a, b, c):
    x, y, z = (torch.tensor(value, dtype=torch.float32) for value in (a, b, c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    low, high = of(exact, "rd"), of(exact, "ru")
    if low > -INF and high < INF:
        found = float(rounding.fused(x, y, z))
        assert found in (low, high)
        other = low if found == high else high
        assert abs(Fraction(found) - exact) <= abs(Fraction(other) - exact)


def test_a_fused_product_just_above_a_tie():
    """A float64 sum loses what the product has beyond 2**-24; the tie that is left would round down to 1."""
    x, y = torch.tensor(8391483 / 2**23), torch.tensor(8385734 / 2**47)
    assert 0 < Fraction(float(x)) * Fraction(float(y)) - Fraction(2) ** -24 < Fraction(2) ** -53
    assert float(rounding.fused(x, y, torch.tensor(1.0))) == ONE_UP
    assert float(rounding.fused(x, -y, torch.tensor(-1.0))) == -ONE_UP


def arithmetic(mode: str, dtype: str, n: int):
    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((7, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = T.ieee_add(X[i], Y[i], mode)
                Z[1, i] = T.ieee_sub(X[i], Y[i], mode)
                Z[2, i] = T.ieee_mul(X[i], Y[i], mode)
                Z[3, i] = T.ieee_fdiv(X[i], Y[i], mode)
                Z[4, i] = T.ieee_frcp(Y[i], mode)
            for i in T.serial(n):
                Z[5, i] = T.ieee_fsqrt(X[i], mode)
                Z[6, i] = T.ieee_fmaf(X[i], Y[i], X[i], mode)

    return main


ONE_UP, ONE_DOWN = 1 + 2.0**-23, 1 - 2.0**-24
THIRD = 11184811 / 2**25  # the float32 just above 1 / 3
ROOT = 11863283 / 2**23  # and the one just below the root of 2


@pytest.mark.parametrize(
    ("mode", "added", "subtracted"),
    [
        ("rn", [1.0, -1.0], [1.0, -1.0]),
        ("rz", [1.0, -ONE_DOWN], [ONE_DOWN, -1.0]),
        ("ru", [ONE_UP, -ONE_DOWN], [1.0, -1.0]),
        ("rd", [1.0, -1.0], [ONE_DOWN, -ONE_UP]),
    ],
)
def test_a_small_addend_steps_by_the_mode(simulate, mode, added, subtracted):
    """2**-60 is lost in a float64 sum too."""
    x, y, z = torch.tensor([1.0, -1.0]), torch.tensor([2.0**-60, 2.0**-60]), torch.zeros(7, 2)
    simulate(arithmetic(mode, "float32", 2), x, y, z)
    assert z[0].tolist() == added
    assert z[1].tolist() == subtracted


@pytest.mark.parametrize("mode", MODES)
def test_known_values(simulate, mode):
    x = torch.tensor([1.0, 2.0, -1.0, LARGEST, TINY, 1.0, INF])
    y = torch.tensor([3.0, -2.0, 3.0, LARGEST, 0.5, 0.0, INF])
    z = torch.zeros(7, 7)
    simulate(arithmetic(mode, "float32", 7), x, y, z)
    below = beside(THIRD, 0)
    assert z[3, 0] == {"rn": THIRD, "rz": below, "ru": THIRD, "rd": below}[mode]
    assert z[3, 2] == {"rn": -THIRD, "rz": -below, "ru": -below, "rd": -THIRD}[mode]
    assert z[4, 0] == z[3, 0]
    assert z[5, 1] == {"rn": ROOT, "rz": ROOT, "ru": beside(ROOT, INF), "rd": ROOT}[mode]
    assert z[0, 1] == 0
    assert bool(z[0, 1].signbit()) == (mode == "rd")
    # Beyond the largest number, and below the smallest:
    assert z[0, 3] == z[2, 3] == {"rn": INF, "rz": LARGEST, "ru": INF, "rd": LARGEST}[mode]
    assert z[2, 4] == {"rn": 0, "rz": 0, "ru": TINY, "rd": 0}[mode]
    assert z[3, 5] == z[4, 5] == z[0, 6] == INF
    assert z[1, 6].isnan()
    assert z[3, 6].isnan()


def test_directed_rounding_of_doubles_is_refused(simulate):
    x, y, z = torch.ones(2), torch.ones(2), torch.ones(7, 2)
    with pytest.raises(Unsupported, match="rounding mode 'ru' of float64"):
        simulate(arithmetic("ru", "float64", 2), x.double(), y.double(), z.double())
    simulate(arithmetic("rn", "float64", 2), x.double(), y.double(), z := z.double())
    assert z[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("dtype", "values", "zeros"),
    [
        ("int32", [0, 1, -1, 2**30, 255], [32, 31, 0, 1, 24]),
        ("uint32", [0, 1, 2**32 - 1, 2**31, 2**30], [32, 31, 0, 0, 1]),
        ("int64", [0, 1, -1, 2**62, 2**32], [64, 63, 0, 1, 31]),
        ("uint64", [0, 1, 7, 2**62, 2**32], [64, 63, 61, 1, 31]),
    ],
)
def test_leading_zeros(simulate, dtype, values, zeros):
    @T.prim_func
    def main(X: T.Tensor((5,), dtype), Z: T.Tensor((2, 5), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(5):
                Z[0, i] = T.clz(X[i])
            for i in T.serial(5):
                Z[1, i] = T.clz(X[i])

    z = torch.zeros(2, 5, dtype=torch.int32)
    simulate(main, torch.tensor(values, dtype=getattr(torch, dtype)), z)
    assert z.tolist() == [zeros, zeros]

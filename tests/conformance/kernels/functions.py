"""Functions of floats: exact and fast forms, IEEE forms with a rounding mode, predicates.

How far a function may be off is what NVIDIA documents for it, in ulp of float32 ("CUDA C++ Programming Guide",
appendix "Mathematical Functions"); halves are computed in float32 and rounded once.
"""

import math
from collections.abc import Callable

import tilelang.language as T
import torch

from ..bounded import UNIT, Bounded, bounded, held
from ..registry import FLOATS, built, conforms, draw, out

#: Name -> (torch's function, range of arguments, ulp in float32, ulp in float64)
FUNCTIONS: dict[str, tuple[Callable, tuple[float, float], float, float]] = {
    "exp": (torch.exp, (-8, 8), 2, 1),
    "exp2": (torch.exp2, (-8, 8), 2, 1),
    "exp10": (lambda x: torch.pow(10.0, x), (-4, 4), 2, 1),
    "log": (torch.log, (0.01, 50), 1, 1),
    "log2": (torch.log2, (0.01, 50), 1, 1),
    "log10": (torch.log10, (0.01, 50), 2, 1),
    "log1p": (torch.log1p, (-0.9, 20), 1, 1),
    "sqrt": (torch.sqrt, (0, 50), 0.5, 0.5),
    "rsqrt": (torch.rsqrt, (0.01, 50), 2, 1),
    "sin": (torch.sin, (-6, 6), 2, 2),
    "cos": (torch.cos, (-6, 6), 2, 2),
    "tan": (torch.tan, (-1.4, 1.4), 4, 2),
    "asin": (torch.asin, (-1, 1), 2, 2),
    "acos": (torch.acos, (-1, 1), 2, 2),
    "atan": (torch.atan, (-8, 8), 2, 2),
    "sinh": (torch.sinh, (-5, 5), 3, 2),
    "cosh": (torch.cosh, (-5, 5), 2, 1),
    "tanh": (torch.tanh, (-4, 4), 2, 1),
    "asinh": (torch.asinh, (-8, 8), 3, 3),
    "acosh": (torch.acosh, (1.01, 20), 4, 3),
    "atanh": (torch.atanh, (-0.95, 0.95), 3, 2),
    "erf": (torch.erf, (-3, 3), 2, 2),
    "floor": (torch.floor, (-9, 9), 0, 0),
    "ceil": (torch.ceil, (-9, 9), 0, 0),
    "trunc": (torch.trunc, (-9, 9), 0, 0),
    "abs": (torch.abs, (-9, 9), 0, 0),
    "nearbyint": (torch.round, (-9, 9), 0, 0),
}


def off(value: torch.Tensor, dtype: str, single: float, double: float) -> Bounded:
    """An exact value and the ulps that a function may be off by, computed in float32 (or float64) and rounded.

    One ulp is two unit roundoffs. torch's own float64 functions, which give ``value``, may be off by one too.
    """
    exact = bounded(value)
    if dtype == "float64":
        return exact.rounded(torch.float64, 2 * double + 2)
    computed = exact.rounded(torch.float32, 2 * single)
    return computed if dtype == "float32" else computed.rounded(held(dtype))


def unary(function: Callable, dtype: str, n: int):
    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[i] = function(X[i])

    return main


#: Functions that TileLang 0.1.15 has for float32 and float64 only: others end as "Unresolved call", or call a
#: function that CUDA doesn't have.
NOT_OF_HALVES = {"log1p", "asin", "acos", "asinh", "acosh", "atanh", "atan2", "hypot", "copysign"}
NOT_IN_CUDA = {"sinh", "cosh", "tan", "pow"}


def missing(dtype: str, function: str) -> str:
    if (dtype, function) == ("bfloat16", "pow"):
        return "power only applies to float"
    if dtype in ("float16", "bfloat16"):
        if function in NOT_OF_HALVES:
            return f"Unresolved call tirx.{function}"
        if function in NOT_IN_CUDA:
            return f"nvcc: no instance of overloaded function h{function}"
        if function == "fast_rcp":
            return "tl.fast_rcp currently supports scalar float32 only"
    return ""


@conforms(
    "functions of one float", dtypes=FLOATS, shapes=[(64,), (160,)], uncompilable=missing, function=FUNCTIONS
)
def function_of_one(dtype, shape, function):
    exact, (low, high), single, double = FUNCTIONS[function]
    x = draw(dtype, shape, low, high).clamp(low, high)
    if single == 0:
        x[:4] = torch.tensor([0.5, 1.5, -0.5, 2.5]).to(x.dtype)  # ties
        return built(unary(getattr(T, function), dtype, *shape), [x], out(exact(x.double()), dtype))
    return built(
        unary(getattr(T, function), dtype, *shape), [x], out(off(exact(x.double()), dtype, single, double), dtype)
    )


@conforms("T.sigmoid", dtypes=FLOATS, shapes=[(64,), (160,)])
def sigmoid(dtype, shape):
    """1 / (1 + exp(-x)) in the dtype: an exponential, a sum and a quotient, each rounded."""
    x = draw(dtype, shape, -6, 6)
    u = torch.float64 if dtype == "float64" else torch.float32
    one = bounded(torch.ones(shape, dtype=torch.float64))
    exponential = off(torch.exp(-x.double()), dtype, 2, 1)
    want = one / (one + exponential).rounded(held(dtype))
    return built(unary(T.sigmoid, dtype, *shape), [x], out(want.rounded(u).rounded(held(dtype)), dtype))


def half_away(x: torch.Tensor) -> torch.Tensor:
    return x.sign() * (x.abs() + 0.5).floor()


@conforms("T.round", dtypes=FLOATS, shapes=[(64,), (160,)], mode=("ties-to-even", "ties-away-from-zero"))
def rounding(dtype, shape, mode):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[i] = T.round(X[i], rounding_mode=mode)

    x = draw(dtype, shape, -9, 9)
    x[:6] = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5]).to(x.dtype)
    exact = x.double()
    return built(main, [x], out(exact.round() if mode == "ties-to-even" else half_away(exact), dtype))


#: Name -> (torch's function, first range, second range, ulp in float32, ulp in float64)
BINARY = {
    "pow": (torch.pow, (0.1, 4), (-3, 3), 8, 2),
    "fmod": (torch.fmod, (-9, 9), (0.5, 3), 0, 0),
    "atan2": (torch.atan2, (-4, 4), (-4, 4), 3, 2),
    "hypot": (torch.hypot, (-4, 4), (-4, 4), 3, 2),
    "copysign": (torch.copysign, (-4, 4), (-4, 4), 0, 0),
}


@conforms(
    "functions of two floats",
    dtypes=FLOATS,
    shapes=[(64,), (160,)],
    uncompilable=missing,
    function=BINARY,
)
def function_of_two(dtype, shape, function):
    (n,) = shape
    exact, first, second, single, double = BINARY[function]
    made = getattr(T, function)

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[i] = made(X[i], Y[i])

    x, y = draw(dtype, shape, *first), draw(dtype, shape, *second)
    value = exact(x.double(), y.double())
    return built(main, [x, y], out(value if single == 0 else off(value, dtype, single, double), dtype))


@conforms("T.pow with a constant", dtypes=["float32", "float64"], shapes=[(64,), (160,)])
def powers(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((2, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[0, i] = T.pow(X[i], T.cast(3, dtype))
                Y[1, i] = T.pow(X[i], T.cast(-0.5, dtype))

    x = draw(dtype, shape, 0.2, 3)
    return built(main, [x], out(off(torch.stack((x.double() ** 3, x.double() ** -0.5)), dtype, 8, 2), dtype))


@conforms("T.ldexp, nextafter", dtypes=["float32", "float64"], shapes=[(64,), (160,)])
def bits_of_floats(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), K: T.Tensor((n,), "int32"), Y: T.Tensor((2, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[0, i] = T.ldexp(X[i], K[i])
                Y[1, i] = T.nextafter(X[i], T.cast(100, dtype))

    x, k = draw(dtype, shape), draw("int32", shape)
    y = torch.stack((torch.ldexp(x, k), torch.nextafter(x, torch.full_like(x, 100))))
    return built(main, [x, k], out(y, dtype))


@conforms(
    "T.isnan, isinf, isfinite",
    dtypes=FLOATS,
    shapes=[(64,), (160,)],
    uncompilable=lambda dtype: "bfloat16 not supported for isnan" if dtype == "bfloat16" else "",
)
def predicates(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((3, n), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[0, i] = T.if_then_else(T.isnan(X[i]), 1, 0)
                Y[1, i] = T.if_then_else(T.isinf(X[i]), 1, 0)
                Y[2, i] = T.if_then_else(T.isfinite(X[i]), 1, 0)

    x = draw(dtype, shape)
    x[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")]).to(x.dtype)
    y = torch.stack((x.isnan(), x.isinf(), x.isfinite()))
    return built(main, [x], out(y.to(torch.int32), "int32"))


# Fast forms

#: Name -> (torch's function, range, error in float32 beyond the exact value's magnitude: of x and f(x))
FAST: dict[str, tuple[Callable, tuple[float, float], Callable]] = {
    "__exp": (torch.exp, (-8, 8), lambda x, y: _ulps(y, 2 + (1.173 * x.abs()).floor())),
    "__exp10": (lambda x: torch.pow(10.0, x), (-4, 4), lambda x, y: _ulps(y, 2 + (2.97 * x.abs()).floor())),
    "__log": (torch.log, (0.01, 50), lambda x, y: torch.maximum(_ulps(y, 3), torch.full_like(y, 2**-21.41))),
    "__log2": (torch.log2, (0.01, 50), lambda x, y: torch.maximum(_ulps(y, 2), torch.full_like(y, 2**-22))),
    "__log10": (torch.log10, (0.01, 50), lambda x, y: torch.maximum(_ulps(y, 3), torch.full_like(y, 2**-24))),
    "__sin": (torch.sin, (-3.14, 3.14), lambda x, y: torch.full_like(y, 2**-21.41)),
    "__cos": (torch.cos, (-3.14, 3.14), lambda x, y: torch.full_like(y, 2**-21.19)),
    "__tan": (torch.tan, (-1.2, 1.2), lambda x, y: 2**-21.19 * (1 + y.abs()) / x.cos().abs() + _ulps(y, 2)),
    "fast_rcp": (torch.reciprocal, (0.1, 8), lambda x, y: _ulps(y, 1)),
}


def _ulps(y: torch.Tensor, count: torch.Tensor | float) -> torch.Tensor:
    return 2 * UNIT[torch.float32] * y.abs() * count


@conforms(
    "fast forms: T.__exp, …",
    dtypes=["float32", "float16", "bfloat16"],
    shapes=[(64,), (160,)],
    uncompilable=missing,
    function=FAST,
)
def fast_function(dtype, shape, function):
    exact, (low, high), error = FAST[function]
    x = draw(dtype, shape, low, high)
    y = exact(x.double())
    want = Bounded(y, error(x.double(), y)).rounded(torch.float32).rounded(held(dtype))
    return built(unary(getattr(T, function), dtype, *shape), [x], out(want, dtype))


# IEEE forms, whose rounding mode is stated

MODES = ("rn", "rz", "ru", "rd")


def directed(exact: torch.Tensor, mode: str) -> torch.Tensor:
    """A float64 value rounded to float32 in a mode. Exact where float64 holds the exact result."""
    near = exact.float()
    up = torch.where(near.double() < exact, torch.nextafter(near, torch.tensor(math.inf)), near)
    down = torch.where(near.double() > exact, torch.nextafter(near, torch.tensor(-math.inf)), near)
    toward_zero = torch.where(exact > 0, down, up)
    return {"rn": near, "rz": toward_zero, "ru": up, "rd": down}[mode]


@conforms("T.ieee_add, sub, mul, with rounding modes", dtypes=["float32"], shapes=[(64,), (160,)], mode=MODES)
def ieee_arithmetic(dtype, shape, mode):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((3, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = T.ieee_add(X[i], Y[i], mode)
                Z[1, i] = T.ieee_sub(X[i], Y[i], mode)
                Z[2, i] = T.ieee_mul(X[i], Y[i], mode)

    x, y = draw(dtype, shape), draw(dtype, shape)
    a, b = x.double(), y.double()  # such sums and products fit into float64
    rows = torch.stack([directed(value, mode) for value in (a + b, a - b, a * b)])
    return built(main, [x, y], out(rows, dtype))


@conforms("T.ieee_fdiv, frcp, fsqrt, fmaf, frsqrt", dtypes=["float32"], shapes=[(64,), (160,)], mode=MODES)
def ieee_functions(dtype, shape, mode):
    """In float64 these are rounded before they are rounded to float32: half an ulp is allowed either way."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((5, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = T.ieee_fdiv(X[i], Y[i], mode)
                Z[1, i] = T.ieee_frcp(X[i], mode)
                Z[2, i] = T.ieee_fsqrt(X[i], mode)
                Z[3, i] = T.ieee_fmaf(X[i], Y[i], X[i], mode)
                Z[4, i] = T.ieee_frsqrt(X[i])

    x, y = draw(dtype, shape, 0.5, 4), draw(dtype, shape, 0.5, 4)
    a, b = x.double(), y.double()
    rows = bounded(torch.stack((a / b, 1 / a, a.sqrt(), a * b + a, a.rsqrt())))
    return built(main, [x, y], out(rows.rounded(torch.float32, 1 if mode == "rn" else 2), dtype))


@conforms("T.fma, T.fmul", dtypes=["float32", "float64", "float16", "bfloat16"], shapes=[(64,), (160,)])
def fused(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((2, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = T.fma(X[i], Y[i], X[i])
                Z[1, i] = T.fmul(X[i], Y[i])

    x, y = draw(dtype, shape), draw(dtype, shape)
    a, b, u = bounded(x), bounded(y), held(dtype)
    rows = ((a * b + a).rounded(u), (a * b).rounded(u))
    want = Bounded(torch.stack([row.value for row in rows]), torch.stack([row.error for row in rows]))
    return built(main, [x, y], out(want, dtype))

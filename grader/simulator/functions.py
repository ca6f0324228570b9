"""The scalar functions and operators: the one place to add one.

``UNARY`` and ``BINARY_CALLS`` are the operators that a Call may name; ``ARITHMETIC`` and ``COMPARISONS`` the
operators of Binary nodes. Each works on tensors of one dtype; those of integers also have a form on Python
ints, for scalars. Halves are computed in float32 and rounded once, as the card's functions are.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch

from grader.simulator import rounding, unsigned
from grader.simulator.dtypes import DType, Value

Function = Callable[..., Any]


def _erf_free_sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-x))


def _exp10(x: torch.Tensor) -> torch.Tensor:
    return torch.pow(10.0, x.double()).to(x.dtype)


def _sqrt(x: torch.Tensor) -> torch.Tensor:
    """Rounded once, as on the card: torch's float32 square root is not."""
    return x.double().sqrt().to(x.dtype)


def _exact_rsqrt(x: torch.Tensor) -> torch.Tensor:
    return x.double().rsqrt().to(x.dtype)


def _round_away(x: torch.Tensor) -> torch.Tensor:
    """C's round(): a half goes away from zero."""
    return torch.where(x.frac().abs() == 0.5, x + 0.5 * x.sign(), x.round())


#: Functions of one float.
UNARY: dict[str, Function] = {
    "tirx.exp": torch.exp,
    "tirx.exp2": torch.exp2,
    "tirx.exp10": _exp10,
    "tirx.log": torch.log,
    "tirx.log2": torch.log2,
    "tirx.log10": torch.log10,
    "tirx.log1p": torch.log1p,
    "tirx.sqrt": _sqrt,
    "tirx.rsqrt": torch.rsqrt,
    "tirx.sin": torch.sin,
    "tirx.cos": torch.cos,
    "tirx.tan": torch.tan,
    "tirx.asin": torch.asin,
    "tirx.acos": torch.acos,
    "tirx.atan": torch.atan,
    "tirx.sinh": torch.sinh,
    "tirx.cosh": torch.cosh,
    "tirx.tanh": torch.tanh,
    "tirx.asinh": torch.asinh,
    "tirx.acosh": torch.acosh,
    "tirx.atanh": torch.atanh,
    "tirx.sigmoid": _erf_free_sigmoid,
    "tirx.erf": torch.erf,
    "tirx.fabs": torch.abs,
    "tirx.floor": torch.floor,
    "tirx.ceil": torch.ceil,
    "tirx.trunc": torch.trunc,
    "tirx.nearbyint": torch.round,
    # TileLang makes nearbyint of T.round: halves go to the even neighbour.
    "tirx.round": torch.round,
    "tl.round_ties_away_from_zero": _round_away,
    "tl.__exp": torch.exp,
    "tl.__exp10": _exp10,
    "tl.__log": torch.log,
    "tl.__log2": torch.log2,
    "tl.__log10": torch.log10,
    "tl.__sin": torch.sin,
    "tl.__cos": torch.cos,
    "tl.__tan": torch.tan,
    "tl.fast_rcp": torch.reciprocal,
    "tl.ieee_frcp": torch.reciprocal,
    "tl.ieee_fsqrt": _sqrt,
    "tl.ieee_frsqrt": _exact_rsqrt,
}

#: Functions of a float that give a truth value.
PREDICATES: dict[str, Function] = {
    "tirx.isnan": torch.isnan,
    "tirx.isinf": torch.isinf,
    "tirx.isfinite": torch.isfinite,
}

#: Functions of two floats.
BINARY_CALLS: dict[str, Function] = {
    "tirx.pow": torch.pow,
    "tirx.fmod": torch.fmod,
    "tirx.atan2": torch.atan2,
    "tirx.hypot": torch.hypot,
    "tirx.copysign": torch.copysign,
    "tirx.nextafter": torch.nextafter,
    "tl.fmul": torch.mul,
    "tl.ieee_add": torch.add,
    "tl.ieee_sub": torch.sub,
    "tl.ieee_mul": torch.mul,
    "tl.ieee_fdiv": torch.div,
}


def _fma(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """x y + z, rounded once.

    The product of doubles is a sum of two, by splitting the factors
    (T. J. Dekker, "A floating-point technique for extending the available precision", 1971), and what the addition
    loses is found the same way (D. E. Knuth's two-sum).
    """
    if x.dtype != torch.float64:
        return rounding.fused(x, y, z)
    product = x * y
    (x_high, x_low), (y_high, y_low) = _split(x), _split(y)
    lost = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    total = product + z
    part = total - product
    lost = lost + ((product - (total - part)) + (z - part))
    return torch.where(lost.isfinite(), total + lost, total)


def _split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A double as two halves of at most 26 bits, where that doesn't overflow."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _clamp(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return torch.minimum(torch.maximum(x, low), high)


#: Functions of three floats.
TERNARY: dict[str, Function] = {"tl.fma": _fma, "tl.ieee_fmaf": _fma, "tl.clamp": _clamp}

#: The rounding mode that all other functions have.
TO_NEAREST = "rn"

#: Number of operands -> functions of that many floats.
FLOAT_CALLS: dict[int, dict[str, Function]] = {1: UNARY, 2: BINARY_CALLS, 3: TERNARY}


def in_float32(function: Function, dtype: DType) -> Function:
    """A float function of tensors whose halves are computed in float32."""
    if dtype.name in ("float32", "float64"):
        return function
    return lambda *args: dtype.settle(function(*(arg.to(torch.float32) for arg in args)).to(dtype.carrier))


# Operators. On floats, and on integers as long as one operand is a tensor:


def _minimum(x: Value, y: Value) -> torch.Tensor:
    if not isinstance(y, torch.Tensor):
        return x.clamp(max=y)
    return torch.minimum(x, y) if isinstance(x, torch.Tensor) else y.clamp(max=x)


def _maximum(x: Value, y: Value) -> torch.Tensor:
    if not isinstance(y, torch.Tensor):
        return x.clamp(min=y)
    return torch.maximum(x, y) if isinstance(x, torch.Tensor) else y.clamp(min=x)


TENSOR_ARITHMETIC: dict[str, Function] = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul}
FLOAT_ARITHMETIC: dict[str, Function] = TENSOR_ARITHMETIC | {
    "Div": operator.truediv,
    "Mod": torch.fmod,
    "FloorDiv": lambda x, y: torch.floor(x / y),
    "FloorMod": torch.remainder,
    # As on the card, the other operand wins over NaN.
    "Min": torch.fmin,
    "Max": torch.fmax,
}
INTEGER_TENSOR_ARITHMETIC: dict[str, Function] = TENSOR_ARITHMETIC | {"Min": _minimum, "Max": _maximum}
INTEGER_ARITHMETIC: dict[str, Function] = TENSOR_ARITHMETIC | {"Min": min, "Max": max}
COMPARISONS: dict[str, Function] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}

#: Integer division: on Python ints, and torch's rounding mode (None: the remainder).
DIVISIONS = {"Div": "trunc", "Mod": "trunc", "FloorDiv": "floor", "FloorMod": "floor", "tl.truncmod": "trunc"}
REMAINDERS = frozenset({"Mod", "FloorMod"})


def compare(op: str, dtype: DType) -> Function:
    """A comparison of two values of a dtype."""
    function = COMPARISONS[op]
    if not dtype.is_uint64:
        return function
    return lambda x, y: function(unsigned.ordered(x), unsigned.ordered(y))


def integer_arithmetic(op: str, dtype: DType, *, tensors: bool) -> Function:
    """An operator of integers, where one of the operands is a tensor or none is; its result isn't settled."""
    function = (INTEGER_TENSOR_ARITHMETIC if tensors else INTEGER_ARITHMETIC)[op]
    return dtype.in_order(function) if op in ("Min", "Max") else function


def divide(op: str, x: int, y: int, dtype: DType) -> int:
    """Integer division of scalars; y isn't 0."""
    x, y = dtype.number(x), dtype.number(y)
    quotient = x // y
    if DIVISIONS[op] == "trunc" and quotient < 0 and quotient * y != x:
        quotient += 1
    return dtype.wrap(x - quotient * y if op in REMAINDERS else quotient)


def divide_tensors(op: str, x: Value, y: Value, dtype: DType) -> torch.Tensor:
    """Integer division where one operand is a tensor; y has no 0."""
    x, y = (torch.as_tensor(v, dtype=torch.int64) for v in (x, y))
    if dtype.is_uint64:
        quotient = unsigned.quotient(x, y)
        return x - quotient * y if op in REMAINDERS else quotient
    # In int64, and never by -1: the lowest integer over -1 ends the process.
    negative = y == -1
    safe = torch.where(negative, 1, y)
    quotient = torch.div(x, safe, rounding_mode=DIVISIONS[op])
    quotient = torch.where(negative, -x, quotient)
    result = x - quotient * y if op in REMAINDERS else quotient
    return dtype.settle(result.to(dtype.carrier))


def _shift(left: bool) -> Function:
    def on_scalars(x: int, y: int, dtype: DType) -> int:
        x, y = dtype.number(x), dtype.number(y)
        if not 0 <= y < dtype.bits:
            return -1 if not left and x < 0 else 0
        return dtype.wrap(x << y if left else x >> y)

    def on_tensors(x: Value, y: Value, dtype: DType) -> torch.Tensor:
        x, y = (torch.as_tensor(v, dtype=torch.int64) for v in (x, y))
        legal = (y >= 0) & (y < dtype.bits)
        if left or dtype.kind == "uint":
            amount = torch.where(legal, y, 0)
            if dtype.is_uint64 and not left:
                shifted = unsigned.shift_right(x, amount)
            else:
                shifted = (torch.bitwise_left_shift if left else torch.bitwise_right_shift)(x, amount)
            shifted = torch.where(legal, shifted, 0)
        else:
            shifted = torch.bitwise_right_shift(x, torch.where(legal, y, dtype.bits - 1))
        return dtype.settle(shifted.to(dtype.carrier))

    return lambda x, y, dtype: (
        on_scalars(x, y, dtype)
        if not isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor)
        else on_tensors(x, y, dtype)
    )


def _popcount(x: Value, dtype: DType) -> Value:
    if not isinstance(x, torch.Tensor):
        return (x & ((1 << dtype.bits) - 1)).bit_count()
    wide, count = x.to(torch.int64), torch.zeros_like(x, dtype=torch.int64)
    for bit in range(dtype.bits):
        count += (wide >> bit) & 1
    return count.to(dtype.carrier)


def _leading_zeros(x: Value, dtype: DType) -> Value:
    if not isinstance(x, torch.Tensor):
        return dtype.bits - (x & ((1 << dtype.bits) - 1)).bit_length()
    wide, count = x.to(torch.int64), torch.zeros_like(x, dtype=torch.int64)
    still = torch.ones_like(x, dtype=torch.bool)
    for bit in reversed(range(dtype.bits)):
        still = still & ((wide >> bit) & 1 == 0)
        count += still
    return count.to(torch.int32)


#: Functions of one integer and its dtype. That of leading zeros gives an int32, of integers of 32 or 64 bits.
BIT_COUNTS: dict[str, Function] = {"tirx.popcount": _popcount, "tirx.clz": _leading_zeros}
LEADING_ZEROS = "tirx.clz"

#: Functions of integers and their dtype, of scalars and tensors alike.
BITS: dict[str, Function] = {
    "tirx.bitwise_and": lambda x, y, dtype: x & y,
    "tirx.bitwise_or": lambda x, y, dtype: x | y,
    "tirx.bitwise_xor": lambda x, y, dtype: x ^ y,
    "tirx.shift_left": _shift(left=True),
    "tirx.shift_right": _shift(left=False),
}

"""Directed rounding: T.ieee_add and its kind with the modes rz (towards zero), ru (up) and rd (down).

Operands are float32. Each function finds the float32 next to the exact result (either neighbour will do) and, in
float64, on which side of it the exact result lies; then it steps to the other neighbour if the mode asks for it.
That is exact: products of two float32 values have no more than 48 bits, and the error of a sum in float64 is
itself a float64 (Knuth's two-sum; no exponent of float32 operands comes near float64's limits).
"""

import math
from collections.abc import Callable

import torch

#: The value that each mode rounds towards.
MODES = {"rz": 0.0, "ru": math.inf, "rd": -math.inf}


def _step(near: torch.Tensor, above: torch.Tensor, below: torch.Tensor, mode: str) -> torch.Tensor:
    """``near`` or the float32 beside it. ``above``, ``below``: where near is larger or smaller than the result.

    Where the exact result is infinite or no number, neither may be set.
    """
    away = {"rz": (above & (near > 0)) | (below & (near < 0)), "ru": below, "rd": above}[mode]
    return torch.where(away, torch.nextafter(near, torch.tensor(MODES[mode])), near)


def two_sum(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rounded sum and what it lacks of the exact one, of float64."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _sum(a: torch.Tensor, b: torch.Tensor, mode: str) -> torch.Tensor:
    """Of float64 values."""
    total, lack = two_sum(a, b)
    near = total.to(torch.float32)
    wide = near.double()
    above, below = (wide > total) | ((wide == total) & (lack < 0)), (wide < total) | ((wide == total) & (lack > 0))
    result = _step(near, above, below, mode)
    if mode == "rd":
        # IEEE 754: what cancels is -0 when rounded down, and +0 otherwise.
        cancels = (total == 0) & (lack == 0) & (a.signbit() | b.signbit())
        result = torch.where(cancels, torch.tensor(-0.0), result)
    return result


def _add(x: torch.Tensor, y: torch.Tensor, mode: str) -> torch.Tensor:
    return _sum(x.double(), y.double(), mode)


def _sub(x: torch.Tensor, y: torch.Tensor, mode: str) -> torch.Tensor:
    return _sum(x.double(), -y.double(), mode)


def _fma(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, mode: str) -> torch.Tensor:
    return _sum(x.double() * y.double(), z.double(), mode)


def _mul(x: torch.Tensor, y: torch.Tensor, mode: str) -> torch.Tensor:
    exact = x.double() * y.double()
    near = exact.to(torch.float32)
    return _step(near, near.double() > exact, near.double() < exact, mode)


def _div(x: torch.Tensor, y: torch.Tensor, mode: str) -> torch.Tensor:
    x, y = x.double(), y.double()
    near = (x / y).to(torch.float32)
    back = near.double() * y
    larger, smaller = back > x, back < x
    negative = y < 0
    return _step(near, torch.where(negative, smaller, larger), torch.where(negative, larger, smaller), mode)


def _rcp(x: torch.Tensor, mode: str) -> torch.Tensor:
    return _div(torch.ones(()), x, mode)


def _sqrt(x: torch.Tensor, mode: str) -> torch.Tensor:
    exact = x.double()
    near = exact.sqrt().to(torch.float32)
    back = near.double().square()
    return _step(near, back > exact, back < exact, mode)


#: Operator -> function of its operands, float32, and the mode.
DIRECTED: dict[str, Callable[..., torch.Tensor]] = {
    "tl.ieee_add": _add,
    "tl.ieee_sub": _sub,
    "tl.ieee_mul": _mul,
    "tl.ieee_fmaf": _fma,
    "tl.ieee_frcp": _rcp,
    "tl.ieee_fsqrt": _sqrt,
    "tl.ieee_fdiv": _div,
}


def fused(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """x y + z of float32 values, rounded once, to the nearest."""
    total, lack = two_sum(x.double() * y.double(), z.double())
    # Rounded to odd in float64, a sum keeps to its side of every number halfway between two of float32.
    even = total.contiguous().view(torch.int64) & 1 == 0
    towards = torch.where(lack > 0, math.inf, -math.inf).double()
    odd = torch.where(even & (lack != 0) & lack.isfinite(), torch.nextafter(total, towards), total)
    return odd.to(torch.float32)

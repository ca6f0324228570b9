"""64-bit unsigned integers, held as the int64 of the same bits: torch computes in no other dtype of that size.

Sums, differences, products, left shifts and bit operations don't tell the two apart. What does is here. Tensors
are int64; scalars are Python ints from -2**63 to 2**63 - 1, as int64 would read the bits.
"""

from typing import Any

import torch

LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1
MASK = (1 << 64) - 1
BELOW = 2.0**63 - 1024  # the largest float64 that an int64 can be


def number(scalar: int) -> int:
    """The value, from 0 to 2**64 - 1, of a scalar."""
    return scalar & MASK


def ordered(value: Any) -> Any:
    """Int64 values (or Python ints) in the order of the unsigned ones: its own inverse."""
    return value ^ LOWEST


def shift_right(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Zeros come in from the left; ``by`` is 0 to 63."""
    kept = ~torch.bitwise_right_shift(torch.tensor(LOWEST), (by - 1).clamp(min=0))
    return torch.where(by == 0, x, torch.bitwise_right_shift(x, by) & kept)


def quotient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The whole part of x / y; y has no 0."""
    big = y < 0  # from 2**63 on: it is in x once or not at all
    small = torch.where(big, 1, y)
    # Twice the quotient of x / 2 is short of that of x by 1 at most.
    doubled = 2 * torch.div((x >> 1) & HIGHEST, small, rounding_mode="trunc")
    rest = x - doubled * small
    return torch.where(big, ordered(x) >= ordered(y), doubled + (ordered(rest) >= ordered(small)))


def to_float(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounded once, as torch rounds an int64."""
    # Half of a large number fits int64. Its last bit says whether anything was cut: so it rounds the same way.
    half = ((x >> 1) & HIGHEST) | (x & 1)
    return torch.where(x < 0, half.to(dtype) * 2, x.to(dtype))


def from_float(whole: torch.Tensor) -> torch.Tensor:
    """Of float64 values that are whole and no NaN; those out of range become 0 or 2**64 - 1."""
    large = whole >= 2.0**63
    rest = torch.where(large, whole - 2.0**63, whole).clamp(min=0)
    bits = torch.where(rest >= 2.0**63, HIGHEST, rest.clamp(max=BELOW).to(torch.int64))
    return torch.where(large, ordered(bits), bits)

"""Values with a bound on their error: a reference in float64 that knows how wrong a right kernel can be.

A reference is written as the kernel computes: each operation carries the errors of its operands on, and
``rounded`` adds what storing in a dtype adds. So no tolerance is chosen: each follows from the dtypes, the
accumulator, the length of sums and the magnitude of their terms. Rules for sums are those of the judge
(grader/judge/tolerance.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.judge import tolerance

#: Unit roundoff, and half the spacing of subnormal numbers, by dtype.
UNIT = tolerance.UNIT | {
    torch.float64: 2.0**-53,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
}
UNDERFLOW = tolerance.UNDERFLOW | {
    torch.float64: 2.0**-1074,
    torch.float8_e4m3fn: 2.0**-10,
    torch.float8_e5m2: 2.0**-17,
}

#: The tensor core reads a float32 operand as tf32, which keeps 10 bits of the fraction and cuts the rest.
TF32_CUT = 2.0**-10

Function = Callable[[torch.Tensor], torch.Tensor]


def held(dtype: str) -> torch.dtype:
    """torch's dtype of a TileLang dtype."""
    return {"float8_e4m3": torch.float8_e4m3fn}.get(dtype) or getattr(torch, dtype)


def is_float(dtype: str) -> bool:
    return held(dtype).is_floating_point


@dataclass(frozen=True)
class Bounded:
    """``value``: the exact result, float64 for floats, else integers or truth values. ``error``: an absolute
    bound, in the shape of ``value``.
    """

    value: torch.Tensor
    error: torch.Tensor

    # Arithmetic, with no rounding of its own

    def __add__(self, other: "Bounded | float") -> "Bounded":
        other = bounded(other)
        return Bounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other: "Bounded | float") -> "Bounded":
        other = bounded(other)
        return Bounded(self.value - other.value, self.error + other.error)

    def __mul__(self, other: "Bounded | float") -> "Bounded":
        other = bounded(other)
        error = self.value.abs() * other.error + other.value.abs() * self.error + self.error * other.error
        return Bounded(self.value * other.value, error)

    def __truediv__(self, other: "Bounded | float") -> "Bounded":
        other = bounded(other)
        value = self.value / other.value
        error = (self.error + value.abs() * other.error) / (other.value.abs() - other.error)
        return Bounded(value, error)

    def __matmul__(self, other: "Bounded") -> "Bounded":
        """A product of matrices, exact but for the operands' errors: ``accumulated`` says what summing adds."""
        a, b = self.value.abs(), other.value.abs()
        error = a @ other.error + self.error @ b + self.error @ other.error
        return Bounded(self.value @ other.value, error)

    def sum(self, dim: int) -> "Bounded":
        return Bounded(self.value.sum(dim), self.error.sum(dim))

    def amax(self, dim: int) -> "Bounded":
        return Bounded(self.value.amax(dim), self.error.amax(dim))

    def move(self, function: Function) -> "Bounded":
        """The elements in other places: an index, a reshape, a transpose."""
        return Bounded(function(self.value), function(self.error))

    def through(self, function: Function, *, slope: float | None = None) -> "Bounded":
        """A function of each element. It is monotone within the error, or ``slope`` bounds its derivative."""
        value = function(self.value)
        if slope is not None:
            return Bounded(value, slope * self.error)
        up = (function(self.value + self.error) - value).abs()
        down = (function(self.value - self.error) - value).abs()
        return Bounded(value, torch.maximum(up, down))

    # What computing in a dtype adds

    def rounded(self, dtype: torch.dtype, steps: float = 1.0) -> "Bounded":
        """After ``steps`` roundings to dtype (one ulp is two: a rounding is off by half an ulp at most)."""
        reach = self.value.abs() + self.error
        error = self.error + steps * (UNIT[dtype] * reach + UNDERFLOW[dtype])
        return Bounded(self.value, torch.where(self.value.isfinite(), error, 0.0))

    def accumulated(self, magnitude: torch.Tensor, terms: int, dtype: torch.dtype = torch.float32) -> "Bounded":
        """After summing ``terms`` terms in dtype, in any order; ``magnitude`` is the sum of their absolute values.

        Every partial sum is rounded, so an underflow may come with each.
        """
        scale = UNIT[dtype] / UNIT[torch.float32]
        error = tolerance.accumulated(magnitude, terms) * scale + terms * UNDERFLOW[dtype]
        return Bounded(self.value, self.error + error)


def bounded(value: "Bounded | torch.Tensor | float") -> Bounded:
    """A value without error: floats become float64, integers and truth values stay."""
    if isinstance(value, Bounded):
        return value
    if not isinstance(value, torch.Tensor):
        value = torch.tensor(value, dtype=torch.float64)
    if value.is_floating_point():
        value = value.double()
    return Bounded(value, torch.zeros(value.shape, dtype=torch.float64))


def product(a: torch.Tensor, b: torch.Tensor, accumulator: torch.dtype = torch.float32) -> Bounded:
    """a @ b of tensors of a dtype, accumulated in another. Operands of float32 are read as tf32."""
    x, y = a.double(), b.double()
    if not accumulator.is_floating_point:
        return bounded((x @ y).to(accumulator))
    magnitude = x.abs() @ y.abs()
    result = (bounded(x) @ bounded(y)).accumulated(magnitude, x.shape[-1], accumulator)
    if a.dtype == torch.float32:
        return Bounded(result.value, result.error + (2 * TF32_CUT + TF32_CUT**2) * magnitude)
    return result


def excess(got: torch.Tensor, want: Bounded) -> tuple[float, int]:
    """The largest error as a share of the bound (inf where none is allowed), and how many elements exceed it."""
    if got.shape != want.value.shape:
        raise ValueError(f"the reference has shape {tuple(want.value.shape)}, the output {tuple(got.shape)}")
    if not want.value.is_floating_point():
        if got.is_floating_point():
            raise ValueError("the reference of a float output must be a float")
        wrong = _integers(got) != _integers(want.value)
        return (math.inf if wrong.any() else 0.0), int(wrong.sum())
    finite = want.value.isfinite()
    if not want.error[finite].isfinite().all():
        raise ValueError("a bound is not finite: it would accept anything")
    return _share(got.double(), want.value, want.error, finite)


def apart(
    one: torch.Tensor, other: torch.Tensor, want: Bounded, card: torch.Tensor | float = 0.0
) -> tuple[float, int]:
    """How far the card's result and the simulator's are apart, as a share of what both bounds allow."""
    if not one.is_floating_point():
        wrong = _integers(one) != _integers(other)
        return (math.inf if wrong.any() else 0.0), int(wrong.sum())
    return _share(one.double(), other.double(), 2 * want.error + card, other.double().isfinite())


def _share(got: torch.Tensor, want: torch.Tensor, bound: torch.Tensor, finite: torch.Tensor) -> tuple[float, int]:
    # Where the right answer is no finite number, nothing else is right; NaN stands for NaN.
    same = (got == want) | (got.isnan() & want.isnan())
    distance = (got - want).abs()
    off = torch.where(same, 0.0, torch.where(finite & (bound > 0), distance / bound, math.inf))
    off = off.nan_to_num(nan=math.inf, posinf=math.inf)
    return (float(off.max()) if off.numel() else 0.0), int((off > 1).sum())


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int64) if tensor.dtype == torch.uint64 else tensor.to(torch.int64)

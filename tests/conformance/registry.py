"""What a conformance case is, and the list of all: the kernels' modules register theirs by ``conforms``."""

import itertools
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from .bounded import Bounded, bounded, held, is_float

FLOATS = ("float16", "bfloat16", "float32", "float64")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
ALL = ("bool", *NUMBERS, *FLOAT8)


@dataclass(frozen=True)
class Output:
    """A parameter that the kernel writes. ``start``: what it holds before, if anything; else all of it must be
    written. ``dtype`` is torch's. ``card``: what the card's instructions may be off beyond the bound of ``want``.
    """

    want: Bounded
    dtype: torch.dtype
    start: torch.Tensor | None = None
    card: torch.Tensor | float = 0.0

    @property
    def on_card(self) -> Bounded:
        return Bounded(self.want.value, self.want.error + self.card)


@dataclass(frozen=True)
class Built:
    """A kernel with its inputs and right outputs. The kernel's parameters are the inputs, then the outputs."""

    kernel: Any  # a tvm PrimFunc
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Case:
    """One kernel at one shape and dtype. ``construct`` is its row in the table.

    ``refused``: the simulator must refuse it by this name, because the card's answer is no guide.
    ``uncompilable``: why TileLang 0.1.15 itself can't compile it, in its own words, or in nvcc's after "nvcc:"; it
    is then listed, and not run.
    ``off_card``: why it isn't run on the card.
    """

    construct: str
    kernel: str
    dtype: str
    shape: tuple[int, ...]
    options: dict[str, Any]
    make: Callable[..., Built] = field(repr=False)
    refused: str = ""
    uncompilable: str = ""
    off_card: str = ""

    @property
    def name(self) -> str:
        options = "".join(f",{key}={value}" for key, value in self.options.items())
        return f"{self.kernel}[{self.dtype},{'x'.join(map(str, self.shape))}{options}]"

    def build(self) -> Built:
        """Traces the kernel, draws the inputs (always the same ones) and computes what is right."""
        torch.manual_seed(zlib.crc32(self.name.encode()))
        return self.make(dtype=self.dtype, shape=self.shape, **self.options)


CASES: dict[str, Case] = {}


def conforms(
    construct: str,
    *,
    dtypes: Iterable[str] = ("float32",),
    shapes: Iterable[tuple[int, ...]],
    refused: str | Callable[..., str] = "",
    uncompilable: str | Callable[..., str] = "",
    off_card: str = "",
    **options: Iterable[Any],
) -> Callable[[Callable[..., Built]], Callable[..., Built]]:
    """Registers a function of ``dtype``, ``shape`` and ``options`` for every combination of them."""

    def register(make: Callable[..., Built]) -> Callable[..., Built]:
        for dtype, shape, *chosen in itertools.product(dtypes, shapes, *options.values()):
            picked = dict(zip(options, chosen, strict=True))
            named = refused(dtype=dtype, **picked) if callable(refused) else refused
            reason = uncompilable(dtype=dtype, **picked) if callable(uncompilable) else uncompilable
            case = Case(construct, make.__name__, dtype, shape, picked, make, named, reason, off_card)
            if case.name in CASES:
                raise ValueError(f"two conformance cases are called {case.name}")
            CASES[case.name] = case
        return make

    return register


def built(kernel: Any, inputs: Iterable[torch.Tensor], *outputs: Output) -> Built:
    return Built(kernel, tuple(inputs), outputs)


def out(
    want: Bounded | torch.Tensor,
    dtype: str,
    start: torch.Tensor | None = None,
    card: torch.Tensor | float = 0.0,
) -> Output:
    """An output of a TileLang dtype: ``want`` is exact if it is a tensor."""
    want = bounded(want)
    if not is_float(dtype) and want.value.is_floating_point():
        raise ValueError("an output of integers needs a reference in integers")
    if is_float(dtype) and not want.value.is_floating_point():
        want = bounded(want.value.double())
    return Output(want, held(dtype), start, card)


def draw(dtype: str, shape: tuple[int, ...], low: float = -4, high: float = 4) -> torch.Tensor:
    """Random values of a dtype in [low, high), or the part of it that the dtype has."""
    if dtype == "bool":
        return torch.randint(0, 2, shape).bool()
    if is_float(dtype):
        return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).to(held(dtype))
    low = max(int(low), 0) if dtype.startswith("uint") else int(low)
    return torch.randint(low, int(high), shape).to(held(dtype))


def wide(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Random integers over all of a dtype's range."""
    size = held(dtype).itemsize
    count = torch.Size(shape).numel()
    return torch.randint(0, 256, (count * size,), dtype=torch.uint8).view(held(dtype)).reshape(shape)


def wrapped(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Integers (int64) as the dtype wraps them, in two's complement."""
    if dtype == "bool":
        return value.bool()
    size = held(dtype).itemsize
    if size == 8:
        return value
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32}[size]
    low = value.to(signed).to(torch.int64)
    return low & ((1 << 8 * size) - 1) if dtype.startswith("uint") else low


def short(dtype: str) -> str:
    """A dtype as tables name it."""
    for long, brief in (("bfloat", "bf"), ("float8_", ""), ("float", "f"), ("uint", "u"), ("int", "i")):
        dtype = dtype.replace(long, brief)
    return dtype

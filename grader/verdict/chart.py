"""A roofline chart as plain data: roofs, and works that stand below them.

Across: arithmetic intensity, operations (a multiply-add counting as two) a byte of global memory. Up: operations
a second, in TFLOP/s (10^12).
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Roof:
    """What a card can do at most: of ``memory`` in GB/s, otherwise of operations in TFLOP/s.

    ``name`` is what does it ("memory", "fp16 tensor cores"); ``measured`` is False for a datasheet's figure.
    """

    name: str
    rate: float
    memory: bool = False
    measured: bool = False

    def tflops(self, intensity: float) -> float:
        """The height of the roof at an intensity."""
        return self.rate * intensity / 1e3 if self.memory else self.rate


class Role(StrEnum):
    """What a point stands for."""

    KERNEL = "kernel"
    PEER = "peer"
    BOUND = "bound"  # computed, not measured


@dataclass(frozen=True)
class Point:
    """``name`` and ``figure`` are words to show beside it, for instance "cuBLAS" and "683 TFLOP/s"."""

    name: str
    figure: str
    intensity: float
    tflops: float
    role: Role


@dataclass(frozen=True)
class Work:
    """Points that belong together: a kernel and its peers."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Chart:
    """``left_out`` says what could not be shown, and why."""

    title: str
    roofs: tuple[Roof, ...]
    works: tuple[Work, ...]
    left_out: tuple[str, ...] = ()

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(point for work in self.works for point in work.points)

    def height(self, intensity: float) -> float:
        """The roof at an intensity: the lowest of the highest memory roof and the highest roof of operations.

        Infinite where there is none.
        """
        highest = [
            max((roof.tflops(intensity) for roof in self.roofs if roof.memory is memory), default=float("inf"))
            for memory in (True, False)
        ]
        return min(highest)

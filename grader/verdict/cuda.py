"""The CUDA source that a kernel became, with its landmarks, as plain data."""

from dataclasses import dataclass

from grader.verdict import Finding
from grader.verdict.compilation import GlobalAccess


@dataclass(frozen=True)
class Mark:
    """A landmark: its name, its line in the source (from 1), and the columns [start, end) that give it away."""

    name: str
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class CudaSource:
    """A kernel at a shape, for an architecture: "sm_90a", of the ``family`` Hopper.

    ``source`` is all of it; the kernel's definition begins on line ``definition`` (from 1). ``threads`` a block,
    ``shared`` bytes of shared memory a block. ``accesses`` are those of threads to global memory. ``findings`` are
    what there is to say beside: that no card of that kind could launch it, for instance.
    """

    kernel: str
    shape: str
    arch: str
    family: str
    source: str
    definition: int
    marks: tuple[Mark, ...]
    accesses: tuple[GlobalAccess, ...]
    threads: int
    shared: int
    findings: tuple[Finding, ...] = ()

    @property
    def places(self) -> dict[str, list[int]]:
        """landmark -> the lines of its places, in the order in which they first occur."""
        found: dict[str, list[int]] = {}
        for mark in self.marks:
            found.setdefault(mark.name, []).append(mark.line)
        return found

"""What a run can find wrong, and what it can't run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from grader.ir.nodes import Buffer, Line


class FaultKind(StrEnum):
    OUT_OF_BOUNDS_READ = "out_of_bounds_read"
    OUT_OF_BOUNDS_WRITE = "out_of_bounds_write"
    UNINITIALISED_READ = "uninitialised_read"
    RACE = "race"
    UNWRITTEN = "unwritten"
    DIVISION_BY_ZERO = "division_by_zero"
    ASSERTION = "assertion"


@dataclass(frozen=True)
class Fault:
    """A fault at its first occurrence; ``count`` is the number of elements that had it over the whole run.

    ``index`` is the element of ``buffer``, ``block`` the (bx, by, bz) where it happened first. UNWRITTEN is known
    when the kernel has ended: ``block`` is (), ``line`` that of the last statement that writes to the buffer.
    """

    kind: FaultKind
    buffer: str
    line: Line | None
    block: tuple[int, ...]
    index: tuple[int, ...]
    count: int
    expression: str


class Unsupported(Exception):
    """The simulator lacks a construct: ``what`` names it. It is never guessed what it might mean."""

    def __init__(self, what: str, line: Line | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


class NotBatched(Exception):
    """Something that is only done a block at a time. Internal: such a kernel is walked block by block."""


class Faults:
    """Collects faults, one for each kind, buffer and line."""

    def __init__(self) -> None:
        self._found: dict[tuple[FaultKind, object, Line | None], Fault] = {}

    def add(
        self,
        kind: FaultKind,
        buffer: Buffer | None,
        line: Line | None,
        block: tuple[int, ...],
        count: int,
        index: Callable[[], tuple[int, ...]],
        expression: Callable[[], str],
    ) -> None:
        """``index`` and ``expression`` are only asked for at the first occurrence."""
        key = (kind, buffer.storage if buffer else None, line)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = replace(known, count=known.count + count)
            return
        name = buffer.name if buffer else ""
        self._found[key] = Fault(kind, name, line, block, index(), count, expression())

    def all(self) -> tuple[Fault, ...]:
        return tuple(self._found.values())

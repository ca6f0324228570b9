"""The record of one block at work, step by step, as plain data: what a picture of it is drawn from."""

from dataclasses import dataclass

from grader.verdict import Finding, Location

Number = int | float | bool


@dataclass(frozen=True)
class TracedBuffer:
    """A buffer that the block touched. ``scope`` is "global", "shared", "fragment" or "local" (of one thread)."""

    name: str
    scope: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Touch:
    """Elements that a step read or wrote.

    ``buffer`` is a position in ``BlockTrace.buffers``. ``box`` is the smallest box around the elements, as
    (from, to) for each dimension; ``elements`` are row-major positions in that box, or None for all of it.
    ``values`` are by element: what was read, or what was there after the write; None if they were left out.
    """

    buffer: int
    box: tuple[tuple[int, int], ...]
    elements: tuple[int, ...] | None
    count: int
    values: tuple[Number, ...] | None


@dataclass(frozen=True)
class Step:
    """A statement that was executed.

    ``text`` is the statement as the IR has it, ``where`` the student's line. ``variables`` have one value in the
    step: the block's indices, serial loops, lets. ``parallel`` are the loops of T.Parallel, with their extents:
    the step is that of all their iterations at once.
    """

    where: Location | None
    text: str
    variables: tuple[tuple[str, Number], ...]
    parallel: tuple[tuple[str, int], ...]
    reads: tuple[Touch, ...]
    writes: tuple[Touch, ...]

    @property
    def copies(self) -> bool:
        """Does the step bring elements from one buffer to another, and nothing else?"""
        return self.text.startswith("T.copy(")


@dataclass(frozen=True)
class BlockTrace:
    """What one block of a kernel did.

    ``block`` and ``grid`` are x first. ``notes`` say what was left out, and why; ``faults``
    are those of the whole run. ``source`` are the student's
    lines from the first to the last of the steps', in order.
    """

    kernel: str
    block: tuple[int, ...]
    grid: tuple[int, ...]
    buffers: tuple[TracedBuffer, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    faults: tuple[Finding, ...] = ()
    source: tuple[Location, ...] = ()

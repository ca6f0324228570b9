"""What a kernel's T.print statements printed on the simulator, as plain data."""

from dataclasses import dataclass

from grader.verdict import Location

Number = float | int | bool


@dataclass(frozen=True)
class Printed:
    """What one statement printed at one time in one block, (bx, by, bz): the values of ``what``, in order.

    ``what`` is a tile's name, an expression, or the message of the statement. A message alone has no values.
    """

    block: tuple[int, int, int]
    where: Location | None
    what: str
    values: tuple[Number, ...]


@dataclass(frozen=True)
class Printout:
    """All of it, block by block, each in the order of time. ``left_out`` counts further values, not kept."""

    kernel: str
    shape: str
    printed: tuple[Printed, ...]
    left_out: int = 0

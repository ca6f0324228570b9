"""What a run may cost. A kernel is a stranger's program: it may loop for ever or ask for a tile of 2**40 elements.

Every statement is paid for before it runs, with the number of elements that it will touch, so that no single
step can exhaust time or memory.
"""

from dataclasses import dataclass
from time import monotonic

from grader.ir.nodes import Line
from grader.messages import _

#: Elements of elementwise work that cost as much as a statement does by itself.
WORK_PER_STEP = 1 << 14


@dataclass(frozen=True)
class Budget:
    """``steps``: statements executed (a large one counts as several); ``bytes``: memory beside the parameters."""

    steps: int = 2_000_000
    seconds: float = 60.0
    bytes: int = 1 << 30


class OverBudget(Exception):
    """The kernel needs more than its budget. ``message`` says of what; ``line`` is where it ran out."""

    def __init__(self, message: str, line: Line | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class Meter:
    """Counts what a run has spent."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.steps = 0
        self.turns = 0  # statements, each time that one is executed
        self.bytes = 0
        self.deadline = monotonic() + budget.seconds

    def spend(self, line: Line | None, work: int = 0) -> None:
        """Pays for one statement that touches ``work`` elements."""
        self.turns += 1
        self.steps += 1 + work // WORK_PER_STEP
        if self.steps > self.budget.steps:
            raise OverBudget(
                _("the kernel was stopped after {steps} steps: does a loop never end, or is it very long?").format(
                    steps=self.budget.steps
                ),
                line,
            )
        if monotonic() > self.deadline:
            raise OverBudget(
                _("the kernel was stopped after {seconds:g} seconds in the simulator").format(
                    seconds=self.budget.seconds
                ),
                line,
            )

    def forget(self) -> None:
        """Starts to count anew; the time that has passed stays."""
        self.steps = self.bytes = 0

    def keep(self, size: int, line: Line | None) -> None:
        """Pays for ``size`` bytes that stay allocated until the run ends."""
        self.room(size, line)
        self.bytes += size

    def room(self, size: int, line: Line | None) -> None:
        """Checks that ``size`` further bytes may be used for a moment."""
        if self.bytes + size > self.budget.bytes:
            raise OverBudget(
                _("the kernel needs {size} MB of memory in the simulator, which allows {limit} MB").format(
                    size=(self.bytes + size) >> 20, limit=self.budget.bytes >> 20
                ),
                line,
            )

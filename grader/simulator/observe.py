"""What a run tells an observer: each statement as it runs, and which elements it reads and writes.

A run has one observer or none. Whoever compiles a statement, load or tile operation asks for it then, so that a
run without one pays next to nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch

from grader.ir import nodes
from grader.simulator.memory import Array, Window

if TYPE_CHECKING:
    from grader.simulator.expressions import Scope, State

Runner = Callable[["State"], None]
Where = Window | torch.Tensor  # a window, or flat positions


class Observer(Protocol):
    def around(self, node: nodes.Stmt, runner: Runner, scope: "Scope") -> Runner:
        """Gives what is to run in place of ``runner``, a statement that was just compiled in ``scope``."""

    def read(self, array: Array, where: Where, state: "State") -> None:
        """The running statement reads these elements, in the iterations of ``state.mask``; none is written yet."""

    def wrote(self, array: Array, where: Where, mask: torch.Tensor | None, state: "State") -> None:
        """The running statement has written these elements, in the iterations where ``mask`` is true."""


def positions(where: Where, mask: torch.Tensor | None) -> torch.Tensor:
    """The flat positions that active iterations touch, in the iterations' order, maybe some more than once."""
    found = where.positions() if isinstance(where, Window) else where
    if mask is None:
        return found.flatten()
    found, mask = torch.broadcast_tensors(found, mask)
    return found[mask]

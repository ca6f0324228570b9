"""T.print, as data: which block printed which values, from which line.

On the card every thread that comes to a print of an expression prints it; here, the values of a T.Parallel nest's
iterations (or of the threads, if they differ) make one record, and those of a buffer, element by element, too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import Value
from grader.simulator.expressions import Scope, State, compile_expression

Number = float | int | bool

MOST_VALUES = 4096  # in a run; what is printed after them is only counted
MOST_RECORDS = 1024


@dataclass(frozen=True)
class Printed:
    """What one statement printed in one block: ``name`` is the buffer whose elements ``values`` are, or "".

    A message alone has no values. ``block`` is (bx, by, bz).
    """

    block: tuple[int, int, int]
    line: nodes.Line | None
    message: str
    name: str
    values: tuple[Number, ...]


class Prints:
    """Collects what is printed, up to a limit."""

    def __init__(self) -> None:
        self._records: list[tuple[nodes.Print, Printed, list[Number]]] = []
        self._values = 0
        self.left_out = 0  # values, or messages without one

    def add(
        self,
        node: nodes.Print,
        state: State,
        line: nodes.Line | None,
        values: list[Number],
        first: bool,
    ) -> None:
        """``first``: the values don't continue the record of the elements before them."""
        room = MOST_VALUES - self._values
        self.left_out += max(len(values) - room, 0)
        if values and not room:
            return
        values = values[:room]
        self._values += len(values)
        last = self._records[-1] if self._records else None
        if not first and last is not None and last[0] is node and last[1].block == state.block:
            last[2].extend(values)
        elif len(self._records) < MOST_RECORDS:
            self._records.append((node, Printed(state.block, line, node.message, node.name, ()), values))
        else:
            self.left_out += max(len(values), 1)

    def all(self) -> tuple[Printed, ...]:
        return tuple(
            Printed(record.block, record.line, record.message, record.name, tuple(values))
            for _node, record, values in self._records
        )


def compile_print(node: nodes.Print, scope: Scope) -> Callable[[State], None]:
    index = None if node.index is None else compile_expression(node.index, scope)
    code = None if node.value is None else compile_expression(node.value, scope)
    if index is not None and not index.dtype.is_int:
        raise scope.unsupported(_("T.print of an element whose index is no integer"))
    program, line, rank = scope.program, scope.line, scope.rank
    size = 1 + sum(part.size for part in (index, code) if part is not None)
    nest = scope.nest

    def active(value: Value, state: State) -> list[Number]:
        """The values of the active iterations, or the one that all have."""
        value = torch.as_tensor(value)
        if rank and state.mask is not None:
            value, mask = torch.broadcast_tensors(value, state.mask)
            value = value[mask]
            # Nothing tells which of the nest's iterations printed what all of them print alike.
            if not code.varies:
                value = value[:1]
        if value.is_floating_point():
            return value.double().flatten().tolist()
        return [code.dtype.number(item) for item in value.flatten().tolist()]

    def run(state: State) -> None:
        program.meter.spend(line, size * (nest.iterations if nest is not None else 1))
        values = [] if code is None else active(code.run(state), state)
        start = 0
        if index is not None:
            found = torch.as_tensor(index.run(state)).flatten()
            start = int(found[0]) if found.numel() else 0
        program.prints.add(node, state, line, values, first=index is None or start == 0)

    return run

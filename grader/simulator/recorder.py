"""Records the steps of one block: the observer behind traces."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.counters import told
from grader.simulator.dtypes import Value
from grader.simulator.expressions import Code, Scope, State
from grader.simulator.memory import Array, Memory
from grader.simulator.observe import Runner, Where, positions
from grader.simulator.program import Program, describe
from grader.verdict import Location
from grader.verdict.trace import BlockTrace, Number, Step, Touch, TracedBuffer


class NoSuchBlock(ValueError):
    """The block that was to be recorded is none of the grid's."""

    def __init__(self, block: tuple[int, ...], grid: tuple[int, ...]) -> None:
        super().__init__(f"the grid {grid} has no block {block}")
        self.grid = grid


class Recorder:
    """What ``run(…, record=Recorder(block))`` fills; ``trace()`` then gives it.

    ``block`` is (bx, by, bz), where missing indices are 0. At most ``steps`` steps are kept, and ``values``
    values of elements; what is left out is said in the trace's notes. The run raises NoSuchBlock if the grid has
    none of these indices.
    """

    def __init__(self, block: tuple[int, ...] = (0, 0, 0), *, steps: int = 2_000, values: int = 1_000_000) -> None:
        self.block = (*block, *[0] * (3 - len(block)))
        self.most_steps, self.most_values = steps, values
        self._kept_values = self._left_steps = self._left_values = 0
        self._buffers: dict[Memory, tuple[int, Array]] = {}
        self._described: list[TracedBuffer] = []
        self._steps: list[Step] = []
        self._open: list[_Open] = []
        self._program: Program | None = None
        self._grid: tuple[int, ...] = ()

    def begin(self, program: Program, grid: tuple[int, ...]) -> None:
        """Said by the run before its first block."""
        if len(self.block) != 3 or any(
            not 0 <= index < extent for index, extent in zip(self.block, (*grid, 1, 1, 1), strict=False)
        ):
            raise NoSuchBlock(self.block, grid)
        self._program, self._grid = program, grid
        for buffer in program.kernel.params:
            self._buffer(program.arrays[buffer])

    def trace(self, name: str = "") -> BlockTrace:
        notes = []
        if self._left_steps:
            notes.append(
                _("Only the first {kept} steps are shown; {left} more were executed.").format(
                    kept=len(self._steps), left=self._left_steps
                )
            )
        if self._left_values:
            notes.append(
                _("The values of {left} elements were left out: only {most} are kept.").format(
                    left=self._left_values, most=self.most_values
                )
            )
        block = self.block[: max(len(self._grid), 1)]
        return BlockTrace(name, block, self._grid, tuple(self._described), tuple(self._steps), tuple(notes))

    # As the simulator's observer

    def around(self, node: nodes.Stmt, runner: Runner, scope: Scope) -> Runner:
        if isinstance(node, nodes.Seq | nodes.Swizzle | nodes.For) or _does_nothing(node):
            return runner
        shown = [(var.name, code) for var, code in scope.variables.items() if not code.varies]
        if isinstance(node, nodes.Bind):
            shown = [item for item in shown if item[1] is not scope.variables[node.var]]
        parallel = [axis.var.name for axis in scope.axes]
        nest, line, text = scope.nest, node.line or scope.line, _text(node)

        def run(state: State) -> None:
            if state.block != self.block:
                runner(state)
                return
            for around in self._open:
                around.close()
            step = _Open()
            self._open.append(step)
            values = _variables(shown, state)
            extents = tuple(nest.running[: len(parallel)]) if nest is not None else ()
            try:
                runner(state)
            finally:
                self._open.pop()
            if step.reads or step.writes:
                self._keep(step, line, text, values, tuple(zip(parallel, extents, strict=True)))

        def run_condition(state: State) -> None:
            """An ``if`` or ``while``: what it reads for its condition is a step, before those inside it."""
            if state.block != self.block:
                runner(state)
                return
            values = _variables(shown, state)
            extents = tuple(nest.running[: len(parallel)]) if nest is not None else ()
            step = _Open(
                lambda step: self._keep(step, line, text, values, tuple(zip(parallel, extents, strict=True)))
            )
            self._open.append(step)
            try:
                runner(state)
            finally:
                self._open.pop()
                step.close()

        return run_condition if isinstance(node, nodes.If | nodes.While) else run

    def read(self, array: Array, where: Where, state: State) -> None:
        if state.block == self.block and self._open:
            step = self._open[-1]
            step.reads.append(self._note(array, where, state.mask))

    def wrote(self, array: Array, where: Where, mask: torch.Tensor | None, state: State) -> None:
        if state.block == self.block and self._open:
            self._open[-1].writes.append(self._note(array, where, mask))

    # What is kept

    def _buffer(self, array: Array) -> tuple[int, Array]:
        """The number of a buffer, and the array that stands for it: what was allocated, not a view of that."""
        memory = array.memory
        if memory not in self._buffers:
            own = [
                program_array
                for buffer in (*self._program.kernel.params, *self._program.kernel.allocations)
                if (program_array := self._program.arrays.get(buffer)) is not None
                and program_array.memory is memory
            ]
            chosen = own[0] if own else array
            self._buffers[memory] = (len(self._described), chosen)
            self._described.append(
                TracedBuffer(chosen.buffer.name, told(memory.scope), chosen.dtype.name, chosen.shape)
            )
        return self._buffers[memory]

    def _note(self, array: Array, where: Where, mask: torch.Tensor | None) -> "_Noted":
        number, own = self._buffer(array)
        found = positions(where, mask).unique()
        if own is not array and own.dtype.size != array.dtype.size:
            found = (found * array.dtype.size // own.dtype.size).unique()
        return _Noted(number, found, own.dtype.decode(own.flat[found]))

    def _keep(
        self,
        step: "_Open",
        line: nodes.Line | None,
        text: str,
        variables: tuple[tuple[str, Number], ...],
        parallel: tuple[tuple[str, int], ...],
    ) -> None:
        if len(self._steps) >= self.most_steps:
            self._left_steps += 1
            return
        where = None if line is None else Location(line.file, line.number)
        reads, writes = self._touches(step.reads), self._touches(step.writes)
        self._steps.append(Step(where, text, variables, parallel, reads, writes))

    def _touches(self, noted: "list[_Noted]") -> tuple[Touch, ...]:
        """One for each buffer, in the order of their first use."""
        by_buffer: dict[int, list[_Noted]] = {}
        for item in noted:
            by_buffer.setdefault(item.buffer, []).append(item)
        arrays = dict(self._buffers.values())
        touches = (self._touch(number, arrays[number], items) for number, items in by_buffer.items())
        return tuple(touch for touch in touches if touch is not None)

    def _touch(self, number: int, array: Array, items: "list[_Noted]") -> Touch | None:
        elements, values = items[0].elements, items[0].values
        if len(items) > 1:
            elements = torch.cat([item.elements for item in items])
            values = torch.cat([item.values for item in items])
            elements, group = elements.unique(return_inverse=True)
            last = torch.zeros_like(elements).scatter_reduce(0, group, torch.arange(len(group)), "amax")
            values = values[last]
        count = elements.numel()
        if not count:
            return None
        index = _indices(array, elements)
        low, high = index.amin(1).tolist(), (index.amax(1) + 1).tolist()
        local = torch.zeros_like(elements)
        for axis, (start, stop) in enumerate(zip(low, high, strict=True)):
            local = local * (stop - start) + index[axis] - start
        order = local.argsort()
        size = 1
        for start, stop in zip(low, high, strict=True):
            size *= stop - start
        kept = None
        if self._kept_values + count <= self.most_values:
            self._kept_values += count
            kept = tuple(values[order].tolist())
        else:
            self._left_values += count
        box = tuple(zip(low, high, strict=True))
        return Touch(number, box, None if count == size else tuple(local[order].tolist()), count, kept)


@dataclass
class _Noted:
    buffer: int
    elements: torch.Tensor  # flat positions, sorted
    values: torch.Tensor


@dataclass
class _Open:
    """A step that is being executed. ``finish`` is called once, as soon as it has read what it reads."""

    finish: "Callable[[_Open], None] | None" = None
    reads: list[_Noted] = field(default_factory=list)
    writes: list[_Noted] = field(default_factory=list)

    def close(self) -> None:
        if self.finish is not None and self.reads:
            self.finish(self)
            self.reads = []


def _does_nothing(node: nodes.Stmt) -> bool:
    return isinstance(node, nodes.Evaluate) and isinstance(node.value, nodes.Const)


def _text(node: nodes.Stmt) -> str:
    match node:
        case nodes.Evaluate(value=value):
            return describe(value)
        case nodes.Bind(var=var, value=value):
            return f"{var.name} = {describe(value)}"
        case nodes.If(condition=condition):
            return f"if {describe(condition)}"
        case nodes.While(condition=condition):
            return f"while {describe(condition)}"
    return describe(node)


def _variables(shown: list[tuple[str, Code]], state: State) -> tuple[tuple[str, Number], ...]:
    return tuple((name, _plain(code.run(state))) for name, code in shown)


def _plain(value: Value) -> Number:
    return value.item() if isinstance(value, torch.Tensor) else value


def _indices(array: Array, flat: torch.Tensor) -> torch.Tensor:
    """For each dimension, the indices of the elements at flat positions."""
    index = torch.zeros(len(array.shape), flat.numel(), dtype=torch.int64)
    for axis in sorted(range(len(array.shape)), key=lambda axis: -array.strides[axis]):
        if array.shape[axis] > 1 and array.strides[axis]:
            index[axis] = flat // array.strides[axis]
            flat = flat % array.strides[axis]
    return index

"""Where NaN and infinities come from: values that are not finite, although what they were computed from was.

A NaN is born in an operation none of whose operands is NaN: also of infinities, as in ``-inf - -inf``, since a
score that is masked by -inf on purpose is where many a NaN begins. An infinity is born where all operands are
finite, as in an overflow or a division by zero. So what is written as a constant, a mask or a start of -inf, is
no birth, and neither is what merely comes along. Statements are looked at operation by operation, tile operations
as a whole.

This evaluates expressions several times, so a run that looks for births is a run of its own, for this only: its
figures and faults say nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from grader.ir import nodes
from grader.simulator.dtypes import DTYPES, Value
from grader.simulator.element_atomics import is_element_atomic
from grader.simulator.elements import Access
from grader.simulator.expressions import Code, Scope, State, compile_expression, truth
from grader.simulator.faults import Faults
from grader.simulator.memory import UNWRITTEN, Array, Window
from grader.simulator.observe import Runner, Where
from grader.simulator.program import Program, describe

#: Births that are kept; of one line and buffer, each block's first.
MOST = 10_000


@dataclass(frozen=True)
class Birth:
    """The first value that is not finite which a block's statement gave.

    ``buffer[index]`` is the element that got it, or, with no index, the variable. ``operands`` are the floats that
    the operation ``expression`` was done to, for elementwise ones.
    """

    buffer: str
    line: nodes.Line | None
    block: tuple[int, int, int]
    index: tuple[int, ...]
    value: float
    expression: str
    operands: tuple[float, ...] = ()


@dataclass(frozen=True)
class Births:
    """All births of a run, in its order; ``writers`` are by parameter the blocks that wrote each element last."""

    found: tuple[Birth, ...]
    _numbers: tuple[int, ...] = ()
    _writers: tuple[torch.Tensor | None, ...] = field(default=(), repr=False)

    def behind(self, position: int, index: tuple[int, ...]) -> Birth | None:
        """The first birth in the block that wrote this element of a parameter; if there is none, in any block."""
        writers = self._writers[position]
        writer = UNWRITTEN if writers is None else int(writers[index])
        for birth, number in zip(self.found, self._numbers, strict=True):
            if number + 1 == writer:
                return birth
        return self.found[0] if self.found else None


class BirthWatch:
    """The observer that finds births."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, object, int], Birth] = {}
        self._reads: list[tuple[Array, torch.Tensor]] = []
        self._writes: list[tuple[Array, Window]] = []

    def births(self, program: Program) -> Births:
        writers = []
        for buffer in program.kernel.params:
            array = program.arrays[buffer]
            owner = array.memory.writer
            if owner is not None:
                owner = owner[:: array.factor].as_strided(array.shape, array.strides) if array.count else None
            writers.append(owner)
        numbers = tuple(number for _where, _line, number in self._found)
        return Births(tuple(self._found.values()), numbers, tuple(writers))

    # As the simulator's observer

    def around(self, node: nodes.Stmt, runner: Runner, scope: Scope) -> Runner:
        if isinstance(node, nodes.Store | nodes.Bind) and any(map(is_element_atomic, nodes.walk(node.value))):
            return runner  # it may not be done twice
        match node:
            case nodes.Store(value=value) if _is_float(value.dtype):
                access = Access(node, scope, store=True)
                return self._looking(_Probe(value, scope), node.buffer, access.given, runner, scope, node.line)
            case nodes.Bind(value=value, var=var) if _is_float(value.dtype):
                return self._looking(_Probe(value, scope), var, [], runner, scope, node.line)
            case nodes.Evaluate(value=nodes.Call(op=op) as call) if op.startswith("tl.tileop."):
                return self._comparing(call, runner, scope, node.line)
        return runner

    def read(self, array: Array, where: Where, state: State) -> None:
        raw = array.raw(where) if isinstance(where, Window) else array.flat[where]
        self._reads.append((array, array.dtype.decode(raw).clone()))

    def wrote(self, array: Array, where: Where, mask: torch.Tensor | None, state: State) -> None:
        if isinstance(where, Window):
            self._writes.append((array, where))

    # Element by element

    def _looking(
        self,
        probe: "_Probe",
        target: nodes.Buffer | nodes.Var,
        indices: list[Code],
        runner: Runner,
        scope: Scope,
        line: nodes.Line | None,
    ) -> Runner:
        program, line = scope.program, line or scope.line
        where = target.storage if isinstance(target, nodes.Buffer) else target

        def run(state: State) -> None:
            self._forget()
            key = (where, line, state.block_number)
            if key not in self._found and len(self._found) < MOST:
                with _unnoticed(program):
                    born = probe.born(state, None)
                    if born is not None:
                        index = tuple(_at(code.run(state), born.iteration) for code in indices)
                        value = _at(born.value, born.iteration)
                        operands = tuple(_at(part, born.iteration) for part in born.operands)
                        text = describe(born.node)
                        self._found[key] = Birth(target.name, line, state.block, index, value, text, operands)
            runner(state)
            self._forget()

        return run

    # Tile operations

    def _comparing(self, call: nodes.Call, runner: Runner, scope: Scope, line: nodes.Line | None) -> Runner:
        line, kind = line or scope.line, call.op.rpartition(".")[2]

        def run(state: State) -> None:
            self._forget()
            runner(state)
            reads, writes = [values for array, values in self._reads if array.dtype.kind == "float"], self._writes
            self._forget()
            if kind in _PLAIN or not reads:
                return
            for array, window in writes:
                key = (array.memory.storage, line, state.block_number)
                if array.dtype.kind != "float" or key in self._found or len(self._found) >= MOST:
                    continue
                values = array.dtype.decode(array.raw(window))
                if bool(values.isfinite().all()):
                    continue
                flags = _born(values, *_went_in(kind, call, reads, values))
                if not bool(flags.any()):
                    continue
                lane = int(flags.flatten().nonzero()[0])
                index = array.position(window.at(lane))
                value = float(values.flatten()[lane])
                self._found[key] = Birth(array.buffer.name, line, state.block, index, value, describe(call))

        return run

    def _forget(self) -> None:
        self._reads, self._writes = [], []


#: Tile operations that compute nothing, or that add to what isn't seen here.
_PLAIN = ("fill", "reducer_init", "atomicadd", "atomicmax", "atomicmin")


def _is_float(name: str) -> bool:
    return name in DTYPES and DTYPES[name].kind == "float"


def _at(value: Value, iteration: tuple[int, ...]) -> Value:
    """A value in one iteration."""
    if not isinstance(value, torch.Tensor):
        return value
    iteration = iteration or (0,) * value.ndim
    return value[tuple(0 if size == 1 else i for size, i in zip(value.shape, iteration, strict=False))].item()


@contextmanager
def _unnoticed(program: Program) -> Iterator[None]:
    """What is evaluated now is no part of the run: its faults are the run's already, or will be."""
    faults, program.faults = program.faults, Faults()
    try:
        yield
    finally:
        program.faults = faults


@dataclass
class _Born:
    node: nodes.Expr
    iteration: tuple[int, ...]  # the first in which a value was born; () if it is born in all alike
    value: torch.Tensor
    operands: list[torch.Tensor]


class _Probe:
    """A float expression, with those that it is computed from."""

    def __init__(self, node: nodes.Expr, scope: Scope) -> None:
        self.node = node
        self.code = compile_expression(node, scope)
        self.chosen: Code | None = None
        operands: tuple[nodes.Expr, ...] = ()
        self.computes = isinstance(node, nodes.Binary | nodes.Cast | nodes.Call)
        match node:
            case nodes.Select(condition=condition, true=true, false=false):
                self.chosen, operands = truth(condition, scope), (true, false)
            case nodes.Call(op="tirx.if_then_else", args=(condition, true, false)):
                self.chosen, operands = truth(condition, scope), (true, false)
            case nodes.Call(op="tl.infinity"):
                self.computes = False
            case nodes.Binary(a=a, b=b):
                operands = (a, b)
            case nodes.Cast(value=value):
                operands = (value,)
            case nodes.Call(args=args):
                operands = args
        self.operands = [_Probe(part, scope) for part in operands if _is_float(part.dtype)]

    def run(self, state: State, mask: torch.Tensor | None) -> torch.Tensor:
        outer, state.mask = state.mask, mask
        value = self.code.run(state)
        state.mask = outer
        return value

    def born(self, state: State, among: torch.Tensor | None) -> _Born | None:
        """The first operation here, innermost first, from which a value came that is not finite.

        ``among``: the iterations of interest (None: those that are active).
        """
        among = state.mask if among is None else among
        value = self.run(state, among)
        flags = ~torch.isfinite(value)
        flags = flags if among is None else flags & among
        if not bool(flags.any()):
            return None
        if self.chosen is not None:
            return self._in_a_branch(state, flags)
        for part in self.operands:
            found = part.born(state, flags)
            if found is not None:
                return found
        if not self.computes:
            return None
        operands = [part.run(state, flags) for part in self.operands]
        nan_in, infinite_in = (
            _any([item.isnan() for item in operands]),
            _any([~item.isfinite() for item in operands]),
        )
        born = flags & _born(value, nan_in, infinite_in)
        if not bool(born.any()):
            return None
        return _Born(self.node, tuple(born.nonzero()[0].tolist()), value, operands)

    def _in_a_branch(self, state: State, flags: torch.Tensor) -> _Born | None:
        outer, state.mask = state.mask, flags
        taken = self.chosen.run(state)
        state.mask = outer
        taken = torch.as_tensor(taken)
        for side, part in zip((taken, ~taken), self.operands, strict=True):
            here = flags & side
            found = part.born(state, here) if bool(here.any()) else None
            if found is not None:
                return found
        return None


def _any(flags: list[torch.Tensor]) -> torch.Tensor:
    result = torch.tensor(False)
    for item in flags:
        result = result | item
    return result


def _born(values: torch.Tensor, nan_in: torch.Tensor, infinite_in: torch.Tensor) -> torch.Tensor:
    """Where a value is born, given what went into it: was any of that NaN, was any not finite?"""
    return torch.where(values.isnan(), ~nan_in, ~values.isfinite() & ~infinite_in)


def _went_in(
    kind: str, call: nodes.Call, reads: list[torch.Tensor], result: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each element of a tile operation's result, whether something NaN, or not finite, went into it.

    If it isn't known what went into which element, all of the inputs went into each.
    """

    def spread(marks: list[torch.Tensor]) -> torch.Tensor:
        if kind == "copy" and len(marks) == 1 and marks[0].numel() == result.numel():
            return marks[0].reshape(result.shape)
        if kind == "gemm" and len(marks) in (2, 3):
            m, n = result.shape[-2:]
            rows, columns = (mark.reshape(mark.shape[-2:]) for mark in marks[:2])
            rows = rows.any(0 if call.args[3].value else 1)
            columns = columns.any(1 if call.args[4].value else 0)
            if (len(rows), len(columns)) == (m, n):
                found = rows[:, None] | columns[None, :]
                found = found | marks[2].reshape(m, n) if len(marks) == 3 else found
                return found.reshape(result.shape)
        if kind == "reduce" and marks:
            found = marks[0].any(call.args[3].value)
            if found.numel() == result.numel():
                found = found.reshape(result.shape)
                return found | marks[1].reshape(result.shape) if len(marks) == 2 else found
        return torch.tensor(any(bool(mark.any()) for mark in marks))

    return spread([values.isnan() for values in reads]), spread([~values.isfinite() for values in reads])

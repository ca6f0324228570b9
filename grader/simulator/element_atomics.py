"""Atomic operations on elements: ``T.atomic_add(B[i], x)`` and its kind, in T.Parallel or by thread.

No atomic operation races with another. The order among the iterations of a nest is chance on the card; here it is
that of the iterations, and that of the blocks, so that runs repeat: sums of floats differ from the card's by
rounding, and what ``return_prev=True`` gives is one of the possible orders.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator import unsigned
from grader.simulator.dtypes import DType, Value, cast
from grader.simulator.elements import Access
from grader.simulator.expressions import Code, Scope, State, compile_expression
from grader.simulator.faults import FaultKind
from grader.simulator.operations import counted
from grader.verdict.traffic import Kind

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Atomic:
    """``combine`` gives the new element of the old one and the value; None: it is only read.

    ``width``: elements that one call updates, each by itself. ``further``: arguments after the pointer and value
    (the memory order, which makes no difference here).
    """

    combine: Combine | None
    width: int = 1
    returns: bool = False
    further: tuple[int, ...] = (0, 1)


def _replace(_old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return new


def _larger(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """By comparing: NaN replaces nothing, and nothing replaces NaN."""
    return torch.where(new > old, new, old)


def _smaller(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.where(new < old, new, old)


def _each(combine: Combine) -> dict[str, Atomic]:
    return {"": Atomic(combine), "_ret": Atomic(combine, returns=True)}


#: Operator -> what it does.
ATOMICS: dict[str, Atomic] = {
    **{f"tl.atomic_add{form}_elem_op": atomic for form, atomic in _each(torch.add).items()},
    **{f"tl.atomic_max{form}_elem_op": atomic for form, atomic in _each(_larger).items()},
    **{f"tl.atomic_min{form}_elem_op": atomic for form, atomic in _each(_smaller).items()},
    "tl.atomic_or_elem_op": Atomic(torch.bitwise_or),
    "tl.atomic_addx2_elem_op": Atomic(torch.add, width=2),
    "tl.atomic_addx4_elem_op": Atomic(torch.add, width=4),
    "tl.atomic_store_elem_op": Atomic(_replace),
    "tl.atomic_load_elem_op": Atomic(None, returns=True),
}
POINTER = "tl.access_ptr"
SPELL = 256  # turns of updates of one element that are paid for, and timed, together


def is_element_atomic(node: nodes.Expr | nodes.Stmt) -> bool:
    return isinstance(node, nodes.Call) and node.op in ATOMICS


def target(call: nodes.Call) -> nodes.Load | None:
    """The element that an atomic operation updates."""
    return pointee(call.args[0]) if call.args else None


def pointee(node: nodes.Expr) -> nodes.Load | None:
    match node:
        case nodes.Call(op=op, args=(nodes.Load() as load, *_rest)) if op == POINTER:
            return load
    return None


def compile_atomic(call: nodes.Call, scope: Scope) -> Code:
    """The operation; its value is the element before it, if the operation returns that."""
    atomic = ATOMICS[call.op]
    load, given = target(call), call.args[1:]
    if load is None or not scope.rank:
        raise scope.unsupported(_("'{op}' of something that is no element").format(op=_name(call)))
    if atomic.combine is not None:
        value, given = (given[0] if given else None), given[1:]
    if len(given) not in atomic.further or not all(isinstance(item, nodes.Const) for item in given):
        raise scope.unsupported(_("'{op}' with these arguments").format(op=_name(call)))
    if atomic.combine is None:
        return _Update(load, atomic, None, scope).code()
    if atomic.width == 1:
        if value is None or isinstance(value, nodes.Text):
            raise scope.unsupported(_("'{op}' with these arguments").format(op=_name(call)))
        return _Update(load, atomic, counted(compile_expression(value, scope), value, scope), scope).code()
    source = None if value is None else pointee(value)
    if source is None:
        raise scope.unsupported(_("'{op}' of a value that is no element of a buffer").format(op=_name(call)))
    parts = [
        _Update(_next(load, k), atomic, compile_expression(_next(source, k), scope), scope).code()
        for k in range(atomic.width)
    ]

    def run(state: State) -> None:
        for part in parts:
            part.run(state)

    return Code(parts[0].dtype, run, varies=True, size=sum(part.size for part in parts))


def _name(call: nodes.Call) -> str:
    return "T." + call.op.removeprefix("tl.").removesuffix("_elem_op").removesuffix("_ret")


def _next(load: nodes.Load, step: int) -> nodes.Load:
    """The element ``step`` further along the last dimension."""
    *front, last = load.indices
    return replace(load, indices=(*front, nodes.Binary(last.dtype, "Add", last, nodes.Const(last.dtype, step))))


class _Update:
    """One element an iteration."""

    def __init__(self, load: nodes.Load, atomic: Atomic, value: Code | None, scope: Scope) -> None:
        self.atomic, self.value, self.scope = atomic, value, scope
        self.access = Access(load, scope, store=atomic.combine is not None, atomic=True)
        self.dtype: DType = self.access.array.dtype
        memory = self.access.array.memory
        if memory.is_local or self.dtype.name.startswith("float8"):
            raise scope.unsupported(_("an atomic operation on this memory"))
        if atomic.combine is torch.bitwise_or and not self.dtype.is_int:
            raise scope.unsupported(_("a bit operation on floats"))
        self.updates = scope.program.counters.slot(("operations", Kind.ATOMIC, self.dtype.name))
        self.convert = None if value is None else cast(value.dtype, self.dtype)
        scope.nest.accesses.append(self.access)
        scope.program.note_accumulation(self.access.array, writes=atomic.combine is not None)

    def code(self) -> Code:
        size = self.access.size + (self.value.size if self.value else 0)
        return Code(self.dtype, self.run, varies=True, size=size)

    def run(self, state: State) -> Value:
        access, array, nest = self.access, self.access.array, self.scope.nest
        memory, dtype = array.memory, self.dtype
        access.program.meter.spend(access.line, nest.iterations * access.size)
        value = None if self.value is None else dtype.tensor(self.convert(self.value.run(state)))
        sizes = nest.sizes(access.axes)
        position, inside = access.flat(state)
        active = state.mask
        if inside is not None:
            active = inside if active is None else inside & active
        position = position.expand(sizes).flatten()
        lanes = torch.arange(prod(sizes))
        if active is not None:
            lanes = active.expand(sizes).flatten().nonzero().flatten()
            position = position[lanes]
        before = torch.zeros(prod(sizes), dtype=dtype.carrier)
        if not lanes.numel():
            return before.view(sizes)
        mask, state.mask = state.mask, None
        if self.atomic.combine is not _replace:
            access.fault_where(FaultKind.UNINITIALISED_READ, array.unwritten(position), state, position)
        foreign = array.foreign(position, state.block_number, atomic=True)
        access.fault_where(FaultKind.RACE, foreign, state, position)
        if self.atomic.combine is not None:
            read = array.read_elsewhere(position, state.block_number)
            access.fault_where(FaultKind.RACE, read, state, position)
        memory.materialise()
        if access.suspect:
            nest.tracker.atomic(access, position, lanes, state)
        self._count(position)
        observer = access.program.observer
        if observer is not None and self.atomic.combine is not _replace:
            observer.read(array, position, state)
        if self.atomic.combine is None:
            before[lanes] = dtype.decode(array.flat[position])
        else:
            values = value.expand(sizes).flatten()[lanes]
            before[lanes] = self._update(position, values)
            array.mark_at(position, state.block_number, atomic=True)
            if observer is not None:
                observer.wrote(array, position, None, state)
        state.mask = mask
        return before.view(sizes)

    def _count(self, position: torch.Tensor) -> None:
        access, memory, combine = self.access, self.access.array.memory, self.atomic.combine
        counts, size = access.counters.counts, position.numel() * access.element_bytes
        if combine is not _replace:
            counts[access.bytes_read] += size
            if memory.footprint is not None:
                memory.footprint.elements(access.array, position)
        if combine is not None:
            counts[access.bytes_written] += size
        if combine is not None and combine is not _replace:
            counts[self.updates] += position.numel()

    def _update(self, position: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Updates the elements in the iterations' order; gives what each iteration found."""
        array, dtype, combine = self.access.array, self.dtype, self.atomic.combine
        elements, group = position.unique(return_inverse=True)
        now = dtype.decode(array.flat[elements])
        if compared := dtype.is_uint64 and combine in (_larger, _smaller):
            now, values = unsigned.ordered(now), unsigned.ordered(values)
        order = group.argsort(stable=True)
        counts = group.bincount()
        rank = torch.empty_like(group)  # of an iteration among those of its element
        rank[order] = torch.arange(len(group)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        before = torch.empty_like(values)
        most = int(counts.max())
        meter = self.access.program.meter
        meter.spend(self.access.line, most << 10)
        if most > len(values) // 8 and not self.atomic.returns and combine is not _replace:
            now = self._accumulate(now, group, values)
            array.flat[elements] = dtype.encode(unsigned.ordered(now) if compared else now)
            return before
        # Turn by turn: in each, no two iterations have the same element.
        by_rank = rank.argsort(stable=True)
        for turn, lanes in enumerate(by_rank.split(rank.bincount().tolist())):
            if turn % SPELL == 0:
                meter.spend(self.access.line, SPELL)
            own = group[lanes]
            before[lanes] = now[own]
            now[own] = dtype.settle(combine(now[own], values[lanes]))
        array.flat[elements] = dtype.encode(unsigned.ordered(now) if compared else now)
        return unsigned.ordered(before) if compared else before

    def _accumulate(self, now: torch.Tensor, group: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Many iterations on few elements: one after the other, each step rounded to the dtype."""
        combine = self.atomic.combine
        if combine is torch.add:
            return self.dtype.settle(now.clone().index_add_(0, group, values))
        if combine is torch.bitwise_or:
            result = now.tolist()
            for element, value in zip(group.tolist(), values.tolist(), strict=True):
                result[element] |= value
            return torch.tensor(result, dtype=now.dtype)
        numbers = ~values.isnan() if values.is_floating_point() else slice(None)
        found = now.scatter_reduce(0, group[numbers], values[numbers], "amax" if combine is _larger else "amin")
        return torch.where(now.isnan(), now, found) if now.is_floating_point() else found

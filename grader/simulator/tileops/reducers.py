"""T.reducer_init, T.reducer_update and T.finalize_reducer.

What iterations contribute is joined in pairs, in their order, and rounded to the reducer's dtype at each step; on
the card the order follows from the threads. That the steps come in the right places is ``epochs``' to say.
"""

from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import DType, cast
from grader.simulator.elements import Access
from grader.simulator.expressions import Scope, State, compile_expression, scalar
from grader.simulator.faults import FaultKind
from grader.simulator.operations import count_operations
from grader.simulator.tileops.arguments import check_count, check_options, operation
from grader.simulator.tileops.reductions import Combine, Kind, kind_of
from grader.simulator.tileops.tile import Runner, Tile
from grader.verdict.traffic import Kind as Operation


def _kind(storage: nodes.Storage, dtype: DType, scope: Scope) -> Kind:
    name = scope.program.kernel.reducers.get(storage, "")
    kind = kind_of(name, dtype)
    if kind is None or dtype.kind == "bool" or (kind.bits and not dtype.is_int) or dtype.name.startswith("float8"):
        raise scope.unsupported(_("the reducer '{kind}' of {dtype}").format(kind=name, dtype=dtype.name))
    return kind


def reducer_init(call: nodes.Call, scope: Scope) -> Runner:
    check_count(call, scope, 1, 2)
    check_options(call, scope)
    target = Tile(call.args[0], call, scope)
    dtype = target.array.dtype
    kind = _kind(target.memory.storage, dtype, scope)
    neutral = torch.tensor(kind.neutral(dtype), dtype=dtype.carrier)
    start = None
    if len(call.args) == 2:
        start = scalar(compile_expression(call.args[1], scope), scope, _("a reducer's start"))
        if start.dtype != dtype:
            raise scope.unsupported(_("'{op}' with a value of another dtype").format(op=operation(call)))
    meter, line = scope.program.meter, scope.line
    scope.program.note_write(target.array)

    def run(state: State) -> None:
        sizes = target.extents(state)
        meter.spend(line, prod(sizes))
        value = neutral if start is None else dtype.settle(kind.join(neutral, dtype.tensor(start.run(state))))
        target.store(value.expand(sizes), state)

    return run


def reducer_update(call: nodes.Call, scope: Scope) -> Runner:
    """A statement of T.Parallel: each iteration contributes a value to an element."""
    check_count(call, scope, 2)
    check_options(call, scope)
    target = call.args[0]
    if not isinstance(target, nodes.Load) or not scope.rank:
        raise scope.unsupported(_("'{op}' of something that is no element").format(op=operation(call)))
    value = compile_expression(call.args[1], scope)
    access = Access(target, scope, store=True, atomic=True)
    array, dtype = access.array, access.array.dtype
    kind = _kind(array.memory.storage, dtype, scope)
    convert, nest, meter, line = cast(value.dtype, dtype), scope.nest, scope.program.meter, scope.line
    scope.program.note_write(array)
    counters, count_value = access.counters, count_operations(call.args[1], scope)
    updates = counters.slot(("operations", Operation.REDUCE, dtype.name))

    def run(state: State) -> None:
        meter.spend(line, 4 * nest.iterations * (access.size + value.size))
        if count_value is not None:
            count_value(state)
        values = dtype.tensor(convert(value.run(state)))
        sizes = nest.sizes(access.axes)
        position, inside = access.flat(state)
        active = state.mask
        if inside is not None:
            active = inside if active is None else inside & active
        position, values = position.expand(sizes).flatten(), values.expand(sizes).flatten()
        if active is not None:
            chosen = active.expand(sizes).flatten()
            position, values = position[chosen], values[chosen]
        if not position.numel():
            return
        counters.counts[updates] += position.numel()
        counters.counts[access.bytes_read] += position.numel() * access.element_bytes
        counters.counts[access.bytes_written] += position.numel() * access.element_bytes
        outer, state.mask = state.mask, None
        access.fault_where(FaultKind.UNINITIALISED_READ, array.unwritten(position), state, position)
        state.mask = outer
        elements, group = position.unique(return_inverse=True)
        joined = join_groups(values, group, kind.join, dtype)
        old = dtype.decode(array.flat[elements])
        array.flat[elements] = dtype.encode(dtype.settle(kind.join(old, joined)))
        if access.program.observer is not None:
            access.program.observer.wrote(array, elements, None, state)

    return run


def join_groups(values: torch.Tensor, group: torch.Tensor, join: Combine, dtype: DType) -> torch.Tensor:
    """``values`` of each group (numbered from 0, none empty) joined in pairs, then pairs of these, and so on."""
    order = group.argsort(stable=True)
    values, group = values[order], group[order]
    while True:
        counts = group.bincount()
        if int(counts.max()) == 1:
            return values
        rank = torch.arange(len(group)) - (counts.cumsum(0) - counts)[group]
        first = (rank % 2 == 0).nonzero().flatten()
        paired = rank[first] + 1 < counts[group[first]]
        left = values[first]
        left[paired] = dtype.settle(join(left[paired], values[first[paired] + 1]))
        values, group = left, group[first]


def finalize_reducer(call: nodes.Call, scope: Scope) -> Runner:
    check_count(call, scope, 2)
    check_options(call, scope, "batch")
    source, target = (Tile(arg, call, scope) for arg in call.args)
    if source.array.dtype != target.array.dtype or target.memory.scope != nodes.FRAGMENT:
        raise scope.unsupported(_("'{op}' into something that is no fragment like it").format(op=operation(call)))
    meter, line = scope.program.meter, scope.line
    scope.program.note_write(target.array)

    def run(state: State) -> None:
        if source.extents(state) != target.extents(state):
            raise scope.unsupported(_("'{op}' of tiles of different shapes").format(op=operation(call)))
        meter.spend(line, 2 * prod(source.extents(state)))
        target.store(source.load(state), state)
        source.memory.forget()

    return run

"""Loads and stores of elements, outside tile operations.

Inside T.Parallel, an access whose indices are affine in the loops is a strided window of the buffer; only if
that leaves the buffer, or can't be had, indices are computed for each iteration. Global accesses out of bounds
are what TileLang's compiler makes of them (loads give 0, stores are dropped), and a fault all the same: the
course asks for guards that can be seen.
"""

from collections.abc import Callable

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import Value
from grader.simulator.expressions import (
    Affine,
    Code,
    Evaluator,
    Scope,
    State,
    active_count,
    compile_expression,
)
from grader.simulator.faults import FaultKind, NotBatched
from grader.simulator.memory import FULL, Array, Window
from grader.simulator.operations import count_operations


class Access:
    """One place in the IR where a buffer's element is loaded or stored, compiled."""

    def __init__(self, node: nodes.Load | nodes.Store, scope: Scope, *, store: bool, atomic: bool = False) -> None:
        self.node = node
        self.program = scope.program
        self.line = scope.line
        self.rank = scope.rank
        self.extents = scope.extents
        self.axes = len(scope.axes)
        self.nest = scope.nest
        self.store = store
        self.atomic = atomic
        self.array: Array
        self.array, private = scope.program.array_for(node.buffer, scope)
        if len(node.indices) != len(node.buffer.shape):
            raise scope.unsupported(_("an access with another number of indices than dimensions"))
        indices = [compile_expression(index, scope) for index in node.indices]
        if not all(code.dtype.is_int for code in indices):
            raise scope.unsupported(_("an index that is no integer"))
        self.given = indices
        self.private = len(private)
        self.indices = [*private, *indices]
        self.size = 1 + sum(code.size for code in indices)
        self.varies = any(code.varies for code in self.indices)
        self.element_bytes = self.array.dtype.size
        self.counters = scope.program.counters
        storage = self.array.memory.storage
        self.bytes_read = self.counters.bytes_read(storage)
        self.bytes_written = self.counters.bytes_written(storage)
        self.suspect = False  # set by the nest: another iteration may touch the same element
        if self.rank:
            self._prepare_window()

    # What another access in the same nest needs to know

    def separating(self) -> dict[int, set[tuple[int, object]]]:
        """For each loop, the dimensions in which different iterations of it have different indices."""
        found: dict[int, set[tuple[int, object]]] = {}
        inner, lead = self.nest.inner_variables, len(self.program.lead)
        for dimension, (code, node) in enumerate(zip(self.given, self.node.indices, strict=True)):
            if code.affine is None or any(part in inner for part in nodes.walk(node)):
                continue
            used = [axis for axis, c in enumerate(code.affine.coefficients) if c and axis >= lead]
            if len(used) == 1:
                found.setdefault(used[0], set()).add((dimension, structure(node)))
        return found

    def structure(self) -> object:
        """Equal for accesses that touch the same element in each iteration; None if that isn't known."""
        inner = self.nest.inner_variables
        if any(part in inner for node in self.node.indices for part in nodes.walk(node)):
            return None
        return tuple(structure(node) for node in self.node.indices)

    # Where several blocks run at once

    @property
    def iterations(self) -> int:
        """How many iterations of the nest a block has."""
        return 1 if self.nest is None else self.nest.iterations

    def blocks(self, state: State, sizes: tuple[int, ...]) -> int | torch.Tensor:
        """The number of the block that runs, or, of several, that of each iteration."""
        block = state.block_number
        if isinstance(block, int):
            return block
        return block.reshape(*block.shape, *[1] * (len(sizes) - block.ndim)).expand(sizes).flatten()

    # Windows

    def _prepare_window(self) -> None:
        self.window_sizes: tuple[int, ...] | None = None
        affines = [code.affine for code in self.indices]
        if self.extents is None or None in affines:
            return
        strides = [0] * self.rank
        self.bounds = []
        for affine, stride, extent, code in zip(
            affines, self.array.strides, self.array.shape, self.indices, strict=True
        ):
            low, high = affine.spread(self.extents)
            limit = min(extent - 1, code.dtype.high)
            self.bounds.append((affine.base, -low, limit - high, stride))
            for axis, coefficient in enumerate(affine.coefficients):
                strides[axis] += coefficient * stride
        if min(strides) < 0:
            return
        used = [
            size if any(affine.coefficients[axis] for affine in affines) else 1
            for axis, size in enumerate(self.extents)
        ]
        self.window_sizes = tuple(used)
        self.window_strides = tuple(strides)
        self.injective = self.window_sizes == self.extents and _injective(self.window_sizes, strides)

    def window(self, state: State) -> Window | None:
        """The elements of all iterations, if they lie in the buffer and in a regular pattern."""
        if self.window_sizes is None:
            return None
        offset = 0
        for base, low, high, stride in self.bounds:
            start = base if isinstance(base, int) else base(state)
            if not low <= start <= high:
                self.program.leaves(self, state)
                return None
            offset += start * stride
        return Window(offset, self.window_sizes, self.window_strides)

    def flat(self, state: State) -> tuple[torch.Tensor, torch.Tensor | None]:
        """For each iteration the element's flat position (0 where it is outside) and whether it is inside."""
        position: Value = 0
        inside: torch.Tensor | None = None
        values = [code.run(state) for code in self.indices]
        for value, extent, stride in zip(values, self.array.shape, self.array.strides, strict=True):
            if isinstance(value, torch.Tensor):
                value = value.to(torch.int64)  # noqa: PLW2901
                good = (value >= 0) & (value < extent)
                if not bool(good.all()):
                    inside = good if inside is None else inside & good
            elif not 0 <= value < extent:
                inside = torch.zeros((1,) * self.rank, dtype=torch.bool)
                value = 0  # noqa: PLW2901
            position = position + value * stride
        if not isinstance(position, torch.Tensor):
            position = torch.full((1,) * self.rank, position, dtype=torch.int64)
        if inside is not None:
            inside = inside.expand(position.shape)
            self._out_of_bounds(state, values, inside)
            position = torch.where(inside, position, 0)
        return position, inside

    def _out_of_bounds(self, state: State, values: list[Value], inside: torch.Tensor) -> None:
        count = active_count(~inside, state.mask)
        if not count:
            return

        def index() -> tuple[int, ...]:
            outside = ~inside if state.mask is None else ~inside & state.mask
            # ``outside`` has all the dimensions in which the indices vary, and maybe more of the mask's.
            first = int(outside.flatten().nonzero()[0])
            picked = []
            for value in values[self.private :]:
                if isinstance(value, torch.Tensor):
                    picked.append(int(value.expand(outside.shape).flatten()[first]))
                else:
                    picked.append(value)
            return tuple(picked)

        self._fault(self._outside_kind, state, count, index)

    @property
    def _outside_kind(self) -> FaultKind:
        return FaultKind.OUT_OF_BOUNDS_WRITE if self.store else FaultKind.OUT_OF_BOUNDS_READ

    def _fault(self, kind: FaultKind, state: State, count: int, index: Callable[[], tuple[int, ...]]) -> None:
        self.program.fault(kind, self.node.buffer, self.line, state, self.node, count, index)

    def fault_where(
        self, kind: FaultKind, flags: torch.Tensor | None, state: State, position: "Window | torch.Tensor"
    ) -> None:
        """Records a fault for the active iterations that are flagged."""
        if flags is None:
            return
        mask = state.mask
        count = active_count(flags, mask)
        if not count:
            return

        def index() -> tuple[int, ...]:
            where = flags if mask is None else flags & mask
            if isinstance(position, Window):
                # The mask may vary along loops that the access doesn't: the element is that of any of them.
                for axis, size in enumerate(position.sizes):
                    if size == 1 and where.shape[axis] > 1:
                        where = where.any(axis, keepdim=True)
                where = where.expand(position.sizes)
                flat = position.at(int(where.flatten().nonzero()[0]))
            else:
                first = int(where.flatten().nonzero()[0])
                flat = int(position.expand(where.shape).flatten()[first])
            return self.array.position(flat)[self.private :]

        self._fault(kind, state, count, index)

    # Scalars

    def scalar_position(self, state: State) -> int | None:
        """The element's flat position, or None (and a fault) if it lies outside."""
        values = [code.run(state) for code in self.indices]
        position = self._locate(values)
        if position is None:
            self._fault(self._outside_kind, state, 1, lambda: tuple(values))
        return position

    def touches(self, position: int, state: State) -> bool:
        return self._locate([code.run(state) for code in self.indices]) == position

    def _locate(self, values: list[int]) -> int | None:
        position = 0
        for value, extent, stride in zip(values, self.array.shape, self.array.strides, strict=True):
            if not 0 <= value < extent:
                return None
            position += value * stride
        return position

    def read_checks(self, where: "Window | torch.Tensor", state: State) -> None:
        memory = self.array.memory
        if memory.state == FULL:
            return
        kind = FaultKind.RACE if memory.carried else FaultKind.UNINITIALISED_READ
        self.fault_where(kind, self.array.unwritten(where), state, where)
        self.fault_where(FaultKind.RACE, self.array.foreign(where, state.block_number), state, where)
        if memory.reader is not None:
            self.array.note_reader(where, state.mask, state.block_number)

    def write_checks(
        self, where: "Window | torch.Tensor", state: State, block: "int | torch.Tensor | None" = None
    ) -> None:
        array, block = self.array, state.block_number if block is None else block
        self.fault_where(FaultKind.RACE, array.foreign(where, block), state, where)
        if array.memory.reader is not None:
            self.fault_where(FaultKind.RACE, array.read_elsewhere(where, block), state, where)


def structure(node: nodes.Expr) -> object:
    """Equal for expressions of the same form over the same variables."""
    match node:
        case nodes.Const(value=value):
            return (node.dtype, value)
        case nodes.Binary(op=op, a=a, b=b):
            return (op, structure(a), structure(b))
        case nodes.Cast(dtype=dtype, value=value):
            return (dtype, structure(value))
    return node  # by identity


def _injective(sizes: tuple[int, ...], strides: list[int]) -> bool:
    """Do different iterations have different positions? (Surely so: False may mean 'not known'.)"""
    reach = 0
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1:
            if stride <= reach:
                return False
            reach += stride * (size - 1)
    return True


def compile_load(node: nodes.Load, scope: Scope) -> Code:
    access = Access(node, scope, store=False)
    array, dtype = access.array, access.array.dtype
    if scope.rank:
        nest = scope.nest
        if nest is not None:
            nest.accesses.append(access)
        uniform = not access.varies and (nest is None or not nest.writes(node.buffer.storage))
        run = _scalar_load(access) if uniform else _parallel_load(access)
    else:
        uniform, run = True, _scalar_load(access)
    code = Code(dtype, run, varies=not uniform, size=access.size)
    if uniform and dtype.is_int:
        code.affine = Affine(run, (0,) * scope.rank)
    scope.program.note_read(array)
    return code


def _scalar_load(access: Access) -> Evaluator:
    array, memory, dtype = access.array, access.array.memory, access.array.dtype
    watched = access.program.watches_threads and not access.rank and not memory.is_local
    threads = access.program.threads if watched else None
    observer = access.program.observer
    footprint, counts, slot = memory.footprint, access.counters.counts, access.bytes_read
    size, touched, once = access.element_bytes, access.counters.touched, (1,) * access.rank
    counted = size * access.counters.blocks
    meter, turn = access.program.meter, -1

    def run(state: State) -> Value:
        position = access.scalar_position(state)
        if position is None:
            return dtype.scalar(0 if memory.is_global or dtype.kind != "float" else float("nan"))
        if memory.state != FULL:
            mask, state.mask = state.mask, None
            access.read_checks(Window(position, (), ()), state)
            state.mask = mask
        if threads is not None and threads.read(array, position, access.line):
            access._fault(FaultKind.RACE, state, 1, lambda: array.position(position))
        nonlocal turn
        if turn != meter.turns:  # a statement may evaluate an index or a condition twice
            turn = meter.turns
            # Where blocks run at once, some of them may have no active iteration.
            counts[slot] += counted if state.mask is None else touched(state.mask, once) * size
            if footprint is not None:
                footprint.element(array, position)
        if observer is not None:
            mask, state.mask = state.mask, None
            observer.read(array, Window(position, (), ()), state)
            state.mask = mask
        value = dtype.decode(array.flat[position])
        if dtype.kind == "float":
            return value.clone()
        return bool(value) if dtype.kind == "bool" else int(value)

    return run


def _parallel_load(access: Access) -> Evaluator:
    array, memory, dtype = access.array, access.array.memory, access.array.dtype
    footprint, counts, slot = memory.footprint, access.counters.counts, access.bytes_read
    element_bytes, touched = access.element_bytes, access.counters.touched
    outside: Value = 0 if memory.is_global or dtype.kind != "float" else float("nan")
    observer = access.program.observer

    def run(state: State) -> torch.Tensor:
        window = None if access.suspect else access.window(state)
        if window is not None:
            if memory.state != FULL:
                access.read_checks(window, state)
            counts[slot] += touched(state.mask, window.sizes) * element_bytes
            if footprint is not None:
                footprint.window(array, window, state.mask)
            if observer is not None:
                observer.read(array, window, state)
            return dtype.decode(array.raw(window))
        position, inside = access.flat(state)
        mask = state.mask
        if inside is not None:
            state.mask = inside if mask is None else inside & mask
        access.read_checks(position, state)
        if access.suspect:
            access.nest.tracker.load(access, position, state)
        counts[slot] += touched(state.mask, tuple(position.shape)) * element_bytes
        if footprint is not None:
            footprint.elements(array, position, state.mask)
        if observer is not None:
            observer.read(array, position, state)
        state.mask = mask
        value = dtype.decode(array.flat[position])
        return value if inside is None else torch.where(inside, value, outside)

    return run


def compile_store(node: nodes.Store, scope: Scope) -> Callable[[State], None]:
    value = compile_expression(node.value, scope)
    access = Access(node, scope, store=True)
    if value.dtype != access.array.dtype:
        raise scope.unsupported(
            _("a store of {value} into a buffer of {buffer} without a cast").format(
                value=value.dtype.name, buffer=access.array.dtype.name
            )
        )
    scope.program.note_write(access.array)
    if scope.nest is not None:
        scope.nest.accesses.append(access)
        return _parallel_store(access, value, scope)
    if scope.rank:
        if not access.array.memory.is_local:
            raise NotBatched  # threads would have to be watched, for each block
        return _parallel_store(access, value, scope)
    return _scalar_store(access, value, scope)


def _scalar_store(access: Access, value: Code, scope: Scope) -> Callable[[State], None]:
    array, memory, dtype = access.array, access.array.memory, access.array.dtype
    evaluate, program, line = value.run, access.program, access.line
    counts, slot, written = (
        access.counters.counts,
        access.bytes_written,
        access.element_bytes * access.counters.blocks,
    )
    count = count_operations(access.node.value, scope)
    loads: list[Access] = []
    threads = None if memory.is_local or not program.watches_threads else program.threads
    if threads is not None:
        threads.stores(memory.storage)
        # Every thread runs this statement: what it reads it must not change.
        loads = [
            Access(part, scope, store=False)
            for part in program.loads_in(access.node)
            if part.buffer.storage is memory.storage and part.buffer.dtype == access.node.buffer.dtype
        ]
    cost = value.size + access.size

    def run(state: State) -> None:
        program.meter.spend(line, cost)
        if count is not None:
            count(state)
        result = evaluate(state)
        position = access.scalar_position(state)
        if position is None:
            return
        window = Window(position, (), ())
        race = any(load.touches(position, state) for load in loads)
        access.write_checks(window, state)
        array.prepare_write(window, None)
        target = array.flat[position : position + 1].view(torch.uint8)
        before = target.tolist()
        array.flat[position].copy_(dtype.encode(dtype.tensor(result)))
        if threads is not None:
            race |= threads.write(array, position, line, changed=target.tolist() != before)
        if race:
            access._fault(FaultKind.RACE, state, 1, lambda: array.position(position))
        array.mark(window, None, state.block_number)
        counts[slot] += written
        if program.observer is not None:
            program.observer.wrote(array, window, None, state)

    return run


def _parallel_store(access: Access, value: Code, scope: Scope) -> Callable[[State], None]:
    array, memory, dtype = access.array, access.array.memory, access.array.dtype
    evaluate, element_bytes, meter, line = value.run, access.element_bytes, access.program.meter, access.line
    aliases = any(load.buffer.storage is memory.storage for load in access.program.loads_in(access.node))
    observer = access.program.observer
    size, lead = value.size + access.size, access.program.lead
    counts, slot, touched = access.counters.counts, access.bytes_written, access.counters.touched
    count = count_operations(access.node.value, scope)

    def run(state: State) -> None:
        meter.spend(line, access.iterations * size)
        if count is not None:
            count(state)
        result = evaluate(state)
        mask = state.mask
        window = None if access.suspect else access.window(state)
        if window is not None and not access.injective:
            if lead and memory.is_global:
                raise NotBatched  # several blocks write one element
            # Several iterations write one element. That is fine if all of them write the same value.
            sizes = window.sizes
            same = _uniform(result, sizes) and (mask is None or _uniform(mask, sizes))
            window = window if same and _injective(sizes, list(window.strides)) else None
        if window is None:
            _scattered_store(access, result, state)
            return
        raw = dtype.encode(dtype.tensor(result))
        if memory.is_global:
            access.write_checks(window, state)
        counts[slot] += touched(mask, window.sizes) * element_bytes
        array.prepare_write(window, mask)
        target = array.raw(window)
        if mask is not None:
            raw = torch.where(mask, raw, target)
        elif aliases and isinstance(result, torch.Tensor):
            raw = raw.clone()
        target.copy_(raw)
        array.mark(window, mask, state.block_number)
        if observer is not None:
            observer.wrote(array, window, mask, state)

    return run


def _uniform(value: Value, sizes: tuple[int, ...]) -> bool:
    """Is a value the same for all iterations that share an element of a window of these sizes?"""
    if not isinstance(value, torch.Tensor) or value.ndim == 0:
        return True
    return all(size == 1 for size, kept in zip(value.shape, sizes, strict=True) if kept == 1)


def _scattered_store(access: Access, result: Value, state: State) -> None:
    array, memory, dtype = access.array, access.array.memory, access.array.dtype
    position, inside = access.flat(state)
    sizes = access.program.lead if access.nest is None else access.nest.sizes(access.axes)
    active = state.mask
    if inside is not None:
        active = inside if active is None else active & inside
    raw = dtype.encode(dtype.tensor(result)).expand(sizes).flatten()
    position = position.expand(sizes).flatten()
    lanes, blocks = torch.arange(position.numel()), access.blocks(state, sizes)
    if active is not None:
        chosen = active.expand(sizes).flatten()
        raw, position, lanes = raw[chosen], position[chosen], lanes[chosen]
        blocks = blocks if isinstance(blocks, int) else blocks[chosen]
    if not position.numel():
        return
    mask, state.mask = state.mask, None
    if memory.is_global:
        access.write_checks(position, state, blocks)
    access.counters.counts[access.bytes_written] += position.numel() * access.element_bytes
    memory.materialise()
    if access.suspect:
        access.nest.tracker.store(access, position, raw, lanes, state)
    array.flat[position] = raw
    kept = array.flat[position]
    lost = kept != raw
    if dtype.kind == "float":
        lost &= ~(dtype.decode(kept).isnan() & dtype.decode(raw).isnan())
    if bool(lost.any()):
        access.fault_where(FaultKind.RACE, lost, state, position)
        # Which value stays is chance on the card; here it is the last iteration's, so that runs repeat.
        elements, group = position.unique(return_inverse=True)
        last = torch.zeros_like(elements).scatter_reduce(
            0, group, torch.arange(position.numel()), "amax", include_self=False
        )
        array.flat[elements] = raw[last]
    array.mark_at(position, blocks)
    if not isinstance(blocks, int):  # did several of the blocks write one element?
        access.fault_where(FaultKind.RACE, array.foreign(position, blocks), state, position)
    if access.program.observer is not None:
        access.program.observer.wrote(array, position, None, state)
    state.mask = mask

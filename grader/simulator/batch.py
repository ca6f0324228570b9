"""Several blocks at once.

A block's statements touch few elements, so that Python's overhead is most of the time. Where control flow is
the same in all blocks, they run at once: grid dimensions that only positions depend on become *leading axes*.
Memory of a block gets them as leading dimensions, a T.Parallel nest has them as further outer loops, and a tile
operation as leading dimensions of its windows. The blocks of a grid are cut into *boxes* whose tiles fit a
cache. A box in which some blocks' accesses leave a buffer, and others' don't, is cut further.

This is a fast path for what is clean. It is taken if no parameter is both read and written and no two share
memory, so that no block can see another. Anything else that is odd raises NotBatched: a fault, a condition that
differs between blocks, two blocks that write one element, an operation without a form for several blocks, a
budget that is spent. All is then forgotten and done again a block at a time, so that results, faults and counts
are always those of that walk.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise, product
from math import prod
from time import monotonic
from weakref import WeakKeyDictionary

import torch

from grader.ir import nodes
from grader.simulator import functions
from grader.simulator.batched_tiles import BATCHED_TILE_OPS
from grader.simulator.budget import WORK_PER_STEP, Meter
from grader.simulator.counters import Counters
from grader.simulator.dtypes import DTYPES, DType
from grader.simulator.elements import Access
from grader.simulator.expressions import Affine, Axis, Code, Evaluator, Scope, State
from grader.simulator.faults import FaultKind, NotBatched, Unsupported
from grader.simulator.memory import Array, Memory, row_major
from grader.simulator.nests import iota
from grader.simulator.program import BOOKKEPT, Program, TileOp
from grader.simulator.statements import ASSERTIONS, JUMPS, NO_EFFECT, compile_statement

#: Elements that the blocks of a box have in their largest tile: more leave the cache.
ELEMENTS = 1 << 18
#: The part of the memory budget that a box may take.
SHARE = 4
#: A grid whose blocks differ at more places than these is walked block by block.
CUTS = 16

#: Operators that work on many blocks as on one. What isn't known is done a block at a time.
_CALLS = frozenset().union(
    *functions.FLOAT_CALLS.values(),
    functions.PREDICATES,
    functions.BITS,
    functions.BIT_COUNTS,
    functions.DIVISIONS,
    NO_EFFECT,
    ASSERTIONS,
    BATCHED_TILE_OPS,
    ("tirx.if_then_else", "tl.infinity", "tirx.likely", "tirx.reinterpret", "tirx.bitwise_not"),
    ("tirx.ldexp", "tl.__ldg"),
    JUMPS,
)


class _Cut(Exception):
    """The box is to be cut along its ``axis``-th leading axis before the block index ``position``."""

    def __init__(self, axis: int, position: int) -> None:
        super().__init__(axis, position)
        self.axis = axis
        self.position = position


# Which dimensions of the grid

_plans: WeakKeyDictionary[nodes.Kernel, frozenset[int]] = WeakKeyDictionary()


def _free(kernel: nodes.Kernel) -> frozenset[int]:
    """The dimensions of the grid that may become leading axes; remembered, as a kernel never changes."""
    if kernel not in _plans:
        control = _control(kernel) if _known(kernel) else {dimension.var for dimension in kernel.grid}
        _plans[kernel] = frozenset(
            axis for axis, dimension in enumerate(kernel.grid) if dimension.var not in control
        )
    return _plans[kernel]


def _control(kernel: nodes.Kernel) -> set[nodes.Var]:
    """The grid's variables on which a condition, loop bound or extent outside T.Parallel depends."""
    grid = {dimension.var for dimension in kernel.grid}
    sources: dict[nodes.Expr | nodes.Storage, set[nodes.Expr | nodes.Storage]] = {}
    roots: set[nodes.Expr | nodes.Storage] = set()

    def names(node: nodes.Expr) -> Iterator[nodes.Expr | nodes.Storage]:
        for part in nodes.walk(node):
            if isinstance(part, nodes.Var):
                yield part
            elif isinstance(part, nodes.Load) and part.buffer.scope in (nodes.LOCAL, nodes.VARIABLE):
                yield part.buffer.storage
            elif isinstance(part, nodes.Region):
                roots.update(name for extent in part.extents for name in names(extent))

    def visit(node: nodes.Stmt, outside: bool) -> None:
        match node:
            case nodes.Bind(var=var, value=value):
                sources.setdefault(var, set()).update(names(value))
            case nodes.Store(buffer=buffer, value=value):
                sources.setdefault(buffer.storage, set()).update(names(value))
            case nodes.If(condition=condition) | nodes.While(condition=condition) if outside:
                roots.update(names(condition))
            case nodes.For(var=var, min=low, extent=extent, kind=kind):
                sources.setdefault(var, set()).update(names(low))
                if outside or kind == nodes.PARALLEL:
                    roots.update((*names(low), *names(extent)))
                outside = outside and kind != nodes.PARALLEL
            case nodes.Evaluate(value=value):
                for _name in names(value):
                    pass  # for the regions in it
        for part in nodes.children(node):
            if isinstance(part, nodes.Stmt):
                visit(part, outside)

    visit(kernel.body, True)
    reached, pending = set(roots), list(roots)
    while pending:
        for source in sources.get(pending.pop(), ()):
            if source not in reached:
                reached.add(source)
                pending.append(source)
    return grid & reached


def _known(kernel: nodes.Kernel) -> bool:
    """Has the kernel only what can be done for several blocks at once?"""
    return all(
        part not in kernel.thread_vars if isinstance(part, nodes.Var) else getattr(part, "op", "") in _CALLS
        for part in nodes.walk(kernel.body)
        if isinstance(part, nodes.Var | nodes.Call | nodes.Print)
    )


def _apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Do no two tensors share memory?"""
    spans = []
    for tensor in tensors:
        if tensor.numel():
            reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            spans.append((tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()))
    spans.sort()
    return all(end <= start for (_, end), (start, _) in pairwise(spans))


def _elements(kernel: nodes.Kernel, scope: Scope) -> int:
    """How many elements a block has in its largest tile or T.Parallel."""
    most = 1
    for buffer in kernel.allocations:
        most = max(most, prod(scope.program.shape(buffer.shape, scope)))

    def visit(node: nodes.Stmt, around: int) -> None:
        nonlocal most
        if isinstance(node, nodes.For) and node.kind == nodes.PARALLEL and isinstance(node.extent, nodes.Const):
            around *= max(int(node.extent.value), 1)
            most = max(most, around)
        for part in nodes.children(node):
            if isinstance(part, nodes.Stmt):
                visit(part, around)

    visit(kernel.body, 1)
    return most


# Boxes of blocks


Box = tuple[tuple[int, int], ...]  # from and to of each leading axis


def _chunks(extents: Sequence[int], limit: int) -> list[int]:
    """How many blocks a box has along each axis, of at most ``limit`` together: the last axes first."""
    sizes = []
    for extent in reversed(extents):
        parts = -(-extent // max(limit, 1))
        size = -(-extent // parts)
        sizes.append(size)
        limit = limit // size if size == extent else 1
    return sizes[::-1]


def _split(box: Box, cuts: Sequence[set[int]]) -> Iterator[Box]:
    """The parts of a box between cuts, in the order of their blocks."""
    ranges = []
    for (low, high), positions in zip(box, cuts, strict=True):
        edges = [low, *sorted(position for position in positions if low < position < high), high]
        ranges.append(list(pairwise(edges)))
    yield from product(*ranges)


# The blocks of a box, compiled


class _BatchMeter(Meter):
    """Pays for all blocks of a box at once, from what is left of another meter."""

    def __init__(self, meter: Meter, blocks: int) -> None:
        self.budget = meter.budget
        self.deadline = meter.deadline
        self.bytes = meter.bytes
        self.steps = self.turns = 0
        self._meter = meter
        self._blocks = blocks

    def spend(self, line: nodes.Line | None, work: int = 0) -> None:
        """``work`` is that of one block."""
        self.turns += 1
        self.steps += self._blocks * (1 + work // WORK_PER_STEP)
        if self.steps + self._meter.steps > self.budget.steps:
            raise NotBatched
        if monotonic() > self.deadline:
            self._meter.spend(line)

    def room(self, size: int, line: nodes.Line | None) -> None:
        """``size`` is that of one block."""
        if self.bytes + size * self._blocks > self.budget.bytes:
            raise NotBatched

    def keep(self, size: int, line: nodes.Line | None) -> None:
        """``size`` is that of all blocks."""
        self.room(-(-size // self._blocks), line)
        self.bytes += size

    def settle(self) -> None:
        """Hands the steps of a box that is done on to the other meter."""
        self._meter.steps += self.steps
        self.steps = 0


def _position(rank: int, axis: int, extent: int) -> Code:
    coefficients = tuple(int(other == axis) for other in range(rank))
    return Code(
        DTYPES["int64"],
        lambda state: iota(rank, axis, extent, torch.int64),
        varies=True,
        affine=Affine(0, coefficients),
    )


class BatchProgram(Program):
    """A kernel compiled for the blocks of a box of given extents; where the box lies can be set."""

    def __init__(self, base: Program, axes: Sequence[nodes.Var], extents: tuple[int, ...]) -> None:
        super().__init__(base.kernel, base.meter, checks=base.checks)
        self.lead = extents
        self.blocks = prod(extents)
        self.counters = Counters(extents)
        self.meter = _BatchMeter(base.meter, self.blocks)
        self.watches_threads = False
        self.memories = dict(base.memories)
        self.axes = [Axis(var, extent) for var, extent in zip(axes, extents, strict=True)]
        self.start = [0] * len(extents)
        self.fresh: list[Memory] = []
        self._lead_codes: dict[int, tuple[Code, ...]] = {}

    def axis_code(self, axis: int, dtype: DType) -> Code:
        rank, extent, start = len(self.lead), self.lead[axis], self.start

        def run(state: State) -> torch.Tensor:
            values = iota(rank, axis, extent, dtype.carrier)
            return values + start[axis] if start[axis] else values

        coefficients = tuple(int(other == axis) for other in range(rank))
        return Code(dtype, run, varies=True, affine=Affine(lambda state: start[axis], coefficients))

    def allocate(self, granules: dict[nodes.Storage, int], scope: Scope) -> None:
        for buffer in self.kernel.allocations:
            if buffer.scope == nodes.GLOBAL or buffer.storage in self.memories:
                raise NotBatched
            shape, strides, dtype, size = self.layout(buffer, scope)
            if strides != row_major(shape):
                raise NotBatched
            size *= self.blocks
            self.meter.keep(2 * size, scope.line)
            data = torch.empty(size, dtype=torch.uint8)
            granule = granules.get(buffer.storage, dtype.size)
            memory = Memory(buffer.storage, data, granule, dtype.poison, checked=self.checks, blocks=self.blocks)
            self.memories[buffer.storage] = memory
            self.fresh.append(memory)

    # What differs from a single block

    def array(self, buffer: nodes.Buffer, scope: Scope) -> Array:
        known = self.arrays.get(buffer)
        if known is not None:
            return known
        memory = self.memories.get(buffer.storage)
        if memory is None or memory.is_global:
            return super().array(buffer, scope)
        shape, strides, dtype, size = self.layout(buffer, scope)
        whole = memory.data.numel() // self.blocks
        if size > whole or whole % dtype.size:
            raise NotBatched
        steps = tuple(step * (whole // dtype.size) for step in row_major(self.lead))
        array = Array(memory, buffer, dtype, self.lead + shape, steps + strides)
        array.lead = len(self.lead)
        self.arrays[buffer] = array
        return array

    def array_for(self, buffer: nodes.Buffer, scope: Scope) -> tuple[Array, tuple[Code, ...]]:
        array, private = super().array_for(buffer, scope)
        if private or not array.lead:
            return array, private
        return array, self.lead_codes(scope.rank)

    def lead_codes(self, rank: int) -> tuple[Code, ...]:
        if rank not in self._lead_codes:
            self._lead_codes[rank] = tuple(_position(rank, axis, extent) for axis, extent in enumerate(self.lead))
        return self._lead_codes[rank]

    def tile_op(self, op: str, compiler: TileOp) -> TileOp:
        return BATCHED_TILE_OPS[op]

    def decided(self, run: Evaluator) -> Evaluator:
        def decide(state: State) -> int | bool:
            value = run(state)
            if not isinstance(value, torch.Tensor):
                return value
            first = value.flatten()[0]
            if not bool((value == first).all()):
                raise NotBatched
            return first.item()

        return decide

    def share(self, mask: torch.Tensor) -> None:
        """A statement is counted for all blocks: cuts the box where some have no iteration that it runs for."""
        lead = len(self.lead)
        if all(size == 1 for size in mask.shape[:lead]):
            return
        here = mask.flatten(lead).any(-1)
        if bool(here.all()):
            return
        for axis in range(lead):
            lines = here.movedim(axis, 0).flatten(1) if lead > 1 else here.unsqueeze(1)
            changes = (lines[1:] != lines[:-1]).any(1).nonzero()
            if len(changes):
                raise _Cut(axis, self.start[axis] + int(changes[0]) + 1)

    def leaves(self, access: Access, state: State) -> None:
        """Cuts the box where the access begins to leave its buffer: the rest is then a plain window."""
        for code, extent in zip(access.indices, access.array.shape, strict=True):
            base, coefficients = code.affine.at(state), code.affine.coefficients
            low, high = code.affine.spread((*[1] * len(self.lead), *access.extents[len(self.lead) :]))
            for axis, (size, step) in enumerate(zip(self.lead, coefficients, strict=False)):
                if size == 1 or step <= 0:
                    continue
                # Along this axis alone, which blocks are inside?
                first = max(-((base + low) // step), 0)
                last = min((extent - 1 - base - high) // step + 1, size)
                for cut in (first, last):
                    if 0 < cut < size:
                        raise _Cut(axis, self.start[axis] + cut)

    def fault(
        self,
        kind: FaultKind,
        buffer: nodes.Buffer | None,
        line: nodes.Line | None,
        state: State,
        node: nodes.Expr | nodes.Store,
        count: int = 1,
        index: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        if self.checks or kind not in BOOKKEPT:
            raise NotBatched


class _Box:
    """The body for boxes of given extents, and what it needs to run."""

    def __init__(
        self,
        base: Program,
        sizes: dict[nodes.Var, Code],
        axes: Sequence[int],
        extents: tuple[int, ...],
        granules: dict[nodes.Storage, int],
    ) -> None:
        grid = base.kernel.grid
        self.base = base
        self.program = BatchProgram(base, [grid[axis].var for axis in axes], extents)
        scope = Scope(self.program, dict(sizes), len(axes), self.program.axes, line=base.kernel.line)
        self.slots: list[int] = []
        for position, dimension in enumerate(grid):
            dtype = scope.dtype(dimension.var.dtype)
            if position in axes:
                code = self.program.axis_code(axes.index(position), dtype)
            else:
                slot = self.program.slot()
                self.slots.append(slot)
                code = Code(dtype, _reader(slot), affine=Affine(_reader(slot), (0,) * len(axes)))
            scope.variables[dimension.var] = code
        self.program.allocate(granules, scope)
        self.body = compile_statement(base.kernel.body, scope)
        self.state = State()
        self.state.vars = [0] * self.program.slots

    def run(self, box: Box, others: Sequence[int], numbers: torch.Tensor | int) -> None:
        """Runs the blocks of a box. ``others`` are the indices along the other dimensions of the grid.

        Raises _Cut and NotBatched, and then leaves no count changed.
        """
        program, state = self.program, self.state
        program.start[:] = [low for low, _high in box]
        for slot, index in zip(self.slots, others, strict=True):
            state.vars[slot] = index
        state.block_number = numbers
        state.mask = None
        program.counters.clear()
        program.meter.steps = 0
        for memory in program.fresh:
            memory.forget()
        program.meter.spend(program.kernel.line)
        self.body(state)
        program.meter.settle()
        self.base.counters.add(program.counters)


def _reader(slot: int) -> Evaluator:
    return lambda state: state.vars[slot]


#: Compiled boxes that are kept: mostly there are a box size for the middle and some for the edges.
_KEPT = 4


def run_batched(
    base: Program,
    sizes: dict[nodes.Var, Code],
    tensors: Sequence[torch.Tensor],
    extents: Sequence[int],
    granules: dict[nodes.Storage, int],
    outputs: Collection[int] | None,
) -> None:
    """Runs all blocks of a kernel, several at once, and adds to the counts of ``base``.

    ``sizes`` are the dynamic sizes, ``extents`` the grid's, x first, ``granules`` the granules of memory. Raises
    NotBatched if the kernel must be run a block at a time; counts and outputs are then of no use.
    """
    kernel = base.kernel
    free = _free(kernel)
    axes = [axis for axis in reversed(range(len(extents))) if extents[axis] > 1 and axis in free]
    if not axes or not _apart(tensors):
        raise NotBatched
    scope = Scope(base, dict(sizes), line=kernel.line)
    elements = _elements(kernel, scope)
    # A T.Parallel and a tile operation need up to 64 bytes an element for a moment.
    block = 64 * elements + sum(2 * base.layout(buffer, scope)[3] for buffer in kernel.allocations)
    limit = min(ELEMENTS // elements, base.meter.budget.bytes // SHARE // block)
    chunks = _chunks([extents[axis] for axis in axes], limit)
    if prod(chunks) < 2:
        raise NotBatched
    try:
        _Walk(base, sizes, axes, extents, granules, outputs).run(chunks)
    except Unsupported:
        raise NotBatched from None  # if it is, the walk of single blocks says so


class _Walk:
    def __init__(
        self,
        base: Program,
        sizes: dict[nodes.Var, Code],
        axes: Sequence[int],
        extents: Sequence[int],
        granules: dict[nodes.Storage, int],
        outputs: Collection[int] | None,
    ) -> None:
        self.base, self.sizes, self.axes, self.extents = base, sizes, axes, extents
        self.granules, self.outputs = granules, outputs
        self.strides = [prod(extents[:axis]) for axis in range(len(extents))]
        self.cuts: list[set[int]] = [set() for _axis in axes]
        self.boxes: dict[tuple[int, ...], _Box] = {}
        self.tracked = False

    def run(self, chunks: Sequence[int]) -> None:
        others = [axis for axis in range(len(self.extents)) if axis not in self.axes]
        ranges = [
            [(low, min(low + chunk, self.extents[axis])) for low in range(0, self.extents[axis], chunk)]
            for axis, chunk in zip(self.axes, chunks, strict=True)
        ]
        for fixed in product(*(range(self.extents[axis]) for axis in others)):
            number = sum(self.strides[axis] * index for axis, index in zip(others, fixed, strict=True))
            for chunk in product(*ranges):
                for box in _split(chunk, self.cuts):
                    self._run(box, fixed, number)

    def _run(self, box: Box, fixed: Sequence[int], number: int) -> None:
        try:
            self._box(box).run(box, fixed, self._numbers(box, number))
        except _Cut as cut:
            self.cuts[cut.axis].add(cut.position)
            if sum(map(len, self.cuts)) > CUTS:
                raise NotBatched from None
            for part in _split(box, self.cuts):
                self._run(part, fixed, number)

    def _numbers(self, box: Box, number: int) -> torch.Tensor | int:
        if not self.base.checks:
            return 0
        numbers = torch.full((1,) * len(box), number, dtype=torch.int32)
        for place, (axis, (low, high)) in enumerate(zip(self.axes, box, strict=True)):
            steps = torch.arange(low, high, dtype=torch.int32) * self.strides[axis]
            numbers = numbers + steps.reshape(tuple(-1 if other == place else 1 for other in range(len(box))))
        return numbers

    def _box(self, box: Box) -> _Box:
        extents = tuple(high - low for low, high in box)
        found = self.boxes.get(extents)
        if found is None:
            while len(self.boxes) >= _KEPT:
                del self.boxes[next(iter(self.boxes))]
            found = _Box(self.base, self.sizes, self.axes, extents, self.granules)
            self.boxes[extents] = found
            if not self.tracked:
                self._track(found.program)
        return found

    def _track(self, program: Program) -> None:
        self.base.written |= program.written
        if any(buffer.storage in program.read & program.written for buffer in program.kernel.params):
            raise NotBatched  # a block may see what another one wrote
        self.base.track_writers(self.outputs)
        self.tracked = True

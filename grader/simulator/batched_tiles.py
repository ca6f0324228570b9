"""The tile operations for several blocks at once: see batch.

They say nothing to students: what isn't as it should be raises NotBatched, and the operation for one block, in
tileops, then says what is wrong. ``BATCHED_TILE_OPS`` at the end is the one place to add one; an operation that
isn't there is done a block at a time.
"""

from collections.abc import Callable, Iterator
from itertools import product
from math import prod

import torch

from grader.ir import nodes
from grader.simulator.counters import told
from grader.simulator.dtypes import DTYPES, cast
from grader.simulator.elements import _injective
from grader.simulator.expressions import Affine, Scope, State, compile_expression
from grader.simulator.faults import NotBatched
from grader.simulator.memory import FULL, Memory, Window, row_major
from grader.simulator.operations import count_operations
from grader.simulator.tileops.arguments import check_options
from grader.simulator.tileops.copies import WITHOUT_EFFECT, _level
from grader.simulator.tileops.products import GEMM_WORK, POLICIES, check_places, product_of, wider
from grader.simulator.tileops.reductions import read_reduction
from grader.verdict.traffic import Kind

Runner = Callable[[State], None]

#: From and to along each leading axis: some of the blocks that run at once.
Lead = tuple[tuple[int, int], ...]
#: Which elements of a tile lie in its buffer: from and to along each dimension.
Clip = tuple[tuple[int, int], ...]


Integer = int | Callable[[State], int]


def _integer(node: nodes.Expr, scope: Scope) -> Integer:
    """An integer that is the same for all blocks: what it is, or what evaluates it."""
    if isinstance(node, nodes.Const) and node.dtype == "int32" and isinstance(node.value, int):
        return node.value
    code = compile_expression(node, scope)
    if code.varies or not code.dtype.is_int:
        raise NotBatched
    return code.run if code.constant is None else code.constant


def _values(integers: list[Integer], state: State) -> list[int]:
    return [value if isinstance(value, int) else value(state) for value in integers]


def _constant(node: nodes.Expr, allowed: tuple[int, ...]) -> int:
    if not isinstance(node, nodes.Const) or node.dtype not in DTYPES or node.value not in allowed:
        raise NotBatched
    return int(node.value)


def _affine(node: nodes.Expr, scope: Scope) -> Affine:
    """A position that is affine in the blocks' indices."""
    if isinstance(node, nodes.Const) and node.dtype == "int32" and isinstance(node.value, int):
        return Affine(node.value, (0,) * scope.rank)
    code = compile_expression(node, scope)
    if code.affine is None or not code.dtype.is_int:
        raise NotBatched
    return code.affine


class BatchedTile:
    """A region argument whose position is affine in the blocks' indices."""

    def __init__(self, node: nodes.Expr, scope: Scope) -> None:
        if not isinstance(node, nodes.Region):
            raise NotBatched
        self.program = scope.program
        self.lead = scope.program.lead
        self.array = scope.program.array(node.buffer, scope)
        self.memory: Memory = self.array.memory
        counters = scope.program.counters
        self._counts = counters.counts
        self._bytes_read = counters.bytes_read(node.buffer.storage)
        self._bytes_written = counters.bytes_written(node.buffer.storage)
        own = self.array.lead
        self.shape, self.strides = self.array.shape[own:], self.array.strides[own:]
        if not len(node.mins) == len(node.extents) == len(self.shape):
            raise NotBatched
        mins = [_affine(low, scope) for low in node.mins]
        #: Along each dimension, the position of the first block's tile and the step from block to block.
        self.bases = [affine.base for affine in mins]
        self.steps = [affine.coefficients for affine in mins]
        self._spread = [affine.spread(self.lead) for affine in mins]
        self.lead_strides = list(self.array.strides[:own]) or [0] * len(self.lead)
        for steps, stride in zip(self.steps, self.strides, strict=True):
            self.lead_strides = [
                total + step * stride for total, step in zip(self.lead_strides, steps, strict=True)
            ]
        if min(self.lead_strides) < 0:
            raise NotBatched
        self._extents = [_integer(extent, scope) for extent in node.extents]
        self.looped = [axis for axis, extent in enumerate(self._extents) if extent != 1]
        self.all: Lead = tuple((0, size) for size in self.lead)

    def constant_extent(self, axis: int) -> int | None:
        extent = self._extents[axis]
        return extent if isinstance(extent, int) else None

    def extents(self, state: State) -> list[int]:
        return _values(self._extents, state)

    def mins(self, state: State) -> list[int]:
        """The position of the first block's tile."""
        return _values(self.bases, state)

    def within(self, start: list[int], sizes: list[int]) -> bool:
        """Do the tiles of all blocks lie in the buffer?"""
        return all(
            low + first >= 0 and high + first + size <= extent
            for (low, high), first, size, extent in zip(self._spread, start, sizes, self.shape, strict=True)
        )

    # Windows: of the blocks ``lead``, at ``start`` in the first block of all

    def window(self, lead: Lead, start: list[int], sizes: list[int], strides: tuple[int, ...]) -> Window:
        """Blocks that have the same elements share them: there, the window has the size 1."""
        offset = sum(map(int.__mul__, start, self.strides))
        offset += sum(low * stride for (low, _high), stride in zip(lead, self.lead_strides, strict=True))
        counts = [high - low if stride else 1 for (low, high), stride in zip(lead, self.lead_strides, strict=True)]
        return Window(offset, (*counts, *sizes), (*self.lead_strides, *strides))

    def note_read(self, lead: Lead, window: Window) -> int:
        """Counts a window of the blocks ``lead`` as read by each of them: how many bytes are that?"""
        count = prod(window.sizes[len(lead) :]) * _blocks(lead) * self.array.dtype.size
        self._counts[self._bytes_read] += count
        if self.memory.footprint is not None:
            self.memory.footprint.window(self.array, window)
        return count

    def check_read(self, window: Window) -> None:
        if self.memory.state != FULL:
            flags = self.array.unwritten(window)
            if flags is not None and bool(flags.any()):
                raise NotBatched

    def write(self, window: Window, lead: Lead, state: State, fill: Callable[[torch.Tensor], object]) -> None:
        array, memory = self.array, self.memory
        number = state.block_number
        if memory.is_global:
            if window.sizes[: len(lead)] != tuple(high - low for low, high in lead) or not _injective(
                window.sizes, list(window.strides)
            ):
                raise NotBatched  # several blocks write one element
            if not isinstance(number, int):
                number = number[tuple(slice(low, high) for low, high in lead)]
            flags = array.foreign(window, number)
            if flags is not None and bool(flags.any()):
                raise NotBatched
        self._counts[self._bytes_written] += window.count * array.dtype.size
        array.prepare_write(window, None)
        fill(array.raw(window))
        array.mark(window, None, number)

    # Whole tiles

    def whole(self, state: State) -> Window:
        """The tiles of all blocks, which must lie in the buffer."""
        start, sizes = self.mins(state), self.extents(state)
        if min(sizes, default=1) < 1 or not self.within(start, sizes):
            raise NotBatched
        return self.window(self.all, start, sizes, self.strides)

    def load(self, state: State) -> torch.Tensor:
        """The tiles' values in the carrier, with the leading dimensions in front (of size 1 where shared)."""
        window = self.whole(state)
        self.check_read(window)
        self.note_read(self.all, window)
        return self.array.dtype.decode(self.array.raw(window))

    def store(self, values: torch.Tensor, state: State) -> None:
        raw = self.array.dtype.encode(values)
        self.write(self.whole(state), self.all, state, lambda place: place.copy_(raw))


def _blocks(lead: Lead) -> int:
    return prod(high - low for low, high in lead)


# T.copy


def copy(call: nodes.Call, scope: Scope) -> Runner:
    if len(call.args) != 2:
        raise NotBatched
    check_options(call, scope, *WITHOUT_EFFECT)
    source, target = (BatchedTile(arg, scope) for arg in call.args)
    if source.memory.storage in scope.program.kernel.safe_values:
        raise NotBatched
    base = source if _level(source.array) >= _level(target.array) else target
    if len(source.looped) != len(target.looped) or source.memory is target.memory:
        raise NotBatched
    for mine, other in zip(base.looped, source.looped, strict=True):
        loop, wide = base.constant_extent(mine), source.constant_extent(other)
        if wide is not None and loop is not None and loop < wide:
            raise NotBatched
    if any(not tile.memory.is_global and tile.strides != row_major(tile.shape) for tile in (source, target)):
        raise NotBatched
    program = scope.program
    program.note_read(source.array)
    program.note_write(target.array)
    same = source.array.dtype.is_like(target.array.dtype)
    convert = cast(source.array.dtype, target.array.dtype)
    decode, encode = source.array.dtype.decode, target.array.dtype.encode
    meter, line = program.meter, scope.line
    source_side, target_side = _Side(source), _Side(target)
    counters = program.counters
    counts, guarded = counters.counts, counters.slot(("guarded",))
    copied = counters.slot(("copies", told(source.memory.scope), told(target.memory.scope)))

    def moved(window: Window, lead: Lead) -> torch.Tensor:
        source.check_read(window)
        counts[copied] += source.note_read(lead, window)
        raw = source.array.raw(window)
        return raw if same else encode(convert(decode(raw)))

    def run(state: State) -> None:
        extents = base.extents(state)
        sizes = [extents[axis] for axis in base.looped]
        if any(size < 1 for size in sizes):
            return
        meter.spend(line, prod(sizes))
        source_in, target_in = source_side.begin(sizes, state), target_side.begin(sizes, state)
        if source_in and target_in:
            full = tuple((0, size) for size in sizes)
            raw = moved(source_side.window(source.all, full), source.all)
            target.write(target_side.window(target.all, full), target.all, state, lambda place: place.copy_(raw))
            return
        for lead in _groups((source_side, target_side)):
            part(lead, sizes, state)

    def part(lead: Lead, sizes: list[int], state: State) -> None:
        """Blocks whose tiles are clipped in the same way; compare tileops.copy."""
        count, blocks = prod(sizes), _blocks(lead)
        written, read = target_side.clip(lead), source_side.clip(lead)
        if written is None:
            counts[guarded] += count * blocks if target.memory.is_global else 0
            return
        inside = written if read is None else _intersect(written, read)
        into, kept = target_side.window(lead, written), prod(high - low for low, high in written)
        if target.memory.is_global:
            counts[guarded] += (count - kept) * blocks
        if read is None or inside is None:
            if source.memory.is_global:
                counts[guarded] += kept * blocks
            target.write(into, lead, state, lambda place: place.zero_())
            return
        found = prod(high - low for low, high in inside)
        raw = moved(source_side.window(lead, inside), lead)
        if inside == written:
            target.write(into, lead, state, lambda place: place.copy_(raw))
            return
        if source.memory.is_global:
            counts[guarded] += (kept - found) * blocks
        within = (..., *(slice(a - b, c - b) for (a, c), (b, _d) in zip(inside, written, strict=True)))

        def place(tile: torch.Tensor) -> None:
            tile.zero_()
            tile[within] = raw

        target.write(into, lead, state, place)

    return run


def _intersect(a: Clip, b: Clip) -> Clip | None:
    both = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return None if any(low >= high for low, high in both) else both


def _groups(sides: "tuple[_Side, _Side]") -> Iterator[Lead]:
    """The blocks, in groups of neighbours that are clipped in the same way."""
    lead = sides[0].tile.lead
    ranges: list[list[tuple[int, int]]] = []
    for axis, extent in enumerate(lead):
        clips = [tuple(side.clip_along(axis, index) for side in sides) for index in range(extent)]
        starts = [index for index in range(extent) if index == 0 or clips[index] != clips[index - 1]]
        ranges.append(list(zip(starts, [*starts[1:], extent], strict=True)))
    yield from product(*ranges)


class _Side:
    """One side of a copy: where its loops lie in its buffer."""

    def __init__(self, tile: BatchedTile) -> None:
        self.tile = tile
        self.strides = tuple(tile.strides[axis] for axis in tile.looped)
        self.start: list[int] = []
        self.full: list[int] = []

    def begin(self, sizes: list[int], state: State) -> bool:
        """Takes this copy's sizes and position: do all blocks' tiles lie in the buffer?"""
        tile = self.tile
        self.start = tile.mins(state)
        self.full = [1] * len(tile.shape)
        for axis, size in zip(tile.looped, sizes, strict=True):
            self.full[axis] = size
        within = tile.within(self.start, self.full)
        if not within and (
            not tile.memory.is_global or any(sum(step != 0 for step in steps) > 1 for steps in tile.steps)
        ):
            raise NotBatched  # a fault, or a dimension along which the clip depends on two block indices
        return within

    def clip_along(self, axis: int, index: int) -> Clip:
        """How the dimensions that depend on a leading axis are clipped in the index-th block along it."""
        tile = self.tile
        return tuple(
            self._clip(dimension, steps[axis] * index) for dimension, steps in enumerate(tile.steps) if steps[axis]
        )

    def clip(self, lead: Lead) -> Clip | None:
        """The part of the loops in which the tiles of these blocks are in the buffer, if there is any."""
        tile = self.tile
        inside = [
            self._clip(dimension, sum(step * low for step, (low, _high) in zip(steps, lead, strict=True)))
            for dimension, steps in enumerate(tile.steps)
        ]
        return None if any(low >= high for low, high in inside) else tuple(inside[axis] for axis in tile.looped)

    def _clip(self, dimension: int, shift: int) -> tuple[int, int]:
        low, size, extent = self.start[dimension] + shift, self.full[dimension], self.tile.shape[dimension]
        first = min(max(-low, 0), size)
        return first, max(min(size, extent - low), first)

    def window(self, lead: Lead, box: Clip) -> Window:
        tile = self.tile
        start = list(self.start)
        for axis, (low, _high) in zip(tile.looped, box, strict=True):
            start[axis] += low
        return tile.window(lead, start, [high - low for low, high in box], self.strides)


# T.fill


def fill(call: nodes.Call, scope: Scope) -> Runner:
    if len(call.args) != 2 or call.annotations:
        raise NotBatched
    target = BatchedTile(call.args[0], scope)
    value = compile_expression(call.args[1], scope)
    if value.varies:
        raise NotBatched
    dtype, meter, line = target.array.dtype, scope.program.meter, scope.line
    convert, evaluate = cast(value.dtype, dtype), value.run
    scope.program.note_write(target.array)
    count = count_operations(call.args[1], scope)

    def run(state: State) -> None:
        if count is not None:
            count(state)
        window = target.whole(state)
        meter.spend(line, prod(window.sizes[len(target.lead) :]))
        raw = dtype.encode(dtype.tensor(convert(evaluate(state))))
        target.write(window, target.all, state, lambda place: place.copy_(raw))

    return run


# T.gemm


def gemm(call: nodes.Call, scope: Scope) -> Runner:
    if len(call.args) != 13 or call.annotations:
        raise NotBatched
    a, b, c = (BatchedTile(arg, scope) for arg in call.args[:3])
    transpose_a, transpose_b = (_constant(arg, (0, 1)) for arg in call.args[3:5])
    stated = [_integer(arg, scope) for arg in call.args[5:8]]
    place = [_integer(arg, scope) for arg in call.args[11:13]]
    _constant(call.args[8], POLICIES)
    _constant(call.args[10], (0,))
    clear = compile_expression(call.args[9], scope)
    known = clear.constant in (None, 0, 1)
    if clear.varies or not known or not (clear.dtype.is_int or clear.dtype.kind == "bool"):
        raise NotBatched
    if min(len(tile.shape) for tile in (a, b, c)) < 2 or any((*c.steps[-2], *c.steps[-1])):
        raise NotBatched
    program = scope.program
    check_places(a.memory, b.memory, c.memory, scope)
    seen, multiply = product_of(a.array.dtype, b.array.dtype, c.array.dtype, scope)
    meter, line, blocks = program.meter, scope.line, program.blocks
    count = program.counters.operations(Kind.GEMM, wider(a.array.dtype, b.array.dtype).name)
    for tile in (a, b):
        program.note_read(tile.array)
    program.note_write(c.array)
    clears, lead = clear.run, program.lead
    in_place = c.array.dtype.name == "float32"

    def operand(tile: BatchedTile, shape: list[int], transposed: int, state: State) -> torch.Tensor:
        values = seen(tile.load(state))
        values = values.reshape(*values.shape[: len(lead)], *shape).expand(*lead, *shape)
        values = values.reshape(blocks, *shape)
        return values.transpose(1, 2) if transposed else values

    def run(state: State) -> None:
        x_sizes, y_sizes, z_sizes = a.extents(state), b.extents(state), c.extents(state)
        m, n = z_sizes[-2:]
        k = x_sizes[-2] if transpose_a else x_sizes[-1]
        shapes = ([k, m] if transpose_a else [m, k], [n, k] if transpose_b else [k, n])
        plain = all(size == 1 for sizes in (x_sizes, y_sizes, z_sizes) for size in sizes[:-2])
        if [x_sizes[-2:], y_sizes[-2:]] != [*shapes] or not plain or min(m, n, k) < 1:
            raise NotBatched
        if _values(stated, state) != [m, n, k] or _values(place, state) != c.mins(state)[-2:]:
            raise NotBatched
        meter.spend(line, m * n * k // GEMM_WORK)
        meter.room((m * k + k * n + 2 * m * n) * 8, line)
        count(2 * m * n * k)
        x, y = operand(a, shapes[0], transpose_a, state), operand(b, shapes[1], transpose_b, state)
        window = c.whole(state)
        if clears(state):
            product = multiply(x, y, None)
            c.write(window, c.all, state, lambda tile: tile.copy_(c.array.dtype.encode(product.view(tile.shape))))
            return
        c.check_read(window)
        c.note_read(c.all, window)

        def accumulate(tile: torch.Tensor) -> None:
            if in_place and tile.is_contiguous():
                tile.view(blocks, m, n).baddbmm_(x, y)
                return
            before = c.array.dtype.decode(tile)
            total = multiply(x, y, before.reshape(blocks, m, n))
            tile.copy_(c.array.dtype.encode(total.view(tile.shape)))

        c.write(window, c.all, state, accumulate)

    return run


# T.reduce_*


def reduce(call: nodes.Call, scope: Scope) -> Runner:
    reduction = read_reduction(call, scope)
    source, target = BatchedTile(call.args[0], scope), BatchedTile(call.args[1], scope)
    program, line, dim = scope.program, scope.line, reduction.dim
    meter, lead = program.meter, program.lead
    count = program.counters.operations(Kind.REDUCE, reduction.dtype.name)
    program.note_read(source.array)
    program.note_write(target.array)

    def run(state: State) -> None:
        sizes, found = source.extents(state), target.extents(state)
        kept = [size for axis, size in enumerate(sizes) if axis != dim]
        if min(sizes) < 1 or found != (kept or [1]):
            raise NotBatched
        elements = prod(sizes)
        meter.spend(line, elements)
        meter.room(elements * 24, line)
        count(elements - (prod(found) if reduction.clear else 0))
        values = source.load(state)
        result = reduction.along(values, dim + len(lead))
        result = result.reshape(*values.shape[: len(lead)], *found)
        if not reduction.clear:
            result = reduction.join(target.load(state), result)
        target.store(result, state)

    return run


#: Operator -> what compiles a call of it for several blocks.
BATCHED_TILE_OPS: dict[str, Callable[[nodes.Call, Scope], Runner]] = {
    "tl.tileop.copy": copy,
    "tl.tileop.fill": fill,
    "tl.tileop.gemm": gemm,
    "tl.tileop.reduce": reduce,
}

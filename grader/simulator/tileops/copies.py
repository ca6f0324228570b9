"""T.copy."""

from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import cast
from grader.simulator.expressions import Scope, State
from grader.simulator.faults import FaultKind
from grader.simulator.memory import Array, Window
from grader.simulator.tileops.arguments import check_count
from grader.simulator.tileops.tile import Runner, Tile, clip, first_outside


def _level(array: Array) -> int:
    return {"local.fragment": 2, "local": 2, "shared": 1, "shared.dyn": 1}.get(array.memory.scope, 0)


def copy(call: nodes.Call, scope: Scope) -> Runner:
    """Copies a tile; of global buffers, reads out of bounds give 0 and writes are dropped, as TileLang does.

    The loops are those of the side that is closer to the registers; the other side's extents only tell which
    of its dimensions are looped over.
    """
    check_count(call, scope, 2)
    source, target = (Tile(arg, call, scope) for arg in call.args)
    base = source if _level(source.array) >= _level(target.array) else target
    if len(source.looped) != len(target.looped):
        raise scope.unsupported(_("a copy between tiles of different shapes"))
    for mine, other in zip(base.looped, source.looped, strict=True):
        loop, wide = base.constant_extent(mine), source.constant_extent(other)
        if wide is not None and loop is not None and loop < wide:
            raise scope.unsupported(_("a copy between tiles of different shapes"))
    scope.program.note_read(source.array)
    scope.program.note_write(target.array)
    same = source.array.dtype.held == target.array.dtype.held
    convert = cast(source.array.dtype, target.array.dtype)
    meter, counters, line = scope.program.meter, scope.program.counters, scope.line
    moved, guarded = counters.copies(source.memory.scope, target.memory.scope), counters.guards()
    size = source.array.dtype.size
    source_side, target_side = _Side(source), _Side(target)
    aliased = source.memory is target.memory
    decode, encode = source.array.dtype.decode, target.array.dtype.encode

    def run(state: State) -> None:
        extents = base.extents(state)
        sizes = [extents[axis] for axis in base.looped]
        count = prod(sizes)
        if any(size < 1 for size in sizes):
            return
        meter.spend(line, count)
        written = target_side.clip(sizes, state, FaultKind.OUT_OF_BOUNDS_WRITE)
        read = source_side.clip(sizes, state, FaultKind.OUT_OF_BOUNDS_READ)
        if written is None:
            guarded(count if target.memory.is_global else 0)
            return
        inside = written if read is None else _intersect(written, read)
        into = target_side.window(written)
        if target.memory.is_global:
            guarded(count - into.count)
        if read is None or inside is None:
            if source.memory.is_global:
                guarded(into.count)
            target.write(into, state, lambda raw: raw.zero_())
            return
        out = source_side.window(inside)
        source.check_read(out, state)
        source.note_read(out)
        moved(out.count * size)
        raw = source.array.raw(out)
        if aliased:
            raw = raw.clone()
            if out != target_side.window(inside) and _overlap(out, target_side.window(inside)):
                target.fault(FaultKind.RACE, state, out.count, lambda: tuple(target.mins(state)))
        if not same:
            raw = encode(convert(decode(raw)))
        if inside == written:
            target.write(into, state, lambda place: place.copy_(raw))
            return
        if source.memory.is_global:
            guarded(into.count - out.count)
        part = tuple(slice(a - b, c - b) for (a, c), (b, _d) in zip(inside, written, strict=True))

        def place(tile: torch.Tensor) -> None:
            tile.zero_()
            tile[part] = raw

        target.write(into, state, place)

    return run


Box = tuple[tuple[int, int], ...]  # from and to of each loop of a copy


def _intersect(a: Box, b: Box) -> Box | None:
    both = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return None if any(low >= high for low, high in both) else both


def _overlap(a: Window, b: Window) -> bool:
    return not (a.at(a.count - 1) < b.offset or b.at(b.count - 1) < a.offset)


class _Side:
    """One side of a copy: where its loops lie in its buffer."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self.strides = tuple(tile.array.strides[axis] for axis in tile.looped)
        self.start: list[int] = []

    def clip(self, sizes: list[int], state: State, kind: FaultKind) -> Box | None:
        """The part of the loops in which this side is in bounds, or None; it is a fault outside global memory."""
        tile = self.tile
        shape, self.start = tile.array.shape, tile.mins(state)
        full = [1] * len(shape)
        for axis, size in zip(tile.looped, sizes, strict=True):
            full[axis] = size
        inside = [clip(low, size, extent) for low, size, extent in zip(self.start, full, shape, strict=True)]
        counts = [high - low for low, high in inside]
        if counts != full and not tile.memory.is_global:
            start = self.start
            tile.fault(kind, state, prod(full) - prod(counts), lambda: first_outside(start, full, shape))
        if 0 in counts:
            return None
        return tuple(inside[axis] for axis in tile.looped)

    def window(self, box: Box) -> Window:
        offset = sum(map(int.__mul__, self.start, self.tile.array.strides))
        offset += sum(low * stride for (low, _high), stride in zip(box, self.strides, strict=True))
        return Window(offset, tuple(high - low for low, high in box), self.strides)

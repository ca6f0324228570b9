"""T.copy and T.transpose."""

from collections.abc import Sequence
from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import cast
from grader.simulator.expressions import Scope, State, compile_expression, scalar
from grader.simulator.faults import FaultKind
from grader.simulator.memory import Array, Window, row_major
from grader.simulator.tileops.arguments import check_count, check_options
from grader.simulator.tileops.tile import Runner, Tile, clip, first_outside, share_elements

#: Options of a copy that change how fast it is, not what it does.
WITHOUT_EFFECT = ("coalesced_width", "disable_tma", "eviction_policy", "prefer_instruction")
SHARED = (nodes.SHARED, nodes.SHARED_DYNAMIC)


def _level(array: Array) -> int:
    return {"local.fragment": 2, "local": 2, "shared": 1, "shared.dyn": 1}.get(array.memory.scope, 0)


def copy(call: nodes.Call, scope: Scope) -> Runner:
    """Copies a tile; of global buffers, reads out of bounds give 0 and writes are dropped, as TileLang does.

    The loops are those of the side that is closer to the registers; the other side's extents only tell which
    of its dimensions are looped over.
    """
    check_count(call, scope, 2)
    check_options(call, scope, *WITHOUT_EFFECT)
    source, target = (Tile(arg, call, scope) for arg in call.args)
    base = source if _level(source.array) >= _level(target.array) else target
    if len(source.looped) != len(target.looped):
        raise scope.unsupported(_("a copy between tiles of different shapes"))
    for mine, other in zip(base.looped, source.looped, strict=True):
        loop, wide = base.constant_extent(mine), source.constant_extent(other)
        if wide is not None and loop is not None and loop < wide:
            raise scope.unsupported(_("a copy between tiles of different shapes"))
    return _move(Side(source, source.looped), Side(target, target.looped), base, call, scope)


def transpose(call: nodes.Call, scope: Scope) -> Runner:
    """Copies a tile with its last two dimensions swapped; the loops are those of the source."""
    check_count(call, scope, 2)
    check_options(call, scope)
    source, target = (Tile(arg, call, scope) for arg in call.args)
    rank = len(source.array.shape)
    if rank < 2 or len(target.array.shape) != rank:
        raise scope.unsupported(_("a transpose between tiles of different ranks"))
    into = [*range(rank - 2), rank - 1, rank - 2]  # the target's dimension of each of the source's
    if any(source.constant_extent(axis) != target.constant_extent(into[axis]) for axis in range(rank)):
        raise scope.unsupported(_("a transpose between tiles whose shapes don't fit"))
    return _move(
        Side(source, source.looped), Side(target, [into[axis] for axis in source.looped]), source, call, scope
    )


def _move(source_side: "Side", target_side: "Side", base: Tile, call: nodes.Call, scope: Scope) -> Runner:
    """Copies along the loops of ``base``, which both sides follow along dimensions of their own."""
    source, target = source_side.tile, target_side.tile
    program, meter, line = scope.program, scope.program.meter, scope.line
    for side in (source, target):
        if not side.memory.is_global and side.array.strides != row_major(side.array.shape):
            raise scope.unsupported(
                _("a copy of the strided view '{name}', which TileLang copies as if it had no strides").format(
                    name=side.array.buffer.name
                )
            )
    program.note_read(source.array)
    program.note_write(target.array)
    same = source.array.dtype.is_like(target.array.dtype)
    convert = cast(source.array.dtype, target.array.dtype)
    moved = program.counters.copies(source.memory.scope, target.memory.scope)
    guarded, size = program.counters.guards(), source.array.dtype.size
    aliased = source.memory is target.memory
    decode, encode = source.array.dtype.decode, target.array.dtype.encode
    pad = _Padding(source, target, call, scope)

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
        inside = written if read is None else intersect(written, read)
        into = target_side.window(written)
        if target.memory.is_global:
            guarded(count - into.count)
        if read is None or inside is None:
            if source.memory.is_global:
                guarded(into.count)
            padding = pad(state)
            target.write(into, state, lambda raw: raw.copy_(padding))
            return
        out = source_side.window(inside)
        source.check_read(out, state)
        source.note_read(out)
        moved(out.count * size)
        raw = source.array.raw(out)
        if aliased:
            raw = raw.clone()
            if share_elements(source.array, out, target.array, target_side.window(inside)):
                target.fault(FaultKind.RACE, state, out.count, lambda: tuple(target.mins(state)))
        if not same:
            raw = encode(convert(decode(raw)))
        if inside == written:
            target.write(into, state, lambda place: place.copy_(raw))
            return
        if source.memory.is_global:
            guarded(into.count - out.count)
        part = tuple(slice(a - b, c - b) for (a, c), (b, _d) in zip(inside, written, strict=True))
        padding = pad(state)

        def place(tile: torch.Tensor) -> None:
            tile.copy_(padding)
            tile[part] = raw

        target.write(into, state, place)

    return run


class _Padding:
    """What a copy writes for elements that the source doesn't have: 0, or what T.annotate_safe_value says.

    The copy engine (TMA) of newer cards fills in zeros whatever is annotated. TileLang uses it for copies to
    shared memory in pipelined loops, or if asked to: there, another value depends on the card.
    """

    def __init__(self, source: Tile, target: Tile, call: nodes.Call, scope: Scope) -> None:
        self.scope, self.source = scope, source
        dtype = target.array.dtype
        self.zero = dtype.encode(dtype.tensor(dtype.scalar(0)))
        node = scope.program.kernel.safe_values.get(source.memory.storage)
        self.code = None if node is None else scalar(compile_expression(node, scope), scope, _("a safe value"))
        self.line = scope.line
        if self.code is not None:
            self.convert, self.dtype = cast(self.code.dtype, dtype), dtype
        asked = call.annotations.get("prefer_instruction") == "tma"
        self.engine = (
            source.memory.is_global
            and target.memory.scope in SHARED
            and source.array.dtype == dtype
            and not call.annotations.get("disable_tma")
            and (asked or call in scope.program.pipelined)
        )

    def __call__(self, state: State) -> torch.Tensor:
        if self.code is None:
            return self.zero
        value = self.dtype.encode(self.dtype.tensor(self.convert(self.code.run(state))))
        if self.engine and not torch.equal(value, self.zero):
            scope = self.scope
            scope.line = self.line
            raise scope.unsupported(
                _(
                    "a copy that reads out of bounds of '{name}', whose safe value is not 0, in a pipelined loop: "
                    "some cards fill in 0 there, but none does with disable_tma=True"
                ).format(name=self.source.node.buffer.name)
            )
        return value


Box = tuple[tuple[int, int], ...]  # from and to of each loop of a copy


def intersect(a: Box, b: Box) -> Box | None:
    both = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return None if any(low >= high for low, high in both) else both


class Side:
    """One side of a copy: where its loops lie in its buffer. ``axes`` are the dimensions that they run along."""

    def __init__(self, tile: Tile, axes: Sequence[int]) -> None:
        self.tile = tile
        self.axes = axes
        self.strides = tuple(tile.array.strides[axis] for axis in axes)
        self.start: list[int] = []

    def clip(self, sizes: list[int], state: State, kind: FaultKind) -> Box | None:
        """The part of the loops in which this side is in bounds, or None; it is a fault outside global memory."""
        tile = self.tile
        shape, self.start = tile.array.shape, tile.mins(state)
        full = [1] * len(shape)
        for axis, size in zip(self.axes, sizes, strict=True):
            full[axis] = size
        inside = [clip(low, size, extent) for low, size, extent in zip(self.start, full, shape, strict=True)]
        counts = [high - low for low, high in inside]
        if counts != full and not tile.memory.is_global:
            start = self.start
            tile.fault(kind, state, prod(full) - prod(counts), lambda: first_outside(start, full, shape))
        if 0 in counts:
            return None
        return tuple(inside[axis] for axis in self.axes)

    def window(self, box: Box) -> Window:
        offset = sum(map(int.__mul__, self.start, self.tile.array.strides))
        offset += sum(low * stride for (low, _high), stride in zip(box, self.strides, strict=True))
        return Window(offset, tuple(high - low for low, high in box), self.strides)

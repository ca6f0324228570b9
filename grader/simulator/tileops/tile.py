"""Tiles: regions of buffers. Their extents are not clipped, so a tile may hang over the edge of its buffer."""

from collections.abc import Callable
from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.expressions import Scope, State, integer
from grader.simulator.faults import FaultKind
from grader.simulator.memory import Array, Memory, Window
from grader.simulator.tileops.arguments import operation

Runner = Callable[[State], None]


def region(node: nodes.Expr, call: nodes.Call, scope: Scope) -> nodes.Region:
    if not isinstance(node, nodes.Region):
        raise scope.unsupported(_("'{op}' of something that is no tile").format(op=operation(call)))
    return node


def covers(node: nodes.Region) -> bool:
    """Is the tile surely its whole buffer?"""

    def same(a: nodes.Expr, b: nodes.Expr) -> bool:
        return a is b or (isinstance(a, nodes.Const) and isinstance(b, nodes.Const) and a.value == b.value)

    starts = all(isinstance(low, nodes.Const) and low.value == 0 for low in node.mins)
    return starts and all(map(same, node.extents, node.buffer.shape))


class Tile:
    """A region argument, compiled."""

    def __init__(self, node: nodes.Expr, call: nodes.Call, scope: Scope) -> None:
        self.node = node = region(node, call, scope)
        self.call = call
        self.program = scope.program
        self.line = scope.line
        self.array: Array = scope.program.array(node.buffer, scope)
        if len(node.mins) != len(self.array.shape) or len(node.extents) != len(self.array.shape):
            raise scope.unsupported(_("a tile of another rank than its buffer"))
        self._bytes_read = scope.program.counters.bytes_read(node.buffer.storage)
        self._bytes_written = scope.program.counters.bytes_written(node.buffer.storage)
        self._mins = [integer(low, scope, _("a tile's position")) for low in node.mins]
        self._extents = [integer(extent, scope, _("a tile's extent")) for extent in node.extents]
        #: Dimensions that a copy loops over: those whose extent isn't the constant 1.
        self.looped = [axis for axis, extent in enumerate(self._extents) if extent.constant != 1]

    @property
    def memory(self) -> Memory:
        return self.array.memory

    def constant_extent(self, axis: int) -> int | None:
        return self._extents[axis].constant

    def mins(self, state: State) -> list[int]:
        return [code.run(state) for code in self._mins]

    def extents(self, state: State) -> list[int]:
        return [code.run(state) for code in self._extents]

    def fault(self, kind: FaultKind, state: State, count: int, index: Callable[[], tuple[int, ...]]) -> None:
        self.program.fault(kind, self.node.buffer, self.line, state, self.node, count, index)

    def window(self, start: list[int], sizes: list[int]) -> Window:
        strides = self.array.strides
        return Window(sum(map(int.__mul__, start, strides)), tuple(sizes), strides)

    # Checks

    def check_read(self, window: Window, state: State) -> None:
        array = self.array
        self._flag(FaultKind.UNINITIALISED_READ, array.unwritten(window), window, state)
        self._flag(FaultKind.RACE, array.foreign(window, state.block_number), window, state)
        array.note_reader(window, None, state.block_number)
        if self.program.observer is not None:
            self.program.observer.read(array, window, state)

    def _flag(self, kind: FaultKind, flags: torch.Tensor | None, window: Window, state: State) -> None:
        if flags is None or not bool(flags.any()):
            return
        array = self.array

        def index() -> tuple[int, ...]:
            return array.position(window.at(int(flags.flatten().nonzero()[0])))

        self.fault(kind, state, int(flags.sum()), index)

    def flag_at(self, kind: FaultKind, flags: torch.Tensor | None, flat: torch.Tensor, state: State) -> None:
        """The fault, if any element at these flat positions is flagged."""
        if flags is not None and bool(flags.any()):
            first = int(flat[flags][0])
            self.fault(kind, state, int(flags.sum()), lambda: self.array.position(first))

    def note_read(self, where: Window | torch.Tensor) -> None:
        """Counts the elements of a window, or at flat positions, as read, once."""
        window = isinstance(where, Window)
        count, footprint = where.count if window else where.numel(), self.memory.footprint
        self.program.counters.counts[self._bytes_read] += count * self.array.dtype.size
        if footprint is not None and count:
            (footprint.window if window else footprint.elements)(self.array, where)

    def write(self, window: Window, state: State, fill: Callable[[torch.Tensor], object]) -> None:
        """Lets ``fill`` write the window's raw elements, with all that has to be noted and counted."""
        array = self.array
        if self.memory.is_global:
            self._flag(FaultKind.RACE, array.foreign(window, state.block_number), window, state)
            self._flag(FaultKind.RACE, array.read_elsewhere(window, state.block_number), window, state)
        self.program.counters.counts[self._bytes_written] += window.count * array.dtype.size
        array.prepare_write(window, None)
        fill(array.raw(window))
        array.mark(window, None, state.block_number)
        if self.program.observer is not None:
            self.program.observer.wrote(array, window, None, state)

    def update(self, window: Window, state: State, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Lets ``change`` make the window's new values of its old ones (in the carrier), atomically."""
        array, memory = self.array, self.memory
        self._flag(FaultKind.UNINITIALISED_READ, array.unwritten(window), window, state)
        self._flag(FaultKind.RACE, array.foreign(window, state.block_number, atomic=True), window, state)
        self._flag(FaultKind.RACE, array.read_elsewhere(window, state.block_number), window, state)
        memory.materialise()
        if self.program.observer is not None:
            self.program.observer.read(array, window, state)
        self.note_read(window)
        self.program.counters.counts[self._bytes_written] += window.count * array.dtype.size
        raw = array.raw(window)
        raw.copy_(array.dtype.encode(change(array.dtype.decode(raw))))
        array.mark(window, None, state.block_number, atomic=True)
        if self.program.observer is not None:
            self.program.observer.wrote(array, window, None, state)

    # Whole tiles of operations other than copies: out of bounds is a fault everywhere

    def box(self, state: State, kind: FaultKind) -> tuple[list[int], list[int], list[int], bool]:
        """Start and sizes of the part in bounds, where it starts in the tile, and whether that is all of it."""
        start, sizes = self.mins(state), self.extents(state)
        if any(size < 1 for size in sizes):
            start = sizes = [0] * len(sizes)
            return start, sizes, start, True
        inside = [
            clip(low, size, extent) for low, size, extent in zip(start, sizes, self.array.shape, strict=True)
        ]
        counts = [high - low for low, high in inside]
        if counts == sizes:
            return start, sizes, [0] * len(sizes), True
        missing = prod(sizes) - prod(counts)
        self.fault(kind, state, missing, lambda: first_outside(start, sizes, self.array.shape))
        return (
            [low + b for (b, _e), low in zip(inside, start, strict=True)],
            counts,
            [b for b, _e in inside],
            False,
        )

    def load(self, state: State) -> torch.Tensor:
        """The tile's values in the carrier; what lies out of bounds is NaN, or 0 for integers."""
        start, sizes, offset, whole = self.box(state, FaultKind.OUT_OF_BOUNDS_READ)
        window = self.window(start, sizes)
        self.check_read(window, state)
        self.note_read(window)
        dtype = self.array.dtype
        inside = dtype.decode(self.array.raw(window)) if window.count or whole else None
        if whole:
            return inside
        full = self.extents(state)
        self.program.meter.room(prod(full) * 8, self.line)
        values = torch.full(full, float("nan") if dtype.kind == "float" else 0, dtype=dtype.carrier)
        if inside is not None:
            values[tuple(slice(b, b + size) for b, size in zip(offset, sizes, strict=True))] = inside
        return values

    def store(self, values: torch.Tensor, state: State) -> None:
        """Writes values of the tile's shape, in the carrier; what lies out of bounds is dropped."""
        start, sizes, offset, whole = self.box(state, FaultKind.OUT_OF_BOUNDS_WRITE)
        window = self.window(start, sizes)
        if not window.count:
            return
        if not whole:
            values = values[tuple(slice(b, b + size) for b, size in zip(offset, sizes, strict=True))]
        raw = self.array.dtype.encode(values)
        self.write(window, state, lambda target: target.copy_(raw))


def clip(low: int, size: int, extent: int) -> tuple[int, int]:
    """Of ``size`` elements from ``low``, which ones lie in a dimension of ``extent`` elements."""
    first = min(max(-low, 0), size)
    return first, max(min(size, extent - low), first)


def first_outside(start: list[int], sizes: list[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first element of a tile, in its order, that is out of bounds; some is."""
    index = list(start)
    if all(0 <= low < extent for low, extent in zip(start, shape, strict=True)):
        # The first to leave is along the innermost dimension that does.
        for axis in reversed(range(len(shape))):
            if start[axis] + sizes[axis] > shape[axis]:
                index[axis] = shape[axis]
                break
    return tuple(index)


def share_elements(a: Array, window: Window, b: Array, other: Window) -> bool:
    """Do two windows of one memory meet in an element, other than as the same elements in the same order?"""
    if a.dtype.size == b.dtype.size and window == other:
        return False
    first, second = (_granules(array, place) for array, place in ((a, window), (b, other)))
    return bool(torch.isin(first, second).any())


def _granules(array: Array, window: Window) -> torch.Tensor:
    position = torch.tensor(window.offset)
    for size, stride in zip(window.sizes, window.strides, strict=True):
        position = position.unsqueeze(-1) + torch.arange(size) * stride
    return (position.unsqueeze(-1) * array.factor + torch.arange(array.factor)).flatten()

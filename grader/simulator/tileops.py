"""The tile operations, one function each: ``TILE_OPS`` at the end is the one place to add one.

A function compiles a Call into a closure over a State. Tiles are regions of buffers; their extents are not
clipped, so a tile may hang over the edge of its buffer.
"""

from collections.abc import Callable
from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import DTYPES, DType, cast
from grader.simulator.expressions import Scope, State, compile_expression, integer, scalar, truth
from grader.simulator.faults import FaultKind
from grader.simulator.memory import Array, Memory, Window

Runner = Callable[[State], None]


class Tile:
    """A region argument, compiled."""

    def __init__(self, node: nodes.Expr, call: nodes.Call, scope: Scope) -> None:
        if not isinstance(node, nodes.Region):
            raise scope.unsupported(_("'{op}' of something that is no tile").format(op=_name(call)))
        self.node = node
        self.call = call
        self.program = scope.program
        self.line = scope.line
        self.array: Array = scope.program.array(node.buffer, scope)
        if len(node.mins) != len(self.array.shape) or len(node.extents) != len(self.array.shape):
            raise scope.unsupported(_("a tile of another rank than its buffer"))
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

    def note_read(self, count: int) -> None:
        if self.memory.is_global:
            self.memory.bytes_read += count * self.array.dtype.size

    def write(self, window: Window, state: State, fill: Callable[[torch.Tensor], object]) -> None:
        """Lets ``fill`` write the window's raw elements, with all that has to be noted."""
        array = self.array
        if self.memory.is_global:
            self._flag(FaultKind.RACE, array.foreign(window, state.block_number), window, state)
            self._flag(FaultKind.RACE, array.read_elsewhere(window, state.block_number), window, state)
            self.memory.bytes_written += window.count * array.dtype.size
        array.prepare_write(window, None)
        fill(array.raw(window))
        array.mark(window, None, state.block_number)
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
            _clip(low, size, extent) for low, size, extent in zip(start, sizes, self.array.shape, strict=True)
        ]
        counts = [high - low for low, high in inside]
        if counts == sizes:
            return start, sizes, [0] * len(sizes), True
        missing = prod(sizes) - prod(counts)
        self.fault(kind, state, missing, lambda: _first_outside(start, sizes, self.array.shape))
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
        self.note_read(window.count)
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


def _name(call: nodes.Call) -> str:
    return "T." + call.op.rpartition(".")[2]


def _clip(low: int, size: int, extent: int) -> tuple[int, int]:
    """Of ``size`` elements from ``low``, which ones lie in a dimension of ``extent`` elements."""
    first = min(max(-low, 0), size)
    return first, max(min(size, extent - low), first)


def _first_outside(start: list[int], sizes: list[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first element of a tile, in its order, that is out of bounds; some is."""
    index = list(start)
    if all(0 <= low < extent for low, extent in zip(start, shape, strict=True)):
        # The first to leave is along the innermost dimension that does.
        for axis in reversed(range(len(shape))):
            if start[axis] + sizes[axis] > shape[axis]:
                index[axis] = shape[axis]
                break
    return tuple(index)


def _arguments(call: nodes.Call, scope: Scope, *counts: int) -> None:
    if len(call.args) not in counts:
        raise scope.unsupported(_("'{op}' with {count} arguments").format(op=_name(call), count=len(call.args)))


# T.copy


def _level(array: Array) -> int:
    return {"local.fragment": 2, "local": 2, "shared": 1, "shared.dyn": 1}.get(array.memory.scope, 0)


def copy(call: nodes.Call, scope: Scope) -> Runner:
    """Copies a tile; of global buffers, reads out of bounds give 0 and writes are dropped, as TileLang does.

    The loops are those of the side that is closer to the registers; the other side's extents only tell which
    of its dimensions are looped over.
    """
    _arguments(call, scope, 2)
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
    meter, program, line = scope.program.meter, scope.program, scope.line
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
            program.guarded += count if target.memory.is_global else 0
            return
        inside = written if read is None else _intersect(written, read)
        into = target_side.window(written)
        if target.memory.is_global:
            program.guarded += count - into.count
        if read is None or inside is None:
            if source.memory.is_global:
                program.guarded += into.count
            target.write(into, state, lambda raw: raw.zero_())
            return
        out = source_side.window(inside)
        source.check_read(out, state)
        source.note_read(out.count)
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
            program.guarded += into.count - out.count
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
        inside = [_clip(low, size, extent) for low, size, extent in zip(self.start, full, shape, strict=True)]
        counts = [high - low for low, high in inside]
        if counts != full and not tile.memory.is_global:
            start = self.start
            tile.fault(kind, state, prod(full) - prod(counts), lambda: _first_outside(start, full, shape))
        if 0 in counts:
            return None
        return tuple(inside[axis] for axis in tile.looped)

    def window(self, box: Box) -> Window:
        offset = sum(map(int.__mul__, self.start, self.tile.array.strides))
        offset += sum(low * stride for (low, _high), stride in zip(box, self.strides, strict=True))
        return Window(offset, tuple(high - low for low, high in box), self.strides)


# T.fill


def fill(call: nodes.Call, scope: Scope) -> Runner:
    _arguments(call, scope, 2)
    target = Tile(call.args[0], call, scope)
    value = scalar(compile_expression(call.args[1], scope), scope, _("a fill value"))
    dtype = target.array.dtype
    convert, evaluate, meter, line = cast(value.dtype, dtype), value.run, scope.program.meter, scope.line
    scope.program.note_write(target.array)

    def run(state: State) -> None:
        start, sizes, _offset, _whole = target.box(state, FaultKind.OUT_OF_BOUNDS_WRITE)
        window = target.window(start, sizes)
        meter.spend(line, window.count)
        raw = dtype.encode(dtype.tensor(convert(evaluate(state))))
        if window.count:
            target.write(window, state, lambda place: place.copy_(raw))

    return run


# T.gemm

#: Operations of a matrix product that cost as much as one element of elementwise work.
GEMM_WORK = 32
POLICIES = (0, 1, 2)  # how warps share the work: square, by rows, by columns
HALF_STEP = 16  # depth of the tensor core's product, after which a half accumulator is rounded


def gemm(call: nodes.Call, scope: Scope) -> Runner:
    """C += A B, of exactly converted operands, in C's dtype. Arguments: see TileLang's gemm_op.py."""
    _arguments(call, scope, 13)
    a, b, c = (Tile(arg, call, scope) for arg in call.args[:3])
    transpose_a, transpose_b = (_flag(arg, call, scope) for arg in call.args[3:5])
    stated = [integer(arg, scope, _("a size of a matrix product")).run for arg in call.args[5:8]]
    place = [integer(arg, scope, _("a tile's position")).run for arg in call.args[11:13]]
    policy, barrier = _constant(call.args[8], call, scope), _constant(call.args[10], call, scope)
    if policy not in POLICIES or barrier:
        raise scope.unsupported(_("'{op}' with these options").format(op=_name(call)))
    clear = truth(call.args[9], scope) if _is_truth(call.args[9]) else integer(call.args[9], scope, "clear_accum")
    scalar(clear, scope, "clear_accum")
    if clear.constant is not None and clear.constant not in (0, 1):
        raise scope.unsupported(_("'{op}' whose options are neither true nor false").format(op=_name(call)))
    for tile in (a, b, c):
        if len(tile.array.shape) < 2:
            raise scope.unsupported(_("a matrix product of tiles of one dimension"))
    work, product = _product(a.array.dtype, b.array.dtype, c.array.dtype, scope)
    meter, line, operations = scope.program.meter, scope.line, scope.program.operations
    for tile in (a, b):
        scope.program.note_read(tile.array)
    scope.program.note_write(c.array)
    clears = clear.run

    def run(state: State) -> None:
        x_sizes, y_sizes, z_sizes = a.extents(state), b.extents(state), c.extents(state)
        m, n = z_sizes[-2:]
        k = x_sizes[-2] if transpose_a else x_sizes[-1]
        shapes = ([k, m] if transpose_a else [m, k], [n, k] if transpose_b else [k, n])
        plain = all(size == 1 for sizes in (x_sizes, y_sizes, z_sizes) for size in sizes[:-2])
        if [x_sizes[-2:], y_sizes[-2:]] != [*shapes] or not plain or min(m, n, k) < 1:
            raise scope.unsupported(_("a matrix product of tiles whose shapes don't fit"))
        if [size(state) for size in stated] != [m, n, k]:
            raise scope.unsupported(_("a matrix product whose sizes M, N, K are not those of its tiles"))
        if [low(state) for low in place] != c.mins(state)[-2:]:
            raise scope.unsupported(_("a matrix product whose result's position is not that of its tile"))
        meter.spend(line, m * n * k // GEMM_WORK)
        meter.room((m * k + k * n + 2 * m * n) * 8, line)
        operations["gemm"] = operations.get("gemm", 0) + 2 * m * n * k
        x = a.load(state).reshape(shapes[0]).to(work)
        y = b.load(state).reshape(shapes[1]).to(work)
        x, y = x.t() if transpose_a else x, y.t() if transpose_b else y
        before = None if clears(state) else c.load(state).reshape(m, n)
        result = product(x, y, before)
        c.store(result.reshape(z_sizes), state)

    return run


def _is_truth(node: nodes.Expr) -> bool:
    return node.dtype == "bool"


def _constant(node: nodes.Expr, call: nodes.Call, scope: Scope) -> int:
    dtype = DTYPES.get(node.dtype)
    known = isinstance(node, nodes.Const) and dtype is not None and dtype.kind != "float"
    if not known or not dtype.holds(node.value):
        raise scope.unsupported(_("'{op}' whose options are no integer constants").format(op=_name(call)))
    return int(node.value)


def _flag(node: nodes.Expr, call: nodes.Call, scope: Scope) -> bool:
    value = _constant(node, call, scope)
    if value not in (0, 1):
        raise scope.unsupported(_("'{op}' whose options are neither true nor false").format(op=_name(call)))
    return bool(value)


Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def _product(a: DType, b: DType, c: DType, scope: Scope) -> tuple[torch.dtype, Product]:
    """The dtype to multiply in, and the product with accumulation into c's carrier (None: from zero)."""
    floats = a.kind == b.kind == c.kind == "float"
    integers = a.is_int and b.is_int and c.name in ("int32", "int64") and max(a.size, b.size) == 1
    if integers:

        def exact(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor:
            total = (x @ y).to(torch.int64)  # doubles hold such sums exactly
            return (total if z is None else total + z).to(c.carrier)

        return torch.float64, exact
    if not floats or c.size < 2:
        raise scope.unsupported(_("a matrix product of {a} and {b} into {c}").format(a=a.name, b=b.name, c=c.name))
    if c.size >= 4:
        work = torch.float64 if "float64" in (a.name, b.name, c.name) else torch.float32

        def wide(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor:
            return (x @ y if z is None else torch.addmm(z.to(work), x, y)).to(c.carrier)

        return work, wide

    def half(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor:
        total = torch.zeros(x.shape[0], y.shape[1], dtype=c.carrier) if z is None else z
        for k in range(0, x.shape[1], HALF_STEP):
            part = slice(k, k + HALF_STEP)
            total = torch.addmm(total.to(torch.float32), x[:, part], y[part]).to(c.carrier)
        return total

    return torch.float32, half


# T.reduce_*


def _fold(combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A reduction in pairs, each step in the values' dtype: half sums are rounded as they are on the card."""

    def reduce(values: torch.Tensor, dim: int) -> torch.Tensor:
        while values.shape[dim] > 1:
            half = values.shape[dim] // 2
            low, high, rest = values.split((half, half, values.shape[dim] - 2 * half), dim)
            values = torch.cat((combine(low, high), rest), dim) if rest.shape[dim] else combine(low, high)
        return values

    return reduce


def _sum(values: torch.Tensor, dim: int) -> torch.Tensor:
    if values.dtype in (torch.float16, torch.bfloat16):
        return _fold(torch.add)(values, dim)
    return values.sum(dim, keepdim=True).to(values.dtype)


def _extreme(
    plain: Callable[..., torch.Tensor], combine: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    def reduce(values: torch.Tensor, dim: int) -> torch.Tensor:
        found = plain(values, dim, keepdim=True)
        # A NaN loses against a number on the card, where torch's reductions keep it.
        if values.is_floating_point() and bool(found.isnan().any()):
            found = _fold(combine)(values, dim)
        return found

    return reduce


def _combine_max(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.fmax(x, y) if x.is_floating_point() else torch.maximum(x, y)


def _combine_min(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.fmin(x, y) if x.is_floating_point() else torch.minimum(x, y)


#: Kind -> what is done to each value, the reduction along a dimension (kept), how it joins what was there.
REDUCTIONS: dict[str, tuple[Callable[..., torch.Tensor] | None, Callable[..., torch.Tensor], Callable]] = {
    "sum": (None, _sum, torch.add),
    "abssum": (torch.abs, _sum, torch.add),
    "max": (None, _extreme(torch.amax, torch.fmax), _combine_max),
    "absmax": (torch.abs, _extreme(torch.amax, torch.fmax), _combine_max),
    "min": (None, _extreme(torch.amin, torch.fmin), _combine_min),
    "bitand": (None, _fold(torch.bitwise_and), torch.bitwise_and),
    "bitor": (None, _fold(torch.bitwise_or), torch.bitwise_or),
    "bitxor": (None, _fold(torch.bitwise_xor), torch.bitwise_xor),
}


def reduce(call: nodes.Call, scope: Scope) -> Runner:
    _arguments(call, scope, 5)
    source, target = Tile(call.args[0], call, scope), Tile(call.args[1], call, scope)
    kind = call.args[2].value if isinstance(call.args[2], nodes.Text) else ""
    dim, clear = _constant(call.args[3], call, scope), _flag(call.args[4], call, scope)
    if kind not in REDUCTIONS or not 0 <= dim < len(source.array.shape):
        raise scope.unsupported(_("the reduction '{kind}' along dimension {dim}").format(kind=kind, dim=dim))
    each, along, join = REDUCTIONS[kind]
    dtype = target.array.dtype
    bits = kind.startswith("bit")
    if source.array.dtype.kind == "bool" or dtype.kind == "bool" or (bits and not dtype.is_int):
        raise scope.unsupported(_("the reduction '{kind}' of {dtype}").format(kind=kind, dtype=dtype.name))
    convert, meter, line, operations = (
        cast(source.array.dtype, dtype),
        scope.program.meter,
        scope.line,
        scope.program.operations,
    )
    scope.program.note_read(source.array)
    scope.program.note_write(target.array)

    def run(state: State) -> None:
        sizes, found = source.extents(state), target.extents(state)
        kept = [size for axis, size in enumerate(sizes) if axis != dim]
        if min(sizes) < 1 or found not in (kept or [1], [*sizes[:dim], 1, *sizes[dim + 1 :]]):
            raise scope.unsupported(_("a reduction into a tile whose shape doesn't fit"))
        meter.spend(line, prod(sizes))
        meter.room(prod(sizes) * 24, line)
        operations["reduce"] = operations.get("reduce", 0) + prod(sizes)
        values = convert(source.load(state))
        if each is not None:
            values = dtype.settle(each(values))
        result = dtype.settle(along(values, dim)).reshape(found)
        if not clear:
            result = dtype.settle(join(target.load(state), result))
        target.store(result, state)

    return run


#: Operator -> what compiles a call of it.
TILE_OPS: dict[str, Callable[[nodes.Call, Scope], Runner]] = {
    "tl.tileop.copy": copy,
    "tl.tileop.fill": fill,
    "tl.tileop.gemm": gemm,
    "tl.tileop.reduce": reduce,
}

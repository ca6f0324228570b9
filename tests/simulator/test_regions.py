"""Laws of copies and of element accesses: whatever the region or the index, the result is numpy's.

The kernels are built of nodes, not traced: that is quick, and TileLang's front end can't get in the way.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.ir import nodes
from grader.simulator import run

LINE = nodes.Line("k.py", 1)


def const(value: int) -> nodes.Const:
    return nodes.Const("int32", int(value))


def consts(values) -> tuple[nodes.Const, ...]:
    return tuple(const(value) for value in values)


def buffer(name: str, dtype: str, shape, scope: str = "global", strides=()) -> nodes.Buffer:
    return nodes.Buffer(name, dtype, consts(shape), consts(strides), nodes.Storage(name, scope))


def kernel(params, allocations, *statements: nodes.Stmt) -> nodes.Kernel:
    grid = (nodes.Grid(nodes.Var("int32", "bx"), "x", const(1)),)
    threads = tuple(nodes.Var("int32", name) for name in ("tx", "ty", "tz"))
    body = nodes.Seq(None, statements)
    return nodes.Kernel(params, (), grid, (32, 1, 1), threads, tuple(allocations), (), body)


# Copies


@dataclass(frozen=True)
class Side:
    """One side of a copy: a buffer's shape and strides, and the region's start and extents."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def cells(self) -> int:
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    def inside(self) -> list[tuple[int, int]]:
        """For each dimension the part of the region that exists, counted from the region's start."""
        return [
            (max(0, -low), min(extent, size - low))
            for low, extent, size in zip(self.start, self.extents, self.shape, strict=True)
        ]


def draw_side(draw, sizes: list[int], *, bounded: bool) -> Side:
    """A region with these sizes, in order, and dimensions of one element anywhere between them."""
    extents = list(sizes)
    for _unit in range(draw(st.integers(0, 2))):
        extents.insert(draw(st.integers(0, len(extents))), 1)
    shape, start = [], []
    for extent in extents:
        if bounded:
            before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
            shape.append(before + extent + after)
            start.append(before)
        else:
            size = draw(st.integers(1, 9))
            shape.append(size)
            start.append(draw(st.integers(-extent - 1, size + 1)))
    order = draw(st.permutations(range(len(shape)))) if not bounded else range(len(shape))
    padding = [draw(st.integers(0, 2)) if not bounded else 0 for _axis in shape]
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis] + padding[axis]
    return Side(tuple(shape), tuple(strides), tuple(start), tuple(extents))


DTYPES = (
    ("float32", "float32"),
    ("float16", "float16"),
    ("float32", "float16"),
    ("float16", "float32"),
    ("int8", "int32"),
    ("int32", "float32"),
    ("uint8", "int16"),
    ("bool", "bool"),
)


@st.composite
def copies(draw):
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    sides = [draw_side(draw, sizes, bounded=bounded) for bounded in (False, True, False)]
    return sides, draw(st.sampled_from(DTYPES)), draw(st.sampled_from(("shared.dyn", "local.fragment")))


def strided(side: Side, dtype: str, fill: int) -> torch.Tensor:
    values = torch.arange(side.cells) % 50 + fill
    return values.to(getattr(torch, dtype)).as_strided(side.shape, side.strides)


def region(of: nodes.Buffer, side: Side, access: int) -> nodes.Region:
    return nodes.Region("handle", of, consts(side.start), consts(side.extents), access)


def copy(*regions: nodes.Region) -> nodes.Stmt:
    return nodes.Evaluate(LINE, nodes.Call("handle", "tl.tileop.copy", regions))


@settings(max_examples=300, deadline=None)
@given(copies())
def test_any_copy_is_numpys_slicing(case):
    """X[region] -> tile[region] -> Y[region]: reads beyond the edge give zero, writes beyond it are dropped."""
    (source, middle, target), (first, second), scope = case
    x = buffer("X", first, source.shape, strides=source.strides)
    tile = buffer("tile", first, middle.shape, scope)
    y = buffer("Y", second, target.shape, strides=target.strides)
    tensors = strided(source, first, 1), strided(target, second, 60)
    before = tensors[1].clone().numpy()
    done = run(
        kernel(
            (x, y),
            (tile,),
            copy(region(x, source, 1), region(tile, middle, 2)),
            copy(region(tile, middle, 1), region(y, target, 2)),
        ),
        tensors,
        outputs=(),
    )
    assert not done.faults, done.faults

    taken = np.zeros(source.extents, dtype=tensors[0].numpy().dtype)
    box = source.inside()
    if all(low < high for low, high in box):
        here = tuple(slice(low, high) for low, high in box)
        there = tuple(slice(s + low, s + high) for s, (low, high) in zip(source.start, box, strict=True))
        taken[here] = tensors[0].numpy()[there]
    moved = taken.reshape(target.extents)
    box = target.inside()
    written = np.zeros(target.shape, dtype=bool)
    if all(low < high for low, high in box):
        here = tuple(slice(low, high) for low, high in box)
        there = tuple(slice(s + low, s + high) for s, (low, high) in zip(target.start, box, strict=True))
        before[there] = moved[here].astype(before.dtype)
        written[there] = True
    assert np.array_equal(tensors[1].numpy(), before)
    assert np.array_equal(done.written[1].numpy(), written)


# Element accesses


@dataclass(frozen=True)
class Affine:
    """base + Σ coefficient · loop"""

    base: int
    coefficients: tuple[int, ...]

    def over(self, grids) -> np.ndarray:
        total = np.full(np.broadcast_shapes(*(grid.shape for grid in grids)), self.base)
        for coefficient, grid in zip(self.coefficients, grids, strict=True):
            total = total + coefficient * grid
        return total

    def node(self, loops) -> nodes.Expr:
        total: nodes.Expr = const(self.base)
        for coefficient, loop in zip(self.coefficients, loops, strict=True):
            if coefficient:
                scaled = nodes.Binary("int32", "Mul", loop, const(coefficient))
                total = nodes.Binary("int32", "Add", total, scaled)
        return total


@st.composite
def accesses(draw):
    """Loops, an index of each dimension of X, of Y (no element twice), a divisor, and a guard."""
    extents = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    rank = len(extents)
    reads = []
    for _dimension in range(draw(st.integers(1, 3))):
        coefficients = tuple(draw(st.integers(-3, 3)) for _loop in extents)
        low = sum(min(c * (n - 1), 0) for c, n in zip(coefficients, extents, strict=True))
        reads.append(Affine(draw(st.integers(0, 3)) - low, coefficients))
    order = draw(st.permutations(range(rank)))
    writes = []
    for axis in order:
        sign = draw(st.sampled_from((-2, -1, 1, 2)))
        coefficients = tuple(sign if loop == axis else 0 for loop in range(rank))
        writes.append(Affine(draw(st.integers(0, 2)) + max(0, -sign) * (extents[axis] - 1), coefficients))
    guard = Affine(draw(st.integers(-4, 4)), tuple(draw(st.integers(-2, 2)) for _loop in extents))
    return extents, reads, writes, draw(st.integers(1, 5)), guard, draw(st.booleans())


def nest(extents, loops, body: nodes.Stmt, kind: int) -> nodes.Stmt:
    for extent, loop in zip(reversed(extents), reversed(loops), strict=True):
        body = nodes.For(LINE, loop, const(0), const(extent), kind, body)
    return body


def shape_of(indices: list[np.ndarray]) -> tuple[int, ...]:
    return tuple(int(index.max()) + 1 for index in indices)


@settings(max_examples=300, deadline=None)
@given(accesses(), st.sampled_from((nodes.PARALLEL, nodes.SERIAL, nodes.UNROLLED, nodes.VECTORIZED)))
def test_any_affine_access_is_numpys_indexing(case, kind):
    """Y[w(i, j, …)] = X[r(i, j, …), q // d, q % d], guarded or not, in every kind of loop."""
    extents, reads, writes, divisor, guard, guarded = case
    loops = [nodes.Var("int32", name) for name in "ijk"[: len(extents)]]
    grids = np.meshgrid(*(np.arange(extent) for extent in extents), indexing="ij", sparse=True)

    last = reads[-1].over(grids)
    read = [index.over(grids) for index in reads[:-1]] + [last // divisor, last % divisor]
    written = [index.over(grids) for index in writes]
    x_shape, y_shape = shape_of(read), shape_of(written)
    x, y = buffer("X", "int32", x_shape), buffer("Y", "int32", y_shape)

    position = reads[-1].node(loops)
    indices = [index.node(loops) for index in reads[:-1]]
    indices += [nodes.Binary("int32", op, position, const(divisor)) for op in ("FloorDiv", "FloorMod")]
    value = nodes.Load("int32", x, tuple(indices))
    body: nodes.Stmt = nodes.Store(LINE, y, tuple(index.node(loops) for index in writes), value)
    chosen = np.ones(tuple(extents), dtype=bool)
    if guarded:
        body = nodes.If(LINE, nodes.Binary("bool", "GE", guard.node(loops), const(0)), body, None)
        chosen = np.broadcast_to(guard.over(grids) >= 0, chosen.shape)

    tensors = torch.arange(prod(x_shape), dtype=torch.int32).reshape(x_shape), torch.full(y_shape, -1).int()
    done = run(kernel((x, y), (), nest(extents, loops, body, kind)), tensors, outputs=())
    assert not done.faults, done.faults

    right, marks = np.full(y_shape, -1), np.zeros(y_shape, dtype=bool)
    where = tuple(np.broadcast_to(index, chosen.shape)[chosen] for index in written)
    taken = tuple(np.broadcast_to(index, chosen.shape)[chosen] for index in read)
    right[where] = tensors[0].numpy()[taken]
    marks[where] = True
    assert np.array_equal(tensors[1].numpy(), right)
    assert np.array_equal(done.written[1].numpy(), marks)


@settings(max_examples=150, deadline=None)
@given(accesses())
def test_accesses_beyond_the_edge_are_faults(case):
    """One element less in the last dimension of X: a read beyond it is a fault, and only then."""
    extents, reads, writes, _divisor, guard, guarded = case
    loops = [nodes.Var("int32", name) for name in "ijk"[: len(extents)]]
    grids = np.meshgrid(*(np.arange(extent) for extent in extents), indexing="ij", sparse=True)
    read, written = [index.over(grids) for index in reads], [index.over(grids) for index in writes]
    x_shape = (*shape_of(read)[:-1], max(shape_of(read)[-1] - 1, 1))
    x, y = buffer("X", "int32", x_shape), buffer("Y", "int32", shape_of(written))
    value = nodes.Load("int32", x, tuple(index.node(loops) for index in reads))
    body: nodes.Stmt = nodes.Store(LINE, y, tuple(index.node(loops) for index in writes), value)
    beyond = np.broadcast_to(read[-1] >= x_shape[-1], tuple(extents))
    if guarded:
        body = nodes.If(LINE, nodes.Binary("bool", "GE", guard.node(loops), const(0)), body, None)
        beyond = beyond & (guard.over(grids) >= 0)
    tensors = torch.zeros(x_shape, dtype=torch.int32), torch.zeros(shape_of(written), dtype=torch.int32)
    done = run(kernel((x, y), (), nest(extents, loops, body, nodes.PARALLEL)), tensors, outputs=())
    if not beyond.any():
        assert not done.faults
        return
    (fault,) = done.faults
    assert fault.kind == "out_of_bounds_read"
    assert fault.index[-1] >= x_shape[-1]
    assert 1 <= fault.count <= int(beyond.sum())  # what all iterations read alike is read once

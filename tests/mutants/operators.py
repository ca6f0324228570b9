"""What can be made wrong in a kernel: each operator changes one thing, at every place where it can."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from grader.ir import nodes, show
from mutants.rewriting import (
    Node,
    Path,
    Place,
    places,
    rewritten,
    substituted,
    told,
    with_buffers,
    with_node,
)


@dataclass(frozen=True)
class Mutant:
    """A kernel with one change. ``key`` is the same for kernels that differ in their sizes only.

    ``independent``: two statements have changed places, and neither touches what the other writes.
    """

    operator: str
    key: tuple
    where: str
    line: nodes.Line | None
    make: Callable[[], nodes.Kernel]
    independent: bool = False


@dataclass(frozen=True)
class Change:
    """What an operator finds: the place, which of several changes there, in words, and the new body or kernel."""

    path: Path
    variant: object
    words: str
    line: nodes.Line | None
    make: Callable[[], nodes.Stmt | nodes.Kernel]
    independent: bool = False


OPERATORS: dict[str, Callable[[nodes.Kernel], Iterator[Change]]] = {}


def operator(name: str) -> Callable:
    def register(function: Callable[[nodes.Kernel], Iterator[Change]]) -> Callable:
        OPERATORS[name] = function
        return function

    return register


def mutants(kernel: nodes.Kernel) -> Iterator[Mutant]:
    """Every operator at every place of a kernel."""
    for name, find in OPERATORS.items():
        for change in find(kernel):

            def make(change: Change = change) -> nodes.Kernel:
                made = change.make()
                return made if isinstance(made, nodes.Kernel) else replace(kernel, body=made)

            key = (name, change.path, change.variant)
            yield Mutant(name, key, change.words, change.line, make, change.independent)


def _here(kernel: nodes.Kernel, place: Place, new: Node, variant: object, words: str = "") -> Change:
    """A change of one node."""
    line = next(
        (
            node.line
            for node in (place.node, *reversed(place.around))
            if isinstance(node, nodes.Stmt) and node.line
        ),
        None,
    )
    if not words:
        inside = "" if isinstance(place.node, nodes.Stmt) else f"  in  {told(place.statement)}"
        words = f"{told(place.node)}  →  {told(new)}{inside}"
    return Change(place.path, variant, words, line, lambda: with_node(kernel.body, place.path, new))


def _each(kernel: nodes.Kernel, *kinds: type) -> Iterator[Place]:
    return (place for place in places(kernel) if isinstance(place.node, kinds))


NOTHING = nodes.Evaluate(None, nodes.Const("int32", 0))


def _int(value: int, dtype: str = "int32") -> nodes.Const:
    return nodes.Const(dtype, value)


def _plus(expr: nodes.Expr, amount: int) -> nodes.Expr:
    if isinstance(expr, nodes.Const):
        return _int(expr.value + amount, expr.dtype)
    return nodes.Binary(expr.dtype, "Add" if amount > 0 else "Sub", expr, _int(abs(amount), expr.dtype))


# Statements


def _items(kernel: nodes.Kernel) -> Iterator[tuple[Place, nodes.Seq, int]]:
    """The statements of sequences, but for lets."""
    for place in _each(kernel, nodes.Stmt):
        if place.around and isinstance(place.parent, nodes.Seq) and not isinstance(place.node, nodes.Bind):
            yield place, place.parent, place.path[-1][1]


@operator("drop a statement")
def _drop(kernel: nodes.Kernel) -> Iterator[Change]:
    for place, _seq, _number in _items(kernel):
        yield _here(kernel, place, NOTHING, 0, told(place.node))


@operator("do a statement twice")
def _twice(kernel: nodes.Kernel) -> Iterator[Change]:
    for place, _seq, _number in _items(kernel):
        read, written = _touched(place.node)
        if read & written:  # else it gives the same again
            twice = nodes.Seq(place.node.line, (place.node, place.node))
            yield _here(kernel, place, twice, 0, told(place.node))


@operator("swap neighbours")
def _swap_neighbours(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Seq):
        body = place.node.body
        for number, (first, second) in enumerate(pairwise(body)):
            if isinstance(first, nodes.Bind) or isinstance(second, nodes.Bind):
                continue
            swapped = replace(place.node, body=(*body[:number], second, first, *body[number + 2 :]))
            words = f"{told(first)}  ⇄  {told(second)}"
            (read, written), (read_too, written_too) = _touched(first), _touched(second)
            independent = not (written & (read_too | written_too) or written_too & read)
            change = _here(kernel, place, swapped, number, words)
            yield replace(change, line=first.line, independent=independent)


def _touched(stmt: nodes.Stmt) -> tuple[set[nodes.Storage], set[nodes.Storage]]:
    """What a statement reads and what it writes."""
    read: set[nodes.Storage] = set()
    written: set[nodes.Storage] = set()
    for part in nodes.walk(stmt):
        match part:
            case nodes.Load(buffer=buffer):
                read.add(buffer.storage)
            case nodes.Store(buffer=buffer):
                written.add(buffer.storage)
            case nodes.Call(op="tl.tileop.fill", args=(target, *_)):
                written.add(target.buffer.storage)
            case nodes.Call(op="tl.tileop.copy", args=(source, target)):
                read.add(source.buffer.storage)
                written.add(target.buffer.storage)
            case nodes.Call(op="tl.tileop.reduce", args=(source, target, _kind, _dim, clear)):
                read.add(source.buffer.storage)
                written.add(target.buffer.storage)
                if not clear.value:
                    read.add(target.buffer.storage)
            case nodes.Call(op="tl.tileop.gemm", args=(a, b, c, *_)):
                read.update(tile.buffer.storage for tile in (a, b, c))
                written.add(c.buffer.storage)
    return read, written


def _serial(kernel: nodes.Kernel) -> Iterator[Place]:
    return (place for place in _each(kernel, nodes.For) if place.node.kind == nodes.SERIAL)


@operator("move out of the loop")
def _move_out(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _serial(kernel):
        loop = place.node
        items = loop.body.body if isinstance(loop.body, nodes.Seq) else (loop.body,)
        if len(items) == 1:
            continue
        last = nodes.Binary("int32", "Sub", nodes.Binary("int32", "Add", loop.min, loop.extent), _int(1))
        for number, item in enumerate(items):
            rest = nodes.Seq(loop.line, (*items[:number], *items[number + 1 :]))
            inside = replace(loop, body=rest)
            for side, value in (("before", loop.min), ("after", last)):
                moved = substituted(item, {loop.var: value})
                both = (moved, inside) if side == "before" else (inside, moved)
                words = f"{told(item)}  {side} the loop over {loop.var.name}"
                change = _here(kernel, place, nodes.Seq(loop.line, both), (number, side), words)
                yield replace(change, line=item.line)


@operator("move into the loop")
def _move_in(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Seq):
        body = place.node.body
        for number, loop in enumerate(body):
            if not (isinstance(loop, nodes.For) and loop.kind == nodes.SERIAL):
                continue
            for side, other in (("start", number - 1), ("end", number + 1)):
                # A let between them belongs to the loop.
                while 0 <= other < number and isinstance(body[other], nodes.Bind):
                    other -= 1  # noqa: PLW2901
                if not 0 <= other < len(body):
                    continue
                item = body[other]
                inner = (item, loop.body) if side == "start" else (loop.body, item)
                new = {number: replace(loop, body=nodes.Seq(loop.line, inner)), other: NOTHING}
                changed = tuple(new.get(at, part) for at, part in enumerate(body))
                words = f"{told(item)}  to the {side} of the loop over {loop.var.name}"
                change = _here(kernel, place, replace(place.node, body=changed), (number, side), words)
                yield replace(change, line=item.line)


# Guards and conditions


@operator("drop a guard")
def _unguard(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.If, nodes.Call, nodes.Binary):
        match place.node:
            case nodes.If(then=then):
                yield _here(kernel, place, then, 0, f"if {show(place.node.condition)}")
            case nodes.Call(op="tirx.if_then_else", args=(_condition, true, _false)):
                yield _here(kernel, place, true, 0)
            case nodes.Binary(op="And", a=a, b=b):
                yield _here(kernel, place, a, 0)
                yield _here(kernel, place, b, 1)


@operator("negate a condition")
def _negate(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.If, nodes.Call):
        match place.node:
            case nodes.If(condition=condition):
                yield _here(kernel, place, replace(place.node, condition=nodes.Not("bool", condition)), 0)
            case nodes.Call(op="tirx.if_then_else", args=(condition, true, false)):
                yield _here(kernel, place, replace(place.node, args=(condition, false, true)), 0)


COMPARISONS = {
    "LT": ("LE", "GT", "EQ"),
    "LE": ("LT", "GE", "EQ"),
    "GT": ("GE", "LT", "EQ"),
    "GE": ("GT", "LE", "EQ"),
    "EQ": ("NE",),
    "NE": ("EQ",),
    "And": ("Or",),
    "Or": ("And",),
}


@operator("another comparison")
def _compare(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Binary):
        for op in COMPARISONS.get(place.node.op, ()):
            yield _here(kernel, place, replace(place.node, op=op), op)


# Indices, sizes, numbers


def _indexed(kernel: nodes.Kernel) -> Iterator[tuple[Place, str]]:
    """Accesses and tiles, and the field that holds their indices."""
    for place in _each(kernel, nodes.Load, nodes.Store, nodes.Region):
        yield place, "mins" if isinstance(place.node, nodes.Region) else "indices"


@operator("swap indices")
def _swap_indices(kernel: nodes.Kernel) -> Iterator[Change]:
    for place, field in _indexed(kernel):
        indices = getattr(place.node, field)
        for i in range(len(indices)):
            for j in range(i + 1, len(indices)):
                if show(indices[i]) == show(indices[j]):
                    continue
                swapped = list(indices)
                swapped[i], swapped[j] = indices[j], indices[i]
                yield _here(kernel, place, replace(place.node, **{field: tuple(swapped)}), (i, j))


@operator("an index off by one")
def _shift_index(kernel: nodes.Kernel) -> Iterator[Change]:
    for place, field in _indexed(kernel):
        indices = getattr(place.node, field)
        for i, index in enumerate(indices):
            for amount in (1, -1):
                shifted = (*indices[:i], _plus(index, amount), *indices[i + 1 :])
                yield _here(kernel, place, replace(place.node, **{field: shifted}), (i, amount))


@operator("a loop off by one")
def _loop(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.For):
        loop = place.node
        for amount in (1, -1):
            words = f"{loop.var.name} to {show(_plus(loop.extent, amount))}  in  {told(loop)}"
            yield _here(kernel, place, replace(loop, extent=_plus(loop.extent, amount)), ("extent", amount), words)
        words = f"{loop.var.name} from 1  in  {told(loop)}"
        later = replace(loop, min=_plus(loop.min, 1), extent=_plus(loop.extent, -1))
        yield _here(kernel, place, later, ("start", 1), words)


@operator("a grid off by one")
def _grid(kernel: nodes.Kernel) -> Iterator[Change]:
    for number, dimension in enumerate(kernel.grid):
        for amount in (1, -1):
            size = _plus(dimension.extent, amount)
            grid = (*kernel.grid[:number], replace(dimension, extent=size), *kernel.grid[number + 1 :])
            words = f"{show(dimension.extent)}  →  {show(size)} blocks along {dimension.axis}"
            yield Change((), (number, amount), words, kernel.line, lambda grid=grid: replace(kernel, grid=grid))


def _is_option(place: Place) -> bool:
    """Is this an option of a tile operation, a tile's extent, or an index that is shifted anyway?"""
    if isinstance(place.parent, nodes.Region | nodes.Load) or place.path[-1][0] == "indices":
        return True
    if isinstance(place.parent, nodes.Call) and place.parent.op in ("tl.tileop.gemm", "tl.tileop.reduce"):
        return True
    return isinstance(place.parent, nodes.For) or isinstance(place.node.value, bool)


@operator("another number")
def _number(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Const):
        value = place.node.value
        if place.node is NOTHING.value or _is_option(place):
            continue
        if isinstance(value, float):
            others = (-value, 2 * value, value * (1 + 2.0**-6)) if value else (1.0,)
        else:
            others = (value + 1, value - 1)
        for number, other in enumerate(others):
            yield _here(kernel, place, replace(place.node, value=other), number)


ARITHMETIC = {"Add": ("Sub",), "Sub": ("Add", "swapped"), "Mul": ("Div",), "Div": ("Mul", "swapped")}
INTEGER_ARITHMETIC = {"Add": ("Sub",), "Sub": ("Add",), "Mul": ("Add",)}


@operator("another operator")
def _arithmetic(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Binary):
        node = place.node
        table = ARITHMETIC if node.dtype.startswith("float") else INTEGER_ARITHMETIC
        for op in table.get(node.op, ()):
            changed = replace(node, a=node.b, b=node.a) if op == "swapped" else replace(node, op=op)
            yield _here(kernel, place, changed, op)


@operator("drop an operand")
def _operand(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Binary):
        if place.node.op in ("Add", "Sub", "Mul", "Div"):
            yield _here(kernel, place, place.node.a, "left")
            if place.node.op in ("Add", "Mul"):
                yield _here(kernel, place, place.node.b, "right")


FUNCTIONS = {"tirx.exp": ("tirx.exp2",), "tirx.exp2": ("tirx.exp",), "tirx.tanh": ("tirx.erf", "tirx.sigmoid")}


@operator("another function")
def _function(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Call):
        for op in FUNCTIONS.get(place.node.op, ()):
            yield _here(kernel, place, replace(place.node, op=op), op)
        if place.node.op in FUNCTIONS:
            yield _here(kernel, place, place.node.args[0], "none")


@operator("another variable")
def _variable(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Var):
        if not place.node.dtype.startswith("int"):
            continue
        if place.node not in place.variables:
            continue
        for number, other in enumerate(place.variables):
            if other is not place.node and other.dtype == place.node.dtype:
                yield _here(kernel, place, other, number)
        yield _here(kernel, place, _int(0, place.node.dtype), "zero")


@operator("swap block indices")
def _swap_blocks(kernel: nodes.Kernel) -> Iterator[Change]:
    variables = [dimension.var for dimension in kernel.grid]
    for i, first in enumerate(variables):
        for second in variables[i + 1 :]:
            values = {first: second, second: first}
            words = f"{first.name}  ⇄  {second.name}"
            yield Change(
                (),
                (first.name, second.name),
                words,
                kernel.line,
                lambda values=values: substituted(kernel.body, values),
            )


# Tile operations


@operator("another gemm")
def _gemm(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Call):
        call = place.node
        if call.op != "tl.tileop.gemm":
            continue
        args = call.args
        for position, name in ((3, "transpose_A"), (4, "transpose_B"), (9, "clear_accum")):
            flag = args[position]
            flipped = (*args[:position], replace(flag, value=not flag.value), *args[position + 1 :])
            words = f"{name}={not flag.value}  in  {show(call)}"
            yield _here(kernel, place, replace(call, args=flipped), name, words)
        words = f"A ⇄ B  in  {show(call)}"
        yield _here(kernel, place, replace(call, args=(args[1], args[0], *args[2:])), "swapped", words)


@operator("another reduction")
def _reduction(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Call):
        call = place.node
        if call.op != "tl.tileop.reduce":
            continue
        source, target, kind, dim, clear = call.args
        for other in {"sum": ("max", "abssum"), "max": ("sum", "min", "absmax")}[kind.value]:
            changed = (source, target, replace(kind, value=other), dim, clear)
            yield _here(kernel, place, replace(call, args=changed), other)
        changed = (source, target, kind, replace(dim, value=1 - dim.value), clear)
        yield _here(kernel, place, replace(call, args=changed), "dim")
        changed = (source, target, kind, dim, replace(clear, value=not clear.value))
        yield _here(kernel, place, replace(call, args=changed), "clear")


# Buffers and dtypes


def _shape(buffer: nodes.Buffer) -> tuple[str, ...]:
    return tuple(map(show, buffer.shape))


def _alike(kernel: nodes.Kernel, buffer: nodes.Buffer) -> Iterator[tuple[int, nodes.Buffer]]:
    """Other buffers of the same dtype and shape."""
    for number, other in enumerate((*kernel.params, *kernel.allocations)):
        if other is not buffer and other.dtype == buffer.dtype and _shape(other) == _shape(buffer):
            yield number, other


@operator("another buffer")
def _buffer(kernel: nodes.Kernel) -> Iterator[Change]:
    for place, _field in _indexed(kernel):
        for number, other in _alike(kernel, place.node.buffer):
            yield _here(kernel, place, replace(place.node, buffer=other), number)


@operator("one buffer for two")
def _one_for_two(kernel: nodes.Kernel) -> Iterator[Change]:
    for number, buffer in enumerate(kernel.allocations):
        for other_number, other in _alike(kernel, buffer):
            if other in kernel.allocations[:number]:
                words = f"{buffer.name} is {other.name}"
                yield Change(
                    (),
                    (number, other_number),
                    words,
                    kernel.line,
                    lambda buffer=buffer, other=other: with_buffers(kernel.body, {buffer: other}),
                )


@operator("a narrower dtype")
def _narrow(kernel: nodes.Kernel) -> Iterator[Change]:
    narrower = {"float32": ("float16", "bfloat16"), "float16": ("bfloat16",)}
    for number, buffer in enumerate(kernel.allocations):
        for dtype in narrower.get(buffer.dtype, ()):
            words = f"{buffer.name} in {dtype}, not {buffer.dtype}"
            yield Change(
                (),
                (number, dtype),
                words,
                kernel.line,
                lambda buffer=buffer, dtype=dtype: _in_dtype(kernel, buffer, dtype),
            )


def _in_dtype(kernel: nodes.Kernel, buffer: nodes.Buffer, dtype: str) -> nodes.Kernel:
    """The kernel with a buffer of another dtype, and casts where elements are loaded and stored."""
    new = replace(buffer, dtype=dtype)

    def change(node: Node) -> Node:
        match node:
            case nodes.Load() if node.buffer is buffer:
                return nodes.Cast(buffer.dtype, replace(node, dtype=dtype, buffer=new))
            case nodes.Store() if node.buffer is buffer:
                return replace(node, buffer=new, value=nodes.Cast(dtype, node.value))
            case nodes.Region() if node.buffer is buffer:
                return replace(node, dtype=dtype, buffer=new)
        return node

    allocations = tuple(new if item is buffer else item for item in kernel.allocations)
    return dataclasses.replace(kernel, allocations=allocations, body=rewritten(kernel.body, change))


@operator("round a value")
def _round(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Store):
        value = place.node.value
        if not value.dtype.startswith("float"):
            continue
        for dtype in ("float16", "bfloat16", "int32"):
            if dtype == value.dtype:
                continue
            rounded = nodes.Cast(value.dtype, nodes.Cast(dtype, value))
            words = f"to {dtype}  in  {told(place.node)}"
            yield _here(kernel, place, replace(place.node, value=rounded), dtype, words)


@operator("add to what is there")
def _accumulate(kernel: nodes.Kernel) -> Iterator[Change]:
    for place in _each(kernel, nodes.Store):
        store = place.node
        there = nodes.Load(store.value.dtype, store.buffer, store.indices)
        total = nodes.Binary(store.value.dtype, "Add", there, store.value)
        yield _here(kernel, place, replace(store, value=total), 0)

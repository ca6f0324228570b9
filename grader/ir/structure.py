"""Are two kernels the same up to integer constants?

A factory that is called at another shape gives other extents and strides, but mostly the same statements. Two
kernels that differ in more than integers were built on different ways through the factory. That is no fault by
itself: a guard that is left out where the sizes divide evenly makes them differ, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from grader.ir import nodes
from grader.ir.nodes import Line

#: A part of a statement, flattened: types, operators, dtypes, buffers, in order.
Tokens = tuple[object, ...]


@dataclass(frozen=True)
class Difference:
    """Where two kernels part: the line of the first statement that only ``first`` or only ``second`` has so.

    None for a line that isn't known, or where that kernel has no further statement.
    """

    first: Line | None
    second: Line | None


def difference(first: nodes.Kernel, second: nodes.Kernel) -> Difference | None:
    """Where two kernels first differ in something other than integer constants; None if they don't."""
    for mine, other in zip_longest(_Walk(first).kernel(), _Walk(second).kernel()):
        if mine is None or other is None or mine[1] != other[1]:
            return Difference(mine and mine[0], other and other[0])
    return None


class _Walk:
    """Flattens a kernel. Buffers and variables are numbered as they come: their names don't count."""

    def __init__(self, kernel: nodes.Kernel) -> None:
        self.source = kernel
        self.line = kernel.line
        self.numbers: dict[object, int] = {}

    def number(self, thing: object) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))

    def kernel(self) -> Iterator[tuple[Line | None, Tokens]]:
        head: list[object] = []
        for buffer in (*self.source.params, *self.source.allocations):
            head += self.buffer(buffer)
        head += [dimension.axis for dimension in self.source.grid]
        yield self.line, tuple(head)
        yield from self.stmt(self.source.body)

    def stmt(self, stmt: nodes.Stmt) -> Iterator[tuple[Line | None, Tokens]]:
        self.line = stmt.line or self.line
        yield self.line, (*self.head(stmt), *self.parts(stmt))
        for child in nodes.children(stmt):
            if isinstance(child, nodes.Stmt):
                yield from self.stmt(child)
        if not isinstance(stmt, nodes.Bind | nodes.Store | nodes.Evaluate):
            yield self.line, ("end", type(stmt))

    def head(self, stmt: nodes.Stmt) -> Tokens:
        match stmt:
            case nodes.Bind(var=var):
                return (nodes.Bind, self.number(var))
            case nodes.Store(buffer=buffer):
                return (nodes.Store, *self.buffer(buffer))
            case nodes.If(otherwise=otherwise):
                return (nodes.If, otherwise is not None)
            case nodes.For(var=var, kind=kind, annotations=annotations):
                return (nodes.For, self.number(var), kind, *sorted(annotations))
            case nodes.Swizzle(kind=kind):
                return (nodes.Swizzle, kind)
            case nodes.Hint(key=key):
                return (nodes.Hint, key)
        return (type(stmt),)

    def parts(self, node: nodes.Stmt | nodes.Expr) -> Iterator[object]:
        for child in nodes.children(node):
            if isinstance(child, nodes.Expr):
                yield from self.expr(child)

    def expr(self, expr: nodes.Expr) -> Iterator[object]:
        yield type(expr)
        yield expr.dtype
        match expr:
            case nodes.Const(value=value) if isinstance(value, float | bool):
                yield value
            case nodes.Var():
                yield self.number(expr)
            case nodes.Binary(op=op):
                yield op
            case nodes.Call(op=op, annotations=annotations):
                yield op
                yield tuple(sorted(annotations))
            case nodes.Text(value=value):
                yield value
            case nodes.Load(buffer=buffer) | nodes.Region(buffer=buffer):
                yield from self.buffer(buffer)
        yield from self.parts(expr)
        yield "end"

    def buffer(self, buffer: nodes.Buffer) -> Tokens:
        return self.number(buffer.storage), buffer.scope, buffer.dtype, len(buffer.shape)

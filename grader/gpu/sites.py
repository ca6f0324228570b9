"""The statements of a kernel as a compiler's message may speak of them: operation, buffers, line."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from grader.ir import nodes
from grader.ir.nodes import Line

NOTHING = nodes.Const("int32", 0)


@dataclass(frozen=True)
class Site:
    """A tile operation ("gemm", "copy", …), a store, a T.Parallel nest, a pipelined loop or a while loop.

    ``buffers`` are those that it touches, in order; of a loop other than T.Parallel, those of all in it.
    """

    op: str
    line: Line | None
    buffers: tuple[nodes.Buffer, ...]
    node: nodes.Stmt
    in_parallel: bool = False

    def touches(self, *buffers: object) -> bool:
        return all(any(mine is buffer for mine in self.buffers) for buffer in buffers)


@dataclass(frozen=True)
class Gemm:
    """What a T.gemm multiplies: C[m, n] += A[m, k] · B[k, n]."""

    a: nodes.Region
    b: nodes.Region
    c: nodes.Region
    m: int
    n: int
    k: int


def sites(kernel: nodes.Kernel) -> tuple[Site, ...]:
    """The kernel's statements, in the order of the text."""
    return tuple(_sites(kernel.body, kernel.line, parallel=False))


def gemm_of(site: Site) -> Gemm | None:
    """The product that a site makes; None if it is no T.gemm."""
    if (
        not isinstance(site.node, nodes.Evaluate)
        or not isinstance(site.node.value, nodes.Call)
        or site.op != "gemm"
    ):
        return None
    a, b, c, _ta, _tb, m, n, k, *_rest = site.node.value.args
    regions = all(isinstance(tile, nodes.Region) for tile in (a, b, c))
    if not regions or not all(isinstance(size, nodes.Const) for size in (m, n, k)):
        return None
    return Gemm(a, b, c, m.value, n.value, k.value)


def _sites(stmt: nodes.Stmt, line: Line | None, *, parallel: bool) -> Iterator[Site]:
    line = stmt.line or line

    def site(op: str) -> Site:
        return Site(op, line, tuple(dict.fromkeys(_buffers(stmt))), stmt, parallel)

    match stmt:
        case nodes.Evaluate(value=nodes.Call(op=op)):
            yield site(op.rpartition(".")[2])
        case nodes.Store():
            yield site("store")
        case nodes.For(kind=nodes.PARALLEL) if not parallel:
            yield site("parallel")
            yield from _inner(stmt, line, parallel=True)
        case nodes.For(annotations=annotations) if "num_stages" in annotations:
            yield site("pipelined")
            yield from _inner(stmt, line, parallel=parallel)
        case nodes.While():
            yield site("while")
            yield from _inner(stmt, line, parallel=parallel)
        case _:
            yield from _inner(stmt, line, parallel=parallel)


def _inner(stmt: nodes.Stmt, line: Line | None, *, parallel: bool) -> Iterator[Site]:
    for child in nodes.children(stmt):
        if isinstance(child, nodes.Stmt):
            yield from _sites(child, line, parallel=parallel)


def _buffers(stmt: nodes.Stmt) -> Iterator[nodes.Buffer]:
    for node in nodes.walk(stmt):
        if isinstance(node, nodes.Load | nodes.Region | nodes.Store):
            yield node.buffer


def prefixes(kernel: nodes.Kernel) -> Iterator[tuple[Line | None, nodes.Kernel]]:
    """The kernel cut off after its first leaf statement, after its second, …, each with the line of the last one.

    A leaf is what has a line of its own: a tile operation, a store, or a T.Parallel nest as a whole.
    """
    total = _leaves(kernel.body)
    for count in range(1, total + 1):
        cut = _Cut(count)
        body = cut.stmt(kernel.body, kernel.line)
        yield cut.line, replace(kernel, body=body)


def _is_leaf(stmt: nodes.Stmt) -> bool:
    return isinstance(stmt, nodes.Evaluate | nodes.Store) or (
        isinstance(stmt, nodes.For) and stmt.kind == nodes.PARALLEL
    )


def _leaves(stmt: nodes.Stmt) -> int:
    if _is_leaf(stmt):
        return 1
    return sum(_leaves(child) for child in nodes.children(stmt) if isinstance(child, nodes.Stmt))


class _Cut:
    """Copies statements until ``left`` leaves are used up; what comes after does nothing."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.line: Line | None = None

    def stmt(self, stmt: nodes.Stmt, line: Line | None) -> nodes.Stmt:
        line = stmt.line or line
        if _is_leaf(stmt):
            if not self.left:
                return nodes.Evaluate(stmt.line, NOTHING)
            self.left -= 1
            self.line = line
            return stmt
        match stmt:
            case nodes.Seq(body=body):
                return replace(stmt, body=tuple(self.stmt(item, line) for item in body))
            case nodes.If(then=then, otherwise=otherwise):
                then = self.stmt(then, line)
                return replace(stmt, then=then, otherwise=otherwise and self.stmt(otherwise, line))
            case nodes.For(body=body) | nodes.While(body=body) | nodes.Swizzle(body=body):
                return replace(stmt, body=self.stmt(body, line))
        return stmt

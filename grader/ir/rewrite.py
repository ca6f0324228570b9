"""Copies of nodes with something changed."""

from collections.abc import Callable
from dataclasses import replace

from grader.ir import nodes

Node = nodes.Expr | nodes.Stmt


def rewrite(node: Node, change: Callable[[Node], Node]) -> Node:
    """``node`` with ``change`` applied to every node in it, those below first. What doesn't change is kept.

    Shared nodes stay shared. Buffers are no nodes: their shapes are not looked at.
    """
    return _Rewriter(change).node(node)


class _Rewriter:
    def __init__(self, change: Callable[[Node], Node]) -> None:
        self.change = change
        self.done: dict[Node, Node] = {}

    def node(self, node: Node) -> Node:
        if node not in self.done:
            self.done[node] = self.change(self._with_new_parts(node))
        return self.done[node]

    def nodes(self, items: tuple[Node, ...]) -> tuple[Node, ...]:
        made = tuple(map(self.node, items))
        return items if all(a is b for a, b in zip(items, made, strict=True)) else made

    def _with_new_parts(self, node: Node) -> Node:
        parts = {}
        for name in _PARTS.get(type(node), ()):
            old = getattr(node, name)
            if old is None:
                continue
            new = self.nodes(old) if isinstance(old, tuple) else self.node(old)
            if new is not old:
                parts[name] = new
        return replace(node, **parts) if parts else node


#: The fields of each type of node that hold nodes.
_PARTS: dict[type, tuple[str, ...]] = {
    nodes.Binary: ("a", "b"),
    nodes.Not: ("a",),
    nodes.Cast: ("value",),
    nodes.Select: ("condition", "true", "false"),
    nodes.Load: ("indices",),
    nodes.Region: ("mins", "extents"),
    nodes.Call: ("args",),
    nodes.Print: ("index", "value"),
    nodes.Seq: ("body",),
    nodes.Bind: ("value",),
    nodes.Store: ("indices", "value"),
    nodes.Evaluate: ("value",),
    nodes.If: ("condition", "then", "otherwise"),
    nodes.For: ("min", "extent", "body"),
    nodes.While: ("condition", "body"),
    nodes.Swizzle: ("body",),
    nodes.Hint: ("body",),
}

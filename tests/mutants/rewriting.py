"""Places in a kernel's typed nodes, and kernels in which one of them is another node."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grader.ir import nodes, show

Node = nodes.Expr | nodes.Stmt
Step = tuple[str, int | None]  # a field of a node, and where in it if it is a tuple
Path = tuple[Step, ...]


@dataclass(frozen=True)
class Place:
    """A node below ``root``: how to reach it, the nodes around it (outermost first), the variables it may use."""

    path: Path
    node: Node
    around: tuple[Node, ...]
    variables: tuple[nodes.Var, ...]

    @property
    def parent(self) -> Node:
        return self.around[-1]

    @property
    def statement(self) -> nodes.Stmt:
        """The nearest statement: the node itself, or the one around it."""
        return next(node for node in (self.node, *reversed(self.around)) if isinstance(node, nodes.Stmt))


def parts(node: Node) -> Iterator[tuple[Step, Node]]:
    """The nodes directly below a node, each with the step that leads to it; variables that it binds are none."""
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name == "var":
            continue
        if isinstance(value, Node):
            yield (field.name, None), value
        elif isinstance(value, tuple):
            for number, item in enumerate(value):
                if isinstance(item, Node):
                    yield (field.name, number), item


def places(kernel: nodes.Kernel) -> Iterator[Place]:
    """All nodes of a kernel's body, parents first."""
    yield from _places(kernel.body, (), (), tuple(dimension.var for dimension in kernel.grid))


def _places(node: Node, path: Path, around: tuple[Node, ...], variables: tuple[nodes.Var, ...]) -> Iterator[Place]:
    yield Place(path, node, around, variables)
    for step, part in parts(node):
        if isinstance(node, nodes.For) and step[0] == "body":
            inner = (*variables, node.var)
        elif isinstance(node, nodes.Seq):
            inner = (*variables, *(item.var for item in node.body[: step[1]] if isinstance(item, nodes.Bind)))
        else:
            inner = variables
        yield from _places(part, (*path, step), (*around, node), inner)


def with_node(root: Node, path: Path, new: Node) -> Node:
    """``root`` with another node at the end of ``path``."""
    if not path:
        return new
    (name, number), rest = path[0], path[1:]
    value = getattr(root, name)
    if number is None:
        return dataclasses.replace(root, **{name: with_node(value, rest, new)})
    changed = (*value[:number], with_node(value[number], rest, new), *value[number + 1 :])
    return dataclasses.replace(root, **{name: changed})


def rewritten(root: Node, change: Callable[[Node], Node]) -> Node:
    """``root`` with every node replaced by what ``change`` makes of it, from the leaves up."""
    changes: dict[str, object] = {}
    for field in dataclasses.fields(root):
        value = getattr(root, field.name)
        if isinstance(value, Node) and field.name != "var":
            new = rewritten(value, change)
        elif isinstance(value, tuple) and any(isinstance(item, Node) for item in value):
            new = tuple(rewritten(item, change) if isinstance(item, Node) else item for item in value)
            if all(x is y for x, y in zip(new, value, strict=True)):
                continue
        else:
            continue
        if new is not value:
            changes[field.name] = new
    return change(dataclasses.replace(root, **changes) if changes else root)


def substituted(root: Node, values: dict[nodes.Var, nodes.Expr]) -> Node:
    """``root`` with expressions in place of variables."""
    return rewritten(root, lambda node: values.get(node, node) if isinstance(node, nodes.Var) else node)


def with_buffers(root: Node, buffers: dict[nodes.Buffer, nodes.Buffer]) -> Node:
    """``root`` with other buffers."""

    def change(node: Node) -> Node:
        if isinstance(node, nodes.Load | nodes.Store | nodes.Region) and node.buffer in buffers:
            return dataclasses.replace(node, buffer=buffers[node.buffer])
        return node

    return rewritten(root, change)


def told(node: Node) -> str:
    """A statement or expression in one line; loops and branches by their head."""
    match node:
        case nodes.Store(buffer=buffer, indices=indices, value=value):
            return f"{buffer.name}[{', '.join(map(show, indices))}] = {show(value)}"
        case nodes.Evaluate(value=value):
            return show(value)
        case nodes.For(body=nodes.For() as body, kind=nodes.PARALLEL):
            return f"parallel {node.var.name}, {told(body).removeprefix('parallel ')}"
        case nodes.For(var=var, kind=kind, body=body):
            return f"{'parallel ' if kind == nodes.PARALLEL else 'for '}{var.name}: {told(body)}"
        case nodes.If(condition=condition, then=then):
            return f"if {show(condition)}: {told(then)}"
        case nodes.Bind(var=var, value=value):
            return f"{var.name} = {show(value)}"
        case nodes.Seq(body=body):
            return f"{told(body[0])}; …"
        case nodes.Expr():
            return show(node)
    return type(node).__name__

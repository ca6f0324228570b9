"""A first look at a kernel: is it small enough to be walked, and which buffers does it touch?

IR is a graph, and a walk of it takes a shared part as often as it is used: forty doublings are 2**40 nodes. The
sizes are added up here without such a walk.
"""

from collections.abc import Iterable

from grader.ir import nodes
from grader.messages import _
from grader.simulator.budget import OverBudget

MAX_NODES = 1_000_000  # shared ones counted at each use
MAX_DEPTH = 400


def survey(kernel: nodes.Kernel) -> list[nodes.Buffer]:
    """The buffers of a kernel, each once. Raises OverBudget if the kernel is too large or too deep."""
    buffers = dict.fromkeys((*kernel.params, *kernel.allocations))
    size: dict[nodes.Expr | nodes.Stmt, int] = {}
    depth: dict[nodes.Expr | nodes.Stmt, int] = {}
    roots = [part for buffer in buffers for part in (*buffer.shape, *buffer.strides)]
    roots += [kernel.body, *(dimension.extent for dimension in kernel.grid)]
    stack: list[tuple[nodes.Expr | nodes.Stmt, bool]] = [(root, False) for root in roots]
    line = kernel.line
    while stack:
        node, seen = stack.pop()
        if node in size:
            continue
        below = list(_below(node))
        if not seen:
            if isinstance(node, nodes.Load | nodes.Store | nodes.Region):
                buffers.setdefault(node.buffer)
            stack.append((node, True))
            stack.extend((part, False) for part in below if part not in size)
            continue
        if isinstance(node, nodes.Stmt):
            line = node.line or line
        size[node] = 1 + sum(size[part] for part in below)
        depth[node] = 1 + max((depth[part] for part in below), default=0)
        if size[node] > MAX_NODES:
            raise OverBudget(
                _("the kernel is too large for the simulator: written out, it has over {limit} parts").format(
                    limit=MAX_NODES
                ),
                line,
            )
        if depth[node] > MAX_DEPTH:
            raise OverBudget(_("the kernel is nested too deeply for the simulator"), line)
    return list(buffers)


def _below(node: nodes.Expr | nodes.Stmt) -> Iterable[nodes.Expr | nodes.Stmt]:
    yield from nodes.children(node)
    if isinstance(node, nodes.Load | nodes.Store | nodes.Region):
        yield from node.buffer.shape
        yield from node.buffer.strides

"""The arguments of a tile operation that are no tiles."""

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import DTYPES
from grader.simulator.expressions import Scope


def operation(call: nodes.Call) -> str:
    return "T." + call.op.rpartition(".")[2]


def check_count(call: nodes.Call, scope: Scope, *counts: int) -> None:
    if len(call.args) not in counts:
        raise scope.unsupported(
            _("'{op}' with {count} arguments").format(op=operation(call), count=len(call.args))
        )


def constant_option(node: nodes.Expr, call: nodes.Call, scope: Scope) -> int:
    dtype = DTYPES.get(node.dtype)
    known = isinstance(node, nodes.Const) and dtype is not None and dtype.kind != "float"
    if not known or not dtype.holds(node.value):
        raise scope.unsupported(_("'{op}' whose options are no integer constants").format(op=operation(call)))
    return int(node.value)


def truth_option(node: nodes.Expr, call: nodes.Call, scope: Scope) -> bool:
    value = constant_option(node, call, scope)
    if value not in (0, 1):
        raise scope.unsupported(_("'{op}' whose options are neither true nor false").format(op=operation(call)))
    return bool(value)


def check_options(call: nodes.Call, scope: Scope, *without_effect: str) -> None:
    """Refuses options (annotations) other than those that change nothing in what the operation does."""
    for name in call.annotations:
        if name not in without_effect:
            raise scope.unsupported(_("'{op}' with the option '{name}'").format(op=operation(call), name=name))

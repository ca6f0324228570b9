"""Prints nodes as a reader of TileLang would write them, for messages."""

from grader.ir import nodes

_PRECEDENCE = {"Or": 1, "And": 2, "EQ": 3, "NE": 3, "LT": 3, "LE": 3, "GT": 3, "GE": 3, "Add": 4, "Sub": 4}
_TIGHTEST = 9


def show(node: nodes.Expr, above: int = 0) -> str:
    """An expression as text. ``above`` is the precedence of the operator around it."""
    match node:
        case nodes.Const(value=value):
            return f"{value:g}" if isinstance(value, float) else str(value)
        case nodes.Text(value=value):
            return repr(value)
        case nodes.Var(name=name):
            return name
        case nodes.Binary(op="Min" | "Max" as op, a=a, b=b):
            return f"T.{op.lower()}({show(a)}, {show(b)})"
        case nodes.Binary(op=op, a=a, b=b):
            mine = _PRECEDENCE.get(op, 5)
            text = f"{show(a, mine)} {nodes.BINARY[op]} {show(b, mine + 1)}"
            return f"({text})" if mine < above else text
        case nodes.Not(a=a):
            return f"not {show(a, _TIGHTEST)}"
        case nodes.Cast(dtype=dtype, value=value):
            return f"T.cast({show(value)}, '{dtype}')"
        case nodes.Select(condition=condition, true=true, false=false):
            return f"T.Select({show(condition)}, {show(true)}, {show(false)})"
        case nodes.Load(buffer=buffer, indices=indices):
            return f"{buffer.name}[{', '.join(map(show, indices))}]"
        case nodes.Region(buffer=buffer, mins=mins, extents=extents):
            return f"{buffer.name}[{', '.join(map(_slice, mins, extents))}]"
        case nodes.Call(op=op, args=args):
            return f"T.{op.rpartition('.')[2]}({', '.join(map(show, args))})"
        case nodes.Print(message=message, name=name, value=value):
            shown = name or ("" if value is None else show(value))
            return f"T.print({', '.join(filter(None, (shown, f'msg={message!r}' if message else '')))})"
    raise TypeError(f"not an expression: {node!r}")


def _slice(start: nodes.Expr, extent: nodes.Expr) -> str:
    if isinstance(start, nodes.Const) and isinstance(extent, nodes.Const):
        return f"{start.value}:{start.value + extent.value}"
    low = show(start, 5)
    return f"{low}:{low} + {show(extent)}"

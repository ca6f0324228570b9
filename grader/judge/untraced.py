"""What to try when a kernel can't be traced: TileLang's, TVM's and Python's messages seldom say it."""

import re

from grader.messages import _


def advice_on(message: str) -> str:
    """What to try after an exception with this message; empty if nothing is known."""
    if "must be real number, not" in message:
        return _(
            "An element has its value only when the kernel runs. Use TileLang's functions (T.exp), not math's."
        )
    if "must be Tensor, not" in message:
        return _("PyTorch's functions take tensors only. Use TileLang's (T.exp), element by element.")
    if "Cannot use and / or / not operator to Expr" in message:
        return _(
            "Python's and, or, not, if, min and max need values, and here stands one that is known only when the "
            "kernel runs: write T.And(a, b), T.Or(a, b), T.Not(a), T.if_then_else(a, b, c), T.min(a, b) or "
            "T.max(a, b)."
        )
    if "for ** or pow()" in message:
        return _("Write a power as a product: x * x.")
    if re.search(r"unsupported operand type\(s\) for .*'Buffer'|but got `tirx\.Buffer`", message):
        return _("Name single elements, such as tile[i, j], in a T.Parallel loop: whole tiles have no operators.")
    if "'IntImm' object cannot be interpreted as an integer" in message:
        return _("The number is TileLang's, not Python's. Loop with T.serial, and compute the index in the loop.")
    return ""

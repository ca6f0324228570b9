"""Is this IR a kernel of this lab, and safe to run? What passes is written anew from its nodes.

``admit`` is the only way from captured text to anything that simulates or compiles: it reads the text without
TVM, checks the signature, every operator, option, variable, buffer and size, and hands on the typed kernel
together with JSON in our own words. What it refuses, it names, with the student's line.
"""

import hashlib
from dataclasses import dataclass

from grader import ir
from grader.admit.limits import check_limits
from grader.admit.operators import check_operators
from grader.admit.options import admit_options
from grader.admit.refusal import Refused
from grader.admit.scopes import check_scopes
from grader.admit.signature import check_signature
from grader.catalog import Kernel, Shape

__all__ = ["Admitted", "Refused", "admit"]


@dataclass(frozen=True)
class Admitted:
    """A kernel that may be run. ``json`` and ``options`` are what a compiler gets, ``key`` identifies both."""

    kernel: ir.Kernel
    json: str
    options: dict[str, bool | int]

    @property
    def key(self) -> str:
        text = self.json + repr(sorted(self.options.items()))
        return hashlib.sha256(text.encode()).hexdigest()


def admit(text: str, wanted: Kernel, shape: Shape, options: dict[str, object] | None = None) -> Admitted:
    """Checks the IR ``text`` against what the lab wants at ``shape``. Raises Refused."""
    try:
        kernel = ir.read(text)
    except ir.Malformed as error:
        raise Refused(error.message, error.line, error.advice) from None
    check_signature(kernel, wanted, shape)
    check_scopes(kernel)
    check_operators(kernel, wanted)
    check_limits(kernel)
    return Admitted(kernel, ir.write(kernel), admit_options(options or {}))

"""The tile operations, one function each: ``TILE_OPS`` is the one place to add one.

A function compiles a Call into a closure over a State.
"""

from collections.abc import Callable

from grader.ir import nodes
from grader.simulator.expressions import Scope
from grader.simulator.tileops.copies import copy
from grader.simulator.tileops.fills import fill
from grader.simulator.tileops.products import gemm
from grader.simulator.tileops.reductions import reduce
from grader.simulator.tileops.tile import Runner

__all__ = ["TILE_OPS"]

#: Operator -> what compiles a call of it.
TILE_OPS: dict[str, Callable[[nodes.Call, Scope], Runner]] = {
    "tl.tileop.copy": copy,
    "tl.tileop.fill": fill,
    "tl.tileop.gemm": gemm,
    "tl.tileop.reduce": reduce,
}

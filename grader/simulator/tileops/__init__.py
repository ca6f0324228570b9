"""The tile operations, one function each: ``TILE_OPS`` is the one place to add one.

A function compiles a Call into a closure over a State.
"""

from collections.abc import Callable

from grader.ir import nodes
from grader.simulator.expressions import Scope
from grader.simulator.tileops.atomics import atomic_add, atomic_max, atomic_min
from grader.simulator.tileops.copies import copy, transpose
from grader.simulator.tileops.fills import fill
from grader.simulator.tileops.im2col import im2col
from grader.simulator.tileops.products import gemm
from grader.simulator.tileops.reducers import finalize_reducer, reducer_init
from grader.simulator.tileops.reductions import reduce
from grader.simulator.tileops.scans import cummax, cumsum
from grader.simulator.tileops.tile import Runner

__all__ = ["TILE_OPS"]

#: Operator -> what compiles a call of it.
TILE_OPS: dict[str, Callable[[nodes.Call, Scope], Runner]] = {
    "tl.tileop.atomicadd": atomic_add,
    "tl.tileop.atomicmax": atomic_max,
    "tl.tileop.atomicmin": atomic_min,
    "tl.tileop.c2d_im2col": im2col,
    "tl.tileop.copy": copy,
    "tl.tileop.cummax": cummax,
    "tl.tileop.cumsum": cumsum,
    "tl.tileop.fill": fill,
    "tl.tileop.finalize_reducer_v2": finalize_reducer,
    "tl.tileop.gemm": gemm,
    "tl.tileop.im2col": im2col,
    "tl.tileop.reduce": reduce,
    "tl.tileop.reducer_init": reducer_init,
    "tl.tileop.transpose": transpose,
}

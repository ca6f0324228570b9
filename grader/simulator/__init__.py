"""The tile simulator: runs a kernel's IR on CPU tensors, a block at a time, and finds what is wrong in it.

It knows nothing of labs and needs no TVM. Where to add what: a tile operation in ``tileops``, a scalar function
or operator in ``functions``, a dtype in ``dtypes``, a kind of statement in ``statements``.
"""

from grader.simulator.births import Birth, Births
from grader.simulator.budget import Budget, OverBudget
from grader.simulator.faults import Fault, FaultKind, Unsupported
from grader.simulator.recorder import NoSuchBlock, Recorder
from grader.simulator.run import Run, run

__all__ = [
    "Birth",
    "Births",
    "Budget",
    "Fault",
    "FaultKind",
    "NoSuchBlock",
    "OverBudget",
    "Recorder",
    "Run",
    "Unsupported",
    "run",
]

"""Elements of an output that no block writes."""

import torch

from grader.ir import nodes
from grader.simulator.faults import FaultKind
from grader.simulator.memory import UNWRITTEN, Array
from grader.simulator.program import Program, describe


def find_unwritten(program: Program, buffer: nodes.Buffer) -> None:
    """Records a fault if the kernel, which has ended, left elements of the parameter ``buffer`` unwritten.

    An element that was written in part, through a view of a smaller dtype, is not written.
    """
    array = program.arrays[buffer]
    missing = ~_whole(array)
    if not bool(missing.any()):
        return
    last = _last_write(program.kernel, buffer.storage)
    line = program.kernel.line if last is None else last.line
    index = tuple(int(i) for i in missing.nonzero()[0])
    program.faults.add(
        FaultKind.UNWRITTEN,
        buffer,
        line,
        (),
        int(missing.sum()),
        lambda: index,
        lambda: "" if last is None else describe(last.value if isinstance(last, nodes.Evaluate) else last),
    )


def _whole(array: Array) -> torch.Tensor:
    """For each element of a parameter, whether all of it was written."""
    writer = array.memory.writer
    if writer is None:
        return torch.zeros(array.shape, dtype=torch.bool)
    flags = writer != UNWRITTEN
    if array.factor > 1:
        flags = flags[: flags.numel() // array.factor * array.factor].view(-1, array.factor).all(1)
    return flags.as_strided(array.shape, array.strides)


def _last_write(kernel: nodes.Kernel, storage: nodes.Storage) -> nodes.Store | nodes.Evaluate | None:
    """The last statement, as the source has it, that writes to a storage."""
    last = None
    for part in nodes.walk(kernel.body):
        match part:
            case nodes.Store(buffer=buffer) if buffer.storage is storage:
                last = part
            case nodes.Evaluate(value=nodes.Call(args=args)) if any(
                isinstance(arg, nodes.Region) and arg.buffer.storage is storage and arg.access & _WRITE
                for arg in args
            ):
                last = part
    return last


_WRITE = 2  # of a region's access bits

"""Where an output is too large to be compared as a whole: some of its elements, drawn anew each time.

The reference of attention over thousands of keys takes more operations in float64 than the kernel's own work. So a
task may say how to compute a part of it. Which part is not derived from the seed that inputs are drawn from, but
from the operating system, after the kernel has run: nothing can foresee it. That every element was written is seen
everywhere.
"""

import secrets

import torch

from grader.catalog import Group, Shape
from grader.judge.comparison import Mismatch, compare
from grader.judge.task import Task, Tensors


def mismatch(
    task: Task, name: str, shape: Shape, inputs: Tensors, output: torch.Tensor, *, peer: bool = False
) -> Mismatch | None:
    """What is wrong with the output, called ``name``, of a kernel that was given ``inputs`` at ``shape``.

    At a timed shape a part of it is compared, if the task has parts; else the whole. A ``peer`` may err as far as
    the task allows its peers.
    """
    if task.part is None or shape.group is not Group.TIMED:
        reference = task.reference(inputs)
        bound = task.peer_bound if peer and task.peer_bound is not None else task.bound
        return compare(name, output, reference, bound(inputs, reference))
    generator = torch.Generator(output.device).manual_seed(secrets.randbits(63))
    part = task.part(inputs, generator)
    return compare(name, output, part.reference, part.bound, part.index)

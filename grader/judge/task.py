"""What the judge knows of a kernel that a lab asks for."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.catalog import Shape

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Work:
    """The least that a kernel must do at a shape: bytes of global memory moved, floating-point operations."""

    bytes: int
    operations: int


@dataclass(frozen=True)
class Task:
    """A kernel's truth.

    ``inputs(family, shape, generator)`` draws the input tensors on the generator's device;
    ``reference(inputs)`` computes the output in float64;
    ``bound(inputs, reference)`` is the largest error, in float64 for each element, that a right kernel can make;
    ``peer(inputs, output)`` is the library call that does the same work, writing to ``output``.
    The first family is the one that is timed. ``unit`` is "GB/s" for memory-bound work, else "TFLOP/s".
    """

    kernel: str
    families: tuple[str, ...]
    inputs: Callable[[str, Shape, torch.Generator], Tensors]
    reference: Callable[[Tensors], torch.Tensor]
    bound: Callable[[Tensors, torch.Tensor], torch.Tensor]
    peer: Callable[[Tensors, torch.Tensor], None]
    peer_name: str
    work: Callable[[Shape], Work]
    unit: str

    def rate(self, shape: Shape, milliseconds: float) -> float:
        """Work over time, in ``unit``."""
        work = self.work(shape)
        if self.unit == "GB/s":
            return work.bytes / milliseconds / 1e6
        return work.operations / milliseconds / 1e9

"""What the judge knows of a kernel that a lab asks for."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.catalog import Shape
from grader.judge.allowance import Allowance
from grader.judge.comparison import Index
from grader.judge.peers import Peer, Tensors


@dataclass(frozen=True)
class Work:
    """The least that a kernel must do at a shape: bytes of global memory read and written, operations.

    ``operations`` are floating-point operations, a multiply-add counting as two.
    """

    read: int
    written: int
    operations: int

    @property
    def bytes(self) -> int:
        return self.read + self.written


@dataclass(frozen=True)
class Part:
    """Some elements of an output, ``output[index]``: their ``reference`` and ``bound``, in float64."""

    index: Index
    reference: torch.Tensor
    bound: torch.Tensor


@dataclass(frozen=True)
class Task:
    """A kernel's truth.

    ``inputs(family, shape, generator)`` draws the input tensors on the generator's device;
    ``reference(inputs)`` computes the output in float64;
    ``bound(inputs, reference)`` is the largest error, in float64 for each element, that a right kernel can make;
    ``peers`` are library calls that do the same work; the card's target says which is the best there.
    The first family is the one that is timed. ``unit`` is "GB/s" for memory-bound work, else "TFLOP/s";
    ``ceiling`` names what bounds it: "add" (two reads a write), "copy" (one), or the dtype of a matrix product.
    ``peer_bound`` is the largest error of a peer, where that is more than a right kernel's: one of several kernels
    rounds between them (None: ``bound``).
    ``part(inputs, generator)`` draws some elements of the output with their reference and bound, where those of a
    timed shape would take too long as a whole.
    ``allowance``, where a lab asks for it, is the most that may be moved at a shape (``Submission.lean``).
    """

    kernel: str
    families: tuple[str, ...]
    inputs: Callable[[str, Shape, torch.Generator], Tensors]
    reference: Callable[[Tensors], torch.Tensor]
    bound: Callable[[Tensors, torch.Tensor], torch.Tensor]
    peers: tuple[Peer, ...]
    work: Callable[[Shape], Work]
    unit: str
    ceiling: str
    peer_bound: Callable[[Tensors, torch.Tensor], torch.Tensor] | None = None
    part: Callable[[Tensors, torch.Generator], Part] | None = None
    allowance: Callable[[Shape], Allowance] | None = None

    def rate(self, shape: Shape, milliseconds: float) -> float:
        """Work over time, in ``unit``."""
        work = self.work(shape)
        if self.unit == "GB/s":
            return work.bytes / milliseconds / 1e6
        return work.operations / milliseconds / 1e9

    def peer(self, name: str | None) -> Peer:
        """The peer of that name (None: the first). Raises KeyError if there is none."""
        for peer in self.peers:
            if name in (None, peer.name):
                return peer
        raise KeyError(f"{self.kernel} has no peer {name!r}")

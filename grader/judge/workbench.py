"""A kernel's inputs and outputs on the card, with guards around them, and whether it left what is right."""

from collections.abc import Callable

import torch

from grader.catalog import Kernel, Role, Shape
from grader.judge import seeds
from grader.judge.comparison import is_poison, poison
from grader.judge.parts import mismatch
from grader.judge.task import Task, Tensors
from grader.messages import _
from grader.verdict import Finding

CANARY = 4096  # elements before and after a tensor that must stay as they are
SETS = 3  # of inputs, so that no launch finds the last one's in a cache
GIB = 2**30


MAKE_ROOM = _("End what else uses the card ('nvidia-smi' lists it), or measure on a larger one.")


class Guarded:
    """A tensor on the card between two canaries. It holds poison until it is written."""

    def __init__(self, dtype: torch.dtype, size: tuple[int, ...], device: str = "cuda") -> None:
        count = torch.Size(size).numel()
        self.memory = torch.empty(count + 2 * CANARY, dtype=dtype, device=device)
        self.tensor = self.memory[CANARY : CANARY + count].view(size)
        self.refresh()

    @classmethod
    def holding(cls, tensor: torch.Tensor) -> "Guarded":
        guarded = cls(tensor.dtype, tuple(tensor.shape), str(tensor.device))
        guarded.tensor.copy_(tensor)
        return guarded

    def refresh(self) -> None:
        """Poisons it, and the canaries. Queued on the stream, not waited for."""
        poison(self.memory)

    def intact(self) -> bool:
        return bool(is_poison(self.memory[:CANARY]).all() and is_poison(self.memory[-CANARY:]).all())


class Workbench:
    """A kernel's inputs of one family at a shape, in several sets, with an output for each.

    ``seed`` names what the inputs are drawn from; the same numbers come again from the same names.
    """

    def __init__(
        self, task: Task, kernel: Kernel, shape: Shape, seed: str, family: str, sets: int, device: str = "cuda"
    ) -> None:
        self.task, self.kernel, self.shape, self.seed, self.family = task, kernel, shape, seed, family
        self.device = device
        self._guards = [[Guarded.holding(tensor) for tensor in self._drawn(number)] for number in range(sets)]
        self.inputs: list[Tensors] = [tuple(guard.tensor for guard in guards) for guards in self._guards]
        self.outputs = [Guarded(*output_of(kernel, shape), device) for _inputs in self.inputs]

    @property
    def sets(self) -> int:
        return len(self.inputs)

    def launch(self, kernel: Callable[..., None], round_: int) -> None:
        number = round_ % self.sets
        kernel(*self.inputs[number], self.outputs[number].tensor)

    def refresh(self, round_: int) -> None:
        """A fresh output for the round."""
        self.outputs[round_ % self.sets].refresh()

    def wrong(self) -> Finding | None:
        """What is wrong with the outputs of the last launches, or with what they did to their surroundings."""
        for number, (inputs, output) in enumerate(zip(self.inputs, self.outputs, strict=True)):
            if not output.intact():
                return Finding(_("The kernel wrote outside its output."), _("See 'clean': it names the line."))
            for parameter, guard, drawn in zip(
                self.kernel.parameters, self._guards[number], self._drawn(number), strict=False
            ):
                if not guard.intact() or not same_bits(guard.tensor, drawn):
                    return Finding(
                        _("The kernel wrote to its input '{name}', or around it.").format(name=parameter.name),
                        _("Inputs are only read: the result goes to the output."),
                    )
            found = mismatch(self.task, self._output_name, self.shape, inputs, output.tensor)
            if found is not None:
                kind = _("at {shape}, inputs of the kind '{family}'").format(shape=self.shape, family=self.family)
                return Finding(found.message, found.advice, evidence=(*found.evidence, kind))
        return None

    def _drawn(self, number: int) -> Tensors:
        names = (self.task.kernel, self.shape.name, self.family, str(number))
        return self.task.inputs(self.family, self.shape, seeds.generator(self.seed, *names, device=self.device))

    @property
    def _output_name(self) -> str:
        return next(p.name for p in self.kernel.parameters if p.role is Role.OUT)


def output_of(kernel: Kernel, shape: Shape) -> tuple[torch.dtype, tuple[int, ...]]:
    (parameter,) = (p for p in kernel.parameters if p.role is Role.OUT)
    return getattr(torch, parameter.dtype), parameter.sizes(shape)


def memory_needed(kernel: Kernel, shape: Shape, sets: int) -> int:
    """Bytes of the card's memory that a Workbench and its comparison in float64 take, about."""
    sizes = {p: torch.Size(p.sizes(shape)).numel() for p in kernel.parameters}
    held = sum(count * getattr(torch, p.dtype).itemsize for p, count in sizes.items())
    written = sum(count for p, count in sizes.items() if p.role is Role.OUT)
    read = sum(count for p, count in sizes.items() if p.role is not Role.OUT)
    return sets * held + 8 * (5 * written + read) + 2**29


def fitting_sets(kernel: Kernel, shape: Shape, free: int) -> int:
    """How many sets fit into ``free`` bytes, at most SETS; 0 if not even two do."""
    return next((sets for sets in range(SETS, 1, -1) if memory_needed(kernel, shape, sets) <= free), 0)


def no_room(kernel: Kernel, shape: Shape, free: int) -> Finding:
    """That ``free`` bytes of the card's memory are not enough for two sets."""
    text = _("The card has {free:.1f} GiB of free memory; measuring at {shape} takes {needed:.1f} GiB.")
    needed = memory_needed(kernel, shape, 2)
    return Finding(text.format(free=free / GIB, needed=needed / GIB, shape=shape), MAKE_ROOM)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal to the bit: NaN as itself, and 0.0 not as -0.0."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))

"""Lab 00: B = A, fp32, tile by tile."""

import torch

from grader.catalog import Shape
from grader.judge.peers import writing
from grader.judge.task import Task, Tensors, Work


def _inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    size, device = (shape.sizes["M"], shape.sizes["N"]), generator.device
    match family:
        case "normal":
            return (torch.randn(*size, generator=generator, device=device),)
        case "counting":
            # Each element says where it stands: what is copied from elsewhere shows as another place's number.
            # They don't begin at a number that could be known, and fp32 counts by ones up to 2^24.
            first = torch.randint(1, 2**20, (1,), generator=generator, device=device)
            count = torch.arange(size[0] * size[1], device=device) + first
            return (count.remainder(2**24).float().reshape(size),)
        case "all sizes":
            # Every exponent of fp32: a way through a narrower type loses the large, the small or the last digits.
            exponents = torch.rand(*size, generator=generator, device=device) * 250 - 125
            return (torch.randn(*size, generator=generator, device=device) * torch.exp2(exponents),)
    raise ValueError(f"no family {family!r}")


def _reference(inputs: Tensors) -> torch.Tensor:
    return inputs[0].double()


def _bound(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """A copy is exact."""
    return torch.zeros_like(reference)


def _work(shape: Shape) -> Work:
    size = 4 * shape.sizes["M"] * shape.sizes["N"]
    return Work(size, size, operations=0)


TILE_COPY = Task(
    kernel="tile_copy",
    families=("normal", "counting", "all sizes"),
    inputs=_inputs,
    reference=_reference,
    bound=_bound,
    peers=(writing("torch.Tensor.copy_", lambda inputs, output: output.copy_(inputs[0])),),
    work=_work,
    unit="GB/s",
    ceiling="copy",
)

"""Lab 01: C = A + B in fp32."""

import torch

from grader.catalog import Shape
from grader.judge.peers import compiled, writing
from grader.judge.task import Task, Tensors, Work
from grader.judge.tolerance import rounded


def _inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    n, device = shape.sizes["N"], generator.device
    a = torch.randn(n, generator=generator, device=device)
    b = torch.randn(n, generator=generator, device=device)
    match family:
        case "normal":
            return a, b
        case "wide range":
            # Magnitudes from 1e-30 to 1e30: a kernel that adds in fp16 or scales on the way loses here.
            power = torch.rand(n, generator=generator, device=device) * 60 - 30
            return a * 10**power, b * 10 ** power.flip(0)
        case "cancelling":
            # What is left of a − a(1 + ε) shows any rounding before the sum.
            return a, -a * (1 + 1e-6 * torch.sign(b))
        case "infinite":
            a[torch.rand(n, generator=generator, device=device) < 0.25] = float("inf")
            b[torch.rand(n, generator=generator, device=device) < 0.25] = float("-inf")
            b[torch.isinf(a)] = 1.0  # inf − inf has no right answer
            return a, b
    raise ValueError(f"no family {family!r}")


def _reference(inputs: Tensors) -> torch.Tensor:
    a, b = inputs
    return a.double() + b.double()


def _bound(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    # The sum of two fp32 numbers is exact in fp64 but for a relative 2^-53; the kernel rounds it once.
    return rounded(reference, 2.0**-52 * reference.abs(), torch.float32)


VECTOR_ADD = Task(
    kernel="vector_add",
    families=("normal", "wide range", "cancelling", "infinite"),
    inputs=_inputs,
    reference=_reference,
    bound=_bound,
    peers=(writing("torch.add", lambda inputs, output: torch.add(*inputs, out=output)), compiled(torch.add)),
    work=lambda shape: Work(2 * 4 * shape.sizes["N"], 4 * shape.sizes["N"], operations=shape.sizes["N"]),
    unit="GB/s",
    ceiling="add",
)

"""Lab 02: C = A B, fp16 in and out, accumulated in fp32."""

import torch

from grader.catalog import Shape
from grader.judge.peers import writing
from grader.judge.task import Task, Tensors, Work
from grader.judge.tolerance import accumulated, rounded


def _inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    m, n, k = (shape.sizes[name] for name in "MNK")
    device = generator.device

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, device=device)

    match family:
        case "normal":
            a, b = normal(m, k), normal(k, n)
        case "cancelling":
            # Neighbouring terms nearly cancel: what is lost in a half-precision sum stands out.
            a, b = normal(m, k) * 8, normal(k, n)
            half = k // 2
            a[:, half : 2 * half] = -a[:, :half]
            b[half : 2 * half] = b[:half] * (1 + 2.0**-7)
        case "one-hot":
            # Each row of C is one row of B: a wrong index shows as a wrong value, not as noise.
            a = torch.zeros(m, k, device=device)
            a[torch.arange(m, device=device), torch.randint(k, (m,), generator=generator, device=device)] = 1.0
            b = normal(k, n)
        case "large":
            # Products up to 1e3; sums stay below fp16's 65504 but are far above where fp16 counts by ones.
            a, b = normal(m, k).abs() * 4, normal(k, n) * 8
        case _:
            raise ValueError(f"no family {family!r}")
    return a.half(), b.half()


def _reference(inputs: Tensors) -> torch.Tensor:
    a, b = inputs
    return a.double() @ b.double()


def _bound(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    a, b = inputs
    magnitude = a.double().abs() @ b.double().abs()
    return rounded(reference, accumulated(magnitude, terms=a.shape[1]), torch.float16)


def _work(shape: Shape) -> Work:
    m, n, k = (shape.sizes[name] for name in "MNK")
    return Work(2 * (m * k + k * n), 2 * m * n, operations=2 * m * n * k)


MATMUL = Task(
    kernel="matmul",
    families=("normal", "cancelling", "one-hot", "large"),
    inputs=_inputs,
    reference=_reference,
    bound=_bound,
    peers=(writing("cuBLAS (torch.matmul)", lambda inputs, output: torch.matmul(*inputs, out=output)),),
    work=_work,
    unit="TFLOP/s",
    ceiling="float16",
)

"""Lab 08: three kernels with a planted bug each.

``scale_rows`` gives wrong values. ``scores`` is right, but its tiles have a dtype that keeps the compiler from
asynchronous copies and from Hopper's products. ``standardise`` is right, but reads its input three times.
"""

from dataclasses import replace

import torch

from grader.catalog import Shape
from grader.judge import tolerance
from grader.judge.allowance import Allowance
from grader.judge.lab02_matmul import MATMUL
from grader.judge.peers import eager, writing
from grader.judge.task import Task, Tensors, Work
from grader.messages import _


def _scaled_inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    m, n, device = shape.sizes["M"], shape.sizes["N"], generator.device
    x = torch.randn(m, n, generator=generator, device=device)
    match family:
        case "normal":
            pass
        case "falling":
            # The first tile has each row's largest value. What forgets it scales by too little.
            x = x * torch.linspace(16, 1, n, device=device)
        case "negative":
            # The value furthest from 0 is below it: the maximum is another one.
            x = x - 20
        case "spread":
            x = x * 10.0 ** (torch.arange(m, device=device) % 5 * 8 - 16)[:, None]
        case _:
            raise ValueError(f"no family {family!r}")
    return (x,)


def _scaled(inputs: Tensors) -> torch.Tensor:
    x = inputs[0].double()
    return x / x.abs().amax(1, keepdim=True)


SCALE_ROWS = Task(
    kernel="scale_rows",
    families=("normal", "falling", "negative", "spread"),
    inputs=_scaled_inputs,
    reference=_scaled,
    bound=lambda inputs, reference: tolerance.quotient(reference),
    peers=(eager("torch", lambda x: x / x.abs().amax(1, keepdim=True)),),
    # Read once and written once, by a kernel that holds a row; the absolute value, a comparison and a division.
    work=lambda shape: Work(*(2 * (4 * _size(shape),)), operations=3 * _size(shape)),
    unit="GB/s",
    ceiling="copy",
)


def _transposed(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    a, b = MATMUL.inputs(family, shape, generator)
    return a, b.T.contiguous()


#: C = A Bᵀ, fp16 in and out, accumulated in fp32: lab 02's product, with B stored by columns.
SCORES = replace(
    MATMUL,
    kernel="scores",
    inputs=_transposed,
    reference=lambda inputs: MATMUL.reference((inputs[0], inputs[1].T)),
    bound=lambda inputs, reference: MATMUL.bound((inputs[0], inputs[1].T), reference),
    peers=(
        writing("cuBLAS (torch.matmul)", lambda inputs, output: torch.matmul(inputs[0], inputs[1].T, out=output)),
    ),
)

EPSILON = 1e-5  # added to the variance, as in torch.nn.functional.layer_norm


def _standard_inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    m, n, device = shape.sizes["M"], shape.sizes["N"], generator.device
    x = torch.randn(m, n, generator=generator, device=device)
    match family:
        case "normal":
            pass
        case "shifted":
            # A mean that counts, another one in each row.
            x = x + 10.0 * (1 + torch.arange(m, device=device))[:, None]
        case "spread":
            x = x * 10.0 ** (torch.arange(m, device=device) % 3 - 1)[:, None]
        case "one-hot":
            x = x / 100
            x[torch.arange(m, device=device), torch.randint(n, (m,), generator=generator, device=device)] += 8.0
        case _:
            raise ValueError(f"no family {family!r}")
    return (x,)


def _standardised(inputs: Tensors) -> torch.Tensor:
    x = inputs[0].double()
    centred = x - x.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + EPSILON).sqrt()


def _once(shape: Shape) -> Allowance:
    return Allowance(
        4 * _size(shape),
        4 * _size(shape),
        _("each element read once, and written once"),
        _("roofline(standardise) counts how often each byte is read. Why does the kernel read X again?"),
    )


STANDARDISE = Task(
    kernel="standardise",
    families=("normal", "shifted", "spread", "one-hot"),
    inputs=_standard_inputs,
    reference=_standardised,
    bound=lambda inputs, reference: tolerance.standardised(inputs[0].double(), EPSILON),
    peers=(eager("torch", lambda x: torch.nn.functional.layer_norm(x, x.shape[1:], eps=EPSILON)),),
    # Two sums, a difference, a square, a product.
    work=lambda shape: Work(4 * _size(shape), 4 * _size(shape), operations=5 * _size(shape)),
    unit="GB/s",
    ceiling="copy",
    allowance=_once,
)


def _size(shape: Shape) -> int:
    return shape.sizes["M"] * shape.sizes["N"]

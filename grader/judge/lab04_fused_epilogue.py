"""Lab 04: C = GELU(A B + bias), fp16 in and out, with the sum, the bias and GELU in fp32.

The bias is fp16, as models store it beside their fp16 weights, and as torch.addmm wants it: kernel and peers read
the same inputs. It is added in fp32, so its type costs no accuracy.

GELU is ½ z (1 + tanh(√(2/π) (z + 0.044715 z³))), torch's ``approximate="tanh"``.
"""

import math

import torch

from grader.catalog import Shape
from grader.judge import tolerance
from grader.judge.allowance import Allowance
from grader.judge.peers import compiled, eager
from grader.judge.task import Task, Tensors, Work
from grader.messages import _

#: Tiles of this many rows and columns set the limit of bytes read. Those of a fast kernel are larger.
TILE = 64


def _inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    m, n, k = (shape.sizes[name] for name in "MNK")
    device = generator.device

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, device=device)

    # Most of z lies between −3 and 3, where GELU bends.
    a, b, bias = normal(m, k), normal(k, n) / math.sqrt(k), normal(n)
    match family:
        case "normal":
            pass
        case "one-hot":
            # Every z is one weight, from −6 to 6, and a small bias: GELU itself is what shows.
            a = torch.zeros(m, k, device=device)
            a[torch.arange(m, device=device), torch.randint(k, (m,), generator=generator, device=device)] = 1.0
            b = torch.rand(k, n, generator=generator, device=device) * 12 - 6
            bias = bias / 16
        case "wide":
            b, bias = b * 4, bias * 2
        case "cancelling":
            # Neighbouring terms nearly cancel: what is lost in a half-precision sum stands out.
            half = k // 2
            a = a * 8
            a[:, half : 2 * half] = -a[:, :half]
            b[half : 2 * half] = b[:half] * (1 + 2.0**-7)
        case "large":
            # z from thousands below 0 to thousands above: GELU is 0 or z. No bias.
            a, b, bias = a.abs() * 4, b * math.sqrt(k) * 8, torch.zeros_like(bias)
        case "bias":
            # What doesn't come from the bias is small beside it.
            b, bias = b / 64, torch.linspace(-4, 4, n, device=device)
        case _:
            raise ValueError(f"no family {family!r}")
    return a.half(), b.half(), bias.half()


def _before_gelu(inputs: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """A B + bias in float64, and how far an fp32 sum may be off."""
    a, b, bias = (tensor.double() for tensor in inputs)
    magnitude = a.abs() @ b.abs() + bias.abs()
    return a @ b + bias, tolerance.accumulated(magnitude, terms=a.shape[1] + 1)


def _reference(inputs: Tensors) -> torch.Tensor:
    return torch.nn.functional.gelu(_before_gelu(inputs)[0], approximate="tanh")


def _bound(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    return tolerance.gelu(*_before_gelu(inputs), torch.float16)


def _peer_bound(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """torch's addmm stores z in fp16, from where gelu reads it."""
    z, error = _before_gelu(inputs)
    return tolerance.gelu(z, tolerance.rounded(z, error, torch.float16), torch.float16)


def _work(shape: Shape) -> Work:
    """The product's operations: GELU's are some ten for each of M N elements, where the product has 2 K."""
    m, n, k = (shape.sizes[name] for name in "MNK")
    return Work(2 * (m * k + k * n + n), 2 * m * n, operations=2 * m * n * k)


def _allowance(shape: Shape) -> Allowance:
    m, n, k = (shape.sizes[name] for name in "MNK")
    columns, rows = math.ceil(n / TILE), math.ceil(m / TILE)
    return Allowance(
        read=2 * (m * k * columns + k * n * rows + n * rows),
        written=2 * m * n,
        rule=_(
            "allowed: A once for each {tile} columns of C, B and the bias once for each {tile} rows, "
            "as with tiles of {tile} × {tile}; each element of C written once"
        ).format(tile=TILE),
        advice=_("Work on the fragment, copy each tile once, and store C once, at the end."),
    )


def _unfused(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(torch.addmm(bias, a, b), approximate="tanh")


GEMM_BIAS_GELU = Task(
    kernel="gemm_bias_gelu",
    families=("normal", "one-hot", "wide", "cancelling", "large", "bias"),
    inputs=_inputs,
    reference=_reference,
    bound=_bound,
    peers=(eager("eager (torch.addmm, gelu)", _unfused), compiled(_unfused)),
    work=_work,
    unit="TFLOP/s",
    ceiling="float16",
    peer_bound=_peer_bound,
    allowance=_allowance,
)

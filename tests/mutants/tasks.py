"""What is known of each reference kernel: shapes, inputs, the result in float64, its bound, another evaluation.

Written as a lab's task would be. Families of inputs are in the order in which they find most.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from grader.catalog import Group, Kernel, Parameter, Role, Shape
from grader.judge import tolerance
from grader.judge.lab02_matmul import MATMUL as MATMUL_TASK
from grader.judge.lab04_fused_epilogue import GEMM_BIAS_GELU
from grader.judge.task import Tensors
from mutants import references


@dataclass(frozen=True)
class Task:
    """``evaluate(inputs)`` is the result in fp32, by torch, in another order of sums than the kernel's tiles'.

    ``only`` are the families at shapes that are too long for all of them.
    """

    kernel: Kernel
    make: Callable
    families: tuple[str, ...]
    inputs: Callable[[str, Shape, torch.Generator], Tensors]
    reference: Callable[[Tensors], torch.Tensor]
    bound: Callable[[Tensors, torch.Tensor], torch.Tensor]
    evaluate: Callable[[Tensors], torch.Tensor]
    only: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def runs(self) -> Iterator[tuple[Shape, str]]:
        """Shapes and families, in the order in which a kernel is tried."""
        for shape in self.kernel.shapes:
            for family in self.only.get(shape.name, self.families):
                yield shape, family


def _kernel(name: str, parameters: str, *shapes: Shape) -> Kernel:
    """Parameters as ``"A:float16:M,K …"``; the last one is the output."""
    read = [text.split(":") for text in parameters.split()]
    made = tuple(
        Parameter(name, dtype, tuple(sizes.split(",")), Role.OUT if number == len(read) else Role.IN)
        for number, (name, dtype, sizes) in enumerate(read, 1)
    )
    return Kernel(name, tuple(shapes[0].sizes), made, shapes)


def _shape(name: str, group: Group = Group.TAILS, **sizes: int) -> Shape:
    return Shape(name, sizes, group)


class _Draw:
    """Random tensors from one generator."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def normal(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, generator=self.generator)

    def uniform(self, *size: int) -> torch.Tensor:
        return torch.rand(*size, generator=self.generator)

    def one_hot(self, rows: int, columns: int) -> torch.Tensor:
        hot = torch.zeros(rows, columns)
        hot[torch.arange(rows), torch.randint(columns, (rows,), generator=self.generator)] = 1.0
        return hot


def _backwards(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b in fp32, the terms added one after the other from the last to the first."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for k in reversed(range(a.shape[-1])):
        total = total + a[..., k, None].float() * b[..., k, None, :].float()
    return total


# Matrix product


MATMUL = Task(
    kernel=_kernel(
        "matmul",
        "A:float16:M,K B:float16:K,N C:float16:M,N",
        _shape("tail", M=40, N=72, K=50),
        _shape("tiles", Group.TILES, M=96, N=64, K=64),
        _shape("long K", Group.TILES, M=32, N=32, K=512),
        _shape("one element", M=1, N=1, K=1),
    ),
    make=references.matmul,
    families=MATMUL_TASK.families,
    inputs=MATMUL_TASK.inputs,
    reference=MATMUL_TASK.reference,
    bound=MATMUL_TASK.bound,
    evaluate=lambda inputs: _backwards(*inputs).half(),
)


# Linear layer with GELU


def _transposed(inputs: Tensors) -> Tensors:
    """The lab's B (K, N) as the linear layer's W (N, K), and back."""
    x, w, bias = inputs
    return x, w.T.contiguous(), bias


LINEAR_GELU = Task(
    kernel=_kernel(
        "linear_gelu",
        "X:float16:M,K W:float16:N,K bias:float16:N Y:float16:M,N",
        _shape("tail", M=40, N=72, K=50),
        _shape("tiles", Group.TILES, M=96, N=64, K=64),
        _shape("long K", Group.TILES, M=32, N=32, K=512),
    ),
    make=references.linear_gelu,
    families=GEMM_BIAS_GELU.families,
    inputs=lambda *drawn: _transposed(GEMM_BIAS_GELU.inputs(*drawn)),
    reference=lambda inputs: GEMM_BIAS_GELU.reference(_transposed(inputs)),
    bound=lambda inputs, reference: GEMM_BIAS_GELU.bound(_transposed(inputs), reference),
    evaluate=lambda inputs: torch.nn.functional.gelu(
        _backwards(inputs[0], inputs[1].T) + inputs[2].float(), approximate="tanh"
    ).half(),
)


# Softmax


def _softmax_inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    rows, columns = shape.sizes["R"], shape.sizes["C"]
    draw = _Draw(generator)
    x = draw.normal(rows, columns)
    match family:
        case "normal":
            pass
        case "large":
            x = x * 1000  # exp overflows fp32 above 88
        case "negative":
            # Lower than any half, and than what exp gives more than 0 for.
            x = x - 66300
        case "ties":
            x = torch.round(x)
        case "masked":
            # A third of the columns, and all of the first tiles but for the last column.
            x[draw.uniform(rows, columns) < 1 / 3] = -math.inf
            x[:, : columns // 2] = -math.inf
            x[:, -1] = 0.0
        case "ascending":
            x = x.sort(dim=1).values * 4
        case "descending":
            x = x.sort(dim=1, descending=True).values * 4
        case "one-hot":
            x = draw.one_hot(rows, columns) * 30 + x
        case "denormal":
            # Weights down to 1e-45: the tail of what fp32 can hold.
            x = torch.linspace(0, -103, columns).repeat(rows, 1) + x / 8
        case _:
            raise ValueError(f"no family {family!r}")
    return (x,)


def _softmax_backwards(inputs: Tensors) -> torch.Tensor:
    (x,) = inputs
    e = torch.exp(x - x.amax(1, keepdim=True))
    total = torch.zeros(x.shape[0], 1)
    for column in reversed(range(x.shape[1])):
        total = total + e[:, column : column + 1]
    return e / total


def _softmax(name: str, make: Callable, *shapes: Shape) -> Task:
    return Task(
        kernel=_kernel(name, "X:float32:R,C Y:float32:R,C", *shapes),
        make=make,
        families=(
            "normal",
            "large",
            "masked",
            "negative",
            "ascending",
            "descending",
            "ties",
            "one-hot",
            "denormal",
        ),
        inputs=_softmax_inputs,
        reference=lambda inputs: inputs[0].double().softmax(1),
        bound=lambda inputs, reference: tolerance.softmax(inputs[0].double(), torch.float32),
        evaluate=_softmax_backwards,
    )


SOFTMAX = _softmax(
    "softmax",
    references.softmax,
    _shape("tail", R=12, C=40),
    _shape("tiles", Group.TILES, R=16, C=64),
    _shape("square", Group.TILES, R=8, C=8),
    _shape("one row", R=1, C=300),
)
ONLINE_SOFTMAX = _softmax(
    "online_softmax",
    references.online_softmax,
    _shape("tail", R=20, C=40),
    _shape("tiles", Group.TILES, R=32, C=64),
    _shape("one tile", R=5, C=7),
    _shape("long rows", R=3, C=300),
)


# Attention


def _attention_inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    size = tuple(shape.sizes[name] for name in "BLHD")
    length, depth = size[1], size[3]
    draw = _Draw(generator)
    q, k, v = draw.normal(*size), draw.normal(*size), draw.normal(*size)
    steps = torch.linspace(-1, 1, length).view(1, length, 1, 1)
    match family:
        case "normal":
            pass
        case "large":
            q, k = q * 4, k * 4  # scores of some hundreds before scaling
        case "one-hot":
            # The best key's values are the result: a wrong index shows.
            k = k * 3
            q = k.roll(1, dims=1) * 2
        case "ascending":
            # Every tile brings a new maximum.
            q, k = q.abs() / 2, k / 8 + steps * 3
        case "descending":
            q, k = q.abs() / 2, k / 8 - steps * 3
        case "negative":
            # Scores below any half, and exp of them is 0 in fp32.
            q, k = 60 + q, -80 + k
        case "ties":
            q = torch.zeros(size)
        case "steady":
            # Every 16 keys are the same again, and so is each column's value, which is then the result: what
            # rounding adds in half-precision sums has one sign.
            k = k[:, torch.arange(length) % 16]
            v = (0.5 + draw.uniform(1, 1, 1, depth) / 2).expand(size)
        case "climbing":
            # Tile by tile the scores rise by the same small step: an error in rescaling is made anew each time,
            # and adds up in the weights of the first keys, which the values single out.
            q = 0.5 + draw.uniform(size[0], length, size[2], 1).expand(size) / 2
            k = (torch.arange(length) // 16 / 64).view(1, length, 1, 1).expand(size)
            v = (steps <= -0.5).expand(size) * v.abs()
        case _:
            raise ValueError(f"no family {family!r}")
    return q.half(), k.half(), v.half()


def _scores(inputs: Tensors, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores as they are exponentiated (B, H, rows, keys), and how far they may be off in fp32."""
    q, k = (tensor.double().transpose(1, 2) for tensor in inputs[:2])
    scale = q.shape[-1] ** -0.5
    scores = q @ k.transpose(2, 3) * scale
    error = tolerance.accumulated(q.abs() @ k.abs().transpose(2, 3) * scale, q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    return scores, error


def _attention_reference(inputs: Tensors, causal: bool) -> torch.Tensor:
    scores, _error = _scores(inputs, causal)
    return (scores.softmax(-1) @ inputs[2].double().transpose(1, 2)).transpose(1, 2)


def _attention_bound(inputs: Tensors, _reference: torch.Tensor, causal: bool) -> torch.Tensor:
    values = inputs[2].double().transpose(1, 2)
    return tolerance.attention(*_scores(inputs, causal), values, torch.float16).transpose(1, 2)


def _attention_backwards(inputs: Tensors, causal: bool) -> torch.Tensor:
    """With the whole row at once, weights rounded to halves for the second product, sums from the last key on."""
    q, k, v = (tensor.transpose(1, 2) for tensor in inputs)
    scores = _backwards(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    total = _backwards(e, torch.ones(*e.shape[:-2], e.shape[-1], 1))
    return (_backwards(e.half(), v) / total).transpose(1, 2).half()


def _attention(causal: bool) -> Task:
    return Task(
        kernel=_kernel(
            "causal_attention" if causal else "attention",
            "Q:float16:B,L,H,D K:float16:B,L,H,D V:float16:B,L,H,D Out:float16:B,L,H,D",
            _shape("tail", B=2, L=40, H=3, D=32),
            _shape("tiles", Group.TILES, B=1, L=64, H=2, D=32),
            _shape("long", Group.TILES, B=1, L=512, H=1, D=32),
            _shape("short", B=1, L=5, H=1, D=32),
        ),
        make=functools.partial(references.attention, causal=causal),
        families=(
            "normal",
            "one-hot",
            "ascending",
            "descending",
            "negative",
            "large",
            "steady",
            "climbing",
            "ties",
        ),
        inputs=_attention_inputs,
        reference=functools.partial(_attention_reference, causal=causal),
        bound=functools.partial(_attention_bound, causal=causal),
        evaluate=functools.partial(_attention_backwards, causal=causal),
        only={"long": ("steady", "climbing", "ascending")},
    )


ATTENTION, CAUSAL_ATTENTION = _attention(causal=False), _attention(causal=True)

TASKS = {task.name: task for task in (MATMUL, LINEAR_GELU, SOFTMAX, ONLINE_SOFTMAX, ATTENTION, CAUSAL_ATTENTION)}

"""Lab 05: Y = softmax of X along its rows, fp32 in and out; rows that fit in one tile, and rows that don't.

A row of nothing but −∞ has no softmax (it would be 0/0, and torch gives NaN), so no family has one: what a kernel
does there is not asked.
"""

import math
from collections.abc import Callable

import torch

from grader.catalog import Shape
from grader.judge import tolerance
from grader.judge.allowance import Allowance
from grader.judge.peers import compiled, writing
from grader.judge.task import Task, Tensors, Work
from grader.messages import _

#: The shortest tile that the bound allows for. One narrower than a block of 128 threads leaves threads idle.
_TILE = 128
#: Elements that are judged at once: the bound takes some ten tensors of float64.
_AT_ONCE = 2**24


def _inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    m, n, device = shape.sizes["M"], shape.sizes["N"], generator.device
    x = torch.randn(m, n, generator=generator, device=device)
    even = (torch.arange(m, device=device) % 2 == 0)[:, None]
    match family:
        case "normal":
            pass
        case "large":
            # Without the maximum, exp overflows in one row and is 0 everywhere in the next. The bound grows with
            # the scores and with the number of tiles: in long rows 1e4 would leave little that is wrong.
            level = 1e4 if n <= 8192 else 1e3
            x = 3 * x + torch.where(even, level, -level)
        case "masked":
            # A third of the columns, and all of the first tiles. One score is left in any case.
            x[torch.rand(m, n, generator=generator, device=device) < 1 / 3] = -math.inf
            x[:, : n // 2] = -math.inf
            x[:, -1] = 0.0
        case "ascending":
            # In even rows each tile brings a new maximum, in odd ones only the first does. Between the first and
            # the last tile the scores differ by more than exp can hold.
            ramp = torch.linspace(-1, 1, n, device=device) * min(n / 2, 150)
            x = x + torch.where(even, ramp, -ramp)
        case "ties":
            # Even rows have one value, odd ones two: many elements share the maximum.
            x = 100 * x[:, :1] + torch.where(even, 0.0, (x > 0).float())
        case "one-hot":
            # One weight is nearly 1: a wrong index shows as a wrong value, not as noise.
            hot = torch.randint(n, (m,), generator=generator, device=device)
            x[torch.arange(m, device=device), hot] += 30.0
        case _:
            raise ValueError(f"no family {family!r}")
    return (x,)


def _reference(inputs: Tensors) -> torch.Tensor:
    return inputs[0].double().softmax(1)


def _bound(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    (x,) = inputs
    parts = x.split(max(_AT_ONCE // x.shape[1], 1))
    return torch.cat([tolerance.softmax(part.double(), torch.float32, _TILE) for part in parts])


def _work(shape: Shape) -> Work:
    """Each element read once and written once.

    That is all that DRAM must move even where a kernel reads a row twice, if the caches hold it meanwhile. A
    kernel that finds nothing there moves half as much again: 2/3 of a copy's rate is its best.

    Operations: a comparison, a difference, exp, a sum, a division.
    """
    size = shape.sizes["M"] * shape.sizes["N"]
    return Work(4 * size, 4 * size, operations=5 * size)


def _once(shape: Shape) -> Allowance:
    work = _work(shape)
    rule = _("each element read once, and written once")
    return Allowance(
        work.read, work.written, rule, _("A row that fits in a tile is loaded once, and stays there.")
    )


def _twice(shape: Shape) -> Allowance:
    work = _work(shape)
    rule = _("each element read twice, and written once")
    advice = _("The first pass gives both the maximum and the sum. Only the second one writes.")
    return Allowance(2 * work.read, work.written, rule, advice)


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1)


def _task(kernel: str, allowance: Callable[[Shape], Allowance]) -> Task:
    return Task(
        kernel=kernel,
        families=("normal", "large", "masked", "ascending", "ties", "one-hot"),
        inputs=_inputs,
        reference=_reference,
        bound=_bound,
        peers=(
            writing("torch.softmax", lambda inputs, output: torch.softmax(inputs[0], dim=1, out=output)),
            compiled(_softmax),
        ),
        work=_work,
        unit="GB/s",
        ceiling="copy",
        allowance=allowance,
    )


SOFTMAX = _task("softmax", _once)
ONLINE_SOFTMAX = _task("online_softmax", _twice)

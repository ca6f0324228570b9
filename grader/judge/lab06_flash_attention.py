"""Lab 06: O = softmax(Q Kᵀ / √D) V for each batch and head, fp16 in and out, accumulated in fp32.

Work is counted by pairs of a query and a key that it may see: 4 D operations each, half of them for the score and
half for the value. Without a mask there are S² pairs a head. In the causal case a query sees itself and all keys
before it, S (S + 1) / 2 pairs: the diagonal counts in full.
"""

import functools
import math
from collections.abc import Callable

import torch

from grader.catalog import Shape
from grader.judge import tolerance
from grader.judge.allowance import Allowance
from grader.judge.peers import attention
from grader.judge.task import Part, Task, Tensors, Work
from grader.messages import _

#: Queries of each head whose results are looked at where the whole would take too long.
ROWS = 128

#: The fewest queries that a block should have, for the count of bytes.
BLOCK = 64

FAMILIES = ("normal", "neighbour", "growing", "falling", "first key", "ties", "large", "steady", "climbing")


def _inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    size = batches, heads, length, depth = tuple(shape.sizes[name] for name in "BHSD")
    device = generator.device

    def normal(*extents: int) -> torch.Tensor:
        return torch.randn(*extents, generator=generator, device=device)

    q, k, v = normal(*size), normal(*size), normal(*size)
    steps = torch.linspace(-1, 1, length, device=device).view(1, 1, length, 1)
    positions = torch.arange(length, device=device)
    match family:
        case "normal":
            pass
        case "large":
            # Scores up to some tens: one key, or a few, have nearly all the weight.
            q, k = q * 4, k * 4
        case "neighbour":
            # The key before a query has all of its weight, if it may be seen: the result is that key's value, and
            # a wrong index or mask shows as a wrong value, not as noise.
            k = k * 3
            q = k.roll(1, dims=2) * 2
        case "growing":
            # Every tile brings a new maximum. In the causal case, what lies in the future outweighs what doesn't.
            q, k = q.abs() / 2, k / 8 + steps * 3
        case "falling":
            q, k = q.abs() / 2, k / 8 - steps * 3
        case "first key":
            # The first tile's maximum stays, and nearly all of the weight is there.
            q, k = q.abs() / 2, k / 8
            k[:, :, 0] += 2
        case "ties":
            # All scores are 0: the result is the mean of the values that may be seen.
            q = torch.zeros_like(q)
        case "steady":
            # Every 16 keys are the same again, and so is each column's value, which is then the result: what
            # rounding adds in half-precision sums has one sign.
            k = k[:, :, positions % 16 % length]
            v = (0.5 + torch.rand(1, 1, 1, depth, generator=generator, device=device) / 2).expand(size)
        case "climbing":
            # Tile by tile the scores rise by the same small step: an error in rescaling is made anew each time,
            # and adds up in the weights of the first keys, which the values single out.
            ones = torch.rand(batches, heads, length, 1, generator=generator, device=device)
            q = (0.5 + ones / 2).expand(size)
            k = (positions // 16 / 64).view(1, 1, length, 1).expand(size)
            v = (steps <= -0.5).expand(size) * v.abs()
        case _:
            raise ValueError(f"no family {family!r}")
    return q.half(), k.half(), v.half()


def scores(
    queries: torch.Tensor, keys: torch.Tensor, rows: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores as they are exponentiated, (rows, keys) of one head in float64, and how far they may be off in fp32.

    ``rows`` are the places of the queries in the sequence in the causal case: −∞ stands where a key comes later.
    """
    q, k = queries.double(), keys.double()
    scale = q.shape[-1] ** -0.5
    found = q @ k.mT * scale
    error = tolerance.accumulated(q.abs() @ k.abs().mT * scale, q.shape[-1])
    if rows is not None:
        later = torch.arange(k.shape[-2], device=k.device) > rows[..., None]
        found = found.masked_fill(later, -math.inf)
    return found, error


def _by_head(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """``function`` of each head's part of ``tensors``, (B, H, …): the scores of one head fit into memory."""
    batches, heads = tensors[0].shape[:2]
    parts = [[function(*(tensor[b, h] for tensor in tensors)) for h in range(heads)] for b in range(batches)]
    return torch.stack([torch.stack(row) for row in parts])


def _exact(causal: bool, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return scores(q, k, rows if causal else None)[0].softmax(-1) @ v.double()


def _error(causal: bool, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return tolerance.attention(*scores(q, k, rows if causal else None), v.double(), torch.float16)


def _with_rows(inputs: Tensors) -> Tensors:
    """The inputs, and each query's place in the sequence, (B, H, S)."""
    batches, heads, length = inputs[0].shape[:3]
    return *inputs, torch.arange(length, device=inputs[0].device).expand(batches, heads, length)


def _reference(causal: bool, inputs: Tensors) -> torch.Tensor:
    return _by_head(functools.partial(_exact, causal), *_with_rows(inputs))


def _bound(causal: bool, inputs: Tensors, _reference: torch.Tensor) -> torch.Tensor:
    return _by_head(functools.partial(_error, causal), *_with_rows(inputs))


def _part(causal: bool, inputs: Tensors, generator: torch.Generator) -> Part:
    """Some queries of every head, the first and the last among them, with all columns."""
    q, k, v = inputs
    batches, heads, length, depth = q.shape
    device = q.device
    order = torch.rand(batches, heads, length, generator=generator, device=device)
    rows = order.topk(min(ROWS, length)).indices
    rows[..., 0], rows[..., -1] = 0, length - 1
    index = (
        torch.arange(batches, device=device).view(-1, 1, 1, 1),
        torch.arange(heads, device=device).view(1, -1, 1, 1),
        rows[..., None],
        torch.arange(depth, device=device),
    )
    chosen = q.gather(2, rows[..., None].expand(-1, -1, -1, depth)), k, v, rows
    exact, error = (_by_head(functools.partial(function, causal), *chosen) for function in (_exact, _error))
    return Part(index, exact, error)


def _work(causal: bool, shape: Shape) -> Work:
    batches, heads, length, depth = (shape.sizes[name] for name in "BHSD")
    pairs = length * (length + 1) // 2 if causal else length * length
    tensor = 2 * batches * heads * length * depth
    return Work(3 * tensor, tensor, operations=4 * batches * heads * pairs * depth)


def _allowance(causal: bool, shape: Shape) -> Allowance:
    """Q and O once, K and V once for every block of queries. A block of fewer than 64 queries would be a waste.

    In the causal case the tiles that lie in the future must be left out, too. What is left is about half of all
    pairs, and the tiles on the diagonal: half of (S + 512) S pairs are enough for tiles of up to 256. That tells
    leaving out from masking if S is at least 768.
    """
    batches, heads, length, depth = (shape.sizes[name] for name in "BHSD")
    tensor = 2 * batches * heads * length * depth
    reads = tensor + 2 * tensor * math.ceil(length / BLOCK)
    rule = _("allowed: Q is read once and O written once; K and V are read once for every {block} queries").format(
        block=BLOCK
    )
    advice = _("Nothing but the result goes to global memory. Give each block 64 queries or more.")
    if not causal or length < 768:
        return Allowance(reads, tensor, rule, advice)
    pairs = length * (length + 512) // 2
    return Allowance(
        reads,
        tensor,
        _("{rule}; products of half of all tiles, and of those on the diagonal").format(rule=rule),
        _("Tiles of keys that come after all queries of the block need no work: let the loop end before them."),
        products=4 * batches * heads * pairs * depth,
    )


def _task(kernel: str, causal: bool) -> Task:
    return Task(
        kernel=kernel,
        families=FAMILIES,
        inputs=_inputs,
        reference=functools.partial(_reference, causal),
        bound=functools.partial(_bound, causal),
        part=functools.partial(_part, causal),
        peers=(attention("cuDNN", causal=causal), attention("flash", causal=causal)),
        work=functools.partial(_work, causal),
        allowance=functools.partial(_allowance, causal),
        unit="TFLOP/s",
        ceiling="float16",
    )


ATTENTION, CAUSAL_ATTENTION = _task("attention", causal=False), _task("causal_attention", causal=True)

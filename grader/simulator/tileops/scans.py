"""T.cumsum and T.cummax: inclusive scans of a tile in shared memory, in the card's own order.

A warp takes a line in segments of 32 elements. In a segment, each lane joins what lanes 1, 2, 4, 8 and 16 places
before it hold (Kogge and Stone's scan), then all lanes join what the segments before came to. Each step is rounded
to the tile's dtype, so results are those of the card, bit by bit. (TileLang brings a fragment's values to shared
memory and back by copies of its own.)
"""

from collections.abc import Callable
from math import prod

import torch
from torch.nn.functional import pad

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import DType
from grader.simulator.expressions import Scope, State
from grader.simulator.tileops.arguments import (
    check_count,
    check_options,
    constant_option,
    operation,
    truth_option,
)
from grader.simulator.tileops.tile import Runner, Tile
from grader.verdict.traffic import Kind

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

WARP = 32
BLOCKS = frozenset({32, 64, 128, 256, 512, 1024})  # threads a block for which the card's code exists
SHARED = (nodes.SHARED, nodes.SHARED_DYNAMIC)


def cumsum(call: nodes.Call, scope: Scope) -> Runner:
    return _scan(call, scope, lambda dtype: (torch.add, 0))


def cummax(call: nodes.Call, scope: Scope) -> Runner:
    return _scan(call, scope, _maximum)


def _maximum(dtype: DType) -> tuple[Combine, float]:
    if dtype.is_int:
        return dtype.in_order(torch.maximum), dtype.low
    if dtype.name == "float64":  # by comparison, where a NaN on the left stays and one on the right is ignored
        return lambda x, y: torch.where(x < y, y, x), float("-inf")
    return torch.fmax, float("-inf")


def _scan(call: nodes.Call, scope: Scope, rule: Callable[[DType], tuple[Combine, float]]) -> Runner:
    check_count(call, scope, 4)
    check_options(call, scope)
    source, target = (Tile(arg, call, scope) for arg in call.args[:2])
    dim, reverse = constant_option(call.args[2], call, scope), truth_option(call.args[3], call, scope)
    rank, dtype, name = len(source.array.shape), source.array.dtype, operation(call)
    if rank > 2 or len(target.array.shape) != rank or not 0 <= dim < rank:
        raise scope.unsupported(_("'{op}' of tiles that have not one or two dimensions").format(op=name))
    if any(tile.memory.scope not in SHARED for tile in (source, target)):
        raise scope.unsupported(
            _("'{op}' of a tile that is in neither shared memory nor a fragment").format(op=name)
        )
    if dtype != target.array.dtype or dtype.kind == "bool" or (dtype.size == 1 and dtype.kind == "float"):
        raise scope.unsupported(
            _("'{op}' from {a} to {b}").format(op=name, a=dtype.name, b=target.array.dtype.name)
        )
    if scope.program.kernel.threads[0] not in BLOCKS:
        raise scope.unsupported(
            _("'{op}' by a block whose number of threads is not 32, 64, 128, 256, 512 or 1024").format(op=name)
        )
    combine, identity = rule(dtype)
    meter, line = scope.program.meter, scope.line
    joined = scope.program.counters.operations(Kind.REDUCE, dtype.name)
    scope.program.note_read(source.array)
    scope.program.note_write(target.array)

    def run(state: State) -> None:
        sizes = source.extents(state)
        if sizes != target.extents(state):
            raise scope.unsupported(_("'{op}' of tiles of different shapes").format(op=name))
        count = prod(sizes)
        if count < 1:
            return
        meter.spend(line, 8 * count)
        meter.room(count * 48, line)
        joined(count - count // sizes[dim])
        lines = source.load(state).movedim(dim, -1)
        target.store(scan_lines(lines, combine, identity, dtype, reverse=reverse).movedim(-1, dim), state)

    return run


def scan_lines(
    values: torch.Tensor, combine: Combine, identity: float, dtype: DType, *, reverse: bool = False
) -> torch.Tensor:
    """The scan along the last dimension, from its end if ``reverse``."""
    length = values.shape[-1]
    padded = pad(values, (0, -length % WARP), value=identity)
    lanes = padded.unflatten(-1, (-1, WARP))
    if reverse:
        lanes = lanes.flip(-1, -2)
    for step in (1, 2, 4, 8, 16):
        joined = dtype.settle(combine(lanes[..., step:], lanes[..., :-step]))
        lanes = torch.cat((lanes[..., :step], joined), -1)
    carry = torch.full(lanes.shape[:-2], identity, dtype=lanes.dtype)
    segments = []
    for segment in lanes.unbind(-2):
        segments.append(dtype.settle(combine(segment, carry.unsqueeze(-1))))
        carry = segments[-1][..., -1]
    result = torch.stack(segments, -2)
    if reverse:
        result = result.flip(-1, -2)
    return result.flatten(-2)[..., :length]

"""T.reduce_*."""

from collections.abc import Callable
from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import cast
from grader.simulator.expressions import Scope, State
from grader.simulator.tileops.arguments import check_count, constant_option, truth_option
from grader.simulator.tileops.tile import Runner, Tile
from grader.verdict.traffic import Kind


def _fold(combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A reduction in pairs, each step in the values' dtype: half sums are rounded as they are on the card."""

    def reduce(values: torch.Tensor, dim: int) -> torch.Tensor:
        while values.shape[dim] > 1:
            half = values.shape[dim] // 2
            low, high, rest = values.split((half, half, values.shape[dim] - 2 * half), dim)
            values = torch.cat((combine(low, high), rest), dim) if rest.shape[dim] else combine(low, high)
        return values

    return reduce


def _sum(values: torch.Tensor, dim: int) -> torch.Tensor:
    if values.dtype in (torch.float16, torch.bfloat16):
        return _fold(torch.add)(values, dim)
    return values.sum(dim, keepdim=True).to(values.dtype)


def _extreme(
    plain: Callable[..., torch.Tensor], combine: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    def reduce(values: torch.Tensor, dim: int) -> torch.Tensor:
        found = plain(values, dim, keepdim=True)
        # A NaN loses against a number on the card, where torch's reductions keep it.
        if values.is_floating_point() and bool(found.isnan().any()):
            found = _fold(combine)(values, dim)
        return found

    return reduce


def _combine_max(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.fmax(x, y) if x.is_floating_point() else torch.maximum(x, y)


def _combine_min(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.fmin(x, y) if x.is_floating_point() else torch.minimum(x, y)


#: Kind -> what is done to each value, the reduction along a dimension (kept), how it joins what was there.
REDUCTIONS: dict[str, tuple[Callable[..., torch.Tensor] | None, Callable[..., torch.Tensor], Callable]] = {
    "sum": (None, _sum, torch.add),
    "abssum": (torch.abs, _sum, torch.add),
    "max": (None, _extreme(torch.amax, torch.fmax), _combine_max),
    "absmax": (torch.abs, _extreme(torch.amax, torch.fmax), _combine_max),
    "min": (None, _extreme(torch.amin, torch.fmin), _combine_min),
    "bitand": (None, _fold(torch.bitwise_and), torch.bitwise_and),
    "bitor": (None, _fold(torch.bitwise_or), torch.bitwise_or),
    "bitxor": (None, _fold(torch.bitwise_xor), torch.bitwise_xor),
}


def reduce(call: nodes.Call, scope: Scope) -> Runner:
    check_count(call, scope, 5)
    source, target = Tile(call.args[0], call, scope), Tile(call.args[1], call, scope)
    kind = call.args[2].value if isinstance(call.args[2], nodes.Text) else ""
    dim, clear = constant_option(call.args[3], call, scope), truth_option(call.args[4], call, scope)
    if kind not in REDUCTIONS or not 0 <= dim < len(source.array.shape):
        raise scope.unsupported(_("the reduction '{kind}' along dimension {dim}").format(kind=kind, dim=dim))
    each, along, join = REDUCTIONS[kind]
    dtype = target.array.dtype
    bits = kind.startswith("bit")
    if source.array.dtype.kind == "bool" or dtype.kind == "bool" or (bits and not dtype.is_int):
        raise scope.unsupported(_("the reduction '{kind}' of {dtype}").format(kind=kind, dtype=dtype.name))
    convert, meter, line = cast(source.array.dtype, dtype), scope.program.meter, scope.line
    count = scope.program.counters.operations(Kind.REDUCE, dtype.name)
    scope.program.note_read(source.array)
    scope.program.note_write(target.array)

    def run(state: State) -> None:
        sizes, found = source.extents(state), target.extents(state)
        kept = [size for axis, size in enumerate(sizes) if axis != dim]
        if min(sizes) < 1 or found not in (kept or [1], [*sizes[:dim], 1, *sizes[dim + 1 :]]):
            raise scope.unsupported(_("a reduction into a tile whose shape doesn't fit"))
        meter.spend(line, prod(sizes))
        meter.room(prod(sizes) * 24, line)
        count(prod(sizes) - (prod(found) if clear else 0))
        values = convert(source.load(state))
        if each is not None:
            values = dtype.settle(each(values))
        result = dtype.settle(along(values, dim)).reshape(found)
        if not clear:
            result = dtype.settle(join(target.load(state), result))
        target.store(result, state)

    return run

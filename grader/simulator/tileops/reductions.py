"""T.reduce_*: along one dimension of a tile, in the target's dtype.

As on the card, values are converted to the target's dtype first and joined in it, each step rounded, starting
from the operation's neutral value. The order of the steps on the card follows from how the tile is spread over
threads; here it is by halves. Only sums of floats depend on it, within rounding.

NaN: the hardware's max and min give the other operand, so a NaN is ignored, and a row of NaN alone gives the
neutral value. With ``nan_propagate=True`` (16-bit targets) a NaN stays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import DType, cast
from grader.simulator.expressions import Scope, State
from grader.simulator.tileops.arguments import check_count, check_options, constant_option, truth_option
from grader.simulator.tileops.tile import Runner, Tile, covers, region
from grader.verdict.traffic import Kind as Operation

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Kind:
    """``join`` of two values; ``neutral``: what joining starts from; ``magnitude``: of the values' magnitudes."""

    join: Combine
    neutral: Callable[[DType], float]
    keeps_nan: Combine | None = None  # the join if a NaN shall stay
    magnitude: bool = False
    bits: bool = False


def _fmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.fmax(x, y) if x.is_floating_point() else torch.maximum(x, y)


def _fmin(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.fmin(x, y) if x.is_floating_point() else torch.minimum(x, y)


def _lowest(dtype: DType) -> float:
    return dtype.low if dtype.is_int else float("-inf")


def _highest(dtype: DType) -> float:
    return dtype.wrap(dtype.high) if dtype.is_int else float("inf")


def _zero(_dtype: DType) -> float:
    return 0


#: Kind of reduction -> what it does. T.alloc_reducer's operations are some of these.
KINDS: dict[str, Kind] = {
    "sum": Kind(torch.add, _zero),
    "abssum": Kind(torch.add, _zero, magnitude=True),
    "max": Kind(_fmax, _lowest, torch.maximum),
    "absmax": Kind(_fmax, _zero, torch.maximum, magnitude=True),
    "min": Kind(_fmin, _highest, torch.minimum),
    "bitand": Kind(torch.bitwise_and, lambda dtype: dtype.wrap(-1), bits=True),
    "bitor": Kind(torch.bitwise_or, _zero, bits=True),
    "bitxor": Kind(torch.bitwise_xor, _zero, bits=True),
}


def kind_of(name: str, dtype: DType) -> Kind | None:
    """The kind of reduction of this name, for values of a dtype."""
    kind = KINDS.get(name)
    return replace(kind, join=dtype.in_order(kind.join)) if kind and kind.join in (_fmax, _fmin) else kind


WITHOUT_EFFECT = ("batch", "enable_fadd2")  # how threads share the work
HALVES = ("float16", "bfloat16")


def fold(values: torch.Tensor, dim: int, kind: Kind, dtype: DType, *, keep_nan: bool = False) -> torch.Tensor:
    """``values`` (in the carrier) joined along ``dim``, which stays with extent 1."""
    join = kind.keeps_nan if keep_nan else kind.join
    if kind.magnitude and dtype.kind != "uint":
        values = dtype.settle(values.abs())
    if join is torch.add and (dtype.is_int or dtype.size >= 4):
        return dtype.settle(values.sum(dim, keepdim=True).to(dtype.carrier))
    if join in (_fmax, _fmin) and not (dtype.kind == "float" and bool(values.isnan().any())):
        return values.amax(dim, keepdim=True) if join is _fmax else values.amin(dim, keepdim=True)
    while values.shape[dim] > 1:
        half = values.shape[dim] // 2
        low, high, rest = values.split((half, half, values.shape[dim] - 2 * half), dim)
        joined = dtype.settle(join(low, high))
        values = torch.cat((joined, rest), dim) if rest.shape[dim] else joined
    neutral = torch.tensor(kind.neutral(dtype), dtype=dtype.carrier)
    return dtype.settle(join(neutral, values))


@dataclass(frozen=True)
class Reduction:
    """A call of T.reduce_*, read: ``along`` joins the values, converted, along a dimension (which stays)."""

    kind: Kind
    dim: int
    clear: bool
    keep_nan: bool
    dtype: DType
    convert: Callable[[torch.Tensor], torch.Tensor]

    def along(self, values: torch.Tensor, dim: int) -> torch.Tensor:
        return fold(self.convert(values), dim, self.kind, self.dtype, keep_nan=self.keep_nan)

    def join(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return self.dtype.settle((self.kind.keeps_nan if self.keep_nan else self.kind.join)(old, new))


def read_reduction(call: nodes.Call, scope: Scope) -> Reduction:
    """Raises Unsupported for what isn't one, and for what TileLang doesn't compile or gets wrong."""
    check_count(call, scope, 5)
    check_options(call, scope, "nan_propagate", *WITHOUT_EFFECT)
    source, target = (region(arg, call, scope) for arg in call.args[:2])
    name = call.args[2].value if isinstance(call.args[2], nodes.Text) else ""
    dim, clear = constant_option(call.args[3], call, scope), truth_option(call.args[4], call, scope)
    given, dtype = scope.dtype(source.buffer.dtype), scope.dtype(target.buffer.dtype)
    kind, rank = kind_of(name, dtype), len(source.mins)
    if kind is None or not 0 <= dim < rank:
        raise scope.unsupported(_("the reduction '{kind}' along dimension {dim}").format(kind=name, dim=dim))
    if "bool" in (given.kind, dtype.kind) or (kind.bits and not dtype.is_int):
        raise scope.unsupported(_("the reduction '{kind}' of {dtype}").format(kind=name, dtype=dtype.name))
    if dtype.name.startswith("float8") and name in ("max", "min"):
        raise scope.unsupported(_("the reduction '{kind}' of {dtype}").format(kind=name, dtype=dtype.name))
    if len(target.mins) != max(rank - 1, 1):
        raise scope.unsupported(
            _(
                "a reduction that keeps its dimension, which TileLang doesn't compile: the target must not have "
                "dimension {dim}"
            ).format(dim=dim)
        )
    for tile in (source, target):
        if tile.buffer.scope == nodes.FRAGMENT and not covers(tile):
            raise scope.unsupported(
                _("a reduction of a part of the fragment '{name}': TileLang would reduce all of it").format(
                    name=tile.buffer.name
                )
            )
    keep_nan = bool(call.annotations.get("nan_propagate")) and kind.keeps_nan is not None
    if keep_nan and dtype.name not in HALVES:
        raise scope.unsupported(_("nan_propagate for {dtype}").format(dtype=dtype.name))
    return Reduction(kind, dim, clear, keep_nan, dtype, cast(given, dtype))


def reduce(call: nodes.Call, scope: Scope) -> Runner:
    reduction = read_reduction(call, scope)
    source, target = Tile(call.args[0], call, scope), Tile(call.args[1], call, scope)
    program, dim = scope.program, reduction.dim
    meter, line = program.meter, scope.line
    count = program.counters.operations(Operation.REDUCE, reduction.dtype.name)
    program.note_read(source.array)
    program.note_write(target.array)

    def run(state: State) -> None:
        sizes, found = source.extents(state), target.extents(state)
        kept = [size for axis, size in enumerate(sizes) if axis != dim]
        if min(sizes) < 1 or found != (kept or [1]):
            raise scope.unsupported(_("a reduction into a tile whose shape doesn't fit"))
        meter.spend(line, prod(sizes))
        meter.room(prod(sizes) * 24, line)
        count(prod(sizes) - (prod(found) if reduction.clear else 0))
        result = reduction.along(source.load(state), dim).reshape(found)
        if not reduction.clear:
            result = reduction.join(target.load(state), result)
        target.store(result, state)

    return run

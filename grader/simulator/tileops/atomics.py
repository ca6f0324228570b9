"""T.atomic_add, T.atomic_max and T.atomic_min of tiles: into each element, at once.

Blocks come one after the other here, so that runs repeat; on the card their order is chance, and sums of floats
differ by rounding. No atomic update is a race with another, but it is one with a plain access of another block.
As in copies, elements out of bounds of a global buffer are left out.
"""

from collections.abc import Callable
from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import DType, cast
from grader.simulator.expressions import Scope, State, compile_expression, scalar
from grader.simulator.faults import FaultKind
from grader.simulator.memory import Array, Window
from grader.simulator.operations import counted
from grader.simulator.tileops.arguments import check_count, check_options, operation
from grader.simulator.tileops.copies import Side, intersect
from grader.simulator.tileops.tile import Runner, Tile
from grader.verdict.traffic import Kind

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: How memory is ordered and moved: no difference here, where everything has an order.
WITHOUT_EFFECT = ("memory_order", "use_tma", "coalesced_width")

#: dtypes that the card's code has each operation for.
ADDED = frozenset({"int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64"})
COMPARED = frozenset(
    {"int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "float64"}
)


def larger(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """By comparison, as the card does it: nothing is larger than a NaN, and a NaN is larger than nothing."""
    return torch.where(old < new, new, old)


def smaller(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.where(new < old, new, old)


def add(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return old + new


def add_without_subnormals(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Sums of float32 in global memory: PTX says of ``atom.add.f32`` that it takes and gives 0 for subnormals."""
    return _flush(_flush(old) + _flush(new))


def _flush(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < torch.finfo(torch.float32).smallest_normal, torch.copysign(torch.zeros(()), x), x)


def sum_for(array: Array) -> Combine:
    """What an atomic addition to an element of this array does."""
    return add_without_subnormals if array.memory.is_global and array.dtype.name == "float32" else add


def atomic_add(call: nodes.Call, scope: Scope) -> Runner:
    return _atomic(call, scope, sum_for, ADDED)


def atomic_max(call: nodes.Call, scope: Scope) -> Runner:
    return _atomic(call, scope, lambda array: larger, COMPARED)


def atomic_min(call: nodes.Call, scope: Scope) -> Runner:
    return _atomic(call, scope, lambda array: smaller, COMPARED)


def _atomic(call: nodes.Call, scope: Scope, rule: Callable[[Array], Combine], dtypes: frozenset[str]) -> Runner:
    check_count(call, scope, 2)
    check_options(call, scope, *WITHOUT_EFFECT)
    target = Tile(call.args[1], call, scope)
    array, dtype, program = target.array, target.array.dtype, scope.program
    name = operation(call)
    if dtype.name not in dtypes or array.memory.scope not in (nodes.GLOBAL, nodes.SHARED, nodes.SHARED_DYNAMIC):
        raise scope.unsupported(
            _("'{op}' of {dtype} in {scope} memory").format(op=name, dtype=dtype.name, scope=array.memory.scope)
        )
    values = _Values(call, target, scope)
    combine, meter, line = rule(array), program.meter, scope.line
    program.note_accumulation(array, writes=True)
    side = Side(target, target.looped)
    guarded, count = program.counters.guards(), program.counters.operations(Kind.ATOMIC, dtype.name)

    def run(state: State) -> None:
        extents = target.extents(state)
        sizes = [extents[axis] for axis in target.looped]
        if any(size < 1 for size in sizes):
            return
        meter.spend(line, 2 * prod(sizes))
        inside = side.clip(sizes, state, FaultKind.OUT_OF_BOUNDS_WRITE)
        inside = values.clip(sizes, inside, state)
        window = None if inside is None else side.window(inside)
        if array.memory.is_global:
            guarded(prod(sizes) - (0 if window is None else window.count))
        if window is None:
            return
        count(window.count)
        new = values.load(inside, state)
        target.update(window, state, lambda old: dtype.settle(combine(old, new)))

    return run


class _Values:
    """What is combined with the target: a tile, element by element, or one value for all."""

    def __init__(self, call: nodes.Call, target: Tile, scope: Scope) -> None:
        node = call.args[0]
        self.target, self.side = target, None
        if isinstance(node, nodes.Region):
            tile = Tile(node, call, scope)
            self.tile = tile
            if len(tile.looped) != len(target.looped) or any(
                tile.constant_extent(a) != target.constant_extent(b)
                for a, b in zip(tile.looped, target.looped, strict=True)
            ):
                raise scope.unsupported(_("'{op}' of tiles of different shapes").format(op=operation(call)))
            self.side = Side(tile, tile.looped)
            scope.program.note_read(tile.array)
            dtype: DType = tile.array.dtype
        else:
            code = scalar(compile_expression(node, scope), scope, _("a value of an atomic operation"))
            self.evaluate, dtype = counted(code, node, scope).run, code.dtype
        self.convert = cast(dtype, target.array.dtype)

    def clip(
        self, sizes: list[int], inside: tuple[tuple[int, int], ...] | None, state: State
    ) -> tuple[tuple[int, int], ...] | None:
        if self.side is None or inside is None:
            return inside
        read = self.side.clip(sizes, state, FaultKind.OUT_OF_BOUNDS_READ)
        return None if read is None else intersect(inside, read)

    def load(self, inside: tuple[tuple[int, int], ...], state: State) -> torch.Tensor:
        dtype = self.target.array.dtype
        if self.side is None:
            return dtype.tensor(self.convert(self.evaluate(state)))
        window: Window = self.side.window(inside)
        self.tile.check_read(window, state)
        self.tile.note_read(window)
        source = self.tile.array
        return self.convert(source.dtype.decode(source.raw(window))).clone()

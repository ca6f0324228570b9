"""What an expression computes, read off its nodes: operations by kind, dtype, and the loops they depend on.

Counted are operations on floats, and on integers that come from memory; see ``grader.verdict.traffic``. What is
evaluated only where a condition holds (the sides of ``if_then_else``, the right side of ``and``) counts where it
is evaluated: such a part is wrapped by ``counted``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from grader.ir import nodes
from grader.simulator import functions
from grader.simulator.expressions import Code, Evaluator, Scope, State
from grader.verdict.traffic import Kind

#: Binary operators on floats.
_BINARY = {
    "Add": Kind.ADD,
    "Sub": Kind.ADD,
    "Mul": Kind.MULTIPLY,
    "Div": Kind.DIVIDE,
    "Mod": Kind.DIVIDE,
    "FloorDiv": Kind.DIVIDE,
    "FloorMod": Kind.DIVIDE,
    "Min": Kind.EXTREME,
    "Max": Kind.EXTREME,
}

#: Calls that are no FUNCTION. Those with none move or mark bits.
_CALLS: dict[str, tuple[Kind, ...]] = {
    "tirx.fabs": (),
    "tirx.copysign": (),
    "tirx.reinterpret": (),
    "tirx.likely": (),
    "tl.__ldg": (),
    "tirx.fmod": (Kind.DIVIDE,),
    "tl.ieee_add": (Kind.ADD,),
    "tl.ieee_sub": (Kind.ADD,),
    "tl.fmul": (Kind.MULTIPLY,),
    "tl.ieee_mul": (Kind.MULTIPLY,),
    "tl.ieee_fdiv": (Kind.DIVIDE,),
    "tl.fma": (Kind.MULTIPLY, Kind.ADD),
    "tl.ieee_fmaf": (Kind.MULTIPLY, Kind.ADD),
    "tl.clamp": (Kind.EXTREME, Kind.EXTREME),
}
_LAZY = "tirx.if_then_else"

Count = Callable[[State], None]


@dataclass(frozen=True)
class Origin:
    """Where a value comes from: the loops of the nest that it depends on, whether memory is among it."""

    axes: frozenset[int] = frozenset()
    loaded: bool = False
    constant: bool = False

    def __or__(self, other: "Origin") -> "Origin":
        return Origin(self.axes | other.axes, self.loaded or other.loaded, self.constant and other.constant)


_CONSTANT = Origin(constant=True)


def count_operations(node: nodes.Expr, scope: Scope) -> Count | None:
    """What counts one evaluation of an expression for the active iterations; None if it computes nothing."""
    walk = _Walk(scope)
    walk.visit(node)
    if not walk.found:
        return None
    counters, nest, depth = scope.program.counters, scope.nest, len(scope.axes)
    counts = counters.counts
    by_axes: dict[frozenset[int], list[tuple[int, int]]] = {}
    for (kind, dtype, axes), times in walk.found.items():
        slot = counters.slot(("operations", kind, dtype))
        by_axes.setdefault(axes, []).append((slot, times))
    extents = scope.extents
    fixed = None
    if extents is not None:
        fixed = [
            (slot, times * counters.touched(None, _sizes(extents, axes)))
            for axes, slots in by_axes.items()
            for slot, times in slots
        ]

    def count(state: State) -> None:
        mask = state.mask
        if mask is None and fixed is not None:
            for slot, times in fixed:
                counts[slot] += times
            return
        running = nest.sizes(depth)
        for axes, slots in by_axes.items():
            evaluations = counters.touched(mask, _sizes(running, axes))
            for slot, times in slots:
                counts[slot] += times * evaluations

    return count


def _sizes(extents: tuple[int, ...], axes: frozenset[int]) -> tuple[int, ...]:
    return tuple(extent if axis in axes else 1 for axis, extent in enumerate(extents))


def counted(code: Code, node: nodes.Expr, scope: Scope) -> Code:
    """The expression ``node``, which counts its operations each time it is evaluated."""
    count = count_operations(node, scope)
    if count is None:
        return code

    def counting(run: Evaluator) -> Evaluator:
        def evaluate(state: State) -> object:
            count(state)
            return run(state)

        return evaluate

    return replace(code, run=counting(code.run), test=None if code.test is None else counting(code.test))


def note_variable(var: nodes.Var, value: nodes.Expr, scope: Scope) -> None:
    """``var`` stands for ``value`` in what is compiled from now on."""
    scope.program.origins[var] = _Walk(scope).origin(value)


class _Walk:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.loops = {axis.var: number for number, axis in enumerate(scope.axes)}
        self.everywhere = Origin(frozenset(self.loops.values()), loaded=True)
        self.found: dict[tuple[Kind, str, frozenset[int]], int] = {}
        self.quiet = 0

    def origin(self, node: nodes.Expr) -> Origin:
        """Where a value comes from, without a count of what computes it."""
        self.quiet += 1
        found = self.visit(node)
        self.quiet -= 1
        return found

    def visit(self, node: nodes.Expr) -> Origin:
        match node:
            case nodes.Const() | nodes.Text():
                return _CONSTANT
            case nodes.Var():
                if node in self.loops:
                    return Origin(frozenset({self.loops[node]}))
                return self.scope.program.origins.get(node, Origin())
            case nodes.Binary(op="And" | "Or", a=a, b=b):
                return self.visit(a) | self.origin(b)
            case nodes.Binary(op=op, a=a, b=b):
                origin = self.visit(a) | self.visit(b)
                kind = Kind.COMPARE if op in functions.COMPARISONS else _BINARY[op]
                return self.note((kind,), a.dtype, origin)
            case nodes.Not(a=value) | nodes.Cast(value=value):
                return self.visit(value)
            case nodes.Select(condition=condition, true=true, false=false):
                return self.visit(condition) | self.visit(true) | self.visit(false)
            case nodes.Load():
                return self.load(node)
            case nodes.Call():
                return self.call(node)
        return self.everywhere

    def load(self, node: nodes.Load) -> Origin:
        array, private = self.scope.program.array_for(node.buffer, self.scope)
        if private and not array.lead:  # each iteration's own
            return self.everywhere
        origin = Origin(loaded=True)
        for index in node.indices:
            origin |= self.origin(index)
        return origin

    def call(self, node: nodes.Call) -> Origin:
        op, args = node.op, node.args
        if op.startswith("tl.atomic_"):  # which counts itself
            return self.everywhere
        if op == "tl.access_ptr":
            return self.visit(args[0])
        if op == _LAZY and len(args) == 3:
            return self.visit(args[0]) | self.origin(args[1]) | self.origin(args[2])
        origin = _CONSTANT
        for arg in args:
            origin |= self.visit(arg)
        if op in functions.PREDICATES:
            return self.note((Kind.COMPARE,), args[0].dtype, origin)
        if node.dtype == "bool":
            return origin
        return self.note(_CALLS.get(op, (Kind.FUNCTION,)), node.dtype, origin)

    def note(self, kinds: tuple[Kind, ...], dtype: str, origin: Origin) -> Origin:
        """Operations on operands of a dtype, which are evaluated ahead if they are constants."""
        real = "float" in dtype
        if self.quiet or origin.constant or not (real or origin.loaded) or dtype in ("bool", "handle"):
            return origin
        for kind in kinds:
            told = kind if real or kind is Kind.COMPARE else Kind.INTEGER
            key = (told, dtype, origin.axes)
            self.found[key] = self.found.get(key, 0) + 1
        return origin

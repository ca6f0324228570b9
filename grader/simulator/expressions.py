"""Expressions of the IR, compiled once into Python closures over a State.

Inside a T.Parallel nest of n loops an expression is evaluated for all iterations at once: a tensor of n
dimensions, of size 1 where it doesn't depend on a loop. Outside, and where an expression is the same in all
iterations, it is a scalar (see dtypes). Integer expressions that are affine in the loops' variables also know
their base and coefficients: that gives bounds, guards and strided accesses without index tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from grader.ir import nodes, show
from grader.messages import _
from grader.simulator import functions
from grader.simulator.dtypes import DTYPES, DType, Value, cast
from grader.simulator.faults import FaultKind, Unsupported

if TYPE_CHECKING:
    from grader.simulator.program import Program


class State:
    """What changes while a kernel runs: values of variables, the active iterations, the block.

    ``left`` are iterations of a nest that are done with this turn of a loop in it, ``broke`` with the loop.
    """

    __slots__ = ("block", "block_number", "broke", "left", "mask", "vars")

    def __init__(self) -> None:
        self.vars: list[Value] = []
        self.mask: torch.Tensor | None = None
        self.left: torch.Tensor | None = None
        self.broke: torch.Tensor | None = None
        self.block: tuple[int, int, int] = (0, 0, 0)
        self.block_number: int | torch.Tensor = 0  # of blocks that run at once, over their dimensions


Evaluator = Callable[[State], Value]


@dataclass(slots=True)
class Affine:
    """``base + sum(coefficient * loop)``, where every loop counts from 0; ``base`` is an int or gives one."""

    base: int | Evaluator
    coefficients: tuple[int, ...]

    def at(self, state: State) -> int:
        return self.base if isinstance(self.base, int) else self.base(state)

    def spread(self, extents: tuple[int, ...]) -> tuple[int, int]:
        """The lowest and highest offset from the base."""
        low = high = 0
        for coefficient, extent in zip(self.coefficients, extents, strict=True):
            reach = coefficient * (extent - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


@dataclass(slots=True)
class Code:
    """A compiled expression.

    ``varies``: it is a tensor over the iterations of the nest, not a scalar. ``test``, of truth values, may
    give a plain bool even if the expression varies: when it is the same in all active iterations.
    """

    dtype: DType
    run: Evaluator
    varies: bool = False
    constant: Value | None = None
    affine: Affine | None = None
    test: Evaluator | None = None
    size: int = 1  # nodes

    def truth(self) -> Evaluator:
        return self.test or self.run


@dataclass
class Axis:
    """A loop of a T.Parallel nest. ``extent`` is None if it is only known when the nest runs."""

    var: nodes.Var
    extent: int | None


@dataclass
class Scope:
    """Where an expression or statement stands: the variables that it may use and the nest around it."""

    program: "Program"
    variables: dict[nodes.Var, Code] = field(default_factory=dict)
    rank: int = 0  # loops of the nest, also those that are further inside
    axes: list[Axis] = field(default_factory=list)  # loops of the nest around this place
    nest: object | None = None  # the statements.Nest
    line: nodes.Line | None = None
    loops: int = 0  # serial and while loops around this place

    @property
    def extents(self) -> tuple[int, ...] | None:
        """Sizes of the nest's dimensions here, or None if one is only known at run time."""
        sizes = [axis.extent for axis in self.axes]
        return None if None in sizes else (*sizes, *[1] * (self.rank - len(sizes)))

    def inside(self, nest: object, depth: int) -> "Scope":
        """The scope inside a T.Parallel of ``depth`` loops that stands here."""
        rank = self.rank + depth
        variables = {var: _widened(code, rank) if code.varies else code for var, code in self.variables.items()}
        return Scope(self.program, variables, rank, list(self.axes), nest, self.line)

    def unsupported(self, what: str) -> Unsupported:
        return Unsupported(what, self.line)

    def dtype(self, name: str) -> DType:
        found = DTYPES.get(name)
        if found is None:
            raise self.unsupported(_("values of the dtype '{dtype}'").format(dtype=name))
        return found


def _widened(code: Code, rank: int) -> Code:
    """An expression over the blocks that run at once, inside a T.Parallel: with its loops' dimensions too."""

    def widen(run: Evaluator) -> Evaluator:
        def wide(state: State) -> Value:
            value = run(state)
            if not isinstance(value, torch.Tensor):
                return value
            return value.reshape(*value.shape, *[1] * (rank - value.ndim))

        return wide

    affine = code.affine
    if affine is not None:
        affine = Affine(affine.base, affine.coefficients + (0,) * (rank - len(affine.coefficients)))
    test = None if code.test is None else widen(code.test)
    return replace(code, run=widen(code.run), affine=affine, test=test)


def scalar(code: Code, scope: Scope, what: str) -> Code:
    """Insists on an expression that is the same in all iterations."""
    if code.varies:
        raise scope.unsupported(_("{what} that differs between iterations of T.Parallel").format(what=what))
    return code


def integer(node: nodes.Expr, scope: Scope, what: str) -> Code:
    """A compiled integer scalar."""
    code = scalar(compile_expression(node, scope), scope, what)
    if not code.dtype.is_int:
        raise scope.unsupported(_("{what} that is no integer").format(what=what))
    if code.dtype.is_uint64:
        run, known, number = code.run, code.constant, code.dtype.number
        return replace(
            code, run=lambda state: number(run(state)), constant=None if known is None else number(known)
        )
    return code


def constant(dtype: DType, value: Value, rank: int) -> Code:
    affine = Affine(value, (0,) * rank) if dtype.is_int else None
    return Code(dtype, lambda state: value, constant=value, affine=affine)


def compile_expression(node: nodes.Expr, scope: Scope) -> Code:
    scope.program.charge_compilation(scope.line)
    match node:
        case nodes.Const(dtype=dtype, value=value):
            found = scope.dtype(dtype)
            if not found.holds(value):
                raise scope.unsupported(_("a number that no {dtype} can be").format(dtype=dtype))
            return constant(found, found.scalar(value), scope.rank)
        case nodes.Var():
            code = scope.variables.get(node)
            if code is None:
                if node in scope.program.thread_variables:
                    raise scope.unsupported(_("the thread index '{name}'").format(name=node.name))
                raise scope.unsupported(_("the variable '{name}', which has no value here").format(name=node.name))
            if scope.rank and not code.varies and code.dtype.is_int:
                base = code.run if code.constant is None else code.constant
                affine = Affine(base, (0,) * scope.rank)
                return Code(code.dtype, code.run, constant=code.constant, affine=affine)
            return code
        case nodes.Binary():
            return _binary(node, scope)
        case nodes.Not(a=a):
            return negate(truth(a, scope), scope.rank)
        case nodes.Cast(dtype=dtype, value=value):
            return _cast(compile_expression(value, scope), scope.dtype(dtype), scope)
        case nodes.Select(condition=condition, true=true, false=false):
            return choose(truth(condition, scope), *pair(true, false, node.dtype, scope), scope, lazy=False)
        case nodes.Load():
            from grader.simulator.elements import compile_load

            return compile_load(node, scope)
        case nodes.Call():
            from grader.simulator.calls import compile_call

            return compile_call(node, scope)
    raise scope.unsupported(_("'{what}' where a number is expected").format(what=_describe(node)))


def truth(node: nodes.Expr, scope: Scope) -> Code:
    """A compiled condition."""
    code = compile_expression(node, scope)
    if code.dtype.kind != "bool":
        raise scope.unsupported(_("a condition that is no truth value"))
    return code


def _describe(node: nodes.Expr) -> str:
    return show(node)[:80]


def pair(a: nodes.Expr, b: nodes.Expr, dtype: str, scope: Scope) -> tuple[Code, Code]:
    """Two operands that must have the dtype of their result."""
    first, second = compile_expression(a, scope), compile_expression(b, scope)
    if not first.dtype.name == second.dtype.name == dtype:
        raise scope.unsupported(_("an expression that mixes dtypes without a cast"))
    return first, second


def finish(
    dtype: DType, run: Evaluator, operands: tuple[Code, ...], scope: Scope, affine: Affine | None = None
) -> Code:
    """A pure expression of its operands: evaluated now if they are constants."""
    if operands and all(code.constant is not None for code in operands):
        return constant(dtype, run(State()), scope.rank)
    varies = any(code.varies for code in operands)
    return Code(dtype, run, varies, affine=affine, size=1 + sum(code.size for code in operands))


def _binary(node: nodes.Binary, scope: Scope) -> Code:
    op = node.op
    if op in ("And", "Or"):
        from grader.simulator.operations import counted

        return logical(op, truth(node.a, scope), counted(truth(node.b, scope), node.b, scope), scope.rank)
    if op in functions.COMPARISONS:
        return _comparison(node, scope)
    a, b = pair(node.a, node.b, node.dtype, scope)
    dtype = a.dtype
    if dtype.kind == "bool":
        raise scope.unsupported(_("arithmetic on truth values"))
    x, y = a.run, b.run
    if dtype.kind == "float":
        function = functions.FLOAT_ARITHMETIC[op]
        if dtype.raw == dtype.carrier:
            return finish(dtype, lambda state: function(x(state), y(state)), (a, b), scope)
        settle = dtype.settle
        return finish(dtype, lambda state: settle(function(x(state), y(state))), (a, b), scope)
    if op in functions.DIVISIONS:
        return _division(op, a, b, node, scope)
    affine = _affine(op, a, b)
    if a.varies or b.varies:
        function = functions.integer_arithmetic(op, dtype, tensors=True)
        if dtype.raw == dtype.carrier:
            return finish(dtype, lambda state: function(x(state), y(state)), (a, b), scope, affine)
        settle = dtype.settle
        return finish(dtype, lambda state: settle(function(x(state), y(state))), (a, b), scope, affine)
    function, wrap = functions.integer_arithmetic(op, dtype, tensors=False), dtype.wrap
    low, high = dtype.scalars

    def run(state: State) -> int:
        value = function(x(state), y(state))
        return value if low <= value <= high else wrap(value)

    code = finish(dtype, run, (a, b), scope)
    if code.affine is None:
        code.affine = Affine(run, (0,) * scope.rank)
    return code


def _affine(op: str, a: Code, b: Code) -> Affine | None:
    first, second = a.affine, b.affine
    if first is None or second is None:
        return None
    p, q = first.base, second.base
    if op in ("Add", "Sub"):
        sign = 1 if op == "Add" else -1
        coefficients = tuple(c + sign * d for c, d in zip(first.coefficients, second.coefficients, strict=True))
        if isinstance(p, int) and isinstance(q, int):
            return Affine(p + sign * q, coefficients)
        if isinstance(q, int):
            offset = sign * q
            return Affine(lambda state: p(state) + offset, coefficients)
        if isinstance(p, int):
            return Affine(lambda state: p + sign * q(state), coefficients)
        return Affine(lambda state: p(state) + sign * q(state), coefficients)
    if op == "Mul":
        if a.constant is not None:
            first, second, b = second, first, a
        if b.constant is None:
            return None
        p, factor = first.base, b.constant
        coefficients = tuple(c * factor for c in first.coefficients)
        if isinstance(p, int):
            return Affine(p * factor, coefficients)
        return Affine(lambda state: p(state) * factor, coefficients)
    return None


def _division(op: str, a: Code, b: Code, node: nodes.Expr, scope: Scope) -> Code:
    dtype, x, y = a.dtype, a.run, b.run
    divide, divide_tensors = functions.divide, functions.divide_tensors
    line, program = scope.line, scope.program
    if b.constant is not None and b.constant not in (0, -1):
        divisor = b.constant
        if not a.varies:
            code = finish(dtype, lambda state: divide(op, x(state), divisor, dtype), (a, b), scope)
        elif dtype.is_uint64:
            code = finish(dtype, lambda state: divide_tensors(op, x(state), divisor, dtype), (a, b), scope)
        elif op in functions.REMAINDERS:
            remainder = torch.fmod if functions.DIVISIONS[op] == "trunc" else torch.remainder
            code = finish(dtype, lambda state: remainder(x(state), divisor), (a, b), scope)
        else:
            mode = functions.DIVISIONS[op]
            code = finish(dtype, lambda state: torch.div(x(state), divisor, rounding_mode=mode), (a, b), scope)
    elif not a.varies and not b.varies:

        def on_scalars(state: State) -> int:
            divisor = y(state)
            if divisor == 0:
                program.fault(FaultKind.DIVISION_BY_ZERO, None, line, state, node)
                return 0
            return divide(op, x(state), divisor, dtype)

        code = Code(dtype, on_scalars, size=1 + a.size + b.size)
    else:

        def on_tensors(state: State) -> torch.Tensor:
            dividend, divisor = x(state), torch.as_tensor(y(state), dtype=torch.int64)
            zero = divisor == 0
            count = active_count(zero, state.mask)
            if count:
                program.fault(FaultKind.DIVISION_BY_ZERO, None, line, state, node, count)
            result = divide_tensors(op, dividend, torch.where(zero, 1, divisor), dtype)
            return torch.where(zero, 0, result).to(dtype.carrier)

        code = Code(dtype, on_tensors, varies=True, size=1 + a.size + b.size)
    if not code.varies and code.affine is None:
        code.affine = Affine(code.run, (0,) * scope.rank)
    return code


def active_count(flags: torch.Tensor, mask: torch.Tensor | None) -> int:
    """How many iterations that are active have their flag set."""
    if not bool(flags.any()):
        return 0
    return int((flags if mask is None else flags & mask).sum())


def _comparison(node: nodes.Binary, scope: Scope) -> Code:
    a, b = compile_expression(node.a, scope), compile_expression(node.b, scope)
    if a.dtype != b.dtype or node.dtype != "bool":
        raise scope.unsupported(_("a comparison that mixes dtypes without a cast"))
    if a.dtype.kind == "float" and _same(node.a, node.b, a, b):
        raise scope.unsupported(_("a comparison of a float with itself, which the compiler removes"))
    boolean = DTYPES["bool"]
    function, x, y = functions.compare(node.op, a.dtype), a.run, b.run
    if not (a.varies or b.varies):
        return finish(boolean, lambda state: bool(function(x(state), y(state))), (a, b), scope)
    code = finish(boolean, lambda state: function(x(state), y(state)), (a, b), scope)
    code.test = _by_bounds(node.op, a, b, code.run, scope)
    return code


def _same(a: nodes.Expr, b: nodes.Expr, first: Code, second: Code) -> bool:
    if a is b:
        return True
    return first.size == second.size <= 1_000 and type(a) is type(b) and show(a) == show(b)


#: For an operator, whether ``a op b`` is surely true or surely false, from the bounds of a - b.
_SURELY: dict[str, tuple[Callable[[int, int], bool], Callable[[int, int], bool]]] = {
    "LT": (lambda low, high: high < 0, lambda low, high: low >= 0),
    "LE": (lambda low, high: high <= 0, lambda low, high: low > 0),
    "GT": (lambda low, high: low > 0, lambda low, high: high <= 0),
    "GE": (lambda low, high: low >= 0, lambda low, high: high < 0),
    "EQ": (lambda low, high: low == high == 0, lambda low, high: low > 0 or high < 0),
    "NE": (lambda low, high: low > 0 or high < 0, lambda low, high: low == high == 0),
}


def _by_bounds(op: str, a: Code, b: Code, exact: Evaluator, scope: Scope) -> Evaluator | None:
    """Decides a comparison of affine integers for all iterations by bounds alone, where they suffice."""
    extents = scope.extents
    if a.affine is None or b.affine is None or extents is None:
        return None
    first, second = a.affine, b.affine
    coefficients = tuple(c - d for c, d in zip(first.coefficients, second.coefficients, strict=True))
    below, above = Affine(0, coefficients).spread(extents)
    (low_a, high_a), (low_b, high_b) = first.spread(extents), second.spread(extents)
    # Affine forms may be off by multiples of 2**bits, so within the dtype's range they are right. (What uint64 has
    # from 2**63 on are negative scalars, and so outside.)
    lowest, highest = a.dtype.low, a.dtype.high
    always, never = _SURELY[op]

    def run(state: State) -> Value:
        p, q = first.at(state), second.at(state)
        if lowest <= p + low_a and p + high_a <= highest and lowest <= q + low_b and q + high_b <= highest:
            low, high = p - q + below, p - q + above
            if always(low, high):
                return True
            if never(low, high):
                return False
        return exact(state)

    return run


def logical(op: str, a: Code, b: Code, rank: int) -> Code:
    boolean, size = DTYPES["bool"], 1 + a.size + b.size
    x, y = a.truth(), b.truth()
    stop = op == "Or"  # the value of the left side that decides
    if not a.varies and not b.varies:
        if stop:
            return Code(boolean, lambda state: x(state) or y(state), size=size)
        return Code(boolean, lambda state: x(state) and y(state), size=size)

    def test(state: State) -> Value:
        left = x(state)
        if isinstance(left, bool):
            return stop if left is stop else y(state)
        # As in C, the right side is only evaluated where the left one doesn't decide.
        outer = state.mask
        open_ = ~left if stop else left
        mask = open_ if outer is None else open_ & outer
        if not bool(mask.any()):
            return stop
        state.mask = mask
        right = y(state)
        state.mask = outer
        if isinstance(right, bool):
            return right if right is stop else left
        return left | right if stop else left & right

    return Code(boolean, _spread(test, boolean, rank), True, test=test, size=size)


def negate(a: Code, rank: int) -> Code:
    boolean, x = DTYPES["bool"], a.truth()
    if not a.varies:
        return Code(boolean, lambda state: not x(state), size=1 + a.size)

    def test(state: State) -> Value:
        value = x(state)
        return not value if isinstance(value, bool) else ~value

    return Code(boolean, _spread(test, boolean, rank), True, test=test, size=1 + a.size)


def _cast(a: Code, dtype: DType, scope: Scope) -> Code:
    convert, x = cast(a.dtype, dtype), a.run
    if a.dtype == dtype:
        return a
    code = finish(dtype, lambda state: convert(x(state)), (a,), scope)
    if dtype.is_int and code.affine is None and a.dtype.is_int:
        if not code.varies:
            code.affine = Affine(code.run, (0,) * scope.rank)
        elif a.affine is not None and isinstance(a.affine.base, int) and dtype.kind == "int":
            code.affine = a.affine if _fits(a.affine, a.dtype, dtype, scope) else None
    return code


def _fits(affine: Affine, source: DType, target: DType, scope: Scope) -> bool:
    if scope.extents is None:
        return False
    low, high = affine.spread(scope.extents)
    low, high = low + affine.base, high + affine.base
    return max(source.low, target.low) <= low and high <= min(source.high, target.high)


def choose(condition: Code, a: Code, b: Code, scope: Scope, *, lazy: bool) -> Code:
    """``a`` where the condition holds, else ``b``. ``lazy``: each side is evaluated only where it is taken."""
    dtype, test, x, y = a.dtype, condition.truth(), a.run, b.run
    size = 1 + condition.size + a.size + b.size
    if not condition.varies and (lazy or not (a.varies or b.varies)):
        if lazy:
            code = Code(
                dtype, lambda state: x(state) if test(state) else y(state), a.varies or b.varies, size=size
            )
        else:

            def both(state: State) -> Value:
                first, second = x(state), y(state)
                return first if test(state) else second

            code = Code(dtype, both, size=size)
        if not code.varies and dtype.is_int:
            code.affine = Affine(code.run, (0,) * scope.rank)
        return code

    def eager(state: State) -> Value:
        chosen, first, second = test(state), x(state), y(state)
        if isinstance(chosen, bool):
            return first if chosen else second
        return _where(chosen, first, second, dtype)

    def guarded(state: State) -> Value:
        chosen = test(state)
        if isinstance(chosen, bool):
            return x(state) if chosen else y(state)
        outer = state.mask
        taken, other = chosen, ~chosen
        if outer is not None:
            taken, other = taken & outer, other & outer
        if not bool(taken.any()):
            return y(state)
        if not bool(other.any()):
            return x(state)
        state.mask = taken
        first = x(state)
        state.mask = other
        second = y(state)
        state.mask = outer
        return _where(chosen, first, second, dtype)

    return Code(dtype, _spread(guarded if lazy else eager, dtype, scope.rank), True, size=size)


def _where(chosen: torch.Tensor, first: Value, second: Value, dtype: DType) -> torch.Tensor:
    if not isinstance(first, torch.Tensor) and not isinstance(second, torch.Tensor):
        first = torch.tensor(first, dtype=dtype.carrier)
    return torch.where(chosen, first, second)


def _spread(run: Evaluator, dtype: DType, rank: int) -> Evaluator:
    """A varying value is always a tensor with the nest's dimensions, also where a scalar was chosen."""

    def tensor(state: State) -> torch.Tensor:
        value = run(state)
        if not isinstance(value, torch.Tensor):
            value = torch.tensor(value, dtype=dtype.carrier)
        return value.reshape((1,) * rank) if value.ndim != rank else value

    return tensor

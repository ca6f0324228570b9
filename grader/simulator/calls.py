"""Calls of functions in expressions: mathematics, bits, conditions, what TileLang adds to them."""

import functools

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator import functions, rounding
from grader.simulator.dtypes import DTYPES, DType, Value, cast
from grader.simulator.element_atomics import ATOMICS, compile_atomic, pointee
from grader.simulator.expressions import (
    Code,
    Scope,
    State,
    choose,
    compile_expression,
    constant,
    finish,
    logical,
    negate,
    pair,
    truth,
)
from grader.simulator.left_out import explain
from grader.simulator.operations import counted


def compile_call(node: nodes.Call, scope: Scope) -> Code:
    op, args = node.op, node.args
    if op in ATOMICS:
        code = compile_atomic(node, scope)
        if not ATOMICS[op].returns or code.dtype.name != node.dtype:
            raise scope.unsupported(_("the operator '{op}' where a number is expected").format(op=op))
        return code
    if op == "tirx.if_then_else" and len(args) == 3:
        condition, sides = truth(args[0], scope), pair(args[1], args[2], node.dtype, scope)
        yes, no = (counted(code, arg, scope) for code, arg in zip(sides, args[1:], strict=True))
        return choose(condition, yes, no, scope, lazy=True)
    if op == "tl.infinity" and len(args) == 1 and isinstance(args[0], nodes.Text):
        dtype = scope.dtype(args[0].value)
        if dtype.kind != "float" or dtype.name.startswith("float8"):
            raise scope.unsupported(_("infinity of the dtype '{dtype}'").format(dtype=dtype.name))
        if dtype.name == node.dtype:
            return constant(dtype, dtype.scalar(float("inf")), scope.rank)
    if op == "tirx.likely" and len(args) == 1:
        return truth(args[0], scope)
    if op == "tl.__ldg" and len(args) == 1 and isinstance(args[0], nodes.Load):
        return compile_expression(args[0], scope)
    if op in ("tl.any_of", "tl.all_of"):
        return _of_several(node, scope)
    mode = functions.TO_NEAREST
    if op in rounding.DIRECTED and args and isinstance(args[-1], nodes.Text):
        mode, args = args[-1].value, args[:-1]
        if mode != functions.TO_NEAREST and (mode not in rounding.MODES or node.dtype != "float32"):
            raise scope.unsupported(_("the rounding mode '{mode}' of {dtype}").format(mode=mode, dtype=node.dtype))
    if op == "tirx.reinterpret" and len(args) == 1:
        return _reinterpret(compile_expression(args[0], scope), scope.dtype(node.dtype), scope)
    known = (*functions.FLOAT_CALLS.values(), functions.PREDICATES, functions.BITS, functions.BIT_COUNTS)
    if not any(op in table for table in known) and op not in _SPECIAL:
        raise scope.unsupported(explain(op))
    operands = tuple(compile_expression(arg, scope) for arg in args)
    if op in _SPECIAL:
        return _special(op, operands, node, scope)
    dtype = scope.dtype(node.dtype)
    runs = tuple(code.run for code in operands)
    if op in functions.PREDICATES:
        if len(operands) != 1 or operands[0].dtype.kind != "float" or dtype.kind != "bool":
            raise scope.unsupported(_("the operator '{op}' of these operands").format(op=op))
        function, x = functions.PREDICATES[op], runs[0]
        if operands[0].varies:
            return finish(dtype, lambda state: function(x(state)), operands, scope)
        return finish(dtype, lambda state: bool(function(x(state))), operands, scope)
    if op == functions.LEADING_ZEROS and len(operands) == 1:
        of, x = operands[0].dtype, runs[0]
        if of.is_int and of.size >= 4 and dtype.name == "int32":
            return finish(dtype, lambda state: functions.BIT_COUNTS[op](x(state), of), operands, scope)
    if not operands or any(code.dtype != dtype for code in operands):
        raise scope.unsupported(_("the operator '{op}' of these operands").format(op=op))
    if op in functions.BITS and len(operands) == 2 and (dtype.is_int or dtype.kind == "bool"):
        function, (x, y) = functions.BITS[op], runs
        if dtype.kind == "bool" and "shift" in op:
            raise scope.unsupported(_("the operator '{op}' of truth values").format(op=op))
        return finish(dtype, lambda state: function(x(state), y(state), dtype), operands, scope)
    if op == "tirx.popcount" and len(operands) == 1 and dtype.is_int:
        function, x = functions.BIT_COUNTS[op], runs[0]
        return finish(dtype, lambda state: function(x(state), dtype), operands, scope)
    if op == "tl.clamp" and dtype.is_int and len(operands) == 3:
        return _clamp(dtype, operands, scope)
    calls = functions.FLOAT_CALLS.get(len(operands), {})
    if dtype.kind == "float" and op in calls:
        if mode == functions.TO_NEAREST:
            function = functions.in_float32(calls[op], dtype)
        else:
            function = functools.partial(rounding.DIRECTED[op], mode=mode)
        if len(runs) == 1:
            x = runs[0]
            return finish(dtype, lambda state: function(x(state)), operands, scope)
        return finish(dtype, lambda state: function(*(run(state) for run in runs)), operands, scope)
    raise scope.unsupported(_("the operator '{op}' of these operands").format(op=op))


def _clamp(dtype: DType, operands: tuple[Code, ...], scope: Scope) -> Code:
    x, low, high = (code.run for code in operands)
    tensors = any(code.varies for code in operands)
    least, most = (functions.integer_arithmetic(op, dtype, tensors=tensors) for op in ("Min", "Max"))

    def run(state: State) -> Value:
        return (
            dtype.settle(value)
            if isinstance(value := least(most(x(state), low(state)), high(state)), torch.Tensor)
            else value
        )

    return finish(dtype, run, operands, scope)


def _of_several(node: nodes.Call, scope: Scope) -> Code:
    """``T.any_of`` and ``T.all_of``: of so many elements of a row, from one on."""
    first = pointee(node.args[0]) if len(node.args) == 2 else None
    count = node.args[1] if first is not None else None
    if (
        not isinstance(count, nodes.Const)
        or type(count.value) is not int
        or not 1 <= count.value <= MOST_OF_SEVERAL
    ):
        raise scope.unsupported(_("the operator '{op}' of these operands").format(op=node.op))
    *front, last = first.indices
    found = None
    for step in range(count.value):
        index = (*front, nodes.Binary(last.dtype, "Add", last, nodes.Const(last.dtype, step)))
        element: nodes.Expr = nodes.Load(first.dtype, first.buffer, index)
        if first.dtype != "bool":
            element = nodes.Binary("bool", "NE", element, nodes.Const(first.dtype, 0))
        code = truth(element, scope)
        found = (
            code if found is None else logical("Or" if node.op == "tl.any_of" else "And", found, code, scope.rank)
        )
    return found


MOST_OF_SEVERAL = 256  # each is a level of the expression

_SPECIAL = frozenset({"tirx.bitwise_not", "tirx.ldexp"})


def _special(op: str, operands: tuple[Code, ...], node: nodes.Call, scope: Scope) -> Code:
    dtype = scope.dtype(node.dtype)
    if op == "tirx.ldexp" and len(operands) == 2 and operands[0].dtype == dtype and operands[1].dtype.is_int:
        function = functions.in_float32(lambda x, n: (x.double() * torch.exp2(n.double())).to(x.dtype), dtype)
        (x, n), int32 = (code.run for code in operands), DTYPES["int32"]
        convert = cast(operands[1].dtype, int32)  # C's ldexp takes an int
        return finish(dtype, lambda state: function(x(state), int32.tensor(convert(n(state)))), operands, scope)
    if op == "tirx.bitwise_not" and len(operands) == 1 and operands[0].dtype == dtype:
        x = operands[0].run
        if dtype.is_int:
            invert = dtype.settle if operands[0].varies else dtype.wrap
            return finish(dtype, lambda state: invert(~x(state)), operands, scope)
        if dtype.kind == "bool":
            return negate(operands[0], scope.rank)
    raise scope.unsupported(_("the operator '{op}' of these operands").format(op=op))


def _reinterpret(a: Code, dtype: DType, scope: Scope) -> Code:
    if a.dtype.size != dtype.size or "bool" in (a.dtype.kind, dtype.kind):
        raise scope.unsupported(_("a reinterpretation between sizes"))
    source, x = a.dtype, a.run

    def run(state: State) -> Value:
        raw = source.encode(source.tensor(x(state))).contiguous()
        value = dtype.decode(raw.view(dtype.raw))
        return int(value) if dtype.is_int and not a.varies else value

    return finish(dtype, run, (a,), scope)

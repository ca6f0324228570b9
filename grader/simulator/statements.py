"""Statements of the IR, compiled once into Python closures over a State."""

import contextlib
from collections.abc import Callable

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator import unsigned
from grader.simulator.element_atomics import ATOMICS, compile_atomic
from grader.simulator.elements import compile_store
from grader.simulator.epochs import UPDATE
from grader.simulator.expressions import (
    Affine,
    Axis,
    Code,
    Scope,
    State,
    compile_expression,
    integer,
    truth,
)
from grader.simulator.faults import FaultKind
from grader.simulator.left_out import explain
from grader.simulator.nests import Nest, iota
from grader.simulator.operations import count_operations, counted, note_variable
from grader.simulator.printing import compile_print
from grader.simulator.program import MAX_RANK, Program, describe
from grader.simulator.threads import holds_up
from grader.simulator.tileops import TILE_OPS
from grader.simulator.tileops.reducers import reducer_update

Runner = Callable[[State], None]

BARRIER = "tirx.tvm_storage_sync"
#: Calls that order threads or memory (a walk that is sequential has that order anyway), or share out registers.
NO_EFFECT = frozenset({BARRIER, "tl.sync_warp", "tl.set_max_nreg", "tl.no_set_max_nreg"})
#: An assumption that doesn't hold lets the compiler do anything.
ASSERTIONS = frozenset({"tl.device_assert", "tl.device_assert_with_msg", "tirx.assume"})


class _Break(Exception):
    """Leaves the innermost loop."""


class _Continue(Exception):
    """Leaves the innermost loop's iteration."""


JUMPS: dict[str, type[Exception]] = {
    "tirx.break_loop": _Break,
    "tl.loop_break": _Break,
    "tirx.continue_loop": _Continue,
}


def compile_statement(node: nodes.Stmt, scope: Scope) -> Runner:
    runner = _compile(node, scope)
    observer = scope.program.observer
    return runner if observer is None else observer.around(node, runner, scope)


def _compile(node: nodes.Stmt, scope: Scope) -> Runner:
    scope.line = node.line or scope.line
    scope.program.charge_compilation(scope.line)
    match node:
        case nodes.Seq():
            return _sequence(node, scope)
        case nodes.Swizzle(body=body) | nodes.Hint(body=body):
            return compile_statement(body, scope)
        case nodes.Store():
            return compile_store(node, scope)
        case nodes.Evaluate(value=value):
            return _evaluate(value, scope)
        case nodes.If():
            return _if(node, scope)
        case nodes.For(kind=nodes.PARALLEL):
            return _parallel(node, scope)
        case nodes.For(kind=nodes.SERIAL | nodes.UNROLLED | nodes.VECTORIZED):
            return _for(node, scope)
        case nodes.While():
            return _while(node, scope)
        case nodes.Bind():
            return _sequence(nodes.Seq(node.line, (node,)), scope)
    raise scope.unsupported(_("the statement '{kind}'").format(kind=type(node).__name__))


def _sequence(node: nodes.Seq, scope: Scope) -> Runner:
    runners, bound = [], []
    for item in node.body:
        if isinstance(item, nodes.Bind):
            runner = _bind(item, scope)
            observer = scope.program.observer
            runners.append(runner if observer is None else observer.around(item, runner, scope))
            bound.append(item.var)
        else:
            runners.append(compile_statement(item, scope))
    for var in bound:
        scope.variables.pop(var, None)
    if len(runners) == 1:
        return runners[0]

    share = scope.program.share

    def run(state: State) -> None:
        for runner in runners:
            runner(state)

    def run_while_here(state: State) -> None:
        """In a loop of a nest: iterations of the nest may leave it on the way."""
        outer = state.mask
        for runner in runners:
            runner(state)
            if state.left is not None:
                here = ~state.left if outer is None else ~state.left & outer
                if not bool(here.any()):
                    break
                share(here)
                state.mask = here
        state.mask = outer

    return run_while_here if scope.nest is not None and scope.loops else run


def _variable(var: nodes.Var, code: Code, scope: Scope) -> int:
    """A place for a variable's value while it runs."""
    if var in scope.variables:
        raise scope.unsupported(_("the variable '{name}' that is bound twice").format(name=var.name))
    slot = scope.program.slot()
    scope.variables[var] = code
    code.run = lambda state: state.vars[slot]
    return slot


def _bind(node: nodes.Bind, scope: Scope) -> Runner:
    scope.line = node.line or scope.line
    value = compile_expression(node.value, scope)
    if value.dtype.name != node.var.dtype:
        raise scope.unsupported(_("a value bound to a variable of another dtype"))
    evaluate, meter, line, size = value.run, scope.program.meter, scope.line, value.size
    loads = any(isinstance(part, nodes.Load) for part in nodes.walk(node.value))
    # The variable keeps the value; what an affine form would load may have changed since.
    affine = None if loads or not value.varies else value.affine
    code = Code(value.dtype, evaluate, value.varies, value.constant, affine)
    slot = _variable(node.var, code, scope)
    if value.constant is not None:
        code.run = evaluate  # expressions of constants are evaluated before any variable has a value
    if not value.varies and value.dtype.is_int:
        code.affine = Affine(code.run, (0,) * scope.rank)
    elif affine is not None and scope.nest is not None and not _changes(node.value, scope.nest):
        scope.nest.inner_variables.discard(node.var)
    note_variable(node.var, node.value, scope)
    count = count_operations(node.value, scope)
    nest = scope.nest

    def run(state: State) -> None:
        meter.spend(line, size * nest.iterations if nest is not None else size)
        if count is not None:
            count(state)
        result = evaluate(state)
        if loads and isinstance(result, torch.Tensor):
            result = result.clone()
        state.vars[slot] = result

    return run


def _changes(value: nodes.Expr, nest: Nest) -> bool:
    return any(part in nest.inner_variables for part in nodes.walk(value))


def _evaluate(value: nodes.Expr, scope: Scope) -> Runner:
    match value:
        case nodes.Const():
            return lambda state: None
        case nodes.Call(op=op) if op in TILE_OPS:
            if scope.nest is not None:
                raise scope.unsupported(_("'{op}' inside T.Parallel").format(op=op.rpartition(".")[2]))
            return _then_barrier(scope.program.tile_op(op, TILE_OPS[op])(value, scope), value, scope)
        case nodes.Call(op=op, args=(nodes.Text(value="shared" | "shared.dyn"),)) if op == BARRIER:
            threads = scope.program.threads
            return lambda state: threads.barrier()
        case nodes.Call(op=op) if op in NO_EFFECT:
            return lambda state: None
        case nodes.Call(op=op) if op in ASSERTIONS and value.args:
            return _assertion(value, scope)
        case nodes.Call(op=op) if op in ATOMICS:
            return compile_atomic(value, scope).run
        case nodes.Call(op=op) if op == UPDATE:
            return reducer_update(value, scope)
        case nodes.Print():
            return compile_print(value, scope)
        case nodes.Call(op=op) if op in JUMPS and scope.loops:
            return _leave(JUMPS[op]) if scope.nest is None else _leave_in_nest(JUMPS[op], scope)
        case nodes.Call(op=op):
            raise scope.unsupported(explain(op))
    raise scope.unsupported(_("the statement '{what}'").format(what=describe(value)))


def _leave(jump: type[Exception]) -> Runner:
    def run(state: State) -> None:
        raise jump

    return run


def _leave_in_nest(jump: type[Exception], scope: Scope) -> Runner:
    everywhere = (1,) * scope.rank

    def run(state: State) -> None:
        leaving = torch.ones(everywhere, dtype=torch.bool) if state.mask is None else state.mask
        state.left = leaving if state.left is None else state.left | leaving
        if jump is _Break:
            state.broke = leaving if state.broke is None else state.broke | leaving

    return run


def _then_barrier(runner: Runner, node: nodes.Expr | nodes.Stmt, scope: Scope) -> Runner:
    if not scope.program.watches_threads or not holds_up(node):
        return runner
    threads = scope.program.threads

    def run(state: State) -> None:
        runner(state)
        threads.barrier()

    return run


def _assertion(call: nodes.Call, scope: Scope) -> Runner:
    condition = counted(truth(call.args[0], scope), call.args[0], scope)
    program, line = scope.program, scope.line
    test, rank, nest = condition.truth(), scope.rank, scope.nest

    def run(state: State) -> None:
        program.meter.spend(line, condition.size * (nest.iterations if nest is not None else 1))
        holds = test(state)
        if isinstance(holds, bool):
            holds = torch.full((1,) * rank, holds)
        failed = ~holds if state.mask is None else ~holds & state.mask
        count = int(failed.sum())
        if count:
            program.fault(FaultKind.ASSERTION, None, line, state, call, count)

    return run


def _if(node: nodes.If, scope: Scope) -> Runner:
    condition = counted(truth(node.condition, scope), node.condition, scope)
    test, meter, line, size, nest = condition.truth(), scope.program.meter, scope.line, condition.size, scope.nest
    if nest is None:
        test = scope.program.decided(test)
    then = compile_statement(node.then, scope)
    otherwise = None if node.otherwise is None else compile_statement(node.otherwise, scope)
    share = scope.program.share

    def run(state: State) -> None:
        meter.spend(line, size * nest.iterations if nest is not None else size)
        chosen = test(state)
        if isinstance(chosen, bool):
            if chosen:
                then(state)
            elif otherwise is not None:
                otherwise(state)
            return
        outer = state.mask
        taken = chosen if outer is None else chosen & outer
        if bool(taken.any()):
            share(taken)
            state.mask = taken
            then(state)
        if otherwise is not None:
            other = ~chosen if outer is None else ~chosen & outer
            if bool(other.any()):
                share(other)
                state.mask = other
                otherwise(state)
        state.mask = outer

    return run


def _for(node: nodes.For, scope: Scope) -> Runner:
    low, extent = compile_expression(node.min, scope), compile_expression(node.extent, scope)
    dtype = scope.dtype(node.var.dtype)
    if not low.dtype.is_int or not extent.dtype.is_int or not dtype.is_int:
        raise scope.unsupported(_("a loop over something that is no integer"))
    start, stop, meter, line, wrap = low.run, extent.run, scope.program.meter, scope.line, dtype.wrap
    number = extent.dtype.number
    # TileLang makes ``for (i = 0; i < extent; ++i)`` of it: what the extent reads may change from turn to turn.
    changes = any(isinstance(part, nodes.Load) for part in nodes.walk(node.extent))
    if scope.nest is None:
        start, stop = scope.program.decided(start), scope.program.decided(stop)
    varies = low.varies and scope.nest is not None
    code = Code(dtype, start, varies)
    slot = _variable(node.var, code, scope)
    note_variable(node.var, node.min, scope)
    if not varies:
        code.affine = Affine(code.run, (0,) * scope.rank)
    scope.loops += 1
    body = compile_statement(node.body, scope)
    scope.loops -= 1
    del scope.variables[node.var]

    def run(state: State) -> None:
        first = start(state)
        turn, turns = 0, number(stop(state))
        try:
            while turn < turns:
                meter.spend(line)
                state.vars[slot] = wrap(first + turn)
                turn += 1
                with contextlib.suppress(_Continue):
                    body(state)
                if changes:
                    turns = number(stop(state))
        except _Break:
            pass

    def run_in_nest(state: State) -> None:
        first, counts = start(state), extents(state)
        first = first.clone() if isinstance(first, torch.Tensor) else first  # it may be a view of memory
        turns = _Turns(state, program)
        step = 0
        while turns.begin(counts > step):
            meter.spend(line, nest.iterations)
            shifted = first + step
            state.vars[slot] = dtype.settle(shifted) if isinstance(shifted, torch.Tensor) else wrap(shifted)
            body(state)
            turns.end()
            step += 1
            if changes:
                state.mask = turns.inside
                counts = extents(state)
        turns.over()

    def extents(state: State) -> torch.Tensor:
        count = stop(state)
        if not isinstance(count, torch.Tensor):
            return torch.full((1,) * scope_rank, count)
        if extent.dtype.is_uint64:  # from 2**63 on
            return torch.where(count < 0, unsigned.HIGHEST, count)
        return count.clone()

    nest, scope_rank, program = scope.nest, scope.rank, scope.program
    return run_in_nest if nest is not None and (low.varies or extent.varies or _jumps(node.body)) else run


def _jumps(body: nodes.Stmt) -> bool:
    return any(isinstance(part, nodes.Call) and part.op in JUMPS for part in nodes.walk(body))


class _Turns:
    """The turns of a loop in a nest, whose iterations leave it at different times."""

    def __init__(self, state: State, program: Program) -> None:
        self.state = state
        self.program = program
        self.outer = (state.mask, state.left, state.broke)
        self.inside = state.mask  # the nest's iterations that are still in the loop
        state.left = state.broke = None

    def begin(self, go_on: torch.Tensor) -> bool:
        """A turn for the iterations still inside that ``go_on``: is there any?"""
        active = go_on if self.inside is None else go_on & self.inside
        if not bool(active.any()):
            return False
        self.program.share(active)
        self.inside = self.state.mask = None if bool(active.all()) else active
        return True

    def end(self) -> None:
        state = self.state
        if state.broke is not None:
            self.inside = ~state.broke if self.inside is None else self.inside & ~state.broke
        state.left = state.broke = None

    def over(self) -> None:
        self.state.mask, self.state.left, self.state.broke = self.outer


def _while(node: nodes.While, scope: Scope) -> Runner:
    condition = counted(truth(node.condition, scope), node.condition, scope)
    test, meter, line, size, nest = condition.truth(), scope.program.meter, scope.line, condition.size, scope.nest
    if nest is None:
        test = scope.program.decided(test)
    scope.loops += 1
    body = compile_statement(node.body, scope)
    scope.loops -= 1

    def run(state: State) -> None:
        try:
            while True:
                meter.spend(line, size)
                if not test(state):
                    break
                try:
                    body(state)
                except _Continue:
                    continue
        except _Break:
            pass

    def run_in_nest(state: State) -> None:
        turns = _Turns(state, program)
        while True:
            meter.spend(line, size * nest.iterations)
            state.mask = turns.inside
            chosen = test(state)
            if isinstance(chosen, bool):
                chosen = torch.full(everywhere, chosen)
            if not turns.begin(chosen):
                break
            body(state)
            turns.end()
        turns.over()

    everywhere, program = (1,) * scope.rank, scope.program
    return run if nest is None else run_in_nest


def _parallel(node: nodes.For, scope: Scope) -> Runner:
    outermost = scope.nest is None
    low, extent = (
        integer(node.min, scope, _("a T.Parallel start")),
        integer(node.extent, scope, _("a T.Parallel extent")),
    )
    dtype = scope.dtype(node.var.dtype)
    if not dtype.is_int:
        raise scope.unsupported(_("a loop over something that is no integer"))
    line, meter = scope.line, scope.program.meter
    inner = scope
    if outermost:
        nest = Nest(node, scope.program)
        if nest.depth > MAX_RANK:
            raise scope.unsupported(_("more than {limit} nested T.Parallel loops").format(limit=MAX_RANK))
        inner = scope.inside(nest, nest.depth)
        nest.axis_codes = [*scope.program.lead_codes(nest.rank)]
    nest: Nest = inner.nest
    axis, rank = len(inner.axes), inner.rank
    known = extent.constant
    if known is not None and known <= 0:
        return lambda state: None
    inner.axes.append(Axis(node.var, known))
    if known is not None:
        meter.room(known * 8, line)
    code = Code(dtype, low.run, varies=True)
    slot = _variable(node.var, code, inner)
    if known is not None:
        start = low.run if low.constant is None else low.constant
        code.affine = Affine(start, tuple(int(other == axis) for other in range(rank)))
    del nest.axis_codes[axis:]
    nest.axis_codes.append(code)
    body = compile_statement(node.body, inner)
    inner.axes.pop()
    del inner.variables[node.var]
    if outermost:
        nest.compiled([*scope.axes, *_axes(node, scope)])
    start_at, count_of, carrier = low.run, extent.run, dtype.carrier

    def run(state: State) -> None:
        count = count_of(state)
        if count <= 0:
            return
        nest.running[axis] = count
        # Some tensors of eight bytes an element are alive at once.
        meter.room(nest.iterations * 64, line)
        meter.spend(line, nest.iterations)
        values = iota(rank, axis, count, carrier)
        first = start_at(state)
        state.vars[slot] = dtype.settle(values + dtype.wrap(first)) if first else values
        if outermost:
            nest.begin()
        body(state)
        nest.running[axis] = 1
        if outermost:
            nest.end()

    return _then_barrier(run, node, scope) if outermost else run


def _axes(node: nodes.Stmt, scope: Scope) -> list[Axis]:
    """The loops of a nest, outermost first: of one chain, the extents count only where they are 1."""
    axes: list[Axis] = []
    level: list[nodes.Stmt] = [node]
    while level:
        here = [item for item in level if isinstance(item, nodes.For) and item.kind == nodes.PARALLEL]
        if here:
            sizes = {item.extent.value if isinstance(item.extent, nodes.Const) else None for item in here}
            axes.append(Axis(here[0].var, sizes.pop() if len(sizes) == 1 else None))
        level = _next_parallel(here or level)
    return axes


def _next_parallel(level: list[nodes.Stmt]) -> list[nodes.Stmt]:
    """The nearest T.Parallel loops below these statements."""
    found: list[nodes.Stmt] = []
    pending = [part for item in level for part in nodes.children(item) if isinstance(part, nodes.Stmt)]
    while pending:
        item = pending.pop()
        if isinstance(item, nodes.For) and item.kind == nodes.PARALLEL:
            found.append(item)
        else:
            pending.extend(part for part in nodes.children(item) if isinstance(part, nodes.Stmt))
    return found

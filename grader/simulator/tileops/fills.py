"""T.fill and T.clear."""

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import cast
from grader.simulator.expressions import Scope, State, compile_expression, scalar
from grader.simulator.faults import FaultKind
from grader.simulator.operations import count_operations
from grader.simulator.tileops.arguments import check_count, check_options
from grader.simulator.tileops.tile import Runner, Tile


def fill(call: nodes.Call, scope: Scope) -> Runner:
    check_count(call, scope, 2)
    check_options(call, scope)
    target = Tile(call.args[0], call, scope)
    value = scalar(compile_expression(call.args[1], scope), scope, _("a fill value"))
    dtype = target.array.dtype
    convert, evaluate, meter, line = cast(value.dtype, dtype), value.run, scope.program.meter, scope.line
    scope.program.note_write(target.array)
    count = count_operations(call.args[1], scope)

    def run(state: State) -> None:
        start, sizes, _offset, _whole = target.box(state, FaultKind.OUT_OF_BOUNDS_WRITE)
        window = target.window(start, sizes)
        meter.spend(line, window.count)
        if count is not None:
            count(state)
        raw = dtype.encode(dtype.tensor(convert(evaluate(state))))
        if window.count:
            target.write(window, state, lambda place: place.copy_(raw))

    return run

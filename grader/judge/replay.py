"""Runs a kernel on the simulator once more, for people to look at: what one of its blocks does, what it moves."""

import re
from dataclasses import replace

import torch

from grader import simulator
from grader.admit import Admitted
from grader.capture.format import Capture
from grader.ir.nodes import Line
from grader.judge.comparison import poison
from grader.judge.simulated import explain
from grader.judge.task import Tensors
from grader.messages import _
from grader.simulator.printing import Printed as SimulatorsPrinted
from grader.verdict import Finding, Location, Unusable
from grader.verdict.printout import Printed
from grader.verdict.trace import BlockTrace
from grader.verdict.traffic import Traffic

BUDGET = simulator.Budget(steps=500_000, seconds=30.0, bytes=1 << 29)
#: Every block is counted, for no two need do the same. Lab 02's product of 4096×4096 matrices takes two CPU cores
#: 30 s, most of it for moving and converting tiles.
COUNTING = replace(BUDGET, seconds=180.0)


def record(
    name: str,
    admitted: Admitted,
    inputs: Tensors,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    block: tuple[int, ...],
    capture: Capture,
) -> BlockTrace:
    """What ``block`` of the kernel does with ``inputs``; the output has the given dtype and shape.

    Raises Unusable if there is no such block, or if the simulator can't run the kernel to its end.
    """
    recorder = simulator.Recorder(block)
    try:
        run = _run(admitted, inputs, dtype, shape, capture, recorder)
    except simulator.NoSuchBlock as error:
        raise _no_block(name, block, error.grid) from None
    trace = recorder.trace(name)
    steps = tuple(
        replace(step, where=None if step.where is None else capture.locate(step.where.cell, step.where.line))
        for step in trace.steps
    )
    faults = tuple(explain(fault, lambda line: _locate(line, capture)) for fault in run.faults)
    return replace(trace, steps=steps, faults=faults, source=_source(trace, capture, admitted.kernel.line))


def count(
    admitted: Admitted, inputs: Tensors, dtype: torch.dtype, shape: tuple[int, ...], capture: Capture
) -> Traffic:
    """What the kernel moves and computes; the output has the given dtype and shape.

    Raises Unusable if the simulator can't run the kernel to its end.
    """
    return _run(admitted, inputs, dtype, shape, capture, None, COUNTING).traffic


def printout(
    name: str,
    admitted: Admitted,
    inputs: Tensors,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    capture: Capture,
    block: tuple[int, ...] | None = None,
) -> tuple[tuple[Printed, ...], int]:
    """What the kernel's T.print statements print, block by block, and how many values more than are kept.

    With ``block``, that one alone is run. Raises Unusable if there is no such block, or if the simulator can't run
    the kernel to its end.
    """
    try:
        run = _run(admitted, inputs, dtype, shape, capture, None, block=block)
    except simulator.NoSuchBlock as error:
        raise _no_block(name, block or (), error.grid) from None
    printed = (Printed(p.block, _locate(p.line, capture), _what(p), p.values) for p in run.prints)
    return tuple(sorted(printed, key=lambda row: row.block[::-1])), run.prints_left_out


def _no_block(name: str, block: tuple[int, ...], grid: tuple[int, ...]) -> Unusable:
    return Unusable(
        Finding(
            _("'{name}' has no block {block}.").format(name=name, block=_tuple(block)),
            _("Its grid is {grid}, so the last block is {last}.").format(
                grid=" × ".join(map(str, grid)), last=_tuple(tuple(extent - 1 for extent in grid))
            ),
        )
    )


def _what(printed: SimulatorsPrinted) -> str:
    """The message that the student gave, or TileLang's own, without its frame: "buffer<top, float32>"."""
    own = re.fullmatch(r"(?:expr|buffer)<(.*)>", printed.message)
    if own is None:
        return f"{printed.message} {printed.name}".strip() if printed.name else printed.message
    return printed.name or own[1]


def _run(
    admitted: Admitted,
    inputs: Tensors,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    capture: Capture,
    recorder: simulator.Recorder | None,
    budget: simulator.Budget = BUDGET,
    block: tuple[int, ...] | None = None,
) -> simulator.Run:
    output = torch.empty(shape, dtype=dtype)
    poison(output)
    tensors, outputs = (*inputs, output), (len(inputs),)
    blocks = None if block is None else ((*block, 0, 0)[:3],)
    try:
        return simulator.run(
            admitted.kernel, tensors, budget=budget, outputs=outputs, record=recorder, blocks=blocks
        )
    except simulator.Unsupported as error:
        message = _("The simulator can't run '{what}'.").format(what=error.what)
        raise Unusable(Finding(message, where=_locate(error.line, capture))) from None
    except simulator.OverBudget as error:
        advice = _("Take a smaller shape, or smaller tiles.")
        raise Unusable(Finding(_sentence(error.message), advice, _locate(error.line, capture))) from None


def _locate(line: Line | None, capture: Capture) -> Location | None:
    return None if line is None else capture.locate(line.file, line.number)


def _tuple(block: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, block)) + ")"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith("?") else ".")


def _source(trace: BlockTrace, capture: Capture, first) -> tuple[Location, ...]:
    """The lines of the student's cell that has most of the steps, from the kernel's first to the last step's."""
    files = [step.where.cell for step in trace.steps if step.where is not None]
    for source in capture.sources:
        if not files or source.file != max(sorted(set(files)), key=files.count):
            continue
        numbers = [step.where.line for step in trace.steps if step.where and step.where.cell == source.file]
        if first is not None and first.file == source.file:
            numbers.append(first.number)
        lines = source.text.splitlines()
        span = range(min(numbers), min(max(numbers), len(lines)) + 1)
        return tuple(Location(source.label, number, lines[number - 1].rstrip()) for number in span)
    return ()

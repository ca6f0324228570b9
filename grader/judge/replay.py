"""Runs a kernel on the simulator and records what one of its blocks does, for people to look at."""

from dataclasses import replace

import torch

from grader import simulator
from grader.admit import Admitted
from grader.capture.format import Capture
from grader.judge.comparison import poison
from grader.judge.simulated import explain
from grader.judge.task import Tensors
from grader.messages import _
from grader.verdict import Finding, Location, Unusable
from grader.verdict.trace import BlockTrace

BUDGET = simulator.Budget(steps=500_000, seconds=30.0, bytes=1 << 29)


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
    output = torch.empty(shape, dtype=dtype)
    poison(output)
    recorder = simulator.Recorder(block)
    kernel = admitted.kernel

    def locate(line):
        return None if line is None else capture.locate(line.file, line.number)

    try:
        run = simulator.run(kernel, (*inputs, output), budget=BUDGET, outputs=(len(inputs),), record=recorder)
    except simulator.NoSuchBlock as error:
        raise Unusable(
            Finding(
                _("'{name}' has no block {block}.").format(name=name, block=_tuple(block)),
                _("Its grid is {grid}, so the last block is {last}.").format(
                    grid=" × ".join(map(str, error.grid)), last=_tuple(tuple(extent - 1 for extent in error.grid))
                ),
            )
        ) from None
    except simulator.Unsupported as error:
        message = _("The simulator can't run '{what}'.").format(what=error.what)
        raise Unusable(Finding(message, where=locate(error.line))) from None
    except simulator.OverBudget as error:
        advice = _("Take a smaller shape, or smaller tiles.")
        raise Unusable(Finding(_sentence(error.message), advice, locate(error.line))) from None
    trace = recorder.trace(name)
    steps = tuple(
        replace(step, where=None if step.where is None else capture.locate(step.where.cell, step.where.line))
        for step in trace.steps
    )
    faults = tuple(explain(fault, locate) for fault in run.faults)
    first = kernel.line
    return replace(trace, steps=steps, faults=faults, source=_source(trace, capture, first))


def _tuple(block: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, block)) + ")"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


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

"""The judge's own sweep: a lab's kernel at schedules that are known to be good somewhere.

``tilelab calibrate`` measures them on a card; the best is what the students' choice is compared with. The kernel
is the lab's solution, traced and admitted like a student's; an installation without solutions has no sweep.
"""

import importlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from grader import catalog
from grader.admit import Refused, admit
from grader.capture.run import capture_notebook
from grader.catalog import Group, Kernel, Lab, Shape, at_defaults
from grader.gpu import compiler
from grader.gpu.architectures import architecture
from grader.gpu.hardware import Card
from grader.judge import lab03_schedules, lab07_autotuning
from grader.messages import _, progress
from grader.verdict import JudgeFailed, Unusable


@dataclass(frozen=True)
class Sweep:
    """A lab's kernel, and the schedules that it is measured at."""

    lab: str
    kernel: str
    schedules: tuple[Mapping[str, int], ...]

    @property
    def source(self) -> str | None:
        """The kernel's solution, as a cell of a notebook; None where there are no solutions."""
        try:
            private = importlib.import_module("grader.autograders.private.sweeps")
        except ModuleNotFoundError:
            return None
        return private.KERNELS[self.lab]


SWEEPS = (
    Sweep("lab03_schedules", "scheduled_matmul", lab03_schedules.SWEEP),
    Sweep("lab07_autotuning", "projection", lab07_autotuning.SWEEP),
)


@dataclass(frozen=True)
class Entry:
    """A schedule to measure: its shape (with the schedule), and the compiled kernel, or why there is none."""

    lab: str
    kernel: str
    shape: Shape
    library: str = ""
    why_not: str = ""


def entries(card: Card) -> Iterator[Entry]:
    """Every schedule of every sweep, compiled for ``card``. What doesn't compile there is in it, too."""
    for sweep in SWEEPS:
        if sweep.source is None:
            progress.say(_("{lab}: no sweep, for the solutions are not installed here.").format(lab=sweep.lab))
            continue
        lab = catalog.find(sweep.lab)
        yield from _built(sweep, lab, at_schedules_of(sweep, lab), card)


def at_schedules_of(sweep: Sweep, lab: Lab) -> Kernel:
    """The lab's kernel at its timed shape, once for each schedule."""
    kernel = at_defaults(lab.kernel(sweep.kernel))
    (timed,) = kernel.group(Group.TIMED)
    shapes = [
        replace(timed, name=f"{timed.name}, schedule {number}", schedule=dict(schedule))
        for number, schedule in enumerate(sweep.schedules)
    ]
    return replace(kernel, shapes=tuple(shapes))


def _built(sweep: Sweep, lab: Lab, kernel: Kernel, card: Card) -> Iterator[Entry]:
    arch = architecture(card.capability)
    sources: dict[str, compiler.Source] = {}
    for name, json_, options in traced(sweep, lab, kernel):
        sources[name] = compiler.Source(json_, arch, options)
    for name, built in compiler.build_all(sources):
        shape = kernel.shape(name)
        if isinstance(built, compiler.Built):
            yield Entry(sweep.lab, sweep.kernel, shape, library=str(built.library))
        else:
            lines = built.text.strip().splitlines() or ["?"]
            yield Entry(sweep.lab, sweep.kernel, shape, why_not=lines[-1][:300])


def traced(sweep: Sweep, lab: Lab, kernel: Kernel) -> list[tuple[str, str, dict[str, bool | int]]]:
    """By shape: the admitted kernel and its options. Raises JudgeFailed: the kernel is ours."""
    cell = {"cell_type": "code", "metadata": {}, "source": sweep.source, "outputs": [], "execution_count": None}
    notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [cell]}
    with tempfile.TemporaryDirectory(prefix="tilelab-sweep-") as folder:
        path = Path(folder, lab.notebook)
        path.write_text(json.dumps(notebook))
        try:
            capture = capture_notebook(path, replace(lab, kernels=(kernel,), values=()))
        except Unusable as error:
            raise JudgeFailed(f"the sweep of {lab.id} can't be traced: {error}") from error
    found = []
    for trace in capture.traces:
        if trace.ir is None:
            raise JudgeFailed(f"the sweep of {lab.id} can't be traced at {trace.shape}: {trace.error}")
        try:
            admitted = admit(trace.ir, kernel, kernel.shape(trace.shape), trace.options)
        except Refused as error:
            raise JudgeFailed(f"the sweep of {lab.id} is refused at {trace.shape}: {error.message}") from error
        found.append((trace.shape, admitted.json, admitted.options))
    return found

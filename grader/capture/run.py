"""Captures a notebook: cells in, IR out, whatever the cells do."""

import importlib.metadata
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from grader import catalog
from grader.capture import plain, sandbox
from grader.capture.format import Capture, Handed, Source, Trace, TraceError, plain_json
from grader.capture.notebook import Cell, read_notebook
from grader.capture.sandbox import DEFAULT_LIMITS, End, Limits
from grader.messages import _
from grader.verdict import Finding, Unusable

_kernels = TypeAdapter(tuple[catalog.Kernel, ...])
_traces = TypeAdapter(list[Trace])
_errors = TypeAdapter(list[TraceError])
_handed = TypeAdapter(list[Handed])


MAX_CELL_ERRORS = 20
MAX_TEXT = 600


def capture_notebook(path: Path, lab: catalog.Lab, limits: Limits = DEFAULT_LIMITS) -> Capture:
    """Runs the notebook's code cells in the sandbox, reads the lab's values and traces its kernels.

    A cell that raises is noted and the run goes on. Hidden shapes are traced last, and nothing but the IR is taken
    from there: what a student's code says once it knows them could tell them. Raises Unusable if the file is no
    notebook or the run gives no result: it did not end in time, ended the process, or used too much.
    """
    notebook = read_notebook(path)
    _check_lab(notebook.cells, lab, path)
    questions = _Questions(lab)
    job = {
        "kernels": _kernels.dump_python(questions.public, mode="json"),
        "values": [value.name for value in lab.values],
        "questions": _Questions.COUNT,
        "cells": [[cell.file, cell.source] for cell in notebook.cells],
    }
    ended = sandbox.run("grader.capture.child", json.dumps(job).encode(), limits=limits, reply=questions.reply)
    progress = _Progress(notebook.cells, ended.lines)
    if ended.end is not End.EXITED or progress.done is None:
        raise Unusable(_explain(ended, progress, limits))
    try:
        values = _values(progress.done, lab)
        traces = _traces.validate_python(progress.done.get("traces"))
        errors = _errors.validate_python(progress.done.get("cell_errors"))
        scheduled, further = (
            _traces.validate_python(found) for found in (*progress.further, [], [])[: _Questions.COUNT]
        )
    except (ValidationError, plain.NotPlain):
        raise Unusable(_("The notebook wrote something of its own in place of its kernels.")) from None
    return Capture(
        lab=lab.id,
        lab_version=lab.version,
        traces=(
            *_among(traces, questions.public),
            *_among(scheduled, questions.scheduled),
            *(_untold(trace) for trace in _among(further, questions.hidden)),
        ),
        sources=tuple(Source(cell.file, cell.label, cell.source) for cell in notebook.cells),
        cell_errors=tuple(_clipped(error) for error in errors[:MAX_CELL_ERRORS]),
        notebook_sha256=notebook.sha256,
        sandbox=sandbox.kind(),
        versions=versions(),
        values=values,
    )


class _Questions:
    """Which kernels the process is asked for, and when.

    First, with the job, ``public``: all shapes that the catalogue shows. Then, once its values are known,
    ``scheduled``: the kernels at the student's own schedules. Last ``hidden``: the shapes that it must not know as
    long as anything of what it says is shown.
    """

    COUNT = 2  # that are asked by way of ``reply``

    def __init__(self, lab: catalog.Lab) -> None:
        self.lab = lab
        self.public = _at([kernel for kernel in lab.kernels if kernel.schedules is None], hidden=False)
        self.scheduled: tuple[catalog.Kernel, ...] = ()
        self.hidden: tuple[catalog.Kernel, ...] = ()
        self.asked = 0

    def reply(self, line: bytes) -> bytes | None:
        """What is asked after a line of the process's."""
        if self.asked == 0 and line.startswith(b'{"done"'):
            kernels = catalog.at_schedules(self.lab, _plain_values(line, self.lab)).kernels
            self.scheduled = _at([kernel for kernel in kernels if kernel.schedules is not None], hidden=False)
            self.hidden = _at(kernels, hidden=True)
            question = self.scheduled
        elif self.asked == 1 and line.startswith(b'{"further"'):
            question = self.hidden
        else:
            return None
        self.asked += 1
        return _kernels.dump_json(question) + b"\n"


def _at(kernels: Iterable[catalog.Kernel], *, hidden: bool) -> tuple[catalog.Kernel, ...]:
    """The kernels at their hidden, or at their other shapes."""
    return tuple(replace(k, shapes=tuple(s for s in k.shapes if s.hidden is hidden)) for k in kernels)


def _plain_values(line: bytes, lab: catalog.Lab) -> dict[str, Any]:
    """The values in a "done" line; none if it is not as it should be, which is said when it is read in full."""
    try:
        return {handed.name: handed.value for handed in _values(plain_json(line)["done"], lab) if not handed.error}
    except (ValueError, KeyError, TypeError, RecursionError, plain.NotPlain):
        return {}


def _values(done: dict, lab: catalog.Lab) -> tuple[Handed, ...]:
    """The lab's values, each once. Raises ValidationError or NotPlain if something else stands there."""
    found = _handed.validate_python(done.get("values") or [])
    wanted = [value.name for value in lab.values]
    first = {handed.name: handed for handed in reversed(found) if handed.name in wanted}
    return tuple(
        replace(first[name], value=plain.check(first[name].value), error=first[name].error[:MAX_TEXT])
        for name in wanted
        if name in first
    )


def _among(traces: list[Trace], kernels: tuple[catalog.Kernel, ...]) -> Iterator[Trace]:
    """Those that were asked for, each once, with their texts cut to size: the process may have written more."""
    for kernel in kernels:
        for shape in kernel.shapes:
            for trace in traces:
                if (trace.kernel, trace.shape) == (kernel.name, shape.name):
                    options = {name[:64]: _short(value) for name, value in list(trace.options.items())[:16]}
                    yield replace(trace, options=options, error=trace.error and _clipped(trace.error))
                    break


def _short(value: bool | int | str) -> bool | int | str:
    return value[:64] if isinstance(value, str) else value


def _untold(trace: Trace) -> Trace:
    if trace.error is None:
        return trace
    return replace(trace, error=TraceError("Hidden", _("The kernel can't be built there.")))


def _clipped(error: TraceError) -> TraceError:
    return TraceError(error.kind[:64], error.message[:MAX_TEXT], error.file and error.file[:MAX_TEXT], error.line)


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("tilelang", "torch")}


def _check_lab(cells: tuple[Cell, ...], lab: catalog.Lab, path: Path) -> None:
    """Says so if this is another lab's notebook, before anything is run."""
    text = "\n".join(cell.source for cell in cells)
    if any(f"def {kernel.name}(" in text or f"{kernel.name} =" in text for kernel in lab.kernels):
        return
    for other in catalog.LABS:
        if other.id != lab.id and any(f"def {kernel.name}(" in text for kernel in other.kernels):
            raise Unusable(
                Finding(
                    _("'{name}' looks like the notebook of {other}, not of {lab}.").format(
                        name=path.name, other=other.id, lab=lab.id
                    ),
                    _("Hand in {notebook}.").format(notebook=lab.notebook),
                )
            )


class _Progress:
    """What the lines of the result channel say."""

    def __init__(self, cells: tuple[Cell, ...], lines: tuple[bytes, ...]) -> None:
        self.cell: Cell | None = None
        self.tracing = False
        self.started = False
        self.done: dict | None = None
        self.further: list[list] = []
        for raw in lines:
            try:
                line = plain_json(raw)
            except (ValueError, RecursionError):
                continue
            if not isinstance(line, dict):
                continue
            match line:
                case {"cell": int(number)} if 1 <= number <= len(cells):
                    self.started, self.cell, self.tracing = True, cells[number - 1], False
                case {"tracing": True}:
                    self.tracing = True
                case {"done": dict(done)} if self.done is None:
                    self.done = done
                case {"further": list(further)} if self.done is not None:
                    self.further.append(further)


def _explain(ended: sandbox.Ended, progress: _Progress, limits: Limits) -> Finding:
    if not progress.started:
        return Finding(
            _("The notebook could not be started: {reason}").format(reason=_last_line(ended.console)),
            _("'tilelab doctor' checks the installation."),
        )
    if progress.tracing or progress.cell is None:
        where, location = _("building the kernels"), None
    else:
        where = progress.cell.label
        location = Source(progress.cell.file, where, progress.cell.source).location(
            _first_code_line(progress.cell)
        )
    match ended.end:
        case End.TIMED_OUT:
            return Finding(
                _("{where} did not end: the notebook was stopped after {seconds:.0f} s.").format(
                    where=where, seconds=limits.seconds
                ),
                _("Look for an endless loop, or work that only a GPU does quickly."),
                location,
            )
        case End.TOO_MUCH_MEMORY:
            return Finding(
                _("{where} used more than {limit} GB of memory: the notebook was stopped.").format(
                    where=where, limit=limits.memory // 2**30
                ),
                _("Use smaller tensors in your own cells."),
                location,
            )
        case End.TOO_MUCH_OUTPUT:
            return Finding(
                _("{where} wrote too much: the notebook was stopped.").format(where=where), "", location
            )
    return Finding(
        _("{where} ended the whole process (status {status}).").format(where=where, status=ended.status),
        _("Remove calls such as exit() or os._exit(): a notebook has to run from its first cell to its last."),
        location,
    )


def _first_code_line(cell: Cell) -> int:
    for number, line in enumerate(cell.source.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            return number
    return 1


def _last_line(console: str) -> str:
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    return lines[-1][:300] if lines else _("it gave no message")

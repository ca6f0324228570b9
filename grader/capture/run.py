"""Captures a notebook: cells in, IR out, whatever the cells do."""

import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from grader import catalog
from grader.capture import sandbox
from grader.capture.format import Capture, Source, Trace, TraceError, plain_json
from grader.capture.notebook import Cell, read_notebook
from grader.capture.sandbox import DEFAULT_LIMITS, End, Limits
from grader.messages import _
from grader.verdict import Finding, Unusable

_kernels = TypeAdapter(tuple[catalog.Kernel, ...])
_traces = TypeAdapter(list[Trace])
_errors = TypeAdapter(list[TraceError])


MAX_CELL_ERRORS = 20
MAX_TEXT = 600


def capture_notebook(path: Path, lab: catalog.Lab, limits: Limits = DEFAULT_LIMITS) -> Capture:
    """Runs the notebook's code cells in the sandbox and traces the lab's kernels.

    A cell that raises is noted and the run goes on. Hidden shapes are traced last, and nothing but the IR is taken
    from there: what a student's code says once it knows them could tell them. Raises Unusable if the file is no
    notebook or the run gives no result: it did not end in time, ended the process, or used too much.
    """
    notebook = read_notebook(path)
    _check_lab(notebook.cells, lab, path)
    public, hidden = _divided(lab)
    job = {
        "kernels": _kernels.dump_python(public, mode="json"),
        "cells": [[cell.file, cell.source] for cell in notebook.cells],
    }
    questions = [_kernels.dump_json(hidden) + b"\n"]

    def reply(line: bytes) -> bytes | None:
        return questions.pop() if questions and line.startswith(b'{"done"') else None

    ended = sandbox.run("grader.capture.child", json.dumps(job).encode(), limits=limits, reply=reply)
    progress = _Progress(notebook.cells, ended.lines)
    if ended.end is not End.EXITED or progress.done is None:
        raise Unusable(_explain(ended, progress, limits))
    try:
        traces = _traces.validate_python(progress.done.get("traces"))
        errors = _errors.validate_python(progress.done.get("cell_errors"))
        further = _traces.validate_python(progress.further or [])
    except ValidationError:
        raise Unusable(_("The notebook wrote something of its own in place of its kernels.")) from None
    return Capture(
        lab=lab.id,
        lab_version=lab.version,
        traces=(*_among(traces, public), *(_untold(trace) for trace in _among(further, hidden))),
        sources=tuple(Source(cell.file, cell.label, cell.source) for cell in notebook.cells),
        cell_errors=tuple(_clipped(error) for error in errors[:MAX_CELL_ERRORS]),
        notebook_sha256=notebook.sha256,
        sandbox=sandbox.kind(),
        versions=versions(),
    )


def _divided(lab: catalog.Lab) -> tuple[tuple[catalog.Kernel, ...], tuple[catalog.Kernel, ...]]:
    """The lab's kernels at their public and at their hidden shapes."""
    return tuple(
        tuple(replace(k, shapes=tuple(s for s in k.shapes if s.hidden is hidden)) for k in lab.kernels)
        for hidden in (False, True)
    )  # type: ignore[return-value]


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
        self.further: list | None = None
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
                    self.further = further


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

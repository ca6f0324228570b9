"""``show_prints``: what a live kernel's T.print statements print, on the simulator."""

import functools
from collections.abc import Mapping
from typing import Any

from grader import catalog
from grader.capture.format import Capture
from grader.capture.tracing import trace as trace_kernel
from grader.judge.submission import Submission
from grader.messages import _
from grader.report import printout as report
from grader.student.checking import cells, display_page, in_notebook, name_of, show_finding
from grader.student.tracing import SEED, indices, only, shape_of
from grader.verdict import Finding, Unusable


def show_printout(
    kernel: Any, shape: str | Mapping[str, int] | None, block: tuple[int, ...] | None, schedule: Mapping[str, Any]
) -> None:
    name = name_of(kernel)
    try:
        lab, wanted = catalog.find_kernel(name)
    except KeyError as error:
        advice = _("Pass the kernel's function itself, for instance show_prints(matmul).")
        show_finding(Finding(error.args[0], advice))
        return
    try:
        at = shape_of(wanted, shape)
        sources = cells()
        given = functools.partial(kernel, **schedule) if schedule else kernel
        traced = trace_kernel(given, wanted, at, {source.file for source in sources}.__contains__)
        capture = Capture(lab.id, lab.version, (traced,), tuple(sources), sandbox="notebook")
        wanted_block = None if block is None else indices(block)
        found = Submission(capture, only(lab, name, at), None, SEED).printout(name, at, wanted_block)
    except Unusable as error:
        show_finding(error.finding)
        return
    if in_notebook():
        display_page(report.page(found), report.plain(found))
    else:
        from rich.console import Console

        report.show(found, Console())

"""``roofline``: what a live kernel moves and computes, and what that bounds, as tables in the notebook."""

import functools
from collections.abc import Mapping
from typing import Any

from grader import catalog
from grader.capture.format import Capture
from grader.capture.tracing import trace as trace_kernel
from grader.catalog import Lab, Shape
from grader.judge.submission import Submission
from grader.messages import _
from grader.report import roofline as report
from grader.report import roofline_plot
from grader.student.checking import cells, display_page, in_notebook, name_of, show_finding
from grader.student.tracing import SEED, only, shape_of
from grader.verdict import Finding, Unusable
from grader.verdict.traffic import Counted


def show_roofline(
    kernel: Any, shape: str | Mapping[str, int] | None, card: str | None, schedule: Mapping[str, Any]
) -> None:
    name = name_of(kernel)
    try:
        lab, wanted = catalog.find_kernel(name)
    except KeyError as error:
        advice = _("Pass the kernel's function itself, for instance roofline(matmul).")
        show_finding(Finding(error.args[0], advice))
        return
    try:
        at = shape_of(wanted, shape)
        sources = cells()
        given = functools.partial(kernel, **schedule) if schedule else kernel
        found = trace_kernel(given, wanted, at, {source.file for source in sources}.__contains__)
        capture = Capture(lab.id, lab.version, (found,), tuple(sources), sandbox="notebook")
        counted = count(capture, lab, name, at, card)
    except Unusable as error:
        show_finding(error.finding)
        return
    if in_notebook():
        chart = report.chart(counted)
        drawn = "" if chart is None else roofline_plot.page(chart)
        display_page(report.page(counted) + drawn, report.plain(counted))
    else:
        from rich.console import Console

        report.show(counted, Console())


def count(capture: Capture, lab: Lab, name: str, shape: Shape, card: str | None) -> Counted:
    """What a captured kernel moves and computes at ``shape``, and its bounds on cards. Raises Unusable."""
    return Submission(capture, only(lab, name, shape), None, SEED).count(name, shape, card)

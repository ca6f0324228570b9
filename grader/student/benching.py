"""``bench``: a live kernel on the card beside the libraries, as a table and a chart in the notebook."""

import functools
from collections.abc import Mapping
from typing import Any

from grader import catalog
from grader.capture.format import Capture
from grader.capture.tracing import trace as trace_kernel
from grader.catalog import Group
from grader.judge import bench as judge
from grader.messages import _
from grader.report import bench as report
from grader.report import roofline_plot
from grader.student.checking import cells, display_page, in_notebook, name_of, show_finding
from grader.student.tracing import only, shape_of
from grader.verdict import Finding, JudgeFailed, Unusable


def show_bench(kernel: Any, shape: str | Mapping[str, int] | None, schedule: Mapping[str, Any]) -> None:
    name = name_of(kernel)
    try:
        lab, wanted = catalog.find_kernel(name)
    except KeyError as error:
        advice = _("Pass the kernel's function itself, for instance bench(matmul).")
        show_finding(Finding(error.args[0], advice))
        return
    try:
        card = judge.must_have_card()  # before anything is run
        timed = wanted.group(Group.TIMED)
        at = timed[0] if shape is None and timed else shape_of(wanted, shape)
        sources = cells()
        given = functools.partial(kernel, **schedule) if schedule else kernel
        found = trace_kernel(given, wanted, at, {source.file for source in sources}.__contains__)
        capture = Capture(lab.id, lab.version, (found,), tuple(sources), sandbox="notebook")
        measured = judge.run([(only(lab, name, at), capture)], card, _("your notebook"))
    except Unusable as error:
        show_finding(error.finding)
        return
    except JudgeFailed as error:
        message = _("The measurement itself failed. That is our fault. Please report this:")
        show_finding(Finding(message, evidence=tuple(str(error).splitlines()[-15:])))
        return
    if not in_notebook():
        from rich.console import Console

        report.show(measured, Console())
        return
    chart = report.chart(measured)
    drawn = roofline_plot.page(chart) if chart.works else ""
    display_page(report.page(measured) + drawn, report.plain(measured))

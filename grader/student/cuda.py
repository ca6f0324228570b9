"""``show_cuda``: the CUDA source that a live kernel becomes, in the notebook, with its landmarks marked."""

import functools
from collections.abc import Mapping
from typing import Any

from grader import catalog
from grader.capture.format import Capture
from grader.capture.tracing import trace as trace_kernel
from grader.catalog import Group, Kernel, Shape
from grader.judge.cuda_source import cuda_source
from grader.judge.submission import Submission
from grader.messages import _
from grader.report import cuda as report
from grader.student.checking import cells, display_page, in_notebook, name_of, show_finding
from grader.student.tracing import SEED, only, shape_of
from grader.verdict import Finding, JudgeFailed, Unusable


def show_cuda_source(
    kernel: Any, shape: str | Mapping[str, int] | None, arch: str | None, schedule: Mapping[str, Any]
) -> None:
    name = name_of(kernel)
    try:
        lab, wanted = catalog.find_kernel(name)
    except KeyError as error:
        advice = _("Pass the kernel's function itself, for instance show_cuda(matmul).")
        show_finding(Finding(error.args[0], advice))
        return
    try:
        at = _shape(wanted, shape)
        sources = cells()
        given = functools.partial(kernel, **schedule) if schedule else kernel
        traced = trace_kernel(given, wanted, at, {source.file for source in sources}.__contains__)
        capture = Capture(lab.id, lab.version, (traced,), tuple(sources), sandbox="notebook")
        found = cuda_source(Submission(capture, only(lab, name, at), None, SEED), name, at, arch)
    except Unusable as error:
        show_finding(error.finding)
        return
    except JudgeFailed as error:
        message = _("The compiler's process failed. That is our fault; please report this:")
        show_finding(Finding(message, evidence=tuple(str(error).splitlines()[-15:])))
        return
    if in_notebook():
        display_page(report.page(found), report.plain(found))
    else:
        from rich.console import Console

        report.show(found, Console())


def _shape(kernel: Kernel, asked: str | Mapping[str, int] | None) -> Shape:
    """Without a wish the shape that is timed, where the lab has one: its source is the one that counts."""
    if asked is None:
        return (kernel.group(Group.TIMED) or kernel.shapes)[0]
    return shape_of(kernel, asked)

"""``check``: from a live kernel to a table in the notebook."""

import linecache
from typing import Any

from grader import catalog
from grader.capture.format import Capture, Source
from grader.capture.tracing import trace_kernels
from grader.messages import _
from grader.report import notebook as html
from grader.report import words
from grader.report.terminal import render
from grader.report.text import describe
from grader.verdict import Finding, JudgeFailed, Unusable, Verdict


def name_of(kernel: Any) -> str:
    """The name under which a lab knows a kernel: its function's, under any decorator and given arguments."""
    while not isinstance(getattr(kernel, "__name__", None), str) and hasattr(kernel, "func"):
        kernel = kernel.func
    return str(getattr(kernel, "__name__", None))


def check_kernel(kernel: Any, part: str | None, device: str) -> None:
    name = name_of(kernel)
    try:
        lab, _kernel = catalog.find_kernel(name)
    except KeyError as error:
        show_finding(Finding(error.args[0], _("Pass the kernel's function itself, for instance check(matmul).")))
        return
    sources = cells()
    traces = trace_kernels({name: kernel}, lab.kernels, {source.file for source in sources}.__contains__)
    capture = Capture(lab.id, lab.version, tuple(traces), tuple(sources), sandbox="notebook")
    from grader.autograders import judge_capture

    try:
        verdict = judge_capture(capture, device=device, part=part, kernel=name)
    except Unusable as error:
        show_finding(error.finding)
        return
    except JudgeFailed as error:
        message = _("The judge itself failed. That is our fault, and nothing was decided. Please report this:")
        show_finding(Finding(message, evidence=tuple(str(error).splitlines()[-15:])))
        return
    if not in_notebook():
        from rich.console import Console

        Console().print(render(verdict))
    else:
        display_page(html.render(verdict), "\n".join(_plain(verdict)))


def display_page(page: str, text: str) -> None:
    """The page, and the same in words for where no HTML is shown."""
    from IPython.display import display

    display({"text/html": page, "text/plain": text}, raw=True)


def _plain(verdict: Verdict) -> list[str]:
    lines = [f"{words.outcome(check)}  {words.points(check)}  {check.title}" for check in verdict.checks]
    return [*lines, words.summary(verdict)]


def cells() -> list[Source]:
    """The cells that were run in this session, by the file names that IPython gave them."""
    names = getattr(getattr(_shell(), "compile", None), "_filename_map", {})
    return [Source(file, f"In [{number}]", "".join(linecache.getlines(file))) for file, number in names.items()]


def _shell() -> Any:
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def in_notebook() -> bool:
    return hasattr(_shell(), "kernel")


def show_finding(finding: Finding) -> None:
    if in_notebook():
        display_page(html.render_finding(finding), describe(finding))
    else:
        print(describe(finding))

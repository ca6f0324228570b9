"""``check``: from a live kernel, or a value, to a table in the notebook."""

import linecache
from collections.abc import Mapping
from dataclasses import replace
from textwrap import indent
from typing import Any

from grader import catalog
from grader.capture.format import Capture, Source
from grader.capture.tracing import hand_in, trace_kernels
from grader.messages import _
from grader.report import notebook as html
from grader.report import words
from grader.report.terminal import render
from grader.report.text import describe
from grader.verdict import MIME, Finding, JudgeFailed, Unusable, Verdict, to_json

MOST_LAYERS = 20  # decorators and given arguments around a kernel's function


def name_of(kernel: Any) -> str:
    """The name under which a lab knows a kernel: its function's, under any decorator and given arguments."""
    for _layer in range(MOST_LAYERS):  # some objects have any attribute one asks for
        if isinstance(getattr(kernel, "__name__", None), str):
            break
        inner = getattr(kernel, "jit_impl", None)  # of @tilelang.autotune
        kernel = getattr(kernel, "func", None) if inner is None else inner
    return str(getattr(kernel, "__name__", None))


def check_handed_in(kernel: Any, values: Mapping[str, Any], part: str | None, device: str) -> None:
    try:
        lab = _lab_of(kernel, values)
    except Unusable as error:
        show_finding(error.finding)
        return
    capture = captured(lab, kernel, values)
    if kernel is None and part is None:
        part = next(iter(values))
    name = None if kernel is None else name_of(kernel)
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
        display_page(html.render(verdict), "\n".join(_plain(verdict)), {MIME: to_json(_public(verdict))})


def _public(verdict: Verdict) -> Verdict:
    """A notebook is passed on: it need not say how to replay the run."""
    return replace(verdict, seed=None)


def _lab_of(kernel: Any, values: Mapping[str, Any]) -> catalog.Lab:
    """The lab that asks for all of this. Raises Unusable if none does."""
    if kernel is None and not values:
        raise Unusable(
            Finding(_("There is nothing to check."), _("Pass a kernel's function, or a value by its name."))
        )
    if kernel is not None and not callable(kernel):
        kind = type(kernel).__name__
        raise Unusable(
            Finding(
                _("This is no kernel's function, but a value of type {kind}.").format(kind=kind),
                _("Pass the function itself, as in check(matmul), or a value by its name, check(kept=kept)."),
            )
        )
    try:
        if kernel is None:
            lab, _value = catalog.find_value(next(iter(values)))
        else:
            lab, _kernel = catalog.find_kernel(name_of(kernel))
    except KeyError as error:
        advice = _("Pass the kernel's function itself, for instance check(matmul).")
        raise Unusable(Finding(error.args[0], "" if kernel is None else advice)) from None
    known = [value.name for value in lab.values]
    for name in values:
        if name not in known:
            text = _("{lab} asks for no value '{name}'.").format(lab=lab.id, name=name)
            advice = _("Its values are: {names}.").format(names=", ".join(known)) if known else ""
            raise Unusable(Finding(text, advice))
    return lab


def captured(lab: catalog.Lab, kernel: Any, values: Mapping[str, Any]) -> Capture:
    """What is handed in here and now, as the sandbox would capture it from the notebook."""
    sources = cells()
    handed = tuple(hand_in(values, values))
    capture = Capture(lab.id, lab.version, (), tuple(sources), sandbox="notebook", values=handed)
    if kernel is None:
        return capture
    kernels = catalog.at_schedules(lab, capture.plain_values).kernels
    traces = trace_kernels({name_of(kernel): kernel}, kernels, {source.file for source in sources}.__contains__)
    return replace(capture, traces=tuple(traces))


def display_page(page: str, text: str, more: Mapping[str, str] | None = None) -> None:
    """The page, the same in words for where no HTML is shown, and ``more`` by media type."""
    from IPython.display import display

    display({"text/html": page, "text/plain": text, **(more or {})}, raw=True)


def _plain(verdict: Verdict) -> list[str]:
    """A line for each check, with its reasons below it."""
    lines = []
    for check in verdict.checks:
        lines.append(f"{words.outcome(check)}  {words.points(check)}  {check.title}")
        lines += [indent(describe(finding), "    ") for finding in check.findings]
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

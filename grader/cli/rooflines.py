"""``roofline``: what a notebook's kernel moves and computes, and how fast cards could be at that."""

from typing import Annotated

import typer
from rich.console import Console

from grader.cli.judging import JsonOption, LabOption, NotebookArgument, lab_of, working
from grader.cli.tracing import kernel_of, sizes_of
from grader.messages import _


def roofline(
    notebook: NotebookArgument,
    kernel: Annotated[str | None, typer.Option(help="The kernel's name.", show_default="the lab's first")] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="A shape of the lab, or sizes: M=512,N=512,K=512.", show_default="the lab's first"),
    ] = None,
    card: Annotated[str | None, typer.Option(help="One card only, e.g. H200.", show_default="all known")] = None,
    lab: LabOption = None,
    json: JsonOption = False,
) -> None:
    """Count what a kernel moves and computes, on the simulator, and bound its time on cards."""
    from grader.capture import capture_notebook
    from grader.gpu.roofline import find
    from grader.report import roofline as report
    from grader.student.rooflines import count
    from grader.student.tracing import only, shape_of
    from grader.verdict.traffic import to_json

    which = lab_of(notebook, lab)
    wanted = which.kernel(kernel_of(which, kernel))
    at = shape_of(wanted, sizes_of(shape))
    if card is not None:
        find(card)  # before anything is run
    with working(_("Counting in {notebook} ...").format(notebook=notebook.name), quiet=json):
        capture = capture_notebook(notebook, only(which, wanted.name, at))
        counted = count(capture, which, wanted.name, at, card)
    if json:
        typer.echo(to_json(counted))
    else:
        report.show(counted, Console())

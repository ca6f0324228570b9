"""``roofline``: what a notebook's kernel moves and computes, and how fast cards could be at that."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grader.cli.judging import JsonOption, LabOption, NotebookArgument, lab_of, working
from grader.cli.outputs import must_be_writable
from grader.cli.tracing import kernel_of, sizes_of
from grader.messages import _
from grader.verdict import Unusable


def roofline(
    notebook: NotebookArgument,
    kernel: Annotated[str | None, typer.Option(help="The kernel's name.", show_default="the lab's first")] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="A shape of the lab, or sizes: M=512,N=512,K=512.", show_default="the lab's first"),
    ] = None,
    card: Annotated[str | None, typer.Option(help="One card only, e.g. H200.", show_default="all known")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the first card's roofline to this file (.svg or .png).", show_default=False),
    ] = None,
    lab: LabOption = None,
    json: JsonOption = False,
) -> None:
    """Count what a kernel moves and computes, on the simulator, and bound its time on cards."""
    from grader.capture import capture_notebook
    from grader.gpu.roofline import find
    from grader.report import roofline as report
    from grader.report import roofline_plot
    from grader.student.rooflines import count
    from grader.student.tracing import only, shape_of
    from grader.verdict.traffic import to_json

    which = lab_of(notebook, lab)
    wanted = which.kernel(kernel_of(which, kernel))
    at = shape_of(wanted, sizes_of(shape))
    # Before anything is run:
    if card is not None:
        find(card)
    if plot is not None:
        roofline_plot.check_name(plot)
        must_be_writable(plot)
    with working(_("Counting in {notebook} ...").format(notebook=notebook.name), quiet=json):
        capture = capture_notebook(notebook, only(which, wanted.name, at))
        counted = count(capture, which, wanted.name, at, card)
    if json:
        typer.echo(to_json(counted))
    else:
        report.show(counted, Console())
    if plot is not None:
        chart = report.chart(counted)
        if chart is None:
            raise Unusable(_("There is nothing to draw: the kernel has no operations, or no card is fit for it."))
        roofline_plot.write(chart, plot)
        typer.echo(_("Wrote {path}.").format(path=plot), err=json)

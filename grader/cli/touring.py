"""``tour``: every lab's solution, section by section."""

from typing import Annotated

import typer
from rich.console import Console

from grader import catalog
from grader.cli.judging import known, working
from grader.cli.making import ROOT
from grader.messages import _, progress
from grader.verdict.tour import Tour, TouredLab, to_json


def tour(
    only: Annotated[
        list[str] | None, typer.Option(help="A lab, may be repeated.", show_default="all of them")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Run every lab's solution, section by section, and say how each did. Ctrl-C keeps what was done."""
    from grader.classroom import tour as touring
    from grader.report.tour import render

    labs = catalog.LABS if not only else tuple(known(name) for name in only)
    done: list[TouredLab] = []
    interrupted = False
    with working(_("Touring {count} labs ...").format(count=len(labs)), quiet=json):
        try:
            for lab in touring.tour(ROOT, labs, progress.say):
                done.append(lab)
                text = _("{lab} passed in {seconds:.0f} s.") if lab.passed else _("{lab} failed: {why}")
                progress.say(text.format(lab=lab.lab, seconds=lab.seconds, why=lab.why))
        except KeyboardInterrupt:
            interrupted = True
    found = Tour(tuple(done), interrupted)
    if json:
        typer.echo(to_json(found))
    else:
        Console().print(render(found, len(labs)))
        if not interrupted:
            typer.echo(_("What the kernels are written in: tilelab cheatsheet"))
    raise typer.Exit(130 if interrupted else 0 if found.passed == len(labs) else 1)

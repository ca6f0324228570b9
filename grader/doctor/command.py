"""``tilelab doctor``: exit status 0 if the machine is fit, 1 if something needs repair."""

import typer

from grader.doctor import run
from grader.doctor.report import show, to_json


def doctor(
    json: bool = typer.Option(False, "--json", help="Print the report as JSON, for programs."),
) -> None:
    """Say whether this machine is fit for the labs, and what to do where it isn't."""
    report = run()
    if json:
        typer.echo(to_json(report))
    else:
        show(report)
    if not report.fit:
        raise typer.Exit(1)

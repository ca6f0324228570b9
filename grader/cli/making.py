"""``build`` and ``course``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grader.messages import _
from grader.report.terminal import show_finding
from grader.verdict import Finding, Unusable

#: The project's folder, of which this package is a part.
ROOT = Path(__file__).resolve().parents[2]


def build(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; say what is stale or wrong.")] = False,
) -> None:
    """Make labs/ from solutions/, or check that both agree and earn what they should."""
    from grader.classroom.build import build as build_labs

    _need_solutions()
    report = build_labs(ROOT, check=check)
    console = Console()
    for finding in report.findings:
        show_finding(finding, console)
    if not report.ok:
        raise typer.Exit(1)
    for path in report.written:
        typer.echo(_("wrote {path}").format(path=path.relative_to(ROOT)))
    done = _("{count} labs checked: all is well.") if check else _("{count} labs are up to date.")
    typer.echo(done.format(count=len(report.labs)))


def course(
    folder: Annotated[Path, typer.Argument(help="The course folder; made if it isn't there.")] = Path("course"),
) -> None:
    """Make or refresh an instructor's course folder for nbgrader. Student work in it is never touched."""
    from grader.classroom.course import refresh

    _need_solutions()
    folder.mkdir(parents=True, exist_ok=True)
    report = refresh(ROOT, folder)
    for finding in report.findings:
        show_finding(finding, Console())
    if not report.ok:
        raise typer.Exit(1)
    typer.echo(
        _("{folder} holds {count} labs. Hand out and grade from there: nbgrader --help").format(
            folder=folder, count=len(report.labs)
        )
    )


def _need_solutions() -> None:
    if not (ROOT / "solutions").is_dir():
        raise Unusable(
            Finding(
                _("There is no solutions/ folder beside the grader: this is a student's installation."),
                _("Work in the instructor's clone or container."),
            )
        )

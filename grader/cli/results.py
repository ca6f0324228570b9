"""The table of a grading run."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report import words
from grader.report.text import describe, printable
from grader.verdict import Finding, Outcome, Unusable, Verdict, to_json

if TYPE_CHECKING:
    from grader.autograders.batch import Judged
    from grader.classroom.grade import StudentResult


def print_results(results: Sequence["StudentResult"], console: Console) -> None:
    """A table a lab, one row a student: points, what waits, and the first reason for each point lost."""
    for lab in dict.fromkeys(result.lab for result in results):
        table = Table(title=lab, title_justify="left", show_lines=True)
        table.add_column(_("student"), overflow="fold")
        table.add_column(_("points"), justify="right", no_wrap=True)
        table.add_column(_("waiting"), justify="right", no_wrap=True)
        table.add_column(_("why"), ratio=1)
        for result in results:
            if result.lab == lab:
                assessed, waiting = _limits(result)
                points = f"{words.number(result.score)} / {words.number(assessed)}"
                table.add_row(Text(printable(result.student)), points, words.number(waiting), Text(reason(result)))
        console.print(table)
    console.print(_("Points are of what was assessed; 'waiting' ones need a GPU, or a teacher."), style="dim")


def print_judged(done: Sequence["Judged"], console: Console) -> None:
    """One row a capture: points, what waits, and the first reason for each point lost."""
    table = Table(show_lines=True)
    table.add_column(_("capture"), overflow="fold")
    table.add_column(_("lab"))
    table.add_column(_("points"), justify="right", no_wrap=True)
    table.add_column(_("waiting"), justify="right", no_wrap=True)
    table.add_column(_("why"), ratio=1)
    for judged in done:
        name = Text(printable(judged.file.name))
        if judged.verdict is None:
            table.add_row(name, "", "", "", Text(_why_not(judged)))
        else:
            verdict = judged.verdict
            points = f"{words.number(verdict.points)} / {words.number(verdict.assessed_max)}"
            table.add_row(name, verdict.lab, points, words.number(verdict.waiting), Text(lost(verdict)))
    console.print(table)
    console.print(_("Points are of what was assessed; 'waiting' ones need a GPU, or a teacher."), style="dim")


def _why_not(judged: "Judged") -> str:
    if isinstance(judged.error, Unusable):
        return _short(judged.error.finding)
    lines = [line.strip() for line in str(judged.error).splitlines() if line.strip()]
    return printable(_("The judge itself failed: {why}").format(why=lines[-1] if lines else "?"))


def judged_to_json(done: Sequence["Judged"]) -> str:
    rows = [
        {
            "file": str(judged.file),
            "verdict": None if judged.verdict is None else json.loads(to_json(judged.verdict)),
            "error": None if judged.error is None else _why_not(judged),
        }
        for judged in done
    ]
    return json.dumps(rows, indent=2)


def _limits(result: "StudentResult") -> tuple[float, float]:
    """The most that could be earned so far, and what waits."""
    if result.verdict is None:
        return result.max_score, 0.0
    return result.verdict.assessed_max, result.verdict.waiting


def reason(result: "StudentResult") -> str:
    if result.error is not None:
        lines = [line.strip() for line in result.error.splitlines() if line.strip()]
        return printable(_("Grading failed: {why}").format(why=lines[-1] if lines else "?"))
    if result.unusable is not None:
        return _short(result.unusable)
    return lost(result.verdict) if result.verdict is not None else ""


def lost(verdict: Verdict) -> str:
    """The first finding of each check that failed, each told once."""
    lines = []
    for check in verdict.checks:
        if check.outcome is Outcome.FAILED and check.findings:
            lines.append(_short(check.findings[0]))
    if lines or verdict.passed:
        return "\n".join(dict.fromkeys(lines)) or _("all that was assessed passed")
    open_ = [check.findings[0] for check in verdict.checks if check.waiting and check.findings]
    return "\n".join([_("nothing but the free points could be assessed:"), *map(_short, open_[:1])])


def _short(finding: Finding) -> str:
    return printable(f"{finding.message} ({finding.where})" if finding.where else finding.message)


def results_to_json(results: Sequence["StudentResult"]) -> str:
    rows = [
        {
            "student": result.student,
            "lab": result.lab,
            "score": result.score,
            "max_score": result.max_score,
            "needs_manual_grade": result.needs_manual_grade,
            "verdict": None if result.verdict is None else json.loads(to_json(result.verdict)),
            "unusable": None if result.unusable is None else describe(result.unusable),
            "error": result.error,
        }
        for result in results
    ]
    return json.dumps(rows, indent=2)

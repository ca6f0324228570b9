"""Verdicts in the terminal, with rich. Everything of a student's is shown as text, never as markup."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report import words
from grader.report.text import describe
from grader.verdict import Check, Finding, Verdict


def show(verdict: Verdict, console: Console) -> None:
    console.print(render(verdict))


def render(verdict: Verdict) -> RenderableType:
    """A table of checks, with what was found below each, and the sum."""
    title = _("{lab}, judged on the {device}").format(lab=verdict.lab, device=verdict.device)
    table = Table(title=Text(title), title_justify="left", show_lines=True)
    table.add_column(_("check"), ratio=5)
    table.add_column(_("verdict"), no_wrap=True)
    table.add_column(_("points"), justify="right", no_wrap=True)
    for check, findings in words.told(verdict):
        state = Text(words.outcome(check), style=words.COLOUR[check.outcome])
        table.add_row(_body(check, findings), state, words.points(check))
    parts: list[RenderableType] = [table]
    parts += [Text.assemble((_("note: "), "bold"), describe(note)) for note in verdict.notes]
    parts.append(Text(words.summary(verdict), style="bold"))
    return Group(*parts)


def _body(check: Check, findings: tuple[Finding, ...]) -> Text:
    body = Text(check.title, style="bold")
    for measured in check.figures:
        body.append("\n" + words.figures(measured), style="not bold cyan")
    for finding in findings:
        body.append("\n" + describe(finding), style="not bold")
    return body


def show_finding(finding: Finding, console: Console) -> None:
    """Input that can't be judged."""
    console.print(Text(describe(finding)))

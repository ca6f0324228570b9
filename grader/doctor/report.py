"""What the doctor found, as plain data, and how it is shown."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _


class Status(StrEnum):
    """``NOTE`` is worth knowing and stops nothing; ``PROBLEM`` is for the reader to repair."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One check's result: one plain sentence (or two) that says what was found and what to do about it."""

    name: str
    status: Status
    message: str


@dataclass(frozen=True)
class Report:
    """All findings. ``device`` is what will judge kernels here: the card's name, or "simulator"."""

    device: str
    findings: tuple[Finding, ...]

    @property
    def fit(self) -> bool:
        """True if nothing needs repair. A machine without a GPU is fit: the simulator judges there."""
        return all(finding.status is not Status.PROBLEM for finding in self.findings)


def to_json(report: Report) -> str:
    return json.dumps({"fit": report.fit, **asdict(report)}, indent=2)


_STYLES = {Status.OK: "green", Status.NOTE: "yellow", Status.PROBLEM: "bold red"}


def render(report: Report) -> RenderableType:
    """The report for a terminal or, without colours, for a log file."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in report.findings:
        # Text, not str: a path with brackets in it must not be read as rich's markup.
        status = Text(_status_word(finding.status), style=_STYLES[finding.status])
        table.add_row(status, Text(finding.name), Text(finding.message))
    return Group(table, Text(""), Text(_summary(report), style="bold"))


def show(report: Report) -> None:
    Console().print(render(report))


def _status_word(status: Status) -> str:
    words = {Status.OK: _("ok"), Status.NOTE: _("note"), Status.PROBLEM: _("problem")}
    return words[status]


def _summary(report: Report) -> str:
    problems = sum(finding.status is Status.PROBLEM for finding in report.findings)
    if problems:
        return _("Found {count} to repair: see 'problem' above.").format(count=problems)
    if report.device == "simulator":
        return _("This machine is fit. Kernels are judged on the simulator.")
    return _("This machine is fit. Kernels are judged on the {card}.").format(card=report.device)

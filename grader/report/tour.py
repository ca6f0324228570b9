"""A tour of the labs, as a table."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report.text import printable
from grader.verdict.tour import Tour, TouredLab


def render(tour: Tour, asked: int) -> RenderableType:
    """One row a lab; ``asked`` is how many labs the tour was to visit."""
    table = Table(title=_("The tour"), title_justify="left")
    table.add_column(_("lab"), no_wrap=True)
    table.add_column(_("result"), no_wrap=True)
    table.add_column(_("points"), justify="right", no_wrap=True)
    table.add_column(_("sections"), justify="right", no_wrap=True)
    table.add_column(_("seconds"), justify="right", no_wrap=True)
    table.add_column(_("why"), ratio=1)
    for lab in tour.labs:
        result = Text(_("✓ passed"), "green") if lab.passed else Text(_("✗ failed"), "red")
        ran = sum(section.ending == "ran" for section in lab.sections)
        sections = f"{ran}/{len(lab.sections)}"
        table.add_row(lab.lab, result, points(lab), sections, f"{lab.seconds:.0f}", Text(printable(lab.why)))
    return Group(table, Text(summary(tour, asked), style="bold"))


def points(lab: TouredLab) -> str:
    """Points earned, of those that could be assessed."""
    earned = sum(verdict.points for verdict in lab.verdicts)
    assessed = sum(verdict.assessed_max for verdict in lab.verdicts)
    return f"{earned:g}/{assessed:g}"


def summary(tour: Tour, asked: int) -> str:
    text = _("{passed} of {asked} labs passed.").format(passed=tour.passed, asked=asked)
    if tour.interrupted:
        text += " " + _("Interrupted: {count} were not run.").format(count=asked - len(tour.labs))
    return text

"""A judgement in words for the gradebook and the feedback: what a student may read, and nothing more.

Left out: seed, figures, versions, notes and the folders of paths. (Of hidden shapes the judge itself says nothing
that could be told.) Written so that it reads well both as plain text (Formgrader's comment box, a cell's output)
and as Markdown (the feedback page), where no text of a student's can become HTML.
"""

import re
from collections.abc import Iterable

from grader.messages import _
from grader.verdict import Check, Finding, Outcome

OUTCOMES = {
    Outcome.PASSED: _("passed"),
    Outcome.FAILED: _("failed"),
    Outcome.INCONCLUSIVE: _("inconclusive"),
    Outcome.NOT_ASSESSED: _("not assessed"),
}
# An absolute path; its last part is enough to know which file is meant.
PATH = re.compile(r"(?<![\w./])/(?:[\w.@+-]+/)+([\w.@+-]+)")
MOST_CHARACTERS = 2000


def explain_checks(checks: Iterable[Check], seed: str | None = None) -> str:
    """One item a check: title, outcome, points; below it what was found."""
    lines: list[str] = []
    for check in checks:
        lines.append(f"- {_clean(check.title, seed)}: {OUTCOMES[check.outcome]}, {_points(check)}")
        for finding in check.findings:
            lines.append(f"    - {_finding(finding, seed)}")
            lines += (f"        - {_clean(item, seed)}" for item in finding.evidence)
    return "\n".join(lines)


def explain_unusable(finding: Finding) -> str:
    return _("This submission could not be judged, so it has no points: {reason}").format(reason=_finding(finding))


def as_markdown(text: str) -> str:
    """The same words where Markdown is rendered: nothing in them is taken for HTML."""
    return text.replace("<", "&lt;")


def _points(check: Check) -> str:
    if check.waiting and check.manual:
        return _("{points} points are a teacher's to give").format(points=f"{check.waiting:g}")
    if check.waiting:
        return _("{points} points wait for a run on a GPU").format(points=f"{check.waiting:g}")
    return _("{points} of {most} points").format(points=f"{check.points:g}", most=f"{check.max_points:g}")


def _finding(finding: Finding, seed: str | None = None) -> str:
    where = f" ({finding.where})" if finding.where else ""
    return _clean(f"{finding.message}{where} {finding.advice}", seed)


def _clean(text: str, seed: str | None) -> str:
    if seed:
        text = text.replace(seed, "…")
    text = PATH.sub(r"\1", " ".join(text.split()))
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + " …"

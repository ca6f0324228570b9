"""The words and marks that every page shares. A mark never stands alone: its word stands beside it."""

from grader.messages import _
from grader.messages.numbers import rate
from grader.verdict import SIMULATOR, Check, Figures, Finding, Location, Outcome, Verdict

MARK = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.INCONCLUSIVE: "~",
    Outcome.NOT_ASSESSED: "–",
}

COLOUR = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_ASSESSED: "bright_black",
}


def outcome(check: Check) -> str:
    words = {
        Outcome.PASSED: _("passed"),
        Outcome.FAILED: _("failed"),
        Outcome.INCONCLUSIVE: _("inconclusive"),
        Outcome.NOT_ASSESSED: _("not assessed"),
    }
    return f"{MARK[check.outcome]} {words[check.outcome]}"


def points(check: Check) -> str:
    if check.waiting and check.manual:
        return _("{points} from a teacher").format(points=number(check.max_points))
    if check.waiting:
        return _("waiting for {points}").format(points=number(check.max_points))
    return f"{number(check.points)} / {number(check.max_points)}"


def told(verdict: Verdict) -> list[tuple[Check, tuple[Finding, ...]]]:
    """Each check with what to tell about it. What an earlier check said in full is only referred to."""
    said_of: dict[tuple[str, Location | None], str] = {}
    rows = []
    for check in verdict.checks:
        here = _asked_of(check)
        fresh, others = [], set()
        for finding in check.findings:
            cause = (finding.message, finding.where)
            if cause in said_of:
                others.add(said_of[cause])
            else:
                fresh.append(finding)
        said_of |= {(finding.message, finding.where): here for finding in fresh}
        rows.append((check, (*fresh, *(_repeated(here, other) for other in sorted(others)))))
    return rows


def _asked_of(check: Check) -> str:
    """The kernel or value that a check is about: its cell is named after it ("matmul-right")."""
    return check.cell.rpartition("-")[0]


def _repeated(here: str, there: str) -> Finding:
    if here == there:
        return Finding(_("For the same reason as above."))
    return Finding(_("{here}: for the same reason as {there} above.").format(here=here, there=there))


def number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def summary(verdict: Verdict) -> str:
    """The sentence below the table."""
    text = _("{points} of {assessed} assessed points").format(
        points=number(verdict.points), assessed=number(verdict.assessed_max)
    )
    teacher = verdict.waiting_for_teacher
    card, on_simulator = verdict.waiting - teacher, verdict.device == SIMULATOR
    waits = []
    if card:
        # On a card nothing waits for one: what is open there was too noisy, or has no target.
        waits.append((_("{n} wait for a GPU") if on_simulator else _("{n} are still open")).format(n=number(card)))
    if teacher:
        waits.append(_("{n} wait for a teacher").format(n=number(teacher)))
    if not waits:
        return text + "."
    if not verdict.assessed_max:
        return _("Nothing could be judged here; of the points, {waits}.").format(waits=_(" and ").join(waits))
    return text + "; " + _(" and ").join(waits) + "."


def figures(measured: Figures) -> str:
    """A measurement in one line."""
    text = _(
        "{achieved} {unit} in {ms:.3g} ms; {peer} {peer_achieved}; "
        "ratio {ratio:.3f} ({low:.3f}–{high:.3f}, {runs} runs)"
    )
    line = text.format(
        achieved=rate(measured.achieved),
        unit=measured.unit,
        ms=measured.milliseconds,
        peer=measured.peer,
        peer_achieved=rate(measured.peer_achieved),
        ratio=measured.ratio,
        low=measured.ratio_low,
        high=measured.ratio_high,
        runs=measured.runs,
    )
    if measured.target is not None and measured.decided is not None:
        line += _("; counts as {decided}, target {target}").format(
            decided=rate(measured.decided), target=rate(measured.target)
        )
    if measured.ceiling is not None:
        line += _("; {share:.0%} of what the card was measured to reach").format(
            share=measured.achieved / measured.ceiling
        )
    return line

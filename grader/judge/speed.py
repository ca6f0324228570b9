"""Decides whether a kernel is fast enough, from what was measured: a pure function of figures and target."""

from collections.abc import Mapping
from typing import Any

from grader.catalog import Shape
from grader.gpu.state import State
from grader.gpu.targets import Target
from grader.judge.task import Task
from grader.messages import _
from grader.messages.numbers import rate
from grader.verdict import Assessment, Figures, Finding, Outcome

#: The share of delayed launches up to which a card counts as quiet. 0.016 was seen on an idle H200, 0.07 on
#: one that another process kept busy.
QUIET = 0.04
#: The same while another process has the card open.
QUIET_IF_OPEN = 0.015
#: Of the ratio, added on both sides of its interval: what differs from process to process (where memory lies).
BETWEEN_RUNS = 0.002
#: A measured ceiling is itself a measurement: what is above it by less than this is possible.
CEILING_MARGIN = 1.03
#: Of a matrix product's ceiling, on a card whose peak is unknown. A kernel may well beat the library, but not by
#: this much: on the cards that we know, libraries reach more than half of the peak.
PRODUCT_MARGIN = 2.0


def figures_of(
    timing: Mapping[str, Any], state: State, task: Task, shape: Shape, target: Target | None
) -> Figures:
    """The figures of a measurement, as they are shown and decided on."""
    low, high = widened(timing["low"], timing["high"])
    return Figures(
        shape=str(shape),
        unit=task.unit,
        achieved=task.rate(shape, timing["kernel_ms"]),
        milliseconds=timing["kernel_ms"],
        peer=timing["peer"],
        peer_achieved=task.rate(shape, timing["peer_ms"]),
        ratio=timing["ratio"],
        ratio_low=low,
        ratio_high=high,
        runs=timing["rounds"],
        decided=None if target is None else timing["ratio"] * target.peer_rate,
        target=None if target is None else target.full,
        ceiling=None if target is None else target.ceiling,
        clock=timing["clock"],
        card_state=in_words(state),
        origin="" if target is None else target.origin,
    )


def widened(low: float, high: float) -> tuple[float, float]:
    """The interval of a ratio that is decided on, of one that was measured in one process."""
    return low * (1 - BETWEEN_RUNS), high * (1 + BETWEEN_RUNS)


def unquiet(timing: Mapping[str, Any], state: State) -> tuple[str, ...]:
    """What disturbed the measurement; nothing on a quiet card."""
    reasons = [_("the card was slowed down: {reason}").format(reason=reason) for reason in state.slowed]
    reasons += [_("the card was shared: {other}").format(other=other) for other in state.others]
    if not reasons and timing["disturbed"] > (QUIET_IF_OPEN if state.present else QUIET):
        text = _("{share:.1%} of the launches were delayed by something else")
        if state.present:
            text = _("{share:.1%} of the launches were delayed, and another process has the card open")
        reasons.append(text.format(share=timing["disturbed"]))
    return tuple(reasons)


def decide(figures: Figures, target: Target, disturbed: tuple[str, ...] = (), tries: int = 1) -> Assessment:
    """The tier that is reached for sure. A tier that lies inside the ratio's interval can't be decided.

    What disturbs a card can only make a kernel slower, but it may slow the peer down more than the kernel. So on a
    disturbed card the raw figure must reach a tier, too, and what is not reached there is undecided.
    """
    impossible = _impossible(figures, target)
    if impossible is not None:
        return Assessment(Outcome.FAILED, (impossible,), (figures,))
    low, high = figures.ratio_low * target.peer_rate, figures.ratio_high * target.peer_rate
    reached = [tier for tier in target.tiers if low >= tier.at]
    possible = [tier for tier in target.tiers if high >= tier.at]
    if disturbed:
        reached = [tier for tier in reached if figures.achieved >= tier.at]
        possible = list(target.tiers)
    if reached != possible:
        return Assessment(
            Outcome.INCONCLUSIVE, (_undecided(figures, low, high, target, disturbed, tries),), (figures,)
        )
    if not reached:
        finding = Finding(
            _("{figure} {unit}; points begin at {first}.").format(
                figure=rate(figures.decided), unit=figures.unit, first=rate(target.tiers[0].at)
            )
        )
        return Assessment(Outcome.FAILED, (finding,), (figures,))
    share = reached[-1].share
    findings = ()
    if share < 1.0:
        text = _("{figure} {unit} earns {share:.0%} of the points; {full} earns all.").format(
            figure=rate(figures.decided), unit=figures.unit, share=share, full=rate(target.full)
        )
        findings = (Finding(text),)
    return Assessment(Outcome.PASSED, findings, (figures,), share)


def _impossible(figures: Figures, target: Target) -> Finding | None:
    """Why no card of this kind can have done the work in that time."""
    text = _("{figure} {unit} is more than the card can do ({peak} by {source}): the work was not done.")
    limits = [] if target.peak is None else [(target.peak, 1.0, _("its datasheet"))]
    if target.ceiling is not None and target.unit == "GB/s":
        limits.append((target.ceiling, CEILING_MARGIN, _("measurement")))
    elif target.ceiling is not None and target.peak is None:
        limits.append((target.ceiling * PRODUCT_MARGIN, 1.0, _("twice what libraries were measured to reach")))
    for limit, margin, source in limits:
        if figures.achieved > limit * margin:
            words = text.format(figure=rate(figures.achieved), unit=figures.unit, peak=rate(limit), source=source)
            return Finding(words)
    return None


def _undecided(
    figures: Figures, low: float, high: float, target: Target, disturbed: tuple[str, ...], tries: int
) -> Finding:
    evidence = (*disturbed, _("measured {tries} times").format(tries=tries)) if tries > 1 else disturbed
    if disturbed:
        text = _("The card was not quiet, so {figure} {unit} decides nothing (the target is {target}).")
        message = text.format(figure=rate(figures.decided), unit=figures.unit, target=rate(target.full))
        return Finding(message, _("Run it again when nothing else is on the card."), evidence=evidence)
    text = _("Too noisy to say: between {low} and {high} {unit}, and a threshold lies in between.")
    message = text.format(low=rate(low), high=rate(high), unit=figures.unit)
    return Finding(message, _("Make it a little faster, or run it again."), evidence=evidence)


def in_words(state: State) -> str:
    """Clock, temperature, power, and what disturbed the card."""
    if not state.samples:
        return _("state unknown: {why}").format(why="; ".join(state.unknown) or _("no samples"))
    text = _("{low}–{high} MHz, {celsius} °C, {watts:.0f} W").format(
        low=state.sm_mhz[0], high=state.sm_mhz[1], celsius=state.celsius[1], watts=state.watts
    )
    return "; ".join([text, *state.slowed, *state.others])

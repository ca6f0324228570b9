"""Are there targets for the card, and where are they from? Without them its speed is measured and not graded."""

from grader.doctor.machine import Machine
from grader.doctor.report import Finding, Status
from grader.gpu import roofline
from grader.gpu.derived import UNMEASURED
from grader.gpu.hardware import judging_card
from grader.messages import _


def targets(machine: Machine) -> Finding | None:
    """None if no card judges here."""
    card, known = judging_card(machine.gpu), machine.targets
    if card is None:
        return None
    if known.error:
        return Finding("targets", Status.PROBLEM, known.error)
    if known.missing:
        message = _(
            "There is no target for the {card} and {kernels}: run 'tilelab calibrate --keep', or that speed is "
            "measured and not graded."
        )
        return Finding(
            "targets", Status.NOTE, message.format(card=card.name, kernels=_(" and ").join(known.missing))
        )
    if UNMEASURED in known.origins:
        message = _(
            "Targets for the {card} are from its datasheet, unmeasured: 'tilelab calibrate --keep' measures them."
        )
        return Finding("targets", Status.NOTE, message.format(card=card.name))
    message = _("Targets for the {card}: {origins}.")
    if roofline.of_driver(card.name) is None:
        message += _(" Its peak is unknown: only what it was measured to reach tells an impossible speed.")
    return Finding("targets", Status.OK, message.format(card=card.name, origins="; ".join(known.origins)))

"""Lab 03: the product of lab 02 at the student's schedules, and what can be said of a schedule by counting."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from grader.gpu.architectures import ARCHITECTURES, Architecture, architecture
from grader.gpu.hardware import Card
from grader.judge.lab02_matmul import MATMUL
from grader.messages import _
from grader.verdict import Assessment, Finding, Outcome

SCHEDULED_MATMUL = replace(MATMUL, kernel="scheduled_matmul")

Schedule = Mapping[str, int]

#: Whose shared memory counts where no card judges.
DEFAULT = "sm_90a"

#: What the predictions are about: C = A B with all three 4096×4096, at this schedule.
SIDE = 4096
ASKED: Schedule = {"block_M": 128, "block_N": 256, "block_K": 64, "num_stages": 3}
FP16 = 2  # bytes


def shared_bytes(schedule: Schedule) -> int:
    """The shared memory that a block needs, in bytes: a tile of A and one of B for each stage.

    The tile that C leaves by is in the same place: TileLang sees that the others are no longer used then.
    """
    tiles = (schedule["block_M"] + schedule["block_N"]) * schedule["block_K"]
    return max(1, schedule["num_stages"]) * tiles * FP16


def most_stages(schedule: Schedule, limit: int) -> int:
    """How many stages fit into ``limit`` bytes."""
    return limit // shared_bytes(dict(schedule) | {"num_stages": 1})


def right_answers() -> dict[str, int]:
    return {
        "shared_kib": shared_bytes(ASKED) // 1024,
        "most_stages": most_stages(ASKED, ARCHITECTURES[DEFAULT].shared_a_block),
        "reads_of_A": SIDE // ASKED["block_N"],
        "reads_of_B": SIDE // ASKED["block_M"],
    }


def predicted(predictions: Mapping[str, int]) -> Assessment:
    """Are the counted figures right?"""
    advice = {
        "shared_kib": _("Each stage has a tile of A and a tile of B of its own, 2 bytes an element."),
        "most_stages": _("Whole stages only: a part of one is of no use."),
        "reads_of_A": _("How many blocks stand side by side? Each of them reads the same rows of A."),
        "reads_of_B": _("How many blocks stand one below another? Each of them reads the same columns of B."),
    }
    wrong = [name for name, answer in right_answers().items() if predictions[name] != answer]
    if not wrong:
        return Assessment(Outcome.PASSED)
    text = _("{name} is not {value}.")
    findings = tuple(Finding(text.format(name=name, value=predictions[name]), advice[name]) for name in wrong)
    return Assessment(Outcome.FAILED, findings)


def fit(schedules: Sequence[Schedule], card: Card | None) -> Assessment:
    """Does each fit into the shared memory that a block may have, on this card (without one: on Hopper)?"""
    arch = _architecture(card)
    findings = []
    for number, schedule in enumerate(schedules):
        needs = shared_bytes(schedule)
        if needs > arch.shared_a_block:
            text = _(
                "schedules[{number}] needs {needs:.0f} KiB of shared memory; a block has {has:.0f} on {family}."
            )
            message = text.format(
                number=number, needs=needs / 1024, has=arch.shared_a_block / 1024, family=arch.family
            )
            findings.append(Finding(message, _("Fewer stages, or smaller tiles.")))
    return Assessment(Outcome.FAILED if findings else Outcome.PASSED, tuple(findings))


def _architecture(card: Card | None) -> Architecture:
    return ARCHITECTURES.get(DEFAULT if card is None else architecture(card.capability), ARCHITECTURES[DEFAULT])


def among(best: Schedule, schedules: object) -> Assessment:
    """Is the best one of the schedules?"""
    if isinstance(schedules, Finding):
        return Assessment(Outcome.FAILED, (schedules,))
    if isinstance(schedules, list) and best in schedules:
        return Assessment(Outcome.PASSED)
    message = _("'best' is none of 'schedules'.")
    return Assessment(Outcome.FAILED, (Finding(message, _("Take it from the list: best = schedules[0].")),))

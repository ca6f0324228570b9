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


#: The judge's own sweep: tiles that are good on some card, with more and with fewer stages.
SWEEP: tuple[Schedule, ...] = tuple(
    {
        "block_M": block_M,
        "block_N": block_N,
        "block_K": block_K,
        "num_stages": num_stages,
        "threads": threads,
        "swizzle": 16,
    }
    for block_M, block_N, threads in (
        (128, 256, 256),
        (256, 128, 256),
        (128, 128, 256),
        (128, 128, 128),
        (64, 256, 128),
        (64, 128, 128),
    )
    for block_K, num_stages in ((64, 4), (64, 3), (64, 2), (32, 3))
)


def shared_bytes(schedule: Schedule) -> int:
    """The shared memory that a block needs, in bytes: the tiles of all stages, or the tile that C leaves by.

    That one lies where the others were (TileLang sees that they are no longer used then), so the larger counts.
    """
    stages = max(1, schedule["num_stages"]) * stage_bytes(schedule)
    return max(stages, schedule["block_M"] * schedule["block_N"] * FP16)


def stage_bytes(schedule: Schedule) -> int:
    """A stage's tile of A and its tile of B."""
    return (schedule["block_M"] + schedule["block_N"]) * schedule["block_K"] * FP16


def most_stages(schedule: Schedule, limit: int) -> int:
    """How many stages fit into ``limit`` bytes."""
    return limit // stage_bytes(schedule)


def right_answers() -> dict[str, int]:
    return {
        "shared_kib": shared_bytes(ASKED) // 1024,
        "most_stages": most_stages(ASKED, ARCHITECTURES[DEFAULT].shared_a_block),
        "reads_of_A": SIDE // ASKED["block_N"],
        "reads_of_B": SIDE // ASKED["block_M"],
    }


def predicted(predictions: Mapping[str, float]) -> Assessment:
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
    text = _("{name} is not {value:g}.")
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

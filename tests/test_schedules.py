"""Lab 03: what is counted is what the compiler takes; the judge's own sweep is the lab's kernel."""

from dataclasses import replace

import jupytext
import pytest
import torch
from cells import ROOT

from grader import catalog
from grader.capture.format import Capture, Handed, Source, Trace
from grader.catalog import Group, Shape, at_schedules, values
from grader.gpu.architectures import ARCHITECTURES
from grader.gpu.hardware import Card
from grader.gpu.lowering import Job, Lowered, lower_all
from grader.gpu.state import State
from grader.gpu.target_file import Sweep
from grader.gpu.targets import Target, Tier
from grader.gpu.timing import Clock, Samples
from grader.judge import calibration_worker, lab03_schedules, on_card, sweep
from grader.judge.submission import Submission
from grader.messages import progress
from grader.verdict import Finding, Outcome

LAB = catalog.find("lab03_schedules")
(KERNEL,) = LAB.kernels
(OWN,) = (one for one in sweep.SWEEPS if one.lab == LAB.id)
ASKED = lab03_schedules.ASKED
GOOD = {"block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 3, "threads": 256, "swizzle": 0}


def card(capability: tuple[int, int]) -> Card:
    return Card("A card", 2**34, capability, "GPU-1")


# Counted


def test_the_answers_are_right():
    assert lab03_schedules.right_answers() == {
        "shared_kib": 3 * (128 * 64 + 64 * 256) * 2 // 1024,
        "most_stages": 4,
        "reads_of_A": 16,
        "reads_of_B": 32,
    }
    assert lab03_schedules.predicted(lab03_schedules.right_answers()).outcome is Outcome.PASSED
    wrong = lab03_schedules.predicted(lab03_schedules.right_answers() | {"reads_of_A": 32})
    assert wrong.outcome is Outcome.FAILED
    assert [finding.message for finding in wrong.findings] == ["reads_of_A is not 32."]


def test_a_prediction_may_be_the_result_of_a_division():
    kind = catalog.find("lab03_schedules").value("predictions").kind
    divided = {"shared_kib": 147456 / 1024, "most_stages": 4, "reads_of_A": 4096 / 256, "reads_of_B": 4096 / 128}
    assert lab03_schedules.predicted(values.read(divided, kind, "predictions")).outcome is Outcome.PASSED
    wrong = lab03_schedules.predicted(values.read(divided | {"most_stages": 227 / 48}, kind, "predictions"))
    (finding,) = wrong.findings
    assert (finding.message, finding.advice) == (
        "most_stages is not 4.72917.",
        "Whole stages only: a part of one is of no use.",
    )


@pytest.mark.parametrize(
    "schedule",
    [
        {"block_M": 128, "block_N": 256, "block_K": 64, "num_stages": 3, "threads": 256, "swizzle": 16},
        {"block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 2, "threads": 128, "swizzle": 0},
        {"block_M": 128, "block_N": 128, "block_K": 32, "num_stages": 1, "threads": 128, "swizzle": 4},
    ],
)
def test_shared_memory_is_what_the_compiler_takes(schedule):
    own = replace(OWN, schedules=(schedule,))
    ((_name, json_, options),) = sweep.traced(own, LAB, sweep.at_schedules_of(own, LAB))
    for lowered in lower_all([Job(json_, arch, options) for arch in ("sm_80", "sm_90a")]):
        assert isinstance(lowered, Lowered)
        assert lowered.shared == lab03_schedules.shared_bytes(schedule)


def test_what_does_not_fit_is_named_with_the_cards_limit():
    large = GOOD | {"block_N": 256, "num_stages": 3}  # 144 KiB
    assert lab03_schedules.fit([GOOD, large], None).outcome is Outcome.PASSED
    assert lab03_schedules.fit([GOOD, large], card((9, 0))).outcome is Outcome.PASSED
    found = lab03_schedules.fit([GOOD, large], card((8, 9)))
    assert found.outcome is Outcome.FAILED
    assert [finding.message for finding in found.findings] == [
        "schedules[1] needs 144 KiB of shared memory; a block has 99 on Ada (RTX 40)."
    ]
    most = lab03_schedules.most_stages(GOOD, ARCHITECTURES["sm_90a"].shared_a_block)
    assert lab03_schedules.fit([GOOD | {"num_stages": most}], None).outcome is Outcome.PASSED
    assert lab03_schedules.fit([GOOD | {"num_stages": most + 1}], None).outcome is Outcome.FAILED


def test_the_best_is_one_of_them():
    other = GOOD | {"swizzle": 8}
    assert lab03_schedules.among(GOOD, [other, GOOD]).outcome is Outcome.PASSED
    assert lab03_schedules.among(GOOD, [other]).outcome is Outcome.FAILED
    reason = Finding("schedules holds 0")
    assert lab03_schedules.among(GOOD, reason).findings == (reason,)


# The judge's own sweep


@pytest.mark.parametrize("own", sweep.SWEEPS, ids=lambda own: own.lab)
def test_the_swept_kernel_is_the_labs_solution(own):
    cells = jupytext.read(ROOT / "solutions" / f"{own.lab}.py", fmt="py:percent").cells
    (solution,) = (cell.source for cell in cells if f"def {own.kernel}" in cell.source)
    code = [line for line in solution.strip().splitlines() if not line.lstrip().startswith("### ")]
    assert "\n".join(code) in own.source


def test_without_the_solutions_there_is_no_sweep(monkeypatch):
    def missing(_name):
        raise ModuleNotFoundError

    monkeypatch.setattr(sweep.importlib, "import_module", missing)
    said: list[str] = []
    with progress.heard(said.append):
        assert list(sweep.entries(card((9, 0)))) == []
    assert "no sweep" in said[0]


@pytest.mark.parametrize("own", sweep.SWEEPS, ids=lambda own: own.lab)
def test_every_schedule_of_the_sweep_could_be_a_students_and_is_traced(own):
    lab = catalog.find(own.lab)
    kind = lab.value(lab.kernel(own.kernel).schedules.timed).kind
    assert len({tuple(schedule.items()) for schedule in own.schedules}) == len(own.schedules)
    for schedule in own.schedules:
        assert values.read(dict(schedule), kind, "best") == schedule
    kernel = sweep.at_schedules_of(own, lab)
    found = sweep.traced(own, lab, kernel)
    assert [name for name, _json, _options in found] == [shape.name for shape in kernel.shapes]
    assert len({json_ for _name, json_, _options in found}) == len(own.schedules)


SMALL = Shape("4096", {"M": 16, "N": 16, "K": 16}, Group.TIMED)


def product(a, b, c):
    c.copy_(a.float() @ b.float())


def clocked(launches, **options):
    """In place of the card's clock: launch i takes i + 1 milliseconds."""
    for launch in launches:
        launch(0)
    times = tuple([float(number + 1)] * 40 for number in range(len(launches)))
    return Samples(times, Clock.EVENTS, 0.0, (0.0,) * len(launches))


def test_right_kernels_are_timed_and_others_are_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**40, 2**40))
    monkeypatch.setattr(calibration_worker, "interleave", clocked)

    def load(path):
        if path.name == "broken":
            raise RuntimeError("no room\nat all")
        return product if path.name == "right" else lambda a, b, c: c.fill_(1.0)

    entries = [
        {"shape": {"schedule": {"block_M": number}}, "library": library, "why_not": why_not}
        for number, (library, why_not) in enumerate(
            [("wrong", ""), ("right", ""), ("", "too large"), ("broken", ""), ("right", "")]
        )
    ]
    task = lab03_schedules.SCHEDULED_MATMUL
    found = calibration_worker.measure_sweep(task, KERNEL, SMALL, entries, device="cpu", load=load)
    rates = [row["rate"] for row in found["rows"]]
    assert rates == [None, pytest.approx(2 * 16**3 / 1.0 / 1e9), None, None, pytest.approx(2 * 16**3 / 2.0 / 1e9)]
    assert [row["schedule"]["block_M"] for row in found["rows"]] == [0, 1, 2, 3, 4]
    assert "wrong" in found["rows"][0]["why_not"]
    assert found["rows"][2]["why_not"] == "too large"
    assert found["rows"][3]["why_not"] == "no room"


# What the best earns


def target(rate: float) -> Target:
    return Target(
        "lab03_schedules",
        "scheduled_matmul",
        "4096",
        "A card",
        "TFLOP/s",
        "cuBLAS (torch.matmul)",
        700.0,
        989.0,
        (Tier(0.7 * rate, 0.5), Tier(0.93 * rate, 1.0)),
        "by hand",
        sweep=Sweep(rate=rate, schedule=GOOD),
    )


@pytest.mark.parametrize(("ratio", "share"), [(1.0, 1.0), (0.92, 1.0), (0.89, 0.5), (0.5, None)])
def test_points_are_for_shares_of_the_sweeps_best(ratio, share):
    """The sweep's best did 680 where cuBLAS does 700: 632.4 is all, 476 half."""
    timing = {
        "kernel_ms": 2 * 4096**3 / (700 * ratio) / 1e9,
        "peer_ms": 2 * 4096**3 / 700 / 1e9,
        "ratio": ratio,
        "low": ratio * 0.999,
        "high": ratio * 1.001,
        "rounds": 100,
        "peer": "cuBLAS (torch.matmul)",
        "clock": "events",
        "disturbed": 0.0,
    }
    quiet = State(samples=100, sm_mhz=(1, 1), celsius=(1, 1))
    session = on_card.Session(timings={"4096": on_card.Timing(timing, quiet)})
    found = on_card.fast(session, lab03_schedules.SCHEDULED_MATMUL, KERNEL.shape("4096"), target(680.0))
    if share is None:
        assert found.outcome is Outcome.FAILED
    else:
        assert (found.outcome, found.share) == (Outcome.PASSED, share)


def test_without_a_row_for_the_card_it_is_not_assessed():
    timing = {"kernel_ms": 0.2, "peer_ms": 0.2, "ratio": 1.0, "low": 1.0, "high": 1.0, "rounds": 9, "clock": ""}
    report = timing | {"peer": "cuBLAS (torch.matmul)", "disturbed": 0.0}
    session = on_card.Session(timings={"4096": on_card.Timing(report, State(samples=1))})
    found = on_card.fast(session, lab03_schedules.SCHEDULED_MATMUL, KERNEL.shape("4096"), None)
    assert found.outcome is Outcome.NOT_ASSESSED


def test_the_card_compiles_every_schedule_once_and_times_the_best():
    schedules = [GOOD, GOOD | {"swizzle": 8}, GOOD | {"num_stages": 2}, GOOD | {"threads": 128}]
    handed = (Handed("schedules", schedules), Handed("best", schedules[1]))
    capture = Capture(LAB.id, LAB.version, (), (Source("f", "cell", ""),), values=handed)
    (kernel,) = at_schedules(LAB, capture.plain_values).kernels
    assert [shape.schedule for shape in kernel.group(Group.TILES)] == schedules
    (timed,) = kernel.group(Group.TIMED)
    assert (timed.name, timed.schedule) == ("4096", schedules[1])
    submission = Submission(replace(capture, traces=(Trace("scheduled_matmul", "4096"),)), LAB, None, "test")
    assert submission.value("best") == schedules[1]

"""The judge's side of the card: what a worker reports, and what is said when it dies."""

import json

import pytest
import torch
from kernels import capture_of, json_of, vector_add

from grader import catalog
from grader.admit import admit
from grader.gpu import hardware, targets
from grader.gpu.hardware import Card, Compiler, Driver, Gpu
from grader.judge import on_card
from grader.judge.outcome import Broke, Ran
from grader.judge.submission import Submission
from grader.judge.tasks import find
from grader.verdict import Finding, JudgeFailed, Outcome

LAB = catalog.find("lab01_vector_add")
KERNEL = LAB.kernel("vector_add")
ONE, MANY, LARGE = KERNEL.shape("one tile"), KERNEL.shape("many tiles"), KERNEL.shape("large")
TASK = find(LAB.id, "vector_add")
H200 = Card("NVIDIA H200", 141 * 2**30, (9, 0))


def session(tmp_path, *lines: dict, status: int | None = 0, console: str = "") -> on_card.Session:
    torch.save(torch.ones(4), tmp_path / "x.pt")
    (tmp_path / "report.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return on_card._read(tmp_path, status, console, lambda shape, text: Finding(f"{shape}: {text}"))


RAN = {"ran": ONE.name, "file": "x.pt"}
DONE = {"done": True}
TIMED = {
    "timed": {"kernel_ms": 0.735, "peer_ms": 0.737, "ratio": 1.002, "low": 1.001, "high": 1.003, "rounds": 25}
}


def test_results_come_back_by_shape(tmp_path):
    found = session(tmp_path, RAN, TIMED, DONE)
    (result,) = found.results(ONE)
    assert isinstance(result, Ran)
    assert torch.equal(result.output, torch.ones(4))


@pytest.mark.parametrize(
    ("status", "console", "words"),
    [
        (None, "", "did not end on the card within"),
        (1, "CUDA error: an illegal memory access was encountered", "illegal memory access"),
        (1, "torch.OutOfMemoryError: CUDA out of memory", "ran out of memory"),
        (-11, "", "ended with status -11"),
        (1, "x\nAcceleratorError: CUDA error: what it says\n\n", "CUDA error: what it says"),
    ],
)
def test_a_worker_that_dies_leaves_what_it_had_and_a_reason(tmp_path, status, console, words):
    found = session(tmp_path, RAN, status=status, console=console)
    assert isinstance(found.results(ONE)[0], Ran)
    (broke,) = found.results(MANY)
    assert isinstance(broke, Broke)
    assert words in broke.finding.message
    assessment = on_card.fast(found, H200, LAB, TASK, LARGE)
    assert assessment.outcome is Outcome.FAILED
    assert words in assessment.findings[0].message


def test_a_problem_belongs_to_its_shape(tmp_path):
    found = session(tmp_path, {"problem": "It can't be compiled.", "shape": MANY.name}, RAN, TIMED, DONE)
    assert found.problem(ONE) is None
    assert found.results(MANY)[0].finding.message == "It can't be compiled."


def test_no_measurement_is_no_pass(tmp_path):
    assessment = on_card.fast(session(tmp_path, RAN, DONE), H200, LAB, TASK, LARGE)
    assert assessment.outcome is Outcome.FAILED
    assert "Nothing was measured" in assessment.findings[0].message


def test_a_card_without_a_target_is_not_assessed_and_still_shown(tmp_path):
    assessment = on_card.fast(session(tmp_path, RAN, TIMED, DONE), Card("Other", 1, (8, 0)), LAB, TASK, LARGE)
    assert assessment.outcome is Outcome.NOT_ASSESSED
    assert assessment.figures[0].achieved == pytest.approx(3 * 4 * 2**28 / 0.735e-3 / 1e9)


def test_a_measured_kernel_is_decided_by_ratio_and_calibrated_peer(tmp_path):
    assessment = on_card.fast(session(tmp_path, RAN, TIMED, DONE), H200, LAB, TASK, LARGE)
    row = targets.find(LAB.id, "vector_add", LARGE.name, H200.name)
    assert assessment.outcome is Outcome.PASSED
    assert assessment.figures[0].decided == pytest.approx(1.002 * row.peer_rate)


@pytest.mark.skipif(hardware.judging_card() is not None, reason="there is a card here")
def test_a_worker_that_fails_by_itself_costs_no_points():
    judged = Submission(capture_of(LAB.id, vector_add), LAB, H200, "seed")
    with pytest.raises(JudgeFailed, match="the worker on the card ended with status 1"):
        judged.correct("vector_add", ONE.group)


# Which card judges

FIT = Gpu(Driver("580.1", (13, 0), (H200,)), torch_cuda=(13, 0), compiler=Compiler("/nvcc", (13, 0)))


def test_a_card_judges_only_if_driver_torch_and_compiler_can_use_it():
    assert hardware.judging_card(FIT) == H200
    for unfit in (
        Gpu(None, (13, 0), FIT.compiler),
        Gpu(Driver(error="x"), (13, 0), FIT.compiler),
        Gpu(Driver("1", (13, 0), ()), (13, 0), FIT.compiler),
        Gpu(FIT.driver, None, FIT.compiler),
        Gpu(FIT.driver, (13, 0), None),
        Gpu(FIT.driver, (13, 0), Compiler("/nvcc", None, "broken")),
        Gpu(Driver("550", (12, 4), (H200,)), (13, 0), FIT.compiler),
        Gpu(FIT.driver, (13, 0), Compiler("/nvcc", (14, 0))),
        Gpu(FIT.driver, (13, 0), FIT.compiler, hidden=True),
        Gpu(Driver("580", (13, 0), (Card("V100", 1, (7, 0)),)), (13, 0), FIT.compiler),
    ):
        assert hardware.judging_card(unfit) is None


def test_what_the_compiler_says_is_said_of_its_shape(tmp_path):
    found = session(tmp_path, {"uncompilable": "no layout", "shape": MANY.name}, RAN, DONE)
    assert isinstance(found.results(ONE)[0], Ran)
    (broke,) = found.results(MANY)
    assert broke.finding.message == f"{MANY.name}: no layout"


def test_a_compilers_words_become_the_students():
    text = json_of(vector_add.get_tir(**ONE.sizes))
    admitted = admit(text, KERNEL, ONE)
    finding = on_card._uncompilable("Check failed: something new about buffer2", admitted, lambda line: None)
    assert "something new" in finding.message
    assert "can't compile" in finding.message
    assert finding.advice

"""How long the judge waits for a kernel that does not end on the simulator: once a minute, not at every shape."""

import pytest
from kernels import capture_of, vector_add

from grader import catalog
from grader.catalog import Group
from grader.judge import simulated, submission
from grader.judge.outcome import Broke
from grader.judge.submission import HURRY, PATIENCE, Submission
from grader.verdict import Finding, Outcome

LAB = catalog.find("lab01_vector_add")
(KERNEL,) = LAB.kernels


@pytest.fixture
def given(monkeypatch) -> list[float]:
    """The seconds that each run gets; the first shapes break after as long as the test says."""
    seconds: list[float] = []
    monkeypatch.setattr(submission.sampled, "faults", lambda *_given: ())
    monkeypatch.setattr(simulated, "MEMORY", 2**30)
    return seconds


def judged(monkeypatch, given, spent: float) -> Submission:
    def run(_admitted, _inputs, _dtype, _sizes, _locate, seconds):
        given.append(seconds)
        return [Broke(Finding("It did not end."), seconds=min(spent, seconds))]

    monkeypatch.setattr(simulated, "run", run)
    return Submission(capture_of(LAB.id, vector_add), LAB, None, "seed")


def test_after_one_shape_in_vain_the_others_get_little_time(monkeypatch, given):
    found = judged(monkeypatch, given, 60.0)
    tiles = found.correct(KERNEL.name, Group.TILES)
    tails = found.correct(KERNEL.name, Group.TAILS)
    assert found.clean(KERNEL.name).outcome is Outcome.FAILED
    untimed = [shape for shape in KERNEL.shapes if shape.group is not Group.TIMED]
    assert given == [simulated.SECONDS, *[HURRY] * (len(untimed) - 1)]
    assert tiles.outcome is tails.outcome is Outcome.FAILED
    said = f"it had {HURRY:.0f} s here, as it did not end in its time at N = 1024"
    assert said not in tiles.findings[0].evidence
    assert said in tails.findings[0].evidence


def test_what_breaks_soon_costs_the_others_nothing(monkeypatch, given):
    found = judged(monkeypatch, given, PATIENCE / 2)
    assert found.correct(KERNEL.name, Group.TILES).outcome is Outcome.FAILED
    assert found.correct(KERNEL.name, Group.TAILS).outcome is Outcome.FAILED
    assert set(given) == {simulated.SECONDS}


def test_a_run_is_ended_when_its_seconds_are_over():
    """An endless kernel, and the little time that it gets."""
    import tilelang.language as T
    from attacks.attack import Attack, Stop, add

    @T.macro
    def endless(A, B, C, bx, N):
        turns = T.alloc_var("int32", init=0)
        while turns < 1:
            turns = turns * 1

    attack = Attack("endless", add(endless), Stop.CLEAN, "")
    found = Submission(attack.capture(LAB), LAB, None, "seed")
    shape = KERNEL.shape("one tile")
    inputs = [found._inputs(submission.tasks.find(LAB.id, KERNEL.name), "normal", shape)]
    admitted = found.admitted(KERNEL.name, shape)
    import torch

    (broke,) = simulated.run(admitted, inputs, torch.float32, (1024,), lambda line: None, 1.0)
    assert "did not end within 1 s" in broke.finding.message
    assert 1.0 <= broke.seconds < simulated.SECONDS / 2

"""Every attack is stopped where it should be, and told why: as far as that takes no GPU."""

import re

import pytest

from attacks.attack import ADD, MATMUL, Attack, Stop, add, honest_add, matmul
from attacks.corpus import ATTACKS
from grader import catalog
from grader.autograders.official import extended
from grader.catalog import Group
from grader.judge.submission import Submission
from grader.verdict import Assessment, Outcome


def stopped_at(stop: Stop) -> list[str]:
    found = [attack.name for attack in ATTACKS.values() if attack.stop is stop]
    assert found
    return found


def submission(attack: Attack, *groups: Group, official: bool = False) -> tuple[Submission, str]:
    lab = catalog.find(attack.lab)
    lab = extended(lab) if official else lab
    return Submission(attack.capture(lab, *groups), lab, None, "attacks"), lab.kernels[0].name


def must_fail(assessment: Assessment, words: str) -> None:
    assert assessment.outcome is Outcome.FAILED
    assert re.search(words, assessment.findings[0].message), assessment.findings


@pytest.mark.parametrize("name", stopped_at(Stop.ADMISSION))
def test_refused_as_it_is_read(name):
    attack = ATTACKS[name]
    judged, kernel = submission(attack)
    assessment = judged.signature(kernel)
    must_fail(assessment, attack.words)
    assert assessment.findings[0].message.startswith("Refused: ")
    must_fail(judged.fast(kernel), attack.words)


@pytest.mark.parametrize("name", stopped_at(Stop.TILES))
def test_wrong_where_tiles_fit(name):
    judged, kernel = submission(ATTACKS[name], Group.TILES)
    must_fail(judged.correct(kernel, Group.TILES), ATTACKS[name].words)


@pytest.mark.parametrize("name", stopped_at(Stop.TAILS))
def test_wrong_at_a_shape_that_nobody_was_told(name):
    judged, kernel = submission(ATTACKS[name], official=True)
    must_fail(judged.correct(kernel, Group.TAILS), ATTACKS[name].words)


@pytest.mark.parametrize("name", stopped_at(Stop.CLEAN))
def test_unclean_and_therefore_not_fast_either(name):
    judged, kernel = submission(ATTACKS[name])
    clean = judged.clean(kernel)
    assert clean.outcome is Outcome.FAILED
    assert any(re.search(ATTACKS[name].words, finding.message) for finding in clean.findings), clean.findings
    fast = judged.fast(kernel)
    assert fast.outcome is Outcome.FAILED
    assert any(re.search(ATTACKS[name].words, finding.message) for finding in fast.findings), fast.findings


@pytest.mark.parametrize("name", stopped_at(Stop.SAMPLE))
def test_unclean_at_the_timed_shape_only(name):
    judged, kernel = submission(ATTACKS[name])
    fast = judged.fast(kernel)
    assert fast.outcome is Outcome.FAILED
    assert any(re.search(ATTACKS[name].words, finding.message) for finding in fast.findings), fast.findings
    assert "sample of its blocks" in " ".join(fast.findings[0].evidence)


@pytest.mark.parametrize("name", stopped_at(Stop.CARD))
def test_an_honest_kernel_but_for_the_timed_shape(name):
    """Nothing is to be seen at the small shapes: a card must look at all of the output."""
    attack = ATTACKS[name]
    assert attack.on_card
    honest = Attack("honest", {ADD: add(honest_add), MATMUL: matmul()}[attack.lab], Stop.CARD, "", attack.lab)
    (kernel,) = catalog.find(attack.lab).kernels
    for shape in kernel.shapes:
        assert (attack.ir(shape) == honest.ir(shape)) is (shape.group is not Group.TIMED)
    judged, name = submission(attack)
    assert judged.fast(name).outcome is Outcome.NOT_ASSESSED


@pytest.mark.parametrize(("lab", "build"), [(ADD, add(honest_add)), (MATMUL, matmul())])
def test_honest_kernels_pass(lab, build):
    judged, kernel = submission(Attack("honest", build, Stop.CARD, "", lab))
    assert judged.signature(kernel).outcome is Outcome.PASSED
    assert judged.clean(kernel).outcome is Outcome.PASSED
    assert judged.fast(kernel).outcome is Outcome.NOT_ASSESSED

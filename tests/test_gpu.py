"""On a card: the whole judge, with kernels whose verdict is known. Elsewhere these say 'not assessed'."""

import pytest
from kernels import capture_of, matmul, vector_add

from grader.autograders import judge_capture
from grader.verdict import Outcome

pytestmark = pytest.mark.gpu


def checks(lab: str, kernel, **arguments):
    verdict = judge_capture(capture_of(lab, kernel, **arguments), device="gpu")
    assert verdict.device != "simulator"
    return {check.name: check for check in verdict.checks}


def test_a_right_vector_add_earns_everything():
    found = checks("lab01_vector_add", vector_add)
    assert {check.outcome for check in found.values()} == {Outcome.PASSED}
    (figures,) = found["test_fast"].figures
    assert figures.peer == "torch.add"
    assert figures.ratio_low <= figures.ratio <= figures.ratio_high


def test_a_right_and_slow_matmul_is_right_and_slow():
    found = checks("lab02_matmul", matmul, block_M=64, block_N=64, block_K=32, num_stages=1)
    assert found["test_correct"].outcome is Outcome.PASSED
    assert found["test_tails"].outcome is Outcome.PASSED
    assert found["test_fast"].points < found["test_fast"].max_points


@pytest.mark.parametrize("wrong", [{"accumulator": "float16"}, {"clear": False}])
def test_a_wrong_matmul_fails_on_the_card_too(wrong):
    found = checks("lab02_matmul", matmul, **wrong)
    assert found["test_correct"].outcome is Outcome.FAILED
    assert found["test_fast"].outcome is Outcome.FAILED
    assert found["test_fast"].points == 0


def test_what_does_not_compile_is_a_failed_check_with_the_compilers_reason():
    found = checks("lab02_matmul", matmul, block_M=16, block_N=16, block_K=16, threads=256)
    assert found["test_fast"].outcome is Outcome.FAILED
    assert "among 8 warps" in found["test_fast"].findings[0].message

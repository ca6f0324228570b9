"""On a card: what admission lets through earns nothing for its speed, and is told why."""

import os
import re
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from attacks.attack import ADD, MATMUL, Attack, Stop, add, honest_add, matmul
from attacks.corpus import ATTACKS
from grader.autograders import judge_capture
from grader.catalog import Group
from grader.verdict import Check, Outcome

pytestmark = pytest.mark.gpu

HONEST = {
    "an honest add": Attack("an honest add", add(honest_add), Stop.CARD, "", ADD),
    "an honest product": Attack("an honest product", matmul(), Stop.CARD, "", MATMUL),
}
JUDGED = HONEST | {name: attack for name, attack in ATTACKS.items() if attack.on_card}
AT_ONCE = max(2, (os.cpu_count() or 2) // 2)  # compilers run on the CPU while another kernel is on the card


@pytest.fixture(scope="module")
def judged():
    """Each kernel's test_fast, at the timed shape alone."""

    def fast(attack: Attack) -> Check:
        verdict = judge_capture(attack.capture(None, Group.TIMED), device="gpu", part="fast")
        assert verdict.device != "simulator"
        (check,) = verdict.checks
        return check

    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures: dict[str, Future[Check]] = {}
        for name, attack in JUDGED.items():
            attack.capture(None, Group.TIMED)  # traced here: TileLang's tracer takes one thread
            futures[name] = pool.submit(fast, attack)
        yield futures


@pytest.mark.parametrize("name", [name for name in JUDGED if name not in HONEST])
def test_an_attack_earns_nothing_and_is_told_why(judged, name):
    check = judged[name].result()
    assert check.name == "test_fast"
    assert (check.outcome, check.points) == (Outcome.FAILED, 0.0)
    said = [finding.message for finding in check.findings]
    assert any(re.search(JUDGED[name].on_card, message) for message in said), said


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_is_measured(judged, name):
    check = judged[name].result()
    assert check.figures, check.findings

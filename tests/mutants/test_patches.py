"""Every wrong kernel that was made by hand fails the judge, with the evidence that it must leave."""

import pytest

from mutants.judging import WRONG, judge, read, traced
from mutants.patches import PATCHES
from mutants.tasks import TASKS


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_reference_passes(task):
    verdict = judge(task, traced(task.name))
    assert not verdict.failed, verdict
    assert verdict.outputs


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: f"{patch.task}: {patch.name}")
def test_a_wrong_kernel_fails(patch):
    task = TASKS[patch.task]
    verdict = judge(task, read(task, patch.make()))
    assert verdict.failed, verdict.kind
    assert verdict.kind == patch.kind, verdict
    if patch.kind == WRONG:
        output = task.kernel.parameters[-1].name
        assert f"'{output}'" in verdict.evidence
        assert f"{output}[" in verdict.evidence
    else:
        assert f", {patch.buffer}[" in verdict.evidence
        assert verdict.evidence.startswith("block (")
        assert patch.line
        assert patch.line in patch.source.splitlines()[verdict.line.number - 1], verdict


def test_there_are_many():
    assert len(PATCHES) >= 60
    assert len({(patch.task, patch.name) for patch in PATCHES}) == len(PATCHES)

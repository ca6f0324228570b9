"""The labs' solutions lower, and compile where nvcc is, for the architectures that the course names.

``make architectures`` looks at all of them; the normal run at Hopper's.
"""

from functools import cache
from pathlib import Path

import pytest
from cells import ROOT

from grader import catalog
from grader.capture import Capture, capture_notebook
from grader.catalog import Group
from grader.classroom.reference import reference_notebook
from grader.gpu.architectures import ARCHITECTURES
from grader.judge.compiled import compile_capture

NAMED = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
NORMAL = "sm_90a"

CASES = [
    pytest.param(
        lab,
        kernel,
        arch,
        id=f"{kernel.name}-{arch}",
        marks=() if arch == NORMAL else pytest.mark.architectures,
    )
    for lab in catalog.LABS
    for kernel in lab.kernels
    for arch in NAMED
]


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    @cache
    def capture(lab_id: str) -> Capture:
        lab, folder = catalog.find(lab_id), tmp_path_factory.mktemp(lab_id)
        return capture_notebook(reference_notebook(Path(ROOT), lab, folder), lab)

    return capture


@pytest.mark.parametrize(("lab", "kernel", "arch"), CASES)
def test_a_solution_compiles(captured, lab, kernel, arch):
    shapes = kernel.group(Group.TIMED)[:1] or kernel.shapes[:1]
    (found,) = compile_capture(captured(lab.id), kernel, shapes, [arch])
    said = [finding.message for finding in found.findings]
    assert found.source, said
    # Without nvcc it is only lowered. A tile that is too large for this architecture's cards still compiles.
    assert found.machine_code is not None or found.not_assessed, said
    assert found.compiles or found.shared > ARCHITECTURES[arch].shared_a_block, said

"""The labs' solutions lower, and compile where nvcc is, for the architectures that the course names.

``make architectures`` looks at all of them; the normal run at Hopper's.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cells import ROOT

from grader import catalog
from grader.capture import Capture, capture_notebook
from grader.catalog import Group, Kernel, Shape
from grader.classroom.reference import reference_notebook
from grader.judge.compiled import compile_capture

NAMED = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
NORMAL = "sm_90a"

#: What the labs tell a student to write where a block may have 99 KiB of shared memory. In lab 06 it is meant for
#: an A100, too: for cards before Hopper, TileLang 0.1.15 can't pipeline the loop of causal_attention.
ATTENTION = {"block_M": 128, "num_stages": 1, "threads": 256}
SMALLER = {
    "matmul": {"num_stages": 2},
    "gemm_bias_gelu": {"num_stages": 2},
    "attention": ATTENTION,
    "causal_attention": ATTENTION,
}
ROOMY = ("sm_90a", "sm_100a")


def shapes_of(kernel: Kernel) -> tuple[Shape, Shape]:
    """The shape that is compiled, at the schedule of the lab and at that for other cards."""
    shape = (kernel.group(Group.TIMED) or kernel.shapes)[0]
    return shape, replace(shape, name="smaller", schedule=SMALLER.get(kernel.name, {}))


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
        kernels = tuple(replace(kernel, shapes=shapes_of(kernel), schedules=None) for kernel in lab.kernels)
        return capture_notebook(reference_notebook(Path(ROOT), lab, folder), replace(lab, kernels=kernels))

    return capture


@pytest.mark.parametrize(("lab", "kernel", "arch"), CASES)
def test_a_solution_compiles(captured, lab, kernel, arch):
    own, smaller = shapes_of(kernel)
    (found,) = compile_capture(captured(lab.id), kernel, (own if arch in ROOMY else smaller,), [arch])
    said = [finding.message for finding in found.findings]
    assert found.compiles, said
    # Without nvcc it is only lowered.
    assert found.machine_code is not None or found.not_assessed, said

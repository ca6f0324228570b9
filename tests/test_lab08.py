"""Lab 08: each planted bug fails for its reason, and its tool shows it; the solution mends what is asked."""

import functools
import itertools
import linecache
from dataclasses import replace

import jupytext
import pytest
import tilelang
import tilelang.language as T
import torch
from cells import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import json_of

from grader import catalog, ir, simulator
from grader.capture.format import Capture, Handed, Source
from grader.capture.tracing import trace
from grader.catalog import Group, Shape
from grader.classroom import gaps
from grader.gpu.lowering import Lowered, NotLowered
from grader.judge import lab08_landmarks as lab08
from grader.judge import seeds, submission, tasks, tolerance
from grader.judge.comparison import compare, poison
from grader.judge.submission import Submission
from grader.verdict import JudgeFailed, Outcome

pytestmark = pytest.mark.usefixtures("one_thread")

LAB = catalog.find("lab08_introspection")
NAMES = ("scale_rows", "scores", "standardise")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def one_thread():
    """Simulated kernels run in forked processes, and a fork takes no threads along."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def cells(solved: bool) -> str:
    """The lab's solution cells, or what a student gets in their place."""
    notebook = jupytext.read(ROOT / "solutions" / f"{LAB.id}.py", fmt="py:percent")
    texts = [cell.source for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return "\n\n\n".join(text if solved else gaps.skeleton(text) for text in texts)


def built(*changes, solved=True):
    """The cells' names, with texts of the cells changed; each occurs. And the text."""
    text = cells(solved)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file = f"/lab08-{next(_numbers)}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"tilelang": tilelang, "T": T}
    exec(compile(text, file, "exec"), names)
    return names, Source(file, "In [1]", text)


def handed_in(*changes, solved=True, only=NAMES) -> Submission:
    names, source = built(*changes, solved=solved)
    traces = tuple(
        trace(names[kernel.name], kernel, shape, source.file.__eq__)
        for kernel in LAB.kernels
        if kernel.name in only
        for shape in kernel.shapes
    )
    values = tuple(Handed(value.name, names[value.name]) for value in LAB.values)
    return Submission(Capture(LAB.id, LAB.version, traces, (source,), values=values), LAB, None, "test")


@pytest.fixture(scope="module")
def solution():
    return handed_in()


@pytest.fixture(scope="module")
def planted():
    return handed_in(solved=False)


def said(assessment) -> str:
    return " ".join(" ".join((f.message, *f.evidence)) for f in assessment.findings)


def test_the_solution_is_right_and_tidy(solution):
    for name in NAMES:
        for group in (Group.TILES, Group.TAILS):
            assert solution.correct(name, group).outcome is Outcome.PASSED
        assert lab08.tidy(solution, name).outcome is Outcome.PASSED
    assert solution.lean("standardise").outcome is Outcome.PASSED
    assert lab08.mended(solution).outcome is Outcome.PASSED
    for arch in lab08.WANTED:
        value = f"landmarks_{arch}"
        found = solution.judge_value(value, lambda answers, arch=arch: lab08.named(solution, arch, answers))
        assert found.outcome is Outcome.PASSED


def test_each_planted_bug_fails_for_its_reason(planted):
    wrong = planted.correct("scale_rows", Group.TILES)
    assert wrong.outcome is Outcome.FAILED
    assert "of 'Y' are wrong" in said(wrong)
    assert planted.clean("scale_rows").outcome is Outcome.PASSED  # no fault gives it away

    assert planted.correct("scores", Group.TILES).outcome is Outcome.PASSED
    found = lab08.mended(planted)
    assert found.outcome is Outcome.FAILED
    assert "For sm_80, the compiler's output for 'scores' holds no cp.async." in said(found)
    assert (
        "For sm_90a, the compiler's output for 'scores' holds no wgmma and no TMA load and no mbarrier."
        in said(found)
    )

    assert planted.correct("standardise", Group.TILES).outcome is Outcome.PASSED
    found = planted.lean("standardise")
    assert found.outcome is Outcome.FAILED
    assert "each 3 times" in said(found)


def test_what_was_right_before_earns_nothing(planted):
    for first in (lab08.mended(planted), planted.lean("standardise")):
        found = lab08.after(first, lambda: pytest.fail("asked in spite of the bug"))
        assert said(found) == "This counts once the planted bug is mended."
    answers = built()[0]["landmarks_sm_80"]
    assert lab08.named(planted, "sm_80", answers).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("arch", "answer", "wrong"),
    [
        ("sm_80", "tensor_cores", "wgmma"),
        ("sm_80", "matrix_loads", "none"),
        ("sm_80", "copies_before_barrier", 6),
        ("sm_80", "threads", 256),
        ("sm_90a", "async_copies", "cp.async"),
        ("sm_90a", "barriers", "__syncthreads"),
        ("sm_90a", "tensor_core_places", 6),
    ],
)
def test_a_wrong_answer_is_named(solution, arch, answer, wrong):
    right = built()[0][f"landmarks_{arch}"]
    found = lab08.named(solution, arch, right | {answer: wrong})
    assert found.outcome is Outcome.FAILED
    assert said(found) == f"For {arch}, {answer} is not {wrong}."


ASIDE = """a_tile = T.alloc_shared((block_M, block_K), "float32")
            b_tile = T.alloc_shared((block_N, block_K), "float32")
            halves = T.alloc_shared((block_M, block_K), "float16")
            others = T.alloc_shared((block_N, block_K), "float16")
            aside = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(aside)
            for step in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, step * block_K], halves)
                T.copy(B[bx * block_N, step * block_K], others)
                T.gemm(halves, others, aside, transpose_B=True)
"""
TILES = """a_tile = T.alloc_shared((block_M, block_K), "float16")
            b_tile = T.alloc_shared((block_N, block_K), "float16")
"""


@pytest.mark.parametrize(
    "change",
    [(TILES, ASIDE), (TILES, TILES.replace('"float16"', '"float16" if K == 256 else "float32"'))],
    ids=["landmarks of a product that nobody needs", "mended where one looks"],
)
def test_landmarks_beside_the_bug_mend_nothing(change):
    found = lab08.mended(handed_in(change, only=("scores",)))
    assert found.outcome is Outcome.FAILED
    assert "There is still a T.gemm of tiles that are float32." in said(found)
    assert "T.gemm(a_tile, b_tile" in found.findings[0].where.text


def test_answers_are_about_the_students_own_kernel():
    other = handed_in(("num_stages=3", "num_stages=2"), only=("scores",))
    answers = built()[0]["landmarks_sm_80"]
    wrong = said(lab08.named(other, "sm_80", answers))
    assert "tensor_core_places is not 6" in wrong
    assert "copies_before_barrier is not 4" in wrong
    two = {"tensor_core_places": 4, "copies_before_barrier": 2}
    assert lab08.named(other, "sm_80", answers | two).outcome is Outcome.PASSED


def test_without_the_compiler_nothing_is_decided(monkeypatch):
    def broken(jobs):
        raise JudgeFailed("no module named tilelang")

    monkeypatch.setattr(submission, "lower_all", broken)
    alone = handed_in(only=("scores",))
    answers = built()[0]["landmarks_sm_80"]
    for found in (
        lab08.mended(alone),
        lab08.named(alone, "sm_80", answers),
        lab08.after(lab08.mended(alone), lambda: pytest.fail("asked all the same")),
    ):
        assert found.outcome is Outcome.NOT_ASSESSED
        assert "could not be run here" in said(found)
        assert "no module named tilelang" in said(found)


def test_what_the_compiler_refuses_fails(monkeypatch):
    refused = NotLowered("sm_80", "Timeout", "TileLang did not finish compiling within 60 s", 60.0)
    monkeypatch.setattr(submission, "lower_all", lambda jobs: [refused, refused])
    found = lab08.mended(handed_in(only=("scores",)))
    assert found.outcome is Outcome.FAILED
    assert "did not come to an end" in said(found)


def test_the_truth_is_read_off_the_source():
    def of(body):
        head = 'extern "C" __global__ void __launch_bounds__(96) main_kernel(float* g0) {\n'
        return lab08.truth(Lowered("sm_80", head + body + "}\n", 96, (1,), 0, 0.1))

    some = of(
        "tl::cp_async_gs<16>(a, b);\ntl::cp_async_gs<16>(a, b);\n__syncthreads();\ntl::cp_async_gs<16>(a, b);\n"
    )
    assert some == {
        "tensor_cores": "none",
        "async_copies": "cp.async",
        "matrix_loads": "none",
        "barriers": "__syncthreads",
        "tensor_core_places": 0,
        "threads": 96,
        "copies_before_barrier": 2,
    }
    assert of("tl::mma_sync<1>(a);\ntl::mma_sync<1>(a);\n")["tensor_core_places"] == 2
    assert of("__syncthreads();\nmbarrier[0].wait(1);\nmbarrier[1].wait(1);\n")["barriers"] == "mbarrier"


PRINT = (
    "T.reduce_absmax(x, top, dim=1, clear=False)",
    "T.reduce_absmax(x, top, dim=1, clear=False); T.print(top)",
)


def test_a_print_that_is_left_is_named_with_its_line():
    left = handed_in(PRINT, only=("scale_rows",))
    found = lab08.tidy(left, "scale_rows")
    assert found.outcome is Outcome.FAILED
    assert "'scale_rows' still holds a T.print." in said(found)
    assert "T.print(top)" in found.findings[0].where.text
    # It is no bug: what is computed is right, and the compiler never sees it.
    assert left.correct("scale_rows", Group.TILES).outcome is Outcome.PASSED


def test_the_print_shows_the_first_bug():
    """The largest value so far falls in the planted kernel, and never in the mended one."""
    for solved, falls in ((False, True), (True, False)):
        change = (
            PRINT if solved else (PRINT[0].replace(", clear=False", ""), PRINT[1].replace(", clear=False", ""))
        )
        names, source = built(change, solved=solved)
        shape = Shape("own", {"M": 2, "N": 96}, Group.TILES)
        kernel = replace(LAB.kernel("scale_rows"), shapes=(shape,))
        given = functools.partial(names["scale_rows"], block_N=32, threads=32)
        traced = trace(given, kernel, shape, source.file.__eq__)
        capture = Capture(LAB.id, LAB.version, (traced,), (source,))
        shown = Submission(capture, replace(LAB, kernels=(kernel,)), None, "trace").printout("scale_rows", shape)
        rows = [[p.values[0] for p in shown.printed if p.block == (block, 0, 0)] for block in range(2)]
        assert [len(row) for row in rows] == [3, 3]
        assert any(row != sorted(row) for row in rows) is falls
        assert {p.what for p in shown.printed} == {"top"}
        assert "T.print(top)" in shown.printed[0].where.text


def first_failure(name, *changes):
    """The first shape and family that the changed kernel gets wrong; None if there is none."""
    task, kernel = tasks.find(LAB.id, name), built(*changes)[0][name]
    for shape in LAB.kernel(name).shapes:
        typed = ir.read(json_of(kernel.get_tir(**shape.sizes)))
        for family in task.families:
            inputs = task.inputs(family, shape, seeds.generator("test", family, shape.name))
            reference = task.reference(inputs)
            output = torch.empty(reference.shape, dtype=torch.float16 if name == "scores" else torch.float32)
            poison(output)
            run = simulator.run(typed, (*inputs, output), outputs=(len(inputs),))
            if run.faults or compare("Y", output, reference, task.bound(inputs, reference)) is not None:
                return shape.name, family
    return None


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (
            "scale_rows",
            [("T.reduce_absmax(x, top, dim=1, clear=False)", "T.reduce_max(x, top, dim=1, clear=False)")],
        ),
        ("scale_rows", [("x[i, j] / top[i]", "x[i, j] / (top[i] + 1e-6)")]),
        ("scale_rows", [("T.clear(top)\n            for k", "T.fill(top, 3.0)\n            for k")]),
        (
            "scores",
            [
                (
                    'product = T.alloc_fragment((block_M, block_N), "float32")',
                    'product = T.alloc_fragment((block_M, block_N), "float16")',
                )
            ],
        ),
        (
            "scores",
            [
                (
                    "T.copy(B[bx * block_N, step * block_K], b_tile)",
                    "T.copy(B[by * block_N, step * block_K], b_tile)",
                )
            ],
        ),
        ("standardise", [("T.if_then_else(j < N, x[i, j] - mean[i], 0.0)", "x[i, j] - mean[i]")]),
        ("standardise", [("mean[i] = mean[i] / N", "mean[i] = mean[i] / columns")]),
        ("standardise", [("variance[i] = variance[i] / N", "variance[i] = variance[i] / (N - 1)")]),
        ("standardise", [("variance[i] + 1e-5", "variance[i] + 1e-6")]),
        ("standardise", [("square[i, j] = x[i, j] * x[i, j]", "square[i, j] = T.abs(x[i, j])")]),
    ],
)
def test_wrong_kernels_fail(name, changes):
    assert first_failure(name, *changes) is not None


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("scale_rows", [("x[i, j] / top[i]", "x[i, j] * (1.0 / top[i])")]),
        ("standardise", [("x[i, j] * T.rsqrt(variance[i] + 1e-5)", "x[i, j] / T.sqrt(variance[i] + 1e-5)")]),
    ],
)
def test_other_right_kernels_pass(name, changes):
    assert first_failure(name, *changes) is None


@given(st.integers(1, 300), st.floats(-50, 50), st.floats(0.01, 100), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_fp32_evaluation_keeps_the_bounds(columns, shift, scale, seed):
    x = torch.randn(3, columns, generator=torch.Generator().manual_seed(seed)) * scale + shift
    exact = x.double()
    reference = (exact - exact.mean(1, keepdim=True)) / (exact.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    centred = x - x.sum(1, keepdim=True) / columns
    found = centred * torch.rsqrt((centred * centred).sum(1, keepdim=True) / columns + 1e-5)
    try:
        bound = tolerance.standardised(exact, 1e-5)
    except ValueError:
        assert columns * abs(shift) > 100 * scale  # a variance that drowns in the mean
        return
    assert ((found.double() - reference).abs() <= bound).all()
    top = x.abs().amax(1, keepdim=True)
    quotients = exact / top.double()
    for found in (x / top, x * (1 / top)):
        assert ((found.double() - quotients).abs() <= tolerance.quotient(quotients)).all()

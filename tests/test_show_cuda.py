"""``show_cuda``: a kernel's CUDA source with its landmarks, in a notebook and in words."""

import html
import re

import pytest
from cells import IMPORTS, MATMUL, VECTOR_ADD
from hypothesis import given
from hypothesis import strategies as st
from kernels import json_of, matmul
from test_notebook import run

from grader.capture.format import Capture, Trace
from grader.catalog import find
from grader.gpu.landmarks import LANDMARKS, definition, landmarks, places
from grader.judge.cuda_source import cuda_source, in_students_names
from grader.judge.submission import Submission
from grader.report import cuda as report
from grader.verdict import Finding, Unusable
from grader.verdict.compilation import GlobalAccess
from grader.verdict.cuda import CudaSource, Mark

LAB = find("lab02_matmul")
SHAPE = LAB.kernel("matmul").shape("square")


def submission() -> Submission:
    traced = Trace("matmul", SHAPE.name, ir=json_of(matmul.get_tir(**SHAPE.sizes)))
    return Submission(Capture(LAB.id, LAB.version, (traced,)), LAB, None, "seed")


@pytest.fixture(scope="module")
def ampere() -> CudaSource:
    return cuda_source(submission(), "matmul", SHAPE, "sm_80")


def test_every_mark_is_a_landmark_of_its_line(ampere):
    lines = ampere.source.split("\n")
    for mark in ampere.marks:
        text = lines[mark.line - 1][mark.start : mark.end]
        assert re.fullmatch(LANDMARKS[mark.name], text), text
    assert {name: len(found) for name, found in ampere.places.items()} == landmarks(ampere.source)
    assert {"mma", "ldmatrix", "cp.async", "__syncthreads"} <= set(ampere.places)
    assert ampere.family == "Ampere (A100)"


def test_it_speaks_in_the_students_names(ampere):
    assert "__launch_bounds__" in ampere.source.split("\n")[ampere.definition - 1]
    body = ampere.source.split("\n", ampere.definition - 1)[-1]
    for name in ("A", "B", "C", "A_tile", "B_tile", "C_tile", "k"):
        assert re.search(rf"\b{name}\b", body), name
    assert not re.search(r"\b[gsf][0-3]\b", body)
    assert {access.tensor for access in ampere.accesses} == {"A", "B", "C"}


def test_no_two_things_get_one_name():
    class Named:
        def __init__(self, name, storage=None):
            self.name = name
            if storage is not None:
                self.storage = storage

    source = '(extern "C" float* g0, char* g1) { g0_desc; s0[i0 + i]; s1[i1]; g1; x; buffer3_local; g00; }'
    tile = Named("tile")
    names = {
        "g0": Named("C"),
        "g1": Named("x"),  # the source has an x
        "s0": tile,
        "buffer3": Named("tile", storage=tile),  # a view of the same memory
        "s1": Named("both"),
        "i1": Named("both"),
        "i0": Named("<b>"),
    }
    want = '(extern "C" float* C, char* g1) { C_desc; tile[i0 + i]; s1[i1]; g1; x; tile_local; g00; }'
    assert in_students_names(source, names) == want


def test_without_a_card_it_is_for_hopper(monkeypatch):
    from grader.judge import cuda_source as module

    monkeypatch.setattr(module.hardware, "judging_card", lambda: None)
    found = cuda_source(submission(), "matmul", SHAPE, None)
    assert found.arch == "sm_90a"
    assert {"wgmma", "TMA load", "mbarrier"} <= set(found.places)


@pytest.mark.parametrize(
    ("arch", "advice"),
    [("sm_90", '"sm_90a"'), ("sm_99", "sm_75, sm_80"), (90, "sm_75, sm_80"), (["sm_80"], "sm_75, sm_80")],
)
def test_an_unknown_architecture_is_said_before_anything_is_compiled(arch, advice):
    with pytest.raises(Unusable) as raised:
        cuda_source(submission(), "matmul", SHAPE, arch)
    assert str(arch) in raised.value.finding.message
    assert advice in raised.value.finding.advice


HEAD = "#include <x>\nextern void __launch_bounds__(1) main_kernel(float* A) {\n"


def example(body: str, **changes: object) -> CudaSource:
    source = HEAD + body
    marks = tuple(Mark(place.name, place.line, place.start, place.end) for place in places(source))
    data = {"kernel": "k", "shape": "N = 1", "arch": "sm_80", "family": "Ampere", "accesses": ()} | changes
    return CudaSource(source=source, definition=definition(source), marks=marks, threads=128, shared=1024, **data)


def test_each_landmark_has_its_sentence():
    assert list(report.words()) == list(LANDMARKS)


def test_marks_are_told_in_words_and_lines_have_their_numbers():
    found = example("  __syncthreads(); tl::mma_sync<1>(a); __syncthreads();\n  // no __syncthread\n}\n")
    page, text = report.page(found), report.plain(found)
    assert "   3 __syncthreads, mma</span>" in page
    assert page.count("<mark>") == 3
    assert "    3 __syncthreads, mma | " in text
    assert re.search(r"    4 +\|   // no __syncthread", text)
    assert "\x1b" not in text
    for shown in (page, text):
        assert "Lines 1 to 1 are includes" in shown
        assert "1,024 bytes of shared memory" in shown


def test_without_landmarks_and_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(report, "MOST_LINES", 3)
    found = example(
        "  A[0] = 1;\n" * 5 + "}\n",
        accesses=(GlobalAccess("A", True, 32, 5),),
        findings=(Finding("Too <large>.", "Less."),),
    )
    for shown in (report.page(found), report.plain(found)):
        assert "none of the landmarks" in shown
        assert "A is written 32 bits at a time" in shown
        assert "Of 8 lines, those after 4 are not shown." in shown
        assert html.escape("Too <large>.") in shown or "Too <large>." in shown
    assert "<large>" not in report.page(found)


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_any_text_is_shown_as_text(body):
    found = example(body.replace("\r", "") + " <script>alert(1)</script> & tl::mma_sync<1>()\n}\n")
    page = report.page(found)
    assert "<script" not in page
    code = page[page.index("<pre") :]
    assert code.count("<mark>") == code.count("</mark>") == len(found.marks)
    shown = html.unescape(re.sub(r"<[^>]*>", "", code))
    assert "<script>alert(1)</script> & tl::mma_sync<1>()" in shown


def test_in_a_notebook_and_what_cannot_be_shown_says_why():
    small = "{'M': 64, 'N': 64, 'K': 64}, 'sm_80', block_M=64, block_N=64"
    said = {
        f"show_cuda(matmul, {small})": "matmul at M = 64, N = 64, K = 64, for sm_80: Ampere (A100)",
        "show_cuda(print)": "No lab asks for a kernel",
        "show_cuda(matmul, arch='sm_1')": "There is no architecture",
        "show_cuda(matmul, 'huge')": "has no shape",
        "show_cuda(matmul, block_M=7)": "7 rows",
        "show_cuda(vector_add)": "does nothing yet.",
    }
    untouched = VECTOR_ADD[: VECTOR_ADD.index("for i in")] + "pass\n\n    return main"
    calls = "\n".join(["from grader import show_cuda", *said])
    first, *others = run(IMPORTS, MATMUL, untouched, calls)
    for page, text in zip([first, *others], said.values(), strict=True):
        assert text in page
    assert "<mark>" in first
    assert not any("<pre" in page for page in others)

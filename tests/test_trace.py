"""What one block does, as people see it: page, terminal, and the doors that lead there."""

import io
import json
import math
import re
import struct
from base64 import b64decode
from dataclasses import replace

import pytest
from cells import IMPORTS, MATMUL, VECTOR_ADD
from kernels import capture_of, json_of, matmul, vector_add
from rich.console import Console
from test_notebook import run
from typer.testing import CliRunner

from grader import catalog
from grader.capture.format import Capture, Source, Trace
from grader.catalog import Group, Shape
from grader.cli.app import app
from grader.report import trace_page, trace_text
from grader.report.trace_page import page_data
from grader.student.tracing import block_trace, only, shape_of
from grader.verdict import Finding, Location, Unusable
from grader.verdict.trace import BlockTrace, Step, Touch, TracedBuffer

EVIL = "T.copy(A, t)  # </script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> \x1b[2J"
WHERE = Location("In [2]", 7, EVIL)

#: A tile that is copied in, with a hole, and a sum of a part of it that is stored.
TRACE = BlockTrace(
    kernel="small",
    block=(1, 0),
    grid=(2, 3),
    buffers=(
        TracedBuffer("A", "global", "float32", (2, 4, 6)),
        TracedBuffer("t", "shared", "float32", (2, 3)),
    ),
    steps=(
        Step(
            WHERE,
            "T.copy(A[1, 0:2, 3:6], t[0:2, 0:3])",
            (("bx", 1), ("k", 2)),
            (),
            (Touch(0, ((1, 2), (0, 2), (3, 6)), None, 6, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),),
            (Touch(1, ((0, 2), (0, 3)), None, 6, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),),
        ),
        Step(
            Location("In [2]", 9, "t[i, j] = …"),
            "t[i, j] = t[i, j] / 0",
            (("bx", 1),),
            (("i", 2), ("j", 2)),
            (Touch(1, ((0, 2), (0, 2)), (0, 3), 2, (1.0, 5.0)),),
            (Touch(1, ((0, 2), (0, 2)), (0, 3), 2, (math.inf, math.nan)),),
        ),
    ),
    notes=("A note.",),
    faults=(Finding("Something is <b>wrong</b>.", where=WHERE),),
    source=(
        Location("In [2]", 7, "    " + EVIL),
        Location("In [2]", 8, ""),
        Location("In [2]", 9, "    t[i, j] = …"),
    ),
)


def cells(picture) -> list[float | None]:
    raw = b64decode(picture["cells"])
    bits, values = struct.unpack(f"<{len(raw) // 4}I", raw), struct.unpack(f"<{len(raw) // 4}f", raw)
    return [None if b == 0xFFFFFFFF else v for b, v in zip(bits, values, strict=True)]


def test_the_page_replays_tiles_write_by_write():
    first, second = page_data(TRACE)["steps"]
    written = first["touches"][1]
    assert (written["kind"], written["box"], written["picture"]["size"]) == ("written", [[0, 2], [0, 3]], [2, 3])
    assert cells(written["picture"]) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    after = cells(second["touches"][1]["picture"])
    assert after[0] == math.inf
    assert math.isnan(after[4])
    assert [after[i] for i in (1, 2, 3, 5)] == [2.0, 3.0, 4.0, 6.0]
    assert (first["line"], second["line"]) == (0, 2)
    assert second["variables"] == "bx = 1, all i < 2, j < 2 at once"
    assert [touch["place"] for touch in second["touches"]] == ["2 elements of t[0:2, 0:2]"] * 2


def test_a_tile_in_a_global_buffer_lies_in_the_plane_of_its_wide_dimensions():
    data = page_data(TRACE)
    assert data["buffers"][0]["size"] == [4, 6]
    (read, _written) = data["steps"][0]["touches"]
    assert (read["box"], read["place"]) == ([[0, 2], [3, 6]], "A[1, 0:2, 3:6]")


def test_a_large_tile_is_sampled_and_its_samples_are_exact():
    values = tuple(float(i) for i in range(100 * 70))
    buffers = (TracedBuffer("t", "fragment", "float32", (100, 70)),)
    touch = Touch(0, ((0, 100), (0, 70)), None, 7000, values)
    trace = replace(TRACE, buffers=buffers, steps=(Step(None, "T.fill(t)", (), (), (), (touch,)),), source=())
    picture = page_data(trace)["steps"][0]["touches"][0]["picture"]
    assert (picture["every"], picture["size"]) == ([3, 2], [34, 35])
    assert cells(picture) == [float(row * 70 + column) for row in range(0, 100, 3) for column in range(0, 70, 2)]


def test_memory_that_nothing_wrote_is_not_taken_for_nothing():
    """It may hold the very NaN that stands for a cell without a value."""
    (strange,) = struct.unpack("<f", b"\xff\xff\xff\xff")
    touch = Touch(1, ((0, 2), (0, 3)), None, 6, (strange,) * 6)
    trace = replace(TRACE, steps=(replace(TRACE.steps[0], reads=(), writes=(touch,)),))
    assert all(math.isnan(value) for value in cells(page_data(trace)["steps"][0]["touches"][0]["picture"]))


def test_nothing_of_the_students_is_markup_or_script():
    page = trace_page.render(TRACE)
    assert page.count("<script>") == page.count("</script>") == 1
    assert "<img" not in page
    assert "<b>" not in page
    assert "<!--" not in page
    call = page[page.rindex("tilelabTrace(document") :]
    data = json.loads(re.fullmatch(r"[^,]*, (.*)\);</script>", call, re.DOTALL).group(1))
    assert data["source"][0]["text"] == "    " + EVIL
    assert "&lt;/script&gt;" in page  # in the list for where no script runs


def test_the_page_fetches_nothing():
    page = trace_page.render(TRACE)
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(", page)
    assert "innerHTML" not in page


def test_pages_of_one_notebook_do_not_meet():
    names = {re.search(r'id="([^"]+)"', trace_page.render(TRACE)).group(1) for _ in range(3)}
    assert len(names) == 3


def shown(call, *arguments) -> str:
    out = io.StringIO()
    call(*arguments, Console(file=out, width=160))
    return out.getvalue()


def test_the_terminal_shows_steps_and_values():
    text = shown(trace_text.show, TRACE)
    assert "small: block (1, 0) of a grid of 2 × 3, 2 steps" in text
    assert "A[1, 0:2, 3:6]" in text
    assert "A note." in text
    assert "Something is <b>wrong</b>." in text
    step = shown(trace_text.show_step, TRACE, 2)
    assert "written: 2 elements of t[0:2, 0:2]" in step
    assert re.search(r"inf +·\n +· +nan", step)
    assert "\x1b" not in text + step + trace_text.plain(TRACE)


# From a kernel to its record


def traced(kernel_name="matmul", block=(0, 0), shape=None, **arguments):
    lab = catalog.find("lab02_matmul")
    at = shape_of(lab.kernel(kernel_name), shape)
    capture = capture_of("lab02_matmul", matmul, **arguments)
    if shape is not None and not isinstance(shape, str):
        ir = json_of(matmul.get_tir(**shape, **arguments))
        capture = replace(capture, traces=(Trace(kernel_name, at.name, ir=ir),))
    return block_trace(capture, lab, kernel_name, at, block)


def test_a_kernel_of_a_lab_is_recorded_at_sizes_of_ones_own():
    trace = traced(shape={"M": 32, "N": 32, "K": 16}, block=(1, 0), block_M=16, block_N=16, block_K=8, threads=32)
    assert (trace.kernel, trace.grid, len(trace.steps)) == ("matmul", (2, 2), 1 + 3 * 2 + 1)
    assert trace.faults == ()
    assert trace.steps[-1].writes[0].box == ((0, 16), (16, 32))


def test_faults_of_the_run_are_told():
    trace = traced(clear=False, shape="small")
    assert any("before anything was written there" in fault.message for fault in trace.faults)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"block": (9, 0)}, "'matmul' has no block (9, 0)."),
        ({"block": (0, -1)}, "'matmul' has no block (0, -1)."),
        ({"block": "0,0"}, "'0,0' is no block."),
        ({"block": (True, 0)}, "'(True, 0)' is no block."),
        ({"block": ()}, "'()' is no block."),
        ({"shape": "huge"}, "'matmul' has no shape 'huge'."),
        ({"shape": {"M": 4}}, "These are no sizes for 'matmul': {'M': 4}."),
        ({"shape": {"M": 4, "N": 0, "K": 4}}, "These are no sizes for 'matmul': {'M': 4, 'N': 0, 'K': 4}."),
    ],
)
def test_what_cannot_be_recorded_is_said(arguments, said):
    with pytest.raises(Unusable) as raised:
        traced(**arguments)
    assert raised.value.finding.message == said
    assert raised.value.finding.advice


def test_a_kernel_that_is_not_admitted_is_not_run():
    lab = catalog.find("lab02_matmul")
    shape = lab.kernel("matmul").shapes[0]
    capture = Capture(lab.id, lab.version, (Trace("matmul", shape.name, ir="{}"),), sandbox="test")
    with pytest.raises(Unusable, match="Refused"):
        block_trace(capture, lab, "matmul", shape, (0, 0))


def test_only_what_is_asked_for_is_traced():
    lab = catalog.find("lab02_matmul")
    shape = Shape("own", {"M": 8, "N": 8, "K": 8}, Group.TILES)
    (kernel,) = only(lab, "matmul", shape).kernels
    assert kernel.shapes == (shape,)


def test_the_source_is_the_students_cell():
    lab = catalog.find("lab01_vector_add")
    shape = lab.kernel("vector_add").shapes[0]
    ir = json_of(vector_add.get_tir(N=1024))
    file = vector_add.func.orig_func.__code__.co_filename
    with open(file) as text:
        source = Source(file, "In [3]", text.read())
    capture = Capture(lab.id, lab.version, (Trace("vector_add", shape.name, ir=ir),), (source,))
    trace = block_trace(capture, lab, "vector_add", shape, (0,))
    assert trace.steps[0].where.cell == "In [3]"
    assert trace.steps[0].where.text == "C[index] = A[index] + B[index]"
    assert trace.source[-1].text.endswith("C[index] = A[index] + B[index]")
    assert trace.source[0].text.lstrip().startswith("def main(")


# The doors


def test_trace_in_a_notebook():
    call = "from grader import trace\ntrace(matmul, block=(1, 0), shape={'M': 32, 'N': 32, 'K': 32}, block_M=16, "
    (html,) = run(IMPORTS, MATMUL, call + "block_N=16, block_K=16, threads=32)")
    assert "matmul: block (1, 0) of a grid of 2 × 2, 8 steps" in html
    assert "<code>T.gemm(A_tile, B_tile, C_tile)</code> In [2], line 13" in html
    assert "tilelabTrace(document.getElementById(" in html


def test_a_mistaken_call_in_a_notebook_is_explained():
    (html,) = run(IMPORTS, VECTOR_ADD, "from grader import trace\ntrace(vector_add, block=(77,))")
    assert "has no block (77)" in html
    assert "the last block is (0)" in html


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["trace", *map(str, arguments)], env={"COLUMNS": "160"}, catch_exceptions=True)


def test_trace_on_the_command_line(notebook, tmp_path):
    path = notebook("lab01_vector_add", VECTOR_ADD)
    result = invoke(path, "--shape", "tail", "--block", "9")
    assert result.exit_code == 0, result.output
    assert "vector_add: block (9) of a grid of 10, 1 step" in result.output
    assert "C[9216:10000]" in result.output
    result = invoke(path, "--shape", "N=5", "--block", "0", "--step", 1, "--kernel", "vector_add")
    assert "written: C[0:5]" in result.output
    page = tmp_path / "page.html"
    assert invoke(path, "--shape", "N=5", "--block", "0", "--html", page).exit_code == 0
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--block", "x"], "'x' is no block"),
        (["--shape", "N=many"], "'N=many' are no sizes"),
        (["--kernel", "other"], "has no kernel 'other'"),
        (["--shape", "N=5", "--block", "0", "--step", "2"], "There is no step 2: the block has 1."),
    ],
)
def test_mistakes_on_the_command_line_are_said(notebook, options, said):
    result = invoke(notebook("lab01_vector_add", VECTOR_ADD), *options)
    assert isinstance(result.exception, Unusable)
    assert said in result.exception.finding.message

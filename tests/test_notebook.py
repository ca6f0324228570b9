"""``check`` in a live Jupyter kernel, as a student runs it."""

import tempfile

import nbformat
from cells import IMPORTS, MATMUL, ROOT
from kernels import capture_of, matmul
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from traitlets.config import Config

from grader.autograders import judge_capture
from grader.student import checking


def run(*cells: str) -> list[str]:
    """Executes cells in a real kernel; the text of the last cell's HTML and stream outputs."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
    with tempfile.TemporaryDirectory(prefix="tilelab-") as folder:
        # Sockets that are files: of ports that were free a moment ago, other tests' kernels may have taken one.
        sockets = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        client = NotebookClient(
            notebook,
            timeout=120,
            kernel_name="python3",
            resources={"metadata": {"path": str(ROOT)}},
            config=sockets,
        )
        done: nbformat.NotebookNode = client.execute()
    texts = []
    for output in done.cells[-1].outputs:
        assert output.output_type != "error", output
        texts.append(output.get("text") or output.get("data", {}).get("text/html", ""))
    return texts


def test_a_right_kernel_shows_its_points():
    (html,) = run(IMPORTS, MATMUL, "check(matmul, device='sim')")
    assert "60 of 60 assessed points; 40 wait for a GPU." in html
    assert "not assessed" in html


def test_a_wrong_kernel_shows_the_line_in_its_cell():
    (html,) = run(IMPORTS, MATMUL.replace("T.clear(C_tile)", "pass"), "check(matmul, 'right', device='sim')")
    assert "In [2], line 13" in html
    assert "T.gemm(A_tile, B_tile, C_tile)" in html
    assert "before anything was written there" in html


def test_what_is_no_kernel_of_a_lab_is_said():
    calls = {
        "check(3)": "of type int",
        "check({})": "of type dict",
        "check(print)": "No lab asks for a kernel",
        "check(lambda: 0)": "No lab asks for a kernel",
    }
    for (call, said), html in zip(calls.items(), run(IMPORTS, "\n".join(calls)), strict=True):
        assert said in html, call


def test_where_no_html_is_shown_the_reasons_are_told_too():
    verdict = judge_capture(capture_of("lab02_matmul", matmul, clear=False), part="right")
    text = "\n".join(checking._plain(verdict))
    assert "before anything was written there" in text
    assert "T.clear before the loop" in text


def test_markup_in_a_students_line_is_text():
    evil = MATMUL.replace("T.clear(C_tile)", "pass  # <script>alert(1)</script>").replace(
        "T.gemm(A_tile, B_tile, C_tile)", "T.gemm(A_tile, B_tile, C_tile)  # <img src=x onerror=alert(1)>"
    )
    (html,) = run(IMPORTS, evil, "check(matmul, 'right', device='sim')")
    assert "<img" not in html
    assert "&lt;img" in html


def test_rooflines_are_shown_at_sizes_of_ones_own():
    call = "roofline(matmul, {'M': 96, 'N': 64, 'K': 32}, 'H200', block_M=32, block_N=32)"
    (html,) = run(IMPORTS, MATMUL, "from grader import roofline\n" + call)
    assert "matmul at M = 96, N = 64, K = 32" in html
    assert f"{2 * 96 * 64 * 32:,}" in html
    assert "6 blocks of 128 threads" in html
    assert "H200 SXM" in html
    assert "A100" not in html


def test_a_roofline_that_cannot_be_shown_says_why():
    words = {
        "roofline(print)": "No lab asks for a kernel",
        "roofline(matmul, card='GTX')": "There are no figures of the card",
        "roofline(matmul, 'huge')": "has no shape",
        "roofline(matmul, block_M='x')": "In [2], line 5",
    }
    shown = run(IMPORTS, MATMUL, "\n".join(["from grader import roofline", *words]))
    for (call, said), html in zip(words.items(), shown, strict=True):
        assert said in html, call

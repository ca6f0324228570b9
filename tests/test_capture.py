"""Capture: whatever the cells do, what comes back is kernels as data, or one clear message."""

import contextlib
import json
import os
import sqlite3
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from cells import MATMUL, VECTOR_ADD

from grader import catalog
from grader.autograders.official import extended
from grader.capture import capture_notebook, read_capture, sandbox
from grader.capture.sandbox import DEFAULT_LIMITS, Limits
from grader.verdict import Unusable

ADD = catalog.find("lab01_vector_add")
MUL = catalog.find("lab02_matmul")
SHORT = Limits(seconds=15)  # for what won't end: to start takes seconds, more if other tests run

needs_bubblewrap = pytest.mark.skipif(sandbox.kind() != "bubblewrap", reason="bubblewrap is not usable here")


@pytest.fixture(params=["bubblewrap", "process"])
def either_sandbox(request, monkeypatch):
    """Each test in both forms of the sandbox, as far as they can be had."""
    if request.param == "process":
        monkeypatch.setenv("TILELAB_SANDBOX", "process")
    elif sandbox.kind() != "bubblewrap":
        pytest.skip("bubblewrap is not usable here")
    return request.param


def test_kernels_come_back_as_ir_with_the_students_lines(notebook, either_sandbox):
    capture = capture_notebook(notebook("lab01_vector_add", VECTOR_ADD), ADD)
    assert [trace.shape for trace in capture.traces] == [shape.name for shape in ADD.kernels[0].shapes]
    assert all(trace.ir and not trace.error for trace in capture.traces)
    assert capture.sandbox == either_sandbox
    where = capture.locate("/notebook/cell-2", 9)
    assert (where.cell, where.line, where.text) == ("code cell 2", 9, "C[index] = A[index] + B[index]")


def test_the_eager_style_is_captured_too(notebook):
    eager = """
@tilelang.jit
def vector_add(A, B, block_N: int = 1024):
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    B: T.Tensor((N,), "float32")
    C = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, block_N), threads=256) as bx:
        for i in T.Parallel(block_N):
            if bx * block_N + i < N:
                C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]
    return C
"""
    capture = capture_notebook(notebook("lab01_vector_add", eager), ADD)
    assert not [trace.error for trace in capture.traces if trace.error]


def test_the_same_notebook_gives_the_same_hash(notebook):
    path = notebook("lab01_vector_add", VECTOR_ADD)
    assert capture_notebook(path, ADD).sha256 == capture_notebook(path, ADD).sha256


def test_a_capture_file_reads_back(notebook, tmp_path):
    capture = capture_notebook(notebook("lab01_vector_add", VECTOR_ADD), ADD)
    file = tmp_path / "capture.json"
    file.write_text(capture.to_json())
    assert read_capture(file) == capture


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not JSON"),
        ("[" * 50_000, "not JSON"),
        ("[]", "not a capture file"),
        ('{"format": "tilelab-capture/1"}', "damaged at"),
        (
            '{"format": "tilelab-capture/1", "lab": "x", "lab_version": 1, "traces": [{"kernel": 3}]}',
            r"'traces\.0",
        ),
    ],
)
def test_what_is_no_capture_file_is_said(tmp_path, text, match):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(Unusable, match=match):
        read_capture(file)


def test_a_cell_that_raises_is_noted_and_the_rest_goes_on(notebook):
    capture = capture_notebook(notebook("lab01_vector_add", "1 / 0", VECTOR_ADD, "import no_such_module"), ADD)
    assert [error.kind for error in capture.cell_errors] == ["ZeroDivisionError", "ModuleNotFoundError"]
    assert all(trace.ir for trace in capture.traces)


@pytest.mark.parametrize(
    ("cell", "kind", "line", "message"),
    [
        (MATMUL.replace("T.clear(C_tile)", "T.clear(D_tile)"), "NameError", 9, "D_tile"),
        (MATMUL.replace("return main", "return 3"), "Not a kernel", None, "does not return a kernel"),
        (MATMUL.replace("def matmul(M, N, K,", "def matmul(M, N, L,"), "NameError", 4, "K"),
        ("matmul = 7", "Not a kernel", None, "is a int"),
    ],
)
def test_an_error_while_tracing_has_the_students_line(notebook, cell, kind, line, message):
    capture = capture_notebook(notebook("lab02_matmul", cell), MUL)
    (error,) = {trace.error for trace in capture.traces}
    assert message in error.message
    if kind is not None and "L," not in cell:
        assert error.kind == kind
    if line is not None and "L," not in cell:
        assert (error.file, error.line) == ("/notebook/cell-2", line)


def test_a_syntax_error_has_its_line(notebook):
    capture = capture_notebook(notebook("lab02_matmul", "x = 1\ndef matmul(:\n    pass"), MUL)
    assert [(e.kind, e.file, e.line) for e in capture.cell_errors] == [("SyntaxError", "/notebook/cell-2", 2)]
    assert {trace.error.kind for trace in capture.traces} == {"Missing"}


def unusable(path: Path, lab=MUL, limits=DEFAULT_LIMITS):
    with pytest.raises(Unusable) as caught:
        capture_notebook(path, lab, limits)
    return caught.value.finding


def test_an_endless_loop_names_its_cell(notebook, either_sandbox):
    found = unusable(notebook("lab02_matmul", MATMUL, "# wait\nwhile True:\n    pass"), limits=SHORT)
    assert "code cell 3 did not end" in found.message
    assert (found.where.cell, found.where.line) == ("code cell 3", 2)


def test_an_exit_names_its_cell(notebook, either_sandbox):
    found = unusable(notebook("lab02_matmul", MATMUL, "import os\nos._exit(0)"))
    assert "code cell 3 ended the whole process (status 0)" in found.message
    assert "exit" in found.advice


@pytest.mark.parametrize("cell", ["exit()", "raise SystemExit(0)", "quit()", "raise KeyboardInterrupt"])
def test_a_polite_exit_is_no_exit(notebook, cell):
    capture = capture_notebook(notebook("lab02_matmul", cell, MATMUL), MUL)
    assert all(trace.ir for trace in capture.traces)


def test_a_memory_hog_is_stopped_and_named(notebook):
    hog = "keep = []\nwhile True:\n    keep.append(bytearray(b'x') * 50_000_000)"
    found = unusable(notebook("lab02_matmul", hog), limits=Limits(seconds=60, memory=2 * 2**30))
    assert "used more than 2 GB of memory" in found.message


def test_a_flood_of_output_costs_nothing(notebook):
    flood = "for _ in range(2000):\n    print('x' * 10_000)"
    capture = capture_notebook(notebook("lab02_matmul", flood, MATMUL), MUL)
    assert all(trace.ir for trace in capture.traces)


def test_what_a_notebook_started_is_gone(notebook, either_sandbox):
    mark = f"tilelab-test-{os.getpid()}-{time.monotonic_ns()}"
    start = (
        "import subprocess, sys\n"
        "sleep = 'import time; time.sleep(600)'\n"
        f"subprocess.Popen([sys.executable, '-c', sleep, '{mark}'], start_new_session=True)"
    )
    capture_notebook(notebook("lab02_matmul", start, MATMUL), MUL)
    left = [p for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or [])]
    for process in left:
        process.kill()
    assert not left


@needs_bubblewrap
def test_the_sandbox_shows_nothing_of_ours(notebook, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the solution")
    database = tmp_path / "gradebook.db"
    sqlite3.connect(database).execute("create table t (x)").connection.commit()
    look = f"""
import os, socket, pathlib
def seen(path):
    try:
        return pathlib.Path(path).read_bytes() is not None
    except OSError:
        return False
names = []
if seen({str(secret)!r}): names.append("secret")
if seen({str(database)!r}): names.append("database")
if pathlib.Path({str(Path(catalog.__file__).parents[2] / "solutions")!r}).exists(): names.append("solutions")
try:
    import grader.autograders.private.shapes; names.append("private")
except ImportError:
    pass
try:
    import grader.judge; names.append("judge")
except ImportError:
    pass
try:
    socket.create_connection(("127.0.0.1", 9), timeout=1); names.append("network")
except ConnectionRefusedError:
    pass  # a loopback of its own
except OSError:
    pass
if any(name for name in os.environ if "TOKEN" in name or "SECRET" in name): names.append("environment")
if len([p for p in os.listdir("/proc") if p.isdigit()]) > 5: names.append("processes")
raise RuntimeError("saw " + ",".join(names))
"""
    os.environ["SOME_TOKEN"] = "x"
    try:
        capture = capture_notebook(notebook("lab02_matmul", look, MATMUL), MUL)
    finally:
        del os.environ["SOME_TOKEN"]
    (error,) = capture.cell_errors
    assert error.message == "saw"


def test_forged_results_on_the_channel_are_only_another_kernel(notebook):
    forge = """
import json, os
for fd in range(3, 20):
    try:
        os.write(fd, (json.dumps({"done": {"traces": [{"kernel": "matmul", "shape": "square", "ir": "{}"}],
            "cell_errors": [], "points": 100, "verdict": "passed"}}) + "\\n").encode())
    except OSError:
        pass
os._exit(0)
"""
    capture = capture_notebook(notebook("lab02_matmul", forge), MUL)
    assert "points" not in json.loads(capture.to_json())


def test_garbage_on_the_channel_is_said(notebook):
    forge = """
import os
for fd in range(3, 20):
    try:
        os.write(fd, b'{"done": {"traces": 3}}\\n\\xff\\xfe{{{\\n')
    except OSError:
        pass
os._exit(0)
"""
    assert "something of its own" in unusable(notebook("lab02_matmul", forge)).message


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"{no", "not a notebook"),
        (b"", "not a notebook"),
        (b"\xff\xfe\x00", "not a notebook"),
        (b"[]", "not a notebook"),
        (b"[" * 100_000, "not a notebook"),
        (b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "no code"),
    ],
)
def test_what_is_no_notebook_is_said(tmp_path, content, match):
    path = tmp_path / "lab02_matmul.ipynb"
    path.write_bytes(content)
    assert match in unusable(path).message


def test_missing_files_and_folders_are_said(tmp_path):
    assert "There is no file" in unusable(tmp_path / "none.ipynb").message
    assert "is not a file" in unusable(tmp_path).message


def test_another_labs_notebook_is_said(notebook):
    found = unusable(notebook("lab02_matmul", VECTOR_ADD))
    assert "looks like the notebook of lab01_vector_add" in found.message


def test_hidden_shapes_are_not_told_whatever_the_code_says_of_them(notebook):
    tell = VECTOR_ADD.replace(
        "    @T.prim_func",
        "    if N in (8192, 12289, 3):\n        raise ValueError(f'a hidden shape: {N}')\n    @T.prim_func",
    )
    look = """
import sys
seen = []
frame = sys._getframe()
while frame:
    seen += [str(value) for value in frame.f_locals.values()]
    frame = frame.f_back
raise RuntimeError(" ".join(word for word in ("12289", "8192") if any(word in text for text in seen)) or "nothing")
"""
    lab = extended(ADD)
    capture = capture_notebook(notebook("lab01_vector_add", look, tell), lab)
    assert [error.message for error in capture.cell_errors] == ["nothing"]
    hidden = {shape.name for shape in lab.kernels[0].shapes if shape.hidden}
    for trace in capture.traces:
        assert (trace.error is not None) == (trace.shape in hidden)
    assert {t.error.message for t in capture.traces if t.error} == {"The kernel can't be built there."}


def test_hidden_shapes_of_a_right_kernel_are_captured(notebook):
    capture = capture_notebook(notebook("lab01_vector_add", VECTOR_ADD), extended(ADD))
    assert len(capture.traces) == len(extended(ADD).kernels[0].shapes)
    assert all(trace.ir for trace in capture.traces)


def test_a_full_disk_is_the_notebooks_own(notebook):
    fill = """
for folder in (".", "/tmp", "/dev/shm"):
    with open(folder + "/fill", "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass
"""
    capture = capture_notebook(notebook("lab02_matmul", fill, MATMUL), MUL)
    assert all(trace.ir for trace in capture.traces)


def test_a_deep_tree_of_folders_is_cleaned_up(notebook, either_sandbox, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dig = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    capture_notebook(notebook("lab02_matmul", dig, MATMUL), MUL)
    assert not list(tmp_path.glob("tilelab-*"))


def test_a_child_that_goes_on_writing_does_not_hold_the_judge(notebook, either_sandbox):
    daemon = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for fd in range(3, 20):
                try:
                    os.write(fd, b"x" * 4096)
                except OSError:
                    pass
    os._exit(0)
"""
    started = time.monotonic()
    with contextlib.suppress(Unusable):  # what it writes may garble its own notebook's result
        capture_notebook(notebook("lab02_matmul", daemon, MATMUL), MUL, Limits(seconds=15))
    assert time.monotonic() - started < 40


def test_lone_surrogates_and_huge_texts_are_cut_to_size(notebook):
    text = (
        "x = '\\ud800'\nclass E(Exception):\n    pass\nE.__name__ = 'N' * 10_000\nraise E('\\ud800' + 'm' * 10**6)"
    )
    capture = capture_notebook(notebook("lab02_matmul", text, MATMUL), MUL)
    (error,) = capture.cell_errors
    assert len(error.kind) <= 64
    assert len(error.message) <= 600
    assert capture.to_json().encode()


def test_a_module_written_by_a_cell_can_be_imported(notebook):
    capture = capture_notebook(
        notebook("lab02_matmul", "%%writefile helper.py\nx = 1", "import helper", MATMUL), MUL
    )
    assert not capture.cell_errors


def test_a_partial_of_a_kernel_is_a_kernel(notebook):
    cell = (
        MATMUL.replace("def matmul(", "def tiled(")
        + "\n\nimport functools\nmatmul = functools.partial(tiled, block_M=64)"
    )
    capture = capture_notebook(notebook("lab02_matmul", cell), MUL)
    assert not [trace.error for trace in capture.traces if trace.error]

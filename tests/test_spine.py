"""The whole way: notebooks in, points out, by every entry; and a hostile notebook gains nothing by any of them."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from cells import MATMUL, ROOT, VECTOR_ADD
from nbformat.v4 import new_code_cell
from nbgrader.api import Gradebook

from grader import catalog
from grader.classroom.course import refresh
from grader.classroom.grade import grade
from grader.cli.demo import HOSTILE, WRONG
from grader.cli.results import reason

LAB = "lab02_matmul"


def tilelab(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", "from grader.cli import main; main()", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, check=False
    )


@pytest.fixture(scope="session")
def course(tmp_path_factory) -> Path:
    """A course folder made from the real solutions."""
    folder = tmp_path_factory.mktemp("course")
    report = refresh(ROOT, folder)
    assert report.ok, report.findings
    return folder


def hand_in(course: Path, student: str, change=lambda notebook: None, lab: str = LAB) -> Path:
    notebook = nbformat.read(course / "source" / lab / f"{lab}.ipynb", as_version=4)
    change(notebook)
    place = course / "submitted" / student / lab
    place.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, place / f"{lab}.ipynb")
    return place / f"{lab}.ipynb"


def append(source: str):
    return lambda notebook: notebook.cells.append(new_code_cell(source.strip("\n"), id="added"))


def insert_first(source: str):
    return lambda notebook: notebook.cells.insert(0, new_code_cell(source.strip("\n"), id="added"))


def replace(before: str, after: str):
    def change(notebook) -> None:
        (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and before in cell.source)
        cell.source = cell.source.replace(before, after)

    return change


# tilelab check


def test_check_passes_a_right_notebook(notebook):
    done = tilelab("check", notebook(LAB, MATMUL), "--device", "sim")
    assert done.returncode == 0, done.stderr
    assert "60 of 60 assessed points; 40 wait for a GPU." in done.stdout


def test_check_as_json(notebook):
    done = tilelab("check", notebook(LAB, MATMUL), "--device", "sim", "--json")
    verdict = json.loads(done.stdout)
    outcomes = {check["name"]: check["outcome"] for check in verdict["checks"]}
    assert outcomes.pop("test_fast") == "not assessed"
    assert set(outcomes.values()) == {"passed"}


def test_check_fails_a_wrong_notebook_and_names_its_line(notebook):
    wrong = VECTOR_ADD.replace("if index < N:", "if index <= N:")
    done = tilelab("check", notebook("lab01_vector_add", wrong), "--device", "sim")
    assert done.returncode == 1
    assert "which does not exist" in done.stdout
    assert "code cell 2, line 9: C[index] = A[index] + B[index]" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "status", "words"),
    [
        ("lab02_matmul.ipynb", "{no", 2, "is not a notebook that can be read"),
        ("something.ipynb", None, 2, "There is no file"),
    ],
)
def test_unusable_files_end_with_2_and_one_message(tmp_path, name, content, status, words):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    done = tilelab("check", path)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_an_op_that_the_judge_does_not_know_is_a_failed_check_with_its_line(notebook):
    odd = MATMUL.replace("T.clear(C_tile)", "T.clear(C_tile)\n            T.sync_grid()")
    done = tilelab("check", notebook(LAB, odd), "--device", "sim")
    assert done.returncode == 1
    assert "'sync_grid', which is not admitted here" in done.stdout
    assert "code cell 2, line 10: T.sync_grid()" in done.stdout


def test_without_a_gpu_a_gpu_check_is_refused(notebook):
    from grader.gpu import hardware

    if hardware.judging_card() is not None:
        pytest.skip("there is a GPU here")
    done = tilelab("check", notebook(LAB, MATMUL), "--device", "gpu")
    assert done.returncode == 2
    assert "There is no GPU here" in done.stderr


def test_capture_here_and_judge_there(notebook, tmp_path):
    file = tmp_path / "capture.json"
    assert tilelab("capture", notebook(LAB, MATMUL), "-o", file).returncode == 0
    done = tilelab("judge", file, "--device", "sim")
    assert done.returncode == 0
    assert "60 of 60 assessed points" in done.stdout


def test_judging_needs_neither_jupyter_nor_nbgrader_nor_tvm(notebook, tmp_path):
    file = tmp_path / "capture.json"
    tilelab("capture", notebook(LAB, MATMUL), "-o", file)
    blocked = ("nbgrader", "nbformat", "jupyterlab", "jupytext", "IPython", "tilelang", "tvm")
    site = tmp_path / "site"
    for name in blocked:
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("raise ImportError('this machine has no ' + __name__)")
    environment = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    command = [
        sys.executable,
        "-P",
        "-c",
        "from grader.cli import main; main()",
        "judge",
        str(file),
        "--device",
        "sim",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pytest_alone_runs_a_labs_file(notebook):
    file = ROOT / "grader" / "autograders" / "test_lab02_matmul.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", str(file), "--device", "sim"]
    wrong = notebook(LAB, MATMUL.replace('"float32"', '"float16"'))
    done = subprocess.run(
        [*command, "--submission", str(wrong)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "are wrong" in done.stdout
    assert "not assessed" in done.stdout


def test_a_kernel_that_is_unclean_at_the_timed_shape_is_not_fast_on_any_card(notebook):
    done = tilelab("check", notebook(LAB, MATMUL.replace("T.clear(C_tile)", "pass")), "--device", "sim", "--json")
    fast = next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "test_fast")
    assert fast["outcome"] == "failed"
    assert "before anything was written there" in fast["findings"][0]["message"]


# The classroom


@pytest.mark.parametrize("entry", ["tilelab", "nbgrader"])
def test_grading_writes_the_judges_points(course, tmp_path, entry):
    here = tmp_path / "course"
    shutil.copytree(course, here)
    hand_in(here, "right")
    hand_in(here, "wrong", replace(*WRONG[LAB]))
    hand_in(here, "hostile", append(HOSTILE[LAB]))
    if entry == "tilelab":
        done = tilelab("grade", LAB, "--course", here, "--device", "sim")
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        nbgrader(here, "generate_assignment", LAB)
        nbgrader(here, "autograde", LAB)
    with Gradebook(f"sqlite:///{here}/gradebook.db", "tilelang") as book:
        right = book.find_submission(LAB, "right")
        scores = {student: book.find_submission(LAB, student).score for student in ("right", "wrong", "hostile")}
        assert scores == {"right": 60, "wrong": 40, "hostile": 0}
        assert all(
            grade.manual_score is None for grade in book.find_submission(LAB, "hostile").notebooks[0].grades
        )
        assert right.needs_manual_grade
        fast = book.find_grade("matmul-fast", LAB, LAB, "right")
        assert (fast.auto_score, fast.needs_manual_grade) == (0, True)
        correct = book.find_grade("matmul-right", LAB, LAB, "right")
        assert (correct.auto_score, correct.needs_manual_grade) == (60, False)


def nbgrader(course: Path, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TILELAB_DEVICE": "sim"}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(
        command, cwd=course, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


#: Each hostile notebook: how it changes the solution, and what is said of it (None: it changes nothing at all).
FORGERIES = {
    "patches and leaves": (append(HOSTILE[LAB]), "ended the whole process"),
    "patches first": (
        insert_first(HOSTILE[LAB].replace("os._exit(0)", "")),
        None,
    ),
    "wrong, and patches": (
        lambda notebook: (
            replace(*WRONG[LAB])(notebook),
            insert_first(HOSTILE[LAB].replace("os._exit(0)", ""))(notebook),
        ),
        "are wrong",
    ),
    "wrong, and forges outputs": (
        lambda notebook: (replace(*WRONG[LAB])(notebook), forge_outputs(notebook)),
        "are wrong",
    ),
    "compiler flags": (
        append('matmul = tilelang.jit(out_idx=[-1], compile_flags=["-ccbin", "/tmp/x"])(matmul.func.orig_func)'),
        "'compile_flags' is not admitted",
    ),
    "torch in its place": (
        append("import torch\ndef matmul(M, N, K):\n    return lambda a, b: torch.matmul(a, b)"),
        "gives a function instead of a kernel",
    ),
}


def forge_outputs(notebook) -> None:
    """Gives the test cells outputs and metadata that stock nbgrader would believe."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade"):
            cell.metadata["nbgrader"]["points"] = 1000
            cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "1000.0"}, execution_count=1)]


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_earns_what_its_kernel_earns(course, tmp_path, name):
    here = tmp_path / "course"
    shutil.copytree(course, here)
    change, words = FORGERIES[name]
    path = hand_in(here, "eve", change)
    (result,) = grade(here, LAB, device="sim")
    assert result.error is None
    assert result.max_score == 100
    expected = {None: 60, "are wrong": 40}.get(words, 0)
    assert result.score == expected
    if words is not None:
        assert words in reason(result)
    with sqlite3.connect(here / "gradebook.db") as database:
        assert database.execute("select count(*) from grade where manual_score is not null").fetchone() == (0,)
    checked = tilelab("check", path, "--device", "sim")
    assert checked.returncode == (0 if words is None else 2 if "process" in words else 1)


def test_the_labs_are_those_of_the_catalogue():
    assert {path.name for path in (ROOT / "labs").iterdir()} == {lab.id for lab in catalog.LABS}

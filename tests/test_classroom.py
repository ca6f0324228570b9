"""Grading through nbgrader: its points are the judge's, whatever was handed in. Real nbgrader, a fake judge."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.converters import GenerateFeedback
from traitlets.config import PyFileConfigLoader

from grader.catalog.labs import VECTOR_ADD
from grader.classroom import pipeline
from grader.classroom.build import generate
from grader.classroom.course import refresh
from grader.classroom.explain import as_markdown, explain_checks
from grader.classroom.grade import StudentResult, grade, load_config
from grader.gpu.hardware import Gpu
from grader.verdict import Check, Finding, Location, Outcome, Unavailable, Unusable, read

LAB = VECTOR_ADD.id

SCRIPT = """\
# %% [markdown]
# # Vector add

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "kernel"}
def vector_add(N):
    ### BEGIN SOLUTION lines=1 hint="Add."
    return the_right_answer(N)
    ### END SOLUTION

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "right"}
check(vector_add)
### BEGIN HIDDEN TESTS
hidden_test_of_the_instructor(vector_add)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "fast"}
check(vector_add, speed=True)
"""

# As a file, so that nbgrader in a process of its own finds it too.
JUDGE = """\
import json
import os
from grader.verdict import Check, Finding, Location, Outcome, Unavailable, Unusable, Verdict

P, F, N = Outcome.PASSED, Outcome.FAILED, Outcome.NOT_ASSESSED

def judge_notebook(notebook, lab_id, *, device="auto", official_run=False):
    assert official_run and notebook.parts[-4] == "submitted", notebook
    try:
        cells = json.loads(notebook.read_bytes())["cells"]
        text = "\\n".join("".join(c["source"]) for c in cells)
    except Exception:
        raise Unusable(Finding("This is no notebook <script>.", "Hand in a notebook."))
    if os.environ.get("FAKE_JUDGE_LACKS"):
        raise Unavailable(f"Something is missing here: {os.environ['FAKE_JUDGE_LACKS']}.")
    if "while True" in text:
        raise Unusable(Finding("The cell never ends.", "Look at its loop.", Location("cell 2", 3)))
    if "BUG" in text:
        raise ZeroDivisionError("a bug of the judge")
    right = P if "the_right_answer" in text else F
    fast = N if device == "sim" else right
    why = () if right is P else (Finding("Elements are missing in /srv/secret/shape.json of seed-4711."),)
    return Verdict(lab_id, device, (
        Check("test_traces", "Traces", "right", P, 1.0, 1.0),
        Check("test_right", "Right", "right", right, 9.0 * (right is P), 9.0, why),
        Check("test_fast", "Fast", "fast", fast, 5.0 * (fast is P), 5.0),
    ), seed="seed-4711")
"""


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    cell: str
    max_points: float
    free: bool = False
    manual: bool = False


ROWS = (Row("test_traces", "Traces", "right", 1, True), Row("test_right", "Right", "right", 9))
ROWS += (Row("test_fast", "Fast", "fast", 5),)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    """A course folder with the assignment in its gradebook and nobody's work; copied for each test."""
    root = tmp_path_factory.mktemp("project")
    (root / "solutions").mkdir()
    (root / "solutions" / f"{LAB}.py").write_text(SCRIPT)
    course = root / "course"
    report = refresh(root, course, labs=(VECTOR_ADD,), point_table=lambda _lab: ROWS)
    assert report.ok, report.findings
    (root / "fake_judge.py").write_text(JUDGE)
    with (course / "nbgrader_config.py").open("a") as config:
        config.write('c.JudgeScores.judge = "fake_judge.judge_notebook"\n')
    hand_in(course, "nobody")
    grade_with(root, course)
    shutil.rmtree(course / "submitted")
    shutil.rmtree(course / "autograded")
    return root


@pytest.fixture
def course(prepared, tmp_path, monkeypatch) -> Path:
    shutil.copytree(prepared / "course", tmp_path / "course")
    monkeypatch.syspath_prepend(str(prepared))
    monkeypatch.setenv("TILELAB_DEVICE", "sim")
    return tmp_path / "course"


def grade_with(root: Path, course: Path) -> list[StudentResult]:
    sys.path.insert(0, str(root))
    try:
        return grade(course, LAB, device="sim")
    finally:
        sys.path.remove(str(root))


def released(course: Path) -> nbformat.NotebookNode:
    source = course / "release" / LAB / f"{LAB}.ipynb"
    if not source.is_file():
        source = course / "source" / LAB / f"{LAB}.ipynb"
    return nbformat.read(source, as_version=4)


def hand_in(course: Path, student: str, notebook=None, answer: str | None = None) -> Path:
    """Writes submitted/<student>/<lab>: a notebook, or any text, or the release with an answer."""
    path = course / "submitted" / student / LAB / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    if notebook is None:
        notebook = released(course)
        if answer is not None:
            solution_cell(notebook).source = answer
    path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook))
    return path


def solution_cell(notebook):
    return next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "kernel")


RIGHT = "def vector_add(N):\n    return the_right_answer(N)"


def in_gradebook(course: Path, student: str) -> dict[str, tuple]:
    """(auto score, manual score, needs manual grade) of each grade cell, and the comment."""
    with Gradebook(f"sqlite:///{course}/gradebook.db", "tilelang") as gb:
        found = {}
        for cell in ("right", "fast"):
            g = gb.find_grade(cell, LAB, LAB, student)
            found[cell] = (g.auto_score, g.manual_score, g.needs_manual_grade)
        found["comment"] = gb.find_comment("kernel", LAB, LAB, student).comment
        return found


def autograded(course: Path, student: str):
    return nbformat.read(course / "autograded" / student / LAB / f"{LAB}.ipynb", as_version=4)


# Points


def test_points_are_the_judges_and_waiting_ones_wait(course):
    hand_in(course, "ann", answer=RIGHT)
    hand_in(course, "bob", answer="def vector_add(N):\n    return 0")
    ann, bob = grade(course, LAB, device="sim")
    assert (ann.student, ann.score, ann.max_score, ann.needs_manual_grade) == ("ann", 10, 15, True)
    assert (bob.student, bob.score) == ("bob", 1)
    found = in_gradebook(course, "ann")
    assert found["right"] == (10, None, False)
    assert found["fast"] == (0, None, True)
    assert found["comment"] == (
        "- Traces: passed, 1 of 1 points\n- Right: passed, 9 of 9 points\n"
        "- Fast: not assessed, 5 points wait for a run on a GPU"
    )
    assert ann.verdict == read(course / "verdicts" / "ann" / f"{LAB}.json")
    assert ann.verdict.seed == "seed-4711"
    assert (course / "verdicts").stat().st_mode & 0o077 == 0


def test_a_run_on_a_gpu_settles_what_waited(course):
    hand_in(course, "ann", answer=RIGHT)
    grade(course, LAB, device="sim")
    (ann,) = grade(course, LAB, device="auto")
    assert (ann.score, ann.needs_manual_grade) == (15, False)


def test_words_for_students_hold_no_secret(course):
    hand_in(course, "bob", answer="def vector_add(N):\n    return 0")
    grade(course, LAB)
    comment = in_gradebook(course, "bob")["comment"]
    assert "- Right: failed, 0 of 9 points\n    - Elements are missing in shape.json of …." in comment
    assert pipeline.run(GenerateFeedback, load_config(course), LAB).ok
    feedback = course / "feedback" / "bob" / LAB / f"{LAB}.html"
    page = feedback.read_text()
    assert "Elements are missing" in page
    for secret in ("hidden_test_of_the_instructor", "seed-4711", "/srv/secret", "the_right_answer"):
        assert secret not in page
        assert secret not in str(autograded(course, "bob"))


def test_an_untouched_gap_is_named(course):
    hand_in(course, "cid")
    grade(course, LAB)
    assert in_gradebook(course, "cid")["comment"].startswith("Nothing was filled in here.\n- Traces")


def test_a_teachers_score_is_kept_and_listed_for_review(course):
    hand_in(course, "ann", answer=RIGHT)
    grade(course, LAB)
    with Gradebook(f"sqlite:///{course}/gradebook.db", "tilelang") as gb:
        by_hand = gb.find_grade("fast", LAB, LAB, "ann")
        by_hand.manual_score, by_hand.needs_manual_grade = 4, False
        gb.db.commit()
    (ann,) = grade(course, LAB, device="auto")
    assert in_gradebook(course, "ann")["fast"] == (5, 4, True)
    assert ann.score == 14


# All ways in


def test_nbgrader_on_the_command_line(course, prepared):
    """In a process of its own, without an activated environment; one bad submission doesn't stop the next."""
    hand_in(course, "ann", answer=RIGHT)
    hand_in(course, "bad", "{ no json")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), str(prepared)]), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", "autograde", LAB],
        check=False,
        cwd=course,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert in_gradebook(course, "ann")["right"] == (10, None, False)
    assert in_gradebook(course, "bad")["right"] == (0, None, False)


def test_formgraders_button(course):
    hand_in(course, "ann", answer=RIGHT)
    result = NbGraderAPI(config=load_config(course)).autograde(LAB, "ann")
    assert result["success"], result
    assert in_gradebook(course, "ann")["right"] == (10, None, False)
    assert in_gradebook(course, "ann")["fast"] == (0, None, True)


def test_grade_makes_the_assignment_by_itself(prepared, course):
    (course / "gradebook.db").unlink()
    shutil.rmtree(course / "release")
    hand_in(course, "ann", answer=RIGHT)
    (ann,) = grade(course, LAB)
    assert ann.score == 10


def test_released_labs_are_the_committed_ones(course):
    """A course's generate_assignment and ``tilelab build`` give students the same bytes."""
    solution = nbformat.read(course / "source" / LAB / f"{LAB}.ipynb", as_version=4)
    assert generate(LAB, solution) == (course / "release" / LAB / f"{LAB}.ipynb").read_text()


def test_the_image_has_the_same_configuration(course, monkeypatch):
    monkeypatch.setenv("TILELAB_COURSE", str(course))
    docker = Path(__file__).parents[1] / "docker"
    image = PyFileConfigLoader("nbgrader_config.py", path=str(docker)).load_config()
    ours = load_config(course)
    del ours["JudgeScores"]  # the fake judge
    assert image == ours


def test_no_student_code_runs(course, tmp_path):
    witness = tmp_path / "ran"
    hand_in(course, "eve", answer=f"open({str(witness)!r}, 'w')\n" + RIGHT)
    grade(course, LAB)
    assert not witness.exists()


# Bad submissions


def nasty_notebooks(course: Path) -> dict[str, object]:
    def changed(change):
        notebook = released(course)
        solution_cell(notebook).source = RIGHT
        change(notebook)
        return notebook

    def duplicate(nb):
        nb.cells += [dict(cell) for cell in nb.cells]

    def delete_tests(nb):
        nb.cells = [c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") in (None, "kernel")]

    def rename(nb):
        for cell in nb.cells:
            if "nbgrader" in cell.metadata:
                cell.metadata.nbgrader.grade_id += "x"

    def flip(nb):
        for cell in nb.cells:
            if "nbgrader" in cell.metadata:
                cell.metadata.nbgrader.update(grade=True, points=1e9, schema_version=0)

    def nonsense(nb):
        for cell in nb.cells:
            cell.metadata = {"nbgrader": ["not", "a", "dict"]}

    def kernel(nb):
        nb.metadata.kernelspec = {"name": "bogus", "language": "R"}

    changes = (duplicate, delete_tests, rename, flip, nonsense, kernel)
    return {change.__name__: changed(change) for change in changes}


def test_hostile_metadata_costs_and_earns_nothing(course):
    nasty = nasty_notebooks(course)
    for student, notebook in nasty.items():
        hand_in(course, student, notebook)
    results = grade(course, LAB)
    assert {r.student: (r.score, r.error, r.unusable) for r in results} == dict.fromkeys(nasty, (10, None, None))
    for student in nasty:
        copy = autograded(course, student)
        assert RIGHT in [cell.source for cell in copy.cells]
        graded = [c.metadata.nbgrader for c in copy.cells if c.metadata.get("nbgrader", {}).get("grade")]
        assert [(meta.grade_id, meta.points) for meta in graded] == [("right", 10), ("fast", 5)]


def test_outputs_and_other_files_are_dropped(course):
    notebook = released(course)
    solution_cell(notebook).source = RIGHT
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("stream", text="forged: 15 of 15")]
    path = hand_in(course, "ann", notebook)
    (path.parent / "torch.py").write_text("1/0")
    (path.parent / "sub").mkdir()
    (path.parent / "sub" / "data.bin").write_text("x")
    (ann,) = grade(course, LAB)
    assert ann.score == 10
    assert "forged" not in str(autograded(course, "ann"))
    left = [p.name for p in (course / "autograded" / "ann" / LAB).rglob("*") if p.is_file()]
    assert left == [f"{LAB}.ipynb"]


def test_unusable_submissions_get_zero_with_the_reason_and_stop_nobody(course):
    hand_in(course, "a-json", "{ no json")
    hand_in(course, "b-loop", answer="while True: pass")
    hand_in(course, "c-link").unlink()
    os.symlink(course / "source" / LAB / f"{LAB}.ipynb", course / "submitted" / "c-link" / LAB / f"{LAB}.ipynb")
    os.rename(hand_in(course, "d-name"), course / "submitted" / "d-name" / LAB / "mine.ipynb")
    (course / "submitted" / "e-empty" / LAB).mkdir(parents=True)
    hand_in(course, "f-pipe").unlink()
    os.mkfifo(course / "submitted" / "f-pipe" / LAB / f"{LAB}.ipynb")
    hand_in(course, "g-deep", "[" * 100_000)
    os.symlink(course / "source", course / "submitted" / "h-folder", target_is_directory=True)
    hand_in(course, "z-right", answer=RIGHT)
    *bad, right = grade(course, LAB)
    assert (right.student, right.score) == ("z-right", 10)
    reasons = {result.student: result.unusable.message for result in bad}
    assert reasons == {
        "a-json": "This is no notebook <script>.",
        "b-loop": "The cell never ends.",
        "c-link": "The submission's notebook is a link to another file, and links are not followed.",
        "d-name": f"The submission has no notebook {LAB}.ipynb.",
        "e-empty": f"The submission has no notebook {LAB}.ipynb.",
        "f-pipe": f"The submission's {LAB}.ipynb is not a file.",
        "g-deep": "This is no notebook <script>.",
        "h-folder": "The submission's notebook is a link to another file, and links are not followed.",
    }
    for result in bad:
        assert (result.score, result.needs_manual_grade) == (0, False)
        found = in_gradebook(course, result.student)
        assert (found["right"], found["fast"]) == ((0, None, False), (0, None, False))
        assert found["comment"].startswith("This submission could not be judged")
        assert as_markdown(reasons[result.student]) in found["comment"]
        assert not (course / "verdicts" / result.student / f"{LAB}.json").exists()
        assert "the_right_answer" not in str(autograded(course, result.student))
    assert "(cell 2, line 3) Look at its loop." in in_gradebook(course, "b-loop")["comment"]
    assert pipeline.run(GenerateFeedback, load_config(course), LAB).ok
    assert "no notebook &lt;script&gt;" in (course / "feedback" / "a-json" / LAB / f"{LAB}.html").read_text()


def test_files_that_would_stop_nbgrader_are_set_aside(course):
    folder = hand_in(course, "eve", answer=RIGHT).parent
    (folder / "timestamp.txt").write_text("never")
    os.symlink("/dev/zero", folder / "zero")
    os.symlink("nowhere", folder / "broken")
    os.mkfifo(folder / "pipe")
    (eve,) = grade(course, LAB)
    assert (eve.score, eve.error) == (10, None)
    aside = course / "set-aside" / "eve" / LAB
    assert sorted(p.name for p in aside.iterdir()) == ["broken", "pipe", "timestamp.txt", "zero"]


def test_a_bug_of_ours_leaves_points_as_they_were(course):
    hand_in(course, "ann", answer=RIGHT)
    hand_in(course, "bob", answer=RIGHT)
    grade(course, LAB)
    hand_in(course, "ann", answer="BUG")
    ann, bob = grade(course, LAB)
    assert "ZeroDivisionError: a bug of the judge" in ann.error
    assert (ann.verdict, ann.unusable, ann.score) == (None, None, 10)
    assert (bob.error, bob.score) == (None, 10)


def test_a_machine_that_cant_judge_gives_no_zeros(course, monkeypatch):
    hand_in(course, "ann", answer=RIGHT)
    grade(course, LAB, device="sim")
    monkeypatch.setenv("FAKE_JUDGE_LACKS", "a GPU")
    (ann,) = grade(course, LAB, device="sim")
    assert "Something is missing here: a GPU." in ann.error
    assert ann.score == 10


def test_without_a_gpu_a_gpu_run_touches_nothing(course, monkeypatch):
    hand_in(course, "ann", answer=RIGHT)
    grade(course, LAB, device="sim")
    before = {path: path.stat().st_mtime_ns for path in course.rglob("*") if path.is_file()}
    monkeypatch.setattr("grader.gpu.unfit.look", lambda: Gpu(None, None, None))
    with pytest.raises(Unavailable, match=r"There is no GPU here that could judge\. No NVIDIA driver"):
        grade(course, LAB, device="gpu")
    assert before == {path: path.stat().st_mtime_ns for path in course.rglob("*") if path.is_file()}


def test_a_gradebook_with_other_points_is_an_error_not_a_zero(course):
    hand_in(course, "ann", answer=RIGHT)
    source = course / "source" / LAB / f"{LAB}.ipynb"
    source.write_text(source.read_text().replace('"points": 10', '"points": 11'))
    (ann,) = grade(course, LAB)
    assert "The gradebook's points for lab01_vector_add are not the tests' (cells: right)." in ann.error
    assert ann.needs_manual_grade


def test_nothing_to_grade_is_said(course):
    with pytest.raises(Unusable) as nothing:
        grade(course, LAB)
    assert nothing.value.finding.message == f"No submissions of {LAB} were found."
    assert f"submitted/<student>/{LAB}/" in nothing.value.finding.advice
    hand_in(course, "ann")
    with pytest.raises(Unusable, match="No submissions"):
        grade(course, LAB, student="a*")
    with pytest.raises(Unusable, match="not a course folder"):
        grade(course / "submitted", LAB)


# Words


def test_explanations_are_harmless_as_markdown():
    finding = Finding("NameError: <img src=x onerror=alert(1)>", where=Location("cell 7", 2))
    check = Check("t", "Right\n# heading", "c", Outcome.INCONCLUSIVE, 0, 3, (finding,))
    assert as_markdown(explain_checks([check])) == (
        "- Right # heading: inconclusive, 3 points wait for a run on a GPU\n"
        "    - NameError: &lt;img src=x onerror=alert(1)> (cell 7, line 2)"
    )

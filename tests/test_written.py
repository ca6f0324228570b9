"""Answers in words: from a solution's script to a teacher's points, which stay."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from grader.catalog.labs import VECTOR_ADD
from grader.classroom import written
from grader.classroom.build import build, generate, lab_file
from grader.classroom.course import refresh
from grader.classroom.gaps import MarkError
from grader.classroom.grade import grade
from grader.classroom.script import ScriptError, read_script
from grader.report import words
from grader.verdict import Check, Outcome, Verdict

LAB = VECTOR_ADD.id

SCRIPT = """\
# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "kernel"}
def vector_add(N):
    ### BEGIN SOLUTION lines=1 hint="Add."
    return the_right_answer(N)
    ### END SOLUTION

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "right"}
check(vector_add)

# %% [markdown]
# Why is it fast?

# %% [markdown] nbgrader={"grade": true, "solution": true, "locked": false, "schema_version": 3, "grade_id": "why"}
# ### BEGIN ANSWER sentences=2 hint="Think of the bytes."
# Every byte is read and written once.
# Nothing else bounds it.
# ### END ANSWER
"""

JUDGE = """\
import json
from grader.verdict import Check, Finding, Outcome, Unusable, Verdict

def judge_notebook(notebook, lab_id, *, device="auto", official_run=False):
    if "while True" in notebook.read_text():
        raise Unusable(Finding("The cell never ends."))
    return Verdict(lab_id, device, (
        Check("test_right", "Right", "right", Outcome.PASSED, 9.0, 9.0),
        Check("test_reason", "The reason", "why", Outcome.NOT_ASSESSED, 0.0, 6.0, manual=True),
    ), seed="4711")
"""


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    cell: str
    max_points: float
    free: bool = False
    manual: bool = False


ROWS = (Row("test_right", "Right", "right", 9), Row("test_reason", "The reason", "why", 6, manual=True))


def point_table(_lab: str) -> tuple[Row, ...]:
    return ROWS


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / f"{LAB}.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "solutions").mkdir()
    (root / "solutions" / f"{LAB}.py").write_text(SCRIPT)
    course = root / "course"
    assert refresh(root, course, labs=(VECTOR_ADD,), point_table=point_table).ok
    (root / "fake_judge_of_words.py").write_text(JUDGE)
    with (course / "nbgrader_config.py").open("a") as config:
        config.write('c.JudgeScores.judge = "fake_judge_of_words.judge_notebook"\n')
    sys.path.insert(0, str(root))
    try:
        hand_in(course, "nobody")
        grade(course, LAB, device="sim")
    finally:
        sys.path.remove(str(root))
    shutil.rmtree(course / "submitted")
    return root


@pytest.fixture
def course(prepared, tmp_path, monkeypatch) -> Path:
    shutil.copytree(prepared / "course", tmp_path / "course")
    monkeypatch.syspath_prepend(str(prepared))
    return tmp_path / "course"


def hand_in(course: Path, student: str, reason: str | None = None, code: str = "") -> None:
    release = course / "release" / LAB / f"{LAB}.ipynb"
    source = release if release.is_file() else course / "source" / LAB / f"{LAB}.ipynb"
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "why" and reason is not None:
            cell.source = reason
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "kernel" and code:
            cell.source = code
    path = course / "submitted" / student / LAB / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook))


def reason_of(course: Path, student: str, give: float | None = None) -> tuple:
    """(auto score, manual score, needs manual grade) of the answer; ``give`` is what a teacher gives now."""
    with Gradebook(f"sqlite:///{course}/gradebook.db", "tilelang") as gb:
        found = gb.find_grade("why", LAB, LAB, student)
        if give is not None:
            found.manual_score, found.needs_manual_grade = give, False
            gb.db.commit()
        return found.auto_score, found.manual_score, found.needs_manual_grade


# In the lab


def test_students_get_the_hint_and_not_the_answer(root):
    assert build(root, labs=(VECTOR_ADD,), point_table=point_table).ok
    cells = nbformat.read(lab_file(root, LAB), as_version=4).cells
    (cell,) = (cell for cell in cells if cell.metadata.get("nbgrader", {}).get("grade_id") == "why")
    assert cell.source == "*Your answer here (about 2 sentences). Think of the bytes.*"
    assert cell.cell_type == "markdown"
    assert cell.metadata.nbgrader.points == 6
    assert not cell.metadata.nbgrader.locked
    assert cell.metadata.get("editable", True)


def verdict_of(notebook, lab_id, *, device="auto", official_run=False) -> Verdict:
    right = "the_right_answer" in notebook.read_text()
    outcome = Outcome.PASSED if right else Outcome.FAILED
    reason = Check("test_reason", "The reason", "why", Outcome.NOT_ASSESSED, 0.0, 6.0, manual=True)
    return Verdict(lab_id, device, (Check("test_right", "Right", "right", outcome, 9.0 * right, 9.0), reason))


def test_the_build_check_knows_answers(root):
    def findings() -> str:
        return str(build(root, check=True, labs=(VECTOR_ADD,), point_table=point_table, judge=verdict_of).findings)

    build(root, labs=(VECTOR_ADD,), point_table=point_table)
    assert findings() == "()"
    path = lab_file(root, LAB)
    text = path.read_text()
    path.write_text(text.replace("*Your answer here", "Every byte is read and written once. *"))
    assert "shows what" in findings()
    path.write_text(text.replace('"cell_type": "markdown"', '"cell_type": "raw"'))
    assert "outside the gaps" in findings()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("### BEGIN ANSWER", "### BEGIN ANSWERS", "begins with"),
        ("# ### END ANSWER\n", "", "ends with"),
        ("sentences=2 ", "", "needs sentences=NUMBER"),
        ('"grade": true, "solution": true', '"grade": true, "solution": false', "grade and solution"),
        ("# Why is it fast?", "# ### BEGIN ANSWER", "not graded"),
    ],
)
def test_mistakes_are_named(root, old, new, says):
    script = root / "solutions" / f"{LAB}.py"
    assert old in SCRIPT
    script.write_text(SCRIPT.replace(old, new))
    with pytest.raises(ScriptError, match=says):
        read_script(script, LAB, ROWS)


def test_a_cell_and_its_test_agree_on_who_gives_the_points(root):
    rows = (ROWS[0], Row("test_reason", "The reason", "why", 6))
    with pytest.raises(ScriptError, match="don't agree on who gives the points"):
        read_script(root / "solutions" / f"{LAB}.py", LAB, rows)


def test_an_answer_needs_text():
    with pytest.raises(MarkError, match="is empty"):
        written.parse('### BEGIN ANSWER sentences=1 hint="x"\n\n### END ANSWER')


# In the gradebook


def test_an_answer_waits_for_the_teacher_and_an_untouched_one_does_not(course):
    hand_in(course, "ann", "It is bound by memory.")
    hand_in(course, "bob")
    ann, bob = grade(course, LAB, device="sim")
    assert reason_of(course, "ann") == (0, None, True)
    assert reason_of(course, "bob") == (0, None, False)
    assert (ann.needs_manual_grade, bob.needs_manual_grade) == (True, False)
    assert (ann.score, ann.max_score) == (9, 15)


def test_what_a_teacher_gives_stays(course):
    hand_in(course, "ann", "It is bound by memory.")
    grade(course, LAB, device="sim")
    reason_of(course, "ann", give=5)
    (ann,) = grade(course, LAB, device="sim")
    assert reason_of(course, "ann")[:2] == (0, 5)
    assert ann.score == 14


def test_an_answer_beside_code_that_cannot_be_judged_still_waits(course):
    hand_in(course, "ann", "It is bound by memory.", code="while True:\n    pass")
    (ann,) = grade(course, LAB, device="sim")
    assert ann.unusable is not None
    assert reason_of(course, "ann") == (0, None, True)
    reason_of(course, "ann", give=5)
    (ann,) = grade(course, LAB, device="sim")
    assert ann.score == 5


def test_teachers_read_the_answer_and_no_html_of_the_students(course):
    hand_in(
        course,
        "ann",
        "It **is** <script>alert(1)</script> a < b [x](javascript:alert(2)) "
        r"[y\](javascript:alert(3)) $\href{javascript:alert(4)}{z}$",
    )
    grade(course, LAB, device="sim")
    path = course / "autograded" / "ann" / LAB / f"{LAB}.ipynb"
    copy = nbformat.read(path, as_version=4)
    from nbconvert import HTMLExporter

    page, _resources = HTMLExporter().from_notebook_node(copy)
    assert "<script>alert(1)" not in page
    assert 'href="javascript' not in page
    assert "\\href" not in page
    assert "<strong>is</strong>" in page


def test_the_words_say_who_has_to_look():
    card = Check("a", "A", "a", Outcome.NOT_ASSESSED, 0, 40)
    teacher = Check("b", "B", "b", Outcome.NOT_ASSESSED, 0, 10, manual=True)
    done = Check("c", "C", "c", Outcome.PASSED, 50, 50)
    assert words.points(teacher) == "10 from a teacher"
    said = words.summary(Verdict("lab", "simulator", (card, teacher, done)))
    assert said == "50 of 50 assessed points; 40 wait for a GPU and 10 wait for a teacher."
    assert words.summary(Verdict("lab", "simulator", (teacher, done))).endswith("; 10 wait for a teacher.")
    assert "wait for a GPU" in words.summary(Verdict("lab", "simulator", (card,)))


def test_a_released_lab_has_no_answer(root):
    solution = read_script(root / "solutions" / f"{LAB}.py", LAB, ROWS)
    assert "Every byte" not in generate(LAB, solution)

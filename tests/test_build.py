"""Labs from one source: what ``tilelab build`` writes and what ``--check`` finds."""

import ast
import json
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from grader.catalog.labs import VECTOR_ADD
from grader.classroom import gaps
from grader.classroom.build import build, lab_file
from grader.classroom.course import refresh, source_notebook
from grader.verdict import Check, Finding, Outcome, Unusable, Verdict

LAB = VECTOR_ADD.id

SCRIPT = """\
# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: nbgrader,tags,-all
#     notebook_metadata_filter: kernelspec,jupytext,-all
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Whatever, language: python, name: whatever}
# ---

# %% [markdown] tags=["lang-en"]
# # Vector add

# %% [markdown] tags=["lang-de"]
# # Vektoraddition

# %% tags=["keep-me"]
from grader import check

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "kernel"}
def vector_add(N):
    with kernel(N) as bx:
        ### BEGIN SOLUTION lines=2 hint="Add the elements of one tile; the compiler can't guess the tail."
        ### HINT A further sentence makes the hint longer than one line of a notebook cell.
        tile = load_both_operands(bx, N)

        # then the sum
        store_the_sum_of(tile, "quoted \\\\ text")
        ### END SOLUTION
    return N

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "right"}
check(vector_add)
### BEGIN HIDDEN TESTS
secret_question_about(vector_add)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "fast"}
check(vector_add, speed=True)
"""


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    cell: str
    max_points: float
    free: bool = False
    manual: bool = False


ROWS = (
    Row("test_traces", "Traces", "right", 1, free=True),
    Row("test_right", "Right", "right", 9),
    Row("test_fast", "Fast", "fast", 5),
)


def table(lab_id: str) -> tuple[Row, ...]:
    assert lab_id == LAB
    return ROWS


def judge(notebook: Path, lab_id: str, *, device: str = "auto", official_run: bool = False) -> Verdict:
    """Solved notebooks are right; speed needs a GPU."""
    assert notebook.name == f"{lab_id}.ipynb"
    assert device == "sim"
    right = Outcome.PASSED if "load_both_operands" in notebook.read_text() else Outcome.FAILED
    outcomes = {"test_traces": Outcome.PASSED, "test_right": right, "test_fast": Outcome.NOT_ASSESSED}
    return verdict_of(outcomes)


def verdict_of(outcomes: dict[str, Outcome]) -> Verdict:
    checks = tuple(
        Check(r.name, r.title, r.cell, o, r.max_points if o is Outcome.PASSED else 0.0, r.max_points)
        for r in ROWS
        if (o := outcomes.get(r.name))
    )
    return Verdict(LAB, "simulator", checks)


def make(root: Path, script: str = SCRIPT, **options):
    (root / "solutions").mkdir(exist_ok=True)
    (root / "solutions" / f"{LAB}.py").write_text(script)
    options = {"labs": (VECTOR_ADD,), "point_table": table, "judge": judge} | options
    return build(root, **options)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    report = make(tmp_path)
    assert report.ok, report.findings
    return tmp_path


def check(root: Path, **options) -> list[str]:
    options = {"labs": (VECTOR_ADD,), "point_table": table, "judge": judge} | options
    return [finding.message for finding in build(root, check=True, **options).findings]


def cells_of(path: Path) -> list:
    return nbformat.read(path, as_version=4).cells


# What is written


def test_same_bytes_each_time(tmp_path, project):
    first = lab_file(project, LAB).read_bytes()
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert make(other).written == (lab_file(other, LAB),)
    assert lab_file(other, LAB).read_bytes() == first
    assert make(project).written == ()


def test_a_fresh_lab_has_no_findings(project):
    assert check(project) == []


def test_skeleton_has_stub_points_ids_and_one_language(project):
    path = lab_file(project, LAB)
    notebook = json.loads(path.read_text())
    assert notebook["metadata"]["kernelspec"] == {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    cells = cells_of(path)
    assert [c.id for c in cells] == [f"{LAB}-001", f"{LAB}-002", "kernel", "right", "fast"]
    assert cells[0].source == "# Vector add"
    assert cells[1].metadata == {"tags": ["keep-me"]}
    assert [c.metadata.nbgrader.points for c in cells[3:]] == [10, 5]
    assert all(c.outputs == [] and c.execution_count is None for c in cells[1:])
    assert "secret" not in path.read_text()
    assert cells[2].source == "\n".join(
        [
            "def vector_add(N):",
            "    with kernel(N) as bx:",
            "        # YOUR CODE HERE (about 2 lines)",
            "        # Hint: Add the elements of one tile; the compiler can't guess the tail. A",
            "        #       further sentence makes the hint longer than one line of a notebook cell.",
            "        pass",
            "    return N",
        ]
    )
    ast.parse(cells[2].source)


def test_german_lab_has_the_german_cells(project):
    assert make(project, language="de").ok
    assert cells_of(lab_file(project, LAB))[0].source == "# Vektoraddition"


def test_course_folder_gets_solutions_and_is_stable(project, tmp_path):
    course = tmp_path / "course"
    submitted = course / "submitted" / "ann" / LAB / f"{LAB}.ipynb"
    submitted.parent.mkdir(parents=True)
    submitted.write_text("hers")
    report = refresh(project, course, labs=(VECTOR_ADD,), point_table=table)
    assert report.written == (source_notebook(course, LAB), course / "nbgrader_config.py")
    assert "secret_question_about" in source_notebook(course, LAB).read_text()
    assert refresh(project, course, labs=(VECTOR_ADD,), point_table=table).written == ()
    assert submitted.read_text() == "hers"

    (course / "nbgrader_config.py").write_text("c = get_config()\n")
    report = refresh(project, course, labs=(VECTOR_ADD,), point_table=table)
    assert "doesn't load the configuration" in report.findings[0].message
    assert (course / "nbgrader_config.py").read_text() == "c = get_config()\n"


# What the check finds


def test_stale(project):
    make_script = project / "solutions" / f"{LAB}.py"
    make_script.write_text(SCRIPT.replace("# # Vector add", "# # Vector sum"))
    messages = check(project)
    assert messages[0] == f"labs/{LAB}/{LAB}.ipynb is not what solutions/{LAB}.py makes"


def test_missing_and_stray(project):
    lab_file(project, LAB).rename(project / "labs" / "notes.txt")
    assert check(project) == ["labs/notes.txt belongs to no lab", f"labs/{LAB}/{LAB}.ipynb is missing"]


def test_litter_of_jupyter_is_no_stray_file(project):
    litter = lab_file(project, LAB).parent / ".ipynb_checkpoints" / "x.ipynb"
    litter.parent.mkdir()
    litter.write_text("{}")
    assert check(project) == []


def test_hand_edited_lab_differs_outside_the_gaps(project):
    path = lab_file(project, LAB)
    path.write_text(path.read_text().replace("return N", "return M"))
    report = build(project, check=True, labs=(VECTOR_ADD,), point_table=table, judge=judge)
    finding = next(f for f in report.findings if "outside the gaps" in f.message)
    assert "'    return M' instead of '    return N'" in finding.message
    assert str(finding.where) == f"labs/{LAB}/{LAB}.ipynb, cell 'kernel', line 4"


def test_code_smuggled_into_a_stub_is_stale_and_a_leak(project):
    path = lab_file(project, LAB)
    line = json.dumps('        store_the_sum_of(tile, "quoted \\\\ text")\n')
    path.write_text(path.read_text().replace('"        pass\\n"', f'{line},\n    "        pass\\n"'))
    messages = check(project)
    assert any("is not what" in m for m in messages)
    assert any("shows what solutions" in m for m in messages)


@pytest.mark.parametrize(
    "text", ["secret_question_about(vector_add)", "### BEGIN SOLUTION", "tile = load_both_operands(bx, N)"]
)
def test_leak_in_any_file(project, text):
    (project / "labs" / "README.md").write_text(text)
    (message,) = [m for m in check(project) if "shows what solutions" in m]
    assert message.startswith("labs/README.md shows")


def test_shown_text_is_no_leak(tmp_path):
    script = SCRIPT.replace("# # Vector add", "# # Vector add\n# Use `tile = load_both_operands(bx, N)`.")
    assert make(tmp_path, script).ok
    assert not any("shows what" in message for message in check(tmp_path))


def test_no_lab_found(tmp_path):
    (tmp_path / "solutions").mkdir()
    messages = check(tmp_path)
    assert f"the catalogue's lab '{LAB}' has no solution script" in messages
    assert "no lab was found to make or compare in solutions/" in messages
    assert not make(tmp_path, labs=()).ok


def test_script_without_a_lab(project):
    (project / "solutions" / "lab99_new.py").write_text("# %%\n1\n")
    assert check(project) == ["solutions/lab99_new.py belongs to no lab of the catalogue"]


def judged_as(skeleton: dict[str, Outcome], solution: dict[str, Outcome]):
    def fake(notebook, lab_id, **_options):
        return verdict_of(solution if "load_both_operands" in notebook.read_text() else skeleton)

    return fake


P, F, N = Outcome.PASSED, Outcome.FAILED, Outcome.NOT_ASSESSED
SKELETON = {"test_traces": P, "test_right": F, "test_fast": N}
SOLUTION = {"test_traces": P, "test_right": P, "test_fast": N}


@pytest.mark.parametrize(
    ("skeleton", "solution", "says"),
    [
        (SKELETON | {"test_right": P}, SOLUTION, "already passes 'Right'"),
        (SKELETON, SOLUTION | {"test_fast": F}, "doesn't get all points of 'Fast'"),
        (SKELETON, dict.fromkeys(SOLUTION, N), "nothing of the solution"),
        (SKELETON, {"test_traces": P}, "ran other tests than its table of points has"),
    ],
)
def test_skeleton_and_solution_are_judged(project, skeleton, solution, says):
    (message,) = check(project, judge=judged_as(skeleton, solution))
    assert says in message


def test_unusable_solution_is_a_finding(project):
    def fake(notebook, lab_id, **_options):
        raise Unusable(Finding("it loops"))

    assert check(project, judge=fake) == [
        f"the skeleton of {LAB} can't be judged: it loops",
        f"the solution of {LAB} can't be judged: it loops",
    ]


# What an author can get wrong


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"grade_id": "fast"', '"grade_id": "quick"', "no test gives points for the grade cell 'quick'"),
        ('"grade_id": "fast"', '"grade_id": "right"', "two cells have the grade_id 'right'"),
        ('"grade_id": "fast"', '"grade_id": "fast", "points": 5', "points are written in the script"),
        ('"schema_version": 3, "grade_id": "fast"', '"grade_id": "fast"', "lacks schema_version"),
        ("lines=2 ", "lines=5 ", "lines=5, but the solution has 2 lines"),
        ("lines=2 ", "", "needs lines=NUMBER"),
        ("lines=2 ", "lines=2 points=3 ", "has no option 'points'"),
        ("### END SOLUTION", "### END SOLUTON", "the region has no end mark"),
        ("### END SOLUTION", "# END SOLUTION", "looks like a mark but is none"),
        ("### END SOLUTION", "### END HIDDEN TESTS", "an end mark without its begin mark"),
        ("        ### BEGIN", "    ### BEGIN", "must be indented like the code below"),
        ("    return N", "    return (N", "no valid Python"),
        ("### BEGIN HIDDEN TESTS", "### BEGIN SOLUTION lines=1 hint='x'", "an end mark without its begin mark"),
    ],
)
def test_mistakes_in_a_script_are_named(tmp_path, old, new, says):
    assert old in SCRIPT
    report = make(tmp_path, SCRIPT.replace(old, new))
    assert any(says in finding.message for finding in report.findings), report.findings
    assert not (tmp_path / "labs").exists()


def test_a_test_for_a_cell_that_is_not_there(tmp_path):
    report = make(tmp_path, point_table=lambda _lab: (*ROWS, Row("test_more", "More", "more", 3)))
    assert report.findings[0].message == (
        f"the test 'test_more' gives points for the cell 'more', which {LAB}.py doesn't have"
    )


def test_one_line_gap_and_indentation():
    source = 'def f():\n    ### BEGIN SOLUTION lines=1 hint="h"\n    return 1\n    ### END SOLUTION'
    assert gaps.skeleton(source) == "def f():\n    # YOUR CODE HERE (about 1 line)\n    # Hint: h\n    pass"

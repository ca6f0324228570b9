"""The tour: solutions run section by section, and what fails costs only itself."""

import re

import pytest
import tilelang.language as T
from cells import ROOT
from rich.console import Console
from typer.testing import CliRunner

from grader import catalog
from grader.cli import touring
from grader.cli.app import app
from grader.report import cheatsheet
from grader.report.tour import render
from grader.verdict import MIME, Check, Finding, Outcome, Verdict, to_json
from grader.verdict.tour import Ending, Section, Tour, TouredLab, from_json
from grader.verdict.tour import to_json as tour_to_json

RIGHT = Verdict("lab", "simulator", (Check("right", "Right", "cell", Outcome.PASSED, 5, 5),))
WRONG = Verdict(
    "lab", "simulator", (Check("right", "Right", "cell", Outcome.FAILED, 0, 5, (Finding("C is 0."),)),)
)
WAITING = Verdict("lab", "simulator", (Check("fast", "Fast", "cell", Outcome.NOT_ASSESSED, 0, 5),))
RAN = (Section("Beginning", Ending.RAN, 1.0),)

SHOW = f"""
from IPython.display import display
display({{"text/plain": "…", {MIME!r}: {to_json(RIGHT)!r}}}, raw=True)
"""

SCRIPT = """
# %% [markdown]
# # First

# %%
x = 1

# %% [markdown]
# ## Second
# text
# ## no heading of a section's own

# %%
raise ValueError("on purpose")

# %%
y = 1

# %% [markdown]
# ## Third

# %%
{show}
"""


@pytest.fixture
def labs(tmp_path, monkeypatch):
    """Two labs: one with a section that fails, one that has no solution."""
    (tmp_path / "solutions").mkdir()
    script = SCRIPT.strip().format(show=SHOW.strip())
    (tmp_path / "solutions" / f"{catalog.LABS[0].id}.py").write_text(script)
    monkeypatch.setattr(touring, "ROOT", tmp_path)
    monkeypatch.setattr(catalog, "LABS", catalog.LABS[:2])
    return tmp_path


def test_what_fails_costs_only_itself(labs):
    done = CliRunner().invoke(app, ["tour", "--json"])
    found = from_json(done.stdout)
    assert done.exit_code == 1
    first, second = found.labs
    assert [(one.title, one.ending) for one in first.sections] == [
        ("First", Ending.RAN),
        ("Second", Ending.FAILED),
        ("Third", Ending.RAN),
    ]
    assert first.sections[1].why == "ValueError: on purpose"
    assert first.verdicts == (RIGHT,)
    assert not first.passed
    assert "on purpose" in first.why
    assert "no solution" in second.why
    (labs / "solutions" / f"{catalog.LABS[0].id}.py").write_text(
        SHOW.join(["# %% [markdown]\n# # A\n\n# %%\n", ""])
    )
    done = CliRunner().invoke(app, ["tour", "--json", "--only", catalog.LABS[0].id])
    assert done.exit_code == 0
    assert from_json(done.stdout).passed == 1


def test_an_endless_cell_ends_its_lab(labs, monkeypatch):
    monkeypatch.setattr("grader.classroom.tour.CELL_SECONDS", 3)
    script = labs / "solutions" / f"{catalog.LABS[0].id}.py"
    script.write_text(script.read_text().replace('raise ValueError("on purpose")', "while True:\n    pass"))
    done = CliRunner().invoke(app, ["tour", "--json", "--only", catalog.LABS[0].id])
    assert done.exit_code == 1
    (lab,) = from_json(done.stdout).labs
    assert [section.ending for section in lab.sections] == [Ending.RAN, Ending.FAILED, Ending.NOT_RUN]
    assert lab.sections[1].why == "a cell did not end within 3 s"


@pytest.mark.parametrize(
    ("lab", "passed", "why"),
    [
        (TouredLab("lab", "Lab", RAN, (RIGHT, WAITING)), True, ""),
        (TouredLab("lab", "Lab", RAN, (RIGHT, WRONG)), False, "C is 0."),
        (TouredLab("lab", "Lab", RAN, ()), False, "nothing was judged"),
        (TouredLab("lab", "Lab", RAN, (WAITING,)), False, "nothing was judged"),
        (TouredLab("lab", "Lab", (), (RIGHT,)), False, "nothing was judged"),
        (TouredLab("lab", "Lab", RAN, (RIGHT,), trouble="the kernel ended"), False, "the kernel ended"),
    ],
)
def test_a_lab_passes_by_what_was_judged_and_never_by_absence(lab, passed, why):
    assert lab.passed is passed
    assert lab.why == why


def test_an_interrupted_tour_keeps_what_was_done(monkeypatch):
    def interrupted(_root, _labs, _say):
        yield TouredLab("lab01", "Lab", RAN, (RIGHT,), 3.0)
        raise KeyboardInterrupt

    monkeypatch.setattr("grader.classroom.tour.tour", interrupted)
    monkeypatch.setattr(catalog, "LABS", catalog.LABS[:2])
    done = CliRunner().invoke(app, ["tour"])
    assert done.exit_code == 130
    assert "lab01" in done.stdout
    assert "Interrupted: 1 were not run." in done.stdout.replace("\n", " ")


def test_a_tour_goes_through_json_and_names_each_lab_in_its_table():
    tour = Tour((TouredLab("lab01", "Lab", RAN, (RIGHT,)), TouredLab("lab02", "Lab", RAN, (WRONG,))))
    assert from_json(tour_to_json(tour)) == tour
    console = Console(width=100, record=True, file=None)
    with console.capture() as shown:
        console.print(render(tour, 2))
    assert "1 of 2 labs passed." in shown.get()
    assert re.search(r"lab02 .*failed.* 0/5 .*C is 0\.", shown.get())


# The cheat sheet


def names(text: str) -> set[str]:
    return set(re.findall(r"\bT\.([A-Za-z_]\w*)", text))


def test_every_call_on_the_cheat_sheet_exists():
    for section in cheatsheet.sections():
        for call in section.calls:
            for name in names(call.form):
                assert hasattr(T, name), call.form


def test_what_the_solutions_use_is_on_the_cheat_sheet():
    listed = {name for section in cheatsheet.sections() for call in section.calls for name in names(call.form)}
    for script in sorted((ROOT / "solutions").glob("*.py")):
        code = [line for line in script.read_text().splitlines() if not line.lstrip().startswith("#")]
        assert names("\n".join(code)) <= listed, script.name


def test_the_cheat_sheet_is_a_page_by_itself(tmp_path):
    path = tmp_path / "sheet.html"
    assert CliRunner().invoke(app, ["cheatsheet", "--html", str(path)]).exit_code == 0
    page = path.read_text()
    assert "http" not in page
    assert "<script" not in page
    for section in cheatsheet.sections():
        assert section.title in page

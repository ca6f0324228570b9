"""Makes ``labs/`` from ``solutions/`` with nbgrader's own generate step; the same input gives the same
bytes."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import nbformat
from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment
from traitlets.config import Config

from grader.catalog import LABS, Lab
from grader.classroom import pipeline
from grader.classroom.script import ScriptError, read_script
from grader.classroom.settings import GENERATE_STEPS, configure
from grader.messages import _
from grader.verdict import Finding, Verdict

if TYPE_CHECKING:
    from grader.autograders import PointRow

PointTable = Callable[[str], Sequence["PointRow"]]


class Judge(Protocol):
    """``grader.autograders.judge_notebook``: Unusable if the notebook can't be judged at all."""

    def __call__(
        self, notebook: Path, lab_id: str, *, device: str = "auto", official_run: bool = False
    ) -> Verdict: ...


@dataclass(frozen=True)
class MadeLab:
    """A lab in both forms. ``skeleton`` is the text of the file that students get."""

    id: str
    script: Path
    solution: NotebookNode
    skeleton: str


@dataclass(frozen=True)
class Report:
    """``labs`` were made (and, in a check, compared); ``written`` are the files that changed."""

    labs: tuple[str, ...]
    written: tuple[Path, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


def build(
    root: Path,
    *,
    check: bool = False,
    labs: Sequence[Lab] = LABS,
    point_table: PointTable | None = None,
    judge: Judge | None = None,
    language: str = "en",
) -> Report:
    """Write ``root/labs`` from ``root/solutions``; with ``check``, write nothing and find what is wrong.

    Nothing is written while any script has a mistake. Stray files are only reported, by the check: they may
    be somebody's work. ``point_table`` and ``judge`` default to the real ones.
    """
    made, findings = make_labs(root, labs, point_table, language)
    ids = tuple(lab.id for lab in made)
    if check:
        from grader.classroom.verify import verify

        return Report(ids, (), (*findings, *verify(root, made, point_table, judge)))
    if findings:
        return Report(ids, (), tuple(findings))
    written = tuple(path for lab in made if write_if_changed(path := lab_file(root, lab.id), lab.skeleton))
    return Report(ids, written, ())


def lab_file(root: Path, lab_id: str) -> Path:
    return root / "labs" / lab_id / f"{lab_id}.ipynb"


def make_labs(
    root: Path, labs: Sequence[Lab], point_table: PointTable | None, language: str
) -> tuple[list[MadeLab], list[Finding]]:
    """The labs that can be made, and why others can't: catalogue and ``solutions/`` must hold the same."""
    point_table = point_table or _real_point_table()
    scripts = {path.stem: path for path in sorted((root / "solutions").glob("*.py"))}
    findings = [
        Finding(
            _("solutions/{script} belongs to no lab of the catalogue").format(script=scripts[name].name),
            _("Add the lab to grader/catalog/labs.py, or delete or rename the script."),
        )
        for name in scripts.keys() - {lab.id for lab in labs}
    ]
    made: list[MadeLab] = []
    for lab in labs:
        if lab.id not in scripts:
            findings.append(
                Finding(
                    _("the catalogue's lab '{lab}' has no solution script").format(lab=lab.id),
                    _("Write solutions/{lab}.py.").format(lab=lab.id),
                )
            )
            continue
        try:
            solution = read_script(scripts[lab.id], lab.id, point_table(lab.id), language)
        except ScriptError as error:
            findings += error.findings
        else:
            made.append(MadeLab(lab.id, scripts[lab.id], solution, generate(lab.id, solution, language)))
    if not made:
        findings.append(
            Finding(
                _("no lab was found to make or compare in {folder}").format(folder="solutions/"),
                _("Run the command in the project's folder."),
            )
        )
    return made, findings


def generate(lab_id: str, solution: NotebookNode, language: str = "en") -> str:
    """The student's notebook, made by nbgrader's generate_assignment in a throw-away course folder.

    The configuration is the course's, so a course's ``release/`` holds the same bytes; only the gradebook is left
    out, which takes a second to make and has no part in the text.
    """
    with tempfile.TemporaryDirectory(prefix="tilelab-build-") as folder:
        course = Path(folder).resolve()
        source = course / "source" / lab_id / f"{lab_id}.ipynb"
        source.parent.mkdir(parents=True)
        source.write_text(notebook_text(solution))
        config = configure(Config(), course, language)
        config.GenerateAssignment.no_database = True
        config.GenerateAssignment.preprocessors = [step for step in GENERATE_STEPS if "SaveCells" not in step]
        result = pipeline.run(GenerateAssignment, config, lab_id)
        if not result.ok:
            raise RuntimeError(f"nbgrader could not generate {lab_id}:\n{result.log}")
        return (course / "release" / lab_id / f"{lab_id}.ipynb").read_text()


def notebook_text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def write_if_changed(path: Path, text: str) -> bool:
    """True if the file was written: unchanged files keep their time."""
    if path.is_file() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True


def _real_point_table() -> PointTable:
    from grader.autograders import point_table

    return point_table

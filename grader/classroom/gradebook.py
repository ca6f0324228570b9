"""The only place that writes points: from a judgement to nbgrader's gradebook, in one transaction a student.

About ``manual_score``: a score that a teacher gave in Formgrader is kept, and wins as it always does in
nbgrader. It can be kept because no student code ever runs where the gradebook can be reached, so nobody else
can have written it. A cell that has one is put on Formgrader's list ("needs manual grade") at each run, as
stock nbgrader does: the teacher then sees the new automatic points beside the old decision.
"""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import is_grade, is_solution
from pydantic import TypeAdapter

from grader import verdict as verdicts
from grader.classroom.explain import as_markdown, explain_checks, explain_unusable
from grader.classroom.written import is_untouched, is_written
from grader.messages import _
from grader.verdict import Check, Finding, Verdict


class StaleGradebook(RuntimeError):
    """Gradebook and judge don't speak of the same cells or points. Nothing is written then."""


@dataclass(frozen=True)
class Judgement:
    """What came of judging one student's lab: a verdict, or why there can be none."""

    student: str
    lab: str
    verdict: Verdict | None = None
    unusable: Finding | None = None

    def checks_of(self, cell: str) -> tuple[Check, ...]:
        return tuple(check for check in self.verdict.checks if check.cell == cell) if self.verdict else ()

    def explain(self, cell: str) -> str:
        """What the student may read about a grade cell."""
        if self.unusable:
            return explain_unusable(self.unusable)
        return explain_checks(self.checks_of(cell), self.verdict.seed if self.verdict else None)


def write_scores(
    coursedir: CourseDirectory, judgement: Judgement, release: NotebookNode, notes: Mapping[str, str] | None = None
) -> None:
    """Points to the grade cells, words to the comments.

    ``release`` is the lab with what the student filled in: an answer in words waits for the teacher if there is
    one. Waiting points leave the cell on Formgrader's list with the points earned so far. nbgrader has comments on
    solution cells only: a check's words go to the last one above its test cell. ``notes`` maps solution cells
    to what else is to be said there. StaleGradebook if cells or maximum points differ; nothing is written
    then.
    """
    student, lab = judgement.student, judgement.lab
    with Gradebook(coursedir.db_url, coursedir.course_id) as gb:
        cells = {cell.name: cell.max_score for cell in _grade_cells(gb, lab)}
        _must_agree(lab, cells, judgement.verdict)
        # Answers in words wait for the teacher also where the code can't be judged; empty ones don't.
        written = [cell for cell in release.cells if is_written(cell) and not is_untouched(cell)]
        answered = {cell.metadata.nbgrader.grade_id for cell in written}
        gb.update_or_create_student(student)
        gb.update_or_create_submission(lab, student)
        for cell in cells:
            checks = judgement.checks_of(cell)
            grade = gb.find_grade(cell, lab, lab, student)
            grade.auto_score = sum(check.points for check in checks)
            waits = any(check.waiting and not check.manual for check in checks) or cell in answered
            grade.needs_manual_grade = waits or grade.manual_score is not None
        for cell, words in _comments(judgement, release, notes or {}).items():
            gb.find_comment(cell, lab, lab, student).auto_comment = words
        gb.db.commit()


def keep(coursedir: CourseDirectory, judgement: Judgement) -> Path:
    """Keep the judgement for the instructor's eyes (it has the seed): ``verdicts/<student>/<lab>.json``, or
    ``<lab>.unusable.json`` with the finding."""
    folder = Path(coursedir.root) / "verdicts" / judgement.student
    folder.mkdir(parents=True, exist_ok=True)
    folder.parent.chmod(0o700)
    usable, unusable = folder / f"{judgement.lab}.json", folder / f"{judgement.lab}.unusable.json"
    if judgement.verdict:
        path, stale, text = usable, unusable, verdicts.to_json(judgement.verdict)
    else:
        path, stale = unusable, usable
        text = TypeAdapter(Finding).dump_json(judgement.unusable, indent=2).decode()
    stale.unlink(missing_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(text + "\n")
    os.replace(fresh, path)
    return path


def kept(coursedir: CourseDirectory, student: str, lab: str) -> Judgement | None:
    """What ``keep`` kept last."""
    folder = Path(coursedir.root) / "verdicts" / student
    if (path := folder / f"{lab}.json").is_file():
        return Judgement(student, lab, verdict=verdicts.read(path))
    if (path := folder / f"{lab}.unusable.json").is_file():
        return Judgement(student, lab, unusable=TypeAdapter(Finding).validate_json(path.read_bytes()))
    return None


def _grade_cells(gb: Gradebook, lab: str) -> list:
    try:
        return list(gb.find_notebook(lab, lab).grade_cells)
    except MissingEntry as error:
        raise StaleGradebook(
            _("The gradebook doesn't know {lab}. Run 'nbgrader generate_assignment {lab}' first.").format(lab=lab)
        ) from error


def _must_agree(lab: str, cells: Mapping[str, float], verdict: Verdict | None) -> None:
    if verdict is None:
        return
    if not verdict.checks:
        raise StaleGradebook(_("The judge ran no test for {lab}.").format(lab=lab))
    most: dict[str, float] = defaultdict(float)
    for check in verdict.checks:
        most[check.cell] += check.max_points
        if not 0 <= check.points <= check.max_points:
            raise StaleGradebook(
                _("The judge gave {points} of {most} points for '{check}'.").format(
                    points=check.points, most=check.max_points, check=check.name
                )
            )
    differing = sorted(
        cell for cell in most.keys() | cells.keys() if abs(most.get(cell, -1) - cells.get(cell, -1)) > 1e-6
    )
    if differing:
        raise StaleGradebook(
            _(
                "The gradebook's points for {lab} are not the tests' (cells: {cells}). Refresh the course "
                "folder with 'tilelab course', then run 'nbgrader generate_assignment --force {lab}'."
            ).format(lab=lab, cells=", ".join(differing))
        )


def _comments(judgement: Judgement, release: NotebookNode, notes: Mapping[str, str]) -> dict[str, str | None]:
    words: dict[str, list[str]] = {}
    answer = None
    for cell in release.cells:
        if is_solution(cell):
            answer = cell.metadata.nbgrader.grade_id
            words[answer] = [notes[answer]] if answer in notes else []
        elif is_grade(cell) and answer:
            words[answer].append(judgement.explain(cell.metadata.nbgrader.grade_id))
    return {cell: as_markdown("\n".join(dict.fromkeys(lines))) or None for cell, lines in words.items()}

"""Grades what students handed in, by nbgrader's own autograde and configuration, and says what came of it."""

import glob
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import is_grade
from traitlets.config import Config, PyFileConfigLoader

from grader.classroom import pipeline
from grader.classroom.autograde import write_unusable
from grader.classroom.course import source_notebook
from grader.classroom.gradebook import Judgement, kept
from grader.classroom.submission import nbgrader_can_take, submitted_notebook
from grader.gpu import unfit
from grader.messages import _
from grader.verdict import Finding, Unusable, Verdict


@dataclass(frozen=True)
class StudentResult:
    """One student's lab after grading. Exactly one of ``verdict``, ``unusable`` and ``error`` is there.

    ``unusable``: the submission can't be judged and has zero points. ``error``: grading itself failed, which
    is not the student's fault; points are as before. ``score`` is what the gradebook says, a teacher's manual
    points included.
    """

    student: str
    lab: str
    score: float
    max_score: float
    needs_manual_grade: bool
    verdict: Verdict | None = None
    unusable: Finding | None = None
    error: str | None = None


def load_config(course: Path, device: str | None = None) -> Config:
    """The course folder's own ``nbgrader_config.py``. Unusable if ``course`` isn't a course folder."""
    if not (course / "nbgrader_config.py").is_file():
        raise Unusable(
            Finding(
                _("{folder} is not a course folder: it has no nbgrader_config.py.").format(folder=course),
                _("Make one with 'tilelab course', or name yours: --course FOLDER (--course . inside it)."),
            )
        )
    config = PyFileConfigLoader("nbgrader_config.py", path=str(course)).load_config()
    if device:
        config.JudgeScores.device = device
    return config


def grade(course: Path, lab_id: str, student: str | None = None, device: str | None = None) -> list[StudentResult]:
    """Grade everybody's (or one student's) ``submitted/<student>/<lab>/``, again if it was graded before.

    ``device`` is auto, sim or gpu; None leaves it to the configuration and TILELAB_DEVICE. A bad submission
    never stops the others. Unusable if there is nothing to grade or the course folder isn't ready.
    """
    if device == "gpu":  # nbgrader would first delete what it is about to make anew
        without = _("Without --device gpu, points for speed wait.")
        unfit.needed(_("There is no GPU here that could judge."), without)
    course = course.resolve()
    config = load_config(course, device)
    coursedir = CourseDirectory(config=config)
    submissions = Path(coursedir.root, coursedir.submitted_directory)
    pattern = glob.escape(student) if student else "*"
    students = sorted(path.parent.name for path in submissions.glob(f"{pattern}/{lab_id}"))
    if not students:
        raise Unusable(
            Finding(
                _("No submissions of {lab} were found.").format(lab=lab_id),
                _("Put them in {place}.").format(
                    place=f"{coursedir.submitted_directory}/{student or _('<student>')}/{lab_id}/{lab_id}.ipynb"
                ),
            )
        )
    prepare(course, config, lab_id)
    return [_grade_one(coursedir, config, lab_id, name) for name in students]


def prepare(course: Path, config: Config, lab_id: str) -> None:
    """Run generate_assignment if the gradebook or ``release/`` doesn't have the lab as its source has it."""
    source = source_notebook(course, lab_id)
    if not source.is_file():
        raise Unusable(
            Finding(
                _("The course folder has no source/{lab}/{lab}.ipynb.").format(lab=lab_id),
                _("Run 'tilelab course', and look at the lab's name."),
            )
        )
    cells = nbformat.reads(source.read_text(), as_version=4).cells
    wanted = {c.metadata.nbgrader.grade_id: float(c.metadata.nbgrader.points) for c in cells if is_grade(c)}
    coursedir = CourseDirectory(config=config)
    release = Path(coursedir.format_path(coursedir.release_directory, ".", lab_id), f"{lab_id}.ipynb")
    if release.is_file() and _known_points(coursedir, lab_id) == wanted:
        return
    result = pipeline.run(GenerateAssignment, config, lab_id)
    if not result.ok:
        raise Unusable(
            Finding(
                _("nbgrader could not generate {lab} from its source.").format(lab=lab_id),
                _(
                    "If cells were added or removed after students handed in, the gradebook can't follow: "
                    "remove the assignment from it ('nbgrader db assignment remove {lab}') and grade again."
                ).format(lab=lab_id),
                evidence=tuple(result.log.splitlines()),
            )
        )


def _known_points(coursedir: CourseDirectory, lab_id: str) -> dict[str, float] | None:
    with Gradebook(coursedir.db_url, coursedir.course_id) as gb:
        try:
            return {cell.name: cell.max_score for cell in gb.find_notebook(lab_id, lab_id).grade_cells}
        except MissingEntry:
            return None


def _grade_one(coursedir: CourseDirectory, config: Config, lab_id: str, student: str) -> StudentResult:
    judgement, error = None, None
    if nbgrader_can_take(coursedir, student, lab_id):
        run = pipeline.run(Autograde, config, lab_id, glob.escape(student))
        judgement = kept(coursedir, student, lab_id) if run.ok else None
        error = None if judgement else run.log or _("nbgrader did not say why")
    else:
        try:
            submitted_notebook(coursedir, student, lab_id)
        except Unusable as unusable:
            judgement = Judgement(student, lab_id, unusable=unusable.finding)
            write_unusable(coursedir, judgement)
        else:
            error = _("the submission changed while it was looked at; grade it again")
    with Gradebook(coursedir.db_url, coursedir.course_id) as gb:
        try:
            submission = gb.find_submission(lab_id, student)
            score, most, manual = submission.score, submission.max_score, submission.needs_manual_grade
        except MissingEntry:
            score, most, manual = 0.0, gb.find_assignment(lab_id).max_score, True
    return StudentResult(
        student,
        lab_id,
        score,
        most,
        manual,
        judgement.verdict if judgement else None,
        judgement.unusable if judgement else None,
        error,
    )

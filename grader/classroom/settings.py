"""The one nbgrader configuration: in the container and outside, on the command line and in Formgrader.

A course's ``nbgrader_config.py`` and the image's ``docker/nbgrader_config.py`` only call ``configure``. What
matters in it: no list of steps has one that executes a notebook, and points are written by ``JudgeScores``
alone.
"""

import os
import sysconfig
import warnings
from pathlib import Path

from traitlets.config import Config

COURSE_ID = "tilelang"

# Strings, not classes: what a step imports is loaded when the step runs, not whenever nbgrader starts.
GENERATE_STEPS = [
    "nbgrader.preprocessors.LockCells",
    "grader.classroom.gaps.ClearGaps",  # in ClearSolutions' place
    "grader.classroom.written.ClearAnswers",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.CheckCellMetadata",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.SaveCells",
    "nbgrader.preprocessors.ClearHiddenTests",  # after SaveCells: the gradebook keeps the instructor's cells
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.CheckCellMetadata",
]
# The stock sanitize steps repair the student's notebook, which aborts the run on a duplicated grade_id; ours
# starts from the release and takes only the answers.
SANITIZE_STEPS = ["grader.classroom.autograde.StartFromRelease"]
# No Execute: student code never runs in a kernel here. JudgeScores stands in SaveAutoGrades' place.
AUTOGRADE_STEPS = [
    "grader.classroom.autograde.JudgeScores",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
# The stock list. It may stay: the autograded copy starts from the release, so it holds no hidden test, no
# output of the student's and no file but the notebook.
FEEDBACK_STEPS = ["nbgrader.preprocessors.GetGrades", "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor"]


def configure(config: Config, root: Path, language: str = "en") -> Config:
    """Set up nbgrader for the course folder ``root``; ``config`` is what ``get_config()`` gave.

    TILELAB_EXCHANGE names the folder through which assignments are released and collected (default:
    ``exchange`` in the course folder), TILELAB_DEVICE where kernels are judged (auto, sim or gpu).
    """
    _find_alembic()
    # SQLAlchemy 2 warns of how nbgrader 0.9.6 makes a submission's rows; they are written all the same (tested).
    warnings.filterwarnings("ignore", message="Object of type <Submitted", module="nbgrader")
    root = root.resolve()
    config.CourseDirectory.course_id = COURSE_ID
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback"]
    config.Exchange.root = os.environ.get("TILELAB_EXCHANGE") or str(root / "exchange")
    config.Exchange.path_includes_course = True

    config.GenerateAssignment.preprocessors = GENERATE_STEPS
    config.ClearGaps.lab_language = language
    config.ClearAnswers.lab_language = language

    config.Autograde.exporter_class = "grader.classroom.autograde.SubmissionExporter"
    config.Autograde.pre_convert_hook = "grader.classroom.submission.set_aside"
    config.Autograde.sanitize_preprocessors = SANITIZE_STEPS
    config.Autograde.autograde_preprocessors = AUTOGRADE_STEPS

    config.GenerateFeedback.preprocessors = FEEDBACK_STEPS
    return config


def _find_alembic() -> None:
    """nbgrader calls ``alembic`` by its name when it makes a gradebook; outside an activated environment the shell
    wouldn't find it."""
    scripts = sysconfig.get_path("scripts")
    path = os.environ.get("PATH", os.defpath)
    if scripts not in path.split(os.pathsep):
        os.environ["PATH"] = scripts + os.pathsep + path

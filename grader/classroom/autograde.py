"""The steps in nbgrader's autograde: start from the release, judge, write.

nbgrader's own pipeline runs the student's notebook in a kernel and reads points off its outputs. Here the
file that was submitted goes to the judge, which traces its kernels in a sandbox, and the copy that teachers
and students see is put together from the release and the answers' text.
"""

import os
import shutil
import textwrap
from pathlib import Path

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import find_all_files, is_grade, is_solution
from traitlets import Unicode, default
from traitlets.utils.importstring import import_item

from grader import catalog
from grader.classroom.gradebook import Judgement, keep, write_scores
from grader.classroom.submission import StudentCell, student_cells, submitted_notebook
from grader.classroom.written import harmless, is_untouched
from grader.messages import _
from grader.report.text import describe
from grader.verdict import Unavailable, Unusable

MOST_SHOWN = 200_000  # characters of student code in the copy for teachers


class SubmissionExporter(NotebookExporter):
    """Doesn't open what was submitted: StartFromRelease reads it, with care.

    The stock exporter would follow a link, wait for a pipe, and fail on a file that is no notebook before any
    step could give it its zero.
    """

    def from_filename(self, filename, resources=None, **kw):
        coursedir = self.parent.coursedir
        if Path(coursedir.root, coursedir.submitted_directory) not in Path(filename).parents:
            return super().from_filename(filename, resources, **kw)
        resources["metadata"] = {"name": Path(filename).stem}
        return self.from_notebook_node(new_notebook(), resources, **kw)


class _Step(NbGraderPreprocessor):
    @property
    def coursedir(self) -> CourseDirectory:
        return self.parent.parent.coursedir  # a step's parent is the exporter, whose parent is the converter


class StartFromRelease(_Step):
    """The sanitized copy: the release's cells with the student's answers in the gaps' cells.

    Duplicated, deleted, renamed or re-flagged cells can't do harm then: only the source of a solution cell is
    taken, by its grade_id. Other code cells of the student's are shown at the end, since the judge has seen
    them too. Outputs and metadata of the submission are dropped, and so is every file but the notebook.
    """

    def preprocess(self, nb, resources):
        student, lab = resources["nbgrader"]["student"], resources["nbgrader"]["assignment"]
        release = read_release(self.coursedir, lab)
        self._drop_other_files(student, lab)
        try:
            cells = student_cells(submitted_notebook(self.coursedir, student, lab))
        except (Unusable, ValueError) as error:
            self.log.warning("%s/%s can't be shown: %s", student, lab, error)
            note_that_unshown(release)
        else:
            take_answers(release, cells)
        return release, resources

    def _drop_other_files(self, student: str, lab: str) -> None:
        """Removes nbgrader's copies of files beside the notebook: nothing that is graded reads them."""
        copy = Path(self.coursedir.format_path(self.coursedir.autograded_directory, student, lab))
        source = Path(self.coursedir.format_path(self.coursedir.source_directory, ".", lab))
        ours = {Path(file).relative_to(source) for file in find_all_files(str(source), self.coursedir.ignore)}
        for file in sorted(copy.rglob("*")):
            name = file.relative_to(copy)
            if (file.is_symlink() or not file.is_dir()) and name not in ours and str(name) != "timestamp.txt":
                self.log.warning("%s/%s: %s is not part of the lab and is left out", student, lab, name)
                file.unlink()


class JudgeScores(_Step):
    """In SaveAutoGrades' place: judges the submitted file and writes the points.

    A submission that can't be judged gets zero points, with the reason. An error of ours (NotReady,
    StaleGradebook, a bug) goes up to nbgrader, which reports it, leaves the student's points as they were, and
    goes on with the next.
    """

    device = Unicode(help="Where kernels are judged: auto, sim or gpu (default: TILELAB_DEVICE, else auto).").tag(
        config=True
    )
    judge = Unicode("grader.autograders.judge_notebook", help="The judge's dotted name.").tag(config=True)

    @default("device")
    def _device(self) -> str:
        return os.environ.get("TILELAB_DEVICE") or "auto"

    def preprocess(self, nb, resources):
        student, lab = resources["nbgrader"]["student"], resources["nbgrader"]["assignment"]
        _must_be_known(lab)
        try:
            path = submitted_notebook(self.coursedir, student, lab)
            verdict = import_item(self.judge)(path, lab, device=self.device, official_run=True)
            judgement = Judgement(student, lab, verdict=verdict)
        except Unavailable as missing:
            raise NotReady(describe(missing.finding)) from missing
        except Unusable as unusable:
            self.log.warning("%s/%s can't be judged: %s", student, lab, unusable)
            judgement = Judgement(student, lab, unusable=unusable.finding)
        notes = untouched(nb) if judgement.verdict else {}
        write_scores(self.coursedir, judgement, nb, notes)
        keep(self.coursedir, judgement)
        show(nb, judgement)
        return nb, resources


class NotReady(RuntimeError):
    """This machine or course can't judge the lab. Not a student's fault: better no points than zeros for all."""


def _must_be_known(lab: str) -> None:
    try:
        catalog.find(lab)
    except KeyError as unknown:
        raise NotReady(unknown.args[0]) from unknown


def read_release(coursedir: CourseDirectory, lab: str) -> NotebookNode:
    """The lab as students got it. FileNotFoundError, with what to do, if it was never generated."""
    path = Path(coursedir.format_path(coursedir.release_directory, ".", lab), f"{lab}.ipynb")
    if not path.is_file():
        raise FileNotFoundError(
            _("release/{lab}/{lab}.ipynb is missing. Run 'nbgrader generate_assignment {lab}'.").format(lab=lab)
        )
    return nbformat.reads(path.read_text(), as_version=4)


def write_unusable(coursedir: CourseDirectory, judgement: Judgement) -> None:
    """All that the steps do, for a submission that nbgrader wouldn't take: zero points, words, an empty copy."""
    release = read_release(coursedir, judgement.lab)
    write_scores(coursedir, judgement, release)
    keep(coursedir, judgement)
    note_that_unshown(release)
    show(release, judgement)
    copy = Path(coursedir.format_path(coursedir.autograded_directory, judgement.student, judgement.lab))
    if copy.exists():
        shutil.rmtree(copy)
    copy.mkdir(parents=True)
    (copy / f"{judgement.lab}.ipynb").write_text(nbformat.writes(release))


def show(copy: NotebookNode, judgement: Judgement) -> None:
    """The judge's words as the test cells' outputs, where teacher and student look for them."""
    for cell in copy.cells:
        if is_grade(cell) and cell.cell_type == "code":
            words = judgement.explain(cell.metadata.nbgrader.grade_id)
            cell.outputs = [new_output("stream", name="stdout", text=_wrapped(words) + "\n")]


def _wrapped(text: str) -> str:
    """Lines short enough for the feedback page, which cuts off what is longer."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += textwrap.wrap(line, 88, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def note_that_unshown(copy: NotebookNode) -> None:
    note = _("The submitted notebook can't be shown here. Its empty form follows.")
    copy.cells.insert(0, new_markdown_cell(note, id="tilelab-note"))


def take_answers(release: NotebookNode, cells: list[StudentCell]) -> None:
    """Put the answers into ``release``. Of several cells with one grade_id the last counts, as in Jupyter."""
    answers = {cell.metadata.nbgrader.grade_id: cell for cell in release.cells if is_solution(cell)}
    given = {cell.source for cell in release.cells if not is_solution(cell)}
    last = {
        cell.grade_id: number
        for number, cell in enumerate(cells)
        if cell.grade_id in answers and cell.code == (answers[cell.grade_id].cell_type == "code")
    }
    room = MOST_SHOWN
    others: list[str] = []
    for number, cell in enumerate(cells):
        source = cell.source
        if len(source) > room:
            source = source[:room] + "\n# " + _("... cut: too long to show.")
        if last.get(cell.grade_id) == number:
            answers[cell.grade_id].source = source if cell.code else harmless(source)
        elif cell.code and source.strip() and source not in given:
            others.append(source)
        else:
            continue
        room = max(0, room - len(cell.source))
        if not room:
            break
    if others:
        release.cells.append(new_markdown_cell(_("## Other code cells of the submission"), id="tilelab-others"))
        release.cells += (new_code_cell(source, id=f"tilelab-other-{n}") for n, source in enumerate(others))


def untouched(release: NotebookNode) -> dict[str, str]:
    """A note for each solution cell that is as it was released."""
    return {
        cell.metadata.nbgrader.grade_id: _("Nothing was filled in here.")
        for cell in release.cells
        if is_untouched(cell)
    }

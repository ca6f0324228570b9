"""What a student handed in, taken as hostile: no link is followed, no structure is trusted."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc

from grader.messages import _
from grader.verdict import Finding, Unusable

MOST_BYTES = 32 * 2**20
SET_ASIDE = "set-aside"
KINDS = ("code", "markdown")


def _expected(coursedir: CourseDirectory, student: str, lab: str) -> Path:
    return Path(coursedir.format_path(coursedir.submitted_directory, student, lab), f"{lab}.ipynb")


def _in_place(path: Path, root: Path) -> bool:
    """Whether no part of ``path`` below ``root`` is a link."""
    return path.resolve() == root.resolve() / path.relative_to(root)


def nbgrader_can_take(coursedir: CourseDirectory, student: str, lab: str) -> bool:
    """Whether nbgrader finds a notebook of the right name in a folder that is really the submission's: other
    folders it skips, fails on, or copies from where a link leads."""
    path = _expected(coursedir, student, lab)
    return os.path.lexists(path) and _in_place(path.parent, Path(coursedir.root))


@dataclass(frozen=True)
class StudentCell:
    """A cell of a submission; ``grade_id`` is what the student's file claims."""

    grade_id: str | None
    source: str
    code: bool = True


def submitted_notebook(coursedir: CourseDirectory, student: str, lab: str) -> Path:
    """The submission's notebook as a plain file of bearable size. Unusable says what stands there instead.

    A link is refused, not followed: it could name a solution or another student's work.
    """
    path = _expected(coursedir, student, lab)
    if not os.path.lexists(path):
        found = sorted(p.name for p in path.parent.glob("*.ipynb"))
        raise Unusable(
            Finding(
                _("The submission has no notebook {name}.").format(name=path.name),
                _("Rename the notebook to {name} and hand it in again.").format(name=path.name),
                evidence=tuple(found),
            )
        )
    if not _in_place(path, Path(coursedir.root)):
        raise Unusable(
            Finding(
                _("The submission's notebook is a link to another file, and links are not followed."),
                _("Hand in the notebook itself."),
            )
        )
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise Unusable(
            Finding(
                _("The submission's {name} is not a file.").format(name=path.name),
                _("Hand in the notebook itself."),
            )
        )
    if status.st_size > MOST_BYTES:
        raise Unusable(
            Finding(
                _("The submission's notebook has {size} MB; {most} MB are allowed.").format(
                    size=status.st_size // 2**20, most=MOST_BYTES // 2**20
                ),
                _("Clear its outputs (Kernel > Restart Kernel and Clear Outputs) and hand it in again."),
            )
        )
    return path


def student_cells(path: Path) -> list[StudentCell]:
    """The notebook's code cells, and those text cells that have a grade_id. ValueError if it can't be read.

    Only for showing: what is judged is the file itself. Metadata that isn't as it should be reads as none.
    """
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        if data.get("nbformat") != 4:
            data = nbformat.convert(nbformat.from_dict(data), 4)
        cells = data["cells"]
        found = [_cell(cell) for cell in cells if isinstance(cell, dict) and cell.get("cell_type") in KINDS]
        return [cell for cell in found if cell.code or cell.grade_id is not None]
    except Exception as error:  # a hostile file may fail anywhere, in any way (RecursionError, TypeError, ...)
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _cell(cell: dict[str, Any]) -> StudentCell:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    nbgrader = metadata.get("nbgrader") if isinstance(metadata := cell.get("metadata"), dict) else None
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    return StudentCell(
        grade_id if isinstance(grade_id, str) else None,
        source if isinstance(source, str) else "",
        cell.get("cell_type") == "code",
    )


def set_aside(assignment: str, student: str, notebooks: list[str]) -> None:
    """nbgrader's hook before each submission: moves away what nbgrader would stumble over.

    nbgrader copies every file that lies beside a notebook. A link would bring in what it points to, a device
    would never end, and a ``timestamp.txt`` that is no time stops the student's grading. They are kept, in
    ``set-aside/<student>/<lab>`` of the course folder. (Plain files may stay: StartFromRelease drops the
    copies.)
    """
    for folder in {Path(notebook).parent for notebook in notebooks}:
        root = folder.parents[2]
        if not _in_place(folder, root):
            continue  # not the submission's files: they stay where they are
        for parent, _folders, names in os.walk(folder):
            for name in names:
                path = Path(parent) / name
                if path.suffix != ".ipynb" and not _harmless(path):
                    target = root / SET_ASIDE / path.relative_to(root / folder.relative_to(root).parts[0])
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path.rename(target)


def _harmless(path: Path) -> bool:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        return False
    if path.name != "timestamp.txt":
        return status.st_size <= MOST_BYTES
    try:
        return status.st_size < 100 and (not (text := path.read_text().strip()) or parse_utc(text) is not None)
    except Exception:  # dateutil raises much more than ValueError on nonsense
        return False

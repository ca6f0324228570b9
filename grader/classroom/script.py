"""A solution script as a notebook: jupytext's percent format in, checked and normalised cells out.

Whatever an author can get wrong is found here, before nbgrader sees it, and said with file, cell and line.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jupytext
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from nbgrader.nbgraderformat import MetadataValidator

from grader.classroom import gaps, written
from grader.messages import _
from grader.verdict import Finding, Location

if TYPE_CHECKING:
    from grader.autograders import PointRow

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELL_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
LANGUAGE_TAG = "lang-"


class ScriptError(Exception):
    """A solution script can't become a lab. ``findings`` has one entry for each mistake."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(f"{f.where}: {f.message}" if f.where else f.message for f in findings))


def read_script(path: Path, lab_id: str, rows: Sequence["PointRow"], language: str = "en") -> NotebookNode:
    """The lab's notebook with its solutions: the cells of one language, points from ``rows``, stable ids.

    ScriptError lists all that is wrong with the script.
    """
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.cells = [cell for cell in notebook.cells if _language(cell) in (None, language)]
    findings = [*_bad_marks(path, notebook), *_bad_metadata(path, notebook), *_bad_points(path, notebook, rows)]
    if findings:
        raise ScriptError(findings)

    points = Counter()
    for row in rows:
        points[row.cell] += row.max_points
    for number, cell in enumerate(notebook.cells, start=1):
        nbgrader = cell.metadata.get("nbgrader")
        cell.id = nbgrader["grade_id"] if nbgrader else f"{lab_id}-{number:03d}"
        if nbgrader and nbgrader["grade"]:
            total = points[nbgrader["grade_id"]]
            nbgrader["points"] = int(total) if total == int(total) else total
        tags = [tag for tag in cell.metadata.get("tags", []) if not tag.startswith(LANGUAGE_TAG)]
        kept = {"nbgrader": nbgrader, "tags": tags}
        cell.metadata = NotebookNode({key: value for key, value in kept.items() if value})
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata = NotebookNode(kernelspec=NotebookNode(KERNEL), language_info=NotebookNode(name="python"))
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def label(notebook: NotebookNode, number: int) -> str:
    """How a message names a cell: by its grade_id where it has one, else by its position."""
    nbgrader = notebook.cells[number].metadata.get("nbgrader")
    if isinstance(nbgrader, dict) and nbgrader.get("grade_id"):
        return _("cell '{id}'").format(id=nbgrader["grade_id"])
    return _("cell {number}").format(number=number + 1)


def is_role(cell: NotebookNode, role: str) -> bool:
    """Whether nbgrader's metadata gives the cell that role: grade, solution or locked."""
    nbgrader = cell.metadata.get("nbgrader")
    return isinstance(nbgrader, dict) and bool(nbgrader.get(role))


def _language(cell: NotebookNode) -> str | None:
    tags = [tag for tag in cell.metadata.get("tags", []) if tag.startswith(LANGUAGE_TAG)]
    return tags[0].removeprefix(LANGUAGE_TAG) if tags else None


def _at(path: Path, notebook: NotebookNode, number: int, line: int = 1) -> Location:
    return Location(f"{path.name}, {label(notebook, number)}", line)


def _bad_marks(path: Path, notebook: NotebookNode) -> Iterator[Finding]:
    for number, cell in enumerate(notebook.cells):
        try:
            if cell.cell_type != "code":
                _check_text(cell)
                continue
            pieces = gaps.split(cell.source)
            solution = any(isinstance(piece, gaps.Gap) for piece in pieces)
            hidden = any(isinstance(piece, gaps.Hidden) for piece in pieces)
            if solution != is_role(cell, "solution"):
                message = (
                    _("a gap stands in a cell that isn't a solution cell, so nbgrader would not know it")
                    if solution
                    else _("a solution cell without a gap: nothing would be left to the student")
                )
                raise gaps.MarkError(1, message)
            if hidden and not is_role(cell, "grade"):
                raise gaps.MarkError(1, _("hidden tests stand in a cell that isn't a grade cell"))
            if solution:
                _must_parse(gaps.skeleton(cell.source))
        except gaps.MarkError as error:
            yield Finding(
                str(error),
                _("The marks are described at the top of gaps.py and written.py in grader/classroom."),
                _at(path, notebook, number, error.line),
            )


def _check_text(cell: NotebookNode) -> None:
    if is_role(cell, "grade") or is_role(cell, "solution"):
        if not written.is_written(cell):
            raise gaps.MarkError(1, _("a text cell is graded only as an answer in words: grade and solution"))
        written.parse(cell.source)
    elif written.BEGIN.search(cell.source):
        raise gaps.MarkError(1, _("an answer in words stands in a cell that is not graded"))


def _must_parse(source: str) -> None:
    try:
        ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError as error:
        raise gaps.MarkError(
            error.lineno or 1,
            _("with its gaps as stubs the cell is no valid Python: {error}").format(error=error.msg),
        ) from error


def _bad_metadata(path: Path, notebook: NotebookNode) -> Iterator[Finding]:
    seen: set[str] = set()
    answered = False
    for number, cell in enumerate(notebook.cells):
        nbgrader = cell.metadata.get("nbgrader")
        if nbgrader is None:
            continue
        where = _at(path, notebook, number)
        answered |= is_role(cell, "solution")
        grade_id = nbgrader.get("grade_id", "")
        missing = {"grade", "solution", "locked", "schema_version"} - set(nbgrader)
        if not CELL_ID.match(grade_id):
            yield Finding(
                _("'{id}' is no grade_id").format(id=grade_id),
                _("Use letters, digits, '-' and '_', 64 at most."),
                where,
            )
        elif grade_id in seen:
            yield Finding(_("two cells have the grade_id '{id}'").format(id=grade_id), _("Rename one."), where)
        elif missing:
            yield Finding(
                _("nbgrader's metadata lacks {keys}").format(keys=", ".join(sorted(missing))),
                _('Copy the line of another cell: nbgrader={"grade": ..., "schema_version": 3, ...}.'),
                where,
            )
        elif nbgrader["schema_version"] != MetadataValidator.schema_version:
            yield Finding(
                _("schema_version is {found}").format(found=nbgrader["schema_version"]),
                _("Write {known}.").format(known=MetadataValidator.schema_version),
                where,
            )
        elif nbgrader["grade"] and not answered:
            yield Finding(
                _("a grade cell stands before any solution cell, so its comment has no place"),
                _("Put it below the cell whose answer it tests."),
                where,
            )
        seen.add(grade_id)


def _bad_points(path: Path, notebook: NotebookNode, rows: Sequence["PointRow"]) -> Iterator[Finding]:
    graded = {
        cell.metadata["nbgrader"].get("grade_id"): number
        for number, cell in enumerate(notebook.cells)
        if is_role(cell, "grade")
    }
    for grade_id, number in graded.items():
        if "points" in notebook.cells[number].metadata["nbgrader"]:
            yield Finding(
                _("points are written in the script"),
                _("Delete them: the lab's pytest file is the only source of points."),
                _at(path, notebook, number),
            )
        if not any(row.cell == grade_id for row in rows):
            yield Finding(
                _("no test gives points for the grade cell '{id}'").format(id=grade_id),
                _("Name the cell in a test of the lab's pytest file, or make it no grade cell."),
                _at(path, notebook, number),
            )
    for row in rows:
        if row.cell in graded and row.manual != written.is_written(notebook.cells[graded[row.cell]]):
            yield Finding(
                _("the test '{test}' and the cell '{id}' don't agree on who gives the points").format(
                    test=row.name, id=row.cell
                ),
                _("manual=True belongs to an answer in words, and to nothing else."),
                _at(path, notebook, graded[row.cell]),
            )
        elif row.cell not in graded:
            yield Finding(
                _("the test '{test}' gives points for the cell '{id}', which {script} doesn't have").format(
                    test=row.name, id=row.cell, script=path.name
                ),
                _("Add a grade cell with that grade_id, or correct the test."),
            )

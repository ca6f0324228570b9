"""Answers in words, which a teacher reads: text cells that are both a solution and graded.

In a solution script::

    # %% [markdown] nbgrader={"grade": true, "solution": true, ...}
    # ### BEGIN ANSWER sentences=3 hint="Say which limit it runs into."
    # A larger tile moves fewer bytes, until …
    # ### END ANSWER

becomes, for a student::

    *Your answer here (about 3 sentences). Say which limit it runs into.*

The answer between the marks is the teacher's: what a good one says. The whole cell is the answer; the question
stands in a cell above it.
"""

import re
import shlex
from dataclasses import dataclass

from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import compute_checksum, is_grade, is_solution
from traitlets import Unicode

from grader.classroom.gaps import LIKE_A_MARK, MarkError, translator
from grader.messages import _

BEGIN = re.compile(r"^### BEGIN ANSWER\b(?P<options>.*)$")
END = "### END ANSWER"
ACTIVE = re.compile(r"<|\](?=\s*[(\[:])")


@dataclass(frozen=True)
class Answer:
    """How long a good answer is, what helps, and the teacher's own."""

    sentences: int
    hint: str
    text: str


def is_written(cell: NotebookNode) -> bool:
    """Whether a cell is an answer in words."""
    return cell.cell_type == "markdown" and is_grade(cell) and is_solution(cell)


def is_untouched(cell: NotebookNode) -> bool:
    """Whether a solution cell is as it was released."""
    return is_solution(cell) and cell.metadata.nbgrader.get("checksum") == compute_checksum(cell)


def parse(source: str) -> Answer:
    """The answer in a script's cell. MarkError says what is wrong with its marks."""
    first, *body = source.strip().split("\n")
    begin = BEGIN.match(first)
    if begin is None:
        raise MarkError(1, _("an answer in words begins with '### BEGIN ANSWER sentences=NUMBER hint=\"...\"'"))
    if not body or body[-1].strip() != END:
        raise MarkError(len(body) + 1, _("an answer in words ends with '### END ANSWER'"))
    try:
        options = dict(word.split("=", 1) for word in shlex.split(begin["options"]))
    except ValueError as error:
        raise MarkError(1, _("can't read the options of BEGIN ANSWER: {error}").format(error=error)) from error
    if set(options) != {"sentences", "hint"} or not options["sentences"].isdecimal():
        raise MarkError(1, _('BEGIN ANSWER needs sentences=NUMBER and hint="..."'))
    text = "\n".join(body[:-1]).strip()
    if not text:
        raise MarkError(1, _("the answer is empty"))
    for number, line in enumerate(body[:-1], start=2):
        if LIKE_A_MARK.search(line):
            raise MarkError(number, _("'{text}' looks like a mark but is none").format(text=line.strip()))
    return Answer(int(options["sentences"]), options["hint"], text)


def skeleton(source: str, language: str = "en") -> str:
    """What students get in the cell's place."""
    answer, tr = parse(source), translator(language)
    text = tr("Your answer here (about {sentences} sentences).").format(sentences=answer.sentences)
    return f"*{text} {answer.hint}*"


def harmless(text: str) -> str:
    """A student's words as they may stand in a page that teachers open: no HTML, no link, no TeX command.

    Links and MathJax's ``\\href`` can hold scripts. Markdown takes an entity for text; MathJax reads what the page
    shows, so a backslash becomes a sign that looks like one.
    """
    text = text.replace("\\", "\N{REVERSE SOLIDUS OPERATOR}")
    return ACTIVE.sub(lambda found: f"&#{ord(found[0])};", text)


class ClearAnswers(NbGraderPreprocessor):
    """In nbgrader's generate step, beside ClearGaps: takes the teacher's answers out."""

    lab_language = Unicode("en", help="The language of what stands there instead.").tag(config=True)

    def preprocess_cell(self, cell, resources, cell_index):
        if is_written(cell):
            cell.source = skeleton(cell.source, self.lab_language)
        return cell, resources

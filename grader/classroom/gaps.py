"""The marks in a solution script: what becomes a gap, with which hint, and what students never see.

In a solution cell::

    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        ### BEGIN SOLUTION lines=3 hint="T.Parallel runs over the elements of one block."
        ### HINT A second sentence goes on a line of its own.
        for i in T.Parallel(block):
            with T.If(bx * block + i < N), T.Then():
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
        ### END SOLUTION

becomes, for a student::

    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        # YOUR CODE HERE (about 3 lines)
        # Hint: T.Parallel runs over the elements of one block. A second sentence goes on a line of its own.
        pass

A gap may hold code that is to be mended, below the hint::

        ### BEGIN SOLUTION lines=2 hint="One of these lines is wrong."
        ### PLANTED tile = A[bx]
        ### PLANTED store(tile, B[0])
        tile = A[bx]
        store(tile, B[bx])
        ### END SOLUTION

A student gets the planted lines in place of ``pass``, between YOUR CODE HERE and END OF YOUR CODE.

``lines`` is the number of lines of code (no blank lines, no comments) and is compared with the solution. The
indentation of the BEGIN mark is the gap's. In a test cell, ``### BEGIN HIDDEN TESTS`` and
``### END HIDDEN TESTS`` enclose what only the instructor's copy holds.
"""

import gettext
import re
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Unicode

import grader.messages
from grader.messages import _

BEGIN = re.compile(r"^(?P<indent>[ ]*)### BEGIN SOLUTION\b(?P<options>.*)$")
END = re.compile(r"^[ ]*### END SOLUTION[ ]*$")
HINT = re.compile(r"^[ ]*### HINT (?P<text>.*)$")
PLANTED = re.compile(r"^[ ]*### PLANTED(?: (?P<text>.*))?$")
HIDDEN_BEGIN = re.compile(r"^[ ]*### BEGIN HIDDEN TESTS[ ]*$")
HIDDEN_END = re.compile(r"^[ ]*### END HIDDEN TESTS[ ]*$")
# Anything that looks like a mark but isn't one is an error: a misspelt mark would publish a solution.
LIKE_A_MARK = re.compile(
    r"(BEGIN|END)\s*[-_]?\s*(SOLUTION|HIDDEN\s*TEST)|^\s*#+\s*(HINT|PLANTED)\b", re.IGNORECASE
)

STUB = "# YOUR CODE HERE"
STUB_END = "# END OF YOUR CODE"  # after planted lines
STUB_WIDTH = 88


class MarkError(ValueError):
    """A mark is wrong. ``line`` counts from 1 in the cell."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Gap:
    """A solution region: what the student is to write. ``line`` is where it begins in the cell.

    ``planted`` are the lines that stand there at first, to be mended: none, if the student writes all of it.
    """

    line: int
    indent: str
    lines: int
    hint: str
    body: tuple[str, ...]
    planted: tuple[str, ...] = ()

    @property
    def code_lines(self) -> int:
        return sum(1 for line in self.body if line.strip() and not line.lstrip().startswith("#"))


@dataclass(frozen=True)
class Given:
    """Lines that student and instructor both see."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Hidden:
    """A region of hidden tests."""

    lines: tuple[str, ...]


Piece = Gap | Given | Hidden


def split(source: str) -> tuple[Piece, ...]:
    """The cell as given lines, gaps and hidden tests, in order. MarkError says which mark is wrong."""
    pieces: list[Piece] = []
    given: list[str] = []
    region: list[str] | None = None
    begin: re.Match[str] | None = None
    opened = 0

    def close_given() -> None:
        if given:
            pieces.append(Given(tuple(given)))
            given.clear()

    for number, line in enumerate(source.split("\n"), start=1):
        start = BEGIN.match(line) or HIDDEN_BEGIN.match(line)
        if start:
            if region is not None:
                raise MarkError(number, _("a region begins inside the one of line {line}").format(line=opened))
            close_given()
            region, opened = [], number
            begin = start if start.re is BEGIN else None
        elif END.match(line) or HIDDEN_END.match(line):
            if region is None or bool(END.match(line)) != (begin is not None):
                raise MarkError(number, _("an end mark without its begin mark"))
            pieces.append(_gap(opened, begin, region) if begin else Hidden(tuple(region)))
            region = begin = None
        elif LIKE_A_MARK.search(line) and not (begin and (HINT.match(line) or PLANTED.match(line))):
            raise MarkError(number, _("'{text}' looks like a mark but is none").format(text=line.strip()))
        elif region is not None:
            region.append(line)
        else:
            given.append(line)
    if region is not None:
        raise MarkError(opened, _("the region has no end mark"))
    close_given()
    return tuple(pieces)


def _gap(line: int, begin: re.Match[str], region: list[str]) -> Gap:
    try:
        options = dict(word.split("=", 1) for word in shlex.split(begin["options"]))
    except ValueError as error:
        raise MarkError(
            line, _("can't read the options of BEGIN SOLUTION: {error}").format(error=error)
        ) from error
    unknown = sorted(set(options) - {"lines", "hint"})
    if unknown:
        raise MarkError(line, _("BEGIN SOLUTION has no option '{option}'").format(option=unknown[0]))
    if not options.get("lines", "").isdecimal():
        raise MarkError(line, _("BEGIN SOLUTION needs lines=NUMBER"))
    hints = [options["hint"]] if options.get("hint") else []
    body = list(region)
    while body and (more := HINT.match(body[0])):
        hints.append(more["text"].strip())
        body.pop(0)
    planted = []
    while body and (given := PLANTED.match(body[0])):
        planted.append(f"{begin['indent']}{given['text'] or ''}".rstrip())
        body.pop(0)
    if not hints:
        raise MarkError(line, _('BEGIN SOLUTION needs hint="..." (or lines ### HINT ... below it)'))
    marks = (n for n, text in enumerate(body) if HINT.match(text) or PLANTED.match(text))
    if (misplaced := next(marks, None)) is not None:
        raise MarkError(
            line + len(region) - len(body) + misplaced + 1,
            _("### HINT stands right below BEGIN SOLUTION, and ### PLANTED below that"),
        )
    gap = Gap(line, begin["indent"], int(options["lines"]), " ".join(hints), tuple(body), tuple(planted))
    if any(text.strip() == "pass" for text in planted) or planted == body:
        raise MarkError(line, _("the planted lines must differ from the solution, and hold no 'pass'"))
    if not gap.code_lines:
        raise MarkError(line, _("the solution is empty"))
    # 'about 3 lines' is a promise to the student: within a quarter, and always within one line.
    if abs(gap.code_lines - gap.lines) > max(1, gap.lines // 4):
        raise MarkError(
            line, _("lines={said}, but the solution has {real} lines").format(said=gap.lines, real=gap.code_lines)
        )
    first = next(text for text in body if text.strip())
    if not first.startswith(gap.indent) or first[len(gap.indent)] == " ":
        raise MarkError(line, _("BEGIN SOLUTION must be indented like the code below it"))
    return gap


def translator(language: str) -> Callable[[str], str]:
    """The message catalogue of the lab's language: the skeleton's must not depend on who builds it."""
    folder = Path(grader.messages.__file__).parent
    return gettext.translation("grader", folder, languages=[language], fallback=True).gettext


def stub(gap: Gap, language: str = "en") -> tuple[str, ...]:
    """What stands in a student's notebook in place of the gap: it parses, and does nothing or the wrong thing."""
    tr = translator(language)
    about = tr("(about 1 line)") if gap.lines == 1 else tr("(about {lines} lines)").format(lines=gap.lines)
    if gap.planted:
        about = tr("(mend these lines)")
    label = "# " + tr("Hint:") + " "
    hint = textwrap.wrap(
        label + gap.hint,
        width=STUB_WIDTH - len(gap.indent),
        subsequent_indent="#" + " " * (len(label) - 1),
        break_long_words=False,
        break_on_hyphens=False,
    )
    head = tuple(gap.indent + line for line in (f"{STUB} {about}", *hint))
    return (*head, *gap.planted, gap.indent + STUB_END) if gap.planted else (*head, f"{gap.indent}pass")


def skeleton(source: str, language: str = "en") -> str:
    """The cell with its gaps as stubs. Hidden tests stay, for nbgrader's ClearHiddenTests to take later."""
    lines: list[str] = []
    for piece in split(source):
        match piece:
            case Gap():
                lines += stub(piece, language)
            case Given():
                lines += piece.lines
            case Hidden():
                lines += ("### BEGIN HIDDEN TESTS", *piece.lines, "### END HIDDEN TESTS")
    return "\n".join(lines)


class ClearGaps(NbGraderPreprocessor):
    """In nbgrader's generate step, in ClearSolutions' place: each gap gets its own stub with its hint."""

    lab_language = Unicode("en", help="The language of the stubs.").tag(config=True)

    def preprocess_cell(self, cell, resources, cell_index):
        if cell.cell_type == "code":
            cell.source = skeleton(cell.source, self.lab_language)
        return cell, resources

"""What ``tilelab build --check`` looks at: are the labs fresh, unsolved, solvable, and silent?"""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import zip_longest
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from grader.classroom import gaps, written
from grader.classroom.build import Judge, MadeLab, PointTable, lab_file, notebook_text
from grader.classroom.script import is_role, label
from grader.gpu.disposable import waiting_threads
from grader.messages import _
from grader.verdict import Finding, Location, Outcome, Unusable, Verdict

# Jupyter and Python leave these behind wherever they ran; git ignores them.
LITTER = {".ipynb_checkpoints", "__pycache__"}
# A shorter line of code ("else:", "pass", "i += 1") says nothing about the solution.
TELLING = 12
# In which forms a lab is judged.
KINDS = ("skeleton", "solution")


def verify(
    root: Path, made: Sequence[MadeLab], point_table: PointTable | None, judge: Judge | None
) -> tuple[Finding, ...]:
    """All that is wrong with ``root/labs``, compared with the labs as just made from their scripts."""
    if judge is None or point_table is None:
        from grader import autograders

        judge = judge or autograders.judge_notebook
        point_table = point_table or autograders.point_table
    findings = [*_stray(root, made)]
    with (
        tempfile.TemporaryDirectory(prefix="tilelab-verify-") as folder,
        waiting_threads(len(os.sched_getaffinity(0))) as pool,  # the simulator judges in one thread each
    ):
        verdicts = {
            (lab.id, kind): pool.submit(judge, _put(Path(folder), lab, kind), lab.id, device="sim")
            for lab in made
            for kind in KINDS
        }
        for lab in made:
            findings += _stale(root, lab)
            findings += _differs_outside_gaps(root, lab)
            findings += _leaks(root, lab, made)
            for kind in KINDS:
                findings += _judged(lab, kind, verdicts[lab.id, kind], point_table)
    return tuple(findings)


def _put(folder: Path, lab: MadeLab, kind: str) -> Path:
    """Writes one form of a lab to be judged."""
    notebook = folder / kind / f"{lab.id}.ipynb"
    notebook.parent.mkdir(exist_ok=True)
    notebook.write_text(lab.skeleton if kind == "skeleton" else notebook_text(lab.solution))
    return notebook


def _stray(root: Path, made: Sequence[MadeLab]) -> Iterator[Finding]:
    folder = root / "labs"
    expected = {lab_file(root, lab.id) for lab in made}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(root)
        if not LITTER.intersection(name.parts) and not (path.is_dir() and not path.is_symlink()):
            if path not in expected:
                yield Finding(
                    _("{file} belongs to no lab").format(file=name),
                    _("Delete it, or keep it elsewhere: labs/ holds only what is made from solutions/."),
                )
            elif path.is_symlink():
                yield Finding(_("{file} is a link").format(file=name), _("Delete it and run 'tilelab build'."))


def _stale(root: Path, lab: MadeLab) -> Iterator[Finding]:
    path = lab_file(root, lab.id)
    advice = _("Run 'tilelab build' and commit what it writes.")
    if not path.is_file():
        yield Finding(_("{file} is missing").format(file=path.relative_to(root)), advice)
    elif path.read_bytes() != lab.skeleton.encode():
        yield Finding(
            _("{file} is not what solutions/{script} makes").format(
                file=path.relative_to(root), script=lab.script.name
            ),
            advice,
        )


def _differs_outside_gaps(root: Path, lab: MadeLab) -> Iterator[Finding]:
    """Compares the committed lab with the script by itself, without the code that made the stubs."""
    path = lab_file(root, lab.id)
    if not path.is_file():
        return
    advice = _("Change solutions/{script}, never labs/, and run 'tilelab build'.").format(script=lab.script.name)
    try:
        student = nbformat.reads(path.read_text(), as_version=4)
    except Exception as error:  # whatever stands there, it isn't a lab
        yield Finding(_("{file} is no notebook: {error}").format(file=path.relative_to(root), error=error), advice)
        return
    if len(student.cells) != len(lab.solution.cells):
        yield Finding(
            _("{file} has {found} cells, its solution {expected}").format(
                file=path.relative_to(root), found=len(student.cells), expected=len(lab.solution.cells)
            ),
            advice,
        )
        return
    for number, (theirs, ours) in enumerate(zip(student.cells, lab.solution.cells, strict=True)):
        expected = _outside_gaps(ours)
        if written.is_written(ours):
            found = ["<answer>"] if written.is_written(theirs) else [theirs.source]
        else:
            found = _outside_stubs(theirs, is_role(ours, "solution"))
        for line, (want, have) in enumerate(zip_longest(expected, found), start=1):
            if want != have:
                yield Finding(
                    _("the lab differs from its solution outside the gaps: '{have}' instead of '{want}'").format(
                        have=have or "", want=want or ""
                    ),
                    advice,
                    Location(f"{path.relative_to(root)}, {label(lab.solution, number)}", line),
                )
                break


def _outside_gaps(cell: NotebookNode) -> list[str]:
    if written.is_written(cell):
        return ["<answer>"]
    if cell.cell_type != "code":
        return cell.source.split("\n")
    lines: list[str] = []
    for piece in gaps.split(cell.source):
        if isinstance(piece, gaps.Given):
            lines += piece.lines
        elif isinstance(piece, gaps.Gap):
            lines.append("<gap>")
    return lines


def _outside_stubs(cell: NotebookNode, may_have_stubs: bool) -> list[str]:
    lines: list[str] = []
    inside = False
    for line in cell.source.split("\n"):
        if may_have_stubs and line.lstrip().startswith(gaps.STUB):
            inside = True
            lines.append("<gap>")
        elif inside:
            inside = line.strip() not in ("pass", gaps.STUB_END)
        else:
            lines.append(line)
    return lines


def _shown_before(lab: MadeLab, made: Sequence[MadeLab]) -> Iterator[str]:
    for earlier in made:
        if earlier.id == lab.id:
            return
        yield "\n".join(cell.source for cell in nbformat.reads(earlier.skeleton, as_version=4).cells)


def _leaks(root: Path, lab: MadeLab, made: Sequence[MadeLab]) -> Iterator[Finding]:
    """Looks for the answers' lines and the hidden tests' in every file under labs/, whatever its kind.

    But an earlier lab may teach what a later one asks for: students have seen it by then.
    """
    secret, shown = _secret_and_shown(lab)
    shown += "\n".join(_shown_before(lab, made))
    for path in sorted((root / "labs").rglob("*")):
        if not path.is_file():
            continue
        raw = path.read_text(errors="replace")
        # In a notebook, quotes and backslashes of the code are escaped.
        text = raw.replace('\\"', '"').replace("\\\\", "\\")
        leaked = [line for line in secret if line not in shown and line in text]
        leaked += [mark for mark in ("BEGIN SOLUTION", "BEGIN HIDDEN TESTS", "BEGIN ANSWER") if mark in raw]
        if leaked:
            yield Finding(
                _("{file} shows what solutions/{script} hides: '{line}'").format(
                    file=path.relative_to(root), script=lab.script.name, line=leaked[0]
                ),
                _("Run 'tilelab build' if the file is a lab, else delete it."),
                evidence=tuple(leaked),
            )


def _secret_and_shown(lab: MadeLab) -> tuple[list[str], str]:
    """The lines that hide something, and the text that is shown anyway (text cells, hints, given code)."""
    secret: list[str] = []
    shown: list[str] = []
    for cell in lab.solution.cells:
        if written.is_written(cell):
            answer = written.parse(cell.source)
            shown.append(answer.hint)
            secret += answer.text.split("\n")
            continue
        if cell.cell_type != "code":
            shown.append(cell.source)
            continue
        for piece in gaps.split(cell.source):
            match piece:
                case gaps.Given():
                    shown += piece.lines
                case gaps.Gap():
                    shown += [piece.hint, *piece.planted]
                    secret += piece.body
                case gaps.Hidden():
                    secret += piece.lines
    lines = dict.fromkeys(line.strip() for line in secret)
    return [line for line in lines if len(re.sub(r"\s", "", line)) >= TELLING], "\n".join(shown)


def _judged(lab: MadeLab, kind: str, verdict: Future[Verdict], point_table: PointTable) -> Iterator[Finding]:
    """An untouched lab earns only the free points; the solution fails nothing."""
    try:
        judged = verdict.result()
    except Unusable as unusable:
        yield Finding(
            _("the {kind} of {lab} can't be judged: {reason}").format(
                kind=kind, lab=lab.id, reason=unusable.finding.message
            ),
            unusable.finding.advice,
            unusable.finding.where,
        )
        return
    rows = {row.name: row for row in point_table(lab.id)}
    if {check.name for check in judged.checks} != set(rows):
        yield Finding(
            _("judging the {kind} of {lab} ran other tests than its table of points has: {names}").format(
                kind=kind,
                lab=lab.id,
                names=", ".join(sorted({c.name for c in judged.checks} ^ set(rows))),
            ),
            _("Every test of the lab's pytest file must be judged, for every notebook."),
        )
        return
    free = {name for name, row in rows.items() if row.free}
    yield from _skeleton_earns(lab, judged, free) if kind == "skeleton" else _solution_fails(lab, judged)


def _skeleton_earns(lab: MadeLab, verdict: Verdict, free: set[str]) -> Iterator[Finding]:
    for check in verdict.checks:
        if check.name not in free and (check.outcome is Outcome.PASSED or check.points > 0):
            yield Finding(
                _("an untouched {lab} already passes '{check}' ({points} points)").format(
                    lab=lab.id, check=check.title, points=f"{check.points:g}"
                ),
                _(
                    "Make the test stricter or widen the gap; if it is meant to be free, mark it so in the "
                    "pytest file."
                ),
            )


def _solution_fails(lab: MadeLab, verdict: Verdict) -> Iterator[Finding]:
    for check in verdict.checks:
        if check.outcome is Outcome.FAILED or (
            check.outcome is Outcome.PASSED and check.points < check.max_points
        ):
            yield Finding(
                _("the solution of {lab} doesn't get all points of '{check}': {points} of {most}").format(
                    lab=lab.id, check=check.title, points=f"{check.points:g}", most=f"{check.max_points:g}"
                ),
                _("Correct solutions/{script} or the test.").format(script=lab.script.name),
                evidence=tuple(finding.message for finding in check.findings),
            )
    if not any(check.outcome is Outcome.PASSED for check in verdict.checks):
        yield Finding(
            _("nothing of the solution of {lab} was assessed, so the check proves nothing").format(lab=lab.id),
            _("Give the lab at least one test that runs without a GPU."),
        )

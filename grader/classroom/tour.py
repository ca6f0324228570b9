"""Runs the labs' solutions as a student would, cell by cell in a Jupyter kernel, and notes what comes of it.

A ``check`` cell's verdict is read from its output, where ``grader.student`` leaves it for programs.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from grader.catalog import Lab
from grader.classroom.reference import reference_notebook
from grader.messages import _
from grader.verdict import MIME, Unusable, Verdict, from_json
from grader.verdict.tour import Ending, Section, TouredLab

CELL_SECONDS = 600
MAX_WHY = 300


def tour(root: Path, labs: Sequence[Lab], say: Callable[[str], None]) -> Iterator[TouredLab]:
    """Each lab's solution in turn; what fails in one costs that one alone. ``say`` hears of each section."""
    for lab in labs:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tilelab-tour-") as folder:
            try:
                notebook = nbformat.read(reference_notebook(root, lab, Path(folder)), as_version=4)
            except Unusable as error:
                yield TouredLab(lab.id, lab.title, trouble=error.finding.message)
                continue
            yield _toured(lab, notebook, Path(folder), say, start)


def _toured(lab: Lab, notebook: NotebookNode, folder: Path, say: Callable[[str], None], start: float) -> TouredLab:
    parts = sections(notebook)
    done: list[Section] = []
    trouble = ""
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=CRITICAL"],  # its words, also of being interrupted, would mix with ours
    )
    try:
        with client.setup_kernel():
            for title, cells in parts:
                say(_("{lab}: {section}").format(lab=lab.id, section=title))
                done.append(_run(client, title, cells))
                if done[-1].why == _endless():
                    break  # the kernel is still at it: what comes next would only wait
    except (DeadKernelError, RuntimeError, OSError) as error:
        trouble = _("the Jupyter kernel ended: {why}").format(why=_last_line(str(error)))
    done += [Section(title, Ending.NOT_RUN, 0.0) for title, _cells in parts[len(done) :]]
    return TouredLab(lab.id, lab.title, tuple(done), tuple(verdicts(notebook)), time.monotonic() - start, trouble)


def _run(client: NotebookClient, title: str, cells: Sequence[int]) -> Section:
    """Runs a section's cells, up to one that fails; the next section is tried all the same."""
    start = time.monotonic()
    for number in cells:
        try:
            client.execute_cell(client.nb.cells[number], number)
        except CellExecutionError as error:
            why = _last_line(f"{error.ename}: {error.evalue}")
            return Section(title, Ending.FAILED, time.monotonic() - start, why)
        except CellTimeoutError:
            return Section(title, Ending.FAILED, time.monotonic() - start, _endless())
    return Section(title, Ending.RAN, time.monotonic() - start)


def _endless() -> str:
    return _("a cell did not end within {seconds} s").format(seconds=CELL_SECONDS)


def sections(notebook: NotebookNode) -> list[tuple[str, list[int]]]:
    """The headings of a notebook (``#`` and ``##``), each with the numbers of the code cells below it."""
    found: list[tuple[str, list[int]]] = [(_("beginning"), [])]
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            heads = [line for line in cell.source.splitlines() if line.startswith(("# ", "## "))]
            found += [(line.lstrip("#").strip(), []) for line in heads[:1]]
        elif cell.cell_type == "code":
            found[-1][1].append(number)
    return [(title, cells) for title, cells in found if cells]


def verdicts(notebook: NotebookNode) -> Iterator[Verdict]:
    """What the notebook's outputs say that the judge said."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if MIME in output.get("data", {}):
                yield from_json(output["data"][MIME])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:MAX_WHY] if lines else ""

"""``check``, ``capture``, ``judge`` and ``grade``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from grader import catalog
from grader.cli.outputs import must_be_writable, write
from grader.cli.sanitizing import SanitizeOption
from grader.cli.sanitizing import sanitize as run_sanitizer
from grader.messages import _, progress
from grader.report import terminal
from grader.verdict import Finding, Unusable, Verdict, to_json


class Device(StrEnum):
    """Who judges: the card if there is one, the simulator, or the card and nothing else."""

    AUTO = "auto"
    SIM = "sim"
    GPU = "gpu"


DeviceOption = Annotated[
    Device, typer.Option(help="Who judges: the GPU if there is one (auto), or one of the two.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
LabOption = Annotated[str | None, typer.Option("--lab", help="The lab, if the notebook's name doesn't say it.")]
NotebookArgument = Annotated[Path, typer.Argument(help="A lab's notebook (.ipynb).", show_default=False)]


def check(
    notebook: NotebookArgument,
    device: DeviceOption = Device.AUTO,
    lab: LabOption = None,
    sanitize: SanitizeOption = False,
    json: JsonOption = False,
) -> None:
    """Judge a notebook: capture its kernels in the sandbox, then run the lab's checks."""
    from grader.autograders import judge_notebook
    from grader.capture import capture_notebook

    which = lab_of(notebook, lab)
    if sanitize:
        run_sanitizer(lambda: capture_notebook(notebook, which), json)
    with working(_("Judging {notebook} ...").format(notebook=notebook.name), quiet=json):
        verdict = judge_notebook(notebook, which.id, device=device)
    _finish(verdict, json)


def capture(
    notebook: NotebookArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to write the capture.", show_default=False)
    ],
    lab: LabOption = None,
    official: Annotated[
        bool, typer.Option(help="Capture the further shapes of the official run too (instructors).")
    ] = False,
) -> None:
    """Run a notebook in the sandbox and write its kernels' IR to a file, to be judged anywhere."""
    from grader.autograders.official import extended
    from grader.capture import capture_notebook, sandbox

    must_be_writable(output)
    which = lab_of(notebook, lab)
    typer.echo(sandbox.describe(), err=True)
    with working(_("Capturing {notebook} ...").format(notebook=notebook.name)):
        captured = capture_notebook(notebook, extended(which) if official else which)
    write(output, captured.to_json())
    typer.echo(
        _("Wrote {path}: {count} kernels (SHA-256 {sha}).").format(
            path=output, count=len(captured.traces), sha=captured.sha256[:16]
        )
    )


def judge(
    files: Annotated[list[Path], typer.Argument(help="Captures, from 'tilelab capture'.", show_default=False)],
    device: DeviceOption = Device.AUTO,
    official: Annotated[bool, typer.Option(help="As the official run does (instructors).")] = False,
    sanitize: SanitizeOption = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many are judged at once (the card still serves one by one).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Judge captured kernels, one or many. No code of the notebook's is run, and no Jupyter is needed."""
    from grader.autograders import judge_capture
    from grader.autograders.run import must_have
    from grader.capture import read_capture

    if sanitize and len(files) > 1:
        raise Unusable(_("--sanitize looks at one capture at a time."))
    if sanitize:
        run_sanitizer(lambda: read_capture(files[0]), json)
    if len(files) == 1:
        captured = read_capture(files[0])
        with working(_("Judging {file} ...").format(file=files[0].name), quiet=json):
            verdict = judge_capture(captured, device=device, official_run=official)
        _finish(verdict, json)
    must_have(device)  # or each of them would say that it is missing
    _judge_many(files, partial(judge_capture, device=device, official_run=official), jobs, json)


def _judge_many(files: list[Path], judge_one: Callable[..., Verdict], jobs: int | None, json: bool) -> None:
    from grader.autograders.batch import judge_files
    from grader.cli.results import judged_to_json, print_judged

    done = []
    with working(_("Judging {count} captures ...").format(count=len(files)), quiet=json):
        for judged in judge_files(files, judge_one, jobs=jobs):
            done.append(judged)
            text = _("{file} is judged ({done} of {all}).")
            progress.say(text.format(file=judged.file.name, done=len(done), all=len(files)))
    done.sort(key=lambda judged: files.index(judged.file))
    if json:
        typer.echo(judged_to_json(done))
    else:
        print_judged(done, Console())
    if any(judged.error is not None and not isinstance(judged.error, Unusable) for judged in done):
        raise typer.Exit(3)
    raise typer.Exit(0 if all(judged.verdict is not None and judged.verdict.passed for judged in done) else 1)


def grade(
    lab: Annotated[str, typer.Argument(help="The lab, e.g. lab02_matmul.", show_default=False)],
    student: Annotated[str | None, typer.Option(help="One student only.")] = None,
    course: Annotated[Path, typer.Option(help="The course folder (see 'tilelab course').")] = Path("course"),
    device: DeviceOption = Device.AUTO,
    json: JsonOption = False,
) -> None:
    """Grade what students handed in, and write the points to nbgrader's gradebook."""
    from grader.capture import sandbox
    from grader.classroom.grade import grade as grade_submissions
    from grader.cli.results import print_results, results_to_json

    known(lab)
    if not json:
        typer.echo(sandbox.describe(), err=True)
    with working(_("Grading {lab} ...").format(lab=lab), quiet=json):
        results = grade_submissions(course, lab, student, device)
    if json:
        typer.echo(results_to_json(results))
    else:
        print_results(results, Console())
    if any(result.error for result in results):
        raise typer.Exit(1)


def _finish(verdict: Verdict, json: bool) -> None:
    if json:
        typer.echo(to_json(verdict))
    else:
        terminal.show(verdict, Console())
    raise typer.Exit(0 if verdict.passed else 1)


@contextmanager
def working(message: str, quiet: bool = False) -> Iterator[None]:
    """A spinner on a terminal, plain lines elsewhere, nothing if ``quiet``: it shows what the judge is doing."""
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        console.print(message, markup=False)
    with console.status(message) as status, progress.heard(_shown(console, status, message)):
        yield


def _shown(console: Console, status: Status, message: str) -> Callable[[str], None]:
    def show(text: str) -> None:
        if console.is_terminal:
            status.update(f"{escape(message)} [dim]{escape(text)}[/dim]")
        else:
            console.print(f"  {text}", markup=False, highlight=False)

    return show


def known(lab_id: str) -> catalog.Lab:
    try:
        return catalog.find(lab_id)
    except KeyError as error:
        raise Unusable(error.args[0]) from None


def lab_of(notebook: Path, given: str | None) -> catalog.Lab:
    """The lab of a notebook: as given, by its file's name, or by the kernel that it defines."""
    if given is not None:
        return known(given)
    for lab in catalog.LABS:
        if notebook.stem.startswith(lab.id):
            return lab
    from grader.capture import read_notebook

    text = "\n".join(cell.source for cell in read_notebook(notebook).cells)
    found = [lab for lab in catalog.LABS if any(f"def {kernel.name}(" in text for kernel in lab.kernels)]
    if len(found) == 1:
        return found[0]
    raise Unusable(
        Finding(
            _("Which lab is '{name}'? Neither its name nor its kernels say so.").format(name=notebook.name),
            _("Name it: --lab {example}. The labs are: {known}.").format(
                example=catalog.LABS[0].id, known=", ".join(lab.id for lab in catalog.LABS)
            ),
        )
    )

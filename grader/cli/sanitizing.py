"""``check --sanitize`` and ``judge --sanitize``: NVIDIA's compute-sanitizer instead of the checks."""

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from grader.capture.format import Capture
from grader.messages import _

SanitizeOption = Annotated[
    bool,
    typer.Option(
        "--sanitize",
        help="Instead of judging, run the kernels under NVIDIA's compute-sanitizer (needs a GPU; takes minutes).",
    ),
]


def sanitize(captured: Callable[[], Capture], json: bool) -> None:
    """Prints what the sanitizer found in the kernels of a capture; ends with 1 if that is anything."""
    from grader.autograders import lab_of
    from grader.judge.sanitized import must_have
    from grader.judge.sanitized import sanitize as run
    from grader.report.sanitizer import render
    from grader.verdict.sanitized import to_json

    must_have()  # before the notebook is run
    capture = captured()
    console = Console(stderr=True, quiet=json)
    console.print(_("Running the kernels under compute-sanitizer ..."))
    found = run(capture, lab_of(capture))
    if json:
        typer.echo(to_json(found))
    else:
        Console().print(render(found))
    raise typer.Exit(0 if all(kernel.clean for kernel in found) else 1)

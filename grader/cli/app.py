"""Registers the commands, and turns what they raise into one message and an exit status."""

import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import NoReturn

import typer
from rich.console import Console

from grader.cli import compiling, judging, making
from grader.cli.benching import bench
from grader.cli.calibrating import calibrate
from grader.cli.cheatsheet import cheatsheet
from grader.cli.demo import demo
from grader.cli.lab import lab
from grader.cli.rooflines import roofline
from grader.cli.touring import tour
from grader.cli.tracing import trace
from grader.doctor.command import doctor
from grader.messages import _
from grader.report.terminal import show_finding
from grader.verdict import JudgeFailed, Unusable

app = typer.Typer(
    help="Labs for writing fast GPU kernels in TileLang: check your kernels, grade others'.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Stopped(BaseException):
    """A signal ended the command. It goes up like Ctrl-C, so that all tidy up on its way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, _frame: object) -> NoReturn:
    raise Stopped(number)


def _stoppable(command: Callable[..., None]) -> Callable[..., None]:
    """Typer would turn Ctrl-C into a status without a word."""

    @wraps(command)
    def run(*given: object, **named: object) -> None:
        try:
            command(*given, **named)
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT) from None

    return run


for command in (
    lab,
    doctor,
    judging.check,
    judging.capture,
    judging.judge,
    judging.grade,
    compiling.compile,
    trace,
    roofline,
    bench,
    tour,
    cheatsheet,
    calibrate,
    making.build,
    making.course,
    demo,
):
    app.command()(_stoppable(command))


def main() -> None:
    """The entry point: 2 for what can't be judged, 3 for a fault of ours, 130 for Ctrl-C; a message for each."""
    errors = Console(stderr=True)
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except Unusable as error:
        show_finding(error.finding, errors)
        sys.exit(2)
    except JudgeFailed as error:
        errors.print(_("The judge itself failed. That is our fault, and nothing was decided. Please report this:"))
        errors.print(str(error), markup=False, highlight=False)
        sys.exit(3)
    except Stopped as stopped:
        errors.print(_("Interrupted."))
        sys.exit(128 + stopped.number)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        errors.print(_("{what}{place}.").format(what=error.strerror or error, place=place), markup=False)
        sys.exit(2)

"""``bench``: kernels on this machine's card beside every library that does the same work."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from grader import catalog
from grader.catalog import Lab
from grader.cli.judging import known, lab_of, working
from grader.cli.making import ROOT
from grader.cli.outputs import must_be_writable, write
from grader.cli.tracing import sizes_of
from grader.messages import _, progress
from grader.verdict import Unusable

if TYPE_CHECKING:
    from grader.capture import Capture
    from grader.judge.bench import AskedShape
    from grader.verdict.bench import Bench

CAPTURE = ".json"  # ends the name of a capture's file


def bench(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Notebooks of labs, or captures of them (.json).",
            show_default="the labs' solutions, where they are",
        ),
    ] = None,
    lab: Annotated[list[str] | None, typer.Option(help="A lab, may be repeated.", show_default="all")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="A shape by its name, or sizes: M=8192,N=8192,K=8192. May be repeated.",
            show_default="those that are timed",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="Of timing for each work, at most.")] = 10.0,
    json: Annotated[Path | None, typer.Option(help="Write the figures here.", show_default=False)] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a roofline plot here (.svg or .png).", show_default=False)
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Draw the plot light on dark.")] = False,
    again: Annotated[
        Path | None,
        typer.Option("--from", help="Measure nothing; show what --json has kept.", show_default=False),
    ] = None,
) -> None:
    """Measure kernels on the card beside every library that does the same work: for figures, not for points."""
    from grader.report import bench as report
    from grader.report import roofline_plot
    from grader.verdict import bench as verdict

    if plot is not None:
        roofline_plot.check_name(plot)
    must_be_writable(json, plot)
    if again is not None:
        if notebooks or lab or shape:
            raise Unusable(_("--from shows a measurement as it is: name no notebooks, labs or shapes with it."))
        measured = verdict.read(again)
    else:
        shapes = [sizes_of(one) for one in shape or []]
        measured = _measured(notebooks or [], lab or [], shapes, seconds)
    report.show(measured, Console())
    if json is not None:
        write(json, verdict.to_json(measured) + "\n")
        typer.echo(_("Wrote {path}.").format(path=json))
    if plot is not None:
        roofline_plot.write(report.chart(measured), plot, "dark" if dark else "light")
        typer.echo(_("Wrote {path}.").format(path=plot))
    raise typer.Exit(3 if measured.judge_failed else 0 if measured.complete else 1)


def _measured(
    given: Sequence[Path], labs: Sequence[str], shapes: Sequence["AskedShape"], seconds: float
) -> "Bench":
    from grader.gpu.disposable import usual_jobs, waiting_threads
    from grader.judge import bench as judge

    card = judge.must_have_card()  # before anything is run
    source = ", ".join(path.name for path in given) or _("the labs' solutions")
    every = [] if given or labs else judge.having(catalog.LABS, shapes)
    with _labs(given, labs, every) as found, working(_("Measuring ...")):
        wanted = [(path, judge.chosen(lab, shapes)) for path, lab in found]
        progress.say(_("Taking the kernels out of {count} notebooks.").format(count=len(wanted)))
        with waiting_threads(usual_jobs()) as pool:
            captures = list(pool.map(lambda one: _captured(*one), wanted))
        works = [(lab, capture) for (_path, lab), capture in zip(wanted, captures, strict=True)]
        return judge.run(works, card, source, seconds)


@contextmanager
def _labs(given: Sequence[Path], labs: Sequence[str], every: Sequence[Lab]) -> Iterator[list[tuple[Path, Lab]]]:
    """What is measured, with its labs (``every`` if none is named); solutions are notebooks meanwhile."""
    if given:
        if len(labs) > 1 or (labs and len(given) > 1):
            raise Unusable(_("With --lab, name one notebook: it says which lab that one is of."))
        yield [(path, _lab_of(path, labs[0] if labs else None)) for path in given]
        return
    from grader.classroom.reference import reference_notebook

    wanted = [known(name) for name in labs] or every
    with tempfile.TemporaryDirectory(prefix="tilelab-bench-") as folder:
        yield [(reference_notebook(ROOT, lab, Path(folder)), lab) for lab in wanted]


def _lab_of(path: Path, given: str | None) -> Lab:
    if path.suffix != CAPTURE:
        return lab_of(path, given)
    from grader.capture import read_capture

    capture = read_capture(path)
    lab = known(capture.lab)
    if lab.version != capture.lab_version:
        raise Unusable(
            _("The capture is of version {got} of {lab}; this is version {want}.").format(
                got=capture.lab_version, lab=lab.id, want=lab.version
            )
        )
    return lab


def _captured(path: Path, lab: Lab) -> "Capture":
    from grader.capture import capture_notebook, read_capture

    return read_capture(path) if path.suffix == CAPTURE else capture_notebook(path, lab)

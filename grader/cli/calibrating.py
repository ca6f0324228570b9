"""``calibrate``: what is this card able to do, and what may be asked of kernels on it?"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grader.cli.judging import JsonOption, working
from grader.cli.outputs import must_be_writable
from grader.messages import _
from grader.verdict import Finding, Unavailable


def calibrate(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the rows of targets to a file.", show_default=False),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the rows in your own file of targets; other cards' rows stay."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Measure this machine's card (a minute or two): its ceilings, the peers, and the targets that follow."""
    from grader.gpu import hardware, target_writer, targets, unfit
    from grader.judge import calibration
    from grader.report import calibration as report
    from grader.verdict.calibration import to_json

    gpu = hardware.look()
    card = unfit.needed(_("Calibrating needs a card that can judge."), gpu=gpu)
    own = targets.teachers_file() if keep else None
    if keep and own is None:
        raise Unavailable(
            Finding(
                _("There is no place to keep targets in: you have no home folder."),
                _("Write them to a file: -o FILE. Or name the file to keep them in: {variable}=FILE.").format(
                    variable=targets.FILE_VARIABLE
                ),
            )
        )
    # What is wrong with these files is told now, not after the measurement.
    must_be_writable(output, own)
    if own is not None and own.exists():
        targets.read_teachers(own)
    with working(_("Calibrating the {card} ...").format(card=card.name), quiet=json):
        found = calibration.calibrate(card, gpu.driver.version)
    if json:
        typer.echo(to_json(found))
    else:
        report.show(found, Console())
    notes = Console(stderr=True, quiet=json, markup=False, highlight=False, soft_wrap=True)
    measured, rows = [calibration.ceilings(found)], calibration.rows(found)
    if output is not None:
        target_writer.write(output, target_writer.merged("", measured, rows))
        notes.print(
            _("Wrote {path}. To use it: {variable}={path}").format(path=output, variable=targets.FILE_VARIABLE)
        )
    if own is not None and found.disturbed:
        notes.print(_("Nothing was kept."))
    elif own is not None:
        before = own.read_text() if own.exists() else ""
        target_writer.write(own, target_writer.merged(before, measured, rows))
        notes.print(_("Kept in {path}.").format(path=own))
    if output is None and not keep:
        notes.print(_("Nothing was written: --keep keeps these targets for you, -o FILE writes them to a file."))
    if found.disturbed or len(rows) < len(found.works):
        raise typer.Exit(1)

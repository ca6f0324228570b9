"""What the official run adds to a lab, and what a verdict says beside its checks.

The further shapes stand in ``private/``, which the student image does not have. Without it, ``extended`` is an
error: an official run must not quietly be a local one.
"""

import importlib
from pathlib import Path

from pydantic import TypeAdapter

from grader.autograders.table import PointRow
from grader.capture.format import Capture
from grader.catalog import Lab
from grader.messages import _
from grader.verdict import Finding, Unavailable

_rows = TypeAdapter(list[PointRow])


def extended(lab: Lab) -> Lab:
    """The lab with the shapes of the official run. Raises Unavailable where these are not installed."""
    try:
        private = importlib.import_module("grader.autograders.private.shapes")
    except ModuleNotFoundError:
        raise Unavailable(
            Finding(
                _("The official run is not installed here: grader/autograders/private is missing."),
                _("Grade with the instructor's installation, or use 'tilelab check'."),
            )
        ) from None
    return lab.with_shapes(private.FURTHER.get(lab.id, {}))


def notes(capture: Capture) -> tuple[Finding, ...]:
    """Errors of cells that the run went on after."""
    return tuple(
        Finding(
            _("A cell raised {kind}: {message}").format(kind=error.kind, message=error.message),
            where=capture.locate(error.file, error.line),
        )
        for error in capture.cell_errors
    )


def write_rows(path: Path, rows: list[PointRow]) -> None:
    path.write_bytes(_rows.dump_json(rows))


def read_rows(path: Path) -> tuple[PointRow, ...]:
    return tuple(_rows.validate_json(path.read_bytes()))

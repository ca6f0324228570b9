"""Files that a command writes at its end: whether they can be written is asked at its beginning."""

import os
from pathlib import Path

from grader.messages import _
from grader.verdict import Finding, Unusable


def must_be_writable(*paths: Path | None) -> None:
    """Raises Unusable, with the reason, for the first file that could not be written. Nothing is made."""
    for path in paths:
        if path is None:
            continue
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if path.is_dir():
            why = _("it is a folder")
        elif not folder.is_dir():
            why = _("{folder} is no folder").format(folder=folder)
        elif not os.access(path if path.exists() else folder, os.W_OK):
            why = _("you have no permission to write there")
        else:
            continue
        raise Unusable(
            Finding(_("{path} can't be written: {why}.").format(path=path, why=why), _("Name another file."))
        )


def write(path: Path, text: str) -> None:
    """Writes a file, and makes its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")

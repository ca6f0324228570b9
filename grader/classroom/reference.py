"""The labs' solutions as notebooks, to be captured like anybody's."""

from pathlib import Path

import jupytext
import nbformat

from grader.catalog import Lab
from grader.messages import _
from grader.verdict import Finding, Unavailable


def reference_notebook(root: Path, lab: Lab, folder: Path) -> Path:
    """Writes the solution of a lab to ``folder``. Raises Unavailable if ``root`` has none."""
    script = root / "solutions" / f"{lab.id}.py"
    if not script.is_file():
        raise Unavailable(
            Finding(
                _("There is no solution of {lab} here.").format(lab=lab.id),
                _("Measure a notebook of your own: tilelab bench NOTEBOOK"),
            )
        )
    path = folder / lab.notebook
    nbformat.write(jupytext.read(script, fmt="py:percent"), path)
    return path

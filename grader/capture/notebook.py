"""Reads the code cells of a notebook."""

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

from grader.messages import _
from grader.messages.errors import first_line
from grader.verdict import Finding, Unusable

MAX_BYTES = 50 * 2**20


@dataclass(frozen=True)
class Cell:
    """A code cell: ``number`` counts code cells from 1."""

    number: int
    source: str

    @property
    def file(self) -> str:
        """The file name that the cell's code is compiled under: absolute, so that it is the same everywhere."""
        return f"/notebook/cell-{self.number}"

    @property
    def label(self) -> str:
        return _("code cell {number}").format(number=self.number)


@dataclass(frozen=True)
class Notebook:
    path: Path
    cells: tuple[Cell, ...]
    sha256: str


def read_notebook(path: Path) -> Notebook:
    """The code cells of the notebook at ``path``, of any nbformat. Raises Unusable."""
    import nbformat

    raw = _read(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of missing and doubled cell ids, which don't matter here
            notebook = nbformat.reads(raw.decode("utf-8-sig"), as_version=4)
    except Exception as error:  # nbformat raises a dozen kinds; all mean the same to whoever reads this
        raise Unusable(
            Finding(
                _("'{name}' is not a notebook that can be read ({error}).").format(
                    name=path.name, error=first_line(error)[:200]
                ),
                _("Save it again in JupyterLab, or take a fresh copy of the lab and paste your cells."),
            )
        ) from None
    sources = [_source(cell) for cell in notebook.get("cells", []) if cell.get("cell_type") == "code"]
    cells = tuple(Cell(number, source) for number, source in enumerate(sources, start=1))
    if not any(cell.source.strip() for cell in cells):
        raise Unusable(_("'{name}' has no code in it.").format(name=path.name))
    return Notebook(path, cells, hashlib.sha256(raw).hexdigest())


def _read(path: Path) -> bytes:
    if not path.exists():
        raise Unusable(_("There is no file '{path}'.").format(path=path))
    if not path.is_file():
        raise Unusable(_("'{path}' is not a file.").format(path=path))
    if path.stat().st_size > MAX_BYTES:
        raise Unusable(
            Finding(
                _("'{name}' is larger than {limit} MB.").format(name=path.name, limit=MAX_BYTES // 2**20),
                _("Clear its outputs (in JupyterLab: Edit, Clear Outputs of All Cells) and save it."),
            )
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unusable(_("'{path}' can't be read: {error}").format(path=path, error=error.strerror)) from None


def _source(cell: dict) -> str:
    source = cell.get("source", "")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    return text.replace("\r\n", "\n").encode("utf-8", "replace").decode()

"""Settings of the test run, and notebooks for tests."""

import atexit
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import torch
from cells import IMPORTS, ROOT
from nbformat.v4 import new_code_cell, new_notebook

from grader.gpu import hardware

# The secret of official runs belongs to the test run, not to whoever runs it.
os.environ["TILELAB_SECRET"] = str(ROOT / "build" / "test-secret")

# So do the kernels that it compiles: nothing that was compiled before may pass for what is compiled now.
os.environ["TILELAB_CACHE"] = tempfile.mkdtemp(prefix="tilelab-tests-")
atexit.register(shutil.rmtree, os.environ["TILELAB_CACHE"], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if hardware.judging_card() is not None:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="not assessed: needs a CUDA device"))


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """Tests draw from torch's generator: a failure must come back when it is looked at."""
    torch.manual_seed(0)


@pytest.fixture
def notebook(tmp_path: Path) -> Callable[..., Path]:
    """Writes a notebook of code cells: ``notebook("lab02_matmul", cell, …)``; the imports come first."""

    def write(name: str, *cells: str, imports: bool = True) -> Path:
        sources = [IMPORTS, *cells] if imports else list(cells)
        path = tmp_path / f"{name}.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
        return path

    return write


@pytest.fixture
def line_of() -> Callable[[str], int]:
    """line_of(marker) -> the number of the line of the calling test's file that ends in ``# marker``."""

    def line_of(marker: str) -> int:
        file = next(frame.filename for frame in inspect.stack()[1:] if frame.filename != __file__)
        with open(file) as source:
            return next(n for n, line in enumerate(source, 1) if line.rstrip().endswith(f"# {marker}"))

    return line_of

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
from cells import IMPORTS
from hypothesis import HealthCheck, settings
from nbformat.v4 import new_code_cell, new_notebook

from grader.gpu import hardware

# Each process of the test run has a folder of its own: for the secret of official runs, which is not that of the
# user who runs it, and for the kernels that it compiles, as nothing that was compiled before may pass for what is
# compiled now.
OURS = tempfile.mkdtemp(prefix="tilelab-tests-", dir=os.environ.get("TILELAB_TESTS"))
os.environ["TILELAB_SECRET"] = str(Path(OURS, "secret"))
os.environ["TILELAB_CACHE"] = str(Path(OURS, "kernels"))
if "PYTEST_XDIST_WORKER" not in os.environ:
    # Workers are ended without ceremony: theirs lie inside that of the process which started them.
    os.environ["TILELAB_TESTS"] = OURS
    atexit.register(shutil.rmtree, OURS, ignore_errors=True)

# Tensors are small here, and other processes run tests at the same time: more threads would only be in the others'
# way. Simulated kernels run in forked processes besides, and a fork takes no threads along.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# How long an example takes says more of the other processes than of what is tested.
settings.register_profile("beside others", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beside others")

#: Beyond that many workers, starting them takes longer than they save.
MOST_WORKERS = 8


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For ``-n auto``: as many as there are cores. But where a card judges, it judges alone."""
    return 0 if hardware.judging_card() is not None else min(len(os.sched_getaffinity(0)), MOST_WORKERS)


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

"""``tilelab demo``: the whole way once, from notebooks to points in a gradebook, without a browser.

For each lab it hands in an untouched skeleton, the solution, a wrong kernel and a hostile notebook, grades them
with nbgrader, and compares the points with what each must get.
"""

import functools
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from grader import catalog
from grader.cli.judging import Device, known
from grader.cli.making import ROOT
from grader.messages import _

if TYPE_CHECKING:
    from grader.classroom.grade import StudentResult

Change = Callable[[str], str]

#: What a wrong student did to the solution, by lab: a text that must occur, and what stands in its place.
WRONG = {
    "lab00_environment": ("T.copy(A[by * block_M, bx * block_N]", "T.copy(A[bx * block_M, by * block_N]"),
    "lab01_vector_add": ("if index < N:", "if index <= N:"),
    "lab03_schedules": ("227 // stage", "227 / stage"),
    "lab02_matmul": ("T.Pipelined(T.ceildiv(K, block_K)", "T.Pipelined(K // block_K"),
    "lab04_fused_epilogue": ("z = acc[i, j] + bias_tile[j]", "z = acc[i, j] + bias_tile[i]"),
    "lab05_softmax": (" * T.exp(before[i] - top[i])", ""),
    "lab06_flash_attention": ("key <= query", "key < query"),
    "lab07_autotuning": ("* stage + tile)", "* stage)"),
    "lab08_introspection": ("T.reduce_absmax(x, top, dim=1, clear=False)", "T.reduce_absmax(x, top, dim=1)"),
}

#: A cell that a hostile student adds, by lab.
HOSTILE = {
    "lab03_schedules": """
class Schedules(list):
    def __eq__(self, other):
        return True

schedules = Schedules([best] * 1000)
best = {"block_M": schedules}
predictions = type("Always", (dict,), {"__getitem__": lambda self, name: 16})()
""",
    "lab00_environment": """
tile_copy = torch.clone
""",
    "lab01_vector_add": """
vector_add = tilelang.jit(out_idx=[-1], compile_flags=["-ccbin", "/tmp/not-a-compiler"])(vector_add.func.orig_func)
""",
    "lab02_matmul": """
import os, sqlite3, sys, time
import grader, torch

grader.check = lambda *a, **k: print("100 / 100 points")
torch.allclose = torch.equal = lambda *a, **k: True
time.perf_counter = time.monotonic = lambda: 0.0
sys.modules["pytest"] = sys.modules["grader.judge"] = sys.modules["grader.verdict"] = torch
print('{"outcome": "passed", "points": 100}')
try:
    database = sqlite3.connect("../../gradebook.db")
    database.execute("update grade set manual_score = 100")
    database.commit()
except sqlite3.Error:
    pass
os._exit(0)
""",
    "lab04_fused_epilogue": """
import torch

@tilelang.jit(out_idx=[-1])
def gemm_bias_gelu(M, N, K):
    return lambda A, B, bias: torch.nn.functional.gelu(torch.addmm(bias, A, B), approximate="tanh")
""",
    "lab05_softmax": """
import torch

softmax = lambda M, N: lambda X: torch.softmax(X, dim=1)
online_softmax = torch.compile(softmax)
""",
    "lab06_flash_attention": """
import torch

attention = lambda B, H, S, D: torch.nn.functional.scaled_dot_product_attention
causal_attention = lambda B, H, S, D: lambda Q, K, V: attention(B, H, S, D)(Q, K, V, is_causal=True)
""",
    "lab07_autotuning": """
class Everything(list):
    def __contains__(self, schedule):
        return True

    def __eq__(self, other):
        return True

kept = Everything([{}])
configs = Everything([tuned | {"num_stages": number} for number in range(1000)])
cache_answers = type("Always", (dict,), {"__getitem__": lambda self, name: 64})()
projection = lambda M, N, K, **schedule: lambda X, W, R: torch.addmm(R, X, W)
""",
    "lab08_introspection": """
import torch

class Right(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__

scale_rows = lambda M, N: lambda X: X / X.abs().amax(1, keepdim=True)
scores = lambda M, N, K: lambda A, B: "wgmma TMA load mbarrier mma ldmatrix cp.async" and A @ B.T
standardise = lambda M, N: lambda X: torch.nn.functional.layer_norm(X, (N,))
landmarks_sm_80 = {name: Right("mma") for name in landmarks_sm_80}
landmarks_sm_90a = {name: Right("mma") for name in landmarks_sm_90a}
""",
}

#: (points, of assessed) on the simulator for each kind of notebook, by lab. What is refused, or can't be judged,
#: is decided in full: no GPU could give it points.
EXPECTED = {
    "lab00_environment": {"solution": (100, 100), "skeleton": (10, 100), "wrong": (30, 100), "hostile": (0, 100)},
    "lab01_vector_add": {"solution": (70, 70), "skeleton": (5, 70), "wrong": (50, 70), "hostile": (0, 100)},
    "lab03_schedules": {"solution": (60, 60), "skeleton": (0, 85), "wrong": (45, 60), "hostile": (0, 85)},
    "lab02_matmul": {"solution": (60, 60), "skeleton": (5, 60), "wrong": (40, 60), "hostile": (0, 100)},
    "lab04_fused_epilogue": {"solution": (60, 60), "skeleton": (5, 60), "wrong": (5, 60), "hostile": (0, 100)},
    "lab05_softmax": {"solution": (80, 80), "skeleton": (10, 80), "wrong": (50, 80), "hostile": (0, 100)},
    "lab06_flash_attention": {"solution": (70, 70), "skeleton": (5, 100), "wrong": (40, 70), "hostile": (0, 100)},
    "lab07_autotuning": {"solution": (80, 80), "skeleton": (0, 100), "wrong": (50, 80), "hostile": (0, 100)},
    "lab08_introspection": {
        "solution": (100, 100),
        "skeleton": (5, 100),
        "wrong": (70, 100),
        "hostile": (0, 100),
    },
}


def demo(
    device: Annotated[Device, typer.Option(help="Who judges. Points are compared on the simulator.")] = Device.SIM,
    lab: Annotated[list[str] | None, typer.Option(help="A lab, may be repeated.", show_default="all")] = None,
) -> None:
    """Grade right, wrong, untouched and hostile notebooks of every lab, and print the table."""
    from grader.capture import sandbox
    from grader.classroom.course import refresh
    from grader.cli.results import print_results

    labs = [known(name) for name in lab] if lab else list(catalog.LABS)
    started = time.monotonic()
    folder = ROOT / "build" / "demo"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    typer.echo(_("Making a course in {folder} ...").format(folder=folder))
    refresh(ROOT, folder)
    typer.echo(sandbox.describe())
    results: list[StudentResult] = []
    for one in labs:
        hand_in(folder, one)
    for graded in _graded(folder, labs, device):
        results += graded
    print_results(results, Console())
    surprises = [text for result in results for text in _surprise(result)] if device is Device.SIM else []
    for text in surprises:
        typer.echo(text)
    typer.echo(
        _("Done in {seconds:.0f} s. The gradebook is {file}.").format(
            seconds=time.monotonic() - started, file=folder / "gradebook.db"
        )
    )
    if surprises:
        raise typer.Exit(1)


def _graded(course: Path, labs: Iterable[catalog.Lab], device: Device) -> "Iterator[list[StudentResult]]":
    """Grades what was handed in, lab by lab: on the simulator, as many labs at once as there are cores.

    In processes, as nbgrader changes the working folder. The gradebook is made before they start.
    """
    from grader.classroom.grade import grade, load_config, prepare

    ids = [lab.id for lab in labs]
    for name in ids:
        prepare(course, load_config(course, device), name)
    workers = min(len(os.sched_getaffinity(0)), len(ids)) if device is Device.SIM else 1
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        grading = pool.map(functools.partial(grade, course, device=device), ids)
        for name in ids:
            typer.echo(_("Grading {lab} ...").format(lab=name))
            yield next(grading)


def hand_in(course: Path, lab: catalog.Lab) -> None:
    """Writes the four notebooks to ``submitted/``."""
    import nbformat

    solution = course / "source" / lab.id / lab.notebook
    before, after = WRONG[lab.id]
    notebooks = {
        "skeleton": nbformat.read(ROOT / "labs" / lab.id / lab.notebook, as_version=4),
        "solution": nbformat.read(solution, as_version=4),
        "wrong": _replace(nbformat.read(solution, as_version=4), before, after),
        "hostile": _append(nbformat.read(solution, as_version=4), HOSTILE[lab.id]),
    }
    for student, notebook in notebooks.items():
        place = course / "submitted" / student / lab.id
        place.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, place / lab.notebook)


def _replace(notebook, before: str, after: str):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and before in cell.source]
    if not cells:
        raise ValueError(f"the solution no longer holds {before!r}")
    for cell in cells:
        cell.source = cell.source.replace(before, after)
    return notebook


def _append(notebook, source: str):
    from nbformat.v4 import new_code_cell

    notebook.cells.append(new_code_cell(source.strip("\n"), id="hostile"))
    return notebook


def _surprise(result) -> list[str]:
    """A line if a notebook's points are not what they must be."""
    want, of = EXPECTED[result.lab][result.student]
    got = result.verdict.assessed_max if result.verdict else result.max_score
    if (result.score, got) == (want, of):
        return []
    return [
        _("{lab}, {student}: {score} of {assessed} points, but should be {want} of {of}.").format(
            lab=result.lab, student=result.student, score=result.score, assessed=got, want=want, of=of
        )
    ]

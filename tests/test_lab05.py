"""Lab 05: its solution is right, wrong kernels made from it are not, and what it says of numbers is so."""

import functools
import itertools
import linecache
import math
from dataclasses import replace

import jupytext
import pytest
import tilelang
import tilelang.language as T
import torch
from cells import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import json_of

from grader import catalog
from grader.capture.format import Capture, Trace
from grader.catalog import Group, Shape
from grader.judge import seeds, tasks
from grader.judge.comparison import compare
from grader.judge.submission import Submission
from grader.verdict import Outcome

LAB = catalog.find("lab05_softmax")
#: Shapes at which wrong kernels are told quickly, and the schedule of the longer rows' kernel that suits them.
SMALL = {
    "softmax": (
        Shape("tiles", {"M": 12, "N": 256}, Group.TILES),
        Shape("tail", {"M": 9, "N": 300}, Group.TAILS),
        Shape("one element", {"M": 1, "N": 1}, Group.TAILS),
    ),
    "online_softmax": (
        Shape("two tiles", {"M": 4, "N": 512}, Group.TILES),
        Shape("eight tiles", {"M": 2, "N": 2048}, Group.TILES),
        Shape("tail", {"M": 3, "N": 600}, Group.TAILS),
        Shape("one element", {"M": 1, "N": 1}, Group.TAILS),
    ),
}
SCHEDULE = {"softmax": {}, "online_softmax": {"block_N": 256, "threads": 128}}
_numbers = itertools.count(1)


@functools.cache
def cells():
    """The solution's code cells by grade_id."""
    notebook = jupytext.read(ROOT / "solutions" / f"{LAB.id}.py", fmt="py:percent")
    found = [cell for cell in notebook.cells if cell.cell_type == "code" and "nbgrader" in cell.metadata]
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in found}


def outcomes(name, *changes, shapes=SMALL, **schedule):
    """The judge's answers for the solution's kernel with texts of its cell changed; each occurs at least once."""
    text = cells()[name]
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file = f"<lab 05, {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"tilelang": tilelang, "T": T, "math": math}
    exec(compile(text, file, "exec"), names)
    lab = replace(LAB, kernels=(replace(LAB.kernel(name), shapes=tuple(shapes[name])),))
    traces = tuple(
        Trace(name, shape.name, ir=json_of(names[name].get_tir(**shape.sizes, **schedule)))
        for shape in shapes[name]
    )
    judged = Submission(Capture(LAB.id, LAB.version, traces, sandbox="test"), lab, None, "test")
    return {
        "tiles": judged.correct(name, Group.TILES).outcome,
        "tails": judged.correct(name, Group.TAILS).outcome,
        "clean": judged.clean(name).outcome,
        "lean": judged.lean(name).outcome,
    }


@pytest.mark.parametrize("name", ["softmax", "online_softmax"])
def test_the_solution_passes_at_the_labs_shapes(name):
    untimed = [shape for shape in LAB.kernel(name).shapes if shape.group is not Group.TIMED]
    assert set(outcomes(name, shapes={name: untimed}).values()) == {Outcome.PASSED}


@pytest.mark.parametrize(
    ("name", "schedule", "changes"),
    [
        ("softmax", {"rows": 4}, ()),
        ("softmax", {"threads": 32}, ()),
        ("softmax", {}, (("T.exp(x[i, j] - top[i])", "T.exp2((x[i, j] - top[i]) * 1.44269504)"),)),
        ("softmax", {}, (("T.exp(x[i, j] - top[i])", "T.exp2(x[i, j] * 1.44269504 - top[i] * 1.44269504)"),)),
        ("online_softmax", {"rows": 2, "block_N": 512, "threads": 128}, ()),
        ("online_softmax", {"block_N": 128, "threads": 64}, ()),
        ("online_softmax", {"block_N": 256}, (("(tiles - 1 - k) * block_N", "k * block_N"),)),
        ("online_softmax", {}, (("T.exp(before[i] - top[i])", "T.exp2((before[i] - top[i]) * 1.44269504)"),)),
    ],
)
def test_what_is_right_passes(name, schedule, changes):
    assert set(outcomes(name, *changes, **schedule).values()) == {Outcome.PASSED}


HALF_SUM = ('total = T.alloc_fragment((rows,), "float32")', 'total = T.alloc_fragment((rows,), "float16")')
EVERYWHERE, AT_TAILS = {"tiles", "tails"}, {"tails"}
WRONG = {
    "softmax": [
        ("no maximum", EVERYWHERE, ("x[i, j] - top[i]", "x[i, j]")),
        ("half-precision sum", EVERYWHERE, HALF_SUM),
        ("padded with zeros", AT_TAILS, ('-T.infinity("float32")', "0.0")),
        ("padding begins one too late", AT_TAILS, ("j >= N", "j > N")),
        ("no division", EVERYWHERE, (" / total[i]", "")),
        ("minimum", EVERYWHERE, ("reduce_max", "reduce_min")),
        ("another row's sum", EVERYWHERE, ("/ total[i]", "/ total[(i + 1) % rows]"), ("rows=1", "rows=4")),
        ("another row", EVERYWHERE, ("Y[bx * rows, 0]", "Y[T.ceildiv(M, rows) - 1 - bx, 0]")),
    ],
    "online_softmax": [
        ("no rescaling", EVERYWHERE, (" * T.exp(before[i] - top[i])", "")),
        ("rescaled upwards", EVERYWHERE, ("before[i] - top[i]", "top[i] - before[i]")),
        ("stale factor", EVERYWHERE, ("T.reduce_sum(", "T.copy(top, before); T.reduce_sum(")),
        ("maximum not carried", EVERYWHERE, (", clear=False", "")),
        ("maximum from 0 on", EVERYWHERE, ("LOWEST = -1e30", "LOWEST = 0.0")),
        ("maximum from -inf on", EVERYWHERE, ("LOWEST = -1e30", "LOWEST = -math.inf")),
        ("no maximum in the first pass", EVERYWHERE, ("T.exp(x[i, j] - top[i])\n", "T.exp(x[i, j])\n")),
        ("no maximum in the second pass", EVERYWHERE, ("(x[i, j] - top[i]) /", "(x[i, j]) /")),
        ("half-precision sum", EVERYWHERE, HALF_SUM),
        ("padded with zeros", AT_TAILS, ('-T.infinity("float32")', "0.0")),
        ("divided by the last part", EVERYWHERE, ("/ total[i]", "/ part[i]")),
        (
            "one tile less in the first pass",
            EVERYWHERE,
            (
                "for k in T.serial(tiles):\n                T.copy",
                "for k in T.serial(T.max(tiles - 1, 1)):\n                T.copy",
            ),
        ),
        (
            "the next tile's scores",
            EVERYWHERE,
            ("T.copy(X[bx * rows, start]", "T.copy(X[bx * rows, (start + block_N) % N]"),
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "failing", "changes"),
    [
        pytest.param(name, failing, changes, id=f"{name}: {what}")
        for name, rows in WRONG.items()
        for what, failing, *changes in rows
    ],
)
def test_what_is_wrong_fails(name, failing, changes):
    found = outcomes(name, *changes, **SCHEDULE[name])
    assert {part for part in ("tiles", "tails") if found[part] is Outcome.FAILED} == failing


def test_a_row_that_is_read_again_is_not_lean():
    again = (
        "            T.reduce_max(x, top",
        "            T.copy(X[bx * rows, 0], x)\n            T.reduce_max(x, top",
    )
    found = outcomes("softmax", again)
    assert {part for part, outcome in found.items() if outcome is Outcome.FAILED} == {"tails", "lean"}
    again = (" start = ", " T.copy(X[bx * rows, 0], x); start = ")
    found = outcomes("online_softmax", again, **SCHEDULE["online_softmax"])
    assert {part for part, outcome in found.items() if outcome is Outcome.FAILED} == {"lean"}


# Inputs


@pytest.mark.parametrize("name", ["softmax", "online_softmax"])
def test_no_row_is_masked_as_a_whole_and_every_row_has_a_softmax(name):
    task = tasks.find(LAB.id, name)
    for shape in LAB.kernel(name).shapes:
        if shape.group is Group.TIMED:
            continue
        for family in task.families:
            inputs = task.inputs(family, shape, seeds.generator("test", name, shape.name, family))
            reference = task.reference(inputs)
            assert inputs[0].isfinite().any(1).all()
            assert reference.isfinite().all()
            assert torch.allclose(reference.sum(1), torch.ones(()).double())


def test_masked_rows_begin_with_whole_tiles_of_nothing():
    """That is what a maximum that starts at -inf fails on."""
    task = tasks.find(LAB.id, "online_softmax")
    (x,) = task.inputs("masked", LAB.kernel("online_softmax").shape("several tiles"), seeds.generator("test"))
    assert (x[:, :8192] == -math.inf).all()


def test_large_scores_overflow_without_the_maximum():
    task = tasks.find(LAB.id, "softmax")
    (x,) = task.inputs("large", LAB.kernel("softmax").shape("many rows"), seeds.generator("test"))
    sums = x.exp().sum(1)
    assert set(sums.tolist()) == {0.0, math.inf}


@pytest.mark.parametrize("family", tasks.find(LAB.id, "online_softmax").families)
def test_the_bound_stays_useful_at_the_timed_length(family):
    """It grows with the tiles' number and the scores' size: it must tell a weight from half as much again."""
    task = tasks.find(LAB.id, "online_softmax")
    inputs = task.inputs(family, Shape("two rows", {"M": 2, "N": 65_536}, Group.TILES), seeds.generator("test"))
    reference = task.reference(inputs)
    bound = task.bound(inputs, reference)
    large = reference > 1e-30
    assert (bound[large] < 0.5 * reference[large]).all()


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 700),
    family=st.sampled_from(tasks.find(LAB.id, "softmax").families),
    seed=st.integers(0, 10**6),
)
def test_torchs_softmax_is_within_the_bound(rows, columns, family, seed):
    task = tasks.find(LAB.id, "softmax")
    shape = Shape("drawn", {"M": rows, "N": columns}, Group.TAILS)
    inputs = task.inputs(family, shape, seeds.generator(str(seed)))
    reference = task.reference(inputs)
    assert compare("Y", inputs[0].softmax(1), reference, task.bound(inputs, reference)) is None


def test_the_peers_do_the_work():
    for name in ("softmax", "online_softmax"):
        task = tasks.find(LAB.id, name)
        inputs = task.inputs("normal", Shape("small", {"M": 4, "N": 100}, Group.TAILS), seeds.generator("test"))
        output = torch.empty(4, 100)
        launch = task.peer("torch.softmax").prepare(inputs, output)
        assert launch() is output
        reference = task.reference(inputs)
        assert compare("Y", output, reference, task.bound(inputs, reference)) is None

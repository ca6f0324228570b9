"""Lab 06: its solution is right, wrong kernels made from it are not, and what it says of numbers is so."""

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

from grader import catalog, ir, simulator
from grader.autograders import judge_capture
from grader.capture import capture_notebook
from grader.capture.format import Capture, Trace
from grader.catalog import Group, Shape
from grader.judge import lab06_flash_attention as lab06
from grader.judge import seeds, tasks
from grader.judge.comparison import compare, poison
from grader.judge.parts import mismatch
from grader.judge.submission import Submission
from grader.verdict import Outcome

LAB = catalog.find("lab06_flash_attention")
NAMES = ("attention", "causal_attention")
_numbers = itertools.count(1)


@functools.cache
def source():
    """The solution's rules and its two solution cells, as one text."""
    notebook = jupytext.read(ROOT / "solutions" / f"{LAB.id}.py", fmt="py:percent")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return "\n\n\n".join(
        cell.source
        for cell in cells
        if cell.metadata.get("nbgrader", {}).get("solution") or "def rules_of_attention" in cell.source
    )


def built(name, *changes):
    """The solution's kernel with texts changed; each occurs at least once."""
    text = source()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file = f"<lab 06, {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"tilelang": tilelang, "T": T, "math": math}
    exec(compile(text, file, "exec"), names)
    return names[name]


@functools.cache
def case(name, shape, family):
    task, shape = tasks.find(LAB.id, name), LAB.kernel(name).shape(shape)
    inputs = task.inputs(family, shape, seeds.generator("test", family, shape.name))
    reference = task.reference(inputs)
    return inputs, reference, task.bound(inputs, reference)


TILES, TAILS = ("several heads", "long"), ("odd", "short", "one key", "tail")


def first_failure(name, shapes, *changes):
    """The first of the ``shapes`` and families that the changed kernel gets wrong; None if there is none."""
    kernel = built(name, *changes)
    for shape in map(LAB.kernel(name).shape, shapes):
        typed = ir.read(json_of(kernel.get_tir(**shape.sizes)))
        for family in lab06.FAMILIES:
            inputs, reference, bound = case(name, shape.name, family)
            output = torch.empty(reference.shape, dtype=torch.float16)
            poison(output)
            run = simulator.run(typed, (*inputs, output), outputs=(3,))
            if run.faults or compare("O", output, reference, bound) is not None:
                return shape.name, family
    return None


SMALL = (("block_M=192", "block_M=64"), ("block_N=128", "block_N=64"), ("threads=384", "threads=128"))
REVERSED = (
    (
        "            for n in T.Pipelined(tiles(first), num_stages=num_stages):\n",
        "            for m in T.serial(tiles(first)):\n                n = tiles(first) - 1 - m\n",
    ),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "changes",
    [
        (),
        SMALL,
        (("block_N=128", "block_N=256"),),
        (("before[i] * to_exponent - top[i] * to_exponent", "(before[i] - top[i]) * to_exponent"),),
        (("LOWEST = -1e30", "LOWEST = -math.inf"),),
        REVERSED,
        (("result[i, j] / total[i]", "result[i, j] * (1.0 / total[i])"),),
    ],
    ids=["as it is", "small tiles", "other tiles", "another factor", "from -inf on", "backwards", "reciprocal"],
)
def test_what_is_right_passes(name, changes):
    assert first_failure(name, ("several heads", "odd", "short"), *changes) is None


MASKED = ("may_see(first + i, n * block_N + j), 0, unseen", "may_see(first + i, n * block_N + j), 0, 0")
WRONG = [
    ("attention", "result not rescaled", TILES, (("result[i, j] * factor[i]", "result[i, j]"),)),
    ("attention", "sum not rescaled", TILES, (("total[i] * factor[i] + part[i]", "total[i] + part[i]"),)),
    (
        "attention",
        "rescaled the wrong way",
        TILES,
        (
            (
                "T.exp2(before[i] * to_exponent - top[i] * to_exponent)",
                "T.exp2(top[i] * to_exponent - before[i] * to_exponent)",
            ),
        ),
    ),
    ("attention", "no scale", TILES, ((" / math.sqrt(D)", ""),)),
    ("attention", "scale without its root", TILES, (("math.sqrt(D)", "D"),)),
    ("attention", "scale without the change of base", TILES, (("math.log2(math.e) /", "1 /"),)),
    ("attention", "no division", TILES, (("result[i, j] / total[i]", "result[i, j]"),)),
    ("attention", "divided by the last part", TILES, (("/ total[i]", "/ part[i]"),)),
    ("attention", "maximum of the last tile only", TILES, ((", clear=False", ""),)),
    (
        "attention",
        "stale maximum",
        TILES,
        (
            ("                T.copy(top, before)\n", ""),
            ("T.reduce_sum(scores, part, dim=1)", "T.reduce_sum(scores, part, dim=1); T.copy(top, before)"),
        ),
    ),
    (
        "attention",
        "keys not transposed",
        TILES,
        (
            ("transpose_B=True, ", ""),
            ("block_N=128", "block_N=64"),
            ("block_M=192", "block_M=64"),
            ("threads=384", "threads=128"),
        ),
    ),
    (
        "attention",
        "half-precision result",
        TILES,
        (
            (
                'result = T.alloc_fragment((block_M, D), "float32")',
                'result = T.alloc_fragment((block_M, D), "float16")',
            ),
        ),
    ),
    (
        "attention",
        "half-precision sum",
        TILES,
        (('total = T.alloc_fragment((block_M,), "float32")', 'total = T.alloc_fragment((block_M,), "float16")'),),
    ),
    (
        "attention",
        "half-precision scores",
        TILES,
        (
            (
                'scores = T.alloc_fragment((block_M, block_N), "float32")',
                'scores = T.alloc_fragment((block_M, block_N), "float16")',
            ),
        ),
    ),
    ("attention", "tail counted as zeros", TAILS, (MASKED,)),
    ("attention", "mask one too wide", TAILS, (("key < S", "key <= S"),)),
    ("attention", "mask one too narrow", TAILS, (("key < S", "key < S - 1"),)),
    (
        "attention",
        "the last tile left out",
        TAILS,
        (('"tiles": lambda first: T.ceildiv(S, block_N)', '"tiles": lambda first: T.max(S // block_N, 1)'),),
    ),
    ("attention", "never masked", TAILS, (("(n + 1) * block_N <= S", "True"),)),
    ("causal_attention", "mask one too wide", TILES, (("key <= query", "key <= query + 1"),)),
    ("causal_attention", "mask one too narrow", TILES, (("key <= query", "key < query"),)),
    ("causal_attention", "the other side masked", TILES, (("key <= query", "key >= query"),)),
    ("causal_attention", "no mask", TILES, (("key <= query", "key < S"),)),
    (
        "causal_attention",
        "all_seen says too much",
        TILES,
        (("(n + 1) * block_N - 1 <= first", "n * block_N <= first"),),
    ),
    (
        "causal_attention",
        "all_seen one too wide",
        TILES,
        (
            ("(n + 1) * block_N - 1 <= first", "(n + 1) * block_N - 2 <= first"),
            *SMALL,
            ("block_N=64", "block_N=1"),
        ),
    ),
    (
        "causal_attention",
        "one tile too few",
        TILES,
        (
            (
                "T.ceildiv(T.min(first + block_M, S), block_N)",
                "T.max(T.ceildiv(T.min(first + block_M, S), block_N) - 1, 1)",
            ),
        ),
    ),
    ("causal_attention", "-inf minus -inf", TILES, (("LOWEST = -1e30", "LOWEST = -math.inf"), *REVERSED)),
]


@pytest.mark.parametrize(
    ("name", "changes", "shapes"),
    [pytest.param(name, changes, shapes, id=f"{name}: {what}") for name, what, shapes, changes in WRONG],
)
def test_what_is_wrong_fails(name, changes, shapes):
    assert first_failure(name, shapes, *changes) is not None


def test_a_result_that_is_never_mended_is_right_where_the_maximum_stays():
    """With a result that is never mended, what keeps the first tile's maximum is right: the lab asks which."""
    kernel = built("attention", ("result[i, j] * factor[i]", "result[i, j]"))
    shape = LAB.kernel("attention").shape("several heads")
    typed = ir.read(json_of(kernel.get_tir(**shape.sizes)))
    right = set()
    for family in lab06.FAMILIES:
        inputs, reference, bound = case("attention", shape.name, family)
        output = torch.empty(reference.shape, dtype=torch.float16)
        simulator.run(typed, (*inputs, output), outputs=(3,))
        if compare("O", output, reference, bound) is None:
            right.add(family)
    assert right == {"falling", "first key", "steady", "ties"}


# What is counted


def judged(name, *changes):
    kernel = built(name, *changes)
    traces = tuple(
        Trace(name, shape.name, ir=json_of(kernel.get_tir(**shape.sizes)))
        for shape in LAB.kernel(name).group(Group.TILES)
    )
    return Submission(Capture(LAB.id, LAB.version, traces, sandbox="test"), LAB, None, "test")


ALL_TILES = ("T.ceildiv(T.min(first + block_M, S), block_N)", "T.ceildiv(S, block_N)")


def test_tiles_of_the_future_that_are_visited_are_right_and_counted():
    found = judged("causal_attention", ALL_TILES)
    assert found.correct("causal_attention", Group.TILES).outcome is Outcome.PASSED
    (finding,) = found.lean("causal_attention").findings
    assert (
        "multiplies more than its work needs: 150,994,944 operations in T.gemm, at most 125,829,120"
        in finding.message
    )
    assert "let the loop end" in finding.advice


@pytest.mark.parametrize(
    ("block_M", "block_N", "threads"), [(64, 64, 128), (128, 128, 256), (192, 128, 384), (256, 64, 512)]
)
def test_usual_tiles_are_within_the_count(block_M, block_N, threads):
    schedule = (
        ("block_M=192", f"block_M={block_M}"),
        ("block_N=128", f"block_N={block_N}"),
        ("threads=384", f"threads={threads}"),
    )
    assert judged("causal_attention", *schedule).lean("causal_attention").outcome is Outcome.PASSED


def test_blocks_of_few_queries_read_too_much():
    found = judged("attention", *SMALL, ("block_M=64", "block_M=32"), ("threads=128", "threads=64"))
    (finding, *_others) = found.lean("attention").findings
    assert finding.message.startswith("'attention' moves more bytes than its work needs")


def test_there_is_no_room_for_scores_in_what_may_be_written():
    for shape in LAB.kernel("attention").shapes:
        allowed = tasks.find(LAB.id, "attention").allowance(shape)
        batches, heads, length, depth = shape.sizes.values()
        assert allowed.written == 2 * batches * heads * length * depth
        if length > depth:
            assert allowed.written < 2 * batches * heads * length**2


@pytest.mark.parametrize("length", [1, 2, 5, 64])
def test_the_work_counts_pairs_that_may_be_seen(length):
    seen = torch.ones(length, length).tril().sum()
    sizes = {"B": 3, "H": 2, "S": length, "D": 64}
    full, causal = (tasks.find(LAB.id, name).work(Shape("x", sizes, Group.TAILS)) for name in NAMES)
    assert full.operations == 4 * 3 * 2 * 64 * length**2
    assert causal.operations == 4 * 3 * 2 * 64 * int(seen)
    assert full.bytes == causal.bytes == 4 * 2 * 3 * 2 * length * 64


@pytest.mark.parametrize("kernel", NAMES)
def test_a_check_of_one_kernel_leaves_the_other_alone(kernel):
    nothing = Capture(LAB.id, LAB.version, (), sandbox="test")
    checks = judge_capture(nothing, device="sim", part="fast", kernel=kernel).checks
    assert [check.cell for check in checks] == [f"{kernel}-fast"] * 2


@pytest.mark.parametrize(("right", "wrong"), [("T.min(", "min("), ("key <= query", "key < S and key <= query")])
def test_pythons_own_operators_in_a_rule_are_refused_with_what_to_write_instead(notebook, right, wrong):
    assert source().count(right) == 1
    causal = replace(LAB.kernel("causal_attention"), shapes=(LAB.kernel("causal_attention").shape("tail"),))
    lab = replace(LAB, kernels=(causal,))
    capture = capture_notebook(notebook(LAB.id, "import math", source().replace(right, wrong)), lab)
    (finding,) = Submission(capture, lab, None, "test").correct("causal_attention", Group.TAILS).findings
    assert finding.where.text.strip().startswith("rules[")
    assert "T.And(a, b)" in finding.advice
    assert "T.min(a, b)" in finding.advice


# The reference, and a part of it


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_torchs(name):
    inputs, reference, _bound = case(name, "odd", "normal")
    q, k, v = (tensor.double() for tensor in inputs)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=name == "causal_attention")
    assert torch.allclose(reference, theirs, rtol=1e-12, atol=1e-14)


@settings(max_examples=20, deadline=None)
@given(name=st.sampled_from(NAMES), length=st.integers(1, 200), seed=st.integers(0, 2**31))
def test_a_part_is_that_part_of_the_whole(name, length, seed):
    task = tasks.find(LAB.id, name)
    shape = Shape("x", {"B": 2, "H": 3, "S": length, "D": 64}, Group.TIMED)
    inputs = task.inputs("normal", shape, seeds.generator(str(seed)))
    part = task.part(inputs, torch.Generator().manual_seed(seed))
    whole = task.reference(inputs)
    assert torch.allclose(part.reference, whole[part.index], rtol=1e-9, atol=1e-12)
    assert torch.allclose(part.bound, task.bound(inputs, whole)[part.index], rtol=1e-9)
    rows = part.index[2][..., 0]
    assert rows.shape == (2, 3, min(length, lab06.ROWS))
    assert (rows == 0).any(-1).all() if length > 1 else True
    assert (rows == length - 1).any(-1).all()


LONG = Shape("long", {"B": 1, "H": 2, "S": 600, "D": 64}, Group.TIMED)


@pytest.fixture(scope="module")
def long_run():
    task = tasks.find(LAB.id, "causal_attention")
    inputs = task.inputs("normal", LONG, seeds.generator("long"))
    return task, inputs, task.reference(inputs).half()


def test_a_right_output_passes_by_its_part(long_run):
    task, inputs, right = long_run
    assert mismatch(task, "O", LONG, inputs, right) is None


def test_one_element_that_was_not_written_is_seen_wherever_it_is(long_run):
    task, inputs, right = long_run
    output = right.clone()
    hole = torch.empty(1, dtype=torch.float16)
    poison(hole)
    output[0, 1, 311, 17] = hole
    found = mismatch(task, "O", LONG, inputs, output)
    assert found.message == "1 of 76800 elements of 'O' are never written: O[0, 1, 311, 17]."


def test_a_wrong_tile_is_found_and_named_by_where_it_is(long_run):
    """Of 128 rows in 600, one is drawn that none of 40 wrong ones is among with a probability of 5e-5."""
    task, inputs, right = long_run
    output = right.clone()
    output[0, 1, 200:240] += 1
    found = mismatch(task, "O", LONG, inputs, output)
    assert "that were looked at are wrong: " in found.message
    assert "O[0, 1, 2" in found.evidence[0]


def test_another_part_is_looked_at_each_time(long_run):
    """One wrong row of 600 in 128 is missed 79 times in 100; 60 looks find it but for one in a million."""
    task, inputs, right = long_run
    output = right.clone()
    output[0, 1, 300] += 1
    found = [mismatch(task, "O", LONG, inputs, output) is not None for _look in range(60)]
    assert any(found)
    assert not all(found)


def test_an_output_of_zeros_is_told_as_such(long_run):
    task, inputs, right = long_run
    assert mismatch(task, "O", LONG, inputs, torch.zeros_like(right)).message == "'O' is 0 everywhere."

"""The bounds for softmax, attention and GELU: what is right stays within them, and cheap answers don't.

Sums in half precision are among the kernels of ``patches``.
"""

import dataclasses
import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader import simulator
from grader.ir import nodes
from grader.judge import seeds, tolerance
from grader.judge.comparison import compare
from mutants import references
from mutants.judging import DTYPES, cases, read, traced
from mutants.operators import mutants
from mutants.rewriting import rewritten, substituted
from mutants.tasks import TASKS

CASES = [
    pytest.param(task, number, id=f"{task.name}-{shape.name}-{family}")
    for task in TASKS.values()
    for number, (shape, family) in enumerate(task.runs)
]


def simulated(task, kernel, case):
    output = torch.empty(case.reference.shape, dtype=DTYPES[task.kernel.parameters[-1].dtype])
    run = simulator.run(kernel, (*case.inputs, output), outputs=(len(case.inputs),))
    assert not run.faults
    return output


# What is right


@pytest.mark.parametrize(("task", "number"), CASES)
def test_sums_in_another_order_are_within_the_bound(task, number):
    case = cases(task.name)[number]
    assert compare("out", task.evaluate(case.inputs), case.reference, case.bound) is None


OTHER_TILES = [
    ("matmul", functools.partial(references.matmul, block=16)),
    ("linear_gelu", functools.partial(references.linear_gelu, block=64)),
    ("softmax", functools.partial(references.softmax, rows=4)),
    ("online_softmax", functools.partial(references.online_softmax, block=8)),
    ("attention", functools.partial(references.attention, block=16)),
    ("attention", functools.partial(references.attention, block=128)),
    ("causal_attention", functools.partial(references.attention, causal=True, block=16)),
    ("causal_attention", functools.partial(references.attention, causal=True, block=64)),
]


@pytest.mark.parametrize(("name", "factory"), OTHER_TILES)
def test_other_tiles_are_within_the_bound(name, factory):
    task = TASKS[name]
    kernels = read(task, factory)
    for case in cases(name):
        output = simulated(task, kernels[case.shape.name], case)
        assert compare("out", output, case.reference, case.bound) is None, (case.shape, case.family)


def backwards(kernel):
    """The kernel with its serial loops from the last step to the first."""

    def change(node):
        if not (isinstance(node, nodes.For) and node.kind == nodes.SERIAL):
            return node
        last = nodes.Binary("int32", "Sub", node.extent, nodes.Const("int32", 1))
        return dataclasses.replace(
            node, body=substituted(node.body, {node.var: nodes.Binary("int32", "Sub", last, node.var)})
        )

    return dataclasses.replace(kernel, body=rewritten(kernel.body, change))


@pytest.mark.parametrize("name", ["matmul", "linear_gelu", "online_softmax", "attention"])
def test_tiles_in_reverse_are_within_the_bound(name):
    """Not of causal attention: its last tile has rows without a key, and NaN then."""
    task = TASKS[name]
    for case in cases(name):
        if name == "online_softmax" and case.family == "masked":
            continue
        kernel = backwards(traced(name)[case.shape.name])
        output = simulated(task, kernel, case)
        assert compare("out", output, case.reference, case.bound) is None, (case.shape, case.family)


# What is wrong


@pytest.mark.parametrize(("task", "number"), CASES)
def test_cheap_answers_are_outside_the_bound(task, number):
    case = cases(task.name)[number]
    dtype = DTYPES[task.kernel.parameters[-1].dtype]
    other = task.inputs(case.family, case.shape, seeds.generator("another", task.name, case.family))
    answers = {"zeros": torch.zeros_like(case.reference), "stale": task.reference(other)}
    if case.reference.numel() > 1:
        answers["mean"] = case.reference.mean().expand(case.reference.shape)
    for name, answer in answers.items():
        assert compare("out", answer.to(dtype), case.reference, case.bound) is not None, name


def test_half_precision_sums_are_outside_the_bound():
    """Of these buffers, all hold sums or statistics; ``equivalents`` says what of one tile alone may be a half."""
    sums = {
        "matmul": {"c"},
        "linear_gelu": {"z"},
        "softmax": {"x", "top", "total"},
        "online_softmax": {"x", "top", "total", "before", "part"},
        "attention": {"s", "o", "top", "before", "factor", "total"},
    }
    for name, buffers in sums.items():
        task = TASKS[name]
        for buffer in buffers:
            key = (next(n for n, b in enumerate(traced(name)["tail"].allocations) if b.name == buffer), "float16")
            assert any(_fails(task, shape.name, key) for shape in reversed(task.kernel.shapes)), (name, buffer)


def _fails(task, shape, key):
    found = (mutant for mutant in mutants(traced(task.name)[shape]) if mutant.operator == "a narrower dtype")
    kernel = next(mutant for mutant in found if mutant.key[-1] == key).make()
    return any(
        compare("out", simulated(task, kernel, case), case.reference, case.bound) is not None
        for case in cases(task.name)
        if case.shape.name == shape
    )


def test_scores_beyond_fp32_have_no_bound():
    scores = torch.tensor([[1e8, 0.0]]).double()
    with pytest.raises(ValueError, match="so large"):
        tolerance.softmax(scores, torch.float32)


# Laws


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.integers(1, 200),
    spread=st.sampled_from([0.01, 1.0, 30.0, 1e3, 1e4]),
    tile=st.sampled_from([16, 32, 64, 256]),
    masked=st.booleans(),
)
def test_an_online_softmax_of_any_tiles_is_within_the_bound(seed, columns, spread, tile, masked):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, columns, generator=generator) * spread
    if masked:
        x[:, 1::3] = -math.inf
    order = torch.randperm(columns, generator=generator)
    log2e = torch.tensor(1.44269504)
    top, total = torch.full((4, 1), -1e30), torch.zeros(4, 1)
    for part in x[:, order].split(tile, dim=1):
        new = torch.maximum(top, part.amax(1, keepdim=True))
        total = total * torch.exp2(top * log2e - new * log2e)
        total = total + torch.exp2(part * log2e - new * log2e).sum(1, keepdim=True)
        top = new
    output = torch.exp2(x * log2e - top * log2e) / total
    exact = x.double()
    assert compare("out", output, exact.softmax(1), tolerance.softmax(exact, torch.float32)) is None


@settings(max_examples=60, deadline=None)
@given(
    z=st.lists(st.floats(-12, 12, width=32), min_size=1, max_size=50),
    error=st.floats(0, 0.5),
    seed=st.integers(0, 100),
)
def test_gelu_of_a_value_within_its_error_is_within_the_bound(z, error, seed):
    z = torch.tensor(z).double()
    shift = (2 * torch.rand(z.shape, generator=torch.Generator().manual_seed(seed)).double() - 1) * error
    exact = torch.nn.functional.gelu(z, approximate="tanh")
    near = z + shift
    inner = 0.7978845608 * (near + 0.044715 * near**3)
    got = (0.5 * near * (1 + torch.tanh(inner))).half()
    assert compare("out", got, exact, tolerance.gelu(z, torch.full_like(z, error), torch.float16)) is None


def test_gelus_second_derivative_is_below_1():
    z = torch.linspace(-10, 10, 20_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.nn.functional.gelu(z, approximate="tanh").sum(), z, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), z)
    assert float(bend.abs().max()) < 1

"""Mutants of right kernels fail the judge, or are right after all, and somebody knows why.

Here every tenth mutant is judged; ``make mutants`` judges all of them and prints the table.
"""

from collections import Counter

import pytest

from grader import ir
from grader.ir import nodes
from mutants.campaign import named, run
from mutants.equivalents import KNOWN
from mutants.judging import judge, traced
from mutants.operators import OPERATORS, mutants
from mutants.rewriting import places, rewritten, with_node
from mutants.tasks import TASKS

EVERY = 10


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_mutants_fail_or_are_explained(task):
    results = list(run(task, slice(list(TASKS).index(task.name), None, EVERY)))
    assert not [(result.mutant.operator, result.name, result.problem) for result in results if result.problem]
    failed = [result.verdict for result in results if result.verdict.failed]
    assert len(failed) > 0.9 * len(results)
    assert all(verdict.evidence for verdict in failed)
    faults = [verdict for verdict in failed if verdict.evidence.startswith("block (")]
    assert len(faults) > 0.3 * len(failed)
    assert all(verdict.line is not None for verdict in faults)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_several_blocks_at_once_find_the_same(task):
    """The judge runs blocks at once where it can: that may change neither what is found nor where."""
    kernels = traced(task.name)
    shape = task.kernel.shapes[0].name
    assert not judge(task, kernels, batched=False).failed
    for _name, mutant in named(task)[:: 4 * EVERY]:
        changed = dict(kernels) | {shape: mutant.make()}
        together, alone = judge(task, changed), judge(task, changed, batched=False)
        assert (together.kind, together.evidence, together.line) == (alone.kind, alone.evidence, alone.line)


def test_every_operator_finds_places_in_some_kernel():
    found = Counter(mutant.operator for task in TASKS.values() for _name, mutant in named(task))
    assert set(found) == set(OPERATORS)
    assert sum(found.values()) > 2_000


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_names_are_unique_and_the_table_of_reasons_has_no_stale_entry(task):
    names = [(mutant.operator, name) for name, mutant in named(task)]
    assert len(set(names)) == len(names)
    for entry in KNOWN:
        if task.name in entry.tasks:
            assert any(entry.matches(task.name, *name) for name in names), entry


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_mutant_is_another_kernel(task):
    right = traced(task.name)[task.kernel.shapes[0].name]
    text = ir.write(right, lines=False)
    for _name, mutant in named(task)[::EVERY]:
        assert ir.write(mutant.make(), lines=False) != text, mutant
    assert ir.write(right, lines=False) == text  # which itself is as it was


def test_rewriting_nothing_changes_nothing():
    kernel = traced("attention")["tail"]
    assert rewritten(kernel.body, lambda node: node) is kernel.body
    found = list(places(kernel))
    assert len({place.path for place in found}) == len(found)
    for place in found:
        there = nodes.Evaluate(None, nodes.Const("int32", 7))
        again = with_node(kernel.body, place.path, there)
        for name, number in place.path:
            again = getattr(again, name) if number is None else getattr(again, name)[number]
        assert again is there


def test_a_reduction_along_another_dimension_is_refused():
    """What doesn't fit is said before anything runs, not left to a simulator that lacks it."""
    task = TASKS["softmax"]
    (wrong, *_others) = (
        mutant
        for mutant in mutants(traced("softmax")["tail"])
        if mutant.operator == "another reduction" and mutant.key[-1] == "dim"
    )
    verdict = judge(task, {"tail": wrong.make()})
    assert verdict.failed
    assert "8×40 along dimension 0 does not fit a target of 8" in verdict.evidence


@pytest.mark.parametrize(
    ("name", "operator", "text", "message"),
    [
        ("matmul", "a narrower dtype", "a in bfloat16", "multiplies bfloat16 by float16 into float32"),
        ("matmul", "a narrower dtype", "c in bfloat16", "multiplies float16 by float16 into bfloat16"),
        ("softmax", "an index off by one", "top[0:8]  →  top[1:9]  in  T.reduce", "a part of the fragment 'top'"),
    ],
)
def test_what_tilelang_does_not_compile_or_gets_wrong_is_refused(name, operator, text, message):
    found = (mutant for place, mutant in named(TASKS[name]) if mutant.operator == operator and text in place)
    verdict = judge(TASKS[name], {"tail": next(found).make()})
    assert verdict.failed
    assert message in verdict.evidence

"""Judges all mutants of a reference kernel, and says of each survivor why it is right after all."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from grader import ir
from grader.catalog import Shape
from mutants.equivalents import Known, known
from mutants.judging import UNSUPPORTED, Kernels, Lazy, Verdict, judge, traced
from mutants.operators import Mutant, mutants
from mutants.tasks import Task

INDEPENDENT = "neither statement touches what the other writes"


@dataclass(frozen=True)
class Result:
    """What became of a mutant. ``name`` is that of its change, unique for the operator and the task.

    ``reason`` is why one that did not fail is right; ``problem`` is what should not be: that there is none, or
    that it does not hold.
    """

    task: str
    mutant: Mutant
    name: str
    verdict: Verdict
    entry: Known | None
    reason: str
    problem: str


def named(task: Task) -> list[tuple[str, Mutant]]:
    """The mutants of a task's kernel at its first shape, with names that change only if the kernel does."""
    seen: Counter = Counter()
    found = []
    for mutant in mutants(traced(task.name)[task.kernel.shapes[0].name]):
        seen[mutant.operator, mutant.where] += 1
        number = seen[mutant.operator, mutant.where]
        found.append((mutant.where if number == 1 else f"{mutant.where}  #{number}", mutant))
    return found


def run(task: Task, chosen: slice = slice(None)) -> Iterator[Result]:
    """Judges a task's mutants, or some of them. Where a shape has no such place, its kernel stays right."""
    right = traced(task.name)
    reference = judge(task, right, batched=False)
    if reference.failed or reference.kind:
        raise AssertionError(f"the reference kernel {task.name} is wrong: {reference}")
    places = {name: {mutant.key: mutant for mutant in mutants(kernel)} for name, kernel in right.items()}
    for name, mutant in named(task)[chosen]:

        def make(shape: Shape, mutant: Mutant = mutant) -> ir.Kernel:
            twin = places[shape.name].get(mutant.key)
            return right[shape.name] if twin is None else twin.make()

        yield _explained(task, name, mutant, Lazy(task, make), reference)


def _explained(task: Task, name: str, mutant: Mutant, kernels: Kernels, reference: Verdict) -> Result:
    verdict, entry = judge(task, kernels), known(task.name, mutant.operator, name)
    reason = problem = ""
    if verdict.failed:
        if entry is not None:
            problem = f"it fails, though it is said to be right: {entry.why}"
    elif verdict.kind == UNSUPPORTED:
        problem = "it is not judged"
    elif entry is None and not mutant.independent:
        problem = "it passes, and nobody knows why"
    else:
        reason = INDEPENDENT if mutant.independent else entry.why
        # A block at a time: as parts of another batch, torch may round a function otherwise.
        alone = judge(task, kernels, batched=False)
        if alone.failed:
            problem = f"it fails a block at a time, though {reason}: {alone.evidence}"
        elif alone.outputs != reference.outputs and (mutant.independent or entry.same_outputs):
            problem = f"its outputs differ, though {reason}"
    return Result(task.name, mutant, name, verdict, entry, reason, problem)

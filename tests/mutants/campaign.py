"""Judges all mutants of a reference kernel, and says of each survivor why it is right after all."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from grader import ir
from grader.catalog import Shape
from grader.ir.nodes import Line
from mutants.equivalents import Reason, reason_for
from mutants.judging import UNSUPPORTED, Lazy, Verdict, judge, traced
from mutants.operators import Mutant, mutants
from mutants.tasks import Task


@dataclass(frozen=True)
class Result:
    """What became of a mutant. ``reason`` is why one that did not fail is right; None if nobody knows."""

    task: str
    mutant: Mutant
    name: str  # of the change, unique for the operator and the task
    verdict: Verdict
    reason: Reason | None
    same_outputs: bool

    @property
    def explained(self) -> bool:
        return self.verdict.failed or self.reason is not None


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
    first, *others = [shape.name for shape in task.kernel.shapes]
    elsewhere = {name: {mutant.key: mutant for mutant in mutants(right[name])} for name in others}
    reference = judge(task, right)
    if reference.failed or reference.kind:
        raise AssertionError(f"the reference kernel {task.name} is wrong: {reference}")
    for name, mutant in named(task)[chosen]:

        def make(shape: Shape, mutant: Mutant = mutant) -> ir.Kernel:
            twin = mutant if shape.name == first else elsewhere[shape.name].get(mutant.key)
            return right[shape.name] if twin is None else twin.make()

        kernels = Lazy(task, make)
        verdict = judge(task, kernels)
        same = not verdict.failed and verdict.outputs == reference.outputs
        reason = None
        if not verdict.failed and verdict.kind != UNSUPPORTED:
            if all(ir.write(kernels[s], lines=False) == ir.write(right[s], lines=False) for s in kernels):
                reason = Reason("it is the same kernel", same_outputs=True)
            elif mutant.independent:
                reason = Reason("neither statement touches what the other writes", same_outputs=True)
            else:
                reason = reason_for(task.name, mutant.operator, name)
        yield Result(task.name, mutant, name, verdict, reason, same)


def line_text(line: Line | None) -> str:
    return "" if line is None else f"line {line.number}"

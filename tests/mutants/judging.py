"""Judges a kernel's typed nodes by the judge's own parts: admission's checks, the simulator, the comparison."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from grader import ir, simulator
from grader.admit import Refused
from grader.admit.limits import check_limits
from grader.admit.operators import check_operators
from grader.admit.scopes import check_scopes
from grader.admit.signature import check_signature
from grader.capture.lines import students_lines
from grader.catalog import Shape
from grader.ir.nodes import Line
from grader.judge import seeds
from grader.judge.comparison import compare, poison
from grader.judge.task import Tensors
from grader.simulator import Budget
from mutants.tasks import TASKS, Task

Kernels = Mapping[str, ir.Kernel]  # by name of shape

#: Kinds of evidence that are no fault of the simulator's.
WRONG, REFUSED, ENDLESS = "wrong values", "refused", "over budget"
UNSUPPORTED = "unsupported"  # nobody judged it


@dataclass(frozen=True)
class Verdict:
    """``failed``, with what kind of evidence, in words, and the line if one is known.

    A kernel that did not fail has ``outputs``: for each shape and family, as bits.
    """

    failed: bool
    kind: str = ""
    evidence: str = ""
    line: Line | None = None
    outputs: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Case:
    """One shape and family: inputs, the exact result and how far off it may be."""

    shape: Shape
    family: str
    inputs: Tensors
    reference: torch.Tensor
    bound: torch.Tensor


DTYPES = {"float16": torch.float16, "float32": torch.float32}


class Lazy(Mapping):
    """A kernel's typed nodes by shape, made when first asked for: most wrong kernels fail at the first shape."""

    def __init__(self, task: Task, make: Callable[[Shape], ir.Kernel]) -> None:
        self._make = {shape.name: functools.cache(functools.partial(make, shape)) for shape in task.kernel.shapes}

    def __getitem__(self, name: str) -> ir.Kernel:
        return self._make[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._make)

    def __len__(self) -> int:
        return len(self._make)


@functools.cache
def traced(name: str) -> Kernels:
    """The typed nodes of a reference kernel at each of its shapes."""
    return read(TASKS[name], TASKS[name].make)


def read(task: Task, factory: Callable) -> Kernels:
    """What ``factory(**sizes)``, which gives a prim_func, is at each of the task's shapes."""

    def make(shape: Shape) -> ir.Kernel:
        from tilelang import tvm

        with students_lines(factory):
            return ir.read(tvm.ir.save_json(factory(**shape.sizes)))

    return Lazy(task, make)


@functools.cache
def cases(name: str) -> tuple[Case, ...]:
    task = TASKS[name]
    made = []
    for shape, family in task.runs:
        inputs = task.inputs(family, shape, seeds.generator("wrong kernels", name, shape.name, family))
        reference = task.reference(inputs)
        made.append(Case(shape, family, inputs, reference, task.bound(inputs, reference)))
    return tuple(made)


def judge(task: Task, kernels: Kernels, *, batched: bool = True) -> Verdict:
    """Runs a kernel on every family at every shape, until something is wrong.

    A fault counts before wrong values do, as it has a line. ``batched``: blocks may run at once, as they do in the
    judge.
    """
    budget = Budget(steps=200_000, seconds=60.0)
    outputs, admitted = [], set()
    for case in cases(task.name):
        kernel, where = kernels[case.shape.name], f"{case.shape.name}, {case.family}"
        if case.shape.name not in admitted:
            try:
                _admit(task, kernel, case.shape)
            except Refused as error:
                return Verdict(True, REFUSED, f"{error.message} ({where})", error.line)
            admitted.add(case.shape.name)
        output = torch.empty(case.reference.shape, dtype=DTYPES[task.kernel.parameters[-1].dtype])
        poison(output)
        try:
            run = simulator.run(
                kernel, (*case.inputs, output), budget=budget, outputs=(len(case.inputs),), batched=batched
            )
        except simulator.Unsupported as error:
            return Verdict(False, UNSUPPORTED, error.what, error.line)
        except simulator.OverBudget as error:
            return Verdict(True, ENDLESS, f"{error.message} ({where})", error.line)
        if run.faults:
            fault = run.faults[0]
            place = f"{fault.buffer}[{', '.join(map(str, fault.index))}]" if fault.buffer else fault.expression
            text = f"block {fault.block}, {place}, {fault.count} elements ({where})"
            return Verdict(True, str(fault.kind), text, fault.line)
        mismatch = compare(task.kernel.parameters[-1].name, output, case.reference, case.bound)
        if mismatch is not None:
            born = _birth(kernel, case, output)
            text = "; ".join((mismatch.message, *mismatch.evidence[:1], *([born.expression] if born else [])))
            return Verdict(True, WRONG, f"{text} ({where})", born.line if born else None)
        outputs.append(output.numpy().tobytes())
    return Verdict(False, outputs=tuple(outputs))


def _admit(task: Task, kernel: ir.Kernel, shape: Shape) -> None:
    """What ``admit`` asks of a kernel that has been read."""
    check_signature(kernel, task.kernel, shape)
    check_scopes(kernel)
    check_operators(kernel, task.kernel)
    check_limits(kernel)


def _birth(kernel: ir.Kernel, case: Case, output: torch.Tensor) -> simulator.Birth | None:
    """Where the first value came from that is not finite and should be."""
    bad = ~output.isfinite() & case.reference.isfinite()
    if not bool(bad.any()):
        return None
    index = tuple(bad.nonzero()[0].tolist())
    fresh, position = torch.empty_like(output), len(case.inputs)
    run = simulator.run(kernel, (*case.inputs, fresh), outputs=(position,), births=True)
    return run.births.behind(position, index)

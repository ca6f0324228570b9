"""Runs kernels on the simulator, in a forked process with a budget.

The simulator only walks data, but a hostile kernel could still exhaust memory or time, so each shape has a
process of its own. Inputs are inherited, outputs come back in shared memory; one thread on either side keeps
forking safe.
"""

import math
import mmap
import multiprocessing
import resource
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection

import psutil
import torch

from grader import simulator
from grader.admit import Admitted
from grader.ir.nodes import Line
from grader.judge.comparison import poison
from grader.judge.outcome import Broke, Ran
from grader.judge.task import Tensors
from grader.messages import _
from grader.verdict import Finding, JudgeFailed, Location

SECONDS = 60.0  # for all sets of inputs at one shape
MEMORY = 4 * 2**30  # bytes, beyond what the process has at its start

Locate = Callable[[Line | None], Location | None]


def run(
    admitted: Admitted,
    inputs: list[Tensors],
    dtype: torch.dtype,
    shape: tuple[int, ...],
    locate: Locate,
    seconds: float = SECONDS,
) -> list[Ran | Broke]:
    """The kernel on each set of inputs, in order; after one that broke, no further one is run.

    ``seconds`` are for all of them. Raises JudgeFailed if the simulator itself has a fault: then nothing is known
    of the kernel.
    """
    outputs = [_shared(dtype, shape) for _inputs in inputs]
    process, receiver = start(_child, admitted, inputs, outputs)
    begin = time.monotonic()
    results: list[Ran | Broke] = []
    try:
        for output in outputs:
            answer = receive(receiver, begin + seconds - time.monotonic())
            if answer is None or isinstance(answer, _Problem | str):
                broke = _broke(answer, process, locate, seconds)
                results.append(replace(broke, seconds=time.monotonic() - begin))
                break
            seen, traffic = answer
            results.append(Ran(output, tuple(explain(fault, locate) for fault in seen), traffic))
    finally:
        process.kill()
        process.join()
        receiver.close()
    return results


def birth(
    admitted: Admitted,
    inputs: Tensors,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    index: tuple[int, ...],
    locate: Locate,
) -> Finding | None:
    """Where the value ``output[index]``, which is not finite, came from; None if that isn't seen in time.

    Such a value may have come in with the inputs, or from memory that nothing wrote. Raises JudgeFailed.
    """
    output = torch.empty(shape, dtype=dtype)
    poison(output)
    process, receiver = start(_birth_child, admitted, inputs, output, index)
    try:
        answer = receive(receiver, SECONDS)
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(answer, str):
        raise JudgeFailed(answer)
    return _explain_birth(answer, locate) if isinstance(answer, simulator.Birth) else None


def start(target: Callable[..., None], *arguments: object) -> tuple[multiprocessing.Process, Connection]:
    """A forked process that runs ``target(sender, *arguments)``, and the end on which its messages arrive."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(sender, *arguments), daemon=True)
    process.start()
    sender.close()
    return process, receiver


class _Problem(Exception):
    """A problem that the child reports: a message, a line, and whether our simulator lacks something."""

    def __init__(self, message: str, line: Line | None, missing: bool) -> None:
        super().__init__(message, line, missing)
        self.message, self.line, self.missing = message, line, missing


def _shared(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A poisoned tensor in memory that a forked process shares."""
    count = torch.Size(shape).numel()
    memory = mmap.mmap(-1, max(count * dtype.itemsize, 1))
    tensor = torch.frombuffer(memory, dtype=dtype, count=count).view(shape)
    poison(tensor)
    return tensor


def confine(memory: int = MEMORY) -> None:
    """Limits a process that walks a kernel: ``memory`` bytes beyond what it has, and processor time."""
    torch.set_num_threads(1)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    resource.setrlimit(
        resource.RLIMIT_CPU, (int(SECONDS) + 5, int(SECONDS) + 5)
    )  # should nobody be left to stop us


def _birth_child(
    sender: Connection, admitted: Admitted, inputs: Tensors, output: torch.Tensor, index: tuple[int, ...]
) -> None:
    confine()
    try:
        births = simulator.run(admitted.kernel, (*inputs, output), outputs=(len(inputs),), births=True).births
        sender.send(births.behind(len(inputs), index))
    except (simulator.Unsupported, simulator.OverBudget, MemoryError):
        sender.send(None)  # the run that gave the value has gone well; that this one takes more is no fault
    except Exception:  # ours: the parent raises it again
        sender.send(traceback.format_exc())


def _child(sender: Connection, admitted: Admitted, inputs: list[Tensors], outputs: list[torch.Tensor]) -> None:
    confine()
    for tensors, output in zip(inputs, outputs, strict=True):
        try:
            run = simulator.run(admitted.kernel, (*tensors, output), outputs=(len(tensors),))
            sender.send((run.faults, run.traffic))
        except simulator.Unsupported as error:
            sender.send(_Problem(error.what, error.line, missing=True))
        except simulator.OverBudget as error:
            sender.send(_Problem(str(error), error.line, missing=False))
        except MemoryError:
            sender.send(_Problem(_("the simulated kernel needs too much memory"), None, missing=False))
        except Exception:  # ours: the parent raises it again
            sender.send(traceback.format_exc())
            return


def receive(receiver: Connection, seconds: float) -> object | None:
    """The child's next message; None if it ended or took too long."""
    try:
        return receiver.recv() if receiver.poll(max(seconds, 0.0)) else None
    except EOFError:
        return None


def _broke(problem: _Problem | str | None, process, locate: Locate, seconds: float) -> Broke:
    if isinstance(problem, str):
        raise JudgeFailed(problem)
    if problem is None:
        process.join(0.2)
        if process.is_alive():
            message = _("The simulated kernel did not end within {seconds:.0f} s.").format(seconds=seconds)
            return Broke(Finding(message, _("Look for a loop that never ends, or for one that does very little.")))
        raise JudgeFailed(f"the simulator's process ended with status {process.exitcode}")
    if problem.missing:
        message = _("The simulator can't run '{what}'.").format(what=problem.message)
        advice = _("A GPU can: run the check there, or write this step another way.")
        return Broke(Finding(message, advice, locate(problem.line)), missing=True)
    return Broke(Finding(problem.message, where=locate(problem.line)))


def explain(fault: simulator.Fault, locate: Locate) -> Finding:
    """A fault in words."""
    message, advice = _words()[fault.kind]
    place = f"{fault.buffer}[{', '.join(map(str, fault.index))}]" if fault.buffer else fault.expression
    block = "(" + ", ".join(map(str, fault.block)) + ")"
    if fault.kind is simulator.FaultKind.UNWRITTEN:
        count = _("1 element") if fault.count == 1 else _("{count} elements").format(count=fault.count)
    else:
        count = _("1 access") if fault.count == 1 else _("{count} accesses").format(count=fault.count)
    text = message.format(block=block, place=place)
    return Finding(text, advice, locate(fault.line), (f"{place}, {count}",))


def _explain_birth(birth: simulator.Birth, locate: Locate) -> Finding:
    place = birth.buffer
    if birth.index:
        place += f"[{', '.join(map(str, birth.index))}]"
    block = "(" + ", ".join(map(str, birth.block)) + ")"
    value = _("NaN") if math.isnan(birth.value) else _("-inf") if birth.value < 0 else _("inf")
    message = _("Block {block}: {place} became {value} here: {expression}.").format(
        block=block, place=place, value=value, expression=birth.expression
    )
    if birth.operands:
        operands = _(" and ").join(f"{operand:.6g}" for operand in birth.operands)
        return Finding(message, where=locate(birth.line), evidence=(_("of {values}").format(values=operands),))
    return Finding(message, where=locate(birth.line))


def _words() -> dict[simulator.FaultKind, tuple[str, str]]:
    """What each kind of fault is called, and what to try."""
    kind = simulator.FaultKind
    guard = _("Guard the access: 'if index < size:' around it.")
    return {
        kind.OUT_OF_BOUNDS_READ: (_("Block {block} reads {place}, which does not exist."), guard),
        kind.OUT_OF_BOUNDS_WRITE: (_("Block {block} writes {place}, which does not exist."), guard),
        kind.UNINITIALISED_READ: (
            _("Block {block} reads {place} before anything was written there."),
            _("An accumulator needs T.clear before the loop; a tile needs T.copy before it is used."),
        ),
        kind.RACE: (
            _("Block {block}: {place} is touched by several threads or blocks at once, and not only read."),
            _("Nothing orders them. Let each iteration and each block write elements that no other one touches."),
        ),
        kind.UNWRITTEN: (
            _("No block writes {place}."),
            _("Do the blocks cover the whole output? Does a guard leave out too much?"),
        ),
        kind.DIVISION_BY_ZERO: (_("Block {block} divides by zero: {place}."), _("Guard the division.")),
        kind.ASSERTION: (_("Block {block}: a T.device_assert does not hold: {place}."), ""),
    }

"""Is a kernel clean at the timed shape, too? A few of its blocks run on the simulator there.

That shape is too large to simulate as a whole, and a factory may emit another kernel for it than for the small
ones. Its blocks, however, are no larger: those at the grid's corners, where tails are, and some drawn from the
seed, each with its neighbours, so that blocks which write the same elements are seen. Whether the values are right
is the card's to say, for all of the output.
"""

import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod
from multiprocessing.connection import Connection

import torch

from grader import simulator
from grader.admit import Admitted
from grader.catalog import Kernel, Role, Shape
from grader.ir import nodes
from grader.judge import seeds, simulated
from grader.judge.repeating import repeating
from grader.judge.task import Task, Tensors
from grader.messages import _
from grader.simulator import FaultKind
from grader.verdict import Finding, JudgeFailed, Location

SECONDS = 8.0  # for the corners, and again for the other blocks
DRAWN = 4  # blocks, beside the corners
STEPS = 500_000
SCRATCH = 1 << 30  # bytes for the tiles of a block and for bookkeeping
#: Up to this many bytes, parameters hold what the task draws. To draw more would take seconds and gigabytes: they
#: repeat a short pattern then.
LARGE = 256 * 2**20

#: What a fault of these kinds depends on is where a kernel reads and writes. The others depend on values.
_OF_PLACES = frozenset(
    {
        FaultKind.OUT_OF_BOUNDS_READ,
        FaultKind.OUT_OF_BOUNDS_WRITE,
        FaultKind.UNINITIALISED_READ,
        FaultKind.RACE,
    }
)

Locate = Callable[[nodes.Line | None], Location | None]
Block = tuple[int, int, int]


def faults(
    admitted: Admitted, wanted: Kernel, task: Task, shape: Shape, seed: str, locate: Locate
) -> tuple[Finding, ...]:
    """What some blocks of the kernel do at ``shape`` that no kernel may do; () if nothing was seen.

    Blocks that the simulator can't run, or not in its time, say nothing: then only the card judges. Raises
    JudgeFailed if the simulator itself has a fault.
    """
    extents = [dimension.extent.value for dimension in admitted.kernel.grid]
    process, receiver = simulated.start(_child, admitted.kernel, wanted, task, shape, seed, blocks(extents, seed))
    found: tuple[simulator.Fault, ...] = ()
    try:
        for _stage in range(2):
            answer = simulated.receive(receiver, 2 * SECONDS + 10)
            if isinstance(answer, str):
                raise JudgeFailed(answer)
            if answer is None:
                break
            found = answer
            if found:
                break
    finally:
        process.kill()
        process.join()
        receiver.close()
    seen = _("seen in a sample of its blocks at {shape}").format(shape=shape)
    explained = (simulated.explain(fault, locate) for fault in found)
    return tuple(replace(finding, evidence=(*finding.evidence, seen)) for finding in explained)


def blocks(extents: list[int], seed: str) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """The blocks of a grid (x first) that are run: those at its corners, and those inside of it."""
    grid = (*extents, *[1] * (3 - len(extents)))
    corners = list(product(*({0: None, extent - 1: None} for extent in grid)))
    draw = random.Random(seed)
    starts = [corners[0], corners[-1], *(tuple(draw.randrange(extent) for extent in grid) for _n in range(DRAWN))]
    inside = dict.fromkeys(near for block in starts for near in _near(block, grid))
    return tuple(corners), tuple(inside)


def _near(block: Block, grid: Block) -> Iterator[Block]:
    """A block and its next neighbour along each axis."""
    yield block
    for axis in range(3):
        step = 1 if block[axis] + 1 < grid[axis] else -1
        index = block[axis] + step
        if 0 <= index < grid[axis]:
            yield (*block[:axis], index, *block[axis + 1 :])


def _child(
    sender: Connection,
    kernel: nodes.Kernel,
    wanted: Kernel,
    task: Task,
    shape: Shape,
    seed: str,
    stages: tuple[tuple[Block, ...], tuple[Block, ...]],
) -> None:
    size = sum(prod(p.sizes(shape)) * nodes.ITEM_SIZE[p.dtype] for p in wanted.parameters)
    # Bookkeeping has at most a number of four bytes and two flags an element.
    room = SCRATCH + 6 * size
    try:
        simulated.confine(size + room)
        tensors = _tensors(wanted, task, shape, seed, large=size > LARGE)
        outputs = [place for place, p in enumerate(wanted.parameters) if p.role is Role.OUT]
        for chosen in stages:
            budget = simulator.Budget(steps=STEPS, seconds=SECONDS, bytes=room)
            run = simulator.run(kernel, tensors, budget=budget, outputs=outputs, blocks=chosen)
            known = [fault for fault in run.faults if size <= LARGE or fault.kind in _OF_PLACES]
            sender.send(tuple(known))
    except (simulator.Unsupported, simulator.OverBudget, MemoryError):
        sender.send(None)
    except Exception:  # ours: the parent raises it again
        sender.send(traceback.format_exc())


def _tensors(wanted: Kernel, task: Task, shape: Shape, seed: str, *, large: bool) -> Tensors:
    """The kernel's parameters by position."""
    family = task.families[0]
    generator = seeds.generator(seed, task.kernel, shape.name, family)
    drawn = iter(()) if large else iter(task.inputs(family, shape, generator))
    return tuple(
        next(drawn)
        if p.role is Role.IN and not large
        else repeating(getattr(torch, p.dtype), p.sizes(shape), generator)
        for p in wanted.parameters
    )

"""The traffic of a run, put together from its counters; what it means stands in ``grader.verdict.traffic``."""

from math import prod
from typing import TYPE_CHECKING

from grader.ir import nodes
from grader.simulator.counters import told
from grader.simulator.expressions import Code, Scope
from grader.simulator.memory import UNWRITTEN
from grader.verdict.traffic import BufferTraffic, Traffic

if TYPE_CHECKING:
    from grader.simulator.program import Program

COPY = "tl.tileop.copy"


def traffic_of(program: "Program", sizes: dict[nodes.Var, Code], blocks: int) -> Traffic:
    """What a run of ``blocks`` blocks moved and computed; ``sizes`` are the values of the dynamic sizes.

    Raises ValueError if the run had no checks.
    """
    if not program.checks:
        raise ValueError("a run without checks does not know which bytes were written")
    kernel, counters = program.kernel, program.counters
    scope, stages = Scope(program, dict(sizes)), _stages(kernel.body)
    buffers = [_parameter(buffer, program) for buffer in kernel.params]
    shared = staged = 0
    for storage, buffer in {buffer.storage: buffer for buffer in reversed(kernel.allocations)}.items():
        size = program.layout(buffer, scope)[-1]
        read, written = counters.get("read", storage), counters.get("written", storage)
        buffers.insert(len(kernel.params), BufferTraffic(buffer.name, told(storage.scope), size, read, written))
        if told(storage.scope) == "shared":
            shared += size
            staged += size * stages.get(storage, 1)
    return Traffic(
        buffers=tuple(buffers),
        operations=counters.all_operations(),
        copies=counters.all_copies(),
        blocks=blocks,
        threads=prod(kernel.threads),
        shared=shared,
        staged=staged,
        guarded=counters.get("guarded"),
    )


def _parameter(buffer: nodes.Buffer, program: "Program") -> BufferTraffic:
    memory, counters = program.memories[buffer.storage], program.counters
    distinct_written = 0
    if memory.writer is not None:
        distinct_written = int((memory.writer != UNWRITTEN).sum()) * memory.granule
    return BufferTraffic(
        buffer.name,
        "global",
        memory.data.numel(),
        counters.get("read", memory.storage),
        counters.get("written", memory.storage),
        memory.footprint.bytes(),
        distinct_written,
    )


def _stages(body: nodes.Stmt) -> dict[nodes.Storage, int]:
    """Tiles that a pipeline fills from global memory, and how many of each it keeps: one a stage."""
    found: dict[nodes.Storage, int] = {}
    for loop in nodes.walk(body):
        stages = loop.annotations.get("num_stages", 0) if isinstance(loop, nodes.For) else 0
        if not isinstance(stages, int) or stages < 2:
            continue
        for part in nodes.walk(loop.body):
            match part:
                case nodes.Call(op=op, args=(nodes.Region() as source, nodes.Region() as target)) if op == COPY:
                    if source.buffer.scope == nodes.GLOBAL and told(target.buffer.scope) == "shared":
                        storage = target.buffer.storage
                        found[storage] = max(found.get(storage, 1), stages)
    return found

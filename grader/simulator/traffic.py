"""The traffic of a run, put together from its counters; what it means stands in ``grader.verdict.traffic``."""

from math import prod
from typing import TYPE_CHECKING

from grader.ir import nodes
from grader.simulator.counters import told
from grader.simulator.memory import UNWRITTEN, Memory
from grader.verdict.traffic import BufferTraffic, Traffic

if TYPE_CHECKING:
    from grader.simulator.program import Program

COPY = "tl.tileop.copy"


def traffic_of(program: "Program", blocks: int) -> Traffic:
    """What a run of ``blocks`` blocks moved and computed."""
    kernel, counters = program.kernel, program.counters
    buffers = {
        buffer.storage: buffer for buffer in (*kernel.allocations, *kernel.params)
    }  # a parameter's name wins
    storages = dict.fromkeys(buffer.storage for buffer in (*kernel.params, *kernel.allocations))
    sizes = {storage: program.memories[storage].data.numel() for storage in storages}
    shared = {storage: sizes[storage] for storage in storages if told(storage.scope) == "shared"}
    stages = _stages(kernel.body)
    return Traffic(
        buffers=tuple(
            _buffer(buffers[storage].name, program.memories[storage], sizes[storage], program)
            for storage in storages
        ),
        operations=counters.all_operations(),
        copies=counters.all_copies(),
        blocks=blocks,
        threads=prod(kernel.threads),
        shared=sum(shared.values()),
        staged=sum(size * stages.get(storage, 1) for storage, size in shared.items()),
        guarded=counters.get("guarded"),
    )


def _buffer(name: str, memory: Memory, size: int, program: "Program") -> BufferTraffic:
    read = program.counters.get("read", memory.storage)
    written = program.counters.get("written", memory.storage)
    distinct_read = distinct_written = None
    if memory.footprint is not None:
        distinct_read, distinct_written = memory.footprint.bytes(), 0
        if memory.writer is not None:
            distinct_written = int((memory.writer != UNWRITTEN).sum()) * memory.granule
    return BufferTraffic(name, told(memory.scope), size, read, written, distinct_read, distinct_written)


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

"""Runs a kernel on CPU tensors, a block at a time."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.batch import run_batched
from grader.simulator.births import Births, BirthWatch
from grader.simulator.budget import Budget, Meter, OverBudget
from grader.simulator.expressions import Affine, Code, Scope, State, integer
from grader.simulator.faults import Fault, NotBatched
from grader.simulator.footprint import Footprint
from grader.simulator.memory import UNWRITTEN, Memory
from grader.simulator.observe import Observer
from grader.simulator.prepare import prepare
from grader.simulator.printing import Printed
from grader.simulator.program import Program, allocate, sizes_of
from grader.simulator.recorder import NoSuchBlock, Recorder
from grader.simulator.statements import compile_statement
from grader.simulator.traffic import traffic_of
from grader.simulator.unwritten import find_unwritten
from grader.verdict.traffic import Traffic


@dataclass(frozen=True)
class Run:
    """What a run of a kernel did. ``written`` and ``read`` are by parameter, in the kernel's order.

    ``guarded`` counts the elements that copies read or wrote out of bounds and TileLang guards away: no
    fault. ``prints`` are what T.print said, up to a limit; ``prints_left_out`` counts what came after. ``traffic``
    is put together when it is asked for.
    """

    faults: tuple[Fault, ...]
    written: tuple[torch.Tensor, ...]
    read: tuple[bool, ...]
    steps: int
    guarded: int
    count: Callable[[], Traffic] = field(repr=False, compare=False)
    prints: tuple[Printed, ...] = ()
    prints_left_out: int = 0
    births: Births | None = None

    @cached_property
    def traffic(self) -> Traffic:
        """What the run moved and computed. Raises ValueError if it was one without checks."""
        return self.count()


def run(
    kernel: nodes.Kernel,
    tensors: Sequence[torch.Tensor],
    *,
    budget: Budget | None = None,
    outputs: Collection[int] | None = None,
    scalars: Mapping[str, int] | None = None,
    checks: bool = True,
    batched: bool = True,
    births: bool = False,
    record: Recorder | None = None,
    blocks: Collection[tuple[int, int, int]] | None = None,
) -> Run:
    """Runs ``kernel``; ``tensors`` are its parameters, written in place.

    ``scalars`` are the values of parameters that are numbers, by name.

    ``outputs`` are the positions of parameters that hold nothing before the kernel writes them, and that it must
    write in full: to read them earlier is a fault, and so is an element that no block writes. By default these are
    all parameters that the kernel writes, but for those that it updates by atomic operations, and what is never
    written is no fault. Raises Unsupported, OverBudget, and ValueError if the tensors don't fit the kernel.

    Without ``checks`` no one watches for races, reads of what nothing has written and outputs that stay unwritten,
    and ``written`` is empty. Where blocks race for an element, either's value may stay. Bounds, divisions and
    assertions are still seen. With ``batched``, blocks run at once where that gives the same.

    ``births``: look where NaN and infinities come from (see Births); such a run is slower, and says nothing else.
    ``record`` is filled with the steps of one block; not both at once.

    ``blocks``: run only these, (bx, by, bz), in this order. What no block writes is then no fault, ``written`` is
    empty, and the time and memory that a run takes depend little on the size of its tensors.
    """
    if births and record is not None:
        raise ValueError("a run either looks for births or is recorded")
    meter = Meter(budget or Budget())
    try:
        with torch.no_grad():
            observer = BirthWatch() if births else record
            batched = batched and observer is None and blocks is None
            return _run(kernel, tensors, meter, outputs, scalars or {}, observer, checks, batched, blocks)
    except RecursionError:
        raise OverBudget(_("the kernel is nested too deeply for the simulator"), kernel.line) from None
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        message = _("the kernel needs more memory in the simulator than the process may have")
        raise OverBudget(message, kernel.line) from None


def _out_of_memory(error: Exception) -> bool:
    """torch has no exception of its own for memory that the system doesn't give."""
    signs = ("can't allocate memory", "DefaultCPUAllocator", "bad_alloc", "Cannot allocate memory")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def _run(
    kernel: nodes.Kernel,
    tensors: Sequence[torch.Tensor],
    meter: Meter,
    outputs: Collection[int] | None,
    scalars: Mapping[str, int],
    observer: Observer | None,
    checks: bool,
    batched: bool,
    only: Collection[tuple[int, int, int]] | None,
) -> Run:
    if len(tensors) != len(kernel.params):
        raise ValueError(f"the kernel has {len(kernel.params)} parameters, {len(tensors)} tensors were given")
    kernel, buffers = prepare(kernel)
    if batched:
        program, sizes, granules = _launch(kernel, tensors, scalars, meter, checks, buffers)
        _slots, extents = _grid(kernel, Scope(program, dict(sizes), line=kernel.line))
        try:
            run_batched(program, sizes, tensors, extents, granules, outputs)
            return _result(program, sizes, prod(extents), outputs, None, whole=True)
        except NotBatched:
            meter.forget()
    program, sizes, granules = _launch(kernel, tensors, scalars, meter, checks, buffers, observer)
    scope = Scope(program, sizes, line=kernel.line)
    for buffer in kernel.allocations:
        if buffer.scope == nodes.GLOBAL or buffer.storage in program.memories:
            raise scope.unsupported(_("the allocation of '{name}'").format(name=buffer.name))
        size = granules.get(buffer.storage, scope.dtype(buffer.dtype).size)
        program.memories[buffer.storage] = allocate(program, buffer, size, scope)
    slots, extents = _grid(kernel, scope)
    body = compile_statement(kernel.body, scope)
    program.track_writers(outputs)
    state = State()
    state.vars = [0] * program.slots
    fresh = [program.memories[buffer.storage] for buffer in kernel.allocations]
    if isinstance(observer, Recorder):
        observer.begin(program, tuple(extents))
    numbers = _numbers(extents) if only is None else _chosen(only, extents)
    _blocks(numbers, slots, body, fresh, state, program)
    return _result(program, sizes, prod(extents), outputs, observer, whole=only is None)


def _launch(
    kernel: nodes.Kernel,
    tensors: Sequence[torch.Tensor],
    scalars: Mapping[str, int],
    meter: Meter,
    checks: bool,
    buffers: list[nodes.Buffer],
    observer: Observer | None = None,
) -> tuple[Program, dict[nodes.Var, Code], dict[nodes.Storage, int]]:
    """A program with its parameters, the dynamic sizes, and the size of each storage's granules."""
    program = Program(kernel, meter, observer, checks=checks)
    scope = Scope(program, sizes_of(kernel, tensors, scalars), line=kernel.line)
    granules = _granules(buffers, scope)
    _parameters(program, tensors, granules, scope)
    return program, scope.variables, granules


def _result(
    program: Program,
    sizes: dict[nodes.Var, Code],
    blocks: int,
    outputs: Collection[int] | None,
    observer: Observer | None,
    *,
    whole: bool,
) -> Run:
    if program.checks and whole:
        for position in sorted(outputs or ()):
            find_unwritten(program, program.kernel.params[position])
    arrays = [program.arrays[buffer] for buffer in program.kernel.params]
    memories = [array.memory for array in arrays]
    return Run(
        faults=program.faults.all(),
        written=tuple(
            _written(array.memory, array.shape, array.strides, array.factor)
            for array in arrays
            if program.checks and whole
        ),
        read=tuple(program.counters.get("read", memory.storage) > 0 for memory in memories),
        steps=program.meter.steps,
        guarded=program.counters.get("guarded"),
        count=partial(traffic_of, program, sizes, blocks),
        prints=program.prints.all(),
        prints_left_out=program.prints.left_out,
        births=observer.births(program) if isinstance(observer, BirthWatch) else None,
    )


def _granules(buffers: list[nodes.Buffer], scope: Scope) -> dict[nodes.Storage, int]:
    """For each storage the size of the smallest element that any view of it has."""
    found: dict[nodes.Storage, int] = {}
    for buffer in buffers:
        size = scope.dtype(buffer.dtype).size
        found[buffer.storage] = min(size, found.get(buffer.storage, size))
    return found


def _parameters(
    program: Program, tensors: Sequence[torch.Tensor], granules: dict[nodes.Storage, int], scope: Scope
) -> None:
    for buffer, tensor in zip(program.kernel.params, tensors, strict=True):
        if buffer.storage in program.memories or buffer.scope != nodes.GLOBAL:
            raise scope.unsupported(_("the parameter '{name}'").format(name=buffer.name))
        shape, strides, dtype, size = program.layout(buffer, scope)
        if tensor.device.type != "cpu" or tensor.dtype != dtype.held or tuple(tensor.shape) != shape:
            raise ValueError(
                f"'{buffer.name}' must be a CPU tensor of {dtype.name} and shape {shape}, "
                f"not {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
            )
        if any(a != b for a, b, n in zip(tensor.stride(), strides, shape, strict=True) if n > 1):
            raise ValueError(f"'{buffer.name}' must have the strides {strides}, not {tensor.stride()}")
        count = size // dtype.size
        data = tensor.detach().as_strided((count,), (1,), tensor.storage_offset()).view(torch.uint8)
        memory = Memory(buffer.storage, data, granules[buffer.storage], dtype.poison)
        memory.footprint = Footprint(memory, program.meter)
        program.memories[buffer.storage] = memory
        program.array(buffer, scope)


def _grid(kernel: nodes.Kernel, scope: Scope) -> tuple[list[int], list[int]]:
    """The slots of the block indices, and the grid's extents: x first."""
    slots, extents = [], []
    for dimension in kernel.grid:
        scope.line = kernel.line
        extent = integer(dimension.extent, scope, _("a launch grid"))
        if extent.constant is None:
            raise scope.unsupported(_("a launch grid that is not known when the kernel starts"))
        dtype = scope.dtype(dimension.var.dtype)
        if not dtype.is_int or dimension.var in scope.variables:
            raise scope.unsupported(_("the launch grid's variable '{name}'").format(name=dimension.var.name))
        slot = scope.program.slot()
        read = _reader(slot)
        scope.variables[dimension.var] = Code(dtype, read, affine=Affine(read, ()))
        slots.append(slot)
        extents.append(extent.constant)
    if len(extents) > 3:
        raise scope.unsupported(_("a launch grid of more than three dimensions"))
    return slots, extents


def _reader(slot: int) -> Callable[[State], int]:
    return lambda state: state.vars[slot]


def _numbers(extents: list[int]) -> Iterator[tuple[int, ...]]:
    """The indices of all blocks, x first."""
    total = prod(extents) if all(extent > 0 for extent in extents) else 0
    for number in range(total):
        rest, index = number, []
        for extent in extents:
            rest, here = divmod(rest, extent)
            index.append(here)
        yield tuple(index)


def _chosen(blocks: Collection[tuple[int, int, int]], extents: list[int]) -> Iterator[tuple[int, ...]]:
    grid = (*extents, *[1] * (3 - len(extents)))
    for block in blocks:
        if not all(0 <= index < extent for index, extent in zip(block, grid, strict=True)):
            raise NoSuchBlock(block, grid)
        yield block[: len(extents)]


def _blocks(
    indices: Iterable[tuple[int, ...]],
    slots: list[int],
    body: Callable[[State], None],
    fresh: list[Memory],
    state: State,
    program: Program,
) -> None:
    for number, index in enumerate(indices):
        program.meter.spend(program.kernel.line)
        program.threads.barrier()
        for slot, here in zip(slots, index, strict=True):
            state.vars[slot] = here
        state.block = (*index, *[0] * (3 - len(index)))
        state.block_number = number
        for memory in fresh:
            memory.forget()
        body(state)


def _written(memory: Memory, shape: tuple[int, ...], strides: tuple[int, ...], factor: int) -> torch.Tensor:
    if memory.writer is None:
        return torch.zeros(shape, dtype=torch.bool)
    flags = memory.writer != UNWRITTEN
    if factor > 1:
        flags = flags[: flags.numel() // factor * factor].view(-1, factor).any(1)
    return flags.as_strided(shape, strides).clone()

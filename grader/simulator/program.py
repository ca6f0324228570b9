"""A kernel at work: its memories and arrays, what it may spend, what was found."""

from collections.abc import Callable
from math import prod
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from grader.ir import nodes, show
from grader.messages import _
from grader.simulator.budget import Meter, OverBudget
from grader.simulator.counters import Counters
from grader.simulator.dtypes import DTYPES, DType
from grader.simulator.expressions import Code, Evaluator, Scope, State, compile_expression, constant
from grader.simulator.faults import FaultKind, Faults, Unsupported
from grader.simulator.memory import Array, Memory, row_major
from grader.simulator.observe import Observer
from grader.simulator.printing import Prints
from grader.simulator.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from grader.simulator.elements import Access
    from grader.simulator.operations import Origin

TileOp = Callable[[nodes.Call, Scope], Callable[[State], None]]

MAX_RANK = 8
MAX_EXTENT = 2**40


#: Faults that only bookkeeping beside the values finds.
BOOKKEPT = frozenset({FaultKind.RACE, FaultKind.UNINITIALISED_READ})


class Program:
    #: The extents of the leading dimensions that stand for blocks which run at once: see batch.
    lead: tuple[int, ...] = ()
    #: How many blocks run at once.
    blocks = 1

    def __init__(
        self, kernel: nodes.Kernel, meter: Meter, observer: Observer | None = None, *, checks: bool = True
    ) -> None:
        self.kernel = kernel
        self.checks = checks
        self.watches_threads = checks
        self.meter = meter
        self.observer = observer
        self.faults = Faults()
        self.threads = Threads(meter)
        self.memories: dict[nodes.Storage, Memory] = {}
        self.arrays: dict[nodes.Buffer, Array] = {}
        self.thread_variables = frozenset(kernel.thread_vars)
        self.slots = 0
        self.counters = Counters()
        self.origins: dict[nodes.Var, Origin] = {}  # of variables
        self.prints = Prints()
        self.read: set[nodes.Storage] = set()
        self.written: set[nodes.Storage] = set()
        self.accumulated: set[nodes.Storage] = set()
        self._compiled = 0

    # Compilation

    @property
    def pipelined(self) -> frozenset[nodes.Call]:
        """The calls in pipelined loops: found once a kernel, which never changes."""
        found = _pipelined.get(self.kernel)
        if found is None:
            found = _pipelined[self.kernel] = _in_pipelines(self.kernel.body)
        return found

    def charge_compilation(self, line: nodes.Line | None) -> None:
        """Compiling a large kernel takes time too."""
        self._compiled += 1
        if self._compiled % 256 == 0 and monotonic() > self.meter.deadline:
            raise OverBudget(_("the kernel is too large for the simulator's time"), line)

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def note_read(self, array: Array) -> None:
        self.read.add(array.memory.storage)

    def note_write(self, array: Array) -> None:
        self.written.add(array.memory.storage)

    def note_accumulation(self, array: Array, *, writes: bool) -> None:
        """An atomic operation: what it updates had a value before."""
        self.accumulated.add(array.memory.storage)
        self.note_read(array)
        if writes:
            self.note_write(array)

    @staticmethod
    def loads_in(node: nodes.Store) -> "Iterable[nodes.Load]":
        """The loads of a store's value."""
        return [part for part in nodes.walk(node.value) if isinstance(part, nodes.Load)]

    def shape(self, extents: tuple[nodes.Expr, ...], scope: Scope) -> tuple[int, ...]:
        """Extents as numbers: constants, or of dynamic sizes, which are known when a kernel runs."""
        shape = []
        for extent in extents:
            if isinstance(extent, nodes.Const) and extent.dtype == "int32" and 0 <= extent.value < 2**31:
                shape.append(int(extent.value))
                continue
            code = compile_expression(extent, Scope(self, scope.variables, line=scope.line))
            if code.constant is None or not code.dtype.is_int or not 0 <= code.constant < MAX_EXTENT:
                raise scope.unsupported(_("a buffer whose shape is not known when the kernel starts"))
            shape.append(code.constant)
        return tuple(shape)

    def layout(self, buffer: nodes.Buffer, scope: Scope) -> tuple[tuple[int, ...], tuple[int, ...], DType, int]:
        """Shape, strides, dtype and bytes (from the first to the end of the last element) of a buffer."""
        if len(buffer.shape) > MAX_RANK:
            raise scope.unsupported(_("a buffer of more than {limit} dimensions").format(limit=MAX_RANK))
        dtype = scope.dtype(buffer.dtype)
        shape = self.shape(buffer.shape, scope)
        strides = self.shape(buffer.strides, scope) if buffer.strides else row_major(shape)
        if len(strides) != len(shape) or 0 in shape:
            raise scope.unsupported(_("the empty or malformed buffer '{name}'").format(name=buffer.name))
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        return shape, strides, dtype, (last + 1) * dtype.size

    def array(self, buffer: nodes.Buffer, scope: Scope) -> Array:
        """The array of a buffer, which may be a view of another's memory."""
        known = self.arrays.get(buffer)
        if known is not None:
            return known
        memory = self.memories.get(buffer.storage)
        if memory is None:
            raise scope.unsupported(
                _("the buffer '{name}', which is neither a parameter nor allocated").format(name=buffer.name)
            )
        shape, strides, dtype, size = self.layout(buffer, scope)
        if size > memory.data.numel():
            raise scope.unsupported(
                _("the view '{name}', which is larger than the memory it views").format(name=buffer.name)
            )
        try:
            array = Array(memory, buffer, dtype, shape, strides)
        except RuntimeError:
            raise scope.unsupported(_("the misaligned view '{name}'").format(name=buffer.name)) from None
        self.arrays[buffer] = array
        return array

    def array_for(self, buffer: nodes.Buffer, scope: Scope) -> tuple[Array, tuple[Code, ...]]:
        """The array of a buffer in a scope, and the indices of its leading dimensions that the IR doesn't have.

        Memory of one thread that a T.Parallel writes is each iteration's own: its array has the nest's loops
        as leading dimensions.
        """
        array = self.array(buffer, scope)
        if scope.nest is not None and array.memory.is_local and scope.nest.writes(buffer.storage):
            return scope.nest.private_array(array, scope)
        return array, ()

    def tile_op(self, op: str, compiler: "TileOp") -> "TileOp":
        """What compiles a call of a tile operation, which ``compiler`` does for one block."""
        return compiler

    def decided(self, run: Evaluator) -> Evaluator:
        """A condition or loop bound outside T.Parallel as a scalar: one for all blocks that run at once."""
        return run

    def lead_codes(self, rank: int) -> tuple[Code, ...]:
        """The positions, along the leading dimensions, of the blocks that run at once."""
        return ()

    def share(self, mask: torch.Tensor) -> None:
        """Told of the iterations for which statements of a nest are about to run: some is active."""

    def leaves(self, access: "Access", state: State) -> None:
        """Told of an access whose window leaves its buffer, before its iterations are looked at one by one."""

    def track_writers(self, outputs: "Collection[int] | None") -> None:
        """Says, once the kernel is compiled, which parameters need to know who wrote them."""
        for position, buffer in enumerate(self.kernel.params):
            memory = self.memories[buffer.storage]
            if not self.checks or memory.storage not in self.written:
                continue
            readers = memory.storage in self.read
            self.meter.keep(memory.data.numel() // memory.granule * (8 if readers else 4), self.kernel.line)
            empty = memory.storage not in self.accumulated if outputs is None else position in outputs
            memory.track_blocks(holds_input=not empty, readers=readers)

    # Running

    def fault(
        self,
        kind: FaultKind,
        buffer: nodes.Buffer | None,
        line: nodes.Line | None,
        state: State,
        node: nodes.Expr | nodes.Store,
        count: int = 1,
        index: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        if kind in BOOKKEPT and not self.checks:
            return
        self.faults.add(kind, buffer, line, state.block, count, index, lambda: describe(node))


_pipelined: WeakKeyDictionary[nodes.Kernel, frozenset[nodes.Call]] = WeakKeyDictionary()


def _in_pipelines(body: nodes.Stmt) -> frozenset[nodes.Call]:
    """The calls in pipelined loops."""
    loops = [
        part for part in nodes.walk(body) if isinstance(part, nodes.For) and part.annotations.get("num_stages")
    ]
    return frozenset(part for loop in loops for part in nodes.walk(loop) if isinstance(part, nodes.Call))


def describe(node: nodes.Expr | nodes.Stmt) -> str:
    """An expression or store as the student would write it, cut to a readable length."""
    if isinstance(node, nodes.Store):
        indices = ", ".join(map(show, node.indices))
        text = f"{node.buffer.name}[{indices}] = {show(node.value)}"
    else:
        text = show(node)
    return text if len(text) <= 200 else text[:199] + "…"


def sizes_of(
    kernel: nodes.Kernel, tensors: "Iterable[torch.Tensor]", scalars: "Mapping[str, int]"
) -> dict[nodes.Var, Code]:
    """The values of a kernel's dynamic sizes, from its parameters' shapes, and of its scalar parameters, by name.

    Raises ValueError if they contradict one another, or if one has no value.
    """
    values: dict[nodes.Var, int] = {var: scalars[var.name] for var in kernel.sizes if var.name in scalars}
    for buffer, tensor in zip(kernel.params, tensors, strict=True):
        if len(buffer.shape) != tensor.ndim:
            raise ValueError(f"'{buffer.name}' has {len(buffer.shape)} dimensions, the tensor {tensor.ndim}")
        pairs = [
            *zip(buffer.shape, tensor.shape, strict=True),
            *zip(buffer.strides, tensor.stride(), strict=False),
        ]
        for extent, size in pairs:
            if isinstance(extent, nodes.Var) and values.setdefault(extent, size) != size:
                raise ValueError(f"'{extent.name}' is both {values[extent]} and {size}")
    missing = [var.name for var in kernel.sizes if var not in values]
    if missing:
        raise ValueError(f"'{missing[0]}' has no value: give it among the scalars")
    codes = {}
    for var, size in values.items():
        dtype = DTYPES.get(var.dtype)
        if dtype is None or not dtype.is_int:
            raise Unsupported(_("a dynamic size that is no integer"), kernel.line)
        codes[var] = constant(dtype, size, 0)
    return codes


def allocate(program: Program, buffer: nodes.Buffer, granule: int, scope: Scope) -> Memory:
    shape, strides, dtype, size = program.layout(buffer, scope)
    if strides != row_major(shape):
        raise scope.unsupported(_("memory allocated with strides"))
    size = prod(shape) * dtype.size
    program.meter.keep(2 * size, scope.line)
    data = torch.empty(size, dtype=torch.uint8)
    return Memory(buffer.storage, data, granule, dtype.poison, checked=program.checks)

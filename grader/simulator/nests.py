"""T.Parallel: a nest of loops whose iterations run at once.

On the card, the iterations are spread over threads and nothing orders them. Here, each statement of the nest
runs for all iterations before the next one does, which gives the same result if no iteration touches what
another one writes; where that isn't plain from the indices, a Tracker looks at every access.
"""

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.element_atomics import ATOMICS, target
from grader.simulator.expressions import Axis, Code, Scope, State
from grader.simulator.faults import FaultKind
from grader.simulator.memory import EMPTY, Array, Memory, row_major

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grader.simulator.elements import Access
    from grader.simulator.program import Program


@lru_cache(maxsize=64)
def iota(rank: int, axis: int, extent: int, dtype: torch.dtype) -> torch.Tensor:
    """0, 1, … along one of a nest's dimensions. Shared: never written to."""
    shape = [1] * rank
    shape[axis] = extent
    return torch.arange(extent, dtype=dtype).reshape(shape)


class Nest:
    """One T.Parallel nest: what it writes, its accesses, the memory that is each iteration's own."""

    def __init__(self, root: nodes.For, program: "Program") -> None:
        self.program = program
        self.depth = _depth(root)
        self.lead = len(program.lead)
        self.rank = self.lead + self.depth
        self.axis_codes: list[Code] = []
        self.running: list[int] = [*program.lead, *[1] * self.depth]  # extents, as the nest runs
        self.accesses: list[Access] = []
        self.tracker = Tracker(self)
        self._stored: set[nodes.Storage] = set()
        self._updated = {
            pointer.buffer.storage
            for part in nodes.walk(root)
            if isinstance(part, nodes.Call) and part.op in ATOMICS and (pointer := target(part)) is not None
        }
        self._private: dict[nodes.Storage, tuple[Memory, Memory]] = {}
        #: Variables that change while an iteration runs.
        self.inner_variables: set[nodes.Var] = set()
        self.has_loops = False
        for part in _statements(root):
            match part:
                case nodes.Store(buffer=buffer):
                    self._stored.add(buffer.storage)
                case nodes.Bind(var=var):
                    self.inner_variables.add(var)
                case nodes.For(var=var, kind=kind) if kind != nodes.PARALLEL:
                    self.inner_variables.add(var)
                    self.has_loops = True
                case nodes.While():
                    self.has_loops = True

    def writes(self, storage: nodes.Storage) -> bool:
        return storage in self._stored or storage in self._updated

    @property
    def iterations(self) -> int:
        """How many iterations a block has."""
        return prod(self.running[self.lead :])

    def sizes(self, axes: int) -> tuple[int, ...]:
        """The sizes of the dimensions at a place inside ``axes`` loops."""
        return tuple(self.running[axis] if axis < axes else 1 for axis in range(self.rank))

    # Memory of one thread

    def private_array(self, array: Array, scope: Scope) -> tuple[Array, tuple[Code, ...]]:
        extents = scope.extents
        if extents is None or len(scope.axes) != self.rank:
            raise scope.unsupported(
                _(
                    "the thread's own memory '{name}' in a T.Parallel whose loops have statements between them"
                ).format(name=array.buffer.name)
            )
        shared = array.memory
        if shared.storage not in self._private:
            size = shared.data.numel() // shared.blocks * prod(extents)
            self.program.meter.keep(2 * size, scope.line)
            data = torch.empty(size, dtype=torch.uint8)
            own = Memory(shared.storage, data, shared.granule, shared.poison, checked=shared.checked)
            self._private[shared.storage] = (own, shared)
        own, _shared = self._private[shared.storage]
        step = shared.data.numel() // shared.blocks // array.dtype.size
        strides = tuple(stride * step for stride in row_major(extents))
        shape, inner = array.shape[array.lead :], array.strides[array.lead :]
        private = Array(own, array.buffer, array.dtype, extents + shape, strides + inner)
        return private, tuple(self.axis_codes)

    def begin(self) -> None:
        for own, shared in self._private.values():
            own.forget()
            # An iteration that reads what it hasn't written reads what another iteration left there.
            own.carried = shared.state != EMPTY
        self.tracker.begin()

    def end(self) -> None:
        for _own, shared in self._private.values():
            shared.forget()  # which iteration's value a thread has now depends on the layout

    # Which accesses need a look

    def compiled(self, axes: list[Axis]) -> None:
        """Decides, once all accesses are known, which of them may meet another iteration's."""
        if not self.program.checks:
            return
        by_storage: dict[nodes.Storage, list[Access]] = {}
        for access in self.accesses:
            storage = access.node.buffer.storage
            if storage in self._stored | self._updated and not access.array.memory.is_local:
                by_storage.setdefault(storage, []).append(access)
        for storage, sites in by_storage.items():
            if storage in self._updated:
                # Atomic operations are safe among themselves.
                for site in sites:
                    site.suspect = not all(other.atomic for other in sites)
                continue
            if not self._apart(sites, axes):
                for site in sites:
                    site.suspect = True

    def _apart(self, sites: "list[Access]", axes: list[Axis]) -> bool:
        if len(sites) == 1 and not self.has_loops:
            return True  # the store itself checks that
        if len({site.node.buffer for site in sites}) > 1:
            return False
        forms = {site.structure() for site in sites}
        if len(forms) == 1 and None not in forms and all(getattr(site, "injective", False) for site in sites):
            return True
        separating = [site.separating() for site in sites]
        for store, mine in zip(sites, separating, strict=True):
            if not store.store:
                continue
            for other, theirs in zip(sites, separating, strict=True):
                for axis in range(self.lead, min(store.axes, other.axes)):
                    if axes[axis].extent != 1 and not mine.get(axis, set()) & theirs.get(axis, set()):
                        return False
        return True


def _statements(node: nodes.Stmt) -> "Iterator[nodes.Stmt]":
    """A statement and all in it."""
    yield node
    for part in nodes.children(node):
        if isinstance(part, nodes.Stmt):
            yield from _statements(part)


def _depth(node: nodes.Stmt) -> int:
    """The most T.Parallel loops that stand in one another, the node included."""
    below = max((_depth(part) for part in nodes.children(node) if isinstance(part, nodes.Stmt)), default=0)
    return below + (isinstance(node, nodes.For) and node.kind == nodes.PARALLEL)


MANY = -2  # read by several iterations


class Tracker:
    """Remembers, while a nest runs, which iteration read and which wrote each element of suspect memory."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self._seen: dict[Memory, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def begin(self) -> None:
        for logs in self._seen.values():
            for log in logs:
                log.fill_(-1)

    def _logs(self, access: "Access") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """For each granule, the iteration that read it, that wrote it, that updated it by an atomic operation."""
        memory = access.array.memory
        if memory not in self._seen:
            count = memory.data.numel() // memory.granule
            self.nest.program.meter.keep(24 * count, access.line)
            self._seen[memory] = tuple(torch.full((count,), -1) for _log in range(3))
        return self._seen[memory]

    def load(self, access: "Access", position: torch.Tensor, state: State) -> None:
        reader, writer, updater = self._logs(access)
        sizes = self.nest.sizes(access.axes)
        lanes = torch.arange(prod(sizes))
        element = (position * access.array.factor).expand(sizes).flatten()
        if state.mask is not None:
            chosen = state.mask.expand(sizes).flatten()
            element, lanes = element[chosen], lanes[chosen]
        if not element.numel():
            return
        owner = writer[element]
        update = updater[element]
        foreign = (owner != -1) & (owner != lanes) | (update != -1) & (update != lanes)
        self._report(access, foreign, element, state)
        before = reader[element]
        reader[element] = lanes
        several = (reader[element] != lanes) | ((before != -1) & (before != lanes))
        reader[element[several]] = MANY

    def store(
        self, access: "Access", element: torch.Tensor, raw: torch.Tensor, lanes: torch.Tensor, state: State
    ) -> None:
        """``element``, ``raw`` (the values) and ``lanes`` are those of the active iterations."""
        reader, writer, updater = self._logs(access)
        slot = element * access.array.factor
        read, owner, update = reader[slot], writer[slot], updater[slot]
        changed = access.array.flat[element] != raw
        foreign_write = (owner != -1) & (owner != lanes) & changed
        foreign_read = (read != -1) & (read != lanes) & changed
        foreign_update = (update != -1) & (update != lanes) & changed
        self._report(access, foreign_read | foreign_write | foreign_update, slot, state)
        writer[slot] = lanes

    def atomic(self, access: "Access", element: torch.Tensor, lanes: torch.Tensor, state: State) -> None:
        """An atomic operation of iterations ``lanes`` on ``element``: a race with others' plain accesses."""
        reader, writer, updater = self._logs(access)
        slot = element * access.array.factor
        read, owner = reader[slot], writer[slot]
        foreign = ((owner != -1) & (owner != lanes)) | ((read != -1) & (read != lanes))
        self._report(access, foreign, slot, state)
        before = updater[slot]
        updater[slot] = lanes
        several = (updater[slot] != lanes) | ((before != -1) & (before != lanes))
        updater[slot[several]] = MANY

    def _report(self, access: "Access", flags: torch.Tensor, slot: torch.Tensor, state: State) -> None:
        mask, state.mask = state.mask, None
        access.fault_where(FaultKind.RACE, flags, state, slot // access.array.factor)
        state.mask = mask

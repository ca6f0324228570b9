"""Statements outside T.Parallel: every thread of a block runs them, and nothing orders the threads.

The simulator runs such a statement once. That stands for all threads if each of them reads the same values,
however far ahead the others are. So between two barriers an element must have one value from its first read
or write by such statements on, if they read it at all. It is a race

- to change an element that was read before: a slower thread reads the new value, as in ``v = s[0]`` and then
  ``s[0] = v + 1``, in a swap, or in ``if s[0] == 0: s[0] = 1``;
- to read an element that was written with two values: a slower thread may just have put back the first.

What is written from constants, inputs and block indices, even many times, is the same for all threads, and a
thread may read what all of them wrote: ``s[i + 1] = s[i] + 1`` is no race. Like the other checks, this is exact
for the values of the run.

Barriers are T.sync_threads, reductions, and tile operations and T.Parallel nests that touch shared memory, as
the compiler puts barriers between them and their like. It puts some between other statements too, but misses
others (variables of T.alloc_var, loops): they don't count. Whose registers a fragment's elements are in is up
to the layout: they count as memory that all threads have.
"""

from grader.ir import nodes
from grader.simulator.budget import Meter
from grader.simulator.memory import Array, Memory

READ, WRITTEN, CHANGED = 1, 2, 4  # CHANGED: written with more than one value

_CHUNK, _ENTRY = 1 << 12, 128  # the log is paid for in chunks of so many granules, of so many bytes each


class Threads:
    """What statements outside T.Parallel did to each granule since the last barrier."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._stored: set[nodes.Storage] = set()
        self._seen: dict[Memory, dict[int, int]] = {}

    def stores(self, storage: nodes.Storage) -> None:
        """Such a statement stores here; only there reads matter. Said while the kernel is compiled."""
        self._stored.add(storage)

    def barrier(self) -> None:
        for seen in self._seen.values():
            seen.clear()

    def read(self, array: Array, position: int, line: nodes.Line | None) -> bool:
        """Notes a read; is it a race?"""
        if array.memory.storage not in self._stored:
            return False
        race = False
        seen = self._seen.setdefault(array.memory, {})
        for granule in _granules(array, position):
            marks = seen.get(granule, 0)
            race |= bool(marks & CHANGED)
            seen[granule] = (marks | READ) & ~CHANGED  # a race is told once
        self._pay(seen, line)
        return race

    def write(self, array: Array, position: int, line: nodes.Line | None, *, changed: bool) -> bool:
        """Notes a write; is it a race? ``changed``: the element had another value before."""
        race = False
        seen = self._seen.setdefault(array.memory, {})
        for granule in _granules(array, position):
            marks = seen.get(granule, 0)
            if changed and marks & READ:
                race, marks = True, 0
            elif changed and marks & WRITTEN:
                marks |= CHANGED
            seen[granule] = marks | WRITTEN
        self._pay(seen, line)
        return race

    def _pay(self, seen: dict[int, int], line: nodes.Line | None) -> None:
        if len(seen) >= _CHUNK:
            self._meter.room(len(seen) * _ENTRY, line)


def _granules(array: Array, position: int) -> range:
    return range(position * array.factor, (position + 1) * array.factor)


def holds_up(node: nodes.Expr | nodes.Stmt) -> bool:
    """Is a tile operation or T.Parallel nest a barrier?"""
    return any(
        (isinstance(part, nodes.Load | nodes.Store | nodes.Region) and part.buffer.scope in _SHARED)
        or (isinstance(part, nodes.Call) and part.op == "tl.tileop.reduce")
        for part in nodes.walk(node)
    )


_SHARED = (nodes.SHARED, nodes.SHARED_DYNAMIC)

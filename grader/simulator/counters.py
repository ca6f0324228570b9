"""The counters of a run: what each place of the kernel read, wrote, copied and computed.

All of them are one list of integers. A place asks for its slots when it is compiled; while it runs, it only adds.
In a new tile operation, tiles count their own bytes as they are loaded and stored, and the rest is one line each::

    count = scope.program.counters.operations(Kind.ADD, dtype.name)  # when it is compiled
    count(rows * columns)                                            # when it runs
"""

from collections.abc import Callable
from math import prod

import torch

from grader.ir.nodes import FRAGMENT, GLOBAL, SHARED, SHARED_DYNAMIC, Storage
from grader.verdict.traffic import Copies, Kind, Operations

Add = Callable[[int], None]

#: Scope of a storage -> as it is told.
SCOPES = {GLOBAL: "global", SHARED: "shared", SHARED_DYNAMIC: "shared", FRAGMENT: "fragment"}


def told(scope: str) -> str:
    return SCOPES.get(scope, "local")


class Counters:
    """``lead`` are the extents of leading dimensions that stand for blocks which run at once, ``blocks`` of them.

    Whatever such a walk does, it does for all of these blocks: ``touched`` includes them, and what ``adder`` and
    its like give multiplies by them.
    """

    def __init__(self, lead: tuple[int, ...] = ()) -> None:
        self.counts: list[int] = []
        self.lead = lead
        self.blocks = prod(lead)
        self._slots: dict[object, int] = {}
        self._mask: torch.Tensor | None = None
        self._touched: dict[tuple[int, ...], int] = {}

    def slot(self, key: object) -> int:
        """The place in ``counts`` of what ``key`` names; keys are tuples of a word and what it is of."""
        if key not in self._slots:
            self._slots[key] = len(self.counts)
            self.counts.append(0)
        return self._slots[key]

    def get(self, *key: object) -> int:
        slot = self._slots.get(key)
        return 0 if slot is None else self.counts[slot]

    # What a place may count

    def bytes_read(self, storage: Storage) -> int:
        """The slot of the bytes read of a storage."""
        return self.slot(("read", storage))

    def bytes_written(self, storage: Storage) -> int:
        return self.slot(("written", storage))

    def operations(self, kind: Kind, dtype: str) -> Add:
        """What adds to the operations of a kind on operands of a dtype."""
        return self.adder(("operations", kind, dtype))

    def copies(self, source: str, target: str) -> Add:
        """What adds to the bytes that T.copy reads from one scope for another."""
        return self.adder(("copies", told(source), told(target)))

    def guards(self) -> Add:
        """What adds to the elements that a copy would have touched out of bounds."""
        return self.adder(("guarded",))

    def adder(self, key: object) -> Add:
        slot, counts, blocks = self.slot(key), self.counts, self.blocks

        def add(count: int) -> None:
            counts[slot] += count * blocks

        return add

    # How many

    def touched(self, mask: torch.Tensor | None, sizes: tuple[int, ...]) -> int:
        """How many elements of a window or of indices of these sizes the active iterations touch.

        A size of 1 is of a loop that the window or indices don't depend on: whatever many iterations of it are
        active touch the same elements.
        """
        if self.lead:
            sizes = self.lead + sizes[len(self.lead) :]
        if mask is None:
            return prod(sizes)
        if mask is not self._mask:  # a mask is never changed in place
            self._mask, self._touched = mask, {}
        count = self._touched.get(sizes)
        if count is None:
            count = self._touched[sizes] = _touched(mask, sizes)
        return count

    # All of them

    def clear(self) -> None:
        self.counts[:] = [0] * len(self.counts)

    def add(self, others: "Counters") -> None:
        """Adds all that others have counted."""
        for key, slot in others._slots.items():
            self.counts[self.slot(key)] += others.counts[slot]

    def all_operations(self) -> tuple[Operations, ...]:
        """By kind and dtype, in the order of the kinds; what never happened is left out."""
        order = list(Kind)
        found = [
            Operations(key[1], key[2], self.counts[slot])
            for key, slot in self._slots.items()
            if key[0] == "operations" and self.counts[slot]
        ]
        return tuple(sorted(found, key=lambda item: (order.index(item.kind), item.dtype)))

    def all_copies(self) -> tuple[Copies, ...]:
        return tuple(
            Copies(key[1], key[2], self.counts[slot])
            for key, slot in self._slots.items()
            if key[0] == "copies" and self.counts[slot]
        )


def _touched(mask: torch.Tensor, sizes: tuple[int, ...]) -> int:
    for axis, size in enumerate(sizes):
        if size == 1 and mask.shape[axis] > 1:
            mask = mask.any(axis, keepdim=True)
    return int(mask.sum()) * prod(size for size, own in zip(sizes, mask.shape, strict=True) if own == 1)

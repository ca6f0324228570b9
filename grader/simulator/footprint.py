"""Which bytes of a global memory were read at all.

Windows are only remembered, and laid out on a map of the memory when there are many of them or somebody asks.
What a run takes back need not be taken back here: it is read again.
"""

from typing import TYPE_CHECKING

import torch

from grader.simulator.memory import Window

if TYPE_CHECKING:
    from grader.simulator.budget import Meter
    from grader.simulator.memory import Array, Memory

MOST = 4096  # windows, or elements, that are remembered before they are laid out


class Footprint:
    def __init__(self, memory: "Memory", meter: "Meter") -> None:
        self._memory = memory
        self._meter = meter
        self._map: torch.Tensor | None = None  # for each granule, whether it was read
        self._windows: set[tuple[Array, int, tuple[int, ...], tuple[int, ...]]] = set()
        self._elements: dict[Array, set[int]] = {}

    def window(self, array: "Array", window: Window, mask: torch.Tensor | None = None) -> None:
        """The elements of a window are read, of a nest's those whose iterations are active."""
        if mask is not None:
            for axis, size in enumerate(window.sizes):
                if size == 1 and mask.shape[axis] > 1:
                    mask = mask.any(axis, keepdim=True)
            array.granules(self._laid_out(), window).logical_or_(array.spread(mask))
            return
        self._windows.add((array, window.offset, window.sizes, window.strides))
        if len(self._windows) > MOST:
            self._lay_out()

    def element(self, array: "Array", position: int) -> None:
        elements = self._elements.setdefault(array, set())
        elements.add(position)
        if len(elements) > MOST:
            self._lay_out()

    def elements(self, array: "Array", positions: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Elements at flat positions are read, those whose iterations are active."""
        if mask is not None:
            positions, mask = torch.broadcast_tensors(positions, mask)
            positions = positions[mask]
        array.set_granules(self._laid_out(), positions.flatten())

    def bytes(self) -> int:
        """How many distinct bytes were read."""
        if self._map is None:  # the run is over, and its budget with it
            self._map = self._empty()
        self._lay_out()
        return int(self._map.sum()) * self._memory.granule

    def _laid_out(self) -> torch.Tensor:
        if self._map is None:
            self._meter.keep(self._memory.data.numel() // self._memory.granule, None)
            self._map = self._empty()
        return self._map

    def _empty(self) -> torch.Tensor:
        return torch.zeros(self._memory.data.numel() // self._memory.granule, dtype=torch.bool)

    def _lay_out(self) -> None:
        read = self._laid_out()
        for array, offset, sizes, strides in self._windows:
            array.granules(read, Window(offset, sizes, strides)).fill_(True)
        for array, positions in self._elements.items():
            array.set_granules(read, torch.tensor(list(positions), dtype=torch.int64))
        self._windows.clear()
        self._elements.clear()

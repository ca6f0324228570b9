"""The memory of a kernel: parameters in global memory, shared and fragment tiles of one block.

A ``Memory`` is a piece of bytes with a shadow that knows what has been written; an ``Array`` is a typed view
of it, one for each Buffer of the IR, so that views alias as they do on the card. Elements are reached through
a ``Window`` (offset, sizes, strides) as far as possible, which costs no index tensors, else by flat indices.
"""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from grader.ir.nodes import GLOBAL, LOCAL, VARIABLE, Buffer, Storage
from grader.simulator.dtypes import DType

if TYPE_CHECKING:
    from grader.simulator.footprint import Footprint

#: What of a memory has been written: nothing (and not even poisoned yet), some of it, all of it.
EMPTY, PARTIAL, FULL = range(3)

UNWRITTEN = 0
SEVERAL = -(2**31)


@dataclass(frozen=True)
class Window:
    """Elements of an array's flat memory, as torch's as_strided takes them."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def count(self) -> int:
        return prod(self.sizes)

    def positions(self) -> torch.Tensor:
        """The flat position of each element, in the window's shape."""
        positions = torch.tensor(self.offset)
        for axis, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            steps = torch.arange(size) * stride
            positions = positions + steps.reshape([-1 if other == axis else 1 for other in range(len(self.sizes))])
        return positions

    def at(self, lane: int) -> int:
        """The flat position of the lane-th element of the window."""
        position = self.offset
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            lane, coordinate = divmod(lane, size)
            position += coordinate * stride
        return position


class Memory:
    """Bytes and their shadow. ``granule`` is the size of the smallest element that any view of it has.

    A parameter that the kernel writes has ``writer`` instead of ``written``: for each granule the number of
    the block that wrote it last, counted from 1, or UNWRITTEN; minus that number if the write was atomic, and
    SEVERAL after atomic writes of several blocks. One that nothing writes is FULL and has no shadow. A
    parameter that the kernel both reads and writes has ``reader`` too: the number of the block that read it,
    -1, or SEVERAL. Memory that isn't ``checked`` never has any of these: once it is poisoned, it counts as
    written.

    Nothing orders the blocks of a kernel, so an element that one block writes is no other block's to touch. It is
    a race between blocks to write what another one has written (unless both do it atomically), to read what
    another one has written, and to write what another one has read: on the card either might come first. It
    doesn't matter whether the values are equal: equal inputs would hide it.
    """

    def __init__(
        self,
        storage: Storage,
        data: torch.Tensor,
        granule: int,
        poison: int,
        *,
        checked: bool = True,
        blocks: int = 1,
    ) -> None:
        self.storage = storage
        self.checked = checked
        self.blocks = blocks  # how many blocks have their own part of it, one after another
        self.scope = storage.scope
        self.data = data  # flat, uint8
        self.granule = granule
        self.poison = poison
        self.is_global = storage.scope == GLOBAL
        self.is_local = storage.scope in (LOCAL, VARIABLE)
        self.state = FULL if self.is_global else EMPTY
        self.written: torch.Tensor | None = None
        self.writer: torch.Tensor | None = None
        self.reader: torch.Tensor | None = None
        self.holds_input = self.is_global  # has values before the kernel starts
        self.carried = False  # what is unwritten was written before this T.Parallel: see Nest
        self.footprint: Footprint | None = None  # of global memory

    def track_blocks(self, *, holds_input: bool, readers: bool) -> None:
        count = self.data.numel() // self.granule
        # The system makes zeroed memory when it is touched: a few blocks of a large kernel touch little of it.
        self.writer = torch.from_numpy(np.zeros(count, dtype=np.int32))
        if readers:
            self.reader = torch.full((count,), -1, dtype=torch.int32)
        self.holds_input = holds_input
        self.state = PARTIAL

    def forget(self) -> None:
        """A new block gets memory in which nothing is written; it is poisoned when it is first touched."""
        self.state = EMPTY

    def materialise(self) -> None:
        if self.state == EMPTY:
            self.data.fill_(self.poison)
            if not self.checked:
                self.state = FULL
                return
            if self.written is None:
                self.written = torch.zeros(self.data.numel() // self.granule, dtype=torch.bool)
            else:
                self.written.zero_()
            self.state = PARTIAL


class Array:
    """A typed view of a memory, with constant shape and strides (in elements)."""

    def __init__(
        self, memory: Memory, buffer: Buffer, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.memory = memory
        self.buffer = buffer
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.count = prod(shape)
        self.factor = dtype.size // memory.granule  # granules an element
        usable = memory.data.numel() // dtype.size * dtype.size
        self.flat = memory.data[:usable].view(dtype.raw)
        self.base = self.flat.storage_offset()  # as_strided counts from the start of torch's storage
        self.lead = 0  # leading dimensions that are blocks, not the buffer's: see batch
        self.covers = strides == row_major(shape) and self.count * dtype.size == memory.data.numel()

    def raw(self, window: Window) -> torch.Tensor:
        return self.flat.as_strided(window.sizes, window.strides, self.base + window.offset)

    def _shadow(self, shadow: torch.Tensor, window: Window) -> torch.Tensor:
        factor = self.factor
        if factor == 1:
            return shadow.as_strided(window.sizes, window.strides, window.offset)
        strides = (*(stride * factor for stride in window.strides), 1)
        return shadow.as_strided((*window.sizes, factor), strides, window.offset * factor)

    def _shadow_at(self, shadow: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if self.factor == 1:
            return shadow[index]
        return shadow[index.unsqueeze(-1) * self.factor + torch.arange(self.factor)]

    # What a shadow or a map with one entry a granule has of some elements

    def granules(self, shadow: torch.Tensor, window: Window) -> torch.Tensor:
        """Its entries of a window's elements, to be changed in place; see ``spread`` for their dimensions."""
        return self._shadow(shadow, window)

    def set_granules(self, shadow: torch.Tensor, positions: torch.Tensor) -> None:
        """Sets its entries of the elements at flat positions."""
        if self.factor > 1:
            positions = positions.unsqueeze(-1) * self.factor + torch.arange(self.factor)
        shadow[positions] = True

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Values of a window's elements, in a form that goes with the window's granules."""
        return self._spread(values)

    def _spread(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.factor == 1 else values.unsqueeze(-1)

    def _join(self, flags: torch.Tensor) -> torch.Tensor:
        return flags if self.factor == 1 else flags.any(-1)

    # Reading: which elements of a window (or at flat indices) are unwritten, which are another block's?

    def unwritten(self, where: "Window | torch.Tensor") -> torch.Tensor | None:
        """True where a read would give what nothing has written. None if everything is written."""
        memory = self.memory
        if memory.state == FULL:
            return None
        memory.materialise()
        if not memory.checked:
            return None
        look = self._shadow if isinstance(where, Window) else self._shadow_at
        if memory.writer is not None:
            return None if memory.holds_input else self._join(look(memory.writer, where) == UNWRITTEN)
        return self._join(~look(memory.written, where))

    def foreign(
        self, where: "Window | torch.Tensor", block: "int | torch.Tensor", *, atomic: bool = False
    ) -> torch.Tensor | None:
        """True where another block has written. None if no block can have.

        ``block`` is the number of the block that asks: of several, a tensor over the leading dimensions.
        ``atomic``: for an atomic access, which may meet other atomic ones.
        """
        writer = self.memory.writer
        if writer is None:
            return None
        owner = (self._shadow if isinstance(where, Window) else self._shadow_at)(writer, where)
        if not owner.numel() or (int(owner.max()) == UNWRITTEN and int(owner.min()) == UNWRITTEN):
            return None
        mine = _like(block, owner) + 1
        if atomic:
            return self._join((owner > UNWRITTEN) & (owner != mine))
        return self._join((owner != UNWRITTEN) & (owner != mine) & (owner != -mine))

    def read_elsewhere(self, where: "Window | torch.Tensor", block: int) -> torch.Tensor | None:
        """True where another block has read. None if no block can have."""
        reader = self.memory.reader
        if reader is None:
            return None
        seen = (self._shadow if isinstance(where, Window) else self._shadow_at)(reader, where)
        return self._join((seen != -1) & (seen != block))

    def note_reader(self, where: "Window | torch.Tensor", mask: torch.Tensor | None, block: int) -> None:
        """Notes that a block reads a window or flat indices, in the iterations where ``mask`` is true."""
        reader = self.memory.reader
        if reader is None:
            return
        index = where.positions() if isinstance(where, Window) else where
        if mask is not None:
            index, mask = torch.broadcast_tensors(index, mask)
            index = index[mask]
        if self.factor > 1:
            index = index.unsqueeze(-1) * self.factor + torch.arange(self.factor)
        seen = reader[index]
        reader[index] = torch.where((seen == -1) | (seen == block), block, SEVERAL).to(reader.dtype)

    # Writing

    def mark(
        self, window: Window, mask: torch.Tensor | None, block: "int | torch.Tensor", *, atomic: bool = False
    ) -> None:
        """Notes that the window (where ``mask`` is true) has been written; for ``block`` see ``foreign``."""
        memory = self.memory
        if memory.state == FULL:
            return
        if memory.writer is not None:
            owner = self._shadow(memory.writer, window)
            if atomic:
                mine = _after_update(owner, block)
                owner.copy_(mine if mask is None else torch.where(self._spread(mask), mine, owner))
                return
            mine = _like(block, owner) + 1
            if mask is None and isinstance(mine, int):
                owner.fill_(mine)
            elif mask is None:
                owner.copy_(mine)
            else:
                owner.copy_(torch.where(self._spread(mask), mine, owner))
            return
        if mask is None and self.covers and window.count == self.count:
            memory.state = FULL
            return
        memory.materialise()
        if not memory.checked:
            return
        shadow = self._shadow(memory.written, window)
        if mask is None:
            shadow.fill_(True)
        else:
            shadow.logical_or_(self._spread(mask))

    def mark_at(self, index: torch.Tensor, block: "int | torch.Tensor", *, atomic: bool = False) -> None:
        """Notes that the elements at flat positions have been written; for ``block`` see ``foreign``."""
        memory = self.memory
        if memory.state == FULL:
            return
        memory.materialise()
        if not memory.checked:
            return
        if self.factor > 1:
            index = index.unsqueeze(-1) * self.factor + torch.arange(self.factor)
        if memory.writer is None:
            memory.written[index] = True
        elif atomic:
            memory.writer[index] = _after_update(memory.writer[index], block)
        else:
            memory.writer[index] = _like(block, index) + 1

    def prepare_write(self, window: Window, mask: torch.Tensor | None) -> None:
        """Poisons memory that is about to be written in part, so that the rest is seen to be unwritten."""
        if self.memory.state == EMPTY and not (mask is None and self.covers and window.count == self.count):
            self.memory.materialise()

    def position(self, flat: int) -> tuple[int, ...]:
        """The indices of the element at a flat position."""
        index = [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            if self.shape[axis] > 1 and self.strides[axis]:
                index[axis], flat = divmod(flat, self.strides[axis])
        return tuple(index)


def _after_update(owner: torch.Tensor, block: int) -> torch.Tensor:
    """The writers of granules that a block updates atomically."""
    mine = block + 1
    alone = (owner == UNWRITTEN) | (owner == mine) | (owner == -mine)
    return torch.where(alone, -mine, SEVERAL).to(torch.int32)


def _like(block: int | torch.Tensor, owner: torch.Tensor) -> int | torch.Tensor:
    """Block numbers over leading dimensions, in a form that broadcasts with all of an owner's."""
    return block if isinstance(block, int) else block.reshape(*block.shape, *[1] * (owner.ndim - block.ndim))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))

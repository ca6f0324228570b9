"""What a kernel moved and computed in one launch, and what that means on a card: plain data.

How it is counted:

- A tile operation reads each element of its operands once and writes each element of its result once. Elements
  that a copy finds out of bounds are not read; the zeros that stand for them are written.
- In a T.Parallel, each iteration that is active reads, computes and writes; what doesn't depend on a loop is read
  and computed once for all iterations of that loop, as a compiler does it.
- A statement outside T.Parallel counts once a block, though every thread runs it.
- Bytes of global memory are those that the kernel asks for, before any cache. A *distinct* byte counts once,
  however often it is touched: what a cache that never forgets would still have to move.
- An operation is one on floats, or on integers that come from memory. Arithmetic on indices, conversions,
  choices, absolute values and signs, and logic on truth values are not counted.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from pydantic import TypeAdapter

from grader.verdict.chart import Roof


class Kind(StrEnum):
    """What an operation does. A fused multiply-add is a multiplication and an addition."""

    GEMM = "gemm"  # multiplications and additions of matrix products: 2 M N K
    ADD = "add"  # and subtract
    MULTIPLY = "multiply"
    DIVIDE = "divide"  # and remainders
    EXTREME = "min/max"
    FUNCTION = "function"  # exp, log, sqrt, …
    REDUCE = "reduce"  # what joins two values in a reduction, scan or reducer: n - 1 for n values
    ATOMIC = "atomic"  # updates of an element by an atomic operation
    COMPARE = "compare"
    INTEGER = "integer"  # any arithmetic on integers from memory


#: Kinds that are floating-point operations if their operands are floats.
ARITHMETIC = frozenset(Kind) - {Kind.COMPARE, Kind.INTEGER}


@dataclass(frozen=True)
class Operations:
    """``count`` operations of a kind on operands of ``dtype``."""

    kind: Kind
    dtype: str
    count: int

    @property
    def flops(self) -> int:
        return self.count if self.kind in ARITHMETIC and "float" in self.dtype else 0


@dataclass(frozen=True)
class Copies:
    """Bytes that T.copy read, by direction: from scope ``source`` to scope ``target``."""

    source: str
    target: str
    bytes: int


@dataclass(frozen=True)
class BufferTraffic:
    """Bytes of one buffer, views of it included, over all blocks.

    ``scope`` is "global", "shared", "fragment" or "local"; ``size`` is the buffer's in bytes (a block's,
    where each block has its own). The distinct bytes are known for global memory only.
    """

    name: str
    scope: str
    size: int
    read: int
    written: int
    distinct_read: int | None = None
    distinct_written: int | None = None

    @property
    def reread(self) -> float | None:
        """How often a byte that is read at all is read, on average."""
        return self.read / self.distinct_read if self.distinct_read else None


@dataclass(frozen=True)
class Traffic:
    """The whole launch. ``buffers`` are the parameters, then what a block allocates, in the kernel's order.

    ``shared`` is the shared memory of a block in bytes, as allocated; ``staged`` counts tiles that a pipeline
    fills once for each of its stages, before the compiler lets tiles share memory. ``guarded`` counts elements
    that copies would have read or written out of bounds.
    """

    buffers: tuple[BufferTraffic, ...]
    operations: tuple[Operations, ...]
    copies: tuple[Copies, ...]
    blocks: int
    threads: int
    shared: int
    staged: int
    guarded: int

    def read(self, scope: str = "global") -> int:
        return sum(buffer.read for buffer in self.buffers if buffer.scope == scope)

    def written(self, scope: str = "global") -> int:
        return sum(buffer.written for buffer in self.buffers if buffer.scope == scope)

    def buffer(self, name: str) -> BufferTraffic:
        """The first buffer of that name. KeyError if there is none."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)

    def count(self, kind: Kind, dtype: str | None = None) -> int:
        """Operations of a kind, on operands of ``dtype`` or of all."""
        return sum(item.count for item in self.operations if item.kind == kind and dtype in (None, item.dtype))

    @property
    def bytes(self) -> int:
        """Bytes of global memory read and written."""
        return self.read() + self.written()

    @cached_property
    def distinct(self) -> int:
        """Distinct bytes of global memory read, plus those written."""
        return sum((buffer.distinct_read or 0) + (buffer.distinct_written or 0) for buffer in self.buffers)

    @cached_property
    def flops(self) -> int:
        """Floating-point operations."""
        return sum(item.flops for item in self.operations)

    @property
    def gemm_operations(self) -> dict[str, int]:
        """Operations of matrix products (also of integers), by the operands' dtype."""
        return {item.dtype: item.count for item in self.operations if item.kind is Kind.GEMM}

    @property
    def other_flops(self) -> int:
        """Floating-point operations that no matrix product does."""
        return self.flops - sum(item.flops for item in self.operations if item.kind is Kind.GEMM)

    @property
    def intensity(self) -> float | None:
        """FLOP a byte of global memory that the kernel asks for; None if it asks for none."""
        return self.flops / self.bytes if self.bytes else None

    @property
    def distinct_intensity(self) -> float | None:
        """FLOP a distinct byte of global memory: the highest intensity that any cache can give."""
        return self.flops / self.distinct if self.distinct else None


@dataclass(frozen=True)
class Bound:
    """The least time that a card needs by its datasheet, and what limits it there.

    ``limit`` is "memory", "tensor cores" or "arithmetic". Rates are what that time gives: of all operations in
    TFLOP/s (10^12 a second, integer products included), of global memory in GB/s (10^9 bytes a second).
    """

    card: str
    seconds: float
    limit: str
    tflops: float
    gbs: float


@dataclass(frozen=True)
class CardBounds:
    """A card's bound with the bytes that the kernel asks for, and with the distinct ones.

    The second is the roof that no launch can pass; how near to it caches bring a launch is up to the order of its
    blocks. Both are None if the card lacks what the kernel needs, which ``lacking`` then names. ``roofs`` are the
    card's, by its datasheet.
    """

    card: str
    asked: Bound | None
    distinct: Bound | None
    lacking: str = ""
    roofs: tuple[Roof, ...] = ()


@dataclass(frozen=True)
class Counted:
    """A kernel of a lab, counted at one shape, and what that means on the cards."""

    lab: str
    kernel: str
    shape: str
    traffic: Traffic
    cards: tuple[CardBounds, ...]


_counted = TypeAdapter(Counted)


def to_json(counted: Counted) -> str:
    return _counted.dump_json(counted, indent=2).decode()


def from_json(text: str | bytes) -> Counted:
    return _counted.validate_json(text)

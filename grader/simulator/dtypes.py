"""How TileLang's dtypes are held, moved and computed with in torch.

torch computes natively in most of them. Unsigned integers are computed in int64 and wrapped after each
operation (those of 64 bits as int64 of the same bits: see unsigned), 8-bit floats in float32 and rounded after
each. A *carrier* is the torch dtype that an expression's tensors have; *raw* is the dtype as which elements lie in
memory and are moved.

A scalar (an expression that is the same in all iterations of a T.Parallel) is a Python int or bool, which is
fast for indices and loop bounds, or, for floats, a tensor of no dimensions: a Python float would be a double.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from grader.ir.nodes import ITEM_SIZE, TFLOAT32
from grader.simulator import unsigned

Value = Any  # a torch.Tensor, or a Python int or bool


@dataclass(frozen=True)
class DType:
    name: str
    kind: str  # "float", "int", "uint" or "bool"
    held: torch.dtype  # what a parameter's tensor has
    raw: torch.dtype
    carrier: torch.dtype
    size: int

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def bits(self) -> int:
        return 8 * self.size

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def high(self) -> int:
        return (1 << (self.bits - 1 if self.kind == "int" else self.bits)) - 1

    @property
    def is_uint64(self) -> bool:
        """Are the values int64 to torch, and scalars what int64 would read? See unsigned."""
        return self.kind == "uint" and self.size == 8

    @property
    def scalars(self) -> tuple[int, int]:
        """The smallest and largest Python int that a scalar can be."""
        return (unsigned.LOWEST, unsigned.HIGHEST) if self.is_uint64 else (self.low, self.high)

    def number(self, scalar: Value) -> Value:
        """What a scalar of an integer dtype, or an element of the carrier as a Python int, is worth."""
        return unsigned.number(scalar) if self.is_uint64 else scalar

    def in_order(self, function: Callable[..., Value]) -> Callable[..., Value]:
        """A function that chooses among values by their order (a minimum or maximum), for this dtype's values."""
        if not self.is_uint64:
            return function
        return lambda *values: unsigned.ordered(function(*map(unsigned.ordered, values)))

    @property
    def poison(self) -> int:
        """The byte that fills memory of this dtype before it is written: NaN for floats, odd integers."""
        return {"float": 0xFF, "bool": 1}.get(self.kind, 0xA5)

    def wrap(self, value: int) -> int:
        """The scalar that a Python integer is, brought into the dtype's range as two's complement does."""
        low, high = self.scalars
        if low <= value <= high:
            return value
        return ((value - low) & ((1 << self.bits) - 1)) + low

    def decode(self, raw: torch.Tensor) -> torch.Tensor:
        if self.raw == self.carrier:
            return raw
        if self.kind == "float":
            return raw.view(self.held).to(torch.float32)
        return raw.to(torch.int64) & self.high

    def encode(self, value: torch.Tensor) -> torch.Tensor:
        if self.raw == self.carrier:
            return value
        if self.kind == "float":
            return _to_float8(value, self.held).view(torch.uint8)
        return value.to(self.raw)

    def is_like(self, other: "DType") -> bool:
        """Are both the same type, maybe by two names, so that values move without a conversion?"""
        return self.held == other.held and (self.name == TFLOAT32) == (other.name == TFLOAT32)

    def settle(self, value: torch.Tensor) -> torch.Tensor:
        """The result of an operation in the carrier, rounded or wrapped to the dtype."""
        if self.name == TFLOAT32:
            return _to_tfloat32(value)
        if self.raw == self.carrier:
            return value
        if self.kind == "float":
            return _to_float8(value, self.held).to(torch.float32)
        return value & self.high

    def holds(self, value: object) -> bool:
        """Can a constant of the IR with this dtype be this number?"""
        if self.kind == "bool":
            return isinstance(value, int) and value in (0, 1)
        if self.is_int:
            return isinstance(value, int) and self.low <= value <= self.high
        return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 1023)

    def scalar(self, value: float) -> Value:
        """A number of the IR as a scalar."""
        if self.kind == "float":
            return self.settle(torch.tensor(float(value), dtype=torch.float64).to(self.carrier))
        return bool(value) if self.kind == "bool" else self.wrap(int(value))

    def tensor(self, value: Value) -> torch.Tensor:
        """A scalar or tensor as a tensor of the carrier."""
        return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=self.carrier)


def _to_float8(value: torch.Tensor, held: torch.dtype) -> torch.Tensor:
    # Conversions to 8-bit floats saturate on the card, as TileLang compiles them.
    limit = torch.finfo(held).max
    return value.clamp(-limit, limit).to(held)


def _to_tfloat32(value: torch.Tensor) -> torch.Tensor:
    """Rounded to 10 bits of the fraction, halves away from zero, as CUTLASS's tfloat32_t does it."""
    bits = value.contiguous().view(torch.int32)
    rounded = ((bits + (1 << 12)) & -(1 << 13)).view(torch.float32)
    return torch.where(value.isfinite(), rounded, value)


def _same(name: str, kind: str, dtype: torch.dtype) -> DType:
    return DType(name, kind, dtype, dtype, dtype, ITEM_SIZE[name])


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        _same("bool", "bool", torch.bool),
        _same("int8", "int", torch.int8),
        _same("int16", "int", torch.int16),
        _same("int32", "int", torch.int32),
        _same("int64", "int", torch.int64),
        _same("float16", "float", torch.float16),
        _same("bfloat16", "float", torch.bfloat16),
        _same("float32", "float", torch.float32),
        _same("float64", "float", torch.float64),
        _same(TFLOAT32, "float", torch.float32),
        DType("uint8", "uint", torch.uint8, torch.uint8, torch.int64, 1),
        DType("uint16", "uint", torch.uint16, torch.int16, torch.int64, 2),
        DType("uint32", "uint", torch.uint32, torch.int32, torch.int64, 4),
        DType("uint64", "uint", torch.uint64, torch.int64, torch.int64, 8),
        DType("float8_e4m3", "float", torch.float8_e4m3fn, torch.uint8, torch.float32, 1),
        DType("float8_e4m3fn", "float", torch.float8_e4m3fn, torch.uint8, torch.float32, 1),
        DType("float8_e5m2", "float", torch.float8_e5m2, torch.uint8, torch.float32, 1),
    )
}


def cast(source: DType, target: DType) -> Callable[[Value], Value]:
    """The conversion between two dtypes, of scalars and tensors alike, as the card does it."""
    if source == target:
        return lambda value: value
    if target.kind == "float":
        if source.is_uint64:
            return lambda value: target.settle(unsigned.to_float(_tensor(value, source), target.carrier))
        return lambda value: target.settle(_tensor(value, source).to(target.carrier))
    if source.kind == "float" and source.size == 1 and target.name in ("int32", "bool"):
        # The classes of 8-bit floats that TileLang's CUDA code uses round to the nearest integer here, and only
        # here: CUTLASS's float_e4m3_t and float_e5m2_t have conversions of their own to int and, by it, to bool.
        whole = cast(DTYPES["float32"], target)
        return lambda value: whole(_tensor(value, source).to(torch.float32).round())
    if target.kind == "bool":
        return lambda value: value != 0 if isinstance(value, torch.Tensor) and value.ndim else bool(value)
    if source.kind == "float":
        # On the card, this saturates to 32 (or 64) bits and cuts what is narrower. Of NaN it makes 0, or of 64-bit
        # floats and for 64-bit integers the highest bit alone (PTX ISA, cvt).
        wide = target if target.size >= 4 else DTYPES["int32"]
        low, high = wide.low, wide.high
        no_number = wide.wrap(1 << (wide.bits - 1)) if 8 in (source.size, wide.size) else 0

        def to_integer(value: torch.Tensor) -> Value:
            exact = value.to(torch.float64).nan_to_num(nan=0.0).trunc()
            if wide.is_uint64:
                whole = unsigned.from_float(exact)
            else:
                whole = exact.clamp(low, min(high, unsigned.BELOW)).to(torch.int64)
                if wide.size == 8:  # 2**63 - 1 is no double
                    whole = torch.where(exact >= 2.0**63, high, whole)
            if no_number:
                whole = torch.where(value.isnan(), no_number, whole)
            if value.ndim == 0:
                return target.wrap(int(whole))
            return target.settle(whole.to(target.carrier))

        return to_integer

    def between_integers(value: Value) -> Value:
        if isinstance(value, torch.Tensor):
            return target.settle(value.to(target.carrier))
        return target.wrap(int(value))

    return between_integers


def _tensor(value: Value, dtype: DType) -> torch.Tensor:
    return dtype.tensor(value)

"""The roofline: the least time that a card can need for so many bytes and operations, by its datasheet.

A launch takes at least as long as the slowest of what must be done at the same time: moving its bytes, its matrix
products on the tensor cores, its other arithmetic on the fp32 units (S. Williams, A. Waterman, D. Patterson,
Roofline: an insightful visual performance model for multicore architectures, CACM 52(4), 2009). The peaks stand in
``cards.toml``, with their sources.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from grader.messages import _
from grader.verdict import Unusable
from grader.verdict.chart import Roof
from grader.verdict.traffic import Bound, CardBounds, Traffic

#: dtype of a matrix product's operands -> its tensor cores. TileLang multiplies fp32 as tf32.
TENSOR_CORES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "float64": "fp64",
    "float8_e4m3": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "int8": "int8",
    "uint8": "int8",
}


@dataclass(frozen=True)
class Peaks:
    """A card: ``memory`` in GB/s, ``fp32`` and ``tensor`` (by type, dense) in TFLOP/s.

    ``drivers`` are the names under which NVIDIA's driver knows it.
    """

    name: str
    source: str
    memory: float
    fp32: float
    tensor: Mapping[str, float] = field(default_factory=dict)
    drivers: tuple[str, ...] = ()


class Lacking(ValueError):
    """The card has no tensor cores for a type; the message names it."""


@cache
def cards() -> tuple[Peaks, ...]:
    rows = tomllib.loads(Path(__file__).with_name("cards.toml").read_text())
    return tuple(Peaks(name, **row | {"drivers": tuple(row["drivers"])}) for name, row in rows.items())


def of_driver(name: str) -> Peaks | None:
    """The card that NVIDIA's driver calls ``name``, exactly; None if the table doesn't have it."""
    return next((card for card in cards() if name in card.drivers), None)


def find(name: str) -> Peaks:
    """The card whose name is ``name`` or begins with it, in any case. Raises Unusable if none's does.

    The driver's name of a card does as well.
    """
    known_to_driver = of_driver(name)
    if known_to_driver is not None:
        return known_to_driver
    wanted = name.casefold().removeprefix("nvidia").strip()
    if wanted:
        for card in sorted(cards(), key=lambda card: card.name.casefold() != wanted):
            if card.name.casefold().startswith(wanted):
                return card
    known = ", ".join(card.name for card in cards())
    raise Unusable(
        _("There are no figures of the card '{name}'. The cards are: {known}.").format(name=name, known=known)
    )


def bound(gemm: Mapping[str, int], other: int, bytes_: int, card: Peaks) -> Bound:
    """The card's bound.

    ``gemm``: operations of matrix products by the operands' dtype (a multiply-add is two); ``other``: further
    floating-point operations; ``bytes_``: of global memory. Raises Lacking if the card multiplies no such dtype on
    tensor cores, ValueError if there is nothing to do.
    """
    tensor = 0.0
    for dtype, operations in gemm.items():
        kind = TENSOR_CORES.get(dtype)
        if kind not in card.tensor:
            raise Lacking(_("no tensor cores for {dtype}").format(dtype=dtype))
        tensor += operations / (card.tensor[kind] * 1e12)
    times = {
        "memory": bytes_ / (card.memory * 1e9),
        "tensor cores": tensor,
        "arithmetic": other / (card.fp32 * 1e12),
    }
    limit = max(times, key=times.__getitem__)
    seconds = times[limit]
    if seconds <= 0:
        raise ValueError("a roofline of no bytes and no operations")
    operations = other + sum(gemm.values())
    return Bound(card.name, seconds, limit, operations / seconds / 1e12, bytes_ / seconds / 1e9)


def bounds(traffic: Traffic, chosen: tuple[Peaks, ...]) -> tuple[CardBounds, ...]:
    """The bounds of a kernel on the ``chosen`` cards. Empty if it moves and computes nothing."""
    gemm, other = traffic.gemm_operations, traffic.other_flops
    if not (traffic.bytes or other or any(gemm.values())):
        return ()
    found = []
    for card in chosen:
        try:
            asked, distinct = (bound(gemm, other, size, card) for size in (traffic.bytes, traffic.distinct))
        except Lacking as error:
            found.append(CardBounds(card.name, None, None, str(error)))
        else:
            found.append(CardBounds(card.name, asked, distinct, roofs=roofs(card, gemm)))
    return tuple(found)


def ridge(card: Peaks, dtype: str) -> float:
    """FLOP a byte from which on matrix products of a dtype are limited by the tensor cores. Raises Lacking."""
    kind = TENSOR_CORES.get(dtype)
    if kind not in card.tensor:
        raise Lacking(_("no tensor cores for {dtype}").format(dtype=dtype))
    return card.tensor[kind] * 1e12 / (card.memory * 1e9)


def roofs(card: Peaks, products: Iterable[str]) -> tuple[Roof, ...]:
    """Memory, the tensor cores for products of those dtypes (as far as the card has them), and the fp32 units."""
    tensor = {
        name: Roof(name, card.tensor[TENSOR_CORES[dtype]])
        for dtype in products
        if TENSOR_CORES.get(dtype) in card.tensor and (name := tensor_name(dtype))
    }
    return (Roof(_("memory"), card.memory, memory=True), *tensor.values(), Roof(_("fp32 units"), card.fp32))


def tensor_name(dtype: str) -> str:
    return _("{kind} tensor cores").format(kind=TENSOR_CORES[dtype])

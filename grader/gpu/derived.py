"""Rows of targets that follow from others: from a peer's rate on a card, or, unmeasured, from a datasheet."""

from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from grader.gpu import roofline
from grader.gpu.target_file import Sweep, TargetRow, TierRow
from grader.gpu.targets import Asked, Target, asked, rows

UNMEASURED = "from datasheet, unmeasured"
MEASURED_CARD = "NVIDIA H200"
CARDS = (
    "NVIDIA H100 80GB HBM3",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA A100-SXM4-40GB",
    "NVIDIA L4",
    "Tesla T4",
    "NVIDIA GeForce RTX 4090",
)
"""Cards that get rows without having been measured."""

TIER_DIGITS, RATE_DIGITS = 3, 4
"""Significant digits: of a tier, which is rounded down, and of a peer's rate."""


def row(one: Asked, card: str, peer: str, peer_rate: float, origin: str, sweep: Sweep | None = None) -> TargetRow:
    """The row for a card where the best ``peer`` does ``peer_rate``: the lab's shares of it, or of a ``sweep``."""
    rate = _digits(Decimal(repr(peer_rate)), RATE_DIGITS, ROUND_HALF_EVEN)
    best = rate
    if one.of_sweep:
        if sweep is None:
            raise ValueError(f"{one.lab} asks for shares of a sweep, and there is none")
        best = _digits(Decimal(repr(sweep.rate)), RATE_DIGITS, ROUND_HALF_EVEN)
        sweep = sweep.model_copy(update={"rate": float(best)})
    tiers = tuple(
        TierRow(at=float(_digits(Decimal(repr(of)) * best, TIER_DIGITS, ROUND_FLOOR)), share=share)
        for of, share in one.tiers
    )
    return TargetRow(
        lab=one.lab,
        kernel=one.kernel,
        shape=one.shape,
        card=card,
        unit=one.unit,
        peer=peer,
        peer_rate=float(rate),
        tiers=tiers,
        sweep=sweep,
        origin=origin,
    )


def from_datasheets(measured: tuple[Target, ...] | None = None) -> tuple[TargetRow, ...]:
    """The rows for CARDS: there the peer reaches the same share of the datasheet's peak as on MEASURED_CARD.

    A card gets no row for a product that it has no tensor cores for, nor for shares of a sweep: no datasheet says
    how fast the best schedule is. ``measured`` are the rows of MEASURED_CARD (None: the package's).
    """
    known = {target.key: target for target in measured or rows() if target.card == MEASURED_CARD}
    found = []
    for card in CARDS:
        datasheet = roofline.of_driver(card)
        if datasheet is None:
            raise ValueError(f"cards.toml has no {card}")
        for one in asked():
            peak, target = one.peak(datasheet), known.get(one.key)
            if peak is not None and target is not None and target.peak is not None and not one.of_sweep:
                rate = target.peer_rate / target.peak * peak
                found.append(row(one, card, target.peer, rate, UNMEASURED))
    return tuple(found)


def _digits(value: Decimal, digits: int, rounding: str) -> Decimal:
    return value.quantize(Decimal(1).scaleb(value.adjusted() + 1 - digits), rounding)

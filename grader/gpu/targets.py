"""What is asked of a kernel on a card: reads ``targets.toml``, the one place of thresholds."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Tier:
    """From ``at`` (in the row's unit) on, the share of the points that is earned."""

    at: float
    share: float


@dataclass(frozen=True)
class Target:
    """A row: a lab's kernel at a shape on a card.

    ``peer_rate`` is the peer's calibrated rate there, which the measured ratio is multiplied by; ``peak`` is the
    datasheet's rate, above which nothing can be true. Both in ``unit``.
    """

    lab: str
    kernel: str
    shape: str
    card: str
    unit: str
    peer_rate: float
    peak: float
    tiers: tuple[Tier, ...]

    @property
    def full(self) -> float:
        """The figure that earns all points."""
        return self.tiers[-1].at


@cache
def rows() -> tuple[Target, ...]:
    data = tomllib.loads(Path(__file__).with_name("targets.toml").read_text())
    return tuple(_row(row, data["card"][row["card"]]) for row in data["target"])


def find(lab: str, kernel: str, shape: str, card: str) -> Target | None:
    for row in rows():
        if (row.lab, row.kernel, row.shape, row.card) == (lab, kernel, shape, card):
            return row
    return None


def _row(row: dict, card: dict) -> Target:
    tiers = tuple(Tier(**tier) for tier in row["tiers"])
    if list(tiers) != sorted(tiers, key=lambda tier: tier.at) or tiers[-1].share != 1.0:
        raise ValueError(f"the tiers of {row['lab']} on {row['card']} must rise to a share of 1")
    fields = {name: row[name] for name in ("lab", "kernel", "shape", "card", "unit", "peer_rate")}
    return Target(**fields, peak=card[row["peak"]], tiers=tiers)

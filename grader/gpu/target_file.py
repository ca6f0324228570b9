"""Files of targets: TOML, read strictly, so that a teacher's slip becomes one sentence that says where it is."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from grader.messages import _
from grader.verdict import Finding, Unavailable

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Text = Annotated[str, Field(min_length=1)]
Unit = Literal["GB/s", "TFLOP/s"]
Mix = Literal["read", "fill", "copy", "add"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AskedTier(_Strict):
    """From ``of_peer`` of the best peer's rate on, or ``of_sweep`` of the best of the judge's own sweep's."""

    of_peer: Rate | None = None
    of_sweep: Rate | None = None
    share: Share

    @property
    def of(self) -> float:
        """Whichever of the two it is."""
        found = self.of_sweep if self.of_peer is None else self.of_peer
        assert found is not None
        return found

    @model_validator(mode="after")
    def _of_one(self) -> Self:
        if (self.of_peer is None) == (self.of_sweep is None):
            raise ValueError("a tier is of_peer or of_sweep")
        return self


class AskedRow(_Strict):
    """``[[asked]]``: what a lab asks of a kernel, on every card."""

    lab: Text
    kernel: Text
    shape: Text
    unit: Unit
    ceiling: Text
    peers: tuple[Text, ...] = Field(min_length=1)
    tiers: tuple[AskedTier, ...] = Field(min_length=1)


class Measured(_Strict):
    """``[measured."CARD"]``: GB/s by mix, TFLOP/s by dtype, microseconds."""

    origin: Text
    bandwidth: dict[Mix, Rate]
    matmul: dict[Text, Rate]
    launch_us: Rate
    kernel_us: Rate
    event_us: Rate


class Sweep(_Strict):
    """The best of the judge's own sweep: its ``rate`` in the row's unit, and its schedule."""

    rate: Rate
    schedule: dict[Text, int]


class TierRow(_Strict):
    """From ``at`` on, ``share`` of the points."""

    at: Rate
    share: Share


class TargetRow(_Strict):
    """``[[target]]``: absolute figures for one card."""

    lab: Text
    kernel: Text
    shape: Text
    card: Text
    unit: Unit
    peer: Text
    peer_rate: Rate
    tiers: tuple[TierRow, ...] = Field(min_length=1)
    sweep: Sweep | None = None
    origin: Text

    def __str__(self) -> str:
        return f"{self.lab}, {self.kernel}, {self.shape}, {self.card}"


class TargetFile(_Strict):
    """A whole file."""

    asked: tuple[AskedRow, ...] = ()
    measured: dict[Text, Measured] = {}
    target: tuple[TargetRow, ...] = ()


def read(path: Path) -> TargetFile:
    """Raises Unavailable, with the file, the row and what is wrong."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise wrong(path, error.strerror or str(error)) from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise wrong(path, str(error)) from None
    try:
        found = TargetFile.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise wrong(path, _where(first["loc"], data), first["msg"]) from None
    twice = [row for row, count in Counter(map(str, found.target)).items() if count > 1]
    if twice:
        raise wrong(path, twice[0], _("there are two rows for this"))
    for row in (*found.asked, *found.target):
        steps = [tier.at if isinstance(tier, TierRow) else tier.of for tier in row.tiers]
        shares = [tier.share for tier in row.tiers]
        if steps != sorted(set(steps)) or shares != sorted(set(shares)) or shares[-1] != 1.0:
            raise wrong(path, str(row), _("tiers: they must rise, to a share of 1"))
    return found


def wrong(path: Path, *what: str) -> Unavailable:
    """The error of a file, from the large to the small. It is the teacher's, and costs no submission anything."""
    return Unavailable(
        Finding(
            _("Targets: {path}: {what}.").format(path=path, what=": ".join(what).removesuffix(".")),
            _("Mend the file, or have 'tilelab calibrate' write a new one."),
        )
    )


def _where(location: tuple[str | int, ...], data: dict) -> str:
    """``("target", 1, "tiers", 0, "at")`` -> "target 2 (lab01_vector_add, NVIDIA L4), tiers 1, at"."""
    parts: list[str] = []
    for step in location:
        if isinstance(step, int) and parts:
            parts[-1] += f" {step + 1}"
        else:
            parts.append(str(step))
    match location:
        case ("target", int(number), *_rest) if isinstance(data["target"][number], dict):
            row = data["target"][number]
            parts[0] += f" ({', '.join(str(row[name]) for name in ('lab', 'card') if name in row)})"
    return ", ".join(parts)

"""What calibrating a card showed, as plain data: its ceilings, its peers, and the thresholds that follow."""

from dataclasses import dataclass, field

from pydantic import TypeAdapter


@dataclass(frozen=True)
class PeerRate:
    """A library call beside its rivals, in the work's unit: the median rate with its 95 % interval.

    ``rate`` is None if it was not taken; ``why_not`` says why.
    """

    peer: str
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    milliseconds: float | None = None
    rounds: int = 0
    why_not: str = ""


@dataclass(frozen=True)
class SweepRates:
    """The judge's own sweep over schedules: how many were ``measured``, and the best's rate and schedule.

    ``left_out`` says of others why they were not measured.
    """

    measured: int
    rate: float
    schedule: dict[str, int]
    left_out: tuple[str, ...] = ()
    disturbed: float = 0.0


@dataclass(frozen=True)
class WorkRates:
    """A lab's kernel at a shape: its peers, and the row of targets that follows from the ``best`` of them.

    ``tiers`` are pairs: from that figure on, that share of the points. Without a right peer there is no row:
    ``best`` is None and ``tiers`` are empty. ``ceiling`` names what bounds the work. ``sweep`` is the judge's own,
    where the lab asks for shares of its best. ``disturbed`` is the share of launches that took far longer than
    their median; also a sweep has its own.
    """

    lab: str
    kernel: str
    shape: str
    unit: str
    ceiling: str
    peers: tuple[PeerRate, ...]
    best: str | None = None
    tiers: tuple[tuple[float, float], ...] = ()
    sweep: SweepRates | None = None
    disturbed: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """A card's figures.

    ``bandwidth`` in GB/s by mix of reads and writes, ``matmul`` in TFLOP/s by the operands' dtype; ``lacking``
    says why a dtype has none. ``datasheet`` holds the peaks by the same names, where they are known. ``array`` is
    the size in bytes of each array that was moved. ``disturbed`` says what kept the card from being quiet; if
    anything did, the figures are not to be trusted.
    """

    card: str
    origin: str
    bandwidth: dict[str, float]
    matmul: dict[str, float]
    lacking: dict[str, str]
    array: int
    launch_us: float
    kernel_us: float
    event_us: float
    works: tuple[WorkRates, ...]
    state: str
    disturbed: tuple[str, ...] = ()
    seconds: float = 0.0
    datasheet: dict[str, float] = field(default_factory=dict)


_calibration = TypeAdapter(Calibration)


def to_json(calibration: Calibration) -> str:
    return _calibration.dump_json(calibration, indent=2).decode()


def from_json(text: str | bytes) -> Calibration:
    return _calibration.validate_json(text)

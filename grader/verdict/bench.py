"""What ``tilelab bench`` measured, as plain data: kernels beside the libraries that do the same work.

Rates are in the work's unit (GB/s: 10^9 bytes a second, or TFLOP/s: 10^12 operations a second), times are
milliseconds of device time. Every estimate is a median with its 95 % interval.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from grader.messages import _
from grader.verdict import Finding, Unusable
from grader.verdict.chart import Roof

FORMAT = "tilelab-bench/1"


@dataclass(frozen=True)
class Estimate:
    """A median, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval as a part of the value: 0.01 stands for ±1 %."""
        return (self.high - self.low) / 2 / self.value


@dataclass(frozen=True)
class Speed:
    """How fast one launch did its work.

    ``of_ceiling`` is the part of what this kind of card was measured to reach with the same mix of reads and
    writes, or in matrix products of the same type (None: not measured); ``of_peak`` that of the datasheet's peak
    (None: the card is not in the table).
    """

    ms: Estimate
    rate: float
    of_ceiling: float | None = None
    of_peak: float | None = None


@dataclass(frozen=True)
class Peer:
    """A library's call in the same loop. ``ratio`` is its time over the kernel's: above 1, the kernel is faster.

    ``speed`` and ``ratio`` are None if it can't run here; ``note`` says why, or what else is to know of it.
    """

    name: str
    speed: Speed | None
    ratio: Estimate | None
    note: str = ""


@dataclass(frozen=True)
class CardState:
    """The card while it measured: clock in MHz and temperature in °C as (least, most), power in W at most.

    ``slowed`` are reasons why it was slower than it can be, ``others`` are processes that used it meanwhile,
    ``unknown`` is what could not be asked.
    """

    sm_mhz: tuple[int, int] = (0, 0)
    celsius: tuple[int, int] = (0, 0)
    watts: float = 0.0
    slowed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """One kernel at one shape and its peers, timed in turn in one loop of so many ``rounds``.

    ``clock`` says how time was taken; ``overhead_ms`` is what an empty pair of events shows, which was taken off;
    ``host_ms`` is the CPU's time for a launch; ``disturbed`` is the part of times far above their median.
    ``warnings`` say why the card was not quiet; ``notes`` what else is to know of the timing.
    """

    kernel: Speed
    peers: tuple[Peer, ...]
    rounds: int
    clock: str
    overhead_ms: float
    host_ms: float
    disturbed: float
    state: CardState
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Peer | None:
        """The fastest peer, if any ran."""
        ran = [peer for peer in self.peers if peer.speed is not None]
        return min(ran, key=lambda peer: peer.speed.ms.value, default=None)


class Trouble(StrEnum):
    """Why there is no figure of a kernel."""

    WRONG = "wrong"  # its output is not right: then it has no speed
    FAILED = "failed"  # it could not be read, compiled or run
    NOT_MEASURED = "not measured"  # the card or the installation lacks something
    OURS = "judge failed"  # a fault of ours: nothing is known of the kernel


@dataclass(frozen=True)
class Row:
    """A kernel of a lab at a shape: its measurement, or the trouble and what was found.

    ``bytes`` and ``operations`` are the least that the work needs, ``intensity`` the operations a byte.
    """

    lab: str
    kernel: str
    shape: str
    sizes: str
    unit: str
    bytes: int
    operations: int
    intensity: float
    measurement: Measurement | None = None
    trouble: Trouble | None = None
    finding: Finding | None = None

    def __post_init__(self) -> None:
        if (self.measurement is None) == (self.trouble is None):
            raise ValueError("a row holds a measurement, or says what the trouble is")


@dataclass(frozen=True)
class Bench:
    """A run. ``date`` is ISO 8601 with the time zone; ``roofs`` are the card's, as far as they are known.

    ``versions`` are those of what was measured with: driver, python, torch, tilelang, nvcc.
    """

    card: str
    date: str
    source: str
    rows: tuple[Row, ...]
    roofs: tuple[Roof, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    format: str = FORMAT

    @property
    def complete(self) -> bool:
        """True if there was something to measure, and every kernel was right and measured."""
        return bool(self.rows) and all(row.measurement is not None for row in self.rows)

    @property
    def judge_failed(self) -> bool:
        """True if a measurement failed by a fault of ours."""
        return any(row.trouble is Trouble.OURS for row in self.rows)


_bench = TypeAdapter(Bench)


def to_json(bench: Bench) -> str:
    return _bench.dump_json(bench, indent=2).decode()


def from_json(text: str | bytes) -> Bench:
    """Raises Unusable if it is none of this version."""
    try:
        bench = _bench.validate_json(text)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"][:6]) or _("the beginning")
        raise Unusable(
            _("This is no measurement of 'tilelab bench': see '{where}'.").format(where=where)
        ) from None
    if bench.format != FORMAT:
        raise Unusable(
            _("This measurement is of another version ({format}, not {ours}).").format(
                format=bench.format, ours=FORMAT
            )
        )
    return bench


def read(path: Path) -> Bench:
    """The measurement in a file. Raises Unusable, and OSError if it can't be read."""
    return from_json(path.read_bytes())

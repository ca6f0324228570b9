"""What is asked of a kernel on a card.

``targets.toml`` is the one place of thresholds: what each lab asks (``[[asked]]``, as shares of the peer's rate),
and the rows for cards that follow from it (``[[target]]``, absolute figures). Cards that it lacks are added by a
teacher's own file, which ``tilelab calibrate`` writes; that file goes before the package's.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader.gpu import roofline, target_file, user_folders
from grader.gpu.target_file import Sweep, TargetFile, TargetRow
from grader.messages import _

PACKAGED = Path(__file__).with_name("targets.toml")
FILE_VARIABLE = "TILELAB_TARGETS"
MIXES = ("read", "fill", "copy", "add")
"""What moves bytes: only reads, only writes, one read a write, two reads a write."""

Key = tuple[str, str, str]
"""A lab, a kernel, a shape."""


@dataclass(frozen=True)
class Tier:
    """From ``at`` (in the row's unit) on, the share of the points that is earned."""

    at: float
    share: float


@dataclass(frozen=True)
class Asked:
    """What a lab asks of its kernel at a timed shape, on every card.

    ``tiers`` are pairs (share of the best peer's rate, share of the points); if ``of_sweep``, they are shares of
    the best of the judge's own sweep over schedules. ``ceiling`` is what bounds the work: one of MIXES, or the
    dtype of a matrix product. ``peers`` are the names of those that may be the best.
    """

    lab: str
    kernel: str
    shape: str
    unit: str
    ceiling: str
    peers: tuple[str, ...]
    tiers: tuple[tuple[float, float], ...]
    of_sweep: bool = False

    @property
    def key(self) -> Key:
        return self.lab, self.kernel, self.shape

    def peak(self, card: roofline.Peaks) -> float | None:
        """The datasheet's rate for this work, in ``unit``; None if the card has no such tensor cores."""
        if self.ceiling in MIXES:
            return card.memory
        return card.tensor.get(roofline.TENSOR_CORES[self.ceiling])


@dataclass(frozen=True)
class Ceilings:
    """What a card was measured to reach with plain library calls.

    ``bandwidth`` in GB/s, by mix of reads and writes (MIXES); ``matmul`` in TFLOP/s, dense, by the operands' dtype
    ("float32" as tf32). In microseconds: ``launch_us``, the CPU's time for a launch; ``kernel_us``, the card's for
    a kernel that does nearly nothing; ``event_us``, between two events with nothing in between. ``origin`` says
    when, and with which versions.
    """

    card: str
    origin: str
    bandwidth: Mapping[str, float]
    matmul: Mapping[str, float]
    launch_us: float
    kernel_us: float
    event_us: float

    def of(self, ceiling: str) -> float | None:
        """GB/s or TFLOP/s of a mix or dtype; None if it was not measured."""
        return (self.bandwidth if ceiling in MIXES else self.matmul).get(ceiling)


@dataclass(frozen=True)
class Target:
    """A row: a lab's kernel at a shape on a card.

    ``peer`` is the best of the task's peers there, ``peer_rate`` its calibrated rate, which the measured ratio is
    multiplied by; ``peak`` is the datasheet's rate, above which nothing can be true (None: unknown, as of a card
    that ``cards.toml`` lacks); ``ceiling`` what the card was measured to reach with the same mix of reads and
    writes, or the same product (None: not measured). All in ``unit``. ``sweep`` is the best of the judge's own
    sweep, for a lab that asks for shares of it. ``origin`` says where the row is from.
    """

    lab: str
    kernel: str
    shape: str
    card: str
    unit: str
    peer: str
    peer_rate: float
    peak: float | None
    tiers: tuple[Tier, ...]
    origin: str
    ceiling: float | None = None
    sweep: Sweep | None = None

    @property
    def key(self) -> Key:
        return self.lab, self.kernel, self.shape

    @property
    def full(self) -> float:
        """The figure that earns all points."""
        return self.tiers[-1].at


@cache
def asked() -> tuple[Asked, ...]:
    """What the labs ask, in their order."""
    return tuple(
        Asked(
            **dict(row) | {"tiers": tuple((tier.of, tier.share) for tier in row.tiers)},
            of_sweep=any(tier.of_sweep is not None for tier in row.tiers),
        )
        for row in _packaged().asked
    )


def rows() -> tuple[Target, ...]:
    """The package's rows, of all cards."""
    return completed(_packaged())


def completed(file: TargetFile) -> tuple[Target, ...]:
    """A file's rows, with peaks and ceilings."""
    return tuple(_target(row, (file,)) for row in file.target)


def find(lab: str, kernel: str, shape: str, card: str) -> Target | None:
    """The row for a card, by the driver's name of it: the teacher's, else the package's.

    Raises Unavailable if the teacher's file is wrong.
    """
    return next((row for row in of_card(card) if row.key == (lab, kernel, shape)), None)


def of_card(card: str) -> tuple[Target, ...]:
    """All rows for a card, as ``find`` gives them."""
    files = _files()
    chosen: dict[Key, TargetRow] = {}
    for file in files:
        for row in file.target:
            if row.card == card:
                chosen.setdefault((row.lab, row.kernel, row.shape), row)
    return tuple(_target(row, files) for row in chosen.values())


def ceilings(card: str) -> Ceilings | None:
    """What that card was measured to reach, by the teacher's file, else by the package's."""
    return _ceilings(card, _files())


def teachers_file() -> Path | None:
    """Where a teacher's own rows are; it need not exist. TILELAB_TARGETS names it, else it is in XDG's folder.

    None if there is neither.
    """
    named, general = os.environ.get(FILE_VARIABLE), user_folders.configuration()
    if named:
        return Path(named)
    return None if general is None else Path(general, "tilelab", "targets.toml")


def read_teachers(path: Path) -> TargetFile:
    """A teacher's file; its rows must be about what there is. Raises Unavailable, which says what is wrong."""
    found = target_file.read(path)
    if found.asked:
        raise target_file.wrong(path, _("asked: what the labs ask stands in the package only"))
    known = {one.key: one for one in asked()}
    for row in found.target:
        one = known.get((row.lab, row.kernel, row.shape))
        if one is None:
            names = "; ".join(", ".join(key) for key in known)
            why = _("no kernel is timed under these names (lab, kernel, shape); there are: {names}")
            raise target_file.wrong(path, str(row), why.format(names=names))
        if row.unit != one.unit:
            raise target_file.wrong(path, str(row), _("unit: it must be {unit}").format(unit=one.unit))
        if row.peer not in one.peers:
            why = _("peer: it must be one of: {names}").format(names=", ".join(one.peers))
            raise target_file.wrong(path, str(row), why)
    return found


def _files() -> tuple[TargetFile, ...]:
    """In the order in which they are asked."""
    own = teachers_file()
    if own is not None and (os.environ.get(FILE_VARIABLE) or own.exists()):
        return read_teachers(own), _packaged()
    return (_packaged(),)


@cache
def _packaged() -> TargetFile:
    return target_file.read(PACKAGED)


def _target(row: TargetRow, files: tuple[TargetFile, ...]) -> Target:
    (one,) = (one for one in asked() if one.key == (row.lab, row.kernel, row.shape))
    datasheet, measured = roofline.of_driver(row.card), _ceilings(row.card, files)
    fields = dict(row) | {"tiers": tuple(Tier(tier.at, tier.share) for tier in row.tiers)}
    return Target(
        **fields,
        peak=None if datasheet is None else one.peak(datasheet),
        ceiling=None if measured is None else measured.of(one.ceiling),
    )


def _ceilings(card: str, files: tuple[TargetFile, ...]) -> Ceilings | None:
    found = next((file.measured[card] for file in files if card in file.measured), None)
    return None if found is None else Ceilings(card, **dict(found))

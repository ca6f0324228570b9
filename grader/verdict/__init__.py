"""What a judgement is, as plain data: it crosses processes and machines as JSON, and every page shows it.

A ``Verdict`` holds one ``Check`` for each pytest function of a lab. A check's outcome is one of four words,
and only *passed* earns points: *not assessed* (needs a GPU, or another GPU) and *inconclusive* (measured, but
too noisy to say) are neither success nor failure, and their points wait.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter


class Outcome(StrEnum):
    """The four words of a judgement."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    NOT_ASSESSED = "not assessed"


@dataclass(frozen=True)
class Location:
    """A line of the student's: ``cell`` is what the student sees ("cell 7", "In [5]"), ``line`` counts from 1."""

    cell: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.cell}, line {self.line}"


@dataclass(frozen=True)
class Finding:
    """One thing that was seen: what happened, where, and what to try next."""

    message: str
    advice: str = ""
    where: Location | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figures:
    """A speed measurement next to its peer's, taken in one interleaved loop.

    ``achieved`` and ``peer_achieved`` are in ``unit`` (GB/s or TFLOP/s), times in milliseconds of device time
    (medians), ``ratio`` is the peer's time over the kernel's (above 1: faster than the peer) with its 95 %
    interval. ``decided`` is the figure that is compared with ``target``: the ratio times the peer's calibrated
    rate on this card. ``ceiling`` is what the card was measured to reach with such work, in ``unit``; ``clock``
    says how time was taken, ``card_state`` how the card was meanwhile, ``origin`` where the target comes from.
    """

    shape: str
    unit: str
    achieved: float
    milliseconds: float
    peer: str
    peer_achieved: float
    ratio: float
    ratio_low: float
    ratio_high: float
    runs: int
    decided: float | None = None
    target: float | None = None
    ceiling: float | None = None
    clock: str = ""
    card_state: str = ""
    origin: str = ""


@dataclass(frozen=True)
class Assessment:
    """What one test found out. ``share`` is the part of the points that is earned if the outcome is *passed*."""

    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    figures: tuple[Figures, ...] = ()
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share must lie in [0, 1], not {self.share}")


@dataclass(frozen=True)
class Check:
    """One test's result. ``cell`` is the grade_id of the nbgrader cell that its points belong to.

    ``free`` points may be earned by a notebook that nobody has touched; ``manual`` ones are a teacher's to give.
    """

    name: str
    title: str
    cell: str
    outcome: Outcome
    points: float
    max_points: float
    findings: tuple[Finding, ...] = ()
    figures: tuple[Figures, ...] = ()
    seconds: float = 0.0
    free: bool = False
    manual: bool = False

    @property
    def waiting(self) -> float:
        """Points that are neither earned nor lost yet."""
        undecided = self.outcome in (Outcome.NOT_ASSESSED, Outcome.INCONCLUSIVE)
        return self.max_points if undecided else 0.0


SIMULATOR = "simulator"


@dataclass(frozen=True)
class Verdict:
    """The judgement of one submission of one lab.

    ``device`` is SIMULATOR or the card's name; ``capture`` is the SHA-256 of the captured IR; ``seed``
    replays the run (it is kept by the instructor and stripped from what students get).
    """

    lab: str
    device: str
    checks: tuple[Check, ...]
    capture: str = ""
    seed: str | None = None
    notes: tuple[Finding, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> float:
        return sum(check.points for check in self.checks)

    @property
    def max_points(self) -> float:
        return sum(check.max_points for check in self.checks)

    @property
    def waiting(self) -> float:
        return sum(check.waiting for check in self.checks)

    @property
    def waiting_for_teacher(self) -> float:
        return sum(check.waiting for check in self.checks if check.manual)

    @property
    def assessed_max(self) -> float:
        """The most that could be earned on this device."""
        return self.max_points - self.waiting

    @property
    def passed(self) -> bool:
        """True if all that was assessed passed in full, and that is more than the free points."""
        earned = any(check.outcome is Outcome.PASSED and not check.free for check in self.checks)
        return earned and self.points == self.assessed_max


class Unusable(Exception):
    """The input can't be judged at all: the message says what is wrong, where, and what to do (exit status 2)."""

    def __init__(self, finding: Finding | str) -> None:
        self.finding = finding if isinstance(finding, Finding) else Finding(finding)
        super().__init__(self.finding.message)


class Unavailable(Unusable):
    """The judge lacks something (a GPU, the official run's part): not the submission's fault, so never a zero."""


class JudgeFailed(RuntimeError):
    """A fault of ours: nothing was decided. The message is the detail that whoever mends it needs."""


#: A verdict's JSON in a notebook's outputs, for programs.
MIME = "application/vnd.tilelab.verdict+json"

_verdict = TypeAdapter(Verdict)


def to_json(verdict: Verdict) -> str:
    return _verdict.dump_json(verdict, indent=2).decode()


def from_json(text: str | bytes) -> Verdict:
    return _verdict.validate_json(text)


def read(path: Path) -> Verdict:
    return from_json(path.read_bytes())

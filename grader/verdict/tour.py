"""What a tour of the labs found: each solution run section by section, as plain data."""

from dataclasses import dataclass
from enum import StrEnum

from pydantic import TypeAdapter

from grader.verdict import Verdict


class Ending(StrEnum):
    """How a section ended. A section that was not run came after the one in which the tour was interrupted."""

    RAN = "ran"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Section:
    """A heading of a notebook with the cells below it; ``why`` is an error's last line."""

    title: str
    ending: Ending
    seconds: float
    why: str = ""


@dataclass(frozen=True)
class TouredLab:
    """One lab's solution. ``verdicts`` are what its ``check`` cells showed; ``trouble`` keeps it from running."""

    lab: str
    title: str
    sections: tuple[Section, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    seconds: float = 0.0
    trouble: str = ""

    @property
    def passed(self) -> bool:
        """Every section ran, and something was judged, all of which passed as far as it could be assessed."""
        ran = bool(self.sections) and all(section.ending is Ending.RAN for section in self.sections)
        judged = [verdict for verdict in self.verdicts if verdict.assessed_max]
        return ran and not self.trouble and bool(judged) and all(_right(verdict) for verdict in judged)

    @property
    def why(self) -> str:
        """The first reason why it did not pass; "" if it did."""
        if self.passed:
            return ""
        reasons = [self.trouble]
        reasons += [
            f"{section.title}: {section.why or section.ending}" for section in self.sections if section.why
        ]
        for verdict in self.verdicts:
            reasons += [check.findings[0].message for check in verdict.checks if _lost(check) and check.findings]
        return next((reason for reason in reasons if reason), "nothing was judged")


def _right(verdict: Verdict) -> bool:
    return not any(_lost(check) for check in verdict.checks)


def _lost(check) -> bool:
    return not check.waiting and check.points < check.max_points


@dataclass(frozen=True)
class Tour:
    """All labs that were asked for, in order; ``interrupted`` if the last ones are missing."""

    labs: tuple[TouredLab, ...]
    interrupted: bool = False

    @property
    def passed(self) -> int:
        return sum(lab.passed for lab in self.labs)


_tour = TypeAdapter(Tour)


def to_json(tour: Tour) -> str:
    return _tour.dump_json(tour, indent=2).decode()


def from_json(text: str | bytes) -> Tour:
    return _tour.validate_json(text)

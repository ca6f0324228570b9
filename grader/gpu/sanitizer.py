"""NVIDIA's compute-sanitizer: where it is, how a program is run under it, and what its log says.

Its log is text for people; the lines that are read here are those of versions 2022 to 2025 (CUDA 11.8 to 13). A
report is a headline behind "========= " and details that are indented further.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path

from grader.gpu import disposable

#: Each instruments the program in its own way, so that each needs a run of its own.
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

PRINTED = 2_000  # reports in a log: a fault mostly has one for each thread

#: Has initcheck look, beside global memory, at tiles that a block reads before it has written them.
_TILES = "--initcheck-address-space"


class Kind(StrEnum):
    """What a report is about."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    RACE = "race"
    UNINITIALISED = "uninitialised"
    UNWRITTEN = "unwritten"  # the host copies memory that no kernel wrote
    BARRIER = "barrier"
    OTHER = "other"


@dataclass(frozen=True)
class Place:
    """An access: "read", "write", "atomic" or "" where that isn't told; ``line`` is of the generated source."""

    access: str
    line: int | None


@dataclass(frozen=True)
class Report:
    """Reports that say the same of the same lines, put together.

    ``space`` is "global", "shared", "local" or "". ``size`` is in bytes (0: not told), ``thread`` and ``block``
    are those of the first report. ``count`` is of reports (of a race: of pairs of accesses), ``blocks`` of
    different blocks among those that were printed.
    """

    tool: str
    kind: Kind
    headline: str
    space: str = ""
    places: tuple[Place, ...] = ()
    size: int = 0
    thread: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    count: int = 1
    blocks: int = 0


@dataclass(frozen=True)
class Log:
    """What a tool said. ``errors`` is its own sum; None if it did not come to its end."""

    reports: tuple[Report, ...]
    errors: int | None


def find() -> str | None:
    """The tool's path: on the PATH, in the CUDA toolkit, or from NVIDIA's wheel."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [Path(home) for home in homes if home]
    places = [folder / part for folder in folders for part in ("bin", "compute-sanitizer")]
    candidates = [shutil.which("compute-sanitizer"), *(str(place / "compute-sanitizer") for place in places)]
    return next((path for path in (*candidates, *_of_wheel()) if path and os.access(path, os.X_OK)), None)


def _of_wheel() -> Iterable[str]:
    for name in ("nvidia-cuda-sanitizer-api", "nvidia-cuda-sanitizer"):
        with suppress(importlib.metadata.PackageNotFoundError):
            files = importlib.metadata.files(name) or []
            yield from (str(file.locate()) for file in files if file.name == "compute-sanitizer")


@cache
def sees_tiles(path: str) -> bool:
    """Whether this sanitizer's initcheck can look at shared memory; older ones (2025.3, say) can't."""
    done = subprocess.run(
        [path, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )
    return _TILES in done.stdout


def run(
    path: str,
    tool: str,
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str],
    seconds: float,
) -> tuple[int | None, str]:
    """Runs a program under one of TOOLS, which writes ``log``; the exit status (None: too late) and its output.

    Programs that it starts in turn are not looked at.
    """
    options = ["--tool", tool, "--log-file", str(log), "--print-limit", str(PRINTED), "--show-backtrace", "device"]
    options += ["--target-processes", "application-only"]
    if tool == "initcheck" and sees_tiles(path):
        options += [_TILES, "all"]
    with log.with_suffix(".console").open("w+b") as console:
        process = subprocess.Popen(
            [path, *options, "--", *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            disposable.kill_group(process.pid)
            process.wait()
        return status, disposable.last_words(console, 4000)


# The log

_LINE = re.compile(r"^=========( *)(.*)$")
_INVALID = re.compile(r"Invalid __(?P<space>\w+)__ (?P<access>read|write|atomic\w*) of size (?P<size>\d+) bytes")
_UNREAD = re.compile(r"Uninitialized __(?P<space>\w+)__ memory read of size (?P<size>\d+) bytes")
_HOST = re.compile(r"Uninitialized access .*on access by \w*[mM]em\w*|Host API uninitialized memory access")
_HOST_ACCESS = "Host API memory access error"
_UNREAD_BY_HOST = re.compile(r"Uninitialized access to .* on access by cuda")
_RACE = re.compile(r"Race reported between (?P<access>\w+) access at")
_BARRIER = re.compile(r"Barrier error detected")
_ACCESS = re.compile(r"and (?P<access>\w+) access at")
_HAZARDS = re.compile(r"\[(\d+) hazards?\]")
_SOURCE = re.compile(r"\bin (?:\S*/)?[\w.-]+\.cu:(\d+)\b|\bin \S*?\.cu:(\d+):")
_THREAD = re.compile(r"by thread \(([\d, ]+)\) in block \(([\d, ]+)\)")
_SUMMARY = re.compile(r"(?:ERROR SUMMARY|INITCHECK SUMMARY): (\d+) errors?$")
_RACE_SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")


def parse(text: str, tool: str) -> Log:
    """Reads a log. What the program itself printed in between is left aside."""
    reports: list[Report] = []
    errors = None
    for headline, details in _records(text):
        summary = _SUMMARY.search(headline) or _RACE_SUMMARY.search(headline)
        if summary:
            errors = int(summary[1])
            continue
        report = _report(tool, headline, details)
        if report is not None:
            reports.append(report)
    return Log(_merged(reports), errors)


def _records(text: str) -> Iterable[tuple[str, list[str]]]:
    """Headlines, each with its details."""
    headline, details = "", []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        indent, words = len(match[1]), match[2].strip()
        if indent > 1 and headline:
            details.append(words)
            continue
        if headline:
            yield headline, details
        headline, details = words, []
    if headline:
        yield headline, details


def _report(tool: str, headline: str, details: list[str]) -> Report | None:
    thread = next((match for line in details if (match := _THREAD.search(line))), None)
    base = Report(
        tool,
        Kind.OTHER,
        headline,
        thread=_numbers(thread[1]) if thread else (),
        block=_numbers(thread[2]) if thread else (),
    )
    # The first line that is the kernel's own: functions of TileLang's that were not inlined stand above it.
    line = next((found for words in details if (found := _line(words)) is not None), None)
    if match := _INVALID.search(headline):
        misaligned = any("misaligned" in words for words in details)
        access = "atomic" if match["access"].startswith("atomic") else match["access"]
        return replace(
            base,
            kind=Kind.MISALIGNED if misaligned else Kind.OUT_OF_BOUNDS,
            space=match["space"],
            size=int(match["size"]),
            places=(Place(access, line),),
        )
    if match := _UNREAD.search(headline):
        place = Place("read", line)
        return replace(
            base, kind=Kind.UNINITIALISED, space=match["space"], size=int(match["size"]), places=(place,)
        )
    if _HOST.search(headline) or (headline.startswith(_HOST_ACCESS) and any(map(_UNREAD_BY_HOST.search, details))):
        return replace(base, kind=Kind.UNWRITTEN, space="global")
    if match := _RACE.search(headline):
        return _race(base, match["access"], headline, details)
    if _BARRIER.search(headline):
        return replace(base, kind=Kind.BARRIER, places=(Place("", line),))
    if headline.startswith(("COMPUTE-SANITIZER", "Target application", "Saved host backtrace", "ERROR SUMMARY")):
        return None
    return base


def _race(base: Report, access: str, headline: str, details: list[str]) -> Report:
    """A race has one access in its headline and one or more in its details; a place may fill lines of its own."""
    places = [Place(access.lower(), _line(headline))]
    for words in details:
        if match := _ACCESS.search(words):
            places.append(Place(match["access"].lower(), _line(words)))
        elif places[-1].line is None:
            places[-1] = replace(places[-1], line=_line(words))
    hazards = sum(int(number) for words in (headline, *details) for number in _HAZARDS.findall(words))
    unique = tuple(dict.fromkeys(places))
    return replace(base, kind=Kind.RACE, space="shared", places=unique, count=hazards or 1)


def _line(words: str) -> int | None:
    match = _SOURCE.search(words)
    return int(match[1] or match[2]) if match else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _merged(reports: Iterable[Report]) -> tuple[Report, ...]:
    """One report for each fault, with the number of reports and of blocks that had it."""
    found: dict[object, list[Report]] = {}
    for report in reports:
        headline = report.headline if report.kind in (Kind.OTHER, Kind.BARRIER) else ""
        key = (report.kind, report.space, frozenset(report.places), report.size, headline)
        found.setdefault(key, []).append(report)
    return tuple(
        replace(
            same[0],
            count=sum(report.count for report in same),
            blocks=len({report.block for report in same if report.block}),
        )
        for same in found.values()
    )

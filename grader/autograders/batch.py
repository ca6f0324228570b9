"""Judges many captures at once: what needs only CPUs side by side, the card one by one (its lock sees to that)."""

import concurrent.futures
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.capture.format import read_capture
from grader.verdict import JudgeFailed, Unusable, Verdict


@dataclass(frozen=True)
class Judged:
    """What came of one capture: a verdict, or why there is none."""

    file: Path
    verdict: Verdict | None = None
    error: Unusable | JudgeFailed | None = None


def judge_files(
    files: Sequence[Path], judge: Callable[..., Verdict], *, jobs: int | None = None
) -> Iterator[Judged]:
    """Judges capture files by ``judge(capture)``, ``jobs`` at a time, and gives each result as it is there.

    What is wrong with one costs that one alone.
    """
    with concurrent.futures.ThreadPoolExecutor(jobs or usual_jobs()) as pool:
        waiting = {pool.submit(_judged, file, judge) for file in files}
        try:
            for future in concurrent.futures.as_completed(waiting):
                yield future.result()
        finally:
            # After an interruption, what has not begun does not begin.
            pool.shutdown(wait=False, cancel_futures=True)


def usual_jobs() -> int:
    """How many are judged at once: one uses a CPU or two, for compiling and simulating."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def _judged(file: Path, judge: Callable[..., Verdict]) -> Judged:
    try:
        return Judged(file, judge(read_capture(file)))
    except (Unusable, JudgeFailed) as error:
        return Judged(file, error=error)
    except OSError as error:
        return Judged(file, error=Unusable(f"{error.strerror or error} ({file})"))

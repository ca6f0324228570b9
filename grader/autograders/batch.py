"""Judges many captures at once: what needs only CPUs side by side, the card one by one (its lock sees to that)."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

from grader.capture.format import read_capture
from grader.gpu.disposable import usual_jobs, waiting_threads
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
    with waiting_threads(jobs or usual_jobs()) as pool:
        for future in as_completed([pool.submit(_judged, file, judge) for file in files]):
            yield future.result()


def _judged(file: Path, judge: Callable[..., Verdict]) -> Judged:
    try:
        capture = read_capture(file)
    except Unusable as error:
        return Judged(file, error=error)
    except OSError as error:
        return Judged(file, error=Unusable(f"{error.strerror or error} ({file})"))
    try:
        return Judged(file, judge(capture))
    except (Unusable, JudgeFailed) as error:
        return Judged(file, error=error)
    except OSError as error:  # a full disk, for instance
        return Judged(file, error=JudgeFailed(str(error)))

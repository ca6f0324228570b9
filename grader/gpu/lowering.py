"""Lowers admitted IR to CUDA source for a named architecture, in a disposable process; no GPU and no nvcc needed.

TileLang's compiler can crash, hang or use up memory on a kernel, so it never runs in this process. One worker
(``lowering_worker``) lowers many kernels in turn, because starting it takes seconds; if one kernel ends it, a new
worker goes on with the rest.
"""

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.gpu import disposable
from grader.gpu.architectures import ARCHITECTURES
from grader.messages import _
from grader.verdict import JudgeFailed

SECONDS = 60  # for one kernel
START = 60  # seconds that starting a worker may take, which imports TileLang
MAX_SOURCE = 8 * 2**20  # bytes of CUDA source


@dataclass(frozen=True)
class Job:
    """What is lowered: JSON from ``grader.ir.write`` (never a student's own), for one of ARCHITECTURES."""

    json: str
    arch: str
    options: Mapping[str, bool | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Lowered:
    """CUDA source, and how it is launched. ``shared`` is dynamic shared memory in bytes a block.

    ``threads`` may be more than the kernel asks for: a warp-specialised kernel gets further warps that copy.
    ``grid`` is None in a dimension that is only known at launch. ``warnings`` are TileLang's own.
    """

    arch: str
    source: str
    threads: int
    grid: tuple[int | None, ...]
    shared: int
    seconds: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotLowered:
    """Why there is no source: the exception's type and text, or "Timeout" or "Crash" if the process ended."""

    arch: str
    kind: str
    text: str
    seconds: float

    @property
    def signature(self) -> str:
        """What makes two errors the same: the message without its names and numbers."""
        return signature(self.kind, self.text)


def signature(kind: str, text: str) -> str:
    return re.sub(r"\b\w*\d\w*\b", "#", f"{kind} {text}")[:120]


def lower(kernel_json: str, arch: str, options: Mapping[str, bool | int] | None = None) -> Lowered | NotLowered:
    """Lowers one kernel. ValueError if ``arch`` is none of ARCHITECTURES."""
    (result,) = lower_all([Job(kernel_json, arch, options or {})])
    return result


def lower_all(
    jobs: Sequence[Job], seconds: int = SECONDS, *, until: NotLowered | None = None
) -> list[Lowered | NotLowered]:
    """Lowers kernels in turn, ``seconds`` for each; results in the order of ``jobs``.

    With ``until``, the first kernel that gives this error is the last: there are no results after it. Raises
    JudgeFailed if a worker can't start.
    """
    for job in jobs:
        if job.arch not in ARCHITECTURES:
            raise ValueError(f"unknown architecture {job.arch!r}; known are {', '.join(ARCHITECTURES)}")
    results: list[Lowered | NotLowered] = []
    end = None if until is None else until.signature
    while len(results) < len(jobs):
        results += _one_worker(jobs[len(results) :], seconds, end)
        if isinstance(results[-1], NotLowered) and results[-1].signature == end:
            break
    return results


def _one_worker(jobs: Sequence[Job], seconds: int, until: str | None) -> list[Lowered | NotLowered]:
    """The results of the first jobs; the last of them is what ended the worker, if it did not get through."""
    with tempfile.TemporaryDirectory(prefix="tilelab-lower-") as name:
        folder = Path(name)
        rows = [{"json": job.json, "arch": job.arch, "options": dict(job.options)} for job in jobs]
        (folder / "job.json").write_text(json.dumps({"seconds": seconds, "until": until, "jobs": rows}))
        status, console = _run(folder, START + len(jobs) * (seconds + 1))
        report = folder / "report.jsonl"
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    results = [_result(line, jobs[line["job"]].arch) for line in lines if "started" not in line]
    started = [line["started"] for line in lines if "started" in line]
    if not started:
        raise JudgeFailed(f"the compiler's process did not start (status {status}):\n{console[-4000:]}")
    if len(results) < len(started):
        results.append(_ended(jobs[started[-1]].arch, status, console, seconds))
    return results


def _result(line: dict[str, Any], arch: str) -> Lowered | NotLowered:
    if "error" in line:
        return NotLowered(arch, line["error"], line["text"], line["seconds"])
    return Lowered(
        arch,
        line["source"],
        line["threads"],
        tuple(line["grid"]),
        line["shared"],
        line["seconds"],
        tuple(line["warnings"]),
    )


def _ended(arch: str, status: int | None, console: str, seconds: int) -> NotLowered:
    if status is None or status == -signal.SIGALRM:
        return timed_out(arch, seconds)
    last = [line.strip() for line in console.splitlines() if line.strip()][-1:]
    return NotLowered(arch, "Crash", last[0] if last else f"status {status}", 0.0)


def timed_out(arch: str, seconds: int = SECONDS) -> NotLowered:
    """A kernel that was not compiled in time: as ``until``, there are no kernels after it."""
    text = _("TileLang did not finish compiling within {seconds} s").format(seconds=seconds)
    return NotLowered(arch, "Timeout", text, float(seconds))


def _run(folder: Path, seconds: float) -> tuple[int | None, str]:
    """The worker's exit status (None: it did not end in time) and what it printed."""
    command = [sys.executable, "-P", "-m", "grader.gpu.lowering_worker", str(folder)]
    with (folder / "console").open("w+b") as console:
        process = subprocess.Popen(
            command,
            env=disposable.environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=disposable.limit,  # noqa: PLW1509  only system calls, no locks
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            disposable.kill_group(process.pid)
            process.wait()
        return status, disposable.last_words(console, 20_000)

"""A disposable worker process: started early, given one job, followed by what it reports, ended at any trouble.

The worker (a module with ``main``) reads its job as one line of JSON from stdin and appends lines of JSON to
``report.jsonl`` in its folder. A line ``{"phase": …, "limit": …}`` says what it does now and how many seconds that
may take; a worker that is late is killed, and so is all that it started. It dies with its parent, too.
"""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.gpu import disposable, lock

POLL = 0.01  # seconds between looks at the report
START = 120.0  # seconds that importing may take
CONSOLE = 4000  # characters of the console that are kept
MAX_FILE = 2**32  # bytes that a file of the worker's may have

Line = dict[str, Any]


@dataclass(frozen=True)
class Ending:
    """How a worker ended. ``late`` is the phase's line that took too long: then we ended it."""

    status: int
    console: str
    late: Line | None = None


class Worker:
    """A worker process, and the folder that it works in, which lasts until ``close``."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        """Starts ``python -m module FOLDER PARENT``."""
        self.folder = Path(tempfile.mkdtemp(prefix="tilelab-card-"))
        own = {"TMPDIR": str(self.folder), "TILELANG_CACHE_DIR": str(self.folder / "cache")}
        own["TILELAB_LOCKS"] = str(lock.folder())  # which are shared: not the worker's own TMPDIR
        command = [sys.executable, "-P", "-m", module, str(self.folder), str(os.getpid())]
        self._console = (self.folder / "console").open("w+b")
        self._process = subprocess.Popen(
            command,
            env=os.environ | own | dict(environment or {}),
            stdin=subprocess.PIPE,
            stdout=self._console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_limit,  # noqa: PLW1509  only system calls, no locks
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def run(self, job: Mapping[str, Any], on_line: Callable[[Line], None]) -> Ending:
        """Gives the worker its job and hands on what it reports, line by line, until it ends."""
        with contextlib.suppress(BrokenPipeError):  # it died while starting: how it ended says why
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.close()
        report = _Report(self.folder / "report.jsonl")
        phase: Line = {"phase": "starting", "limit": START}
        since = time.monotonic()
        while True:
            over = self._process.poll() is not None
            for line in report.new_lines():
                if "phase" in line:
                    phase, since = line, time.monotonic()
                on_line(line)
            if over:
                return Ending(self._process.returncode, disposable.last_words(self._console, CONSOLE))
            limit = phase.get("limit")
            if limit is not None and time.monotonic() - since > limit:
                self._kill()
                return Ending(self._process.returncode, disposable.last_words(self._console, CONSOLE), phase)
            time.sleep(POLL)

    def close(self) -> None:
        self._kill()
        self._console.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill(self) -> None:
        disposable.kill_group(self._process.pid)
        self._process.wait()


class _Report:
    """The complete lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0

    def new_lines(self) -> list[Line]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.read)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self.read += len(complete)
        return [json.loads(line) for line in complete.splitlines()]


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = MAX_FILE if hard == resource.RLIM_INFINITY else min(MAX_FILE, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


# -- the worker's side --------------------------------------------------------------------------------------


class Report:
    """Where a worker says what it does and what it found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = (folder / "report.jsonl").open("a", buffering=1)

    def say(self, **line: object) -> None:
        self._file.write(json.dumps(line) + "\n")

    def phase(self, name: str, limit: float | None, **more: object) -> None:
        """What comes now, and how many seconds it may take (None: as many as it needs)."""
        self.say(phase=name, limit=limit, **more)


def receive() -> tuple[Report, Line]:
    """In the worker, after its imports: its report, and the job, which is waited for. It dies with its parent."""
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit("the parent has ended")
    line = sys.stdin.readline()
    if not line:
        sys.exit("no job came")
    return Report(folder), json.loads(line)

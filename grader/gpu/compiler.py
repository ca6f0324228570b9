"""Compiles admitted IR for a card, in disposable processes that have none, to libraries that are loaded at once.

Neither TVM nor CUDA is imported here. A ``Compiler`` is one process (``compile_worker``) that imports TileLang and
forks itself for every kernel; started early, it imports while its owner still does other things. What has been
compiled before comes from ``library_cache``.
"""

import atexit
import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache as once
from pathlib import Path
from types import EllipsisType
from typing import Any

from grader.gpu import disposable, toolchain
from grader.gpu.library_cache import Entry, Key, LibraryCache, default_folder
from grader.messages import _
from grader.verdict import JudgeFailed

SECONDS = 120  # for one kernel
START = 120.0  # seconds that importing TileLang may take
WORKERS = 8  # at most, of their own accord: each takes some hundred megabytes


@dataclass(frozen=True)
class Source:
    """What is compiled: JSON from ``grader.ir.write`` (never a student's own), and admitted options.

    ``arch`` is a card's, as ``architectures.architecture`` spells it.
    """

    json: str
    arch: str
    options: Mapping[str, bool | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Built:
    """``library`` is a shared object of launcher and machine code; ``grader.gpu.launch`` loads it.

    ``by`` is the way it was compiled (one of toolchain.WAYS), ``phases`` are seconds of it, ``notes`` say why a
    faster way was left.
    """

    library: Path
    seconds: float
    cached: bool
    by: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotBuilt:
    """``kind`` is the type of TileLang's exception, "nvcc", or "Timeout" or "Crash" if the process ended.

    ``final`` if it is the kernel's own doing and will be the same the next time.
    """

    kind: str
    text: str
    seconds: float
    final: bool = True
    cached: bool = False


Result = Built | NotBuilt


class Compiler:
    """A process that compiles, from now until ``close``. Raises JudgeFailed if this machine has no nvcc.

    ``expected`` are kernels that will come, or some like them: what they include is parsed beforehand. Before any
    is known, ``arch`` does the same for all that such a card is asked. ``way`` is one of toolchain.WAYS; the next
    slower one is taken where it doesn't work.
    """

    def __init__(
        self,
        expected: Iterable[Source] = (),
        *,
        arch: str | None = None,
        workers: int | None = None,
        seconds: int = SECONDS,
        way: str = toolchain.PRECOMPILED,
    ) -> None:
        tools = _tools()
        self._seconds = seconds
        self._folder = Path(tempfile.mkdtemp(prefix="tilelab-compile-"))
        headers = {toolchain.headers_for(source.arch, source.options, source.json) for source in expected}
        headers |= set() if arch is None else set(toolchain.all_headers(arch))
        setup = {
            "nvcc": str(tools.nvcc),
            "home": str(tools.home),
            "release": tools.release,
            "nvrtc": tools.nvrtc and str(tools.nvrtc),
            "way": way,
            "workers": workers or default_workers(),
            "seconds": seconds,
            "headers": [asdict(one) for one in sorted(headers, key=lambda one: one.name)],
        }
        (self._folder / "setup.json").write_text(json.dumps(setup))
        self._console = (self._folder / "console").open("w+b")
        command = [sys.executable, "-P", "-m", "grader.gpu.compile_worker", str(self._folder)]
        self._process = subprocess.Popen(
            command,
            env=disposable.environment(self._folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._console,
            start_new_session=True,
            preexec_fn=disposable.limit,  # noqa: PLW1509  only system calls, no locks
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._count = 0
        self.started: float | None = None  # seconds that importing took
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> "Compiler":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process and all that it started, and leaves no file behind."""
        disposable.kill_group(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._console):
            # What was not read by the process goes with it.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def build(self, sources: Mapping[str, Source], into: Path) -> Iterator[tuple[str, Result]]:
        """Each source by name as it gets ready. Libraries lie in the folder ``into``, which is the caller's."""
        into.mkdir(parents=True, exist_ok=True)
        jobs: dict[int, tuple[str, Path]] = {}
        lines = []
        for name, source in sources.items():
            self._count += 1
            library = into / f"{self._count}-{os.urandom(4).hex()}.so"
            jobs[self._count] = (name, library)
            job = {"name": self._count, "library": str(library)}
            lines.append(job | {"json": source.json, "arch": source.arch, "options": dict(source.options)})
        # A worker that is still importing does not read, and a pipe holds little.
        threading.Thread(target=self._send, args=(lines,), daemon=True).start()
        if self.started is None:
            line = self._next(START)
            self.started, self.notes = line["ready"], tuple(line["notes"])
        while jobs:
            # Each kernel has its limit from its worker; this is for a worker that is lost itself.
            line = self._next(len(jobs) * self._seconds + START)
            job = jobs.pop(line["name"], None)
            if job is not None:  # else of kernels whose caller did not wait for them
                yield job[0], _result(line, job[1], self._seconds)

    def _send(self, jobs: list[dict[str, Any]]) -> None:
        # A worker that has ended says so on the other pipe.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(b"".join(json.dumps(job).encode() + b"\n" for job in jobs))
            self._process.stdin.flush()

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            line = None
        if line is None:
            self._fail()
        return json.loads(line)

    def _fail(self) -> None:
        disposable.kill_group(self._process.pid)
        status = self._process.wait()
        console = disposable.last_words(self._console, 4000)
        raise JudgeFailed(f"the compiler's process ended (status {status}):\n{console}")

    def _listen(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def build_all(
    sources: Mapping[str, Source],
    *,
    workers: int | None = None,
    cache: Path | EllipsisType | None = ...,
    seconds: int = SECONDS,
    into: Path | None = None,
    way: str = toolchain.PRECOMPILED,
    compiler: Compiler | None = None,
) -> Iterator[tuple[str, Result]]:
    """Each source by name as it gets ready; one that crashes or hangs its compiler costs itself alone.

    Libraries lie in the folder ``into``; without one, in a folder that goes when this process ends. ``cache`` is
    where compiled kernels are kept (None: nowhere; by default in the user's caches), ``compiler`` one that was
    started before. Raises JudgeFailed if this machine has no nvcc, or a worker can't start.
    """
    place = default_folder() if cache is ... else cache
    kept = None if place is None else LibraryCache(place)
    folder = into or _own_folder()
    missing: dict[str, Source] = {}
    keys: dict[str, Key] = {}
    for name, source in sources.items():
        start = time.monotonic()
        if kept is not None:
            keys[name] = key_of(source, way)
            entry = kept.get(keys[name])
            if entry is not None:
                yield name, _from_entry(entry, folder, time.monotonic() - start)
                continue
        missing[name] = source
    if not missing:
        return
    own = compiler or Compiler(
        missing.values(), workers=workers or min(len(missing), default_workers()), seconds=seconds, way=way
    )
    try:
        for name, result in own.build(missing, folder):
            if kept is not None and (isinstance(result, Built) or result.final):
                kept.put(keys[name], _entry(result))
            yield name, result
    finally:
        if own is not compiler:
            own.close()


def default_workers() -> int:
    return max(1, min(WORKERS, len(os.sched_getaffinity(0))))


def key_of(source: Source, way: str = toolchain.PRECOMPILED) -> Key:
    """What a compiled kernel depends on."""
    tools = _tools()
    return Key.of(source.json, source.options, source.arch, tools.release, way)


def _tools() -> toolchain.Toolchain:
    tools = toolchain.find()
    if tools is None:
        raise JudgeFailed(_("There is no nvcc here that runs; 'tilelab doctor' says how to get one."))
    return tools


@once
def _own_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="tilelab-libraries-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _result(line: Mapping[str, Any], library: Path, seconds: int) -> Result:
    if "error" not in line:
        return Built(library, line["seconds"], False, line["by"], line["phases"], tuple(line["notes"]))
    text = line["text"]
    if line["error"] == "Timeout":
        text = _("TileLang did not finish compiling within {seconds} s").format(seconds=seconds)
    return NotBuilt(line["error"], text, line["seconds"], line["final"])


def _entry(result: Result) -> Entry:
    if isinstance(result, Built):
        return Entry({"by": result.by, "notes": list(result.notes)}, result.library.read_bytes())
    return Entry({"kind": result.kind, "text": result.text}, None)


def _from_entry(entry: Entry, folder: Path, seconds: float) -> Result:
    if entry.library is None:
        return NotBuilt(entry.facts["kind"], entry.facts["text"], seconds, cached=True)
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"cached-{os.urandom(8).hex()}.so"
    library.write_bytes(entry.library)
    return Built(library, seconds, True, entry.facts["by"], {}, tuple(entry.facts["notes"]))

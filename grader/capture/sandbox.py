"""Runs a command where it can do no harm: no network, nothing of ours to read, limits on everything.

With bubblewrap the process sees its own empty home, Python, the packages and the few modules of ``grader`` that
a student's notebook needs: no solutions, no private tests, no other submission. Without it, limits on time,
memory, files and output still hold and its process group is killed at the end, but it can read what the user
can read; ``describe`` says so.
"""

import contextlib
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from grader.messages import _

PACKAGE = Path(__file__).resolve().parent.parent

HOME = "/home/student"

#: Bytes that each writable folder inside bubblewrap may hold.
SPACE = 512 * 2**20

#: Names the run in the environment of all that it starts, so that it can be found again without bubblewrap.
MARK = "TILELAB_RUN"

#: What of ``grader`` is seen inside: no autograders, no judge.
VISIBLE = ("__init__.py", "messages", "verdict", "catalog", "capture", "student")


@dataclass(frozen=True)
class Limits:
    """For the whole run: ``seconds`` of wall time, ``memory`` resident and ``result`` in bytes."""

    seconds: float = 90.0
    memory: int = 6 * 2**30
    result: int = 256 * 2**20
    file: int = 64 * 2**20
    open_files: int = 512
    console: int = 64 * 2**10


DEFAULT_LIMITS = Limits()


class End(StrEnum):
    """How a sandboxed run came to its end."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    TOO_MUCH_MEMORY = "too much memory"
    TOO_MUCH_OUTPUT = "too much output"


@dataclass(frozen=True)
class Ended:
    """``lines`` is what was written on the result channel, ``console`` the beginning of stdout and stderr."""

    end: End
    status: int
    lines: tuple[bytes, ...]
    console: str
    seconds: float


def kind() -> str:
    """ "bubblewrap" where it works, else "process"."""
    return "bubblewrap" if _bubblewrap() else "process"


def describe() -> str:
    """One sentence on how well a student's code is contained here."""
    if _bubblewrap():
        return _("Student code runs in bubblewrap: no network, no files but its own.")
    return _(
        "Bubblewrap is not usable here: student code runs with limits, but can read what you can read and reach "
        "the network. Install it (Debian, Ubuntu: apt-get install bubblewrap) before you grade others' work."
    )


_works: dict[str, bool] = {}


def _bubblewrap() -> str | None:
    path = shutil.which("bwrap")
    if path is None or os.environ.get("TILELAB_SANDBOX") == "process":
        return None
    if path not in _works:
        probe = [path, "--unshare-all", "--ro-bind", "/", "/", "true"]
        _works[path] = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    return path if _works[path] else None


def run(
    module: str,
    job: bytes,
    *,
    limits: Limits = DEFAULT_LIMITS,
    reply: Callable[[bytes], bytes | None] | None = None,
) -> Ended:
    """Runs ``python -m module RESULT_FD REPLY_FD`` with ``job`` on its stdin.

    What it writes on RESULT_FD comes back, line by line. ``reply`` sees each line as it comes, and what it returns
    is written to REPLY_FD. Everything that the process started is gone afterwards.
    """
    scratch = Path(tempfile.mkdtemp(prefix="tilelab-"))
    try:
        home = scratch / "home"
        home.mkdir(mode=0o700)
        stdin = scratch / "job"
        stdin.write_bytes(job)
        return _start(module, stdin, home, limits, reply)
    finally:
        # Not shutil: it gives up where a notebook has nested its folders very deeply.
        subprocess.run(["rm", "-rf", "--", str(scratch)], check=False)


def _start(
    module: str, stdin: Path, home: Path, limits: Limits, reply: Callable[[bytes], bytes | None] | None
) -> Ended:
    mark = uuid.uuid4().hex
    result_read, result_write = os.pipe()
    reply_read, reply_write = os.pipe()
    try:
        with stdin.open("rb") as source:
            process = subprocess.Popen(
                [
                    *_command(home, mark),
                    sys.executable,
                    "-P",
                    "-s",
                    "-B",
                    "-m",
                    module,
                    str(result_write),
                    str(reply_read),
                ],
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(result_write, reply_read),
                cwd=home,
                env=_environment(home, mark),
                start_new_session=True,
                preexec_fn=lambda: _limit(limits),  # noqa: PLW1509  only system calls, no locks
            )
    finally:
        os.close(result_write)
        os.close(reply_read)
    with (
        os.fdopen(result_read, "rb", buffering=0) as results,
        os.fdopen(reply_write, "wb", buffering=0) as replies,
    ):
        return _Watch(process, results, replies, limits, reply, mark).wait()


def _command(home: Path, mark: str) -> list[str]:
    bubblewrap = _bubblewrap()
    if bubblewrap is None:
        return []
    command = [bubblewrap, "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--clearenv"]
    for name, value in _environment(Path(HOME), mark).items():
        command += ["--setenv", name, value]
    command += ["--proc", "/proc", "--dev", "/dev"]
    # What it writes lies in memory, bounded, and is gone with it.
    for folder in ("/tmp", "/dev/shm", HOME):
        command += ["--size", str(SPACE), "--tmpfs", folder]
    for path in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives"):
        command += ["--ro-bind-try", path, path]
    # The interpreter and its packages, wherever they are. sys.prefix may lie inside a folder that holds more.
    for path in sorted({sys.base_prefix, sys.prefix, *_package_folders()}):
        if not path.startswith("/usr/"):
            command += ["--ro-bind", path, path]
    for name in VISIBLE:
        if (PACKAGE / name).exists():
            command += ["--ro-bind", str(PACKAGE / name), f"/opt/tilelab/grader/{name}"]
    return [*command, "--remount-ro", "/", "--chdir", HOME, "--"]


def _package_folders() -> set[str]:
    """Folders on sys.path that hold installed packages, beyond the interpreter's own."""
    ours = str(PACKAGE.parent)
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders |= {
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if Path(path, "tilelang").is_dir()
    }
    return {folder for folder in folders if folder and folder != ours and Path(folder).is_dir()}


def _environment(home: Path, mark: str) -> dict[str, str]:
    """A fresh environment: nothing of the judge's (tokens, paths, settings) is handed down."""
    inside = _bubblewrap() is not None
    path = ["/opt/tilelab" if inside else str(PACKAGE.parent), *sorted(_package_folders())]
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "LANG": "C.UTF-8",
        "TILELAB_CAPTURE": "1",
        MARK: mark,
        "TILELANG_CACHE_DIR": f"{home}/.tilelang",
        "IPYTHONDIR": f"{home}/.ipython",
        "MPLBACKEND": "Agg",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


def _limit(limits: Limits) -> None:
    """In the child, before the command starts."""
    for kind_, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CPU, int(limits.seconds) + 30),
    ):
        _soft, hard = resource.getrlimit(kind_)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind_, (limit, limit))


class _Watch:
    """Reads the process's channels until it ends, and ends it if it goes over a limit."""

    TICK = 0.1
    DRAIN = 2.0  # seconds for what was written just before the end

    def __init__(self, process: subprocess.Popen, results, replies, limits: Limits, reply, mark: str) -> None:
        self.process = process
        self.results = results
        self.replies = replies
        self.limits = limits
        self.reply = reply or (lambda line: None)
        self.mark = mark
        self.buffer = bytearray()
        self.lines: list[bytes] = []
        self.received = 0
        self.console = bytearray()

    def wait(self) -> Ended:
        start = time.monotonic()
        end = End.EXITED
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.results, selectors.EVENT_READ, self._result)
                selector.register(self.process.stdout, selectors.EVENT_READ, self._console)
                while not self._ended():
                    self._pump(selector, self.TICK)
                    over = self._over(time.monotonic() - start)
                    if over is not None:
                        end = over
                        break
                else:
                    # Somebody whom it left behind may go on writing for ever.
                    last = time.monotonic() + self.DRAIN
                    while self._pump(selector, 0.05) and time.monotonic() < last:
                        pass
        finally:
            self._kill()
            self.process.stdout.close()
        status = self.process.returncode
        console = self.console.decode(errors="replace")
        return Ended(end, status, tuple(self.lines), console, time.monotonic() - start)

    def _ended(self) -> bool:
        """Whether the process has ended, without reaping it: until then its number is nobody else's."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _pump(self, selector: selectors.BaseSelector, timeout: float) -> bool:
        """Reads what is there. False if nothing was."""
        got = False
        for key, _events in selector.select(timeout):
            data = os.read(key.fd, 1 << 16)
            if data:
                got = True
                key.data(data)
            else:
                selector.unregister(key.fileobj)
        return got

    def _result(self, data: bytes) -> None:
        self.received += len(data)
        if self.received > self.limits.result:
            return
        self.buffer += data
        *lines, rest = self.buffer.split(b"\n")
        self.buffer = bytearray(rest)
        for line in lines:
            self.lines.append(bytes(line))
            answer = self.reply(bytes(line))
            if answer is not None:
                with contextlib.suppress(BrokenPipeError):
                    self.replies.write(answer)

    def _console(self, data: bytes) -> None:
        self.console += data[: self.limits.console - len(self.console)]

    def _over(self, seconds: float) -> End | None:
        if seconds > self.limits.seconds:
            return End.TIMED_OUT
        if self.received > self.limits.result:
            return End.TOO_MUCH_OUTPUT
        if _resident(self.process.pid) > self.limits.memory:
            return End.TOO_MUCH_MEMORY
        return None

    def _kill(self) -> None:
        """Ends the process and all that it started.

        With bubblewrap its PID namespace takes the rest along. Without, its process group goes, and whoever still
        carries the run's mark in the environment; a process that shed both is out of reach.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for other in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if other.pid != self.process.pid and other.environ().get(MARK) == self.mark:
                    other.kill()
        self.process.wait()


def _resident(pid: int) -> int:
    """Bytes in memory of a process and all below it."""
    total = 0
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for member in family:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total

"""What processes share that are started for one piece of work: limits, last words, and an end.

TileLang's compiler can crash, hang or use up memory on a kernel, so it never runs in the judge's own process; nor
does a kernel.
"""

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import psutil

MEMORY = 16 * 2**30  # bytes of address space: the libraries alone reserve some gigabytes
FILE = 2**30  # bytes that a file may have


@contextmanager
def waiting_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that each wait for processes which they start.

    If the block is left early (by Ctrl-C, for instance), what this process has started is ended, and nothing more
    is begun: a pool alone would wait for all of it.
    """
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        left = threading.Thread(target=pool.shutdown)
        left.start()
        while left.is_alive():
            kill_children()  # again: a thread may just have been about to start one
            left.join(0.05)
        raise
    pool.shutdown()


def usual_jobs() -> int:
    """How many pieces of work are done at once: one uses a CPU or two, for capturing, compiling or simulating."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def last_words(console: BinaryIO, characters: int) -> str:
    """The end of what a process wrote to a file."""
    console.seek(max(0, console.seek(0, os.SEEK_END) - characters))
    return console.read().decode(errors="replace")


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process whose files all go to ``folder`` and that sees no card."""
    return os.environ | {
        "TILELANG_CACHE_DIR": str(folder / "cache"),
        "TILELANG_DISABLE_CACHE": "1",
        "TMPDIR": str(folder),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


def limit() -> None:
    """Limits this process and all that it starts. Made of system calls alone, for between fork and exec."""
    for kind, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, FILE)):
        _soft, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def kill_group(number: int) -> None:
    """Ends a process group, which may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)


def kill_family(number: int) -> None:
    """Ends a child of this process and all that it started; it is not waited for."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(number)
        process.suspend()  # so that it starts nothing meanwhile
        for member in [process, *process.children(recursive=True)]:
            _kill(member)


def kill_children() -> None:
    """Ends all that this process started, and waits for it."""
    members = psutil.Process().children(recursive=True)
    for member in members:
        _kill(member)
    psutil.wait_procs(members, timeout=5)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()

"""What every process has in which a compiler runs: no card, no cache of TileLang's, limits, and an end.

TileLang's compiler can crash, hang or use up memory on a kernel, so it never runs in the judge's own process.
"""

import contextlib
import os
import resource
import signal
from pathlib import Path

import psutil

MEMORY = 16 * 2**30  # bytes of address space: the libraries alone reserve some gigabytes
FILE = 2**30  # bytes that a file may have


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

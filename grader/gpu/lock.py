"""One measurement at a time on a card, whoever asks: a lock on a file, held by the process that uses the card.

The operating system lets go of it when that process ends, however it ends, so nothing has to be cleaned up.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL = 0.05  # seconds


def path_for(card: str) -> Path:
    """The lock's file, shared by all users of the machine; ``card`` tells it from other cards (its UUID)."""
    return folder() / f"tilelab-{card}.lock"


def folder() -> Path:
    """Where the locks are: TILELAB_LOCKS, else the machine's folder for temporary files."""
    return Path(os.environ.get("TILELAB_LOCKS") or tempfile.gettempdir())


@contextmanager
def held(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock; ``waiting`` is called once if another process has it. OSError if it can't be opened."""
    file = _open(path)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            # Not a blocking call: a signal handler of Python's (Ctrl-C) must get its turn.
            while not _taken(file):
                time.sleep(POLL)
        yield
    finally:
        os.close(file)


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int:
    """Whoever comes first makes the file; to lock it, others need only read it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    with contextlib.suppress(FileExistsError):  # another process was quicker
        made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o444)
        os.fchmod(made, 0o444)  # whatever the user's umask is: others must be able to read it
        os.close(made)
    return os.open(path, flags)

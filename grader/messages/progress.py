"""What a long piece of work does at the moment, said to whoever listens: a terminal's spinner, or nobody.

The judge works in processes of its own. They hand their lines up through a pipe, whose number stands in
``TILELAB_PROGRESS``.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

VARIABLE = "TILELAB_PROGRESS"

#: Taken out of the environment: the pipe is this process's, and to those that it starts the number means nothing.
_pipe = os.environ.pop(VARIABLE, None)

_listeners: list[Callable[[str], None]] = []


def say(text: str) -> None:
    """Says it to the listeners in this process, or through the pipe to those in the one that started it."""
    if _listeners:
        for listener in list(_listeners):
            listener(text)
    elif _pipe is not None:
        # Nobody listens any more, or listens too slowly: then there is nobody to tell, and the work goes on.
        with contextlib.suppress(OSError):
            os.write(int(_pipe), text.encode() + b"\n")


@contextmanager
def heard(listener: Callable[[str], None]) -> Iterator[None]:
    """``listener`` hears what is said meanwhile; it is called from any thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def handed_up() -> Iterator[int]:
    """The number of a pipe's end, for a process to be started meanwhile (``pass_fds``, and VARIABLE)."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # a full pipe stops nobody
    pump = threading.Thread(target=_pump, args=(reading,), daemon=True)
    pump.start()
    try:
        yield writing
    finally:
        os.close(writing)
        pump.join(1)


def _pump(reading: int) -> None:
    with os.fdopen(reading, errors="replace") as lines:
        for line in lines:
            say(line.rstrip("\n"))

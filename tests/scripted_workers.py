"""Workers that take the place of the card's in tests: a module of its own, as each worker imports it anew."""

import os
import time
from pathlib import Path


def scripted_worker(connection, log: str) -> None:
    """Does what the case's name says."""
    connection.send({"kind": "ready", "facts": {"card": "none"}})
    while True:
        name = connection.recv()
        connection.send({"kind": "stage", "stage": "running"})
        if name.startswith("crash"):
            Path(log).write_text("a last word")
            os._exit(9)
        if name.startswith("hang"):
            time.sleep(100)
        last = name.startswith("error")
        status = "failed" if last else "right"
        connection.send({"kind": "last" if last else "done", "status": status, "identical": 1.0})


def dead_worker(_connection, log: str) -> None:
    Path(log).write_text("no CUDA")
    os._exit(1)

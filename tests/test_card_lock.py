"""The card's lock: one at a time, and nobody after a death."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from grader.gpu import lock


def hold(path: Path, pipe, seconds: float) -> None:
    """In a process of its own: says when it waits, when it has the lock, and when it lets go."""
    with lock.held(path, waiting=lambda: pipe.send(("waits", os.getpid()))):
        pipe.send(("has", os.getpid()))
        time.sleep(seconds)
        pipe.send(("lets go", os.getpid()))


@pytest.fixture
def holder(tmp_path):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    processes = []

    def start(seconds: float):
        process = context.Process(target=hold, args=(tmp_path / "card.lock", theirs, seconds), daemon=True)
        process.start()
        processes.append(process)
        return process

    yield start, ours
    for process in processes:
        process.kill()
        process.join()


def test_holders_never_overlap(holder):
    start, pipe = holder
    processes = [start(0.05) for _ in range(5)]
    for process in processes:
        process.join(20)
    events = [pipe.recv() for _ in range(10 + 4) if pipe.poll(5)] if not pipe.poll(0) else []
    while pipe.poll(0.2):
        events.append(pipe.recv())
    told = [event for event in events if event[0] != "waits"]
    assert len(told) == 10
    for has, lets_go in zip(told[::2], told[1::2], strict=True):
        assert (has[0], lets_go[0]) == ("has", "lets go")
        assert has[1] == lets_go[1]
    assert any(event[0] == "waits" for event in events)


def test_a_killed_holder_leaves_nothing_behind(holder):
    start, pipe = holder
    first = start(60)
    assert pipe.recv() == ("has", first.pid)
    second = start(0)
    assert pipe.recv() == ("waits", second.pid)
    os.kill(first.pid, signal.SIGKILL)
    assert pipe.poll(10)
    assert pipe.recv() == ("has", second.pid)


def test_a_lock_that_another_user_made_can_be_held(tmp_path):
    """Its file may be read only: holding it does not need more."""
    path = tmp_path / "card.lock"
    path.touch(mode=0o444)
    with lock.held(path):
        assert path.exists()


def test_a_lock_that_a_careful_user_made_can_be_held_by_others(tmp_path):
    before = os.umask(0o077)
    try:
        with lock.held(tmp_path / "card.lock"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "card.lock").stat().st_mode & 0o777 == 0o444


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").touch()
    (tmp_path / "card.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), lock.held(tmp_path / "card.lock"):  # noqa: PT011  any refusal of the system's
        pass


def test_each_card_has_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("TILELAB_LOCKS", str(tmp_path))
    assert lock.path_for("GPU-1") != lock.path_for("GPU-2")
    assert lock.path_for("GPU-1").parent == tmp_path

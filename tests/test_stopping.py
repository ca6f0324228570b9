"""Ctrl-C and 'kill' end a command at once, with a word, and nothing of it stays: no process and no file."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from kernels import capture_of, matmul

from grader.autograders.run import _from_anywhere

ROOT = Path(__file__).parents[1]
#: Where tests run in the background, Ctrl-C is ignored, and so it is by what they start.
HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
TILELAB = [sys.executable, "-c", f"{HEARS}; from grader.cli import main; main()"]


def until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "that took too long"
        time.sleep(0.05)


@pytest.fixture
def begin(tmp_path):
    """Starts the command with a folder of its own for temporary files, and waits for the judge to be at work."""
    scratch = tmp_path / "scratch with a space"
    scratch.mkdir()
    started = []

    def start(count: int) -> tuple[subprocess.Popen, Path]:
        files = [tmp_path / f"{number}.json" for number in range(count)]
        for file in files:
            file.write_text(capture_of("lab02_matmul", matmul).to_json())
        process = subprocess.Popen(
            [*TILELAB, "judge", *map(str, files), "--device", "sim"],
            env=os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        until(lambda: list(scratch.glob("tilelab-judge-*/points.json")))
        return process, scratch

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_says_so_and_leaves_nothing(begin, count, number, status):
    process, scratch = begin(count)
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.send_signal(number)  # to this process alone: a terminal's Ctrl-C reaches the others, too
    said, _nothing = process.communicate(timeout=8)
    assert process.returncode == status
    assert said.endswith("Interrupted.\n")
    assert psutil.wait_procs(family, timeout=5)[1] == []
    assert list(scratch.iterdir()) == []


def test_threads_that_wait_for_processes_end_with_these_and_begin_nothing_more(tmp_path):
    script = tmp_path / "waiting.py"
    script.write_text(
        f"import subprocess, sys, time; sys.path.insert(0, {str(ROOT)!r})\n"
        "from grader.gpu.disposable import waiting_threads\n"
        "with waiting_threads(2) as pool:\n"
        "    assert pool.submit(subprocess.run, ['true']).result().returncode == 0\n"
        "    begun = [pool.submit(subprocess.run, ['sleep', '600']) for _number in range(6)]\n"
        "    while not begun[1].running(): time.sleep(0.01)\n"
        "    raise KeyboardInterrupt\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_settings_that_name_files_mean_the_same_to_the_judges_process(monkeypatch, tmp_path):
    """It works in a folder of its own, where 'our-card.toml' would be another file, or none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILELAB_TARGETS", "our-card.toml")
    monkeypatch.setenv("TILELAB_CACHE", "cache")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["here", "/there", ""]))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    found = _from_anywhere()
    assert found["TILELAB_TARGETS"] == str(tmp_path / "our-card.toml")
    assert found["TILELAB_CACHE"] == str(tmp_path / "cache")
    assert found["PYTHONPATH"] == os.pathsep.join([str(tmp_path / "here"), "/there", ""])
    assert "CUDA_HOME" not in found

"""Disposable workers: what they report arrives, they are ended in time, and nothing of them stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from grader.judge.worker_process import Ending, Worker

HERE = Path(__file__).parent


def worker() -> Worker:
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    return Worker("scripted_card_worker", {"PYTHONPATH": path})


def run(do: str) -> tuple[list[dict], Ending, Path]:
    lines: list[dict] = []
    with worker() as one:
        ending = one.run({"do": do}, lines.append)
    return lines, ending, one.folder


def gone(pid: int) -> bool:
    for _ in range(200):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_lines_arrive_in_order():
    lines, ending, folder = run("report")
    assert lines == [{"phase": "launching", "limit": 10, "shape": "x"}, {"ran": "x"}, {"done": True}]
    assert ending == Ending(0, "")
    assert not folder.exists()


def test_a_late_worker_is_ended_with_all_that_it_started():
    lines, ending, folder = run("hang")
    assert ending.late == {"phase": "launching", "limit": 0.2, "shape": "x"}
    assert ending.status == -signal.SIGKILL
    assert gone(lines[0]["child"])
    assert not folder.exists()


def test_waiting_for_the_card_has_no_limit():
    lines, ending, _folder = run("wait")
    assert ending == Ending(0, "")
    assert lines[-1] == {"done": True}


def test_a_dead_workers_last_words_are_kept():
    _lines, ending, _folder = run("die")
    assert ending.status == -signal.SIGABRT
    assert "a last word" in ending.console


def test_half_a_line_is_no_line():
    lines, ending, _folder = run("half")
    assert lines == []
    assert ending.status == 3


def test_a_module_that_can_not_start_is_an_ending_like_others():
    with Worker("no_such_module") as one:
        ending = one.run({}, lambda line: None)
    assert ending.status == 1
    assert "no_such_module" in ending.console


def test_a_worker_dies_with_its_parent(tmp_path):
    code = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
from test_worker_process import worker
one = worker()
one.run({{"do": "orphan"}}, lambda line: print(line["pid"], flush=True))
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait()
    assert gone(pid)


def test_closing_a_worker_that_got_no_job_leaves_nothing():
    one = worker()
    one.close()
    assert not one.folder.exists()
    assert gone(one._process.pid)


@pytest.mark.parametrize("variable", ["TMPDIR", "TILELANG_CACHE_DIR"])
def test_a_workers_files_lie_in_its_folder(variable):
    with worker() as one:
        environment = psutil.Process(one._process.pid).environ()
        assert environment[variable].startswith(str(one.folder))
        one.run({"do": "report"}, lambda line: None)

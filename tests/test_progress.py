"""What a long piece of work says reaches whoever listens, through any number of processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from grader.messages import progress

ROOT = Path(__file__).parents[1]


def test_nobody_listening_is_nobody_told(capsys):
    progress.say("nothing")
    assert capsys.readouterr().out == ""


CHILD = f"""
import os, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from grader.messages import progress
progress.say("child")
if len(sys.argv) == 1:
    with progress.handed_up() as pipe:
        environment = os.environ | {{progress.VARIABLE: str(pipe)}}
        subprocess.run([sys.executable, __file__, "x"], env=environment, pass_fds=(pipe,), check=True)
"""


def test_a_childs_child_is_heard(tmp_path):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    heard: list[str] = []
    with progress.heard(heard.append), progress.handed_up() as pipe:
        environment = os.environ | {progress.VARIABLE: str(pipe)}
        subprocess.run([sys.executable, str(script)], env=environment, pass_fds=(pipe,), check=True)
    assert heard == ["child", "child"]


def test_a_reader_that_went_away_stops_nobody(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(progress, "_pipe", str(writing))
    progress.say("into the void")
    os.close(writing)


def test_a_reader_that_does_not_read_stops_nobody(tmp_path):
    """A terminal that is held (Ctrl-S) while the judge has much to say."""
    script = tmp_path / "child.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from grader.messages import progress\n"
        "for number in range(5000): progress.say(f'{number} ' + 100 * 'x')\n"
    )
    go_on = threading.Event()
    heard: list[str] = []

    def slow(text: str) -> None:
        go_on.wait(30)
        heard.append(text)

    with progress.heard(slow), progress.handed_up() as pipe:
        environment = os.environ | {progress.VARIABLE: str(pipe)}
        subprocess.run([sys.executable, str(script)], env=environment, pass_fds=(pipe,), check=True, timeout=20)
        go_on.set()
    assert 0 < len(heard) < 5000
    assert all(len(line.split()) == 2 for line in heard)  # what is heard is whole


def test_the_pipes_number_is_not_handed_on_to_processes_that_have_no_such_pipe(tmp_path):
    """There the number may be that of a file."""
    script = tmp_path / "child.py"
    script.write_text(
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from grader.messages import progress\n"
        "sys.exit(progress.VARIABLE in os.environ)\n"
    )
    with progress.handed_up() as pipe:
        environment = os.environ | {progress.VARIABLE: str(pipe)}
        subprocess.run([sys.executable, str(script)], env=environment, pass_fds=(pipe,), check=True)

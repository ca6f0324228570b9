"""What a long piece of work says reaches whoever listens, through any number of processes."""

import os
import subprocess
import sys
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
    monkeypatch.setenv(progress.VARIABLE, str(writing))
    progress.say("into the void")
    os.close(writing)

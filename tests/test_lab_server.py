"""``tilelab lab``: a student's work is never overwritten, and the server asks for its token."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from grader.cli import lab as lab_module
from grader.cli.lab import lab, lay_out

ROOT = Path(__file__).parents[1]
LAB = "lab01_vector_add"


def notebook(text: str) -> str:
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": text}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


class Course:
    """A folder of shipped labs with one lab in it, and a student's work folder."""

    def __init__(self, folder: Path) -> None:
        self.labs, self.work = folder / "labs", folder / "work"
        self.shipped = self.labs / LAB / f"{LAB}.ipynb"
        self.copy = self.work / LAB / f"{LAB}.ipynb"
        self.shipped.parent.mkdir(parents=True)
        self.ship("version 1")

    def ship(self, text: str) -> None:
        self.shipped.write_text(notebook(text))

    def lay_out(self) -> list[str]:
        return lay_out([self.shipped], self.work)

    def beside(self) -> dict[str, str]:
        others = sorted(self.copy.parent.glob("*.new-version*.ipynb"))
        return {path.name: path.read_text() for path in others}


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return Course(tmp_path)


# -- the student's copies -----------------------------------------------------------------------------------


def test_a_missing_copy_is_made(course: Course) -> None:
    assert course.lay_out() == []
    assert course.copy.read_text() == notebook("version 1")


def test_work_stays_as_it_is_while_the_lab_does(course: Course) -> None:
    course.lay_out()
    course.copy.write_text(notebook("mine"))
    assert course.lay_out() == []
    assert course.copy.read_text() == notebook("mine")
    assert course.beside() == {}


def test_a_new_version_is_laid_beside_work_once(course: Course) -> None:
    course.lay_out()
    course.copy.write_text(notebook("mine"))
    course.ship("version 2")
    (sentence,) = course.lay_out()
    assert f"{LAB}.new-version.ipynb" in sentence
    assert course.copy.read_text() == notebook("mine")
    assert course.beside() == {f"{LAB}.new-version.ipynb": notebook("version 2")}
    assert course.lay_out() == []


def test_work_in_an_earlier_new_version_is_not_overwritten_either(course: Course) -> None:
    course.lay_out()
    course.copy.write_text(notebook("mine"))
    course.ship("version 2")
    course.lay_out()
    (course.copy.parent / f"{LAB}.new-version.ipynb").write_text(notebook("mine too"))
    course.ship("version 3")
    course.lay_out()
    assert course.beside() == {
        f"{LAB}.new-version.ipynb": notebook("mine too"),
        f"{LAB}.new-version-2.ipynb": notebook("version 3"),
    }


def test_a_copy_that_was_never_touched_is_renewed(course: Course) -> None:
    course.lay_out()
    course.ship("version 2")
    (sentence,) = course.lay_out()
    assert "had not begun" in sentence
    assert course.copy.read_text() == notebook("version 2")
    assert course.beside() == {}


def test_deleting_a_copy_brings_the_shipped_one_back(course: Course) -> None:
    course.lay_out()
    course.copy.unlink()
    course.lay_out()
    assert course.copy.read_text() == notebook("version 1")


@pytest.mark.parametrize("broken", ["{", "[]", '{"lab01_vector_add": {"unknown": 1}}'])
def test_a_broken_manifest_is_said_and_costs_no_work(course: Course, broken: str) -> None:
    course.lay_out()
    course.copy.write_text(notebook("mine"))
    (course.work / ".tilelab" / "labs.json").write_text(broken)
    sentences = course.lay_out()
    assert "can't be read" in sentences[0]
    assert course.copy.read_text() == notebook("mine")
    assert course.lay_out() == []


# -- what stops the start -----------------------------------------------------------------------------------


@pytest.fixture
def start(course: Course, monkeypatch: pytest.MonkeyPatch):
    """Calls the command up to the moment where it would become JupyterLab; the server's arguments are printed."""
    app = typer.Typer()
    app.command()(lab)
    monkeypatch.setattr(lab_module, "_become_jupyterlab", lambda *arguments: print("starts", arguments))

    def call(*arguments: str, labs: Path = course.labs):
        return CliRunner().invoke(app, ["--labs", str(labs), "--work", str(course.work), *arguments])

    return call


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_gives_the_next_free_one_and_says_so(start, taken_port: int) -> None:
    result = start("--port", str(taken_port))
    assert result.exit_code == 0
    assert f"Port {taken_port} can't be used" in result.output
    (chosen,) = re.findall(r"http://127\.0\.0\.1:(\d+)/lab/tree/[^?]+\?token=", result.output)
    assert int(chosen) > taken_port


def test_in_a_container_a_taken_port_stops_the_start(start, taken_port: int) -> None:
    """Only that port is published: on another one nobody would find the server."""
    result = start("--port", str(taken_port), "--ip", "0.0.0.0")
    assert result.exit_code == 2
    assert "Name another one with --port" in result.output


def test_an_address_that_is_none_is_said(start) -> None:
    result = start("--ip", "nowhere")
    assert result.exit_code == 2
    assert "'nowhere' is no IPv4 address" in result.output


def test_without_labs_it_says_what_to_do(start, tmp_path: Path) -> None:
    result = start(labs=tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "tilelab build" in result.output


def test_a_work_folder_that_cannot_be_written_is_said(start, course: Course) -> None:
    course.work.write_text("a file, not a folder")
    result = start()
    assert result.exit_code == 2
    assert "Name another folder with --work" in result.output


def test_an_empty_token_is_replaced_by_a_random_one(start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "")
    tokens = {re.search(r"token=(\S+)", start().output)[1] for _ in range(2)}
    assert len(tokens) == 2
    assert all(len(token) >= 32 for token in tokens)


def test_a_given_token_is_taken_and_written_into_the_address_safely(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "a b&c")
    assert "token=a%20b%26c\n" in start().output


# -- the server itself --------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def status(port: int, token: str | None) -> int | None:
    """The HTTP status of /api/status; None while nothing listens."""
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/status", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_jupyterlab_starts_asks_for_its_token_and_ends_at_ctrl_c(course: Course, tmp_path: Path) -> None:
    port = free_port()
    home = tmp_path / "home"
    # A careless configuration in the home folder must not switch the token off.
    (home / ".jupyter").mkdir(parents=True)
    (home / ".jupyter" / "jupyter_server_config.py").write_text("c.IdentityProvider.token = ''\n")
    log = tmp_path / "log"
    command = "import typer; from grader.cli.lab import lab; typer.run(lab)"
    arguments = ["--port", str(port), "--labs", str(course.labs), "--work", str(course.work)]
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    for name in ("JUPYTER_TOKEN", "JUPYTER_CONFIG_DIR"):
        environment.pop(name, None)
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-c", command, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while status(port, None) is None:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        token = re.search(rf"http://127\.0\.0\.1:{port}/lab/tree/[^?]+\?token=(\S+)", log.read_text())[1]
        assert status(port, None) == 403
        assert status(port, "wrong") == 403
        assert status(port, token) == 200
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/lab?token={token}", timeout=10).read().decode()
        assert re.search(r'"news":\s*\{"disabled": true\}', page)
        assert re.search(r'"can_install": false', page)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0, log.read_text()
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    assert "Traceback" not in log.read_text()

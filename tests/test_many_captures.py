"""Many captures at once: each has its result, and what is wrong with one costs that one alone."""

import json

import pytest
from kernels import capture_of, vector_add
from typer.testing import CliRunner

from grader.autograders.batch import judge_files, usual_jobs
from grader.cli.app import app
from grader.gpu import hardware, unfit
from grader.gpu.hardware import Gpu
from grader.verdict import Check, JudgeFailed, Outcome, Unavailable, Unusable, Verdict

RIGHT = Verdict("lab01_vector_add", "simulator", (Check("right", "Right", "cell", Outcome.PASSED, 5, 5),))


@pytest.fixture
def files(tmp_path):
    capture = capture_of("lab01_vector_add", vector_add).to_json()
    paths = [tmp_path / f"{name}.json" for name in ("good", "bad", "worse", "broken", "lost")]
    for path in paths[:3]:
        path.write_text(capture)
    paths[3].write_text("{")
    return paths


def judge_by(names):
    """A judge that goes by how often it was asked."""
    answers = iter(names)

    def judge(_capture):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return judge


def test_each_has_its_own_result(files):
    judge = judge_by([RIGHT, Unusable("no kernel"), JudgeFailed("our fault")])
    found = {judged.file.stem: judged for judged in judge_files(files, judge, jobs=1)}
    assert found["good"].verdict is RIGHT
    assert str(found["bad"].error) == "no kernel"
    assert isinstance(found["worse"].error, JudgeFailed)
    assert isinstance(found["broken"].error, Unusable)
    assert "lost.json" in str(found["lost"].error)


def test_a_full_disk_is_no_fault_of_the_file(files):
    found = list(judge_files(files[:1], judge_by([OSError(28, "No space left on device")])))
    assert isinstance(found[0].error, JudgeFailed)
    assert "No space left" in str(found[0].error)


def test_what_this_machine_lacks_is_said_once_and_not_of_each_file(files, monkeypatch):
    monkeypatch.setattr(unfit, "look", lambda: Gpu(None, None, None))
    monkeypatch.setattr(hardware, "look", lambda: Gpu(None, None, None))
    done = CliRunner().invoke(app, ["judge", *map(str, files[:2]), "--device", "gpu"])
    assert isinstance(done.exception, Unavailable)
    assert "no GPU here" in str(done.exception)


def test_there_is_always_a_job():
    assert usual_jobs() >= 1


def test_the_table_names_every_file_and_why(files):
    done = CliRunner().invoke(app, ["judge", *map(str, files[2:]), "--device", "sim", "--json"])
    rows = json.loads(done.stdout)
    assert [row["file"] for row in rows] == [str(file) for file in files[2:]]
    assert rows[0]["verdict"]["lab"] == "lab01_vector_add"
    assert rows[1]["error"]
    assert rows[2]["error"]
    assert done.exit_code == 1

"""The secret of official runs: made once, whoever asks first, and never empty."""

import stat
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from grader.autograders.private import seeds
from grader.verdict import Unavailable


@pytest.fixture
def file(monkeypatch, tmp_path):
    path = tmp_path / "new" / "secret"
    monkeypatch.setenv("TILELAB_SECRET", str(path))
    return path


def test_it_is_made_once_for_its_owner_alone(file):
    seed = seeds.seed_for("a submission")
    assert seeds.seed_for("a submission") == seed != seeds.seed_for("another")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text()) == 64
    assert list(file.parent.iterdir()) == [file]


def test_processes_that_ask_at_once_get_the_same(file):
    with ProcessPoolExecutor(8, mp_context=get_context("fork")) as pool:
        assert len(set(pool.map(seeds.seed_for, ["a submission"] * 64))) == 1
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("content", ["", " \n"])
def test_an_empty_one_is_no_secret(file, content):
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(Unavailable, match="is empty"):
        seeds.seed_for("a submission")
    assert file.read_text() == content

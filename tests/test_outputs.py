"""A file that can't be written is told before anything is measured."""

from pathlib import Path

import pytest

from grader.cli.outputs import must_be_writable, write
from grader.verdict import Unusable


def test_new_and_old_files_may_be_written_and_nothing_is_made_meanwhile(tmp_path):
    (tmp_path / "old.json").write_text("old")
    must_be_writable(None, tmp_path / "old.json", tmp_path / "new.json", tmp_path / "deep" / "down" / "new.json")
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert (tmp_path / "old.json").read_text() == "old"
    write(tmp_path / "deep" / "down" / "new.json", "new")
    assert (tmp_path / "deep" / "down" / "new.json").read_text() == "new"


def test_a_relative_name_is_of_the_folder_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    must_be_writable(Path("new.json"))
    with pytest.raises(Unusable, match="it is a folder"):
        must_be_writable(Path("."))


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "it is a folder"), ("file/x.json", "is no folder"), ("file/deep/x.json", "is no folder")],
)
def test_what_is_in_the_way_is_said(tmp_path, name, why):
    (tmp_path / "file").touch()
    with pytest.raises(Unusable, match=why):
        must_be_writable(tmp_path / name)


def test_a_folder_that_is_not_ones_own_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(Unusable, match="no permission"):
        must_be_writable(tmp_path / "x.json")

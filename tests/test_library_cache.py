"""The cache of compiled kernels: what is the same kernel, and what becomes of it when anything goes wrong."""

import errno
import json
import multiprocessing
import os
import stat
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels import json_of, matmul, vector_add

from grader import ir
from grader.autograders.private import seeds
from grader.gpu import library_cache, targets
from grader.gpu.library_cache import Entry, Key, LibraryCache, default_folder
from grader.verdict import Unavailable

TEXT = '{"nodes": [{"type": "a"}], "root_index": 0}'
PARTS = {"text": TEXT, "options": {}, "arch": "sm_90a", "cuda": "13.0.88", "way": "nvcc"}
KEY = Key.of(**PARTS)
ENTRY = Entry({"by": "nvcc", "notes": []}, b"\x7fELF and\nmore\x00")


@pytest.fixture
def kept(tmp_path: Path) -> LibraryCache:
    library_cache._say_once.cache_clear()
    return LibraryCache(tmp_path / "tilelab" / "kernels")


def file_of(kept: LibraryCache) -> Path:
    (path,) = kept.folder.glob("*.kernel")
    return path


def test_what_was_put_comes_back_in_a_folder_of_the_users_own(kept):
    assert kept.get(KEY) is None
    kept.put(KEY, ENTRY)
    found = LibraryCache(kept.folder).get(KEY)
    assert found.library == ENTRY.library
    assert found.facts["by"] == "nvcc"
    assert stat.S_IMODE(kept.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(kept).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "other",
    [
        {"text": TEXT.replace('"a"', '"b"')},
        {"options": {"tl.enable_fast_math": True}},
        {"options": {"tl.enable_fast_math": False}},
        {"arch": "sm_100a"},
        {"cuda": "13.0.89"},
        {"way": "NVRTC"},
    ],
)
def test_every_part_of_the_key_makes_another_kernel(kept, other):
    kept.put(KEY, ENTRY)
    assert kept.get(Key.of(**PARTS | other)) is None
    assert kept.get(KEY) is not None


@pytest.mark.parametrize("name", ["tilelang", "apache-tvm-ffi"])
def test_another_version_of_a_compiler_makes_another_kernel(monkeypatch, name):
    installed = library_cache.importlib.metadata.version
    monkeypatch.setattr(
        library_cache.importlib.metadata, "version", lambda asked: "9.9" if asked == name else installed(asked)
    )
    library_cache._versions.cache_clear()
    try:
        assert Key.of(**PARTS).name != KEY.name
    finally:
        library_cache._versions.cache_clear()


def test_another_format_makes_another_kernel(monkeypatch):
    monkeypatch.setattr(library_cache, "FORMAT", library_cache.FORMAT + 1)
    assert Key.of(**PARTS).name != KEY.name


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), unique_by=lambda pair: pair[0]), st.randoms())
def test_the_order_of_options_is_nothing(options, random):
    shuffled = random.sample(options, len(options))
    assert Key.of(**PARTS | {"options": dict(options)}) == Key.of(**PARTS | {"options": dict(shuffled)})


def test_a_line_above_the_kernel_makes_no_other_kernel_but_a_constant_does():
    kernel = ir.read(json_of(vector_add.get_tir(N=1024)))
    text = ir.write(kernel)
    spans = json.loads(text)
    for node in spans["nodes"]:
        if node["type"] == "ir.Span":
            node["data"]["line"] += 7
            node["data"]["end_line"] += 7
    lower = Key.of(**PARTS | {"text": json.dumps(spans)})
    assert lower.name == Key.of(**PARTS | {"text": text}).name
    assert lower.text != Key.of(**PARTS | {"text": text}).text
    other = ir.write(ir.read(json_of(vector_add.get_tir(N=2048))))
    assert Key.of(**PARTS | {"text": other}).name != lower.name


def test_a_refusal_is_kept_with_its_lines_only(kept):
    refusal = Entry({"kind": "ValueError", "text": "at line 3"}, None)
    kept.put(KEY, refusal)
    assert kept.get(KEY).facts["text"] == "at line 3"
    assert kept.get(KEY).library is None
    assert kept.get(Key(KEY.name, "the same kernel a line further down")) is None


@given(st.data())
def test_a_damaged_entry_is_no_entry_and_is_thrown_away(tmp_path_factory, data):
    kept = LibraryCache(tmp_path_factory.mktemp("cache") / "kernels")
    kept.put(KEY, ENTRY)
    path = file_of(kept)
    content = path.read_bytes()
    if data.draw(st.booleans(), label="cut"):
        damaged = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        place = data.draw(st.integers(0, len(content) - 1))
        damaged = content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
    path.write_bytes(damaged)
    assert kept.get(KEY) is None
    assert not path.exists()
    kept.put(KEY, ENTRY)
    assert kept.get(KEY).library == ENTRY.library


def test_an_entry_under_anothers_name_is_none(kept):
    kept.put(KEY, ENTRY)
    other = Key.of(**PARTS | {"arch": "sm_80"})
    file_of(kept).rename(kept.folder / f"{other.name}.kernel")
    assert kept.get(other) is None


def _write_often(folder: Path, number: int) -> None:
    kept = LibraryCache(folder)
    for round_ in range(40):
        kept.put(KEY, Entry({"by": str(number), "notes": []}, bytes([number]) * (100_000 + round_)))


def test_writers_and_readers_at_once_see_whole_entries_only(kept):
    kept.put(KEY, Entry({"by": "0", "notes": []}, bytes(10)))
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_often, args=(kept.folder, number)) for number in range(1, 4)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        found = kept.get(KEY)
        assert found is not None
        assert set(found.library) == {int(found.facts["by"])}
        seen.add(found.facts["by"])
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert seen
    assert [path.name for path in kept.folder.iterdir()] == [f"{KEY.name}.kernel"]


def test_a_killed_writers_file_is_thrown_away_when_it_is_old(kept):
    kept.put(KEY, ENTRY)
    fresh, stale = kept.folder / "new-fresh", kept.folder / "new-stale"
    for path in (fresh, stale):
        path.write_bytes(b"half")
    os.utime(stale, (0, 0))
    kept.put(KEY, ENTRY)
    assert fresh.exists()
    assert not stale.exists()


def test_what_was_not_used_for_longest_goes_first(kept):
    keys = [Key.of(**PARTS | {"arch": f"sm_{number}"}) for number in range(4)]
    for number, key in enumerate(keys[:3]):
        kept.put(key, Entry(ENTRY.facts, bytes(1000)))
        os.utime(kept._path(key), (number, number))
    size = file_of_key(kept, keys[0]).stat().st_size
    assert kept.get(keys[0]) is not None  # used: now it is the newest
    kept.max_bytes = 3 * size
    kept.put(keys[3], Entry(ENTRY.facts, bytes(1000)))
    assert [kept.get(key) is not None for key in keys] == [True, False, True, True]


def file_of_key(kept: LibraryCache, key: Key) -> Path:
    return kept.folder / f"{key.name}.kernel"


# Where it can't be used


def refuses_once(kept: LibraryCache, words: str) -> None:
    with pytest.warns(RuntimeWarning, match=words):
        assert kept.get(KEY) is None
    again = LibraryCache(kept.folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in (kept, again):
            one.put(KEY, ENTRY)
            assert one.get(KEY) is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_used(kept, mode):
    kept.put(KEY, ENTRY)
    kept.folder.chmod(mode)
    refuses_once(LibraryCache(kept.folder), "others can write")


def test_a_folder_of_another_user_is_not_used(kept, monkeypatch):
    kept.put(KEY, ENTRY)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    refuses_once(LibraryCache(kept.folder), "another user")


def test_a_link_in_the_folders_place_is_not_followed(kept, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    kept.folder.parent.mkdir()
    kept.folder.symlink_to(tmp_path / "elsewhere")
    refuses_once(kept, "no folder")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_in_an_entrys_place_is_not_followed(kept, tmp_path):
    kept.put(KEY, ENTRY)
    file_of(kept).rename(tmp_path / "elsewhere")
    file_of_key(kept, KEY).symlink_to(tmp_path / "elsewhere")
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert LibraryCache(kept.folder).get(KEY) is None


def test_a_file_where_the_folder_should_be_is_said(kept):
    kept.folder.parent.write_text("")
    refuses_once(kept, "exist")


def test_a_full_disk_stops_keeping_and_nothing_else(kept, monkeypatch):
    kept.put(KEY, ENTRY)

    def full(*_paths) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.warns(RuntimeWarning, match="No space left"):
            kept.put(KEY, ENTRY)
    assert len(list(kept.folder.iterdir())) == 1  # the half-written file is gone
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LibraryCache(kept.folder).get(KEY).library == ENTRY.library


def test_where_it_lies(monkeypatch, tmp_path):
    for name in ("TILELAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_folder() == Path("/home/someone/.cache/tilelab/kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_folder() == Path("/caches/tilelab/kernels")
    monkeypatch.setenv("TILELAB_CACHE", str(tmp_path))
    assert default_folder() == tmp_path / "kernels"


def test_a_user_without_a_home_has_no_folders_and_does_without(monkeypatch):
    """As in a container that runs under a number which no user has."""

    def none():
        raise RuntimeError("Could not determine home directory.")

    for name in ("TILELAB_CACHE", "XDG_CACHE_HOME", "TILELAB_TARGETS", "XDG_CONFIG_HOME", "TILELAB_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", staticmethod(none))
    library_cache._say_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="not kept: you have no home folder"):
        assert default_folder() is None
    assert targets.teachers_file() is None
    assert targets.find("lab02_matmul", "matmul", "4096", "NVIDIA H200") is not None
    with pytest.raises(Unavailable, match="no home folder"):
        seeds.secret_file()


def test_the_kernels_of_a_matmul_at_two_shapes_are_two():
    texts = [ir.write(ir.read(json_of(matmul.get_tir(M=n, N=n, K=n)))) for n in (128, 256)]
    assert len({Key.of(**PARTS | {"text": text}).name for text in texts}) == 2

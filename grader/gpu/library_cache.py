"""Compiled kernels, kept on disk between runs: by IR, options, architecture and the versions of all compilers.

An entry is one file, written beside its place and renamed, so that it is there whole or not at all; it carries a
digest of its content, and one that doesn't fit is thrown away. The folder must be the user's own and writable by
nobody else: what lies in it is loaded as a program. Where it can't be used, nothing is kept, which is said once.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import stat
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from grader.gpu import user_folders
from grader.messages import _

FORMAT = 1
MAX_BYTES = 512 * 2**20  # of all entries; the ones not used for longest go first
STALE = 3600.0  # seconds after which a half-written file's writer is dead
SUFFIX = ".kernel"


def default_folder() -> Path | None:
    """``TILELAB_CACHE``, or ``tilelab`` in the user's folder of caches; kernels lie in ``kernels`` there.

    None if there is neither.
    """
    own, general = os.environ.get("TILELAB_CACHE"), user_folders.caches()
    if own:
        return Path(own, "kernels")
    if general is None:
        _say_once(_("Compiled kernels are not kept: you have no home folder. TILELAB_CACHE may name another one."))
        return None
    return Path(general, "tilelab", "kernels")


@dataclass(frozen=True)
class Key:
    """``name`` is of all that machine code depends on. Line numbers are not of that; ``text`` has them, too."""

    name: str
    text: str

    @classmethod
    def of(cls, text: str, options: Mapping[str, bool | int], arch: str, cuda: str, way: str) -> "Key":
        """Of a kernel's JSON, its options and architecture, the release of ``cuda`` and the way it is compiled."""
        parts = [FORMAT, _without_lines(text), sorted(options.items()), arch, cuda, way, _versions()]
        return cls(_digest(json.dumps(parts).encode()), _digest(text.encode()))


@cache
def _versions() -> tuple[str, ...]:
    """Of what makes a library and of what it is linked to."""
    packages = [importlib.metadata.version(name) for name in ("tilelang", "apache-tvm-ffi")]
    return (*packages, platform.machine(), platform.libc_ver()[1])


def _without_lines(text: str) -> Any:
    """The JSON with all places in the source made one: a line above the kernel changes no machine code."""
    graph = json.loads(text)
    for node in graph["nodes"]:
        if node["type"] == "ir.Span":
            node["data"] |= {"line": 0, "end_line": 0}
    return graph


@dataclass(frozen=True)
class Entry:
    """``facts`` are plain values of the caller's; ``library`` is None if the compiler refused the kernel."""

    facts: Mapping[str, Any]
    library: bytes | None


class LibraryCache:
    """The cache in ``folder``. Any number of processes may use it at once, and may be killed."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._usable: bool | None = None

    def get(self, key: Key) -> Entry | None:
        """What was put there, if it is whole."""
        if not self._is_usable():
            return None
        path = self._path(key)
        try:
            content = _read_own(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(str(error))
            return None
        entry = _decoded(content, key)
        if entry is None:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        if entry.library is None and entry.facts["text_of"] != key.text:
            return None  # a refusal speaks of lines, and these are others
        with contextlib.suppress(OSError):
            os.utime(path)
        return entry

    def put(self, key: Key, entry: Entry) -> None:
        """Keeps it, and throws away what was not used for longest if there is too much."""
        if not self._is_usable():
            return
        content = _encoded(entry, key)
        try:
            self._write(self._path(key), content)
            self._bound()
        except OSError as error:
            self._give_up(str(error))

    def _path(self, key: Key) -> Path:
        return self.folder / f"{key.name}{SUFFIX}"

    def _write(self, path: Path, content: bytes) -> None:
        descriptor, name = tempfile.mkstemp(prefix="new-", dir=self.folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _bound(self) -> None:
        entries = []
        for item in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                found = item.stat(follow_symlinks=False)
                if item.name.startswith("new-") and time.time() - found.st_mtime > STALE:
                    os.unlink(item.path)
                elif item.name.endswith(SUFFIX):
                    entries.append((found.st_mtime_ns, found.st_size, item.path))
        total = sum(size for _time, size, _path in entries)
        for _time, size, path in sorted(entries):
            if total <= self.max_bytes:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size

    # Whether it may be used

    def _is_usable(self) -> bool:
        if self._usable is None:
            why = self._why_not()
            self._usable = why is None
            if why is not None:
                self._give_up(why)
        return self._usable

    def _why_not(self) -> str | None:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            found = self.folder.lstat()
        except OSError as error:
            return str(error)
        if not stat.S_ISDIR(found.st_mode):
            return _("it is no folder")
        if found.st_uid != os.geteuid():
            return _("it belongs to another user")
        if found.st_mode & 0o022:
            return _("others can write to it (mend it with: chmod 700)")
        return None

    def _give_up(self, why: str) -> None:
        self._usable = False
        _say_once(
            _("Compiled kernels are not kept in {folder}: {why}. Each is compiled anew.").format(
                folder=self.folder, why=why
            )
        )


@cache
def _say_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _read_own(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        return file.read()


# An entry's file: the digest of the rest, a line of JSON, the library.


def _encoded(entry: Entry, key: Key) -> bytes:
    facts = dict(entry.facts) | {"text_of": key.text, "key": key.name, "built": entry.library is not None}
    rest = json.dumps(facts).encode() + b"\n" + (entry.library or b"")
    return _digest(rest).encode() + b"\n" + rest


def _decoded(content: bytes, key: Key) -> Entry | None:
    digest, _newline, rest = content.partition(b"\n")
    if digest.decode(errors="replace") != _digest(rest):
        return None
    line, _newline, library = rest.partition(b"\n")
    facts = json.loads(line)
    if facts.get("key") != key.name:
        return None
    return Entry(facts, library if facts["built"] else None)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

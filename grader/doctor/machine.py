"""What is on this machine: facts only, gathered without importing torch or tilelang.

Every look goes through one function of this module that answers with plain data, so that a test can hand the
checks a machine that isn't there.
"""

import importlib.metadata
import platform
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from grader.gpu import hardware, targets
from grader.gpu.hardware import Gpu, ask
from grader.verdict import Unusable

PROJECT = "tilelang-labs"
PACKAGES = ("torch", "tilelang", "jupyterlab", "nbgrader")
LABS_PORT = 8888


@dataclass(frozen=True)
class Package:
    """``wanted`` is pyproject.toml's range, ``locked`` the lock file's version ("" if there is no lock file)."""

    name: str
    installed: str | None
    wanted: str
    locked: str
    for_judging: bool


@dataclass(frozen=True)
class Sandbox:
    """bubblewrap. ``error`` is what it said when it could not make a sandbox."""

    path: str | None
    error: str = ""
    in_container: bool = False


@dataclass(frozen=True)
class Targets:
    """Of the card that judges: where its targets are from, and which kernels have none.

    ``error`` says what is wrong with the teacher's file.
    """

    origins: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Machine:
    """The facts that the checks judge. Sizes are in bytes; ``requires_python`` is "" if we aren't installed."""

    python: str
    executable: str
    requires_python: str
    packages: tuple[Package, ...]
    gpu: Gpu
    sandbox: Sandbox
    memory_free: int
    folder: str
    disk_free: int
    port_free: bool
    targets: Targets = Targets()


def inspect() -> Machine:
    folder = Path.cwd()
    gpu = hardware.look()
    return Machine(
        python=platform.python_version(),
        executable=sys.executable,
        requires_python=_project_metadata("Requires-Python"),
        packages=look_at_packages(),
        gpu=gpu,
        sandbox=look_at_sandbox(),
        memory_free=free_memory(),
        folder=str(folder),
        disk_free=psutil.disk_usage(str(folder)).free,
        port_free=not port_trouble("127.0.0.1", LABS_PORT),
        targets=look_at_targets(hardware.judging_card(gpu)),
    )


def look_at_targets(card: hardware.Card | None) -> Targets:
    """Nothing, if no card judges."""
    if card is None:
        return Targets()
    try:
        rows = {row.key: row for row in targets.of_card(card.name)}
    except Unusable as error:
        return Targets(error=f"{error.finding.message} {error.finding.advice}")
    asked = [one for one in targets.asked() if one.key in rows]
    missing = tuple(one.kernel for one in targets.asked() if one.key not in rows)
    return Targets(tuple(dict.fromkeys(rows[one.key].origin for one in asked)), missing)


# -- packages -----------------------------------------------------------------------------------------------


def look_at_packages() -> tuple[Package, ...]:
    """The packages that the labs stand on, against pyproject.toml (as installed) and requirements.lock."""
    wanted = {}
    for line in _project_requirements():
        requirement = Requirement(line)
        # A requirement of an extra holds only with that extra: without Jupyter a machine can still judge.
        for_judging = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        wanted[requirement.name] = (str(requirement.specifier), for_judging)
    locked = _locked_versions()
    return tuple(_package(name, *wanted.get(name, ("", True)), locked.get(name, "")) for name in PACKAGES)


def _package(name: str, wanted: str, for_judging: bool, locked: str) -> Package:
    return Package(name, _installed(name), wanted, locked, for_judging)


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _project_metadata(key: str) -> str:
    try:
        return importlib.metadata.metadata(PROJECT).get(key) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def _project_requirements() -> list[str]:
    try:
        return importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _locked_versions() -> dict[str, str]:
    """requirements.lock beside the package: there in a checkout and in the image, not in an installed wheel."""
    lock = Path(__file__).parents[2] / "requirements.lock"
    if not lock.is_file():
        return {}
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock.read_text(), flags=re.MULTILINE))


# -- sandbox and resources ----------------------------------------------------------------------------------


def look_at_sandbox() -> Sandbox:
    in_container = Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    path = shutil.which("bwrap")
    if path is None:
        return Sandbox(None, in_container=in_container)
    # Being installed isn't enough: hosts and containers may forbid the namespaces that it needs.
    _answer, error = ask([path, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"])
    return Sandbox(path, error, in_container)


def free_memory() -> int:
    """Bytes that can still be used here: the machine's, or less where a container's limit is nearer."""
    free = psutil.virtual_memory().available
    limit, used = (_number_in(Path("/sys/fs/cgroup", name)) for name in ("memory.max", "memory.current"))
    if limit is None or used is None:
        return free
    return min(free, max(0, limit - used))


def _number_in(path: Path) -> int | None:
    """The file's number. None if there is no such file, or if it says "max"."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def port_trouble(address: str, port: int) -> str:
    """Why a server can't listen there, in the system's words; "" if it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port that was closed a moment ago counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.strerror or str(error)
        return ""

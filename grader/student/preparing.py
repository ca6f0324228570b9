"""``ready``: is everything here that the labs need? What is missing is installed, as on Google Colab.

It runs before anything else, perhaps where nothing but this package is installed. So it imports only Python's own
library until all is there. Which versions are wanted stands in this package's own requirements.
"""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from grader.messages import _

PROJECT = "tilelang-labs"
NIGHTLY = "https://tile-ai.github.io/whl/nightly"
"""Where TileLang's authors put newer builds (their README): for machines that the pinned release doesn't fit."""

REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(?P<wanted>[^;\[]*)")

Install = Callable[..., bool]


class NotReady(RuntimeError):
    """Something is left to do before the labs can go on. Shown in a notebook without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True)
class Requirement:
    """A package, and the versions that will do: "==0.1.15", ">=2.11", ""."""

    name: str
    wanted: str

    def __str__(self) -> str:
        return self.name + self.wanted

    def satisfied_by(self, version: str | None) -> bool:
        """A build's own suffix doesn't matter: "2.13.0+cu130" is 2.13.0."""
        if version is None:
            return False
        clauses = [clause.strip() for clause in self.wanted.split(",") if clause.strip()]
        return all(_holds(clause, version.partition("+")[0]) for clause in clauses)


def _holds(clause: str, version: str) -> bool:
    match = re.fullmatch(r"(==|>=|<=|<|>|!=)\s*([0-9.]+)", clause)
    if match is None:
        raise ValueError(f"no comparison of versions: {clause!r}")
    mine, other = _numbers(version), _numbers(match[2])
    length = max(len(mine), len(other))
    mine, other = (numbers + (0,) * (length - len(numbers)) for numbers in (mine, other))
    return {
        "==": mine == other,
        "!=": mine != other,
        ">=": mine >= other,
        "<=": mine <= other,
        ">": mine > other,
        "<": mine < other,
    }[match[1]]


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: "2.13.0rc1" -> (2, 13, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def requirements() -> tuple[Requirement, ...]:
    """What judging needs, from this package's metadata; none where it is used without being installed."""
    try:
        lines = importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError:
        return ()
    plain = [line for line in lines if "extra ==" not in line]
    found = [REQUIREMENT.match(line) for line in plain]
    return tuple(Requirement(one["name"], one["wanted"].strip()) for one in found if one)


def version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def lacking(wanted: Iterable[Requirement]) -> list[Requirement]:
    return [one for one in wanted if not one.satisfied_by(version_of(one.name))]


def pip_install(*arguments: str) -> bool:
    """Whether pip could install that. Its own words are printed if not."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout[-2000:])
    return done.returncode == 0


def complete(wanted: Iterable[Requirement], install: Install = pip_install) -> list[str]:
    """Installs what is lacking. The names of packages that changed under a process that had imported them.

    Raises NotReady if something can't be installed.
    """
    missing = lacking(wanted)
    if not missing:
        return []
    print(_("Installing {names}. This takes a few minutes, once.").format(names=", ".join(map(str, missing))))
    before = {one.name: version_of(one.name) for one in wanted}
    tilelang = [one for one in missing if one.name == "tilelang"]
    others = [one for one in missing if one.name != "tilelang"]
    if others and not install(*map(str, others)):
        raise _not_installed(others)
    for one in tilelang:
        if install(str(one)):
            continue
        text = _("{release} does not install here; trying the newest nightly build instead.")
        print(text.format(release=one))
        if not install("--pre", one.name, "--find-links", NIGHTLY):
            raise _not_installed(tilelang)
        text = _("TileLang {version} is installed. The labs were tested with {release}.")
        print(text.format(version=version_of(one.name), release=one))
    return [name for name, version in before.items() if version_of(name) != version and name in sys.modules]


def _not_installed(names: list[Requirement]) -> NotReady:
    text = _("{names} could not be installed: pip's message stands above. Is there a network? Then run it again.")
    return NotReady(text.format(names=", ".join(map(str, names))))


def make_ready(install: Install = pip_install) -> None:
    """Installs what is missing, and says who judges here. Raises NotReady if something is left to do."""
    changed = complete(requirements(), install)
    if changed:
        raise NotReady(
            _(
                "{names} changed while this session was using the old version. Restart it (in Colab: Runtime > "
                "Restart session; in Jupyter: Kernel > Restart Kernel), and run the notebook from its first cell."
            ).format(names=", ".join(changed))
        )
    print(
        _("Ready: TileLang {tilelang}, torch {torch}.").format(
            tilelang=version_of("tilelang"), torch=version_of("torch")
        )
    )
    from grader.doctor import device

    judge = device()
    if judge == "simulator":
        print(_("The simulator judges here. Speed waits for a GPU; 'tilelab doctor' says what is missing."))
    else:
        print(_("The {card} judges here.").format(card=judge))

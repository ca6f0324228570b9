"""The labs' first cells: they install what is missing, and do next to nothing where all is there."""

import os
import shutil
import subprocess
import sys
import tomllib

import jupytext
import pytest
from cells import ROOT

from grader import catalog
from grader.student import preparing as ready
from grader.student.preparing import NIGHTLY, NotReady, Requirement

PINNED = Requirement("tilelang", "==0.1.15")
TORCH = Requirement("torch", ">=2.11")


class Machine:
    """What is installed on it, and a pip that knows some packages."""

    def __init__(self, monkeypatch, installed: dict[str, str], offers: dict[str, str]) -> None:
        self.installed, self.offers = dict(installed), offers
        self.calls: list[tuple[str, ...]] = []
        monkeypatch.setattr(ready, "version_of", self.installed.get)

    def pip(self, *arguments: str) -> bool:
        self.calls.append(arguments)
        found = {text: version for text, version in self.offers.items() if text in arguments}
        self.installed |= {text.partition("=")[0].partition(">")[0]: version for text, version in found.items()}
        return bool(found)


def test_where_all_is_there_nothing_is_installed(monkeypatch):
    machine = Machine(monkeypatch, {"tilelang": "0.1.15", "torch": "2.13.0+cu130"}, {})
    assert ready.complete([PINNED, TORCH], machine.pip) == []
    assert machine.calls == []


def test_what_is_missing_is_installed_in_its_version(monkeypatch):
    machine = Machine(
        monkeypatch, {"torch": "2.9.0+cu126"}, {"tilelang==0.1.15": "0.1.15", "torch>=2.11": "2.13.0"}
    )
    for name in ("tilelang", "torch"):  # whatever other tests imported
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert ready.complete([PINNED, TORCH], machine.pip) == []
    assert machine.calls == [("torch>=2.11",), ("tilelang==0.1.15",)]


def test_what_was_imported_before_asks_for_a_restart(monkeypatch):
    machine = Machine(monkeypatch, {"tilelang": "0.1.12"}, {"tilelang==0.1.15": "0.1.15"})
    monkeypatch.setitem(sys.modules, "tilelang", None)
    monkeypatch.setattr(ready, "requirements", lambda: (PINNED,))
    with pytest.raises(NotReady, match=r"tilelang changed .* Restart session"):
        ready.make_ready(machine.pip)


def test_without_the_release_the_nightly_build_is_taken(monkeypatch, capsys):
    machine = Machine(monkeypatch, {}, {"tilelang": "0.1.16.dev3"})
    ready.complete([PINNED], machine.pip)
    assert machine.calls[-1] == ("--pre", "tilelang", "--find-links", NIGHTLY)
    assert (
        "TileLang 0.1.16.dev3 is installed. The labs were tested with tilelang==0.1.15." in capsys.readouterr().out
    )
    # A second run tries again, gets nothing newer, and asks for no restart.
    monkeypatch.setitem(sys.modules, "tilelang", None)
    assert ready.complete([PINNED], machine.pip) == []


def test_without_a_network_it_says_so(monkeypatch):
    machine = Machine(monkeypatch, {}, {})
    with pytest.raises(NotReady, match=r"tilelang==0\.1\.15 could not be installed"):
        ready.complete([PINNED], machine.pip)
    assert "".join(NotReady("words")._render_traceback_()) == "words"


@pytest.mark.parametrize(
    ("wanted", "version", "holds"),
    [
        ("==0.1.15", "0.1.15", True),
        ("==0.1.15", "0.1.15+cuda.gitabc", True),
        ("==0.1.15", "0.1.9", False),
        (">=2.11", "2.9.1+cu128", False),
        (">=2.11", "2.11", True),
        (">=2.10", "3", True),
        (">=1,<2", "2.0", False),
        ("", "0", True),
        ("", None, False),
    ],
)
def test_versions_are_compared_as_numbers(wanted, version, holds):
    assert Requirement("package", wanted).satisfied_by(version) is holds


def test_what_is_wanted_is_what_the_project_wants(monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [f'{line}; extra == "lab"' for line in project["optional-dependencies"]["lab"]]
    monkeypatch.setattr(ready.importlib.metadata, "requires", lambda _name: [*project["dependencies"], *extras])
    assert [str(one) for one in ready.requirements()] == project["dependencies"]
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = next(line for line in project["dependencies"] if line.startswith("tilelang"))
    assert pinned in lock


def test_it_needs_no_package_before_all_is_there():
    """As on Google Colab, where this package may come first: an interpreter without any other finds ``ready``."""
    code = "from grader import ready; import grader.student.preparing as p; p.requirements(); print('ready')"
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "ready\n"


def first_code_cells(lab: str) -> list[str]:
    cells = jupytext.read(ROOT / "solutions" / f"{lab}.py", fmt="py:percent").cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


@pytest.mark.parametrize("lab", [lab.id for lab in catalog.LABS])
def test_every_lab_begins_with_the_same_cell(lab):
    first, second, *_others = first_code_cells(lab)
    assert first == first_code_cells("lab00_environment")[0]
    assert "import tilelang" in second


def test_the_first_cell_takes_the_package_from_the_uploaded_file(tmp_path):
    """With a pip and a package that only note that they were asked."""
    (tmp_path / "pip.py").write_text(
        "import pathlib, sys\n"
        "pathlib.Path('asked').write_text(' '.join(sys.argv[1:]))\n"
        "pathlib.Path('grader.py').write_text('def ready():\\n    print(\"ready was called\")\\n')\n"
    )
    shutil.copy(__file__, tmp_path / "tilelang_labs-0.1.0-py3-none-any.whl")
    (tmp_path / "cell.py").write_text(first_code_cells("lab00_environment")[0])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import sys; sys.modules.pop('grader', None); exec(open('cell.py').read())"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment | {"PYTHONPATH": "."}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "ready was called\n", done.stderr
    asked = (tmp_path / "asked").read_text().split()
    assert asked[0] == "install"
    assert asked[-1] == "tilelang-labs"
    assert {"--no-index", "--no-deps"} <= set(asked)

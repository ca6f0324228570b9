"""Who may import whom: the table of the design, kept."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "grader"

#: Package -> what of ``grader`` it may import at any depth of a function. ``messages`` is open to all.
ALLOWED = {
    "verdict": set(),
    "messages": set(),
    "catalog": set(),
    "ir": set(),
    "capture": {"catalog", "ir", "verdict"},
    "admit": {"ir", "catalog"},
    "simulator": {"ir", "verdict"},
    "gpu": {"ir", "verdict"},
    "report": {"verdict"},
    "judge": {"ir", "catalog", "admit", "simulator", "gpu", "verdict", "capture"},
    "autograders": {"capture", "judge", "gpu", "catalog", "verdict", "report"},
    "classroom": {"autograders", "catalog", "verdict", "report", "capture", "gpu"},
    "student": {"autograders", "judge", "capture", "catalog", "verdict", "report", "doctor"},
    "doctor": {"gpu", "verdict", "capture"},
    "cli": None,  # wiring: all
}

#: Packages that must never bring TVM into a process, and those that must not need Jupyter.
NO_TVM = ("verdict", "messages", "catalog", "ir", "admit", "simulator", "report", "autograders", "judge")
NO_JUPYTER = (*NO_TVM, "gpu", "capture")
JUPYTER = {
    "nbgrader",
    "jupyter_client",
    "jupyterlab",
    "notebook",
    "nbclient",
    "nbconvert",
    "jupytext",
    "ipykernel",
}


def imports(path: Path) -> set[str]:
    """The dotted names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def modules(package: str) -> list[Path]:
    return sorted((PACKAGE / package).rglob("*.py"))


def test_every_package_has_its_row():
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert packages == set(ALLOWED)


@pytest.mark.parametrize("package", [name for name, allowed in ALLOWED.items() if allowed is not None])
def test_imports_keep_to_the_table(package):
    for module in modules(package):
        used = {name.split(".")[1] for name in imports(module) if name.startswith("grader.")}
        used &= set(ALLOWED)
        assert used <= ALLOWED[package] | {package, "messages"}, module


@pytest.mark.parametrize("package", NO_TVM)
def test_no_tvm_where_students_ir_is_read(package):
    for module in modules(package):
        assert not {name for name in imports(module) if name.split(".")[0] in {"tilelang", "tvm"}}, module


@pytest.mark.parametrize("package", NO_JUPYTER)
def test_judging_needs_no_jupyter(package):
    for module in modules(package):
        assert not {name for name in imports(module) if name.split(".")[0] in JUPYTER}, module


def test_only_the_sandboxed_modules_touch_student_code():
    """``exec``-like calls exist in no module but the child that the sandbox starts."""
    for module in PACKAGE.rglob("*.py"):
        calls = {
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in ast.walk(ast.parse(module.read_text()))
            if isinstance(node, ast.Call)
        }
        if calls & {"exec", "eval", "run_cell"}:
            assert module.relative_to(PACKAGE).as_posix() == "capture/child.py"

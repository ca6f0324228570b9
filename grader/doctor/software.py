"""Python, the packages, the sandbox."""

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from grader.doctor.machine import Machine, Package
from grader.doctor.report import Finding, Status
from grader.messages import _


def python(machine: Machine) -> Finding:
    if not machine.requires_python:
        message = _(
            "The project itself is not installed here, so no versions could be compared: run 'make setup' "
            "in its folder."
        )
        return Finding("python", Status.PROBLEM, message)
    if machine.python not in SpecifierSet(machine.requires_python):
        message = _(
            "This is Python {version}, and the labs need {wanted}: name a fitting one with 'make setup "
            "PYTHON=python3.12'."
        ).format(version=machine.python, wanted=machine.requires_python)
        return Finding("python", Status.PROBLEM, message)
    return Finding("python", Status.OK, _("Python {version}.").format(version=machine.python))


def packages(machine: Machine) -> tuple[Finding, ...]:
    """One finding a package."""
    install = f"{machine.executable} -m pip install -r requirements.lock"
    return tuple(_package(package, install) for package in machine.packages)


def _package(package: Package, install: str) -> Finding:
    name, installed = package.name, package.installed
    if installed is None and package.for_judging:
        message = _("{name} is not installed, and nothing can be judged without it: run '{install}'.")
        return Finding(name, Status.PROBLEM, message.format(name=name, install=install))
    if installed is None:
        message = _(
            "{name} is not installed: this machine can judge kernels, but for the notebooks run '{install}' first."
        )
        return Finding(name, Status.NOTE, message.format(name=name, install=install))
    if Version(installed) not in SpecifierSet(package.wanted, prereleases=True):
        message = _("{name} {installed} is installed, and the labs need {wanted}: run '{install}'.")
        text = message.format(name=name, installed=installed, wanted=package.wanted, install=install)
        return Finding(name, Status.PROBLEM, text)
    # "2.13.0+cpu" and "2.13.0+cu130" are builds of the one locked version.
    if package.locked and Version(installed).public != Version(package.locked).public:
        message = _(
            "{name} {installed} is installed; the labs were tested with {locked}. To have that one, run "
            "'{install}'."
        )
        text = message.format(name=name, installed=installed, locked=package.locked, install=install)
        return Finding(name, Status.NOTE, text)
    return Finding(name, Status.OK, f"{name} {installed}.")


def sandbox(machine: Machine) -> Finding:
    """A note at most: students run their own code, and the capture says itself when it runs unprotected."""
    found = machine.sandbox
    if found.path and not found.error:
        return Finding("sandbox", Status.OK, _("bubblewrap runs submitted cells in a sandbox."))
    if found.in_container:
        message = _(
            "This is a container without a sandbox of its own: it keeps submitted cells from the rest of the "
            "machine, but not from what lies in it. Grade other people's notebooks in one that holds nothing else."
        )
        return Finding("sandbox", Status.NOTE, message)
    if found.path:
        message = _(
            "bubblewrap is installed but can't make a sandbox here ({error}), so submitted cells run with "
            "time and memory limits only. Allow unprivileged user namespaces before you grade other "
            "people's notebooks."
        )
        return Finding("sandbox", Status.NOTE, message.format(error=found.error))
    message = _(
        "bubblewrap is not installed, so submitted cells run with time and memory limits only. Before you "
        "grade other people's notebooks, install it (Debian, Ubuntu: 'sudo apt-get install bubblewrap')."
    )
    return Finding("sandbox", Status.NOTE, message)

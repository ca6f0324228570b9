"""Is this machine fit for the labs? ``tilelab doctor`` says so, before a student's first kernel does.

``machine.py`` looks (facts, no opinions), ``software.py``, ``gpu.py``, ``targets.py`` and ``resources.py`` judge
(pure functions of those facts), ``report.py`` holds what they found. To add a check: write a function from
``Machine`` to ``Finding`` (None: it doesn't apply here) and add it to ``CHECKS``.

Nothing here imports torch or tilelang: a broken installation of either must not keep the doctor from saying so.
"""

from collections.abc import Callable

from grader.doctor import gpu, resources, software, targets
from grader.doctor.machine import Machine, inspect
from grader.doctor.report import Finding, Report, Status, render, to_json
from grader.gpu import hardware

__all__ = ["Finding", "Machine", "Report", "Status", "device", "examine", "inspect", "render", "run", "to_json"]

CHECKS: tuple[Callable[[Machine], Finding | None], ...] = (
    gpu.driver,
    gpu.compiler,
    targets.targets,
    software.sandbox,
    resources.memory,
    resources.disk,
    resources.port,
)


def examine(machine: Machine) -> Report:
    """What these facts mean for somebody who wants to work on the labs."""
    checked = [found for check in CHECKS if (found := check(machine)) is not None]
    findings = (software.python(machine), *software.packages(machine), *checked)
    return Report(device=gpu.device(machine.gpu), findings=findings)


def run() -> Report:
    """Look at this machine and judge it."""
    return examine(inspect())


def device() -> str:
    """What will judge kernels on this machine: the card's name, or "simulator"."""
    return gpu.device(hardware.look())

"""Memory, disk and the port."""

from grader.doctor.machine import LABS_PORT, Machine
from grader.doctor.report import Finding, Status
from grader.messages import _

GIB = 2**30

MEMORY_NEEDED, MEMORY_GOOD = 2 * GIB, 4 * GIB
"""A notebook with torch and tilelang takes about 1 GiB, and a check runs beside it in its own processes."""

DISK_NEEDED, DISK_GOOD = GIB // 2, 2 * GIB
"""Notebooks are small; compiled kernels and drawn figures are kept too."""


def memory(machine: Machine) -> Finding:
    free = f"{machine.memory_free / GIB:.1f}"
    if machine.memory_free < MEMORY_NEEDED:
        message = _(
            "Only {free} GiB of memory are free, and a check needs {needed}: close other programs, or give "
            "the container more memory."
        )
        return Finding("memory", Status.PROBLEM, message.format(free=free, needed=MEMORY_NEEDED // GIB))
    if machine.memory_free < MEMORY_GOOD:
        message = _(
            "{free} GiB of memory are free: enough for one notebook at a time. Shut down kernels you don't use."
        )
        return Finding("memory", Status.NOTE, message.format(free=free))
    return Finding("memory", Status.OK, _("{free} GiB of memory are free.").format(free=free))


def disk(machine: Machine) -> Finding:
    free = f"{machine.disk_free / GIB:.1f}"
    if machine.disk_free < DISK_NEEDED:
        message = _(
            "Only {free} GiB of disk are free in {folder}: delete something there, or notebooks can't be saved."
        )
        return Finding("disk", Status.PROBLEM, message.format(free=free, folder=machine.folder))
    if machine.disk_free < DISK_GOOD:
        message = _("{free} GiB of disk are free in {folder}: enough to work, but make room before it fills up.")
        return Finding("disk", Status.NOTE, message.format(free=free, folder=machine.folder))
    message = _("{free} GiB of disk are free in {folder}.")
    return Finding("disk", Status.OK, message.format(free=free, folder=machine.folder))


def port(machine: Machine) -> Finding:
    if machine.port_free:
        return Finding("port", Status.OK, _("Port {port} is free for JupyterLab.").format(port=LABS_PORT))
    message = _(
        "Port {port} is taken, perhaps by a JupyterLab that already runs: 'tilelab lab' will take the next "
        "free one."
    )
    return Finding("port", Status.NOTE, message.format(port=LABS_PORT))

"""Kernels that are judged at schedules which the student names.

A lab asks for the schedules as a value: a list of records, or one record, whose names are arguments of the
kernel's function. ``at_schedules`` puts them into the kernel's shapes, so that whatever handles a shape handles a
shape at a schedule: it is traced with these arguments, admitted, simulated, compiled and timed like any other.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grader.catalog import values
from grader.catalog.manifest import Group, Kernel, Lab, Shape

Schedule = dict[str, int]


def at_schedules(lab: Lab, given: Mapping[str, object]) -> Lab:
    """``lab`` with its kernels' shapes at the schedules among the values ``given`` (plain data, by name).

    A shape that isn't timed is there once for each schedule that is tried, a timed one at the one that is timed. A
    value that is missing or not of its kind brings no shapes: the judge says so when it is asked for the kernel.
    """
    return replace(lab, kernels=tuple(_scheduled(lab, kernel, given) for kernel in lab.kernels))


def at_defaults(kernel: Kernel) -> Kernel:
    """The kernel as it is without the student's schedules: with the defaults of its function."""
    return replace(kernel, schedules=None)


def _scheduled(lab: Lab, kernel: Kernel, given: Mapping[str, object]) -> Kernel:
    if kernel.schedules is None:
        return kernel
    shapes: list[Shape] = []
    for shape in kernel.shapes:
        timed = shape.group is Group.TIMED
        found = _read(lab, kernel.schedules.timed if timed else kernel.schedules.tried, given)
        for number, schedule in enumerate(found):
            name = shape.name if timed else f"{shape.name}, schedule {number}"
            shapes.append(replace(shape, name=name, schedule=schedule))
    return replace(kernel, shapes=tuple(shapes))


def _read(lab: Lab, name: str, given: Mapping[str, object]) -> list[Schedule]:
    try:
        found: Any = values.read(given.get(name), lab.value(name).kind, name)
    except values.WrongValue:
        return []
    return found if isinstance(found, list) else [found]

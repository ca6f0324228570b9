"""The public manifest of labs: their order, what each hands in, and the shapes that it is judged at.

Nothing here is secret: students see these shapes, and tracing their kernels tells their code which are asked
for. To add a lab, add a ``Lab`` to ``labs.py``.
"""

from grader.catalog.labs import LABS
from grader.catalog.manifest import Group, Kernel, Lab, Parameter, Role, Scheduled, Shape
from grader.catalog.schedules import at_defaults, at_schedules
from grader.catalog.values import Value
from grader.messages import _

__all__ = [
    "LABS",
    "Group",
    "Kernel",
    "Lab",
    "Parameter",
    "Role",
    "Scheduled",
    "Shape",
    "Value",
    "at_defaults",
    "at_schedules",
    "find",
    "find_kernel",
    "find_value",
]


def find(lab_id: str) -> Lab:
    """The lab of that id. KeyError, with the ids that exist, if there is none."""
    for lab in LABS:
        if lab.id == lab_id:
            return lab
    known = ", ".join(lab.id for lab in LABS)
    raise KeyError(_("There is no lab '{lab}'. The labs are: {known}.").format(lab=lab_id, known=known))


def find_kernel(name: str) -> tuple[Lab, Kernel]:
    """The lab that hands in a kernel of that name. KeyError, with the names that exist, if none does."""
    for lab in LABS:
        for kernel in lab.kernels:
            if kernel.name == name:
                return lab, kernel
    known = ", ".join(kernel.name for lab in LABS for kernel in lab.kernels)
    raise KeyError(
        _("No lab asks for a kernel '{name}'. The kernels are: {known}.").format(name=name, known=known)
    )


def find_value(name: str) -> tuple[Lab, Value]:
    """The lab that asks for a value of that name. KeyError, with the names that exist, if none does."""
    for lab in LABS:
        for value in lab.values:
            if value.name == name:
                return lab, value
    known = ", ".join(value.name for lab in LABS for value in lab.values)
    raise KeyError(_("No lab asks for a value '{name}'. The values are: {known}.").format(name=name, known=known))

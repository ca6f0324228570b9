"""The types of the manifest."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from grader.catalog.values import Value


class Role(StrEnum):
    """What a kernel may do with a parameter: ``IN`` is only read, ``OUT`` is only written."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True)
class Parameter:
    """A tensor parameter, by position. ``shape`` mixes names of sizes with numbers."""

    name: str
    dtype: str
    shape: tuple[str | int, ...]
    role: Role = Role.IN

    def sizes(self, shape: "Shape") -> tuple[int, ...]:
        """The parameter's extents at ``shape``."""
        return tuple(shape.sizes[n] if isinstance(n, str) else n for n in self.shape)


class Group(StrEnum):
    """What a shape tries: tiles that fit, tails that don't, or speed (timed shapes run on a GPU only)."""

    TILES = "tiles"
    TAILS = "tails"
    TIMED = "timed"


@dataclass(frozen=True)
class Shape:
    """A named set of sizes, e.g. ``Shape("odd", {"N": 4097}, Group.TAILS)``.

    ``hidden`` shapes belong to the official run; students are never told their sizes. ``schedule`` are further
    arguments of the kernel's function, which the student chose (see ``schedules``).
    """

    name: str
    sizes: dict[str, int]
    group: Group
    hidden: bool = False
    schedule: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in (self.sizes | self.schedule).items())


@dataclass(frozen=True)
class Scheduled:
    """Which of the lab's values hold the schedules that a kernel is judged at.

    ``tried`` names a list of schedules: the kernel must be right at each. ``timed`` names the one that is timed.
    """

    tried: str
    timed: str


@dataclass(frozen=True)
class Kernel:
    """A kernel that a lab hands in.

    ``arguments`` are the names that the lazy factory is called with, in order; the eager style is called with
    one tensor for each parameter of role IN. ``schedules`` says at which schedules of the student's it is judged
    (None: at the function's own defaults).
    """

    name: str
    arguments: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    shapes: tuple[Shape, ...]
    schedules: Scheduled | None = None

    def group(self, group: Group) -> tuple[Shape, ...]:
        return tuple(shape for shape in self.shapes if shape.group is group)

    def shape(self, name: str) -> Shape:
        for shape in self.shapes:
            if shape.name == name:
                return shape
        raise KeyError(f"kernel {self.name} has no shape {name!r}")


@dataclass(frozen=True)
class Lab:
    """A lab, which asks for ``kernels`` and ``values``. ``version`` is raised whenever what is judged changes."""

    id: str
    title: str
    version: int
    kernels: tuple[Kernel, ...]
    values: tuple[Value, ...] = ()

    @property
    def notebook(self) -> str:
        """The notebook's file name."""
        return f"{self.id}.ipynb"

    def with_shapes(self, further: dict[str, tuple[Shape, ...]]) -> "Lab":
        """This lab with further shapes, by kernel name."""
        kernels = tuple(
            replace(kernel, shapes=kernel.shapes + further.get(kernel.name, ())) for kernel in self.kernels
        )
        return replace(self, kernels=kernels)

    def kernel(self, name: str) -> Kernel:
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"lab {self.id} has no kernel {name!r}")

    def value(self, name: str) -> Value:
        for value in self.values:
            if value.name == name:
                return value
        raise KeyError(f"lab {self.id} has no value {name!r}")

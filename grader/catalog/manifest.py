"""The types of the manifest."""

from dataclasses import dataclass, replace
from enum import StrEnum


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

    ``hidden`` shapes belong to the official run; students are never told their sizes.
    """

    name: str
    sizes: dict[str, int]
    group: Group
    hidden: bool = False

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.sizes.items())


@dataclass(frozen=True)
class Kernel:
    """A kernel that a lab hands in.

    ``arguments`` are the names that the lazy factory is called with, in order; the eager style is called with
    one tensor for each parameter of role IN.
    """

    name: str
    arguments: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    shapes: tuple[Shape, ...]

    def group(self, group: Group) -> tuple[Shape, ...]:
        return tuple(shape for shape in self.shapes if shape.group is group)

    def shape(self, name: str) -> Shape:
        for shape in self.shapes:
            if shape.name == name:
                return shape
        raise KeyError(f"kernel {self.name} has no shape {name!r}")


@dataclass(frozen=True)
class Lab:
    """A lab. ``version`` is raised whenever what is judged changes."""

    id: str
    title: str
    version: int
    kernels: tuple[Kernel, ...]

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

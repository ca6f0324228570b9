"""The types of the manifest."""

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Shape:
    """A named set of sizes, e.g. ``Shape("tail", {"N": 1000})``. ``timed`` shapes are only run on a GPU."""

    name: str
    sizes: dict[str, int]
    timed: bool = False

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

    def kernel(self, name: str) -> Kernel:
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"lab {self.id} has no kernel {name!r}")

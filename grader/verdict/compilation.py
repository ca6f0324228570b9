"""What compiling a kernel for a named architecture showed, as plain data. No GPU is needed for any of it."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from grader.verdict import Finding


@dataclass(frozen=True)
class GlobalAccess:
    """How a thread reads or writes a tensor: ``bits`` at a time, at ``places`` in the source."""

    tensor: str
    writes: bool
    bits: int
    places: int


@dataclass(frozen=True)
class MachineCode:
    """nvcc's figures: ``registers`` and ``spills`` (bytes stored and loaded) a thread, static ``shared`` bytes."""

    registers: int
    spills: int
    shared: int
    seconds: float
    landmarks: dict[str, int]


@dataclass(frozen=True)
class Compilation:
    """One kernel at one shape for one architecture.

    ``compiles`` is False if TileLang or nvcc refuses it, or if no card of that kind could launch it; ``findings``
    say why. ``machine_code`` is None where nvcc was not asked or is missing; ``not_assessed`` then says so.
    ``shared`` is all shared memory a block that is known of, in bytes (static too, with nvcc); ``blocks`` how many
    blocks a multiprocessor holds at once, limited by ``limits``; ``occupancy`` their share of its threads.
    """

    kernel: str
    shape: str
    arch: str
    compiles: bool
    seconds: float
    threads: int = 0
    shared: int = 0
    shared_limit: int = 0
    landmarks: dict[str, int] | None = None
    accesses: tuple[GlobalAccess, ...] = ()
    blocks: int | None = None
    limits: tuple[str, ...] = ()
    occupancy: float | None = None
    machine_code: MachineCode | None = None
    not_assessed: str = ""
    findings: tuple[Finding, ...] = ()
    source: str = ""


_compilations = TypeAdapter(tuple[Compilation, ...])


def to_json(compilations: tuple[Compilation, ...]) -> str:
    return _compilations.dump_json(compilations, indent=2).decode()

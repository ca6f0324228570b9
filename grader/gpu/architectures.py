"""The architectures that a kernel can be compiled for with no GPU, and what each gives to a block.

Figures: CUDA C++ Programming Guide, "Compute Capabilities", table "Technical Specifications per Compute
Capability". From compute capability 8.0 on, CUDA keeps 1 KiB of shared memory of every resident block for itself.
"""

from dataclasses import dataclass

WARP = 32  # threads
REGISTERS = 65_536  # a multiprocessor, and the most that a block may have
REGISTER_UNIT = 256  # registers are given to a warp in this unit
MAX_THREADS = 1_024  # a block
MAX_GRID = (2**31 - 1, 65_535, 65_535)


@dataclass(frozen=True)
class Architecture:
    """``name`` as compilers spell it. Of a multiprocessor: ``shared`` bytes, most ``threads`` and ``blocks``.

    ``reserved`` bytes of the shared memory are CUDA's own, for each block.
    """

    name: str
    family: str
    shared: int
    reserved: int
    threads: int
    blocks: int

    @property
    def shared_a_block(self) -> int:
        """The most shared memory that one block may have, in bytes."""
        return self.shared - self.reserved


ARCHITECTURES = {
    arch.name: arch
    for arch in (
        Architecture("sm_75", "Turing", 64 * 1024, 0, 1024, 16),
        Architecture("sm_80", "Ampere (A100)", 164 * 1024, 1024, 2048, 32),
        Architecture("sm_86", "Ampere (RTX 30)", 100 * 1024, 1024, 1536, 16),
        Architecture("sm_89", "Ada (RTX 40)", 100 * 1024, 1024, 1536, 24),
        Architecture("sm_90a", "Hopper", 228 * 1024, 1024, 2048, 32),
        Architecture("sm_100a", "Blackwell (B200)", 228 * 1024, 1024, 2048, 32),
        Architecture("sm_120a", "Blackwell (RTX 50)", 100 * 1024, 1024, 1536, 24),
    )
}


def architecture(capability: tuple[int, int]) -> str:
    """A card's, as compilers spell it, with the instructions that only it has ("a") from Hopper on."""
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel a multiprocessor holds at once, what limits it, and their share of its threads.

    ``limits`` are the scarce ones of "threads", "blocks", "shared memory" and "registers".
    """

    blocks: int
    limits: tuple[str, ...]
    share: float


def occupancy(arch: Architecture, threads: int, shared: int, registers: int | None) -> Occupancy:
    """Of blocks of ``threads`` threads, ``shared`` bytes, and ``registers`` a thread (None: not known, no limit).

    Registers are given to whole warps, in units of 256 (the guide's occupancy calculator).
    """
    warps = -(-threads // WARP)
    possible = {"threads": arch.threads // (warps * WARP), "blocks": arch.blocks}
    if shared:
        possible["shared memory"] = arch.shared // (shared + arch.reserved)
    if registers:
        a_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        possible["registers"] = REGISTERS // a_warp // warps
    blocks = min(possible.values())
    limits = tuple(name for name, count in possible.items() if count == blocks)
    return Occupancy(blocks, limits, blocks * warps * WARP / arch.threads)


@dataclass(frozen=True)
class Misfit:
    """A limit of the architecture that a kernel exceeds: ``kind`` is "shared memory", "threads" or "grid"."""

    kind: str
    needs: int
    has: int


def misfits(arch: Architecture, threads: int, shared: int, grid: tuple[int | None, ...]) -> list[Misfit]:
    """What keeps a kernel that compiles from being launched on ``arch``; ``shared`` in bytes a block."""
    found = []
    if shared > arch.shared_a_block:
        found.append(Misfit("shared memory", shared, arch.shared_a_block))
    if threads > MAX_THREADS:
        found.append(Misfit("threads", threads, MAX_THREADS))
    for extent, limit in zip(grid, MAX_GRID, strict=False):
        if extent is not None and extent > limit:
            found.append(Misfit("grid", extent, limit))
    return found

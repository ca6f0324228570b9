"""What a case of the corpus is, and how its capture is made."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache

import tilelang.language as T
from kernels import json_of

from grader import catalog
from grader.capture.format import Capture, Trace
from grader.catalog import Group, Lab, Shape

ADD, MATMUL = "lab01_vector_add", "lab02_matmul"


class Stop(Enum):
    """Where an attack must be stopped, without a GPU."""

    ADMISSION = "admission"  # it is refused as it is read
    TILES = "tiles"  # its output is wrong where tiles fit
    TAILS = "tails"  # its output is wrong where they don't
    CLEAN = "clean"  # it touches memory that it may not touch
    SAMPLE = "sample"  # a sample of its blocks at the timed shape does
    CARD = "card"  # only a card can tell: at small shapes it is an honest kernel


@dataclass(frozen=True)
class Attack:
    """``build(**sizes)`` gives the kernel's function; ``words``, a regular expression, must be in a finding.

    ``on_card``: what test_fast must say there; "" if it doesn't get that far, or is fast by honest work.
    """

    name: str
    build: Callable[..., object]
    stop: Stop
    words: str
    lab: str = ADD
    on_card: str = ""
    options: dict[str, object] = field(default_factory=dict)

    def capture(self, lab: Lab | None = None, *groups: Group) -> Capture:
        """The kernel at the lab's shapes, or at those of some groups, traced here."""
        lab = lab or catalog.find(self.lab)
        (kernel,) = lab.kernels
        shapes = [shape for shape in kernel.shapes if shape.group in (groups or Group)]
        traces = tuple(Trace(kernel.name, shape.name, ir=self.ir(shape), options=self.options) for shape in shapes)
        return Capture(lab.id, lab.version, traces, sandbox="test")

    def ir(self, shape: Shape) -> str:
        return _ir(self, tuple(shape.sizes.items()))

    def __hash__(self) -> int:
        return hash((self.lab, self.name))


@cache
def _ir(attack: Attack, sizes: tuple[tuple[str, int], ...]) -> str:
    return json_of(attack.build(**dict(sizes)))


# Frames that most attacks share


def add(inside, *, blocks=lambda n: -(-n // 1024), threads=256):
    """A vector add whose blocks run ``inside(A, B, C, bx, N)``, a T.macro."""

    def build(N):
        @T.prim_func
        def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
            with T.Kernel(blocks(N), threads=threads) as bx:
                inside(A, B, C, bx, N)

        return main

    return build


@T.macro
def honest_add(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


def matmul(*, tile="float16", accumulator="float32", clear=True, share=1, scale=1, rows=1):
    """A product of tiles of 128. ``share`` and ``rows``: only one of so many steps, or rows of blocks, is done."""

    def build(M, N, K):
        steps, down = max(-(-K // 32) // share, 1), max(-(-M // 128) // rows, 1)

        @T.prim_func
        def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
            with T.Kernel(T.ceildiv(N, 128), down, threads=128) as (bx, by):
                a = T.alloc_shared((128, 32), tile)
                b = T.alloc_shared((32, 128), tile)
                c = T.alloc_fragment((128, 128), accumulator)
                if clear:
                    T.clear(c)
                for k in T.Pipelined(steps, num_stages=3):
                    T.copy(A[by * 128, k * 32], a)
                    T.copy(B[k * 32, bx * 128], b)
                    T.gemm(a, b, c)
                if scale != 1:
                    for i, j in T.Parallel(128, 128):
                        c[i, j] = c[i, j] * scale
                T.copy(c, C[by * 128, bx * 128])

        return main

    return build


def at_the_timed_shape(other, honest):
    """``other`` at the lab's timed shape, ``honest`` at all others: so a factory can that looks at its sizes."""

    def build(**sizes):
        (kernel,) = next(lab.kernels for lab in catalog.LABS if set(lab.kernels[0].arguments) == set(sizes))
        (timed,) = kernel.group(Group.TIMED)
        return (other if sizes == timed.sizes else honest)(**sizes)

    return build

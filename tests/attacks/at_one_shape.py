"""Honest kernels at all shapes but the timed one: a factory sees the sizes that it is called with."""

import tilelang.language as T

from attacks.attack import MATMUL, Attack, Stop, add, at_the_timed_shape, honest_add, matmul
from attacks.on_memory import all_write_one, neighbours_cleared, read_beyond, tile_remembered
from attacks.on_output import half, only_what_is_not_done_yet, zeros


def timed(inside, **frame):
    return at_the_timed_shape(add(inside, **frame), add(honest_add))


def timed_product(**changes):
    return at_the_timed_shape(matmul(**changes), matmul())


@T.macro
def last_element_missed(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N - 1:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


@T.macro
def right_for_usual_inputs(A, B, C, bx, N):
    """The family that is timed has no infinities and nothing large."""
    for i in T.Parallel(1024):
        C[bx * 1024 + i] = T.if_then_else(
            T.abs(A[bx * 1024 + i]) < 8.0, A[bx * 1024 + i] + B[bx * 1024 + i], A[bx * 1024 + i]
        )


@T.macro
def block_beyond(A, B, C, bx, N):
    """One block too many, whose elements don't exist."""
    for i in T.Parallel(1024):
        C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


def other_parameters(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            for i in T.Parallel(1024):
                C[bx * 1024 + i] = A[bx * 1024 + i]

    return main


_NEVER, _WRONG = "never written", "are wrong"
_NOWHERE, _RACE = "which does not exist", "by several threads or blocks"

ATTACKS = (
    Attack("there: half is written", timed(half), Stop.CARD, "", on_card=_NEVER),
    Attack("there: the last element is missed", timed(last_element_missed), Stop.CARD, "", on_card=_NEVER),
    Attack("there: zeros", timed(zeros), Stop.CARD, "", on_card="0 everywhere"),
    Attack("there: right for usual inputs", timed(right_for_usual_inputs), Stop.CARD, "", on_card=_WRONG),
    Attack("there: half of K", timed_product(share=2), Stop.CARD, "", MATMUL, _WRONG),
    Attack("there: a half-precision sum", timed_product(accumulator="float16"), Stop.CARD, "", MATMUL, _WRONG),
    Attack("there: tiles of eight bits", timed_product(tile="float8_e4m3fn"), Stop.CARD, "", MATMUL, _WRONG),
    Attack("there: half of the rows", timed_product(rows=2), Stop.CARD, "", MATMUL, _NEVER),
    Attack(
        "there: an accumulator remembered",
        timed_product(clear=False),
        Stop.SAMPLE,
        "before anything was written",
        MATMUL,
    ),
    Attack("there: a tile remembered", timed(tile_remembered), Stop.SAMPLE, "before anything was written"),
    Attack("there: read beyond an input", timed(read_beyond), Stop.SAMPLE, _NOWHERE),
    Attack(
        "there: a block beyond the end", timed(block_beyond, blocks=lambda n: n // 1024 + 1), Stop.SAMPLE, _NOWHERE
    ),
    Attack("there: two iterations write one element", timed(all_write_one), Stop.SAMPLE, _RACE),
    Attack("there: a block clears its neighbour", timed(neighbours_cleared), Stop.SAMPLE, _RACE),
    Attack(
        "there: only what is not done yet",
        timed(only_what_is_not_done_yet),
        Stop.ADMISSION,
        "reads its output 'C'",
    ),
    Attack(
        "there: other parameters",
        at_the_timed_shape(other_parameters, add(honest_add)),
        Stop.ADMISSION,
        "takes 2 tensors, the lab asks for 3",
    ),
)

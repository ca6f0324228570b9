"""Outputs that are not the work's: none, half, a constant, a copy, too few digits, what was there before."""

import tilelang.language as T
import torch

from attacks.attack import ADD, MATMUL, Attack, Stop, add, honest_add, matmul
from grader import catalog
from grader.judge.comparison import POISON

POISONED = POISON[torch.float32]


@T.macro
def nothing(A, B, C, bx, N):
    T.evaluate(0)


@T.macro
def half(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N // 2:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


@T.macro
def zeros(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = 0.0


@T.macro
def input_copied(A, B, C, bx, N):
    T.copy(A[bx * 1024 : (bx + 1) * 1024], C[bx * 1024 : (bx + 1) * 1024])


@T.macro
def one_for_all(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[0] + B[0]


@T.macro
def infinity(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = T.infinity("float32")


@T.macro
def not_a_number(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = T.reinterpret(T.int32(0x7FC00000), "float32")


@T.macro
def the_poison_itself(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = T.reinterpret(T.int32(POISONED), "float32")


@T.macro
def too_few_digits(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = T.cast(
                T.cast(A[bx * 1024 + i], "bfloat16") + T.cast(B[bx * 1024 + i], "bfloat16"), "float32"
            )


@T.macro
def every_other_from_its_neighbour(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[bx * 1024 + i // 2 * 2] + B[bx * 1024 + i // 2 * 2]


@T.macro
def the_other_half_next_time(A, B, C, bx, N):
    """Which half is done hangs on the inputs: over several launches every element is written once."""
    for i in T.Parallel(1024):
        if bx * 1024 + i < N and (bx * 1024 + i) % 2 == T.cast(A[0] > 0.0, "int32"):
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


@T.macro
def only_what_is_not_done_yet(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N and T.isnan(C[bx * 1024 + i]):
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


@T.macro
def looked_at_in_a_tile(A, B, C, bx, N):
    before = T.alloc_shared((1024,), "float32")
    T.copy(C[bx * 1024 : (bx + 1) * 1024], before)
    for i in T.Parallel(1024):
        if before[i] != 1.0:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


def looked_at_through_a_view(M, N, K):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(M * N, 1024), threads=256) as bx:
            row = T.view(C, (M * N,), "int16")
            for i in T.Parallel(1024):
                if bx * 1024 + i < M * N and row[bx * 1024 + i] != T.int16(0):
                    row[bx * 1024 + i] = T.int16(0)

    return main


@T.macro
def looked_at_by_the_cache(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N and T.__ldg(C[bx * 1024 + i]) != 1.0:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


@T.macro
def added_to_what_is_there(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            T.atomic_add(C[bx * 1024 + i], A[bx * 1024 + i] + B[bx * 1024 + i])


def published_shapes_only(N):
    """Right at the shapes of the catalogue, and zeros everywhere else."""
    (kernel,) = catalog.find(ADD).kernels
    known = {shape.sizes["N"] for shape in kernel.shapes}
    return add(honest_add if N in known else zeros)(N)


_NEVER, _WRONG, _READS = "never written", "are wrong", "reads its output 'C'"

ATTACKS = (
    Attack("nothing is written", add(nothing), Stop.TILES, "'C' is never written", on_card=_NEVER),
    Attack("half is written", add(half), Stop.TILES, _NEVER, on_card=_NEVER),
    Attack("zeros", add(zeros), Stop.TILES, "'C' is 0 everywhere", on_card="0 everywhere"),
    Attack("an input is copied", add(input_copied), Stop.TILES, _WRONG, on_card=_WRONG),
    Attack("one value for all", add(one_for_all), Stop.TILES, _WRONG, on_card=_WRONG),
    Attack("infinity", add(infinity), Stop.TILES, _WRONG, on_card=_WRONG),
    Attack("not a number", add(not_a_number), Stop.TILES, _WRONG, on_card=_WRONG),
    Attack("the poison itself", add(the_poison_itself), Stop.TILES, "'C' is never written", on_card=_NEVER),
    Attack("too few digits", add(too_few_digits), Stop.TILES, _WRONG, on_card=_WRONG),
    Attack(
        "every other element from its neighbour",
        add(every_other_from_its_neighbour),
        Stop.TILES,
        _WRONG,
        on_card=_WRONG,
    ),
    Attack("the other half next time", add(the_other_half_next_time), Stop.TILES, _NEVER, on_card=_NEVER),
    Attack("only what is not done yet", add(only_what_is_not_done_yet), Stop.ADMISSION, _READS),
    Attack("the output is looked at in a tile", add(looked_at_in_a_tile), Stop.ADMISSION, _READS),
    Attack("the output is looked at through a view", looked_at_through_a_view, Stop.ADMISSION, _READS, MATMUL),
    Attack("the output is looked at by the cache", add(looked_at_by_the_cache), Stop.ADMISSION, _READS),
    Attack("added to what is there", add(added_to_what_is_there), Stop.ADMISSION, _READS),
    Attack("published shapes only", published_shapes_only, Stop.TAILS, "further shape of the official run"),
    Attack("half of K", matmul(share=2), Stop.TILES, _WRONG, MATMUL, _WRONG),
    Attack("half of K, twice", matmul(share=2, scale=2), Stop.TILES, _WRONG, MATMUL, _WRONG),
    Attack("a half-precision sum", matmul(accumulator="float16"), Stop.TILES, _WRONG, MATMUL, _WRONG),
    Attack("tiles of eight bits", matmul(tile="float8_e4m3fn"), Stop.TILES, _WRONG, MATMUL, _WRONG),
    Attack("half of the rows", matmul(rows=2), Stop.TILES, _NEVER, MATMUL, _NEVER),
)

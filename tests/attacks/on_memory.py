"""Memory that is not the kernel's to use: inputs, what lives on between launches, what lies beside a tensor."""

import tilelang.language as T

from attacks.attack import MATMUL, Attack, Stop, add, matmul


@T.macro
def input_stored_to(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]
            A[bx * 1024 + i] = 0.0


@T.macro
def input_copied_over(A, B, C, bx, N):
    T.copy(B[bx * 1024 : (bx + 1) * 1024], A[bx * 1024 : (bx + 1) * 1024])


@T.macro
def input_filled(A, B, C, bx, N):
    T.fill(A[bx * 1024 : (bx + 1) * 1024], 0.0)


@T.macro
def input_added_to(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            T.atomic_add(A[bx * 1024 + i], B[bx * 1024 + i])


def input_written_through_a_view(M, N, K):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(M * K, 1024), threads=256) as bx:
            row = T.view(A, (M * K,), "int16")
            for i in T.Parallel(1024):
                if bx * 1024 + i < M * K:
                    row[bx * 1024 + i] = T.int16(0)

    return main


@T.macro
def input_stored_atomically(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            T.atomic_store(B[bx * 1024 + i], 0.0)


def scratch_between_launches(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            kept = T.alloc_global((N,), "float32")
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    C[bx * 1024 + i] = kept[bx * 1024 + i]

    return main


@T.macro
def global_by_another_name(A, B, C, bx, N):
    kept = T.alloc_shared((1024,), "float32", scope="global")
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = kept[i]


@T.macro
def tile_remembered(A, B, C, bx, N):
    """Shared memory is not cleared between launches: what the last block left there may still be there."""
    kept = T.alloc_shared((1024,), "float32")
    for i in T.Parallel(1024):
        if bx * 1024 + i < N and kept[i] != 7.0:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]
    T.fill(kept, 7.0)


@T.macro
def registers_remembered(A, B, C, bx, N):
    kept = T.alloc_fragment((1024,), "float32")
    for i in T.Parallel(1024):
        if bx * 1024 + i < N and kept[i] != 7.0:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]
    T.fill(kept, 7.0)


@T.macro
def local_memory_remembered(A, B, C, bx, N):
    tx = T.get_thread_binding(0)
    kept = T.alloc_local((64,), "float32")
    for j in T.serial(4):
        if bx * 1024 + j * 256 + tx < N and kept[j] != 7.0:
            C[bx * 1024 + j * 256 + tx] = A[bx * 1024 + j * 256 + tx] + B[bx * 1024 + j * 256 + tx]
    for j in T.serial(64):
        kept[j] = 7.0


@T.macro
def read_beyond(A, B, C, bx, N):
    """What lies behind an input may be another one, or the answer."""
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[bx * 1024 + i + N]


@T.macro
def read_before(A, B, C, bx, N):
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[bx * 1024 + i - N]


@T.macro
def write_beyond(A, B, C, bx, N):
    for i in T.Parallel(1024):
        C[bx * 1024 + i + 1] = A[bx * 1024 + i] + B[bx * 1024 + i]


@T.macro
def tile_overrun(A, B, C, bx, N):
    tile = T.alloc_shared((512,), "float32")
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            tile[i] = A[bx * 1024 + i] + B[bx * 1024 + i]
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = tile[i]


@T.macro
def all_write_one(A, B, C, bx, N):
    """Each element is written twice, by two iterations, and by the right one last more often than not."""
    for i in T.Parallel(2048):
        if bx * 1024 + i % 1024 < N:
            C[bx * 1024 + i % 1024] = T.if_then_else(
                i < 1024, 0.0, A[bx * 1024 + i % 1024] + B[bx * 1024 + i % 1024]
            )


@T.macro
def neighbours_cleared(A, B, C, bx, N):
    """Blocks mostly start in order, so that the next one's result mostly comes later than this zero."""
    for i in T.Parallel(1024):
        if (bx + 1) * 1024 + i < N:
            C[(bx + 1) * 1024 + i] = 0.0
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


_WRITES, _GLOBAL = "writes to its input '{}'", "is allocated in global memory"
_UNWRITTEN, _NOWHERE, _RACE = (
    "before anything was written there",
    "which does not exist",
    "by several threads or blocks",
)

ATTACKS = (
    Attack("an input is stored to", add(input_stored_to), Stop.ADMISSION, _WRITES.format("A")),
    Attack("an input is copied over", add(input_copied_over), Stop.ADMISSION, _WRITES.format("A")),
    Attack("an input is filled", add(input_filled), Stop.ADMISSION, _WRITES.format("A")),
    Attack("an input is added to", add(input_added_to), Stop.ADMISSION, _WRITES.format("A")),
    Attack(
        "an input is written through a view",
        input_written_through_a_view,
        Stop.ADMISSION,
        _WRITES.format("A"),
        MATMUL,
    ),
    Attack("an input is stored to atomically", add(input_stored_atomically), Stop.ADMISSION, _WRITES.format("B")),
    Attack("scratch between launches", scratch_between_launches, Stop.ADMISSION, f"{_GLOBAL}|takes 4 tensors"),
    Attack("global memory by another name", add(global_by_another_name), Stop.ADMISSION, _GLOBAL),
    Attack("a tile remembered", add(tile_remembered), Stop.CLEAN, _UNWRITTEN, on_card=_UNWRITTEN),
    Attack("registers remembered", add(registers_remembered), Stop.CLEAN, _UNWRITTEN, on_card=_UNWRITTEN),
    Attack("local memory remembered", add(local_memory_remembered), Stop.CLEAN, _UNWRITTEN, on_card=_UNWRITTEN),
    Attack("an accumulator remembered", matmul(clear=False), Stop.CLEAN, _UNWRITTEN, MATMUL, _UNWRITTEN),
    Attack("read beyond an input", add(read_beyond), Stop.CLEAN, _NOWHERE, on_card=_NOWHERE),
    Attack("read before an input", add(read_before), Stop.CLEAN, _NOWHERE, on_card=_NOWHERE),
    Attack("write beyond the output", add(write_beyond), Stop.CLEAN, _NOWHERE, on_card=_NOWHERE),
    Attack("a tile overrun", add(tile_overrun), Stop.CLEAN, _NOWHERE, on_card=_NOWHERE),
    Attack("two iterations write one element", add(all_write_one), Stop.CLEAN, _RACE, on_card=_RACE),
    Attack("a block clears its neighbour", add(neighbours_cleared), Stop.CLEAN, _RACE, on_card=_RACE),
)

"""Kernels with one fault each that admission lets through and that TileLang's own guards do not cure.

Each has the parameters of lab 01. TileLang guards accesses of global memory by itself, so that the faults are in
shared memory, in what is never written, and in barriers.
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def right(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]

    return main


@tilelang.jit
def outside_of_a_tile(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            tile = T.alloc_shared((512,), "float32")
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    tile[i] = A[bx * 1024 + i] + B[bx * 1024 + i]  # outside
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    C[bx * 1024 + i] = tile[i]

    return main


@tilelang.jit
def race(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            tile = T.alloc_shared((64,), "float32")
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    tile[i % 64] = A[bx * 1024 + i] + B[bx * 1024 + i]  # race
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    C[bx * 1024 + i] = tile[i % 64]

    return main


@tilelang.jit
def never_written_tile(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            tile = T.alloc_shared((2048,), "float32")
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    tile[i] = A[bx * 1024 + i] + B[bx * 1024 + i]
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    C[bx * 1024 + i] = tile[i + 1]  # never written

    return main


@tilelang.jit
def half(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            for i in T.Parallel(1024):
                if bx * 1024 + i < N // 2:
                    C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]

    return main


@tilelang.jit
def barrier(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 256), threads=256) as bx:
            tx = T.get_thread_binding(0)
            tile = T.alloc_shared((256,), "float32")
            if bx * 256 + tx < N:
                tile[tx] = A[bx * 256 + tx] + B[bx * 256 + tx]
                T.sync_threads()  # barrier
                C[bx * 256 + tx] = tile[tx]

    return main


FAULTY = {
    "right": right,
    "outside of a tile": outside_of_a_tile,
    "race": race,
    "never written tile": never_written_tile,
    "half": half,
    "barrier": barrier,
}

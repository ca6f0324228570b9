"""Kernels for tests, in TileLang, and how to get their IR."""

import tilelang
import tilelang.language as T
from tilelang import tvm

from grader.capture.format import Capture, Trace
from grader.catalog import Shape, find


def json_of(function) -> str:
    return tvm.ir.save_json(function)


def kernel_of(lab: str):
    (kernel,) = find(lab).kernels
    return kernel


def shape_of(lab: str, name: str) -> Shape:
    return kernel_of(lab).shape(name)


@tilelang.jit(out_idx=[-1])
def vector_add(N, block_N=1024, threads=256):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            for i in T.Parallel(block_N):
                index = bx * block_N + i
                if index < N:
                    C[index] = A[index] + B[index]

    return main


@tilelang.jit
def eager_vector_add(A, B, block_N: int = 1024):
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    B: T.Tensor((N,), "float32")
    C = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, block_N), threads=256) as bx:
        for i in T.Parallel(block_N):
            if bx * block_N + i < N:
                C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]
    return C


@tilelang.jit(out_idx=[-1])
def matmul(
    M, N, K, block_M=128, block_N=128, block_K=32, num_stages=3, threads=128, accumulator="float32", clear=True
):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float16")
            B_tile = T.alloc_shared((block_K, block_N), "float16")
            C_tile = T.alloc_fragment((block_M, block_N), accumulator)
            T.use_swizzle(panel_size=10)
            if clear:
                T.clear(C_tile)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, C_tile)
            T.copy(C_tile, C[by * block_M, bx * block_N])

    return main


def capture_of(lab_id: str, kernel, **arguments) -> Capture:
    """A capture of ``kernel`` at all shapes of the lab, made in this process."""
    lab = find(lab_id)
    (wanted,) = lab.kernels
    traces = tuple(
        Trace(wanted.name, shape.name, ir=json_of(kernel.get_tir(**shape.sizes, **arguments)))
        for shape in wanted.shapes
    )
    return Capture(lab.id, lab.version, traces, sandbox="test")

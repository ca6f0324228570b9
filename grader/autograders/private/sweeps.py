"""The kernels of the judge's own sweeps, by lab: solutions, so no student has them."""

KERNELS: dict[str, str] = {
    "lab03_schedules": """\
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def scheduled_matmul(M, N, K, block_M=128, block_N=128, block_K=32, num_stages=2, threads=128, swizzle=0):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float16")
            B_tile = T.alloc_shared((block_K, block_N), "float16")
            C_tile = T.alloc_fragment((block_M, block_N), "float32")
            C_out = T.alloc_shared((block_M, block_N), "float16")
            T.use_swizzle(panel_size=swizzle, enable=swizzle > 0)
            T.clear(C_tile)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, C_tile)
            T.copy(C_tile, C_out)
            T.copy(C_out, C[by * block_M, bx * block_N])

    return main
""",
    "lab07_autotuning": """\
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def projection(M, N, K, block_N=128, block_K=32, num_stages=2, threads=128):
    rows = 64

    @T.prim_func
    def main(
        X: T.Tensor((M, K), "float16"),
        W: T.Tensor((K, N), "float16"),
        R: T.Tensor((M, N), "float16"),
        Y: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, rows), threads=threads) as (bx, by):
            X_tile = T.alloc_shared((rows, block_K), "float16")
            W_tile = T.alloc_shared((block_K, block_N), "float16")
            R_tile = T.alloc_shared((rows, block_N), "float16")
            Y_tile = T.alloc_shared((rows, block_N), "float16")
            acc = T.alloc_fragment((rows, block_N), "float32")
            T.copy(R[by * rows, bx * block_N], R_tile)
            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(X[by * rows, step * block_K], X_tile)
                T.copy(W[step * block_K, bx * block_N], W_tile)
                T.gemm(X_tile, W_tile, acc)
            for i, j in T.Parallel(rows, block_N):
                acc[i, j] += R_tile[i, j]
            T.copy(acc, Y_tile)
            T.copy(Y_tile, Y[by * rows, bx * block_N])

    return main
""",
}

"""The kernels that ``simulator_vs_triton.py`` times, in TileLang; ``triton_kernels.py`` has them in Triton."""

import tilelang.language as T


def matmul(m: int, n: int, k: int, block_m: int, block_n: int, block_k: int):
    """C = A B, fp16 in and out, fp32 sums. A (m, k), B (k, n), C (m, n)."""

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=128) as (bx, by):
            a = T.alloc_shared((block_m, block_k), "float16")
            b = T.alloc_shared((block_k, block_n), "float16")
            c = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=2):
                T.copy(A[by * block_m, step * block_k], a)
                T.copy(B[step * block_k, bx * block_n], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block_m, bx * block_n])

    return main


def softmax(rows: int, columns: int):
    """Y = softmax of X along its rows, fp32, one row a block. X, Y (rows, columns)."""

    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(rows, threads=128) as row:
            x = T.alloc_fragment((1, columns), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(1, columns):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(1, columns):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[row, 0])

    return main


def flash_attention(batch: int, heads: int, length: int, depth: int, block: int, causal: bool):
    """O = softmax(Q Kᵀ / √depth) V, fp16 in and out, fp32 sums. Q, K, V, O (batch, heads, length, depth)."""
    scale = depth**-0.5 * 1.4426950408889634  # log2(e): the powers are of 2
    shape = (batch, heads, length, depth)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        O: T.Tensor(shape, "float16"),  # noqa: E741 (the output's usual name)
    ):
        with T.Kernel(length // block, heads, batch, threads=128) as (bx, by, bz):
            q = T.alloc_shared((block, depth), "float16")
            k = T.alloc_shared((block, depth), "float16")
            v = T.alloc_shared((block, depth), "float16")
            scores = T.alloc_fragment((block, block), "float32")
            weights = T.alloc_fragment((block, block), "float16")
            out = T.alloc_fragment((block, depth), "float32")
            top = T.alloc_fragment((block,), "float32")
            before = T.alloc_fragment((block,), "float32")
            rescale = T.alloc_fragment((block,), "float32")
            row_sum = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")

            T.copy(Q[bz, by, bx * block : (bx + 1) * block, :], q)
            T.fill(out, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            for step in T.Pipelined(bx + 1 if causal else length // block, num_stages=1):
                T.copy(K[bz, by, step * block : (step + 1) * block, :], k)
                if causal:
                    for i, j in T.Parallel(block, block):
                        scores[i, j] = T.if_then_else(
                            bx * block + i >= step * block + j, 0, -T.infinity("float32")
                        )
                else:
                    T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True)
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(block):
                    rescale[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(block, block):
                    scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
                T.reduce_sum(scores, row_sum, dim=1)
                for i in T.Parallel(block):
                    total[i] = total[i] * rescale[i] + row_sum[i]
                for i, j in T.Parallel(block, depth):
                    out[i, j] *= rescale[i]
                T.copy(scores, weights)
                T.copy(V[bz, by, step * block : (step + 1) * block, :], v)
                T.gemm(weights, v, out)
            for i, j in T.Parallel(block, depth):
                out[i, j] /= total[i]
            T.copy(out, O[bz, by, bx * block : (bx + 1) * block, :])

    return main

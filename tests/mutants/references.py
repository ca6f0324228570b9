"""Right kernels, small and clean: what wrong ones are made from.

Tiles are square, so that a flipped transpose or another dimension of a reduction is legal, and found out only by
its values. ``patches`` changes the source of these functions: their lines are wrong kernels' lines.
"""

import tilelang.language as T

LOG2E = 1.44269504


def matmul(M, N, K, block=32):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            a = T.alloc_shared((block, block), "float16")
            b = T.alloc_shared((block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):
                T.copy(A[by * block, k * block], a)
                T.copy(B[k * block, bx * block], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block, bx * block])

    return main


def linear_gelu(M, N, K, block=32):
    @T.prim_func
    def main(
        X: T.Tensor((M, K), "float16"),
        W: T.Tensor((N, K), "float16"),
        bias: T.Tensor((N,), "float16"),
        Y: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            x = T.alloc_shared((block, block), "float16")
            w = T.alloc_shared((block, block), "float16")
            added = T.alloc_shared((block,), "float16")
            z = T.alloc_fragment((block, block), "float32")
            T.clear(z)
            for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):
                T.copy(X[by * block, k * block], x)
                T.copy(W[bx * block, k * block], w)
                T.gemm(x, w, z, transpose_B=True)
            T.copy(bias[bx * block], added)
            for i, j in T.Parallel(block, block):
                z[i, j] = z[i, j] + added[j]
            for i, j in T.Parallel(block, block):
                z[i, j] = (
                    0.5 * z[i, j] * (1.0 + T.tanh(0.79788456 * (z[i, j] + 0.044715 * z[i, j] * z[i, j] * z[i, j])))
                )
            for i, j in T.Parallel(block, block):
                if by * block + i < M and bx * block + j < N:
                    Y[by * block + i, bx * block + j] = z[i, j]

    return main


def softmax(R, C, rows=8):
    @T.prim_func
    def main(X: T.Tensor((R, C), "float32"), Y: T.Tensor((R, C), "float32")):
        with T.Kernel(T.ceildiv(R, rows), threads=128) as bx:
            x = T.alloc_fragment((rows, C), "float32")
            top = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(rows, C):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(rows, C):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * rows, 0])

    return main


def online_softmax(R, C, block=16):
    @T.prim_func
    def main(X: T.Tensor((R, C), "float32"), Y: T.Tensor((R, C), "float32")):
        with T.Kernel(T.ceildiv(R, block), threads=128) as bx:
            x = T.alloc_fragment((block, block), "float32")
            top = T.alloc_fragment((block,), "float32")
            before = T.alloc_fragment((block,), "float32")
            part = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.fill(top, -1e30)
            T.fill(total, 0.0)
            for n in T.serial(T.ceildiv(C, block)):
                for i, j in T.Parallel(block, block):
                    x[i, j] = T.if_then_else(
                        n * block + j < C,
                        T.if_then_else(bx * block + i < R, X[bx * block + i, n * block + j], 0.0),
                        -T.infinity("float32"),
                    )
                T.copy(top, before)
                T.reduce_max(x, top, dim=1, clear=False)
                for i, j in T.Parallel(block, block):
                    x[i, j] = T.exp2(x[i, j] * LOG2E - top[i] * LOG2E)
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(block):
                    total[i] = total[i] * T.exp2(before[i] * LOG2E - top[i] * LOG2E) + part[i]
            for n in T.serial(T.ceildiv(C, block)):
                for i, j in T.Parallel(block, block):
                    if bx * block + i < R and n * block + j < C:
                        Y[bx * block + i, n * block + j] = (
                            T.exp2(X[bx * block + i, n * block + j] * LOG2E - top[i] * LOG2E) / total[i]
                        )

    return main


def attention(B, L, H, D, causal=False, block=32):
    scale = D**-0.5 * LOG2E

    @T.prim_func
    def main(
        Q: T.Tensor((B, L, H, D), "float16"),
        K: T.Tensor((B, L, H, D), "float16"),
        V: T.Tensor((B, L, H, D), "float16"),
        Out: T.Tensor((B, L, H, D), "float16"),
    ):
        with T.Kernel(T.ceildiv(L, block), H, B, threads=128) as (bx, by, bz):
            q = T.alloc_shared((block, D), "float16")
            k = T.alloc_shared((block, D), "float16")
            v = T.alloc_shared((block, D), "float16")
            s = T.alloc_fragment((block, block), "float32")
            p = T.alloc_fragment((block, block), "float16")
            o = T.alloc_fragment((block, D), "float32")
            top = T.alloc_fragment((block,), "float32")
            before = T.alloc_fragment((block,), "float32")
            factor = T.alloc_fragment((block,), "float32")
            part = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.copy(Q[bz, bx * block : (bx + 1) * block, by, :], q)
            T.clear(o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            tiles = bx + 1 if causal else T.ceildiv(L, block)
            for n in T.Pipelined(tiles, num_stages=1):
                T.copy(K[bz, n * block : (n + 1) * block, by, :], k)
                if causal:
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.if_then_else(bx * block + i >= n * block + j, 0, -T.infinity("float32"))
                else:
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.if_then_else(n * block + j < L, 0, -T.infinity("float32"))
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i in T.Parallel(block):
                    factor[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(block, block):
                    s[i, j] = T.exp2(s[i, j] * scale - top[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(block):
                    total[i] = total[i] * factor[i] + part[i]
                T.copy(s, p)
                for i, j in T.Parallel(block, D):
                    o[i, j] = o[i, j] * factor[i]
                T.copy(V[bz, n * block : (n + 1) * block, by, :], v)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block, D):
                o[i, j] = o[i, j] / total[i]
            T.copy(o, Out[bz, bx * block : (bx + 1) * block, by, :])

    return main

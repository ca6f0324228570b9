"""Kernels for the simulator's tests: as in the labs, and two that use as much of the language as will fit."""

import tilelang.language as T


def vector_add(n: int, block: int = 256):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                if bx * block + i < n:
                    C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return main


def matmul(m: int, n: int, k: int, dtype: str = "float16", blocks: tuple[int, int, int] = (128, 128, 32)):
    bm, bn, bk = blocks

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), "float32")
            T.use_swizzle(10)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=3):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return main


def softmax(rows: int, columns: int, per_block: int = 4):
    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(rows, per_block), threads=128) as bx:
            x = T.alloc_fragment((per_block, columns), "float32")
            top = T.alloc_fragment((per_block,), "float32")
            total = T.alloc_fragment((per_block,), "float32")
            T.copy(X[bx * per_block, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(per_block, columns):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(per_block, columns):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * per_block, 0])

    return main


def attention(batch: int, heads: int, length: int, depth: int, causal: bool, block: int = 64):
    scale = depth**-0.5 * 1.44269504
    shape = (batch, length, heads, depth)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        Out: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(T.ceildiv(length, block), heads, batch, threads=128) as (bx, by, bz):
            q = T.alloc_shared((block, depth), "float16")
            k = T.alloc_shared((block, depth), "float16")
            v = T.alloc_shared((block, depth), "float16")
            s = T.alloc_fragment((block, block), "float32")
            p = T.alloc_fragment((block, block), "float16")
            o = T.alloc_fragment((block, depth), "float32")
            top = T.alloc_fragment((block,), "float32")
            before = T.alloc_fragment((block,), "float32")
            factor = T.alloc_fragment((block,), "float32")
            part = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.copy(Q[bz, bx * block : (bx + 1) * block, by, :], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            tiles = T.min(bx + 1, T.ceildiv(length, block)) if causal else T.ceildiv(length, block)
            for n in T.Pipelined(tiles, num_stages=1):
                T.copy(K[bz, n * block : (n + 1) * block, by, :], k)
                if causal:
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.if_then_else(bx * block + i >= n * block + j, 0, -T.infinity("float32"))
                else:
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.if_then_else(n * block + j >= length, -T.infinity("float32"), 0)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(V[bz, n * block : (n + 1) * block, by, :], v)
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
                for i, j in T.Parallel(block, depth):
                    o[i, j] *= factor[i]
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block, depth):
                o[i, j] /= total[i]
            T.copy(o, Out[bz, bx * block : (bx + 1) * block, by, :])

    return main


def odd(n: int):
    @T.prim_func
    def main(A: T.Tensor((n, n), "float16"), N: T.Tensor((n,), "int32"), C: T.Tensor((n, n), "float32")):
        with T.Kernel(T.ceildiv(n, 16), T.ceildiv(n, 16), threads=32) as (bx, by):
            a = T.alloc_shared((16, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            m = T.alloc_fragment((16,), "float32")
            x = T.alloc_var("int32")
            flat = T.reshape(c, (256,))
            T.fill(m, -T.infinity("float32"))
            T.copy(A[bx * 16, by * 16], a)
            x = 0
            while x < 4:
                x += 1
            for i, j in T.Parallel(16, 16):
                c[i, j] = T.if_then_else(
                    i > j, T.cast(a[i, j], "float32") * 0.5, T.exp(T.cast(a[i, j], "float32"))
                )
            T.reduce_max(c, m, dim=1, clear=False)
            for i in T.Parallel(256):
                flat[i] = flat[i] - m[i // 16] + T.cast(x, "float32")
            for k in T.unroll(4):
                c[k, k] = T.Select(k > 2, 1.0, 2.0)
            if bx == by:
                T.copy(c, C[bx * 16, by * 16])
            else:
                for i, j in T.Parallel(16, 16):
                    if bx * 16 + i < n and by * 16 + j < n:
                        C[bx * 16 + i, by * 16 + j] = c[i, j] + T.cast(
                            N[bx * 16 + i] % 3 + (N[by * 16 + j] & 3) // 2 - (x << 1), "float32"
                        )

    return main


def threads_own():
    @T.prim_func
    def main(X: T.Tensor((16, 8), "float32"), Y: T.Tensor((16, 4), "float32"), Z: T.Tensor((16, 4), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            v = T.alloc_var("float32")
            w = T.alloc_local((2,), "float32")
            n = T.alloc_var("int32")
            for i, j in T.Parallel(16, 4):
                v = 0.0
                w[0] = 1.0
                w[1] = 2.0
                for k in T.serial(i % 8):
                    if k % 4 == j:
                        v += X[i, k] * w[k % 2]
                Y[i, j] = v
                n = i
                while n % 5 != 0:
                    n += 1
                Z[i, j] = T.truncdiv(n, j + 1) + T.max(i, j)

    return main

"""Launches: grids of one to three dimensions, numbers of threads, persistent blocks, dynamic sizes."""

import tilelang
import tilelang.language as T
import torch

from ..bounded import bounded, held
from ..registry import built, conforms, draw, out


def plus_one(x: torch.Tensor, dtype: str):
    return out((bounded(x) + 1.0).rounded(held(dtype)), dtype)


@conforms("T.Kernel, one dimension", shapes=[(256,), (1000,)], threads=(32, 96, 256))
def grid_of_one(dtype, shape, threads):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 192), threads=threads) as bx:
            for i in T.Parallel(192):
                if bx * 192 + i < n:
                    Y[bx * 192 + i] = X[bx * 192 + i] + 1.0

    x = draw(dtype, shape)
    return built(main, [x], plus_one(x, dtype))


@conforms("T.Kernel, two dimensions", shapes=[(64, 96), (50, 70)])
def grid_of_two(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), threads=64) as (bx, by):
            for i, j in T.Parallel(16, 32):
                if by * 16 + i < m and bx * 32 + j < n:
                    Y[by * 16 + i, bx * 32 + j] = X[by * 16 + i, bx * 32 + j] + 1.0

    x = draw(dtype, shape)
    return built(main, [x], plus_one(x, dtype))


@conforms("T.Kernel, three dimensions", dtypes=["int32"], shapes=[(3, 4, 128), (2, 5, 96)])
def grid_of_three(dtype, shape):
    a, b, n = shape

    @T.prim_func
    def main(X: T.Tensor((a, b, n), dtype), Y: T.Tensor((b, a, n), dtype)):
        with T.Kernel(T.ceildiv(n, 32), b, a, threads=32) as (bx, by, bz):
            for i in T.Parallel(32):
                Y[by, bz, bx * 32 + i] = X[bz, by, bx * 32 + i] * 2 + bx - by

    x = draw(dtype, shape)
    want = 2 * x.to(torch.int64) + torch.arange(n) // 32 - torch.arange(b)[:, None]
    return built(main, [x], out(want.permute(1, 0, 2), dtype))


@conforms("T.Kernel, threads of two dimensions", shapes=[(256,), (512,)])
def threads_of_two(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(n // 128, threads=(32, 4)) as bx:
            for i in T.Parallel(128):
                Y[bx * 128 + i] = X[bx * 128 + i] + 1.0

    x = draw(dtype, shape)
    return built(main, [x], plus_one(x, dtype))


@conforms("T.get_block_binding, get_block_extent", dtypes=["int32"], shapes=[(4, 3), (2, 5)])
def block_binding(dtype, shape):
    a, b = shape

    @T.prim_func
    def main(Y: T.Tensor((b, a, 4), dtype)):
        with T.Kernel(a, b, threads=32) as (bx, by):
            Y[by, bx, 0] = T.get_block_binding(0)
            Y[by, bx, 1] = T.get_block_binding(1)
            Y[by, bx, 2] = T.get_block_extent(0)
            Y[by, bx, 3] = T.get_block_extent(1)

    y = torch.zeros(b, a, 4, dtype=torch.int64)
    y[:, :, 0], y[:, :, 1] = torch.arange(a), torch.arange(b)[:, None]
    y[:, :, 2], y[:, :, 3] = a, b
    return built(main, [], out(y, dtype))


@conforms("T.ceildiv, cdiv, align_up", dtypes=["int32"], shapes=[(7,), (16,)])
def sizes_rounded_up(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(N: T.Tensor((n,), dtype), Y: T.Tensor((n, 3), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[i, 0] = T.ceildiv(N[i], 5)
                Y[i, 1] = T.cdiv(N[i], 4)
                Y[i, 2] = T.align_up(N[i], 8)

    x = draw(dtype, shape, 0, 100)
    wide = x.to(torch.int64)
    want = torch.stack(((wide + 4) // 5, (wide + 3) // 4, (wide + 7) // 8 * 8), dim=1)
    return built(main, [x], out(want, dtype))


@conforms("T.Persistent", dtypes=["float16"], shapes=[(256, 192), (200, 130)], blocks=(3, 8), group=(1, 8))
def persistent(dtype, shape, blocks, group):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(blocks, threads=64) as bx:
            tile = T.alloc_fragment((32, 64), dtype)
            for i, j in T.Persistent([T.ceildiv(m, 32), T.ceildiv(n, 64)], blocks, bx, group_size=group):
                T.copy(X[i * 32, j * 64], tile)
                for a, b in T.Parallel(32, 64):
                    tile[a, b] = tile[a, b] + 1.0
                T.copy(tile, Y[i * 32, j * 64])

    x = draw(dtype, shape)
    return built(main, [x], plus_one(x, dtype))


@conforms("T.dynamic sizes", shapes=[(128,), (1000,)], name=("dynamic", "symbolic"))
def dynamic_length(dtype, shape, name):
    n = getattr(T, name)("n")

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 256), threads=128) as bx:
            for i in T.Parallel(256):
                if bx * 256 + i < n:
                    Y[bx * 256 + i] = X[bx * 256 + i] + 1.0

    x = draw(dtype, shape)
    return built(main, [x], plus_one(x, dtype))


@conforms("T.dynamic sizes", dtypes=["float16"], shapes=[(64, 64, 96), (50, 72, 40)])
def dynamic_matmul(dtype, shape):
    from ..bounded import product

    m, n, k = T.dynamic("m, n, k")

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, 32), dtype)
            b = T.alloc_shared((32, 32), dtype)
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 32, ko * 32], a)
                T.copy(B[ko * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    rows, columns, depth = shape
    x, y = draw(dtype, (rows, depth)), draw(dtype, (depth, columns))
    return built(main, [x, y], out(product(x, y), "float32"))


@conforms("T.dynamic sizes", shapes=[(8, 40), (5, 33)])
def dynamic_strides(dtype, shape):
    m, n, step = T.dynamic("m, n, step")

    @T.prim_func
    def main(X: T.StridedTensor((m, n), (step, 1), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, T.ceildiv(n, 32), threads=32) as (bx, by):
            for j in T.Parallel(32):
                if by * 32 + j < n:
                    Y[bx, by * 32 + j] = X[bx, by * 32 + j] + 1.0

    rows, columns = shape
    x = draw(dtype, (rows, columns + 8))[:, :columns]
    return built(main, [x], plus_one(x, dtype))


@conforms("a scalar parameter by a size", dtypes=["int32"], shapes=[(24,), (65,)])
def size_in_expressions(dtype, shape):
    n = T.dynamic("n")

    @T.prim_func
    def main(Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.serial(n):
                Y[i] = n - i

    (size,) = shape
    return built(main, [], out(size - torch.arange(size), dtype))


@conforms("eager style: T.const, T.empty", dtypes=["float16", "float32"], shapes=[(64, 128), (30, 50)])
def eager(dtype, shape):
    @tilelang.jit
    def add(X, Y, block: int = 32):
        M, N = T.const("M, N")
        X: T.Tensor[[M, N], dtype]
        Y: T.Tensor[[M, N], dtype]
        Z = T.empty([M, N], dtype)
        with T.Kernel(T.ceildiv(M, block), threads=64) as bx:
            for i, j in T.Parallel(block, N):
                if bx * block + i < M:
                    Z[bx * block + i, j] = X[bx * block + i, j] + Y[bx * block + i, j]
        return Z

    x, y = draw(dtype, shape), draw(dtype, shape)
    want = (bounded(x) + bounded(y)).rounded(held(dtype))
    return built(add.get_tir(x, y), [x, y], out(want, dtype))

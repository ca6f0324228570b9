"""Other names and forms of the same: aliases, dtypes as objects, helpers written in the language itself."""

import tilelang.language as T
import torch

from ..bounded import bounded, held
from ..registry import built, conforms, draw, out


@conforms("T.Serial, T.Unroll, T.Vectorized", dtypes=["float32", "int32"], shapes=[(4, 64), (6, 32)])
def capitals(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=16) as _bx:
            for k in T.Serial(m // 2):
                for u in T.Unroll(2):
                    for j in T.Parallel(n // 2):
                        for v in T.Vectorized(2):
                            Y[k * 2 + u, j * 2 + v] = X[m - 1 - k * 2 - u, j * 2 + v]

    x = draw(dtype, shape)
    return built(main, [x], out(x.flip(0), dtype))


#: A dtype's name -> the object that names it, too
OBJECTS = {
    "float16": T.float16,
    "bfloat16": T.bfloat16,
    "float32": T.float32,
    "int8": T.int8,
    "int32": T.int32,
    "float8_e4m3fn": T.float8_e4m3fn,
}


@conforms("dtypes as objects: T.float16, …", dtypes=OBJECTS, shapes=[(64,), (128,)])
def dtype_objects(dtype, shape):
    (n,) = shape
    named = OBJECTS[dtype]

    @T.prim_func
    def main(X: T.Tensor((n,), named), Y: T.Tensor((n,), T.float32)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((n,), named)
            T.copy(X, a)
            for i in T.Parallel(n):
                Y[i] = T.float32(a[i]) + T.float32(1)

    x = draw(dtype, shape)
    return built(main, [x], out((bounded(x.float()) + 1.0).rounded(torch.float32), "float32"))


@conforms("torch's dtypes", dtypes=["float16", "float32", "int32"], shapes=[(64,), (128,)])
def torch_dtypes(dtype, shape):
    (n,) = shape
    named = held(dtype)

    @T.prim_func
    def main(X: T.Tensor((n,), named), Y: T.Tensor((n,), named)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((n,), named)
            T.copy(X, a)
            T.copy(a, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))


@conforms(
    "T.reduce, the general form", dtypes=["float32", "int32"], shapes=[(16, 32), (32, 64)], kind=("max", "min")
)
def general_reduce(dtype, shape, kind):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((m, n), dtype)
            y = T.alloc_fragment((m,), dtype)
            T.copy(X, x)
            T.reduce(x, y, kind, 1, True)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x.amax(1) if kind == "max" else x.amin(1), dtype))


@conforms("T.index_to_coordinates", dtypes=["float32"], shapes=[(4, 6, 8), (2, 16, 5)])
def coordinates(dtype, shape):
    a, b, c = shape

    @T.prim_func
    def main(X: T.Tensor((a, b, c), dtype), Y: T.Tensor((a * b * c,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for n in T.Parallel(a * b * c):
                i, j, k = T.index_to_coordinates(n, (a, b, c))
                Y[n] = X[a - 1 - i, j, k]

    x = draw(dtype, shape)
    return built(main, [x], out(x.flip(0).flatten(), dtype))


@conforms("T.get_block_bindings, get_block_extents, get_thread_extents", dtypes=["int32"], shapes=[(3, 4), (5, 2)])
def bindings(dtype, shape):
    a, b = shape

    @T.prim_func
    def main(Y: T.Tensor((b, a, 3), dtype)):
        with T.Kernel(a, b, threads=64):
            bx, by = T.get_block_bindings()
            Y[by, bx, 0] = bx * 10 + by
            Y[by, bx, 1] = T.get_block_extents()[1]
            Y[by, bx, 2] = T.get_thread_extents()[0]

    y = torch.zeros(b, a, 3, dtype=torch.int64)
    y[:, :, 0] = torch.arange(a) * 10 + torch.arange(b)[:, None]
    y[:, :, 1], y[:, :, 2] = b, 64
    return built(main, [], out(y, dtype))


@conforms(
    "T.PersistentTileScheduler",
    dtypes=["float16"],
    shapes=[(128, 192), (100, 130)],
    workers=(3, 7),
    swizzle=(1, 2),
)
def scheduler(dtype, shape, workers, swizzle):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(workers, threads=64) as bx:
            tile = T.alloc_fragment((32, 64), dtype)
            tiles = T.PersistentTileScheduler(T.ceildiv(m, 32), T.ceildiv(n, 64), workers, swizzle_size=swizzle)
            tiles.init(bx)
            while tiles.valid():
                T.copy(X[tiles.m_idx * 32, tiles.n_idx * 64], tile)
                for i, j in T.Parallel(32, 64):
                    tile[i, j] = tile[i, j] + 1.0
                T.copy(tile, Y[tiles.m_idx * 32, tiles.n_idx * 64])
                tiles.next_tile()

    x = draw(dtype, shape)
    return built(main, [x], out((bounded(x) + 1.0).rounded(held(dtype)), dtype))


@conforms("values of Python in a kernel", dtypes=["float32"], shapes=[(8, 64), (5, 32)])
def python_loops(dtype, shape):
    """Loops over Python's own values, and numbers of Python in indices."""
    m, n = shape
    order = list(range(m - 1, -1, -1))

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for k in T.unroll(m):
                for j in T.Parallel(n):
                    Y[k, j] = X[order[0] - k, j] * float(len(order))

    x = draw(dtype, shape)
    return built(main, [x], out((bounded(x.flip(0)) * float(m)).rounded(torch.float32), dtype))


@conforms("a scalar parameter", dtypes=["float32", "int32"], shapes=[(64,), (100,)])
def scalar_tensor(dtype, shape):
    """A tensor of one element, read by all."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), S: T.Tensor((1,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < n:
                    Y[bx * 64 + i] = X[bx * 64 + i] * S[0]

    x, s = draw(dtype, shape), draw(dtype, (1,))
    if dtype == "int32":
        return built(main, [x, s], out(x * s, dtype))
    return built(main, [x, s], out((bounded(x) * bounded(s.expand(n))).rounded(torch.float32), dtype))


@conforms("shared memory between two T.Parallel", dtypes=["float32"], shapes=[(64,), (128,)])
def two_tiles_of_one_block(dtype, shape):
    """Two passes over one tile of shared memory: what the first leaves, the second reads."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((n,), dtype)
            for i in T.Parallel(n):
                a[i] = X[i] + 1.0
            for i in T.Parallel(n):
                Y[i] = a[n - 1 - i]

    x = draw(dtype, shape)
    return built(main, [x], out((bounded(x.flip(0)) + 1.0).rounded(torch.float32), dtype))

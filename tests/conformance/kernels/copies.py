"""T.copy between all scopes: ranks, region forms, tails, strides, conversions."""

import tilelang.language as T
import torch

from ..bounded import bounded, held
from ..registry import ALL, built, conforms, draw, out

HALF_AND_SINGLE = ("float16", "float32")


def same(x: torch.Tensor, dtype: str):
    return out(x, dtype)


# Ranks


@conforms("T.copy of rank 1", dtypes=HALF_AND_SINGLE, shapes=[(256,), (200,)])
def rank_1(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 64), threads=32) as bx:
            a = T.alloc_shared((64,), dtype)
            T.copy(X[bx * 64], a)
            T.copy(a, Y[bx * 64])

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


@conforms("T.copy of rank 2, a tile from an element on, with tails", dtypes=ALL[1:], shapes=[(64, 96), (50, 72)])
def rank_2(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), threads=64) as (bx, by):
            a = T.alloc_shared((16, 32), dtype)
            T.copy(X[by * 16, bx * 32], a)
            T.copy(a, Y[by * 16, bx * 32])

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


@conforms("T.copy of rank 3", dtypes=HALF_AND_SINGLE, shapes=[(4, 16, 32), (3, 10, 40)])
def rank_3(dtype, shape):
    a, m, n = shape

    @T.prim_func
    def main(X: T.Tensor((a, m, n), dtype), Y: T.Tensor((a, m, n), dtype)):
        with T.Kernel(T.ceildiv(m, 8), T.ceildiv(a, 2), threads=64) as (bx, by):
            tile = T.alloc_shared((2, 8, n), dtype)
            T.copy(X[by * 2, bx * 8, 0], tile)
            T.copy(tile, Y[by * 2, bx * 8, 0])

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


@conforms("T.copy of rank 4", dtypes=HALF_AND_SINGLE, shapes=[(2, 3, 16, 32), (1, 5, 8, 64)])
def rank_4(dtype, shape):
    a, b, m, n = shape

    @T.prim_func
    def main(X: T.Tensor((a, b, m, n), dtype), Y: T.Tensor((a, b, m, n), dtype)):
        with T.Kernel(a, threads=64) as bx:
            tile = T.alloc_shared((1, b, m, n), dtype)
            T.copy(X[bx, 0, 0, 0], tile)
            T.copy(tile, Y[bx, 0, 0, 0])

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


@conforms("T.copy of rank 5", dtypes=["float16"], shapes=[(2, 2, 2, 4, 32), (1, 3, 2, 8, 16)])
def rank_5(dtype, shape):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32) as _bx:
            tile = T.alloc_shared(shape, dtype)
            T.copy(X, tile)
            T.copy(tile, Y)

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


# Regions


@conforms("T.copy of slices on both sides", dtypes=HALF_AND_SINGLE, shapes=[(32, 64), (48, 96)])
def slices(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m // 16, threads=32) as bx:
            a = T.alloc_shared((16, n), dtype)
            T.copy(X[bx * 16 : (bx + 1) * 16, 0 : n // 2], a[0:16, n // 2 : n])
            T.copy(X[bx * 16 : (bx + 1) * 16, n // 2 : n], a[:, 0 : n // 2])
            T.copy(a, Y[bx * 16 : bx * 16 + 16, :])

    x = draw(dtype, shape)
    return built(main, [x], same(x.roll(n // 2, 1), dtype))


@conforms("T.copy of a sub-region of a tile", dtypes=HALF_AND_SINGLE, shapes=[(4, 16, 32), (3, 32, 64)])
def sub_regions(dtype, shape):
    count, m, n = shape

    @T.prim_func
    def main(X: T.Tensor((count, m, n), dtype), Y: T.Tensor((count, m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((count, m, n), dtype)
            for k in T.serial(count):
                T.copy(X[k, 0 : m // 2, 0:n], a[count - 1 - k, m // 2 : m, 0:n])
                T.copy(X[k, m // 2 : m, 0:n], a[count - 1 - k, 0 : m // 2, 0:n])
            T.copy(a, Y)

    x = draw(dtype, shape)
    return built(main, [x], same(x.flip(0).roll(m // 2, 1), dtype))


@conforms("T.copy between ranks", dtypes=HALF_AND_SINGLE, shapes=[(2, 16, 3, 32), (3, 24, 2, 16)])
def between_ranks(dtype, shape):
    batch, length, heads, width = shape

    @T.prim_func
    def main(X: T.Tensor((batch, length, heads, width), dtype), Y: T.Tensor((heads, batch, length, width), dtype)):
        with T.Kernel(heads, batch, threads=32) as (bx, by):
            a = T.alloc_shared((length, width), dtype)
            T.copy(X[by, 0:length, bx, 0:width], a)
            T.copy(a, Y[bx, by, 0:length, 0:width])

    x = draw(dtype, shape)
    return built(main, [x], same(x.permute(2, 0, 1, 3), dtype))


@conforms("T.copy between ranks", dtypes=HALF_AND_SINGLE, shapes=[(4, 16, 32), (2, 20, 64)])
def from_an_element_of_higher_rank(dtype, shape):
    count, m, n = shape

    @T.prim_func
    def main(X: T.Tensor((count, m, n), dtype), Y: T.Tensor((m, count, n), dtype)):
        with T.Kernel(T.ceildiv(m, 8), count, threads=32) as (bx, by):
            a = T.alloc_shared((8, n), dtype)
            T.copy(X[by, bx * 8, 0], a)
            T.copy(a, Y[bx * 8 : bx * 8 + 8, by, 0:n])

    x = draw(dtype, shape)
    return built(main, [x], same(x.permute(1, 0, 2), dtype))


@conforms("T.copy with dimensions of one element", dtypes=HALF_AND_SINGLE, shapes=[(6, 64), (9, 32)])
def unit_dimensions(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, 1, n), dtype)):
        with T.Kernel(m, threads=32) as bx:
            a = T.alloc_shared((1, n), dtype)
            b = T.alloc_shared((1, 1, n), dtype)
            T.copy(X[bx, 0], a)
            T.copy(a[0, 0:n], b[0, 0, 0:n])
            T.copy(b, Y[bx, 0, 0])

    x = draw(dtype, shape)
    return built(main, [x], same(x[:, None], dtype))


@conforms("T.copy of a column", dtypes=HALF_AND_SINGLE, shapes=[(64, 6), (96, 5)])
def columns(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n, m), dtype)):
        with T.Kernel(n, threads=32) as bx:
            a = T.alloc_fragment((m,), dtype)
            T.copy(X[0:m, bx], a)
            T.copy(a, Y[bx, 0:m])

    x = draw(dtype, shape)
    return built(main, [x], same(x.t(), dtype))


@conforms("T.copy of a part of unknown start", dtypes=["float32"], shapes=[(5, 64), (3, 96)])
def start_from_memory(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(I: T.Tensor((m,), "int32"), X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=32) as bx:
            a = T.alloc_shared((n,), dtype)
            T.copy(X[I[bx], 0:n], a)
            T.copy(a, Y[bx, 0:n])

    x, index = draw(dtype, shape), torch.randperm(m).to(torch.int32)
    return built(main, [index, x], same(x[index.long()], dtype))


@conforms("T.copy beyond the edge: zero is read", dtypes=HALF_AND_SINGLE, shapes=[(20, 40), (33, 56)])
def tails_read_zero(dtype, shape):
    m, n = shape
    tall, broad = (m + 15) // 16 * 16, (n + 31) // 32 * 32

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((tall, broad), dtype)):
        with T.Kernel(broad // 32, tall // 16, threads=64) as (bx, by):
            a = T.alloc_shared((16, 32), dtype)
            T.copy(X[by * 16, bx * 32], a)
            T.copy(a, Y[by * 16, bx * 32])

    x = draw(dtype, shape)
    y = torch.zeros(tall, broad, dtype=x.dtype)
    y[:m, :n] = x
    return built(main, [x], same(y, dtype))


@conforms("T.copy beyond the edge: nothing is written", dtypes=HALF_AND_SINGLE, shapes=[(20, 40), (33, 56)])
def tails_write_nothing(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(Y: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), threads=64) as (bx, by):
            a = T.alloc_fragment((16, 32), dtype)
            T.fill(a, bx + 2 * by)
            T.copy(a, Y[by * 16, bx * 32])

    y = (torch.arange(n) // 32 + torch.arange(m)[:, None] // 16 * 2).to(held(dtype))
    return built(main, [], same(y, dtype))


@conforms("T.StridedTensor: padded rows", dtypes=HALF_AND_SINGLE, shapes=[(32, 64), (24, 40)])
def padded_rows(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.StridedTensor((m, n), (n + 16, 1), dtype), Y: T.StridedTensor((m, n), (n + 8, 1), dtype)):
        with T.Kernel(T.ceildiv(m, 8), threads=32) as bx:
            a = T.alloc_shared((8, n), dtype)
            T.copy(X[bx * 8, 0], a)
            T.copy(a, Y[bx * 8, 0])

    x = draw(dtype, (m, n + 16))[:, :n]
    start = torch.zeros(m, n + 8, dtype=x.dtype)[:, :n]
    return built(main, [x], out(x, dtype, start=start))


@conforms("T.StridedTensor: columns first", dtypes=HALF_AND_SINGLE, shapes=[(32, 64), (16, 48)])
def columns_first(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.StridedTensor((m, n), (1, m), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((m, n), dtype)
            T.copy(X, a)
            T.copy(a, Y)

    x = draw(dtype, (n, m)).t()
    return built(main, [x], same(x, dtype))


# Scopes


@conforms("T.copy shared to shared", dtypes=["float16", "float32", "int8"], shapes=[(16, 32), (8, 64)])
def shared_to_shared(dtype, shape):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared(shape, dtype)
            b = T.alloc_shared(shape, dtype)
            T.copy(X, a)
            T.copy(a, b)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


@conforms(
    "T.copy shared to fragment and back", dtypes=["float16", "float32", "int8"], shapes=[(64, 64), (32, 128)]
)
def shared_fragment(dtype, shape):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared(shape, dtype)
            b = T.alloc_fragment(shape, dtype)
            c = T.alloc_shared(shape, dtype)
            T.copy(X, a)
            T.copy(a, b)
            T.copy(b, c)
            T.copy(c, Y)

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


@conforms("T.copy fragment to fragment", dtypes=["float16", "float32", "int32"], shapes=[(16, 32), (8, 64)])
def fragment_to_fragment(dtype, shape):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_fragment(shape, dtype)
            b = T.alloc_fragment(shape, dtype)
            T.copy(X, a)
            T.copy(a, b)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


@conforms("T.copy global to global", dtypes=["float16", "float32", "int8"], shapes=[(16, 32), (64, 48)])
def global_to_global(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m // 8, threads=32) as bx:
            T.copy(X[bx * 8 : bx * 8 + 8, 0:n], Y[m - 8 - bx * 8 : m - bx * 8, 0:n])

    x = draw(dtype, shape)
    return built(main, [x], same(x.reshape(m // 8, 8, n).flip(0).reshape(m, n), dtype))


@conforms("T.copy of one element", dtypes=HALF_AND_SINGLE, shapes=[(7,), (32,)])
def one_element(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(n, threads=32) as bx:
            T.copy(X[bx], Y[n - 1 - bx])

    x = draw(dtype, shape)
    return built(main, [x], same(x.flip(0), dtype))


@conforms("T.copy with options", dtypes=["float16"], shapes=[(64, 64), (48, 96)], option=range(4))
def options(dtype, shape, option):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m // 16, threads=32) as bx:
            a = T.alloc_shared((16, n), dtype)
            if option == 0:
                T.copy(X[bx * 16, 0], a, coalesced_width=2)
            elif option == 1:
                T.copy(X[bx * 16, 0], a, disable_tma=True)
            elif option == 2:
                T.copy(X[bx * 16, 0], a, eviction_policy="evict_first")
            else:
                T.copy(X[bx * 16, 0], a, annotations={"coalesced_width": 4})
            T.copy(a, Y[bx * 16, 0])

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


@conforms("T.copy: a let of a region", dtypes=["float16"], shapes=[(32, 64), (64, 32)])
def named_region(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m // 16, threads=32) as bx:
            a = T.alloc_shared((16, n), dtype)
            here = X[bx * 16 : bx * 16 + 16, 0:n]
            T.copy(here, a)
            T.copy(a, Y[bx * 16, 0])

    x = draw(dtype, shape)
    return built(main, [x], same(x, dtype))


# Conversions

CONVERSIONS = (
    ("float32", "float16"),
    ("float32", "bfloat16"),
    ("float32", "float8_e4m3fn"),
    ("float32", "float8_e5m2"),
    ("float32", "float64"),
    ("float32", "int32"),
    ("float32", "int8"),
    ("float16", "float32"),
    ("float16", "bfloat16"),
    ("float16", "float8_e4m3fn"),
    ("float16", "int8"),
    ("bfloat16", "float32"),
    ("bfloat16", "float16"),
    ("float8_e4m3fn", "float16"),
    ("float8_e4m3fn", "float32"),
    ("float8_e5m2", "float32"),
    ("float64", "float32"),
    ("int8", "float16"),
    ("int8", "int32"),
    ("uint8", "float32"),
    ("int32", "int8"),
    ("int32", "float32"),
    ("int64", "int32"),
)


@conforms("T.copy that converts", dtypes=["float32"], shapes=[(16, 32), (8, 96)], pair=CONVERSIONS)
def converting(dtype, shape, pair):
    source, target = pair

    @T.prim_func
    def main(X: T.Tensor(shape, source), Y: T.Tensor(shape, target), Z: T.Tensor(shape, target)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared(shape, source)
            b = T.alloc_fragment(shape, target)
            T.copy(X, a)
            T.copy(a, b)
            T.copy(b, Y)
            T.copy(a, Z)

    x = draw(source, shape, -100, 100)
    if source == "float8_e5m2":
        x = draw("float32", shape, -100, 100).to(held(source))
    want = out(bounded(x.to(held(target))), target)
    return built(main, [x], want, want)

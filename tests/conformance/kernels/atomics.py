"""T.atomic_*: of elements and of tiles, in global and shared memory."""

import tilelang.language as T
import torch

from ..bounded import bounded, held, is_float
from ..registry import built, conforms, draw, out, wrapped

ADDABLE = ("float16", "bfloat16", "float32", "float64", "int32", "uint32")
COMPARABLE = ("float32", "float16", "int32", "uint32")


def summed(x: torch.Tensor, start: torch.Tensor, dtype: str, dim: int):
    """start + the sum of x along a dimension, in any order."""
    if not is_float(dtype):
        return wrapped(start.to(torch.int64) + x.to(torch.int64).sum(dim), dtype)
    exact = bounded(start) + bounded(x).sum(dim)
    magnitude = start.double().abs() + x.double().abs().sum(dim)
    return exact.accumulated(magnitude, x.shape[dim] + 1, held(dtype))


@conforms("T.atomic_add of elements", dtypes=ADDABLE, shapes=[(8, 64), (5, 96)])
def add_elements(dtype, shape):
    """Every block adds its row."""
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            for j in T.Parallel(n):
                T.atomic_add(Y[j], X[bx, j])

    x, start = draw(dtype, shape), draw(dtype, (n,))
    return built(main, [x], out(summed(x, start, dtype, 0), dtype, start=start))


@conforms("T.atomic_add, several iterations on one element", dtypes=["float32", "int32"], shapes=[(256,), (640,)])
def histogram(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(I: T.Tensor((n,), "int32"), Y: T.Tensor((16,), dtype)):
        with T.Kernel(n // 64, threads=64) as bx:
            for i in T.Parallel(64):
                T.atomic_add(Y[I[bx * 64 + i]], T.cast(1, dtype))

    index, start = draw("int32", shape, 0, 16), torch.zeros(16, dtype=held(dtype))
    return built(main, [index], out(torch.bincount(index, minlength=16).to(held(dtype)), dtype, start=start))


@conforms("T.atomic_add in shared memory", dtypes=["int32", "float32"], shapes=[(256,), (640,)])
def shared_histogram(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(I: T.Tensor((n,), "int32"), Y: T.Tensor((32,), dtype)):
        with T.Kernel(n // 128, threads=64) as bx:
            s = T.alloc_shared((32,), dtype)
            T.clear(s)
            for i in T.Parallel(128):
                T.atomic_add(s[I[bx * 128 + i]], T.cast(1, dtype))
            for j in T.Parallel(32):
                T.atomic_add(Y[j], s[j])

    index, start = draw("int32", shape, 0, 32), torch.zeros(32, dtype=held(dtype))
    return built(main, [index], out(torch.bincount(index, minlength=32).to(held(dtype)), dtype, start=start))


@conforms(
    "T.atomic_add of a tile",
    dtypes=["float16", "bfloat16", "float32", "int32"],
    shapes=[(4, 64), (3, 128)],
    scope=("fragment", "shared"),
)
def add_tile(dtype, shape, scope):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            if scope == "fragment":
                a = T.alloc_fragment((n,), dtype)
            else:
                a = T.alloc_shared((n,), dtype)
            T.copy(X[bx, 0:n], a)
            T.atomic_add(Y, a)

    x, start = draw(dtype, shape), draw(dtype, (n,))
    return built(main, [x], out(summed(x, start, dtype, 0), dtype, start=start))


@conforms(
    "T.atomic_add of a tile into a region, with tails", dtypes=["float32"], shapes=[(3, 20, 40), (2, 32, 64)]
)
def add_region(dtype, shape):
    count, m, n = shape

    @T.prim_func
    def main(X: T.Tensor((count, m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), count, threads=64) as (bx, by, bz):
            a = T.alloc_shared((16, 32), dtype)
            T.copy(X[bz, by * 16, bx * 32], a)
            T.atomic_add(Y[by * 16, bx * 32], a)

    x, start = draw(dtype, shape), draw(dtype, (m, n))
    return built(main, [x], out(summed(x, start, dtype, 0), dtype, start=start))


@conforms(
    "T.atomic_max, atomic_min of elements", dtypes=COMPARABLE, shapes=[(8, 64), (5, 96)], kind=("max", "min")
)
def extreme_elements(dtype, shape, kind):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            for j in T.Parallel(n):
                getattr(T, f"atomic_{kind}")(Y[j], X[bx, j])

    x, start = draw(dtype, shape), draw(dtype, (n,))
    both = torch.cat((x, start[None])).double()
    found = both.amax(0) if kind == "max" else both.amin(0)
    return built(main, [x], out(found.to(held(dtype)), dtype, start=start))


@conforms(
    "T.atomic_max, atomic_min of a tile",
    dtypes=["float32", "int32"],
    shapes=[(4, 64), (3, 128)],
    kind=("max", "min"),
)
def extreme_tile(dtype, shape, kind):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            a = T.alloc_fragment((n,), dtype)
            T.copy(X[bx, 0:n], a)
            getattr(T, f"atomic_{kind}")(Y, a)

    x, start = draw(dtype, shape), draw(dtype, (n,))
    both = torch.cat((x, start[None])).double()
    found = both.amax(0) if kind == "max" else both.amin(0)
    return built(main, [x], out(found.to(held(dtype)), dtype, start=start))


@conforms("T.atomic_or", dtypes=["int32", "uint32"], shapes=[(8, 64), (5, 96)])
def or_elements(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            for j in T.Parallel(n):
                T.atomic_or(Y[j], X[bx, j])

    x, start = draw(dtype, shape, 0, 1000), draw(dtype, (n,), 0, 1000)
    found = start.to(torch.int64)
    for row in x.to(torch.int64):
        found = found | row
    return built(main, [x], out(found, dtype, start=start))


@conforms(
    "T.atomic_*, return_prev",
    dtypes=["float32", "int32"],
    shapes=[(64,), (96,)],
    kind=("add", "max", "min"),
)
def previous(dtype, shape, kind):
    """Each element is changed once, so what was there before has one value."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(n // 32, threads=32) as bx:
            for i in T.Parallel(32):
                Z[bx * 32 + i] = getattr(T, f"atomic_{kind}")(Y[bx * 32 + i], X[bx * 32 + i], return_prev=True)

    x, start = draw(dtype, shape), draw(dtype, shape)
    if kind == "add":
        after = summed(x[None], start, dtype, 0)
    else:
        after = torch.maximum(x, start) if kind == "max" else torch.minimum(x, start)
    return built(main, [x], out(start, dtype), out(after, dtype, start=start))


@conforms(
    "T.atomic_add, memory_order",
    dtypes=["float32", "int32"],
    shapes=[(4, 64), (7, 32)],
    order=("relaxed", "acq_rel", "seq_cst"),
)
def ordered(dtype, shape, order):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            for j in T.Parallel(n):
                T.atomic_add(Y[j], X[bx, j], memory_order=order)

    x, start = draw(dtype, shape), draw(dtype, (n,))
    return built(main, [x], out(summed(x, start, dtype, 0), dtype, start=start))


@conforms("T.atomic_load, atomic_store", dtypes=["int32", "float32"], shapes=[(64,), (96,)])
def loaded_and_stored(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                T.atomic_store(Y[i], T.atomic_load(X[i], memory_order="relaxed"), memory_order="relaxed")

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))


@conforms("T.atomic_addx2", dtypes=["float16", "bfloat16", "float32"], shapes=[(4, 64), (3, 128)])
def add_pairs(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            for j in T.Parallel(n // 2):
                T.atomic_addx2(Y[j * 2], X[bx, j * 2])

    x, start = draw(dtype, shape), draw(dtype, (n,))
    return built(main, [x], out(summed(x, start, dtype, 0), dtype, start=start))


@conforms("T.atomic_addx4", dtypes=["float32"], shapes=[(4, 128), (3, 256)])
def add_fours(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            for j in T.Parallel(n // 4):
                T.atomic_addx4(Y[j * 4], X[bx, j * 4])

    x, start = draw(dtype, shape), draw(dtype, (n,))
    return built(main, [x], out(summed(x, start, dtype, 0), dtype, start=start))


@conforms("T.atomic_add outside T.Parallel", dtypes=["int32"], shapes=[(4, 32), (6, 64)])
def add_by_each_thread(dtype, shape):
    """Every thread of the block adds once."""
    blocks, threads = shape

    @T.prim_func
    def main(Y: T.Tensor((1,), dtype)):
        with T.Kernel(blocks, threads=threads) as _bx:
            T.atomic_add(Y[0], 1)

    start = torch.tensor([5], dtype=torch.int32)
    return built(main, [], out(torch.tensor([5 + blocks * threads], dtype=torch.int32), dtype, start=start))

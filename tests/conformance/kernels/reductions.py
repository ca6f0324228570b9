"""T.reduce_* of every kind, reducers, T.any_of and T.all_of."""

import tilelang.language as T
import torch

from ..bounded import UNIT, bounded, held, is_float
from ..registry import FLOATS, built, conforms, draw, out, wide, wrapped

#: Kind -> the exact reduction of float64 or int64 values along a dimension, and how it joins what was there.
KINDS = {
    "sum": (lambda x, d: x.sum(d), torch.add),
    "abssum": (lambda x, d: x.abs().sum(d), torch.add),
    "max": (lambda x, d: x.amax(d), torch.maximum),
    "min": (lambda x, d: x.amin(d), torch.minimum),
    "absmax": (lambda x, d: x.abs().amax(d), torch.maximum),
}


def folded(join, start: int):
    """A bitwise reduction of integers along a dimension."""

    def reduce(x: torch.Tensor, dim: int) -> torch.Tensor:
        result = torch.full_like(x.select(dim, 0), start)
        for part in x.unbind(dim):
            result = join(result, part)
        return result

    return reduce


BITS = {
    "bitand": (folded(torch.bitwise_and, -1), torch.bitwise_and),
    "bitor": (folded(torch.bitwise_or, 0), torch.bitwise_or),
    "bitxor": (folded(torch.bitwise_xor, 0), torch.bitwise_xor),
}


def right(kind: str, x: torch.Tensor, dtype: str, dim: int, start: float | None = None):
    """The reduction of x with its bound; ``start`` is what was in the target, if it isn't cleared."""
    reduce, join = (KINDS | BITS)[kind]
    if not is_float(dtype):
        values = x.to(torch.int64)
        result = reduce(values, dim)
        if start is not None:
            result = join(result, torch.full_like(result, int(start)))
        return out(wrapped(result, dtype), dtype)
    values = bounded(x)
    exact = reduce(values.value, dim)
    if start is not None:
        exact = join(exact, torch.full_like(exact, start))
    result = bounded(exact)
    if kind.endswith("sum"):
        magnitude = values.value.abs().sum(dim) + abs(start or 0)
        result = result.accumulated(magnitude, x.shape[dim] + 1, held(dtype))
    return out(result, dtype)


@conforms(
    "T.reduce_sum, abssum, max, min, absmax",
    dtypes=FLOATS,
    shapes=[(16, 32), (64, 16)],
    kind=KINDS,
    dim=(0, 1),
)
def reduce(dtype, shape, kind, dim):
    size = shape[1 - dim]

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((size,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((size,), dtype)
            T.copy(X, x)
            getattr(T, f"reduce_{kind}")(x, y, dim=dim)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], right(kind, x, dtype, dim))


@conforms(
    "T.reduce_* of integers", dtypes=["int32", "int64", "uint32"], shapes=[(16, 32), (64, 16)], kind=KINDS | BITS
)
def reduce_integers(dtype, shape, kind):
    if kind in BITS:
        x = wide(dtype, shape)
    else:
        x = draw(dtype, shape, -100, 100)

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((shape[0],), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((shape[0],), dtype)
            T.copy(X, x)
            getattr(T, f"reduce_{kind}")(x, y, dim=-1)
            T.copy(y, Y)

    return built(main, [x], right(kind, x, dtype, 1))


@conforms(
    "T.reduce_* of narrow integers",
    dtypes=["int8", "int16", "uint8", "uint16"],
    shapes=[(16, 32), (32, 64)],
    kind=("sum", "max", "bitor"),
)
def reduce_narrow_integers(dtype, shape, kind):
    return reduce_integers(dtype, shape, kind)


@conforms(
    "T.reduce_*, clear=False",
    dtypes=["float16", "float32", "int32"],
    shapes=[(16, 32), (64, 64)],
    kind=("sum", "max", "min", "absmax"),
    dim=(0, 1),
)
def reduce_onto(dtype, shape, kind, dim):
    size = shape[1 - dim]

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((size,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((size,), dtype)
            T.copy(X, x)
            T.fill(y, 2)
            getattr(T, f"reduce_{kind}")(x, y, dim=dim, clear=False)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], right(kind, x, dtype, dim, start=2))


@conforms("T.reduce_*, clear=False", dtypes=["int32"], shapes=[(16, 32), (64, 64)], kind=BITS)
def reduce_bits_onto(dtype, shape, kind):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((shape[0],), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((shape[0],), dtype)
            T.copy(X, x)
            T.fill(y, 0x0F0F0F)
            getattr(T, f"reduce_{kind}")(x, y, dim=1, clear=False)
            T.copy(y, Y)

    x = wide(dtype, shape)
    return built(main, [x], right(kind, x, dtype, 1, start=0x0F0F0F))


@conforms(
    "T.reduce_* in blocks", dtypes=["float16", "float32"], shapes=[(64, 256), (32, 512)], kind=("sum", "max")
)
def reduce_rows_of_blocks(dtype, shape, kind):
    """A running reduction over tiles of columns, four warps a block."""
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m,), "float32")):
        with T.Kernel(m // 16, threads=128) as bx:
            x = T.alloc_fragment((16, 128), "float32")
            y = T.alloc_fragment((16,), "float32")
            T.fill(y, 0 if kind == "sum" else -T.infinity("float32"))
            for k in T.serial(n // 128):
                T.copy(X[bx * 16, k * 128], x)
                getattr(T, f"reduce_{kind}")(x, y, dim=1, clear=False)
            T.copy(y, Y[bx * 16])

    x = draw(dtype, shape)
    return built(main, [x], right(kind, x.float(), "float32", 1))


@conforms("T.reduce_* of rank 3", dtypes=["float32"], shapes=[(4, 16, 32), (2, 32, 64)], dim=(0, 1, 2))
def reduce_rank_3(dtype, shape, dim):
    kept = tuple(size for axis, size in enumerate(shape) if axis != dim)

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(kept, dtype)):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment(kept, dtype)
            T.copy(X, x)
            T.reduce_sum(x, y, dim=dim)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], right("sum", x, dtype, dim))


@conforms("T.reduce_* to one value", dtypes=["float32", "int32"], shapes=[(64,), (256,)], kind=("sum", "max"))
def reduce_rank_1(dtype, shape, kind):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((1,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((1,), dtype)
            T.copy(X, x)
            getattr(T, f"reduce_{kind}")(x, y, dim=0)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], right(kind, x[None], dtype, 1))


@conforms(
    "T.reduce_* of shared memory", dtypes=["float16", "float32"], shapes=[(16, 32), (64, 64)], kind=("sum", "max")
)
def reduce_shared(dtype, shape, kind):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((shape[0],), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_shared(shape, dtype)
            y = T.alloc_shared((shape[0],), dtype)
            T.copy(X, x)
            getattr(T, f"reduce_{kind}")(x, y, dim=1)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], right(kind, x, dtype, 1))


@conforms("T.reduce_*, batch", dtypes=["float32"], shapes=[(32, 64), (16, 128)], kind=("sum", "max"))
def reduce_in_batches(dtype, shape, kind):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((shape[0],), dtype)):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((shape[0],), dtype)
            T.copy(X, x)
            getattr(T, f"reduce_{kind}")(x, y, dim=1, batch=4)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], right(kind, x, dtype, 1))


@conforms(
    "T.reduce_max, min, absmax, NaN", dtypes=FLOATS, shapes=[(8, 32), (16, 64)], kind=("max", "min", "absmax")
)
def reduce_past_nan(dtype, shape, kind):
    """Without nan_propagate, a number wins over NaN."""

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((shape[0],), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((shape[0],), dtype)
            T.copy(X, x)
            getattr(T, f"reduce_{kind}")(x, y, dim=1)
            T.copy(y, Y)

    x = draw(dtype, shape)
    x[::3, 5] = float("nan")
    reduce = KINDS[kind][0]
    filler = 0.0 if kind == "absmax" else (float("-inf") if kind == "max" else float("inf"))
    return built(
        main, [x], out(reduce(x.double().nan_to_num(nan=filler, posinf=torch.inf, neginf=-torch.inf), 1), dtype)
    )


@conforms(
    "T.reduce_max, min, absmax, nan_propagate",
    dtypes=["float16", "bfloat16"],
    shapes=[(8, 32), (16, 64)],
    kind=("max", "min", "absmax"),
)
def reduce_to_nan(dtype, shape, kind):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((shape[0],), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((shape[0],), dtype)
            T.copy(X, x)
            getattr(T, f"reduce_{kind}")(x, y, dim=1, nan_propagate=True)
            T.copy(y, Y)

    x = draw(dtype, shape)
    x[::3, 5] = float("nan")
    return built(main, [x], out(KINDS[kind][0](x.double(), 1), dtype))


@conforms("T.reduce_* between dtypes", dtypes=["float16", "bfloat16"], shapes=[(16, 32), (64, 64)])
def reduce_into_single(dtype, shape):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor((shape[0],), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment(shape, dtype)
            y = T.alloc_fragment((shape[0],), "float32")
            T.copy(X, x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], right("sum", x.float(), "float32", 1))


# Reducers

REDUCERS = {
    "sum": KINDS["sum"][0],
    "max": KINDS["max"][0],
    "min": KINDS["min"][0],
}


@conforms("T.alloc_reducer", dtypes=["float32", "int32"], shapes=[(16, 64), (32, 256)], op=REDUCERS)
def reducer(dtype, shape, op):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((m, 64), dtype)
            y = T.alloc_reducer((m,), dtype, op=op)
            z = T.alloc_fragment((m,), dtype)
            T.reducer_init(y)
            for k in T.serial(n // 64):
                T.copy(X[0, k * 64], x)
                for i, j in T.Parallel(m, 64):
                    T.reducer_update(y[i], x[i, j])
            T.finalize_reducer(y, z)
            T.copy(z, Y)

    x = draw(dtype, shape)
    return built(main, [x], right(op, x, dtype, 1))


@conforms("T.alloc_reducer of bits", dtypes=["int32", "uint32"], shapes=[(16, 64), (32, 256)], op=BITS)
def reducer_of_bits(dtype, shape, op):
    made = reducer(dtype, shape, op)
    x = made.inputs[0]
    return built(made.kernel, [x], right(op, x, dtype, 1))


@conforms("T.reducer_init with a start", dtypes=["float32", "int32"], shapes=[(16, 64), (32, 128)], op=REDUCERS)
def reducer_from(dtype, shape, op):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((m, n), dtype)
            y = T.alloc_reducer((m,), dtype, op=op)
            z = T.alloc_fragment((m,), dtype)
            T.copy(X, x)
            T.reducer_init(y, 3)
            for i, j in T.Parallel(m, n):
                T.reducer_update(y[i], x[i, j])
            T.finalize_reducer(y, z)
            T.copy(z, Y)

    x = draw(dtype, shape)
    return built(main, [x], right(op, x, dtype, 1, start=3))


@conforms("T.alloc_reducer along columns", dtypes=["float32"], shapes=[(16, 64), (64, 32)])
def reducer_of_columns(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment((m, n), dtype)
            y = T.alloc_reducer((n,), dtype, op="sum")
            z = T.alloc_fragment((n,), dtype)
            T.copy(X, x)
            T.reducer_init(y)
            for i, j in T.Parallel(m, n):
                T.reducer_update(y[j], x[i, j] * x[i, j])
            T.finalize_reducer(y, z)
            T.copy(z, Y)

    x = draw(dtype, shape)
    squares = (bounded(x) * bounded(x)).rounded(torch.float32)
    want = squares.sum(0).accumulated(squares.value.sum(0) * (1 + UNIT[torch.float32]), m)
    return built(main, [x], out(want, dtype))


@conforms(
    "T.alloc_reducer, replication", dtypes=["float32"], shapes=[(16, 64), (32, 128)], replication=("all", "none")
)
def reducer_of_old(dtype, shape, replication):
    """The form before 0.1.15: a fragment that is finalised in place."""
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((m, n), dtype)
            y = T.alloc_reducer((m,), dtype, op="sum", replication=replication)
            T.copy(X, x)
            T.clear(y)
            for i, j in T.Parallel(m, n):
                y[i] += x[i, j]
            T.finalize_reducer(y)
            T.copy(y, Y)

    x = draw(dtype, shape)
    return built(main, [x], right("sum", x, dtype, 1))


# Truth values


@conforms("T.any_of, all_of", dtypes=["int32"], shapes=[(6, 32), (9, 64)])
def any_and_all(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, 2), dtype)):
        with T.Kernel(m, threads=32) as bx:
            x = T.alloc_shared((n,), "bool")
            for j in T.Parallel(n):
                x[j] = X[bx, j] > 0
            Y[bx, 0] = T.if_then_else(T.any_of(x), 1, 0)
            if T.all_of(x):
                Y[bx, 1] = 1
            else:
                Y[bx, 1] = 0

    x = draw(dtype, shape)
    x[0], x[1] = 1, -1
    y = torch.stack(((x > 0).any(1), (x > 0).all(1)), dim=1)
    return built(main, [x], out(y.to(torch.int32), dtype))


@conforms("T.any_of, all_of of a part", dtypes=["int32"], shapes=[(6, 32), (9, 64)])
def any_and_all_of_a_part(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, 2), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_shared((m, n), "bool")
            for i, j in T.Parallel(m, n):
                x[i, j] = X[i, j] > 0
            for i in T.serial(m):
                Y[i, 0] = T.if_then_else(T.any_of(x[i, 0:8]), 1, 0)
                Y[i, 1] = T.if_then_else(T.all_of(x[i, 8:16]), 1, 0)

    x = draw(dtype, shape)
    x[0], x[1], x[2, 8:16] = 1, -1, 1
    y = torch.stack(((x[:, :8] > 0).any(1), (x[:, 8:16] > 0).all(1)), dim=1)
    return built(main, [x], out(y.to(torch.int32), dtype))

"""T.cumsum and T.cummax."""

import tilelang.language as T
import torch

from ..bounded import bounded, held, is_float
from ..registry import built, conforms, draw, out, wrapped


def scanned(kind: str, x: torch.Tensor, dtype: str, dim: int, reverse: bool):
    """The right scan of x; float sums may be done in any order."""

    def along(function, values: torch.Tensor) -> torch.Tensor:
        return function(values.flip(dim)).flip(dim) if reverse else function(values)

    if kind == "cummax":
        return out(along(lambda t: t.cummax(dim).values, x.double() if is_float(dtype) else x), dtype)
    if not is_float(dtype):
        return out(wrapped(along(lambda t: t.cumsum(dim), x.to(torch.int64)), dtype), dtype)
    exact = bounded(along(lambda t: t.cumsum(dim), x.double()))
    magnitude = along(lambda t: t.cumsum(dim), x.double().abs())
    return out(exact.accumulated(magnitude, x.shape[dim], held(dtype)), dtype)


KINDS = ("cumsum", "cummax")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32")


@conforms("T.cumsum, cummax of rank 2", dtypes=DTYPES, shapes=[(32, 64), (64, 32)], kind=KINDS, dim=(0, 1))
def scan(dtype, shape, kind, dim):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_shared(shape, dtype)
            b = T.alloc_shared(shape, dtype)
            T.copy(X, a)
            getattr(T, kind)(a, b, dim=dim)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], scanned(kind, x, dtype, dim, False))


@conforms(
    "T.cumsum, cummax, reverse", dtypes=["float32", "int32"], shapes=[(32, 64), (16, 96)], kind=KINDS, dim=(0, 1)
)
def scan_in_reverse(dtype, shape, kind, dim):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_shared(shape, dtype)
            T.copy(X, a)
            getattr(T, kind)(a, dim=dim, reverse=True)
            T.copy(a, Y)

    x = draw(dtype, shape)
    return built(main, [x], scanned(kind, x, dtype, dim, True))


@conforms(
    "T.cumsum, cummax of rank 1",
    dtypes=["float32", "int32"],
    shapes=[(64,), (300,)],
    kind=KINDS,
    reverse=(False, True),
)
def scan_rank_1(dtype, shape, kind, reverse):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_shared(shape, dtype)
            for i in T.serial(shape[0]):
                a[i] = X[i]
            getattr(T, kind)(a, dim=0, reverse=reverse)
            for i in T.serial(shape[0]):
                Y[i] = a[i]

    x = draw(dtype, shape)
    return built(main, [x], scanned(kind, x, dtype, 0, reverse))


@conforms("T.cumsum, cummax of a fragment", dtypes=["float32", "float16"], shapes=[(32, 64), (64, 32)], kind=KINDS)
def scan_fragment(dtype, shape, kind):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_fragment(shape, dtype)
            b = T.alloc_fragment(shape, dtype)
            T.copy(X, a)
            getattr(T, kind)(a, b, dim=-1)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], scanned(kind, x, dtype, 1, False))


@conforms("T.cumsum, cummax of a part", dtypes=["float32", "int32"], shapes=[(4, 64), (3, 128)], kind=KINDS)
def scan_part(dtype, shape, kind):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((m * n,), dtype)
            for i in T.Parallel(m * n):
                a[i] = X[i // n, i % n]
            for k in T.serial(m):
                getattr(T, kind)(a[k * n : (k + 1) * n], dim=0)
            for i in T.Parallel(m * n):
                Y[i // n, i % n] = a[i]

    x = draw(dtype, shape)
    return built(main, [x], scanned(kind, x, dtype, 1, False))

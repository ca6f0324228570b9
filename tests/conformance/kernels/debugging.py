"""T.print, T.device_assert, T.assume: nothing that they do changes a result."""

import tilelang.language as T

from ..bounded import bounded, held
from ..registry import built, conforms, draw, out

KINDS = ("message", "expression", "shared", "fragment", "local", "global")


@conforms("T.print", dtypes=["float32", "float16", "int32"], shapes=[(32,), (64,)], kind=KINDS)
def printed(dtype, shape, kind):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((n,), dtype)
            b = T.alloc_fragment((n,), dtype)
            c = T.alloc_local((2,), dtype)
            T.copy(X, a)
            T.copy(a, b)
            if kind == "message":
                T.print(msg="here")
            elif kind == "expression":
                if bx == 0:
                    T.print(bx + 1, msg="block")
            elif kind == "shared":
                T.print(a)
            elif kind == "fragment":
                T.print(b, msg="b")
            elif kind == "global":
                T.print(X)
            else:
                c[0] = T.cast(1, dtype)
                c[1] = T.cast(2, dtype)
                T.print(c)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))


@conforms("T.device_assert", dtypes=["float32", "int32"], shapes=[(64,), (96,)], message=(False, True))
def asserted(dtype, shape, message):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(n // 32, threads=32) as bx:
            if message:
                T.device_assert(bx < n, "too many blocks")
            else:
                T.device_assert(bx * 32 < n)
            for i in T.Parallel(32):
                T.device_assert(X[bx * 32 + i] < T.cast(5, dtype))
                Y[bx * 32 + i] = X[bx * 32 + i]

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))


@conforms("T.assume", dtypes=["float16", "float32"], shapes=[(64,), (256,)])
def assumed(dtype, shape):
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 64), threads=32) as bx:
            T.assume(n % 64 == 0)
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] + X[bx * 64 + i]

    x = draw(dtype, shape)
    return built(main, [x], out((bounded(x) + bounded(x)).rounded(held(dtype)), dtype))


@conforms("T.likely", dtypes=["float32"], shapes=[(60,), (100,)], uncompilable="Unresolved call tirx.likely")
def likely(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                if T.likely(bx * 32 + i < n):
                    Y[bx * 32 + i] = X[bx * 32 + i]

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))

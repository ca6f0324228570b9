"""Buffers of every scope, T.fill and T.clear, and views of one storage: reshape, view."""

import tilelang.language as T
import torch

from ..bounded import bounded, held, is_float
from ..registry import ALL, FLOATS, INTEGERS, built, conforms, draw, out

#: TileLang moves tiles in vectors, and has none of truth values: see bool_tile.
VECTORS = ALL[1:]

#: The scopes of T.alloc_shared: "shared" is static shared memory.
ROUND_TRIP = ("shared", "shared.dyn", "fragment")


@conforms("T.alloc_shared, alloc_fragment", dtypes=VECTORS, shapes=[(16, 32), (12, 64)], scope=ROUND_TRIP)
def round_trip(dtype, shape, scope):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            if scope == "fragment":
                a = T.alloc_fragment((m, n), dtype)
            else:
                a = T.alloc_shared((m, n), dtype, scope=scope)
            T.copy(X, a)
            T.copy(a, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))


def _bool_tile(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((m, n), dtype)
            b = T.alloc_fragment((m, n), dtype)
            T.copy(X, a)
            T.copy(a, b)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))


@conforms("T.alloc_shared, alloc_fragment of bool", dtypes=["bool"], shapes=[(1, 32), (4, 8)])
def bool_tile(dtype, shape):
    return _bool_tile(dtype, shape)


@conforms(
    "T.alloc_shared, alloc_fragment of bool, several a thread",
    dtypes=["bool"],
    shapes=[(16, 32), (12, 64)],
    uncompilable="Cannot convert type to CUDA type",
)
def bool_tile_in_vectors(dtype, shape):
    return _bool_tile(dtype, shape)


@conforms("T.alloc_local", dtypes=["float16", "float32", "int32"], shapes=[(64, 4), (96, 7)])
def local_memory(dtype, shape):
    n, width = shape

    @T.prim_func
    def main(X: T.Tensor((n, width), dtype), Y: T.Tensor((n, width), dtype)):
        with T.Kernel(n // 32, threads=32) as bx:
            own = T.alloc_local((width,), dtype)
            for i in T.Parallel(32):
                for j in T.serial(width):
                    own[j] = X[bx * 32 + i, j]
                for j in T.serial(width):
                    Y[bx * 32 + i, j] = own[width - 1 - j]

    x = draw(dtype, shape)
    return built(main, [x], out(x.flip(1), dtype))


@conforms("T.alloc_var", dtypes=["bool", *FLOATS, *INTEGERS], shapes=[(3,), (8,)])
def variable(dtype, shape):
    (n,) = shape
    first = True if dtype == "bool" else 3

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            v = T.alloc_var(dtype, init=first)
            for i in T.serial(n):
                Y[i] = v
                v = X[i]

    x = draw(dtype, shape)
    y = torch.cat((torch.tensor([first]).to(x.dtype), x[:-1]))
    return built(main, [x], out(y, dtype))


@conforms("T.alloc_var", dtypes=["int32", "float32"], shapes=[(5,), (12,)])
def variable_from_an_expression(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(n, threads=32) as bx:
            v = T.alloc_var(dtype, X[bx] * 2)
            w = T.alloc_var(dtype, init=v + 1, scope="local.var")
            v = w * w
            Y[bx] = v - w

    x = draw(dtype, shape)
    if dtype == "int32":
        w = 2 * x.to(torch.int64) + 1
        return built(main, [x], out(w * w - w, dtype))
    w = (bounded(x) * 2.0 + 1.0).rounded(torch.float32)
    y = ((w * w).rounded(torch.float32) - w).rounded(torch.float32)
    return built(main, [x], out(y, dtype))


@conforms("T.alloc_var", dtypes=["int32"], shapes=[(10,), (33,)])
def variable_counts(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((2,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            total = T.alloc_var(dtype)
            most = T.alloc_var(dtype, init=-1000)
            total = 0
            for i in T.serial(n):
                total = total + X[i]
                most = T.max(most, X[i])
            Y[0] = total
            Y[1] = most

    x = draw(dtype, shape, -50, 50)
    return built(main, [x], out(torch.stack((x.sum(), x.max())), dtype))


@conforms("T.fill", dtypes=VECTORS, shapes=[(16, 32), (12, 24)], scope=ROUND_TRIP[1:])
def filled(dtype, shape, scope):
    m, n = shape
    number = 2.5 if is_float(dtype) else 7

    @T.prim_func
    def main(Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            if scope == "fragment":
                a = T.alloc_fragment((m, n), dtype)
            else:
                a = T.alloc_shared((m, n), dtype, scope=scope)
            T.fill(a, number)
            T.copy(a, Y)

    y = torch.full(shape, number, dtype=torch.float64).to(held(dtype))
    return built(main, [], out(y, dtype))


@conforms("T.clear", dtypes=VECTORS, shapes=[(16, 32), (12, 24)])
def cleared(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_fragment((m, n), dtype)
            T.copy(X, a)
            T.clear(a)
            T.copy(a, Y)

    return built(main, [draw(dtype, shape)], out(torch.zeros(shape).to(held(dtype)), dtype))


@conforms("T.fill of a part", dtypes=["float16", "float32", "int8", "int32"], shapes=[(16, 32), (10, 48)])
def filled_part(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((m, n), dtype)
            T.copy(X, a)
            T.fill(a[2:5, 8:16], -3)
            T.clear(a[0:2, :])
            T.copy(a, Y)

    x = draw(dtype, shape)
    y = x.clone()
    y[2:5, 8:16] = -3
    y[:2] = 0
    return built(main, [x], out(y, dtype))


@conforms("T.fill of global memory", dtypes=["float32", "int32"], shapes=[(64,), (192,)])
def filled_global(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            T.fill(Y, 4)

    return built(main, [], out(torch.full(shape, 4).to(held(dtype)), dtype))


@conforms("T.fill with a computed value", dtypes=["float16", "float32", "int32"], shapes=[(3, 32), (5, 64)])
def filled_by_block(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m,), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=32) as bx:
            a = T.alloc_fragment((n,), dtype)
            T.fill(a, X[bx] + T.cast(bx, dtype))
            T.copy(a, Y[bx, 0])

    x = draw(dtype, (m,))
    if dtype == "int32":
        return built(main, [x], out((x + torch.arange(m))[:, None].expand(m, n), dtype))
    y = (bounded(x) + bounded(torch.arange(m).double())).rounded(held(dtype))
    return built(main, [x], out(y.move(lambda t: t[:, None].expand(m, n)), dtype))


@conforms("T.infinity", dtypes=FLOATS, shapes=[(32,), (96,)])
def infinite(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((2, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_fragment((n,), dtype)
            T.fill(a, -T.infinity(dtype))
            T.copy(a, Y[0, 0])
            for i in T.Parallel(n):
                Y[1, i] = T.if_then_else(X[i] > 0, T.infinity(dtype), X[i])

    x = draw(dtype, shape)
    inf = torch.tensor(float("inf"), dtype=x.dtype)
    y = torch.stack((-inf.expand(n), torch.where(x > 0, inf, x)))
    return built(main, [x], out(y, dtype))


@conforms("T.min_value, max_value", dtypes=[*FLOATS, *INTEGERS], shapes=[(1,), (3,)])
def extremes(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(Y: T.Tensor((n, 2), dtype)):
        with T.Kernel(n, threads=32) as bx:
            Y[bx, 0] = T.min_value(dtype)
            Y[bx, 1] = T.max_value(dtype)

    # bfloat16's extremes are float32's in TileLang, which are infinite once they are rounded to it.
    limits = torch.float32 if dtype == "bfloat16" else held(dtype)
    info = torch.finfo(limits) if is_float(dtype) else torch.iinfo(limits)
    y = torch.tensor([info.min, info.max], dtype=held(dtype)).expand(n, 2)
    return built(main, [], out(y, dtype))


@conforms("T.reshape", dtypes=["float16", "float32", "int8"], shapes=[(16, 32), (8, 48)], scope=ROUND_TRIP[1:])
def reshaped(dtype, shape, scope):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m * 2, n // 2), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            if scope == "fragment":
                a = T.alloc_fragment((m, n), dtype)
            else:
                a = T.alloc_shared((m, n), dtype)
            b = T.reshape(a, (m * 2, n // 2))
            T.copy(X, a)
            for i, j in T.Parallel(m * 2, n // 2):
                b[i, j] = b[i, j] + T.cast(1, dtype)
            T.copy(b, Y)

    x = draw(dtype, shape)
    y = x.reshape(m * 2, n // 2)
    want = (bounded(y) + 1.0).rounded(held(dtype)) if is_float(dtype) else y.to(torch.int64) + 1
    return built(main, [x], out(want, dtype))


@conforms("T.reshape of a parameter", dtypes=["float16", "int32"], shapes=[(16, 32), (6, 40)])
def reshaped_parameter(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m * n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            flat = T.reshape(X, (m * n,))
            for i in T.Parallel(m * n):
                Y[i] = flat[m * n - 1 - i]

    x = draw(dtype, shape)
    return built(main, [x], out(x.flatten().flip(0), dtype))


#: dtype of the memory, dtype of the view
VIEWS = {"float32": "int32", "int32": "float32", "float16": "int16", "bfloat16": "uint16", "int8": "int32"}


@conforms("T.view of another dtype", dtypes=VIEWS, shapes=[(16, 32), (4, 24)])
def viewed(dtype, shape):
    m, n = shape
    other = VIEWS[dtype]
    columns = n * held(dtype).itemsize // held(other).itemsize

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, columns), other)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((m, n), dtype)
            b = T.view(a, (m, columns), other)
            T.copy(X, a)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x.view(held(other)), other))


@conforms(
    "T.view with strides",  # TileLang 0.1.15 copies it as if it had none (seen on an H200)
    dtypes=["float16", "float32"],
    shapes=[(16, 32), (8, 24)],
    refused="strided view",
)
def viewed_transposed(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n, m), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((m, n), dtype)
            b = T.view(a, (n, m), strides=(1, n))
            T.copy(X, a)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x.t(), dtype))


@conforms("T.transpose", dtypes=["float16", "bfloat16", "float32", "int8"], shapes=[(16, 32), (32, 64)])
def transposed_tile(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n, m), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((m, n), dtype)
            b = T.alloc_shared((n, m), dtype)
            T.copy(X, a)
            T.transpose(a, b)
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x.t(), dtype))


@conforms("T.transpose", dtypes=["float16"], shapes=[(3, 16, 32), (2, 32, 32)])
def transposed_part(dtype, shape):
    count, m, n = shape

    @T.prim_func
    def main(X: T.Tensor((count, m, n), dtype), Y: T.Tensor((count, n, m), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((count, m, n), dtype)
            b = T.alloc_shared((count, n, m), dtype)
            T.copy(X, a)
            for k in T.serial(count):
                T.transpose(a[k, 0:m, 0:n], b[k, 0:n, 0:m])
            T.copy(b, Y)

    x = draw(dtype, shape)
    return built(main, [x], out(x.transpose(1, 2), dtype))


@conforms("T.reinterpret", dtypes=["float32", "float16", "int32"], shapes=[(32,), (50,)])
def reinterpreted(dtype, shape):
    (n,) = shape
    other = VIEWS[dtype]

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), other)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[i] = T.reinterpret(X[i], other)

    x = draw(dtype, shape)
    return built(main, [x], out(x.view(held(other)), other))

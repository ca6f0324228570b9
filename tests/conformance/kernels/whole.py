"""Small whole kernels, as they are found in courses and libraries."""

import tilelang.language as T
import torch

from ..bounded import Bounded, bounded, held, product
from ..registry import built, conforms, draw, out
from .functions import off

SINGLE, HALF = torch.float32, torch.float16


def rows(value: Bounded, like: torch.Tensor) -> Bounded:
    """A value a row, for every column."""
    return value.move(lambda t: t[:, None].expand(like.shape))


def summed(value: Bounded, dim: int = 1) -> Bounded:
    """A sum in float32 of values that may be off themselves."""
    total = value.sum(dim)
    return total.accumulated((value.value.abs() + value.error).sum(dim), value.value.shape[dim])


@conforms("whole: vector add", dtypes=["float16", "bfloat16", "float32"], shapes=[(1024,), (1000,)])
def vector_add(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 256), threads=128) as bx:
            for i in T.Parallel(256):
                if bx * 256 + i < n:
                    C[bx * 256 + i] = A[bx * 256 + i] + B[bx * 256 + i]

    x, y = draw(dtype, shape), draw(dtype, shape)
    return built(main, [x, y], out((bounded(x) + bounded(y)).rounded(held(dtype)), dtype))


@conforms("whole: gemm, bias, GELU", dtypes=["float16", "bfloat16"], shapes=[(128, 128, 64), (100, 72, 160)])
def gemm_bias_gelu(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((k, n), dtype),
        bias: T.Tensor((n,), dtype),
        C: T.Tensor((m, n), dtype),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, 64), dtype)
            s = T.alloc_shared((64,), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, ko * 32], a)
                T.copy(B[ko * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(bias[bx * 64], s)
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] + T.cast(s[j], "float32")
            for i, j in T.Parallel(64, 64):
                c[i, j] = 0.5 * c[i, j] * (1.0 + T.erf(c[i, j] * 0.7071067811865475))
            T.copy(c, C[by * 64, bx * 64])

    x, y, z = draw(dtype, (m, k), -1, 1), draw(dtype, (k, n), -1, 1), draw(dtype, (n,))
    v = (product(x, y) + bounded(z.double().expand(m, n))).rounded(SINGLE)
    root = 0.7071067811865475
    inner = (v * root).rounded(SINGLE, 2)  # the constant is rounded, too
    wave = inner.through(torch.erf).rounded(SINGLE, 4)  # 2 ulp
    half = (v * 0.5).rounded(SINGLE)
    want = (half * (wave + 1.0).rounded(SINGLE)).rounded(SINGLE).rounded(held(dtype))
    return built(main, [x, y, z], out(want, dtype))


def softmax_of(x: Bounded) -> Bounded:
    shifted = (x - rows(x.amax(1), x.value)).rounded(SINGLE)
    weights = shifted.through(torch.exp).rounded(SINGLE, 4)
    return (weights / rows(summed(weights), x.value)).rounded(SINGLE)


@conforms("whole: softmax", dtypes=["float32", "float16"], shapes=[(32, 256), (10, 512)])
def softmax(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(m, 4), threads=128) as bx:
            x = T.alloc_fragment((4, n), "float32")
            top = T.alloc_fragment((4,), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(4, n):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(4, n):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * 4, 0])

    x = draw(dtype, shape)
    want = softmax_of(bounded(x))
    return built(main, [x], out(want if dtype == "float32" else want.rounded(held(dtype)), dtype))


@conforms("whole: online softmax", dtypes=["float32"], shapes=[(16, 256), (8, 640)])
def online_softmax(dtype, shape):
    """Two passes over tiles of columns, with a running maximum and sum."""
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m // 4, threads=64) as bx:
            x = T.alloc_fragment((4, 128), dtype)
            top = T.alloc_fragment((4,), dtype)
            before = T.alloc_fragment((4,), dtype)
            part = T.alloc_fragment((4,), dtype)
            total = T.alloc_fragment((4,), dtype)
            T.fill(top, -T.infinity(dtype))
            T.clear(total)
            for k in T.Pipelined(n // 128, num_stages=2):
                T.copy(X[bx * 4, k * 128], x)
                T.copy(top, before)
                T.reduce_max(x, top, dim=1, clear=False)
                for i, j in T.Parallel(4, 128):
                    x[i, j] = T.exp(x[i, j] - top[i])
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(4):
                    total[i] = total[i] * T.exp(before[i] - top[i]) + part[i]
            for k in T.serial(n // 128):
                T.copy(X[bx * 4, k * 128], x)
                for i, j in T.Parallel(4, 128):
                    x[i, j] = T.exp(x[i, j] - top[i]) / total[i]
                T.copy(x, Y[bx * 4, k * 128])

    x = draw(dtype, shape)
    exact = bounded(x)
    weights = (exact - rows(exact.amax(1), x)).rounded(SINGLE).through(torch.exp).rounded(SINGLE, 4)
    # A term is rescaled once a tile at most: an exponent rounded, 2 ulp of exp and a product, each time.
    rescaled = weights
    for _tile in range(n // 128):
        rescaled = rescaled.rounded(SINGLE, 1 + 4 + 1 + 8)  # |exponent| ≤ 8, whose rounding exp makes relative
    return built(main, [x], out((weights / rows(summed(rescaled), x)).rounded(SINGLE), dtype))


@conforms("whole: RMS norm", dtypes=["float16", "float32"], shapes=[(16, 256), (9, 512)])
def rms_norm(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), W: T.Tensor((n,), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=128) as bx:
            x = T.alloc_fragment((1, n), "float32")
            w = T.alloc_fragment((n,), "float32")
            square = T.alloc_fragment((1, n), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0], x)
            T.copy(W, w)
            for i, j in T.Parallel(1, n):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, total, dim=1)
            for i in T.Parallel(1):
                total[i] = T.rsqrt(total[i] / n + 1e-5)
            for i, j in T.Parallel(1, n):
                x[i, j] = x[i, j] * total[i] * w[j]
            T.copy(x, Y[bx, 0])

    x, w = draw(dtype, shape), draw(dtype, (n,))
    exact = bounded(x)
    mean = (summed((exact * exact).rounded(SINGLE)) / float(n)).rounded(SINGLE)
    scale = (mean + 1e-5).rounded(SINGLE, 2).through(torch.rsqrt).rounded(SINGLE, 4)
    y = (exact * rows(scale, x)).rounded(SINGLE) * bounded(w.double().expand(m, n))
    y = y.rounded(SINGLE)
    return built(main, [x, w], out(y if dtype == "float32" else y.rounded(held(dtype)), dtype))


@conforms("whole: layer norm", dtypes=["float32", "bfloat16"], shapes=[(16, 256), (9, 512)])
def layer_norm(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=128) as bx:
            x = T.alloc_fragment((n,), "float32")
            square = T.alloc_fragment((n,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            spread = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0:n], x)
            T.reduce_sum(x, mean, dim=0)
            for j in T.Parallel(n):
                x[j] = x[j] - mean[0] / n
            for j in T.Parallel(n):
                square[j] = x[j] * x[j]
            T.reduce_sum(square, spread, dim=0)
            for j in T.Parallel(n):
                x[j] = x[j] / T.sqrt(spread[0] / n + 1e-5)
            T.copy(x, Y[bx, 0:n])

    x = draw(dtype, shape)
    exact = bounded(x)
    mean = (summed(exact) / float(n)).rounded(SINGLE)
    centred = (exact - rows(mean, x)).rounded(SINGLE)
    spread = (summed((centred * centred).rounded(SINGLE)) / float(n)).rounded(SINGLE)
    root = (spread + 1e-5).rounded(SINGLE, 2).through(torch.sqrt).rounded(SINGLE)
    y = (centred / rows(root, x)).rounded(SINGLE)
    return built(main, [x], out(y if dtype == "float32" else y.rounded(held(dtype)), dtype))


@conforms(
    "whole: FlashAttention", dtypes=["float16"], shapes=[(1, 2, 128, 64), (2, 1, 192, 32)], causal=(False, True)
)
def attention(dtype, shape, causal):
    batch, heads, length, depth = shape
    scale = depth**-0.5 * 1.44269504  # exp2 takes the place of exp

    @T.prim_func
    def main(
        Q: T.Tensor((batch, length, heads, depth), dtype),
        K: T.Tensor((batch, length, heads, depth), dtype),
        V: T.Tensor((batch, length, heads, depth), dtype),
        O: T.Tensor((batch, length, heads, depth), dtype),
    ):
        with T.Kernel(T.ceildiv(length, 64), heads, batch, threads=128) as (bx, by, bz):
            q = T.alloc_shared((64, depth), dtype)
            k = T.alloc_shared((64, depth), dtype)
            v = T.alloc_shared((64, depth), dtype)
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), dtype)
            o = T.alloc_fragment((64, depth), "float32")
            top = T.alloc_fragment((64,), "float32")
            before = T.alloc_fragment((64,), "float32")
            rescale = T.alloc_fragment((64,), "float32")
            part = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.copy(Q[bz, bx * 64 : bx * 64 + 64, by, :], q)
            T.clear(o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            tiles = T.if_then_else(causal, bx + 1, T.ceildiv(length, 64))
            for t in T.Pipelined(tiles, num_stages=1):
                T.copy(K[bz, t * 64 : t * 64 + 64, by, :], k)
                if causal:
                    for i, j in T.Parallel(64, 64):
                        s[i, j] = T.if_then_else(bx * 64 + i >= t * 64 + j, 0, -T.infinity("float32"))
                else:
                    T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i in T.Parallel(64):
                    rescale[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(64, 64):
                    s[i, j] = T.exp2(s[i, j] * scale - top[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(64):
                    total[i] = total[i] * rescale[i] + part[i]
                for i, j in T.Parallel(64, depth):
                    o[i, j] = o[i, j] * rescale[i]
                T.copy(s, p)
                T.copy(V[bz, t * 64 : t * 64 + 64, by, :], v)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(64, depth):
                o[i, j] = o[i, j] / total[i]
            T.copy(o, O[bz, bx * 64 : bx * 64 + 64, by, :])

    q, k, v = (draw(dtype, (batch, length, heads, depth), -2, 2) for _tensor in range(3))
    heads_of = [
        [_attend(q[b, :, h], k[b, :, h], v[b, :, h], scale, causal) for h in range(heads)] for b in range(batch)
    ]
    want = Bounded(
        torch.stack([torch.stack([head.value for head in row], 1) for row in heads_of]),
        torch.stack([torch.stack([head.error for head in row], 1) for row in heads_of]),
    )
    return built(main, [q, k, v], out(want, dtype))


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> Bounded:
    """Attention of one head, as the kernel computes it: float32 scores, weights rounded to half for V."""
    length, tiles = len(q), (len(q) + 63) // 64
    scores = product(q, k.t().contiguous())
    scaled = (scores * scale).rounded(SINGLE, 2)
    hidden = torch.ones(length, length).triu(1).bool() if causal else torch.zeros(length, length).bool()
    seen = Bounded(scaled.value.masked_fill(hidden, -torch.inf), scaled.error)
    top = seen.amax(1)
    exponent = (scaled - rows(top, scaled.value)).rounded(SINGLE)
    # exp2 of an exponent that is off by e is off by a factor of 2**e; hidden scores weigh nothing.
    weights = exponent.through(torch.exp2).rounded(SINGLE, 4)
    weights = Bounded(weights.value.masked_fill(hidden, 0.0), weights.error.masked_fill(hidden, 0.0))
    # Rescaling: once a tile, by a factor that is off as a weight is. |exponent| of the factor is bounded by the
    # spread of the scores; its rounding is relative in exp2.
    spread = float(exponent.value.masked_fill(hidden, 0.0).abs().max())
    steps = tiles * (1 + 4 + spread)
    summands = weights.rounded(SINGLE, steps)
    total = summed(summands)
    halves = summands.rounded(HALF)
    mixed = halves @ bounded(v)
    magnitude = (halves.value.abs() + halves.error) @ v.double().abs()
    mixed = mixed.accumulated(magnitude, length)
    return (mixed / rows(total, mixed.value)).rounded(SINGLE).rounded(HALF)


@conforms("whole: GEMV", dtypes=["float16", "float32"], shapes=[(64, 256), (40, 384)])
def gemv(dtype, shape):
    m, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), X: T.Tensor((k,), dtype), Y: T.Tensor((m,), "float32")):
        with T.Kernel(T.ceildiv(m, 16), threads=128) as bx:
            a = T.alloc_fragment((16, 128), dtype)
            x = T.alloc_fragment((128,), dtype)
            p = T.alloc_fragment((16, 128), "float32")
            y = T.alloc_fragment((16,), "float32")
            T.clear(y)
            for ko in T.serial(k // 128):
                T.copy(A[bx * 16, ko * 128], a)
                T.copy(X[ko * 128], x)
                for i, j in T.Parallel(16, 128):
                    p[i, j] = T.cast(a[i, j], "float32") * T.cast(x[j], "float32")
                T.reduce_sum(p, y, dim=1, clear=False)
            T.copy(y, Y[bx * 16])

    a, x = draw(dtype, shape), draw(dtype, (k,))
    products = (bounded(a) * bounded(x.double().expand(m, k))).rounded(SINGLE)
    return built(main, [a, x], out(summed(products), "float32"))


@conforms("whole: transpose by way of shared memory", dtypes=["float16", "float32"], shapes=[(64, 96), (50, 70)])
def transpose(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n, m), dtype)):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, 33), dtype)
            for i, j in T.Parallel(32, 32):
                if by * 32 + i < m and bx * 32 + j < n:
                    a[i, j] = X[by * 32 + i, bx * 32 + j]
            for i, j in T.Parallel(32, 32):
                if bx * 32 + i < n and by * 32 + j < m:
                    Y[bx * 32 + i, by * 32 + j] = a[j, i]

    x = draw(dtype, shape)
    return built(main, [x], out(x.t(), dtype))


@conforms("whole: prefix sum of blocks", dtypes=["float32", "int32"], shapes=[(4, 128), (7, 64)])
def prefix_sum(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m * n,), dtype), Y: T.Tensor((m * n,), dtype)):
        with T.Kernel(1, threads=64) as _bx:
            s = T.alloc_shared((n,), dtype)
            carry = T.alloc_shared((1,), dtype)
            T.clear(carry)
            for k in T.serial(m):
                T.copy(X[k * n], s)
                T.cumsum(s, dim=0)
                for j in T.Parallel(n):
                    s[j] = s[j] + carry[0]
                T.copy(s, Y[k * n])
                T.sync_threads()
                carry[0] = s[n - 1]
                T.sync_threads()

    x = draw(dtype, (m * n,))
    if dtype == "int32":
        return built(main, [x], out(x.cumsum(0), dtype))
    want = bounded(x.double().cumsum(0)).accumulated(x.double().abs().cumsum(0), m * n)
    return built(main, [x], out(want, dtype))


@conforms("whole: split-k gemm by atomics", dtypes=["float16"], shapes=[(64, 64, 256), (64, 128, 192)])
def split_k(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(n // 64, m // 64, k // 64, threads=128) as (bx, by, bz):
            a = T.alloc_shared((64, 64), dtype)
            b = T.alloc_shared((64, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A[by * 64, bz * 64], a)
            T.copy(B[bz * 64, bx * 64], b)
            T.clear(c)
            T.gemm(a, b, c)
            T.atomic_add(C[by * 64, bx * 64], c)

    x, y = draw(dtype, (m, k), -2, 2), draw(dtype, (k, n), -2, 2)
    start = torch.zeros(m, n)
    return built(main, [x, y], out(product(x, y), "float32", start=start))


@conforms("whole: dequantised gemm", dtypes=["int8"], shapes=[(64, 64, 128), (64, 32, 192)])
def dequantised(dtype, shape):
    """int8 weights with a scale a column, widened in shared memory."""
    m, n, k = shape

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, k), dtype),
        scale: T.Tensor((n,), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, 64), "float16")
            q = T.alloc_fragment((n, 64), dtype)
            b = T.alloc_shared((n, 64), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for ko in T.serial(k // 64):
                T.copy(A[0, ko * 64], a)
                T.copy(B[0, ko * 64], q)
                for i, j in T.Parallel(n, 64):
                    b[i, j] = T.cast(q[i, j], "float16") * scale[i]
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    a, b, s = draw("float16", (m, k), -2, 2), draw(dtype, (n, k), -100, 100), draw("float16", (n,), 0.01, 0.1)
    weights = (bounded(b.double()) * bounded(s.double()[:, None].expand(n, k))).rounded(HALF).move(lambda t: t.t())
    magnitude = a.double().abs() @ (weights.value.abs() + weights.error)
    want = (bounded(a) @ weights).accumulated(magnitude, k)
    return built(main, [a, b, s], out(want, "float32"))


@conforms("whole: sum of exponentials", dtypes=["float32"], shapes=[(16, 128), (8, 256)])
def log_sum_exp(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m,), dtype)):
        with T.Kernel(m, threads=32) as bx:
            x = T.alloc_fragment((1, n), dtype)
            top = T.alloc_fragment((1,), dtype)
            total = T.alloc_fragment((1,), dtype)
            T.copy(X[bx, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(1, n):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(1):
                Y[bx] = T.log(total[i]) + top[i]

    x = draw(dtype, shape)
    exact = bounded(x)
    top = exact.amax(1)
    weights = (exact - rows(top, x)).rounded(SINGLE).through(torch.exp).rounded(SINGLE, 4)
    total = summed(weights)
    logarithm = total.through(torch.log)
    logarithm = Bounded(logarithm.value, logarithm.error + off(logarithm.value, dtype, 1, 1).error)
    return built(main, [x], out((logarithm + top).rounded(SINGLE), dtype))

"""Annotations: layouts, safe values, swizzles and hints to the compiler. Only safe values change a result."""

import tilelang
import tilelang.language as T
import torch

from ..bounded import bounded, held, product
from ..registry import built, conforms, draw, out


@conforms(
    "T.annotate_layout",
    dtypes=["float16", "bfloat16"],
    shapes=[(64, 64), (32, 128)],
    kind=("swizzled", "function"),
)
def layout(dtype, shape, kind):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, n), dtype)
            if kind == "swizzled":
                T.annotate_layout({a: tilelang.layout.make_swizzled_layout(a)})
            else:
                T.annotate_layout({a: lambda i, j: i * n + (j + i) % n})
            T.copy(X, a)
            for i, j in T.Parallel(m, n):
                Y[i, j] = a[i, j]

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))


@conforms("T.annotate_layout of a gemm's operands", dtypes=["float16"], shapes=[(64, 64, 64), (64, 128, 64)])
def layout_of_operands(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.annotate_layout({a: tilelang.layout.make_swizzled_layout(a)})
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    x, y = draw(dtype, (m, k), -2, 2), draw(dtype, (k, n), -2, 2)
    return built(main, [x, y], out(product(x, y), "float32"))


@conforms("T.annotate_safe_value", dtypes=["float16", "float32"], shapes=[(20, 40), (33, 56)])
def safe_value(dtype, shape):
    """What a copy reads beyond the edge is the safe value, not zero."""
    m, n = shape
    tall, broad = (m + 15) // 16 * 16, (n + 31) // 32 * 32

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((tall, broad), dtype)):
        with T.Kernel(broad // 32, tall // 16, threads=64) as (bx, by):
            T.annotate_safe_value({X: -3})
            a = T.alloc_fragment((16, 32), dtype)
            T.copy(X[by * 16, bx * 32], a)
            T.copy(a, Y[by * 16, bx * 32])

    x = draw(dtype, shape)
    y = torch.full((tall, broad), -3).to(x.dtype)
    y[:m, :n] = x
    return built(main, [x], out(y, dtype))


HINTS = ("l2_hit_ratio", "min_blocks_per_sm", "restrict_buffers", "swizzle_row", "swizzle_column")


@conforms("hints: L2, occupancy, restrict, swizzle", dtypes=["float32"], shapes=[(64, 96), (50, 70)], hint=HINTS)
def hints(dtype, shape, hint):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), threads=64) as (bx, by):
            if hint == "l2_hit_ratio":
                T.annotate_l2_hit_ratio({X: 0.5})
            elif hint == "min_blocks_per_sm":
                T.annotate_min_blocks_per_sm(2)
            elif hint == "restrict_buffers":
                T.annotate_restrict_buffers(X, Y)
            elif hint == "swizzle_row":
                T.use_swizzle(2)
            else:
                T.use_swizzle(3, order="column")
            a = T.alloc_shared((16, 32), dtype)
            T.copy(X[by * 16, bx * 32], a)
            for i, j in T.Parallel(16, 32):
                a[i, j] = a[i, j] + 1.0
            T.copy(a, Y[by * 16, bx * 32])

    x = draw(dtype, shape)
    return built(main, [x], out((bounded(x) + 1.0).rounded(held(dtype)), dtype))

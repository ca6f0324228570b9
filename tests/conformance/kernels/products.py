"""T.gemm: dtypes, transposes, accumulators, scopes of the operands, policies; and T.c2d_im2col."""

from dataclasses import replace

import tilelang.language as T
import torch

from ..bounded import bounded, held, product
from ..registry import Built, built, conforms, draw, out

#: Operand -> accumulators that the tensor cores of sm_90a have.
ACCUMULATORS = {
    "float16": ("float32", "float16"),
    "bfloat16": ("float32",),
    "float32": ("float32",),
    "float8_e4m3fn": ("float32",),
    "float8_e5m2": ("float32",),
    "int8": ("int32",),
}


def operands(dtype: str, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = (-128, 128) if dtype == "int8" else (-2, 2)
    return draw(dtype, (m, k), low, high), draw(dtype, (k, n), low, high)


def turned(x: torch.Tensor) -> torch.Tensor:
    """The transpose, contiguous; by way of integers, as not all dtypes have the operation."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()]
    return x.view(bits).t().contiguous().view(x.dtype)


def half_product(x: torch.Tensor, y: torch.Tensor):
    """Accumulated in float16, by the tensor core's steps of 16 products or more, in any order."""
    magnitude = x.double().abs() @ y.double().abs()
    return (bounded(x) @ bounded(y)).accumulated(magnitude, x.shape[1], torch.float16)


@conforms(
    "T.gemm, transposes",
    dtypes=["float16", "bfloat16", "float32"],
    shapes=[(64, 64, 64), (128, 32, 96)],
    ta=(False, True),
    tb=(False, True),
)
def gemm(dtype, shape, ta, tb) -> Built:
    m, n, k = shape
    accumulator = ACCUMULATORS[dtype][0]
    a_shape, b_shape = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    @T.prim_func
    def main(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, n), accumulator)):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared(a_shape, dtype)
            b = T.alloc_shared(b_shape, dtype)
            c = T.alloc_fragment((m, n), accumulator)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            T.copy(c, C)

    x, y = operands(dtype, m, n, k)
    want = product(x, y, held(accumulator))
    return built(main, [turned(x) if ta else x, turned(y) if tb else y], out(want, accumulator))


@conforms(
    "T.gemm of 8-bit operands",
    dtypes=["float8_e4m3fn", "float8_e5m2", "int8"],
    shapes=[(64, 64, 64), (128, 32, 128)],
    ta=(False, True),
    tb=(False, True),
)
def gemm_of_8_bits(dtype, shape, ta, tb) -> Built:
    made = gemm(dtype, shape, ta, tb)
    if dtype == "int8":
        return made
    x, y = (turned(t) if flip else t for t, flip in zip(made.inputs, (ta, tb), strict=True))
    return built(made.kernel, made.inputs, replace(made.outputs[0], card=cut_sums(x.double(), y.double())))


#: Hopper's tensor cores add 32 products of 8-bit floats and the accumulator at once, aligned to the largest of
#: them, and keep 13 bits of the fraction (DeepSeek-V3 Technical Report, 2024, section 3.3.2: "around 14 bits").
STEP, FRACTION = 32, 2.0**-13


def cut_sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The most that such sums lose: each of 33 addends a step is cut below the largest one's 13th bit."""
    products = torch.einsum("mk,kn->mnk", x, y)
    total, lost = torch.zeros(products.shape[:2]).double(), torch.zeros(products.shape[:2]).double()
    for step in products.split(STEP, dim=2):
        largest = torch.maximum(total.abs() + lost, step.abs().amax(2))
        lost = lost + (STEP + 1) * FRACTION * largest
        total = total + step.sum(2)
    return lost


@conforms("T.gemm into float16", dtypes=["float16"], shapes=[(64, 64, 64), (128, 64, 256)])
def gemm_into_half(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), dtype)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    x, y = operands(dtype, m, n, k)
    return built(main, [x, y], out(half_product(x, y), dtype))


@conforms("T.gemm that accumulates", dtypes=["float16", "int8"], shapes=[(64, 64, 128), (64, 128, 192)])
def gemm_accumulates(dtype, shape):
    m, n, k = shape
    accumulator = ACCUMULATORS[dtype][0]

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((n, k), dtype), C: T.Tensor((m, n), accumulator)):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, 64), dtype)
            b = T.alloc_shared((n, 64), dtype)
            c = T.alloc_fragment((m, n), accumulator)
            T.fill(c, 5)
            for ko in T.serial(k // 64):
                T.copy(A[0, ko * 64], a)
                T.copy(B[0, ko * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    x, y = operands(dtype, m, n, k)
    want = product(x, y, held(accumulator))
    if dtype == "int8":
        return built(main, [x, turned(y)], out(want.value + 5, accumulator))
    want = (want + 5.0).accumulated(torch.full((m, n), 5.0, dtype=torch.float64), k // 16)
    return built(main, [x, turned(y)], out(want, accumulator))


@conforms("T.gemm, clear_accum", dtypes=["float16", "bfloat16"], shapes=[(64, 64, 64), (64, 128, 32)])
def gemm_clears(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 7)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    x, y = operands(dtype, m, n, k)
    return built(main, [x, y], out(product(x, y), "float32"))


@conforms("T.gemm, clear_accum", dtypes=["float16"], shapes=[(64, 64, 128), (64, 128, 192)])
def gemm_clears_at_first(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, 64), dtype)
            b = T.alloc_shared((64, n), dtype)
            c = T.alloc_fragment((m, n), "float32")
            for ko in T.serial(k // 64):
                T.copy(A[0, ko * 64], a)
                T.copy(B[ko * 64, 0], b)
                T.gemm(a, b, c, clear_accum=ko == 0)
            T.copy(c, C)

    x, y = operands(dtype, m, n, k)
    return built(main, [x, y], out(product(x, y), "float32"))


@conforms(
    "T.gemm, policies",
    dtypes=["float16"],
    shapes=[(128, 128, 64), (64, 128, 32)],
    policy=("Square", "FullRow", "FullCol"),
)
def gemm_policies(dtype, shape, policy):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, policy=getattr(T.GemmWarpPolicy, policy))
            T.copy(c, C)

    x, y = operands(dtype, m, n, k)
    return built(main, [x, y], out(product(x, y), "float32"))


@conforms(
    "T.gemm, A in a fragment",
    dtypes=["float16", "bfloat16"],
    shapes=[(64, 64, 64), (64, 128, 32)],
    tb=(False, True),
)
def gemm_from_fragment(dtype, shape, tb):
    m, n, k = shape
    b_shape = (n, k) if tb else (k, n)

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_fragment((m, k), dtype)
            b = T.alloc_shared(b_shape, dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_B=tb)
            T.copy(c, C)

    x, y = operands(dtype, m, n, k)
    return built(main, [x, turned(y) if tb else y], out(product(x, y), "float32"))


@conforms("T.gemm of one product by another", dtypes=["float16"], shapes=[(64, 64, 32), (64, 32, 64)])
def gemm_of_a_gemm(dtype, shape):
    """C = half(A B) D: the first product's fragment is converted and is the second's operand."""
    m, n, k = shape

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((k, n), dtype),
        D: T.Tensor((n, 64), dtype),
        C: T.Tensor((m, 64), "float32"),
    ):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            d = T.alloc_shared((n, 64), dtype)
            s = T.alloc_fragment((m, n), "float32")
            p = T.alloc_fragment((m, n), dtype)
            c = T.alloc_fragment((m, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(D, d)
            T.clear(s)
            T.clear(c)
            T.gemm(a, b, s)
            T.copy(s, p)
            T.gemm(p, d, c)
            T.copy(c, C)

    x, y = operands(dtype, m, n, k)
    z = draw(dtype, (n, 64), -2, 2)
    p = product(x, y).rounded(torch.float16)
    magnitude = (p.value.abs() + p.error) @ z.double().abs()
    want = (p @ bounded(z)).accumulated(magnitude, n)
    return built(main, [x, y, z], out(want, "float32"))


@conforms("T.gemm of parts of tiles", dtypes=["float16"], shapes=[(64, 64, 64), (64, 32, 96)])
def gemm_of_parts(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((2, m, k), dtype), B: T.Tensor((2, k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((2, m, k), dtype)
            b = T.alloc_shared((2, k, n), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            for s in T.serial(2):
                T.gemm(a[s, 0:m, 0:k], b[1 - s, 0:k, 0:n], c)
            T.copy(c, C)

    x, y = draw(dtype, (2, m, k), -2, 2), draw(dtype, (2, k, n), -2, 2)
    left, right = torch.cat((x[0], x[1]), 1), torch.cat((y[1], y[0]), 0)
    return built(main, [x, y], out(product(left, right), "float32"))


@conforms("T.gemm, pipelined, with tails", dtypes=["float16"], shapes=[(256, 128, 96), (100, 72, 200)])
def gemm_pipelined(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.use_swizzle(4)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=3):
                T.copy(A[by * 64, ko * 32], a)
                T.copy(B[ko * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    x, y = operands(dtype, m, n, k)
    return built(main, [x, y], out(product(x, y).rounded(torch.float16), dtype))


@conforms("T.gemm, 256 threads", dtypes=["bfloat16"], shapes=[(128, 128, 64), (256, 64, 32)])
def gemm_of_two_warpgroups(dtype, shape):
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((n, k), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=256) as _bx:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((n, k), dtype)
            c = T.alloc_fragment((m, n), "float32")
            s = T.alloc_shared((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_B=True)
            T.copy(c, s)
            T.copy(s, C)

    x, y = operands(dtype, m, n, k)
    return built(main, [x, turned(y)], out(product(x, y), "float32"))


@conforms(
    "T.im2col: a convolution",
    dtypes=["float16"],
    shapes=[(1, 8, 8, 32, 64), (2, 12, 6, 64, 32)],
    # TileLang tells the copy engine the wrong corners of the image, unless the output has the image's size.
    refused=lambda pad, **_: "whose padding is not" if pad == 0 else "",
    pad=(0, 1),
)
def convolution(dtype, shape, pad):
    """NHWC image by KKCF filter, 3 × 3, into N·OH·OW × F."""
    count, height, width, channels, filters = shape
    size, stride, dilation = 3, 1, 1
    rows, columns = height + 2 * pad - size + 1, width + 2 * pad - size + 1
    pixels = count * rows * columns

    @T.prim_func
    def main(
        X: T.Tensor((count, height, width, channels), dtype),
        W: T.Tensor((size * size * channels, filters), dtype),
        Y: T.Tensor((pixels, filters), "float32"),
    ):
        with T.Kernel(T.ceildiv(pixels, 64), threads=128) as bx:
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, filters), dtype)
            c = T.alloc_fragment((64, filters), "float32")
            T.clear(c)
            for ko in T.serial(size * size * channels // 32):
                T.c2d_im2col(X, a, bx, ko, size, stride, dilation, pad)
                T.copy(W[ko * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, Y[bx * 64, 0])

    x = draw(dtype, (count, height, width, channels), -2, 2)
    w = draw(dtype, (size * size * channels, filters), -2, 2)
    image = x.double().permute(0, 3, 1, 2)
    patches = torch.nn.functional.unfold(image, size, padding=pad)  # N, C·K·K, OH·OW
    patches = patches.reshape(count, channels, size * size, -1).permute(0, 3, 2, 1).reshape(pixels, -1)
    return built(main, [x, w], out(product(patches.half(), w), "float32"))


@conforms("tf32: float32 operands on the tensor core", shapes=[(64, 64, 32), (64, 32, 128)])
def gemm_reads_tf32(dtype, shape):
    """Operands that tf32 holds exactly, as half's fraction is no longer than tf32's: nothing is lost."""
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((n, k), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((n, k), dtype)
            c = T.alloc_fragment((m, n), dtype)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    x, y = draw("float16", (m, k)).float(), draw("float16", (k, n)).float()
    want = product(x.half(), y.half())
    return built(main, [x, turned(y)], out(want, dtype))

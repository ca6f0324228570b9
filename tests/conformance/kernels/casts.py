"""Casts between all dtypes, in one expression each."""

import tilelang.language as T
import torch

from ..bounded import bounded, held, is_float
from ..registry import ALL, FLOATS, INTEGERS, SIGNED, UNSIGNED, built, conforms, draw, out, wide, wrapped


def cast_to(x: torch.Tensor, target: str) -> torch.Tensor:
    """The right conversion of values that the target can be near to."""
    if target == "bool":
        return x != 0
    if x.is_floating_point() and not is_float(target):
        return wrapped(x.double().trunc().to(torch.int64), target)
    if x.dtype == torch.uint64:
        return x.to(torch.int64).to(held(target))
    return x.to(held(target))


#: Targets, some a kernel.
FOURS = {"signed": SIGNED, "unsigned": UNSIGNED}
PAIRS = {
    "wide floats": ("float32", "float64"),
    "halves": ("float16", "bfloat16"),
    "8-bit floats": ("float8_e4m3fn", "float8_e5m2"),
    "bool": ("bool", "int32"),
}


def drawn(dtype: str, shape: tuple[int, ...], *targets: str) -> torch.Tensor:
    """Values that the targets can be near to: what they can't hold is not defined, but for 8-bit floats."""
    low = 0 if dtype in UNSIGNED or set(targets) & set(UNSIGNED) else -100
    return draw("float32", shape, low, 100).to(held(dtype)) if is_float(dtype) else draw(dtype, shape, low, 100)


@conforms("T.cast to integers", dtypes=ALL, shapes=[(32,), (96,)], targets=FOURS)
def cast_to_integers(dtype, shape, targets):
    (n,) = shape
    p, q, r, s = FOURS[targets]

    @T.prim_func
    def main(
        X: T.Tensor((n,), dtype),
        P: T.Tensor((n,), p),
        Q: T.Tensor((n,), q),
        R: T.Tensor((n,), r),
        S: T.Tensor((n,), s),
    ):
        with T.Kernel(n // 32, threads=32) as bx:
            for i in T.Parallel(32):
                P[bx * 32 + i] = T.cast(X[bx * 32 + i], p)
                Q[bx * 32 + i] = T.cast(X[bx * 32 + i], q)
                R[bx * 32 + i] = T.cast(X[bx * 32 + i], r)
                S[bx * 32 + i] = T.cast(X[bx * 32 + i], s)

    x = drawn(dtype, shape, p, q, r, s)
    return built(main, [x], *[out(bounded(cast_to(x, target)), target) for target in (p, q, r, s)])


def ambiguous(dtype: str, targets: str) -> str:
    """64-bit integers have no conversion of their own to the narrow floats of CUTLASS."""
    narrow = targets in ("halves", "8-bit floats")
    return "nvcc: more than one constructor applies" if dtype in ("int64", "uint64") and narrow else ""


@conforms("T.cast to floats and bool", dtypes=ALL, shapes=[(32,), (96,)], uncompilable=ambiguous, targets=PAIRS)
def cast(dtype, shape, targets):
    (n,) = shape
    p, q = PAIRS[targets]

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), P: T.Tensor((n,), p), Q: T.Tensor((n,), q)):
        with T.Kernel(n // 32, threads=32) as bx:
            for i in T.Parallel(32):
                P[bx * 32 + i] = T.cast(X[bx * 32 + i], p)
                Q[bx * 32 + i] = T.cast(X[bx * 32 + i], q)

    x = drawn(dtype, shape, p, q)
    return built(main, [x], *[out(bounded(cast_to(x, target)), target) for target in (p, q)])


@conforms(
    "T.cast of integers wraps", dtypes=INTEGERS, shapes=[(32,), (96,)], target=("int8", "uint8", "int32", "int64")
)
def cast_wrapping(dtype, shape, target):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), target)):
        with T.Kernel(n // 32, threads=32) as bx:
            for i in T.Parallel(32):
                Y[bx * 32 + i] = T.cast(X[bx * 32 + i], target)

    x = wide(dtype, shape)
    bits = x.view(torch.int64) if dtype == "uint64" else x.to(torch.int64)
    return built(main, [x], out(wrapped(bits, target), target))


@conforms(
    "T.cast to 8-bit floats saturates",
    dtypes=FLOATS,
    shapes=[(32,), (96,)],
    target=("float8_e4m3fn", "float8_e5m2"),
)
def cast_saturating(dtype, shape, target):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), target)):
        with T.Kernel(n // 32, threads=32) as bx:
            for i in T.Parallel(32):
                Y[bx * 32 + i] = T.cast(X[bx * 32 + i], target)

    x = draw(dtype, shape, -60000, 60000)
    limit = torch.finfo(held(target)).max
    return built(main, [x], out(bounded(x.double().clamp(-limit, limit).to(held(target))), target))


@conforms(
    "T.cast of special floats", dtypes=["float16", "bfloat16", "float32"], shapes=[(32,), (64,)], target=FLOATS
)
def cast_special(dtype, shape, target):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), target)):
        with T.Kernel(n // 32, threads=32) as bx:
            for i in T.Parallel(32):
                Y[bx * 32 + i] = T.cast(X[bx * 32 + i], target)

    x = draw(dtype, shape)
    x[:6] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-40, 65504.0]).to(x.dtype)
    return built(main, [x], out(bounded(x.to(held(target))), target))


@conforms(
    "T.cast of floats to integers truncates",
    dtypes=FLOATS,
    shapes=[(32,), (96,)],
    target=("int32", "int64", "uint32"),
)
def cast_truncating(dtype, shape, target):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), target)):
        with T.Kernel(n // 32, threads=32) as bx:
            for i in T.Parallel(32):
                Y[bx * 32 + i] = T.cast(X[bx * 32 + i] * T.cast(0.25, dtype), target)

    x = draw(dtype, shape, 0 if target == "uint32" else -5000, 5000)
    return built(main, [x], out((x * 0.25).trunc().to(torch.int64), target))


@conforms(
    "implicit casts by a store",
    dtypes=["float32", "int32"],
    shapes=[(32,), (64,)],
    target=("float16", "float32", "int32"),
)
def cast_by_store(dtype, shape, target):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), target)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[i] = X[i]

    x = draw(dtype, shape)
    return built(main, [x], out(bounded(cast_to(x, target)), target))

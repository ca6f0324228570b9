"""Operators: arithmetic of floats and integers, division and remainder, bits, comparisons, truth values."""

import operator

import tilelang.language as T
import torch

from ..bounded import Bounded, bounded, held
from ..registry import FLOAT8, FLOATS, INTEGERS, SIGNED, UNSIGNED, built, conforms, draw, out, wide, wrapped


def stacked(*rows: Bounded) -> Bounded:
    return Bounded(torch.stack([row.value for row in rows]), torch.stack([row.error for row in rows]))


# Floats


@conforms("float arithmetic: + - * /, negation, T.abs", dtypes=FLOATS, shapes=[(64,), (160,)])
def float_arithmetic(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((7, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = X[i] + Y[i]
                Z[1, i] = X[i] - Y[i]
                Z[2, i] = X[i] * Y[i]
                Z[3, i] = X[i] / Y[i]
                Z[4, i] = -X[i]
                Z[5, i] = T.abs(X[i])
                Z[6, i] = X[i] * Y[i] + X[i]

    x, y = draw(dtype, shape), draw(dtype, shape, 0.5, 3)
    a, b, u = bounded(x), bounded(y), held(dtype)
    rows = [(a + b).rounded(u), (a - b).rounded(u), (a * b).rounded(u), (a / b).rounded(u)]
    rows += [bounded(-x), bounded(x.abs()), ((a * b).rounded(u) + a).rounded(u)]
    return built(main, [x, y], out(stacked(*rows), dtype))


@conforms("float arithmetic with constants", dtypes=FLOATS, shapes=[(64,), (160,)])
def float_constants(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((5, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = X[i] * 3 + 1
                Z[1, i] = 0.5 * X[i]
                Z[2, i] = 2 - X[i]
                Z[3, i] = 1.0 / X[i]
                Z[4, i] = X[i] + i

    x = draw(dtype, shape, 0.5, 4)
    a, u = bounded(x), held(dtype)
    rows = [((a * 3.0).rounded(u) + 1.0).rounded(u), (a * 0.5).rounded(u), (bounded(2.0) - a).rounded(u)]
    rows += [(bounded(1.0) / a).rounded(u), (a + bounded(torch.arange(n).double())).rounded(u)]
    return built(main, [x], out(stacked(*rows), dtype))


@conforms("float T.min, T.max, with NaN", dtypes=FLOATS, shapes=[(64,), (160,)])
def float_extremes(dtype, shape):
    """A number wins over NaN, as with C's fmin and fmax."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((3, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = T.min(X[i], Y[i])
                Z[1, i] = T.max(X[i], Y[i])
                Z[2, i] = T.max(X[i], T.cast(0, dtype))

    x, y = draw(dtype, shape), draw(dtype, shape)
    x[3] = y[9] = x[11] = y[11] = float("nan")
    a, b = x.double(), y.double()
    rows = torch.stack((torch.fmin(a, b), torch.fmax(a, b), torch.fmax(a, torch.zeros(()).double())))
    return built(main, [x, y], out(rows, dtype))


@conforms("T.clamp", dtypes=[*FLOATS, *SIGNED], shapes=[(64,), (160,)])
def clamped(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[i] = T.clamp(X[i], T.cast(-1, dtype), T.cast(2, dtype))

    x = draw(dtype, shape)
    if dtype in FLOATS:
        x[5] = float("nan")  # stays
    return built(main, [x], out(x.clamp(-1, 2), dtype))


@conforms("8-bit float arithmetic", dtypes=FLOAT8, shapes=[(64,), (128,)])
def float8_arithmetic(dtype, shape):
    """By way of float32, rounded once."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[i] = T.cast(T.cast(X[i], "float32") * T.cast(Y[i], "float32") + 1.0, dtype)

    x, y = draw(dtype, shape), draw(dtype, shape)
    want = (bounded(x.float()) * bounded(y.float())).rounded(torch.float32) + 1.0
    return built(main, [x, y], out(want.rounded(torch.float32).rounded(held(dtype)), dtype))


@conforms("augmented assignment", dtypes=["float32", "int32"], shapes=[(64,), (96,)])
def augmented(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_fragment((n,), dtype)
            T.copy(X, a)
            for i in T.Parallel(n):
                a[i] += T.cast(3, dtype)
                a[i] *= T.cast(2, dtype)
                a[i] -= X[i]
            T.copy(a, Z)

    x = draw(dtype, shape)
    if dtype == "int32":
        return built(main, [x], out((x + 3) * 2 - x, dtype))
    u = torch.float32
    want = (((bounded(x) + 3.0).rounded(u) * 2.0).rounded(u) - bounded(x)).rounded(u)
    return built(main, [x], out(want, dtype))


# Integers


@conforms("integer arithmetic: + - *, T.min, max", dtypes=INTEGERS, shapes=[(64,), (160,)])
def integer_arithmetic(dtype, shape):
    """Over the whole range: results wrap."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((6, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = X[i] + Y[i]
                Z[1, i] = X[i] - Y[i]
                Z[2, i] = X[i] * Y[i]
                Z[3, i] = T.min(X[i], Y[i])
                Z[4, i] = T.max(X[i], Y[i])
                Z[5, i] = X[i] * T.cast(3, dtype) + T.cast(1, dtype)

    x, y = wide(dtype, shape), wide(dtype, shape)
    a, b = _int64(x), _int64(y)
    smaller = _less(a, b, dtype)
    rows = [a + b, a - b, a * b, torch.where(smaller, a, b), torch.where(smaller, b, a), a * 3 + 1]
    return built(main, [x, y], out(_wrapped(torch.stack(rows), dtype), dtype))


@conforms("integer negation, T.abs", dtypes=SIGNED, shapes=[(64,), (160,)])
def signs(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((2, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = -X[i]
                Z[1, i] = T.abs(X[i])

    x = draw(dtype, shape, -100, 100)
    return built(main, [x], out(torch.stack((-x, x.abs())), dtype))


@conforms("integer division and remainder: floor", dtypes=INTEGERS, shapes=[(64,), (160,)])
def floor_division(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((6, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = X[i] // Y[i]
                Z[1, i] = X[i] % Y[i]
                Z[2, i] = T.floordiv(X[i], Y[i])
                Z[3, i] = T.floormod(X[i], Y[i])
                Z[4, i] = X[i] // T.cast(7, dtype)
                Z[5, i] = X[i] % T.cast(8, dtype)

    x, y = draw(dtype, shape, -100, 100), _divisor(dtype, shape)
    a, b = x.to(torch.int64), y.to(torch.int64)
    quotient = torch.div(a, b, rounding_mode="floor")
    rows = [quotient, a - quotient * b] * 2 + [torch.div(a, 7, rounding_mode="floor"), a % 8]
    return built(main, [x, y], out(torch.stack(rows), dtype))


@conforms("integer division and remainder: truncation", dtypes=INTEGERS, shapes=[(64,), (160,)])
def truncating_division(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((3, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = T.truncdiv(X[i], Y[i])
                Z[1, i] = T.truncmod(X[i], Y[i])
                Z[2, i] = T.truncdiv(X[i], T.cast(7, dtype))

    x, y = draw(dtype, shape, -100, 100), _divisor(dtype, shape)
    a, b = x.to(torch.int64), y.to(torch.int64)
    quotient = torch.div(a, b, rounding_mode="trunc")
    rows = [quotient, a - quotient * b, torch.div(a, 7, rounding_mode="trunc")]
    return built(main, [x, y], out(torch.stack(rows), dtype))


@conforms("division of loop indices", dtypes=["int32"], shapes=[(48,), (105,)])
def index_division(dtype, shape):
    """Of scalars and loop variables, below zero as well."""
    (n,) = shape

    @T.prim_func
    def main(Z: T.Tensor((4, n), dtype)):
        with T.Kernel(n, threads=32) as bx:
            Z[0, bx] = (bx - 20) // 6
            Z[1, bx] = (bx - 20) % 6
            Z[2, bx] = T.truncdiv(bx - 20, 6)
            Z[3, bx] = T.truncmod(bx - 20, 6)

    a = torch.arange(n) - 20
    trunc = torch.div(a, 6, rounding_mode="trunc")
    rows = [torch.div(a, 6, rounding_mode="floor"), a % 6, trunc, a - trunc * 6]
    return built(main, [], out(torch.stack(rows), dtype))


@conforms("bit operations", dtypes=INTEGERS, shapes=[(64,), (160,)])
def bits(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((7, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = X[i] & Y[i]
                Z[1, i] = X[i] | Y[i]
                Z[2, i] = X[i] ^ Y[i]
                Z[3, i] = ~X[i]
                Z[4, i] = T.bitwise_and(X[i], Y[i])
                Z[5, i] = T.bitwise_or(X[i], T.bitwise_xor(X[i], Y[i]))
                Z[6, i] = T.bitwise_not(Y[i])

    x, y = wide(dtype, shape), wide(dtype, shape)
    a, b = _int64(x), _int64(y)
    rows = [a & b, a | b, a ^ b, ~a, a & b, a | (a ^ b), ~b]
    return built(main, [x, y], out(_wrapped(torch.stack(rows), dtype), dtype))


@conforms("shifts", dtypes=INTEGERS, shapes=[(64,), (160,)])
def shifts(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((4, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = X[i] << Y[i]
                Z[1, i] = X[i] >> Y[i]
                Z[2, i] = T.shift_left(X[i], T.cast(3, dtype))
                Z[3, i] = T.shift_right(X[i], T.cast(2, dtype))

    width = 8 * held(dtype).itemsize
    x, y = wide(dtype, shape), draw(dtype, shape, 0, width)
    a, by = _int64(x), y.to(torch.int64)

    def right(by: torch.Tensor | int) -> torch.Tensor:
        if dtype != "uint64":
            return a >> by
        by = torch.as_tensor(by).expand(a.shape)
        mask = torch.where(by == 0, -1, (1 << (64 - by.clamp(min=1))) - 1)
        return (a >> by) & mask

    rows = [a << by, right(by), a << 3, right(2)]
    return built(main, [x, y], out(_wrapped(torch.stack(rows), dtype), dtype))


@conforms(
    "T.popcount",
    dtypes=["uint32", "int32"],
    shapes=[(64,), (160,)],
    uncompilable=lambda dtype: "Unresolved call tirx.popcount" if dtype == "int32" else "",
)
def counted_bits(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[i] = T.cast(T.popcount(X[i]), "int32")

    x = wide(dtype, shape)
    x[0], x[1] = 0, 1
    return built(
        main, [x], out(torch.tensor([value.bit_count() for value in x.tolist()], dtype=torch.int32), "int32")
    )


@conforms("T.clz", dtypes=["int32", "uint32", "int64"], shapes=[(64,), (160,)])
def leading_zeros(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[i] = T.cast(T.clz(X[i]), "int32")

    x = wide(dtype, shape)
    x[0], x[1] = 0, 1
    width = 8 * held(dtype).itemsize
    zeros = [width - (value & ((1 << width) - 1)).bit_length() for value in x.tolist()]
    return built(main, [x], out(torch.tensor(zeros, dtype=torch.int32), "int32"))


# Truth values

COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


@conforms("comparisons", dtypes=[*FLOATS, *INTEGERS], shapes=[(64,), (160,)])
def comparisons(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((6, n), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[0, i] = T.cast(X[i] == Y[i], "int32")
                Z[1, i] = T.cast(X[i] != Y[i], "int32")
                Z[2, i] = T.cast(X[i] < Y[i], "int32")
                Z[3, i] = T.cast(X[i] <= Y[i], "int32")
                Z[4, i] = T.cast(X[i] > Y[i], "int32")
                Z[5, i] = T.cast(X[i] >= Y[i], "int32")

    x, y = draw(dtype, shape), draw(dtype, shape)
    y[::4] = x[::4]
    a, b = x, y
    if dtype in FLOATS:
        # NaN != x of halves is false on the card where elements go one by one (CUTLASS's half_t compares ordered),
        # and true where they go in pairs: no guide.
        x[5] = y[6] = float("nan") if dtype in ("float32", "float64") else 0.0
    else:
        a, b = x.to(torch.int64), y.to(torch.int64)
    rows = torch.stack([compare(a, b) for compare in COMPARISONS])
    return built(main, [x, y], out(rows.to(torch.int32), "int32"))


@conforms("and, or, not", dtypes=["int32", "float32"], shapes=[(64,), (160,)])
def logic(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((4, n), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                a = X[i] > T.cast(0, dtype)
                b = Y[i] > T.cast(1, dtype)
                Z[0, i] = T.if_then_else(a and b, 1, 0)
                Z[1, i] = T.if_then_else(a or b, 1, 0)
                Z[2, i] = T.if_then_else(not a, 1, 0)
                Z[3, i] = T.if_then_else(T.And(a, T.Not(b)), 1, 0)

    x, y = draw(dtype, shape), draw(dtype, shape)
    a, b = x > 0, y > 1
    rows = torch.stack((a & b, a | b, ~a, a & ~b))
    return built(main, [x, y], out(rows.to(torch.int32), "int32"))


@conforms("comparison chains and masks in memory", dtypes=["bool"], shapes=[(64,), (96,)])
def masks(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), "int32"), Z: T.Tensor((n,), dtype)):
        with T.Kernel(n // 32, threads=32) as bx:
            for i in T.Parallel(32):
                Z[bx * 32 + i] = (X[bx * 32 + i] > -2) & (X[bx * 32 + i] < 3)

    x = draw("int32", shape)
    return built(main, [x], out((x > -2) & (x < 3), dtype))


@conforms(
    "a float compared with itself",
    dtypes=FLOATS,
    shapes=[(32,), (64,)],
    refused="a comparison of a float with itself",
)
def itself(dtype, shape):
    """The compiler takes x == x for true, and so loses NaN: the simulator refuses it."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[i] = T.if_then_else(X[i] == X[i], 1, 0)

    return built(main, [draw(dtype, shape)], out(torch.ones(n, dtype=torch.int32), "int32"))


def _divisor(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    y = draw(dtype, shape, 1, 12)
    if dtype in UNSIGNED:
        return y
    return torch.where(torch.rand(shape) < 0.5, -y, y)


def _int64(x: torch.Tensor) -> torch.Tensor:
    """Unsigned 64-bit integers by their bits."""
    return x.view(torch.int64) if x.dtype == torch.uint64 else x.to(torch.int64)


def _less(a: torch.Tensor, b: torch.Tensor, dtype: str) -> torch.Tensor:
    lowest = torch.iinfo(torch.int64).min
    return (a ^ lowest) < (b ^ lowest) if dtype == "uint64" else a < b


def _wrapped(x: torch.Tensor, dtype: str) -> torch.Tensor:
    return x.view(torch.uint64) if dtype == "uint64" else wrapped(x, dtype)

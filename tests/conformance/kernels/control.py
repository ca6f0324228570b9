"""Loops and branches: T.Parallel, serial, unroll, vectorized, grid, Pipelined, while, break, if, lets, macros."""

import tilelang.language as T
import torch

from ..bounded import bounded, held
from ..registry import built, conforms, draw, out, wrapped

FLOAT_AND_INT = ("float32", "int32")


def doubled(x: torch.Tensor, dtype: str):
    return out(wrapped(2 * x.to(torch.int64), dtype) if dtype == "int32" else 2 * x.double(), dtype)


@conforms(
    "T.Parallel, one to four loops",
    dtypes=FLOAT_AND_INT,
    shapes=[(2, 4, 8, 16), (3, 2, 16, 32)],
    rank=(1, 2, 3, 4),
)
def parallel(dtype, shape, rank):
    a, b, c, d = shape

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32) as _bx:
            if rank == 1:
                for n in T.Parallel(a * b * c * d):
                    i, j, k, m = n // (b * c * d), n // (c * d) % b, n // d % c, n % d
                    Y[i, j, k, m] = X[i, j, k, m] + X[i, j, k, m]
            elif rank == 2:
                for i, j in T.Parallel(a * b, c * d):
                    Y[i // b, i % b, j // d, j % d] = X[i // b, i % b, j // d, j % d] * T.cast(2, dtype)
            elif rank == 3:
                for i, j, k in T.Parallel(a * b, c, d):
                    Y[i // b, i % b, j, k] = X[i // b, i % b, j, k] * T.cast(2, dtype)
            else:
                for i, j, k, m in T.Parallel(a, b, c, d):
                    Y[i, j, k, m] = X[i, j, k, m] * T.cast(2, dtype)

    x = draw(dtype, shape)
    return built(main, [x], doubled(x, dtype))


@conforms(
    "T.Parallel with options",
    dtypes=["float16"],
    shapes=[(64,), (512,)],
    uncompilable=lambda option, **_: (
        "coalesced_width should be an IntImmNode" if option == "coalesced_width" else ""
    ),
    option=("coalesced_width", "coalesced_width as T.IntImm", "prefer_async"),
)
def parallel_options(dtype, shape, option):
    (n,) = shape
    options = {
        "coalesced_width": {"coalesced_width": 2},
        "coalesced_width as T.IntImm": {"coalesced_width": T.IntImm("int32", 2)},
        "prefer_async": {"prefer_async": False},
    }[option]

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n, **options):
                Y[i] = X[i] + X[i]

    x = draw(dtype, shape)
    return built(main, [x], out((bounded(x) + bounded(x)).rounded(held(dtype)), dtype))


@conforms("T.Parallel with a guard, and else", dtypes=FLOAT_AND_INT, shapes=[(100,), (333,)])
def parallel_guard(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                k = bx * 64 + i
                if k < n:
                    if X[k] > T.cast(0, dtype):
                        Y[k] = X[k]
                    elif X[k] == T.cast(0, dtype):
                        Y[k] = T.cast(7, dtype)
                    else:
                        Y[k] = T.cast(0, dtype) - X[k]

    x = draw(dtype, shape)
    return built(main, [x], out(torch.where(x == 0, torch.tensor(7).to(x.dtype), x.abs()), dtype))


@conforms("T.Parallel with a serial loop inside", dtypes=FLOAT_AND_INT, shapes=[(32, 5), (64, 8)])
def serial_in_parallel(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            total = T.alloc_fragment((m,), dtype)
            for i in T.Parallel(m):
                total[i] = T.cast(0, dtype)
                for j in T.serial(n):
                    total[i] = total[i] + X[i, j]
            T.copy(total, Y)

    x = draw(dtype, shape)
    if dtype == "int32":
        return built(main, [x], out(x.sum(1), dtype))
    want = bounded(x).sum(1).accumulated(x.double().abs().sum(1), n)
    return built(main, [x], out(want, dtype))


@conforms("T.Parallel inside loops", dtypes=["float32"], shapes=[(4, 64), (6, 128)])
def parallel_in_serial(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            s = T.alloc_shared((n,), dtype)
            T.clear(s)
            for k in T.serial(m):
                for j in T.Parallel(n):
                    s[j] = s[j] + X[k, j]
                T.copy(s, Y[k, 0:n])

    x = draw(dtype, shape)
    want = bounded(x.double().cumsum(0)).accumulated(x.double().abs().cumsum(0), m)
    return built(main, [x], out(want, dtype))


@conforms("T.serial: start, stop, step", dtypes=["int32"], shapes=[(12,), (29,)])
def serial(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((4,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            v = T.alloc_var(dtype, init=0)
            for i in T.serial(n):
                v = v + X[i]
            Y[0] = v
            v = 0
            for i in T.serial(2, n):
                v = v * 3 + X[i]
            Y[1] = v
            v = 0
            for i in T.serial(1, n, 3):
                v = v * 3 + X[i]
            Y[2] = v
            v = 0
            for i in range(n):
                v = v * 5 + X[i] - i
            Y[3] = v

    x = draw(dtype, shape)
    numbers = x.tolist()
    results = [sum(numbers), 0, 0, 0]
    for i in range(2, n):
        results[1] = results[1] * 3 + numbers[i]
    for i in range(1, n, 3):
        results[2] = results[2] * 3 + numbers[i]
    for i in range(n):
        results[3] = results[3] * 5 + numbers[i] - i
    signed = [((value + 2**31) & (2**32 - 1)) - 2**31 for value in results]  # integers wrap
    return built(main, [x], out(torch.tensor(signed), dtype))


@conforms("T.unroll", dtypes=FLOAT_AND_INT, shapes=[(4, 32), (8, 64)], explicit=(False, True))
def unroll(dtype, shape, explicit):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for k in T.unroll(m, explicit=explicit):
                for j in T.Parallel(n):
                    Y[k, j] = X[m - 1 - k, j]

    x = draw(dtype, shape)
    return built(main, [x], out(x.flip(0), dtype))


@conforms("T.unroll: step, factor", dtypes=["float32"], shapes=[(8, 32), (16, 64)], kind=("step", "factor"))
def unroll_forms(dtype, shape, kind):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            if kind == "step":
                for k in T.unroll(0, m, 2):
                    for j in T.Parallel(n):
                        Y[k, j] = X[k + 1, j]
                        Y[k + 1, j] = X[k, j]
            else:
                for k in T.unroll(m, unroll_factor=4):
                    for j in T.Parallel(n):
                        Y[k, j] = X[k // 2 * 2 + 1 - k % 2, j]

    x = draw(dtype, shape)
    return built(main, [x], out(x.reshape(-1, 2, n).flip(1).reshape(m, n), dtype))


@conforms("T.vectorized", dtypes=["float16", "float32", "int32"], shapes=[(32, 4), (64, 2)])
def vectorized(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(m):
                for v in T.vectorized(n):
                    Y[i, v] = X[i, v] + X[i, v]

    x = draw(dtype, shape)
    if dtype == "int32":
        return built(main, [x], doubled(x, dtype))
    return built(main, [x], out((bounded(x) + bounded(x)).rounded(held(dtype)), dtype))


@conforms("T.grid", dtypes=["int32"], shapes=[(3, 5), (2, 7)])
def grid(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i, j in T.grid(m, n):
                Y[i, j] = X[m - 1 - i, j] * 2 + j

    x = draw(dtype, shape)
    return built(main, [x], out(x.flip(0) * 2 + torch.arange(n), dtype))


@conforms("T.Pipelined", dtypes=["float32", "float16"], shapes=[(8, 128), (5, 64)], num_stages=(0, 1, 2, 3))
def pipelined(dtype, shape, num_stages):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            s = T.alloc_shared((n,), dtype)
            total = T.alloc_fragment((n,), "float32")
            T.clear(total)
            for k in T.Pipelined(m, num_stages=num_stages):
                T.copy(X[k, 0:n], s)
                for j in T.Parallel(n):
                    total[j] = total[j] + T.cast(s[j], "float32")
            T.copy(total, Y)

    x = draw(dtype, shape)
    want = bounded(x).sum(0).accumulated(x.double().abs().sum(0), m)
    return built(main, [x], out(want, "float32"))


@conforms("T.Pipelined from a start on", dtypes=["float32"], shapes=[(8, 128), (6, 64)])
def pipelined_range(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=64) as bx:
            s = T.alloc_shared((n,), dtype)
            total = T.alloc_fragment((n,), dtype)
            T.clear(total)
            for k in T.Pipelined(bx, m, num_stages=2):
                T.copy(X[k, 0:n], s)
                for j in T.Parallel(n):
                    total[j] = total[j] + s[j]
            T.copy(total, Y[bx, 0:n])

    x = draw(dtype, shape)

    def suffix(t: torch.Tensor) -> torch.Tensor:
        return t.flip(0).cumsum(0).flip(0)

    want = bounded(suffix(x.double())).accumulated(suffix(x.double().abs()), m)
    return built(main, [x], out(want, dtype))


@conforms("T.Pipelined, order and stage", dtypes=["float32"], shapes=[(8, 128), (4, 64)])
def pipelined_by_hand(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=64) as _bx:
            s = T.alloc_shared((n,), dtype)
            for k in T.Pipelined(m, order=[1, 0], stage=[0, 1]):
                T.copy(X[k, 0:n], s)
                T.copy(s, Y[k, 0:n])

    x = draw(dtype, shape)
    return built(main, [x], out(x, dtype))


@conforms("while", dtypes=["int32"], shapes=[(6,), (20,)])
def while_loop(dtype, shape):
    """The length of a Collatz sequence."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(n, threads=32) as bx:
            v = T.alloc_var(dtype, init=X[bx])
            steps = T.alloc_var(dtype, init=0)
            while v != 1:
                if v % 2 == 0:
                    v = v // 2
                else:
                    v = 3 * v + 1
                steps = steps + 1
            Y[bx] = steps

    x = draw(dtype, shape, 1, 40)
    lengths = []
    for start in x.tolist():
        value, steps = start, 0
        while value != 1:
            value, steps = (value // 2 if value % 2 == 0 else 3 * value + 1), steps + 1
        lengths.append(steps)
    return built(main, [x], out(torch.tensor(lengths), dtype))


@conforms("break, T.loop_break", dtypes=["int32"], shapes=[(16,), (40,)], form=("break", "loop_break"))
def leaving(dtype, shape, form):
    """The first element that is 0, and the sum before it."""
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((2,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            total = T.alloc_var(dtype, init=0)
            at = T.alloc_var(dtype, init=-1)
            for i in T.serial(n):
                if X[i] == 0:
                    at = i
                    if form == "break":
                        break
                    else:
                        T.loop_break()
                total = total + X[i]
            Y[0] = total
            Y[1] = at

    x = draw(dtype, shape, 1, 9)
    x[n // 2] = x[n - 1] = 0
    return built(main, [x], out(torch.stack((x[: n // 2].sum(), torch.tensor(n // 2))), dtype))


@conforms("continue", dtypes=["int32"], shapes=[(16,), (40,)])
def going_on(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((1,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            total = T.alloc_var(dtype, init=0)
            for i in T.serial(n):
                if X[i] < 0:
                    continue
                total = total + X[i]
            Y[0] = total

    x = draw(dtype, shape)
    return built(main, [x], out(x.clamp(min=0).sum()[None], dtype))


@conforms("if, elif, else on a block", dtypes=FLOAT_AND_INT, shapes=[(6, 32), (9, 64)])
def branches(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=32) as bx:
            a = T.alloc_fragment((n,), dtype)
            if bx % 3 == 0:
                T.copy(X[bx, 0:n], a)
            elif bx % 3 == 1:
                T.clear(a)
            else:
                T.fill(a, 2)
            T.copy(a, Y[bx, 0:n])

    x = draw(dtype, shape)
    y = x.clone()
    y[1::3], y[2::3] = 0, 2
    return built(main, [x], out(y, dtype))


@conforms("T.if_then_else, T.Select", dtypes=["float16", "float32", "int32", "int8"], shapes=[(64,), (96,)])
def choices(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((2, n + 1), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                # The guarded side is never read beyond the end.
                Y[0, i] = T.if_then_else(i + 8 < n, X[T.min(i + 8, n - 1)], T.cast(9, dtype))
                Y[1, i] = T.Select(X[i] > T.cast(0, dtype), X[i], T.cast(i, dtype))
            Y[0, n] = T.if_then_else(X[0] > T.cast(0, dtype), X[0], T.cast(1, dtype))
            Y[1, n] = T.Select(X[0] > T.cast(0, dtype), T.cast(1, dtype), X[0])

    x = draw(dtype, shape)
    one, nine = torch.tensor(1).to(x.dtype), torch.full((8,), 9).to(x.dtype)
    first, second = torch.cat((x[8:], nine)), torch.where(x > 0, x, torch.arange(n).to(x.dtype))
    ends = (torch.where(x[:1] > 0, x[:1], one), torch.where(x[:1] > 0, one, x[:1]))
    y = torch.stack((torch.cat((first, ends[0])), torch.cat((second, ends[1]))))
    return built(main, [x], out(y, dtype))


@conforms("T.if_then_else guards a read", dtypes=FLOAT_AND_INT, shapes=[(64,), (200,)])
def guarded_read(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            s = T.alloc_shared((64,), dtype)
            for i in T.Parallel(64):
                s[i] = T.if_then_else(bx * 64 + i + 1 < n, X[bx * 64 + i + 1], T.cast(-1, dtype))
            T.copy(s, Y[bx * 64])

    x = draw(dtype, shape)
    return built(main, [x], out(torch.cat((x[1:], torch.tensor([-1]).to(x.dtype))), dtype))


@conforms("lets", dtypes=FLOAT_AND_INT, shapes=[(4, 64), (3, 96)])
def lets(dtype, shape):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=32) as bx:
            row = m - 1 - bx
            first = X[row, 0]
            for j in T.Parallel(n):
                value = X[row, j] - first
                twice = value + value
                Y[bx, j] = twice

    x = draw(dtype, shape).flip(0)
    if dtype == "int32":
        return built(main, [x.flip(0)], out((x - x[:, :1]) * 2, dtype))
    want = ((bounded(x) - bounded(x[:, :1].expand(m, n))).rounded(torch.float32) * 2.0).rounded(torch.float32)
    return built(main, [x.flip(0)], out(want, dtype))


@T.macro
def scale_and_shift(x, y, factor, n):
    for i in T.Parallel(n):
        y[i] = x[i] * factor + factor


@conforms("@T.macro", dtypes=["float32"], shapes=[(64,), (160,)])
def macros(dtype, shape):
    (n,) = shape

    @T.macro
    def load(source, target):
        T.copy(source, target)

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((n,), dtype)
            b = T.alloc_shared((n,), dtype)
            load(X, a)
            scale_and_shift(a, b, 3.0, n)
            scale_and_shift(b, a, 2.0, n)
            load(a, Y)

    x = draw(dtype, shape)
    want = bounded(x)
    for factor in (3.0, 2.0):
        want = ((want * factor).rounded(torch.float32) + factor).rounded(torch.float32)
    return built(main, [x], out(want, dtype))


@conforms("statements outside T.Parallel", dtypes=FLOAT_AND_INT, shapes=[(4, 32), (6, 64)])
def once_a_thread(dtype, shape):
    """What all threads write alike is written once."""
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=32) as bx:
            s = T.alloc_shared((2,), dtype)
            s[0] = X[bx, 0]
            s[1] = X[bx, n - 1]
            T.sync_threads()
            for j in T.Parallel(n):
                Y[bx, j] = s[j % 2]

    x = draw(dtype, shape)
    y = torch.stack((x[:, 0], x[:, -1]), 1).repeat(1, n // 2)
    return built(main, [x], out(y, dtype))

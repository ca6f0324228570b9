"""Kernels that TileLang traces and then can't compile, by kinds of error; the line to blame ends in # here."""

import inspect

import tilelang.language as T

ROWS = 64


def line_of(factory, marker="here") -> int:
    """The number of the line in this file that a broken kernel is to blame for."""
    lines, first = inspect.getsourcelines(factory)
    return next(first + n for n, line in enumerate(lines) if line.rstrip().endswith(f"# {marker}"))


def product(
    m=64,
    n=64,
    k=32,
    threads=128,
    dtype="float16",
    out="float32",
    policy=T.GemmWarpPolicy.Square,
    result="fragment",
):
    @T.prim_func
    def main(A: T.Tensor((m, 128), dtype), B: T.Tensor((128, n), dtype), C: T.Tensor((m, n), out)):
        with T.Kernel(1, threads=threads) as _bx:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), out) if result == "fragment" else T.alloc_shared((m, n), out)
            T.clear(c)
            for ko in T.Pipelined(128 // k, num_stages=2):
                T.copy(A[0, ko * k], a)  # copy
                T.copy(B[ko * k, 0], b)
                T.gemm(a, b, c, policy=policy)  # here
            T.copy(c, C)

    return main


def mixed_dtypes():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "bfloat16"), C: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "bfloat16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c)  # here
            T.copy(c, C)

    return main


def product_of_global():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.copy(A, b)
            T.gemm(A, b, c)  # here
            T.copy(c, C)

    return main


def product_into_a_part():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 128), "float32")
            T.copy(A, a)
            T.clear(c)
            T.gemm(a, a, c[0:64, 0:64])  # here
            T.copy(c[0:64, 0:64], C)

    return main


def two_policies():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            total = T.alloc_fragment((64, 64), "float32")
            T.clear(total)
            T.copy(A, a)
            T.gemm(a, a, total, policy=T.GemmWarpPolicy.FullRow)
            T.gemm(a, a, total, policy=T.GemmWarpPolicy.FullCol)  # here
            T.copy(total, C)

    return main


def rows_and_columns():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            top = T.alloc_fragment((64,), "float32")
            T.clear(scores)
            T.copy(A, a)
            T.gemm(a, a, scores)
            T.reduce_max(scores, top, dim=1)
            for i, j in T.Parallel(64, 64):  # here
                scores[i, j] = scores[i, j] - top[j]
            T.copy(scores, C)

    return main


def transposed_fragment():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_fragment((64, 64), "float32")
            y = T.alloc_fragment((64, 64), "float32")
            T.copy(A, x)
            for i, j in T.Parallel(64, 64):  # here
                y[i, j] = x[j, i] + x[i, j]
            T.copy(y, C)

    return main


def copy_that_does_not_fit():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            tile = T.alloc_shared((64, 32), "float32")
            T.copy(A[0:64, 0:64], tile)  # here
            T.copy(tile, C[0:64, 0:32])

    return main


def tile_operation_in_parallel():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            row = T.alloc_shared((64,), "float32")
            for i in T.Parallel(64):
                T.fill(row, i)  # here
                C[i, 0] = A[i, 0]

    return main


def pipeline_in_parallel():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            for i in T.Parallel(64):
                for j in T.Pipelined(64, num_stages=2):  # here
                    C[i, j] = A[i, j]

    return main


def pipeline_of_unknown_length():
    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"), B: T.Tensor((512, 64), "float16"), C: T.Tensor((512, 64), "float16")
    ):
        with T.Kernel(8, threads=128) as bx:
            first = T.alloc_shared((64, 64), "float16")
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            weights = T.alloc_fragment((64, 64), "float16")
            total = T.alloc_fragment((64, 64), "float32")
            T.copy(A[0, 0], first)
            T.clear(total)
            for k in T.Pipelined(bx + 1, num_stages=2):  # here
                T.copy(A[0, k * 64], a)
                T.clear(scores)
                T.gemm(first, a, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(scores, weights)
                T.copy(B[k * 64, 0], b)
                T.gemm(weights, b, total, policy=T.GemmWarpPolicy.FullRow)
            T.copy(total, C[bx * 64, 0])

    return main


def odd_fragment():
    @T.prim_func
    def main(A: T.Tensor((5, 100), "float32"), C: T.Tensor((5,), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_fragment((5, 100), "float32")
            top = T.alloc_fragment((5,), "float32")
            T.copy(A, x)
            T.reduce_max(x, top, dim=1)  # here
            T.copy(top, C)

    return main


def seven_threads():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=7) as _bx:
            x = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A, x)
            T.reduce_sum(x, total, dim=0)  # here
            T.copy(total, C)

    return main


def reduction_over_24_threads():
    @T.prim_func
    def main(A: T.Tensor((4, 96), "float32"), C: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=48) as _bx:
            x = T.alloc_fragment((4, 96), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(A, x)
            T.reduce_sum(x, total, dim=1)  # here
            T.copy(total, C)

    return main


def looked_up_in_a_fragment():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), Index: T.Tensor((64,), "int32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment((64,), "float32")
            y = T.alloc_fragment((64,), "float32")
            T.copy(A, x)
            for i in T.Parallel(64):  # here
                y[i] = x[Index[i]]
            T.copy(y, C)

    return main


def sums_of_global():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            sums = T.alloc_shared((64,), "float32")
            T.cumsum(A, sums)  # here
            T.copy(sums, C)

    return main


def fragment_column_by_column():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment((64, 64), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.copy(A, x)
            T.clear(total)
            for k in T.serial(64):
                for i in T.Parallel(64):  # here
                    total[i] += x[i, k]
            T.copy(total, C)

    return main


def local_shared_out():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            mine = T.alloc_local((64,), "float32")
            for i in T.Parallel(64):  # here
                mine[i] = A[i]
                C[i] = mine[i]

    return main


def loop_of_unknown_length():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=64) as bx:
            x = T.alloc_fragment((64,), "float32")
            for i in T.Parallel(bx * 16 + 16):  # here
                x[i] = A[i]
            T.copy(x, C)

    return main


def part_of_unknown_size():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=64) as bx:
            x = T.alloc_fragment((64,), "float32")
            T.copy(A[0 : bx * 16 + 16], x[0 : bx * 16 + 16])  # here
            T.copy(x, C)

    return main


def two_threads_for_an_element():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.clear(c)
            T.gemm(a[0:48, :], a[0:64, :], c[0:48, :])  # here
            T.copy(c, C)

    return main


def while_in_a_pipeline():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            x = T.alloc_var("int32")
            T.clear(c)
            x = 0
            for _k in T.Pipelined(4, num_stages=2):
                T.copy(A, a)
                while x < 2:  # here
                    T.gemm(a, a, c)
                    x += 1
            T.copy(c, C)

    return main


def unused_accumulator():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            forgotten = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.clear(forgotten)  # here
            T.copy(A, a)
            T.gemm(a, a, c)
            T.copy(c, C)

    return main


def uninitialised():
    @T.prim_func
    def main(C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment((64,), "float32")
            T.copy(x, C)  # here

    return main


def vectors_of_three():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            for i in T.vectorized(3):  # here
                C[i] = A[i]

    return main


def row_maximum():
    """A right one."""

    @T.prim_func
    def main(X: T.Tensor((64, 512), "float32"), Y: T.Tensor((64, 512), "float32")):
        with T.Kernel(16, threads=128) as bx:
            x = T.alloc_fragment((4, 512), "float32")
            top = T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(4, 512):
                x[i, j] = x[i, j] - top[i]
            T.copy(x, Y[bx * 4, 0])

    return main

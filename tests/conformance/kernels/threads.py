"""Code by thread index: each thread does its own, between barriers."""

import tilelang.language as T
import torch

from ..bounded import bounded, held
from ..registry import built, conforms, draw, out

BOTH = ("float32", "int32")


@conforms("T.get_thread_binding", dtypes=BOTH, shapes=[(4, 64), (3, 128)])
def element_a_thread(dtype, shape):
    blocks, threads = shape

    @T.prim_func
    def main(X: T.Tensor((blocks * threads,), dtype), Y: T.Tensor((blocks * threads,), dtype)):
        with T.Kernel(blocks, threads=threads) as bx:
            tx = T.get_thread_binding()
            Y[bx * threads + tx] = X[bx * threads + threads - 1 - tx]

    x = draw(dtype, (blocks * threads,))
    return built(main, [x], out(x.reshape(shape).flip(1).flatten(), dtype))


@conforms("T.get_thread_binding, T.get_thread_extent", dtypes=["int32"], shapes=[(32,), (96,)])
def thread_extent(dtype, shape):
    (threads,) = shape

    @T.prim_func
    def main(Y: T.Tensor((threads,), dtype)):
        with T.Kernel(1, threads=threads) as _bx:
            tx = T.get_thread_binding(0)
            Y[tx] = T.get_thread_extent(0) - tx

    return built(main, [], out(threads - torch.arange(threads), dtype))


@conforms("threads of two dimensions by index", dtypes=["int32"], shapes=[(32, 4), (16, 8)])
def two_dimensions(dtype, shape):
    a, b = shape

    @T.prim_func
    def main(X: T.Tensor((b, a), dtype), Y: T.Tensor((b, a), dtype)):
        with T.Kernel(1, threads=(a, b)) as _bx:
            tx, ty, _tz = T.get_thread_bindings()
            Y[ty, tx] = X[b - 1 - ty, tx] + tx

    x = draw(dtype, (b, a))
    return built(main, [x], out(x.flip(0) + torch.arange(a), dtype))


@conforms("some threads only", dtypes=BOTH, shapes=[(64, 10), (128, 33)])
def some_threads(dtype, shape):
    threads, n = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=threads) as _bx:
            tx = T.get_thread_binding()
            if tx < n:
                Y[tx] = X[n - 1 - tx]

    x = draw(dtype, (n,))
    return built(main, [x], out(x.flip(0), dtype))


@conforms("T.sync_threads between threads", dtypes=BOTH, shapes=[(4, 64), (3, 128)])
def exchange(dtype, shape):
    blocks, threads = shape

    @T.prim_func
    def main(X: T.Tensor((blocks, threads), dtype), Y: T.Tensor((blocks, threads), dtype)):
        with T.Kernel(blocks, threads=threads) as bx:
            s = T.alloc_shared((threads,), dtype)
            tx = T.get_thread_binding()
            s[tx] = X[bx, tx]
            T.sync_threads()
            Y[bx, tx] = s[(tx + 5) % threads]

    x = draw(dtype, shape)
    return built(main, [x], out(x.roll(-5, 1), dtype))


@conforms("a loop of each thread", dtypes=BOTH, shapes=[(32, 200), (64, 333)])
def strided_loop(dtype, shape):
    threads, n = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=threads) as _bx:
            tx = T.get_thread_binding()
            for k in T.serial(T.ceildiv(n, threads)):
                if k * threads + tx < n:
                    Y[k * threads + tx] = X[k * threads + tx] + X[k * threads + tx]

    x = draw(dtype, (n,))
    want = 2 * x if dtype == "int32" else (bounded(x) + bounded(x)).rounded(held(dtype))
    return built(main, [x], out(want, dtype))


@conforms("a thread's own memory", dtypes=["float32"], shapes=[(32, 8), (64, 5)])
def own_memory(dtype, shape):
    threads, n = shape

    @T.prim_func
    def main(X: T.Tensor((threads, n), dtype), Y: T.Tensor((threads,), dtype)):
        with T.Kernel(1, threads=threads) as _bx:
            tx = T.get_thread_binding()
            own = T.alloc_local((n,), dtype)
            total = T.alloc_var(dtype, init=0.0)
            for k in T.serial(n):
                own[k] = X[tx, k]
            for k in T.serial(n):
                total = total + own[n - 1 - k]
            Y[tx] = total

    x = draw(dtype, shape)
    want = bounded(x).sum(1).accumulated(x.double().abs().sum(1), n)
    return built(main, [x], out(want, dtype))


@conforms("a tree of threads", dtypes=BOTH, shapes=[(3, 64), (2, 128)])
def tree_sum(dtype, shape):
    """A sum in shared memory that halves the number of threads at each step."""
    blocks, threads = shape
    steps = threads.bit_length() - 1

    @T.prim_func
    def main(X: T.Tensor((blocks, threads), dtype), Y: T.Tensor((blocks,), dtype)):
        with T.Kernel(blocks, threads=threads) as bx:
            s = T.alloc_shared((threads,), dtype)
            tx = T.get_thread_binding()
            s[tx] = X[bx, tx]
            T.sync_threads()
            for k in T.serial(steps):
                if tx < (threads >> (k + 1)):
                    s[tx] = s[tx] + s[tx + (threads >> (k + 1))]
                T.sync_threads()
            if tx == 0:
                Y[bx] = s[0]

    x = draw(dtype, shape)
    if dtype == "int32":
        return built(main, [x], out(x.sum(1), dtype))
    want = bounded(x).sum(1).accumulated(x.double().abs().sum(1), threads)
    return built(main, [x], out(want, dtype))


@conforms("T.thread_binding loops", dtypes=["float32"], shapes=[(4, 64), (2, 32)])
def bound_loop(dtype, shape):
    blocks, threads = shape

    @T.prim_func
    def main(X: T.Tensor((blocks, threads), dtype), Y: T.Tensor((blocks, threads), dtype)):
        with T.Kernel(blocks, threads=threads) as bx:
            for tx in T.thread_binding(threads, thread="threadIdx.x"):
                Y[bx, tx] = X[bx, threads - 1 - tx]

    x = draw(dtype, shape)
    return built(main, [x], out(x.flip(1), dtype))

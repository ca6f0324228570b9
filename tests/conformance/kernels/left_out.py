"""What the simulator leaves out on purpose: each is refused by name, at a line."""

import tilelang.language as T
import torch

from ..registry import built, conforms, draw, out

SHAPES = [(32,), (64,)]


def unjudged(n: int, dtype: str):
    """An output that is never compared: the kernel is refused before."""
    return out(torch.zeros(n), dtype)


@conforms("left out: warp reductions", shapes=SHAPES, refused="the threads of a warp")
def warp_reduction(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=n) as _bx:
            tx = T.get_thread_binding()
            Y[tx] = T.warp_reduce_sum(X[tx])

    return built(main, [draw(dtype, shape)], unjudged(n, dtype))


@conforms("left out: warp shuffles", shapes=SHAPES, refused="the threads of a warp")
def shuffle(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=n) as _bx:
            tx = T.get_thread_binding()
            Y[tx] = T.shfl_xor(X[tx], 1)

    return built(main, [draw(dtype, shape)], unjudged(n, dtype))


@conforms("left out: asynchronous copies", dtypes=["float16"], shapes=[(256,), (512,)], refused="T.async_copy")
def asynchronous(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((n,), dtype)
            T.async_copy(X, a)
            T.ptx_wait_group(0)
            T.sync_threads()
            T.copy(a, Y)

    return built(main, [draw(dtype, shape)], unjudged(n, dtype))


@conforms("left out: functions of another language", shapes=SHAPES, refused="T.call_extern")
def external(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[i] = T.call_extern(dtype, "fabsf", X[i])

    return built(main, [draw(dtype, shape)], unjudged(n, dtype))


@conforms("left out: votes of a block", dtypes=["int32"], shapes=SHAPES, refused="the threads of a block")
def vote(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=n) as _bx:
            tx = T.get_thread_binding()
            Y[tx] = T.syncthreads_count(X[tx] > 0)

    return built(main, [draw(dtype, shape)], out(torch.zeros(n, dtype=torch.int32), dtype))


@conforms("left out: random numbers of the card", dtypes=["float32"], shapes=SHAPES, refused="random numbers")
def random_numbers(dtype, shape):
    (n,) = shape

    @T.prim_func
    def main(Y: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=n) as _bx:
            tx = T.get_thread_binding()
            T.rng_init(7)
            Y[tx] = T.rng_rand_float()

    return built(main, [], unjudged(n, dtype))

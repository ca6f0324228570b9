"""What would bend the timing: overlap with other launches, the cache, clocks, work that is not the kernel's."""

import tilelang.language as T

from attacks.attack import MATMUL, Attack, Stop, add, honest_add, matmul


def with_call(call):
    """An honest add whose blocks make a call as well."""

    @T.macro
    def inside(A, B, C, bx, N):
        T.evaluate(call(A))
        honest_add(A, B, C, bx, N)

    return add(inside)


def cache_kept(M, N, K):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by):
            a = T.alloc_shared((128, 32), "float16")
            b = T.alloc_shared((32, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3):
                T.copy(A[by * 128, k * 32], a, eviction_policy="evict_last")
                T.copy(B[k * 32, bx * 128], b, eviction_policy="evict_last")
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, bx * 128])

    return main


def cache_window(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            T.annotate_l2_hit_ratio({A: 1.0, B: 1.0})
            honest_add(A, B, C, bx, N)

    return main


def clusters(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.ClusterKernel(T.ceildiv(N, 1024), threads=256, cluster_dims=(2, 1, 1)) as bx:
            honest_add(A, B, C, bx, N)

    return main


def two_kernels(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            honest_add(A, B, C, bx, N)
        with T.Kernel(T.ceildiv(N, 1024), threads=256) as bx:
            honest_add(B, A, C, bx, N)

    return main


_NOT = "'{}', which is not admitted here"

ATTACKS = (
    Attack(
        "waits for no earlier launch",
        with_call(lambda A: T.pdl_trigger()),
        Stop.ADMISSION,
        _NOT.format("pdl_trigger"),
    ),
    Attack(
        "starts before earlier work ends",
        with_call(lambda A: T.pdl_sync()),
        Stop.ADMISSION,
        _NOT.format("pdl_sync"),
    ),
    Attack(
        "inputs in the persisting window", cache_window, Stop.ADMISSION, "annotate_l2_hit_ratio is not admitted"
    ),
    Attack("inputs kept in the cache", cache_kept, Stop.ADMISSION, "evict_last' is not admitted", MATMUL),
    Attack("clusters of blocks", clusters, Stop.ADMISSION, "not admitted|can't be judged"),
    Attack(
        "a barrier for the whole grid",
        with_call(lambda A: T.sync_grid()),
        Stop.ADMISSION,
        _NOT.format("sync_grid"),
    ),
    Attack("two kernels", two_kernels, Stop.ADMISSION, "T.Kernel"),
    Attack(
        "a call of the runtime",
        with_call(lambda A: T.call_extern("int32", "cudaMemcpyAsync", 0, 0, 0, 0, 0)),
        Stop.ADMISSION,
        _NOT.format("T.call_extern"),
    ),
    Attack(
        "a library",
        with_call(lambda A: T.call_packed("tvm.contrib.cublas.matmul", A[0])),
        Stop.ADMISSION,
        _NOT.format("tvm_call_packed"),
    ),
    Attack(
        "the clock",
        with_call(lambda A: T.call_extern("int64", "clock64")),
        Stop.ADMISSION,
        _NOT.format("T.call_extern"),
    ),
    Attack(
        "guards switched off",
        add(honest_add),
        Stop.ADMISSION,
        "compiler option 'tl.disable_safe_memory_legalize' is not admitted",
        options={"tl.disable_safe_memory_legalize": True},
    ),
    Attack(
        "flags for the compiler",
        matmul(),
        Stop.ADMISSION,
        "compiler option 'tl.device_compile_flags' is not admitted",
        MATMUL,
        options={"tl.device_compile_flags": "-include /etc/passwd"},
    ),
)

# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: nbgrader,tags,-all
#     notebook_metadata_filter: kernelspec,jupytext,-all
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["lang-en"]
# # Lab 08 · Introspection
#
# **You will learn** how to look into a kernel: at its values with `T.print`, at its instructions in the CUDA source,
# and at its memory traffic with the profiler's counts. Three kernels have a bug each. Each tool finds one of them.
#
# **You will** mend three kernels, a few lines each, and name the landmarks of one of them for two cards. It takes 60
# to 75 minutes with reading. Labs 02, 03 and 05 come first. You need no GPU for any of it.

# %%
try:
    from grader import ready
except ModuleNotFoundError:  # on Google Colab, say: this takes the labs' package from the uploaded file
    import subprocess
    import sys

    options = ["--quiet", "--no-index", "--no-deps", "--find-links", "."]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "tilelang-labs"], check=True)
    from grader import ready

ready()

# %%
import tilelang
import tilelang.language as T

from grader import check, roofline, show_cuda, show_prints

# %% [markdown] tags=["lang-en"]
# ## The picture
#
# Between your kernel and the card lie several stations. A bug is seen best at one of them:
#
# ```text
#    your kernel              CUDA source               the run
#   +-------------+          +-------------+          +-------------+
#   | tiles,      |          | threads,    |          | values,     |
#   | T.copy,     |--------->| cp.async,   |--------->| bytes moved,|
#   | T.gemm      | TileLang | mma, ...    |   card,  | time        |
#   +-------------+          +-------------+ simulator+-------------+
#
#    What did I write?        What became of it?       What did it do?
#
#                             show_cuda                T.print, show_prints   values
#                                                      roofline, bench        bytes, time
# ```
#
# So ask first what kind of wrong it is:
#
# | what you see | where to look | tool |
# | --- | --- | --- |
# | the results are wrong | the values, from the first tile on | `T.print` |
# | the results are right, and it is slow: the wrong instructions | the CUDA source | `show_cuda` |
# | the results are right, and it is slow: too many bytes | the counts | `roofline`; on a GPU also `bench` |

# %% [markdown] tags=["lang-en"]
# ## The words of TileLang that you need
#
# | call | what it does |
# | --- | --- |
# | `T.print(tile)` | prints every element of a tile, in shared memory or in a fragment |
# | `T.print(x, msg="text")` | prints a value, with a text before it |
# | `T.reduce_absmax(tile, top, dim=1)` | `top[i]` becomes the largest absolute value in row `i` of the tile |
# | `T.rsqrt(x)` | 1 / √x |
#
# **A worked example.** The vector add of lab 01, with two prints in it. On a card, each value becomes a line of its
# own, and the lines of different blocks come in any order. `show_prints` runs the kernel on the simulator instead, and
# sorts them by block. Take small sizes and small tiles: then there is little to read.


# %%
@tilelang.jit(out_idx=[-1])
def vector_add(N, block_N=1024, threads=256):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(N // block_N, threads=threads) as bx:  # without a guard: N is a multiple here
            T.print(bx * block_N, msg="my first element")
            for i in T.Parallel(block_N):
                T.print(A[bx * block_N + i] + B[bx * block_N + i], msg="sum")
                C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]

    return main


show_prints(vector_add, {"N": 12}, block_N=4, threads=32)

# %% [markdown] tags=["lang-en"]
# Three blocks of four elements. The iterations of a `T.Parallel` loop share a row: they run at the same time.

# %% [markdown] tags=["lang-en"]
# ## The first bug: wrong values
#
# `scale_rows` divides each row by its largest absolute value, so that all results lie between -1 and 1. The row is
# longer than a tile: a first walk finds the largest value, a second one divides.
#
# 1. Run the cell, and the check below it. It names two wrong elements, and what they should be. By which factor is
#    each too large? A row has one factor for all of its elements: which fragment holds one number for the row?
# 2. Look at what `top` holds: put `T.print(top)` into the first loop, below the reduction. Run the cell again, and
#    the one with `show_prints` below the check. What must hold for a largest value *so far*, from one tile to the
#    next?
# 3. Mend the kernel. All lines between the marks are yours to change; one of them is wrong. Take the prints out again
#    when you have found it.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "scale_rows", "task": false}
@tilelang.jit(out_idx=[-1])
def scale_rows(M, N, block_N=1024, threads=128):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=threads) as bx:
            x = T.alloc_fragment((1, block_N), "float32")
            top = T.alloc_fragment((1,), "float32")
            ### BEGIN SOLUTION lines=9 hint="Print top in each step. Can a largest value so far ever fall?"
            ### PLANTED T.clear(top)
            ### PLANTED for k in T.serial(T.ceildiv(N, block_N)):
            ### PLANTED     T.copy(X[bx, k * block_N], x)
            ### PLANTED     T.reduce_absmax(x, top, dim=1)
            ### PLANTED for k in T.serial(T.ceildiv(N, block_N)):
            ### PLANTED     T.copy(X[bx, k * block_N], x)
            ### PLANTED     for i, j in T.Parallel(1, block_N):
            ### PLANTED         x[i, j] = x[i, j] / top[i]
            ### PLANTED     T.copy(x, Y[bx, k * block_N])
            T.clear(top)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx, k * block_N], x)
                T.reduce_absmax(x, top, dim=1, clear=False)  # what earlier tiles had takes part
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx, k * block_N], x)
                for i, j in T.Parallel(1, block_N):
                    x[i, j] = x[i, j] / top[i]
                T.copy(x, Y[bx, k * block_N])
            ### END SOLUTION

    return main


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "scale_rows-right", "task": false}
check(scale_rows, "right")

# %%
show_prints(scale_rows, {"M": 2, "N": 96}, block_N=32, threads=32)

# %% [markdown] tags=["lang-en"]
# ## The second bug: the wrong instructions
#
# `scores` computes `C = A Bᵀ`, as attention does for its scores: `A` is M×K, `B` is N×K, both fp16. It is lab 02's
# product, but for `transpose_B`. Its results are right: its author wanted to be exact, and they are. But it is slow.
#
# Open lab 02 beside it, and look there at what a product of halves becomes. Then look at `scores` for both cards.
# Which landmarks are missing? On the way from `A` to `a_tile`, what does each thread do instead?


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "scores", "task": false}
@tilelang.jit(out_idx=[-1])
def scores(M, N, K, block_M=128, block_N=128, block_K=32, num_stages=3, threads=128):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            ### BEGIN SOLUTION lines=11 hint="An asynchronous copy moves bytes as they are. What must be the same on"
            ### HINT both sides of it?
            ### PLANTED a_tile = T.alloc_shared((block_M, block_K), "float32")
            ### PLANTED b_tile = T.alloc_shared((block_N, block_K), "float32")
            ### PLANTED product = T.alloc_fragment((block_M, block_N), "float32")
            ### PLANTED result = T.alloc_shared((block_M, block_N), "float16")
            ### PLANTED T.clear(product)
            ### PLANTED for step in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            ### PLANTED     T.copy(A[by * block_M, step * block_K], a_tile)
            ### PLANTED     T.copy(B[bx * block_N, step * block_K], b_tile)
            ### PLANTED     T.gemm(a_tile, b_tile, product, transpose_B=True)
            ### PLANTED T.copy(product, result)
            ### PLANTED T.copy(result, C[by * block_M, bx * block_N])
            # As in global memory: an asynchronous copy converts nothing.
            a_tile = T.alloc_shared((block_M, block_K), "float16")
            b_tile = T.alloc_shared((block_N, block_K), "float16")
            product = T.alloc_fragment((block_M, block_N), "float32")
            result = T.alloc_shared((block_M, block_N), "float16")
            T.clear(product)
            for step in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, step * block_K], a_tile)
                T.copy(B[bx * block_N, step * block_K], b_tile)
                T.gemm(a_tile, b_tile, product, transpose_B=True)
            T.copy(product, result)
            T.copy(result, C[by * block_M, bx * block_N])
            ### END SOLUTION

    return main


# %%
show_cuda(scores, "square", arch="sm_80")

# %%
show_cuda(scores, "square", arch="sm_90a")

# %% [markdown] tags=["lang-en"]
# Mend it, and look again. The judge runs the compiler on your kernel, for both architectures, and looks for the
# landmarks of a good product.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "scores-right", "task": false}
check(scores, "right")

# %% [markdown] tags=["lang-en"]
# ## Name the landmarks
#
# Read them off the source of **your mended** `scores`, at the shape "square", as `show_cuda` shows it above.
#
# | answer | meaning |
# | --- | --- |
# | `tensor_cores` | what multiplies: `"mma"`, `"wgmma"` or `"tcgen05"` |
# | `async_copies` | what copies from global to shared memory and lets the thread go on: `"cp.async"` or `"TMA load"` |
# | `matrix_loads` | what loads matrices from shared memory to registers: `"ldmatrix"`, or `"none"` |
# | `barriers` | of the landmarks at which threads wait, the one with the most places |
# | `tensor_core_places` | at how many places of the source the tensor cores multiply |
# | `threads` | how many threads a block has in the end |
# | `copies_before_barrier` | (`sm_80` only) how many places with an asynchronous copy stand above the first barrier |
#
# Before you look, **predict** `copies_before_barrier` from `num_stages`: how many steps does the pipeline run ahead?

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "landmarks", "task": false}
landmarks_sm_80 = {
    "tensor_cores": None,
    "async_copies": None,
    "matrix_loads": None,
    "barriers": None,
    "tensor_core_places": None,
    "threads": None,
    "copies_before_barrier": None,
}
landmarks_sm_90a = {
    "tensor_cores": None,
    "async_copies": None,
    "matrix_loads": None,
    "barriers": None,
    "tensor_core_places": None,
    "threads": None,
}
### BEGIN SOLUTION lines=15 hint='Fill in above, or here: landmarks_sm_80["threads"] = 128, and so on.'
landmarks_sm_80 |= {
    "tensor_cores": "mma",
    "async_copies": "cp.async",
    "matrix_loads": "ldmatrix",
    "barriers": "__syncthreads",
    "tensor_core_places": 6,
    "threads": 128,
    "copies_before_barrier": 4,  # two stages ahead, each with a tile of A and one of B
}
landmarks_sm_90a |= {"tensor_cores": "wgmma", "async_copies": "TMA load", "matrix_loads": "none"}
landmarks_sm_90a |= {"barriers": "mbarrier", "tensor_core_places": 1}
landmarks_sm_90a["threads"] = 256  # 128 that multiply, and 128 of which one asks for the copies
### END SOLUTION

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "scores-named", "task": false}
check(scores, "named", landmarks_sm_80=landmarks_sm_80, landmarks_sm_90a=landmarks_sm_90a)

# %% [markdown] tags=["lang-en"]
# ## The third bug: too many bytes
#
# `standardise` subtracts each row's mean and divides by its standard deviation, as a layer norm does before its
# weights: `y = (x - mean) / √(variance + 0.00001)`, where the variance is the mean of `(x - mean)²`. A row fits in a
# tile. (Keep to these distances: the mean of `x²` less the square of the mean would be the same number, but where a
# row lies far from 0 it is the difference of two large ones, and loses the digits.)
#
# Its results are right, and it has no products to put on tensor cores. So count: how often is each byte of `X` read,
# and how often would it have to be?


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "standardise", "task": false}
@tilelang.jit(out_idx=[-1])
def standardise(M, N, threads=128):
    columns = T.ceildiv(N, threads) * threads

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=threads) as bx:
            ### BEGIN SOLUTION lines=17 hint="A row that is in registers need not be read again, unless something else"
            ### HINT was written over it. Where did that happen? A further fragment costs registers, and no bytes.
            ### PLANTED x = T.alloc_fragment((1, columns), "float32")
            ### PLANTED mean = T.alloc_fragment((1,), "float32")
            ### PLANTED variance = T.alloc_fragment((1,), "float32")
            ### PLANTED
            ### PLANTED T.copy(X[bx, 0], x)
            ### PLANTED T.reduce_sum(x, mean, dim=1)
            ### PLANTED for i in T.Parallel(1):
            ### PLANTED     mean[i] = mean[i] / N
            ### PLANTED
            ### PLANTED T.copy(X[bx, 0], x)
            ### PLANTED for i, j in T.Parallel(1, columns):
            ### PLANTED     distance = T.if_then_else(j < N, x[i, j] - mean[i], 0.0)
            ### PLANTED     x[i, j] = distance * distance
            ### PLANTED T.reduce_sum(x, variance, dim=1)
            ### PLANTED for i in T.Parallel(1):
            ### PLANTED     variance[i] = variance[i] / N
            ### PLANTED
            ### PLANTED T.copy(X[bx, 0], x)
            ### PLANTED for i, j in T.Parallel(1, columns):
            ### PLANTED     x[i, j] = (x[i, j] - mean[i]) * T.rsqrt(variance[i] + 1e-5)
            ### PLANTED T.copy(x, Y[bx, 0])
            x = T.alloc_fragment((1, columns), "float32")
            square = T.alloc_fragment((1, columns), "float32")
            mean = T.alloc_fragment((1,), "float32")
            variance = T.alloc_fragment((1,), "float32")

            T.copy(X[bx, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i in T.Parallel(1):
                mean[i] = mean[i] / N

            for i, j in T.Parallel(1, columns):
                x[i, j] = T.if_then_else(j < N, x[i, j] - mean[i], 0.0)
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, variance, dim=1)
            for i in T.Parallel(1):
                variance[i] = variance[i] / N

            for i, j in T.Parallel(1, columns):
                x[i, j] = x[i, j] * T.rsqrt(variance[i] + 1e-5)
            T.copy(x, Y[bx, 0])
            ### END SOLUTION

    return main


# %%
roofline(standardise, {"M": 64, "N": 1024}, card="H200")

# %% [markdown] tags=["lang-en"]
# Look at the column "times each byte is read", and at the time that the card needs "if no cache helps". Mend the
# kernel, and count again: by which factor has that time fallen? Why is it not the factor by which the reads have
# fallen? And why does the other time, "if each byte comes once", stay as it is?

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "standardise-right", "task": false}
check(standardise, "right")

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# * **The other tool.** Would `show_cuda` have found the third bug? Count the loads of `X` in the source of the kernel
#   as you got it, and in yours. And what would `roofline` have said of the second bug?
# * **What stages buy.** `show_cuda(scores, "square", arch="sm_80", num_stages=2)`: which of your answers change? Predict
#   them for `num_stages=4` first. For `sm_90a` they don't change at all: why does that source look the same?
# * **No pipeline.** Replace `T.Pipelined(…, num_stages=num_stages)` in `scores` by `T.serial(…)`. Which landmarks
#   remain on each card?
# * **Older and newer cards.** What multiplies on `sm_75` (T4), on `sm_100a` (B200) and on `sm_120a` (RTX 50)? Which
#   asynchronous copies do they have?
# * **On a GPU.** The caches may hide what `roofline` counts: the second and third time, a row may come from L2.
#   NVIDIA's profiler `ncu` counts what DRAM really moved (`dram__bytes_read.sum`). It needs a script that calls the
#   kernel, and the right to read the card's counters.
#
# **Read next:** the CUDA C++ Programming Guide on asynchronous copies and barriers, and the PTX manual on `mma`,
# `ldmatrix`, `cp.async`, `wgmma` and `mbarrier`. You now know which of TileLang's lines they come from. `tilelab
# cheatsheet` has all calls of the course on one page.

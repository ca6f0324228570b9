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
# # Lab 02 · Tiled matmul on tensor cores
#
# **You will learn** why a matrix product is computed tile by tile, what belongs in shared memory and what in
# registers (TileLang calls them a *fragment*), how a software pipeline hides the memory, and how little code all
# that takes.
#
# **You will write** seven lines in three gaps. It takes 45 to 60 minutes with reading. Lab 01 comes first.

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

from grader import check, show_cuda, trace

# %% [markdown] tags=["lang-en"]
# ## The picture
#
# `C = A B`, where `A` is M×K, `B` is K×N and `C` is M×N. Each block computes one tile of `C`:
#
# ```text
#                           bx
#              B      +---+---+---+
#                     |   | k |   |      In step k the block reads
#                     +---+---+---+      the two tiles marked k,
#                     |   |   |   |
#                     +---+---+---+
#        A            C
#       +---+---+     +---+---+---+
#    by | k |   |     |   | @ |   |      multiplies them, and adds the
#       +---+---+     +---+---+---+      product to its tile of C, marked @.
#       |   |   |     |   |   |   |
#       +---+---+     +---+---+---+
# ```
#
# The tile of `C` stays in the *registers* of the block's threads, the quickest memory of all, until the walk is over.
# TileLang calls a tile in registers a *fragment*: each thread holds some of its elements.
#
# A block walks along K in steps of `block_K`. In each step it
#
# 1. copies a tile of `A` (`block_M` × `block_K`) and a tile of `B` (`block_K` × `block_N`) to *shared memory*,
#    which all threads of the block can reach quickly,
# 2. multiplies the two tiles on the *tensor cores* (units that do nothing but multiply small matrices, and are many times
#    faster at it than the rest of the card), and adds the product to the fragment.
#
# Every element of `A` that is fetched serves `block_N` products, and every element of `B` serves `block_M`. That
# is why tiles pay: the larger they are, the fewer bytes move for each operation.

# %% [markdown] tags=["lang-en"]
# ## The words of TileLang that you need
#
# | call | what it does |
# | --- | --- |
# | `T.alloc_shared((rows, columns), dtype)` | a tile in shared memory |
# | `T.alloc_fragment((rows, columns), dtype)` | a tile in the registers of the block's threads |
# | `T.clear(tile)` | fills a tile with zeros |
# | `T.copy(A[row, column], tile)` | copies a tile that starts at `A[row, column]`; what lies outside `A` arrives as 0 |
# | `T.copy(tile, C[row, column])` | the way back; what would lie outside `C` is not written |
# | `T.gemm(A_tile, B_tile, C_tile)` | `C_tile += A_tile @ B_tile`, on tensor cores |
# | `for k in T.Pipelined(count, num_stages=n)` | a loop whose copies run ahead of its products by up to `n` steps |
#
# `T.copy` guards the edges by itself, so here no `if` is needed. Tiles are changed by these calls, not with `=`, `+=`
# or `@`: `T.gemm` returns nothing, it adds to the tile that is named last.
#
# **A worked example.** One block, one tile: a 64×64 product with nothing to walk along.


# %%
@tilelang.jit(out_idx=[-1])
def one_tile(size=64):
    @T.prim_func
    def main(
        A: T.Tensor((size, size), "float16"),
        B: T.Tensor((size, size), "float16"),
        C: T.Tensor((size, size), "float32"),
    ):
        with T.Kernel(1, threads=128) as bx:
            A_tile = T.alloc_shared((size, size), "float16")
            B_tile = T.alloc_shared((size, size), "float16")
            C_tile = T.alloc_fragment((size, size), "float32")
            T.clear(C_tile)
            T.copy(A[0, 0], A_tile)
            T.copy(B[0, 0], B_tile)
            T.gemm(A_tile, B_tile, C_tile)
            T.copy(C_tile, C[0, 0])

    return main


print(one_tile.get_tir().script())

# %% [markdown] tags=["lang-en"]
# ## Your kernel
#
# Block `(bx, by)` computes the tile of `C` that starts at row `by * block_M` and column `bx * block_N`. The inputs
# are fp16; the fragment is fp32, because a long sum in fp16 loses most of its digits. `K` need not be a multiple of
# `block_K`: where the last tiles stick out they hold zeros, which add nothing to the sum.
#
# Change only the marked gaps. Then run the cell below.
#
# **On your card.** The schedule in the first line is one for an H200: a block takes 144 KiB of shared memory. Where it
# can have 99 (L4, RTX 40, RTX 50), write `num_stages=2` there, and on a T4, which has 64, `block_N=128` as well. The
# simulator takes any schedule.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "matmul", "task": false}
@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, block_M=128, block_N=256, block_K=64, num_stages=3, threads=256):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float16")
            B_tile = T.alloc_shared((block_K, block_N), "float16")
            C_tile = T.alloc_fragment((block_M, block_N), "float32")
            C_out = T.alloc_shared((block_M, block_N), "float16")
            T.use_swizzle(panel_size=16)  # neighbouring blocks share tiles in the L2 cache

            # 1. The sum starts at zero.
            ### BEGIN SOLUTION lines=1 hint="A fragment holds whatever was in the registers before."
            T.clear(C_tile)
            ### END SOLUTION

            # 2. Walk along K, tile by tile.
            ### BEGIN SOLUTION lines=4 hint="A pipelined loop over T.ceildiv(K, block_K) steps. In step k, copy"
            ### HINT the tile of A that starts at row by * block_M and column k * block_K, and the tile of B
            ### HINT that starts at row k * block_K; then T.gemm.
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, C_tile)
            ### END SOLUTION

            # 3. Store the tile, by way of C_out. The first copy converts fp32 to fp16.
            ### BEGIN SOLUTION lines=2 hint="Fragment to shared memory, then shared memory to where this block's tile"
            ### HINT of C starts. The detour pays: each thread holds scattered elements, shared memory holds rows.
            T.copy(C_tile, C_out)
            T.copy(C_out, C[by * block_M, bx * block_N])
            ### END SOLUTION

    return main


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "matmul-right", "task": false}
check(matmul, "right")

# %% [markdown] tags=["lang-en"]
# **When numbers are wrong**, look inside one block. The product is small here, 32×32 in tiles of 16, so there are two
# steps along K. Move the slider, and compare each step with the picture: which tiles of `A` and of `B` does block (0, 1)
# read? And where does it write? (A hatched tile holds nothing yet; dark colours are large numbers.)

# %%
trace(matmul, block=(0, 1), shape={"M": 32, "N": 32, "K": 32}, block_M=16, block_N=16, block_K=16, threads=32)

# %% [markdown] tags=["lang-en"]
# **How exact must it be?** The judge computes the product in fp64 and derives from the types, the length of the sum
# and the magnitude of its terms how far a right kernel can be off. It tries several kinds of inputs: normal ones,
# sums whose terms nearly cancel, rows with a single 1, large values. An fp32 fragment passes easily; an fp16 fragment
# does not. Try it: change the fragment's dtype, check, and change it back.

# %% [markdown] tags=["lang-en"]
# ## What becomes of it
#
# Your seven lines name tiles, and no instruction. Which instructions they become depends on the card. `show_cuda`
# marks the *landmarks* in the CUDA source: operations of the tensor cores, asynchronous copies, loads of matrices,
# barriers. First for an A100 (`sm_80`), then for Hopper (`sm_90a`: H100, H200):

# %%
show_cuda(matmul, "4096", arch="sm_80")

# %%
show_cuda(matmul, "4096", arch="sm_90a")

# %% [markdown] tags=["lang-en"]
# You need not follow the indices. Look at the order: copies, barrier, products, and where the loop over `k` begins.
#
# **Find out:**
#
# * On `sm_80`, how many pairs of copies (one of `A`, one of `B`) stand *before* the loop? Predict it for
#   `num_stages=2` and `num_stages=4`, then pass `num_stages=…` to `show_cuda`.
# * You asked for 256 threads; on `sm_90a` a block has 384. What do the other 128 do? Look for `threadIdx.x`.

# %% [markdown] tags=["lang-en"]
# ## How fast can it be?
#
# A product of two 4096×4096 matrices takes 2 · 4096³ ≈ 137 billion operations, and moves at least 100 MB. That is
# over a thousand operations for each byte. In the time in which an H200 moves one byte (at 4.3 TB/s), its tensor cores
# do some 200 operations (at up to 990 trillion a second). So the memory could keep up, and the tensor cores are the
# limit: this kernel is *compute-bound*. What counts is that they never wait.
#
# On a GPU the next cell measures your kernel beside cuBLAS (`torch.matmul`), in turns, with a cold cache.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "matmul-fast", "task": false}
check(matmul, "fast")

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# (Without a GPU: predict, count, and keep the measuring for later.)
#
# * What does `num_stages=1` cost? And smaller tiles: `block_M=128, block_N=128, block_K=32`? Predict first, then measure.
# * Store the fragment without the detour: `T.copy(C_tile, C[...])`. It is right, and shorter. How much slower is it?
# * Count: with 128×256 tiles, how often is each element of `A` read from global memory for N = 4096? And of `B`? Check your
#   way of counting on a smaller product: `from grader import roofline`, then
#   `roofline(matmul, {"M": 512, "N": 512, "K": 512})`, in the column "times each byte is read". (4096 takes the simulator
#   longer than the 30 seconds that it has.)
#
# **Read next:** lab 03, where you look for the tiles, the stages and the threads that make this kernel fastest.

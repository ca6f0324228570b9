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
# # Lab 01 · Vector add
#
# **You will learn** what a TileLang kernel is made of, how a grid of blocks covers a vector, what to do with the
# piece that sticks out at the end, and why this kernel can't be faster than the memory.
#
# **You will write** four lines. It takes 30 to 45 minutes with reading.
#
# You need no GPU: without one, a simulator runs your kernel on the CPU and checks every memory access. Only the
# speed waits until you have a GPU.

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

from grader import check, show_cuda

# %% [markdown] tags=["lang-en"]
# ## The picture
#
# We want `C[i] = A[i] + B[i]` for every `i` from 0 to `N - 1`. A GPU runs many *blocks* at the same time, so we
# cut the vectors into *tiles* of `block_N` elements and give each block one tile:
#
# ```text
# element   0         1024      2048      3072      4096
#           |---------|---------|---------|---------|
# block       bx = 0    bx = 1    bx = 2    bx = 3
#                                             ^
#                                  N = 3500 lies here: from there on
#                                  the last tile sticks out, and elements
#                                  3500 to 4095 don't exist
# ```
#
# Block `bx` looks after the elements from `bx * block_N` on. We need `ceil(N / block_N)` blocks, which TileLang
# writes `T.ceildiv(N, block_N)`.

# %% [markdown] tags=["lang-en"]
# ## A worked example
#
# This kernel doubles a vector. Read it from the outside in:
#
# * `@tilelang.jit` marks a function that *builds* a kernel (`out_idx=[-1]`: its last tensor is the result). Its
#   arguments (`N`, `block_N`) are known when the kernel is built, so a kernel is made for each size.
# * `@T.prim_func` is the kernel itself. Its parameters are tensors with a shape and a dtype.
# * `with T.Kernel(...) as bx` starts the blocks; `bx` is the number of the block.
# * `for i in T.Parallel(block_N)` goes over the tile. The iterations are shared out among the block's threads and
#   run at the same time, so they must not depend on each other. (A plain `for ... in range` shares out nothing: each of
#   the 256 threads would go through the whole tile by itself. The result is right, the time is lost.)
# * In lab 00 a tile went by way of shared memory. Here each element is used just once, by one thread, so it may come
#   straight from global memory: in the loop, `A[...]` and `B[...]` stand for single elements.
#
# The example only works if `N` is a multiple of `block_N`.


# %%
@tilelang.jit(out_idx=[-1])
def double(N, block_N=1024, threads=256):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(N // block_N, threads=threads) as bx:
            for i in T.Parallel(block_N):
                B[bx * block_N + i] = 2 * A[bx * block_N + i]

    return main


print(double.get_tir(4096).script())  # what TileLang made of it: its intermediate representation

# %% [markdown] tags=["lang-en"]
# ## Your kernel
#
# Add two vectors of **any** length. Where the last tile sticks out, no element may be read or written: guard the
# access with an `if`. `A + B` doesn't work on whole tensors here, as it does in PyTorch: add element by element.
#
# Change only the marked gap. Then run the cell below it.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "vector_add", "task": false}
@tilelang.jit(out_idx=[-1])
def vector_add(N, block_N=1024, threads=256):
    @T.prim_func
    def main(
        A: T.Tensor((N,), "float32"),
        B: T.Tensor((N,), "float32"),
        C: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            ### BEGIN SOLUTION lines=4 hint="Loop over the tile with T.Parallel. Name the element that i stands"
            ### HINT for (index = ...), and add only where index < N.
            for i in T.Parallel(block_N):
                index = bx * block_N + i
                if index < N:
                    C[index] = A[index] + B[index]
            ### END SOLUTION

    return main


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "vector_add-right", "task": false}
check(vector_add, "right")

# %% [markdown] tags=["lang-en"]
# **When something fails**, the table says which shape, which element and, where it can, which line. Two things to know:
#
# * TileLang's compiler adds guards of its own around accesses to global memory, so on a card a forgotten `if` may
#   go unnoticed. That is why the sums are right without it, too. But not every access can be rescued that way, so the
#   judge has a question of its own for it: the last line.
# * *Not assessed* means that no one has judged this yet, because it needs a GPU. It is neither right nor wrong.
#
# **From PyTorch.** On a GPU, `kernel = vector_add(N)` builds the kernel, and `c = kernel(a, b)` runs it on tensors that
# lie on the card. The judge needs no such call, and without a GPU there is nothing that could be called.

# %% [markdown] tags=["lang-en"]
# ## What becomes of it
#
# TileLang writes a CUDA program from your kernel: this is what NVIDIA's compiler gets. You need not be able to write
# it, but you can read it. `show_cuda` needs no GPU; `arch` says for which cards, here for the A100 (`sm_80`).

# %%
show_cuda(vector_add, {"N": 4096}, arch="sm_80")

# %% [markdown] tags=["lang-en"]
# * `blockIdx.x` is your `bx`. `threadIdx.x` is the number of the thread, from 0 to 255.
# * Each thread runs all of this. Your `T.Parallel` loop over 1024 elements has been shared out among 256 threads.
# * `float4` is four floats. A thread reads and writes that many, 16 bytes, with one instruction. That is the widest
#   access there is on this card, and it makes best use of the memory.
#
# **Find out:** your guard `if index < N` isn't there. Why may TileLang leave it out? Change `N` above to 4097: what
# has become of `float4`, and of the guard? How many instructions does a thread need now to read its four elements?

# %% [markdown] tags=["lang-en"]
# ## How fast can it be?
#
# Each element costs 12 bytes of memory traffic (two reads of 4 bytes, one write) and a single addition. An H200
# moves about 4.3 TB/s, which is 0.36 trillion elements a second, and could do about 30 trillion additions. So the memory
# is the limit: this kernel is *memory-bound*, and all that counts is that every byte moves once, in wide accesses (a
# thread can fetch 16 bytes at a time).
#
# On a GPU the next cell measures your kernel beside `torch.add`: the two in turns, each time with a cold cache, which
# means that nothing is left in it of the run before.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "vector_add-fast", "task": false}
check(vector_add, "fast")

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# (Without a GPU: predict, and keep the measuring for later.)
#
# * Does the tile's size matter? Change `block_N` to 256 and to 4096 (and back), and check again. What do you expect for a
#   kernel that waits for memory?
# * Leave out the `if`, and check. Which element does the judge name at N = 10000, and which block touches it? Count:
#   how many elements of that block's tile don't exist?
#
# **Read next:** lab 02, where data is used more than once, and where the tile's size decides everything.

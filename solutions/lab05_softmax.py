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
# # Lab 05 · Softmax, and rows that fit no tile
#
# **You will learn** how threads reduce a tile to one number per row, why softmax subtracts the row's maximum, how
# many registers a row takes, and how to compute the softmax of a row that you never hold as a whole. That last
# trick, the *online* softmax, is what FlashAttention is built on (lab 06).
#
# **You will write** two kernels: 25 lines in six gaps. It takes 75 to 90 minutes with reading. Labs 01, 02 and 04
# come first.

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
import math

import tilelang
import tilelang.language as T

from grader import check, roofline, trace

# %% [markdown] tags=["lang-en"]
# ## Softmax
#
# Softmax turns a row of scores into weights that are positive and add up to 1:
#
# ```text
#                exp(x[j])
# y[j] = ----------------------------
#         exp(x[0]) + ... + exp(x[N-1])
# ```
#
# Written like this it fails: `exp(89)` is more than fp32 can hold, and if all scores are below -104, every `exp` is
# 0 and the result is 0/0. But the same number may be subtracted from all scores: above and below the line, `exp(x -
# m)` is `exp(x) / exp(m)`, and `exp(m)` cancels. With `m` the row's largest score, the largest power is
# `exp(0) = 1`. Nothing overflows, and the sum is at least 1.
#
# A row then takes four steps:
#
# ```text
#                1. maximum          2. powers                3. sum              4. division
# x:  2 0 3 1  -->  m = 3  -->  exp(x - m):          -->  s = 1.553  -->  y = exp(x - m) / s:
#                               0.368 0.050 1 0.135                       0.237 0.032 0.644 0.087
# ```
#
# Steps 1 and 3 are *reductions*: many numbers become one. The threads of a block hold a row in their registers.
# For a reduction each thread reduces what it has, and then the threads exchange what they got. TileLang writes all
# that for you.

# %% [markdown] tags=["lang-en"]
# ## The words of TileLang that you need
#
# | call | what it does |
# | --- | --- |
# | `T.alloc_fragment((rows,), dtype)` | one number per row, in registers |
# | `T.reduce_max(tile, top, dim=1)` | `top[i]` becomes the largest of `tile[i, ...]` |
# | `T.reduce_sum(tile, total, dim=1)` | `total[i]` becomes the sum of `tile[i, ...]` |
# | `T.reduce_max(tile, top, dim=1, clear=False)` | the same, but what `top[i]` was takes part |
# | `T.fill(tile, value)` | every element becomes `value` |
# | `T.exp(x)` | the power of e (`math.exp` can't know an element's value when the kernel is built) |
# | `T.max(a, b)` | the larger of two numbers (Python's `max` can't tell, for the same reason) |
# | `T.infinity("float32")` | ∞, as a number of that dtype |
# | `for i, j in T.Parallel(rows, columns)` | goes over a tile, shared out among the threads |
#
# **A worked example.** How far is each element below the largest of its row? A block takes `rows` rows, and the
# number of columns is a multiple of the threads, so that each thread holds equally many.


# %%
@tilelang.jit(out_idx=[-1])
def below_the_top(M, N, rows=1, threads=128):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            top = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] = top[i] - x[i, j]
            T.copy(x, Y[bx * rows, 0])

    return main


print(below_the_top.get_tir(256, 1024).script())

# %% [markdown] tags=["lang-en"]
# ## Your first kernel: the row fits in a tile
#
# The tile is as wide as the row, rounded up to a multiple of the threads. Where it sticks out, `T.copy` leaves
# zeros. A zero is a score like any other: it takes part in the maximum and in the sum. Which score has the power 0?
#
# Change only the marked gaps. Then run the cell below.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "softmax", "task": false}
@tilelang.jit(out_idx=[-1])
def softmax(M, N, rows=1, threads=128):
    columns = T.ceildiv(N, threads) * threads

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as bx:
            x = T.alloc_fragment((rows, columns), "float32")
            top = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)

            # 1. Where the tile sticks out, put a score that changes neither the maximum nor the sum.
            ### BEGIN SOLUTION lines=3 hint="Go over the tile with T.Parallel. The columns from N on don't exist:"
            ### HINT there, x[i, j] becomes minus infinity.
            for i, j in T.Parallel(rows, columns):
                if j >= N:
                    x[i, j] = -T.infinity("float32")
            ### END SOLUTION

            # 2. The rows' maxima, the powers (in place of x), and their sums.
            ### BEGIN SOLUTION lines=4 hint="T.reduce_max into top, a T.Parallel loop that replaces x[i, j] by the"
            ### HINT power of its distance to top[i], T.reduce_sum into total. The rows are dimension 0, so reduce
            ### HINT along dim=1.
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(rows, columns):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            ### END SOLUTION

            # 3. Divide, and store.
            ### BEGIN SOLUTION lines=3 hint="Another T.Parallel loop, then T.copy back to where this block's rows"
            ### HINT start. It writes no column that doesn't exist.
            for i, j in T.Parallel(rows, columns):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * rows, 0])
            ### END SOLUTION

    return main


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "softmax-right", "task": false}
check(softmax, "right")

# %% [markdown] tags=["lang-en"]
# **What the judge tries.** Scores around 10 000 and around -10 000; rows where more than half of the scores are -∞,
# as a *mask* makes them; rows of one or two values; rows where one weight is nearly 1; rising and falling rows; rows
# of 1, 3 or 2049 elements. It also counts bytes: each element may be read once.
#
# A row of nothing but -∞ has no softmax: its sum is 0. `torch.softmax` gives NaN there. The judge does not ask
# for it.

# %% [markdown] tags=["lang-en"]
# ## How fast can it be?
#
# Each element is read once and written once, 8 bytes in all, and costs a few operations: a comparison, a
# difference, a power, an addition, a division. The kernel is *memory-bound*, and a plain copy of the tensor is what
# it can reach. That it needs the row three times (for the maximum, for the powers, for the division) does not matter,
# as long as the row stays in registers.
#
# So count registers. A thread can have at most 255, and a float takes one:
#
# ```text
#                               rows × N       values of x        N = 4096, 128 threads
# values that a thread holds = ----------      a thread holds     rows = 1:  32
#                               threads                           rows = 4: 128
#                                                                 rows = 8: 256, which don't fit
# ```
#
# What doesn't fit is *spilled*: moved to slow memory. And an SM (a multiprocessor) has 65 536 registers for all its
# threads: the more of them a thread takes, the fewer threads are there to wait for the memory at the same time.
#
# On a GPU the next cell measures your kernel beside the better one of `torch.softmax` and `torch.compile`, at
# 32768 rows of 4096.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "softmax-fast", "task": false}
check(softmax, "fast")

# %% [markdown] tags=["lang-en"]
# ## A row that fits in no tile
#
# A row of 65 536 floats is 256 KiB. That is every register of an SM, and more than its shared memory. So we walk
# along the row, tile by tile, as `matmul` walks along K. But the first tile's powers need the maximum of the whole row,
# which nobody knows yet.
#
# The trick: use the largest score *so far*, and mend the sum when a larger one turns up. Take the row from above in
# two tiles of two:
#
# ```text
#              tile 0         tile 1
#            +-----------+  +-----------+
#    x:      |  2     0  |  |  3     1  |
#            +-----------+  +-----------+
#
#    after tile 0:   m = 2   s = exp(2-2) + exp(0-2)               = 1.1353
#    after tile 1:   m = 3   s = 1.1353 × ? + exp(3-3) + exp(1-3)  = 1.5530
# ```
#
# **On paper**, before you read on: the first two powers in the sum were made with m = 2, and should have been made
# with m = 3. By which factor are they wrong? Write it with m_old and m_new, and check that the sum is right.
#
# Then compare with the next cell. It does the same with plain numbers.


# %%
def online_sum(row, width):
    """The maximum m of a row, and s, the sum of exp(x - m), tile by tile."""
    m, s = -math.inf, 0.0
    for start in range(0, len(row), width):
        tile = row[start : start + width]
        m_old, m = m, max(m, *tile)
        factor = math.exp(m_old - m)
        s = s * factor + sum(math.exp(x - m) for x in tile)
        print(f"m = {m:g}, factor = {factor:.4f}, s = {s:.4f}")
    return m, s


online_sum([2.0, 0.0, 3.0, 1.0], width=2)
print(f"in one go: s = {sum(math.exp(x - 3.0) for x in [2.0, 0.0, 3.0, 1.0]):.4f}")

# %% [markdown] tags=["lang-en"]
# Every old term is `exp(x - m_old)`. Multiplied by `exp(m_old - m_new)` it becomes `exp(x - m_new)`: the same factor
# for all of them, so it is enough to multiply their sum. In the first tile the factor is 0, as there was no
# maximum before; if the maximum stays, it is 1. It is never more than 1, so nothing overflows.
#
# When the walk is over, m and s are those of the whole row. Then a *second pass* reads the row again, and writes
# `exp(x - m) / s`.
#
# ## Your second kernel
#
# `top` is m, `total` is s, `before` is m_old, and `part` the sum of one tile. The code starts `top` at -1e30, a
# number below every score, and not at -∞. One of the questions below is why.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "online_softmax", "task": false}
LOWEST = -1e30


@tilelang.jit(out_idx=[-1])
def online_softmax(M, N, rows=1, block_N=8192, threads=512):
    tiles = T.ceildiv(N, block_N)

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=threads) as bx:
            x = T.alloc_fragment((rows, block_N), "float32")
            top = T.alloc_fragment((rows,), "float32")
            before = T.alloc_fragment((rows,), "float32")
            part = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")

            # 1. Before the first tile.
            ### BEGIN SOLUTION lines=2 hint="Fill top with LOWEST. Which sum has no terms?"
            T.fill(top, LOWEST)
            T.fill(total, 0.0)
            ### END SOLUTION

            for k in T.serial(tiles):
                T.copy(X[bx * rows, k * block_N], x)
                for i, j in T.Parallel(rows, block_N):
                    if k * block_N + j >= N:
                        x[i, j] = -T.infinity("float32")

                # 2. The new maxima, the powers, and the mended sums.
                ### BEGIN SOLUTION lines=7 hint="Copy top to before. T.reduce_max into top, with what it was taking"
                ### HINT part. The powers in place of x; T.reduce_sum into part. Then, in a loop over the rows,
                ### HINT total[i] times the factor, plus part[i].
                T.copy(top, before)
                T.reduce_max(x, top, dim=1, clear=False)
                for i, j in T.Parallel(rows, block_N):
                    x[i, j] = T.exp(x[i, j] - top[i])
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * T.exp(before[i] - top[i]) + part[i]
                ### END SOLUTION

            # 3. The second pass.
            ### BEGIN SOLUTION lines=6 hint="A loop over the tiles: copy a tile, replace its scores by the weights,"
            ### HINT copy it to Y. Any order of the tiles is right. Which of them were read last, and may still be in
            ### HINT the L2 cache?
            for k in T.serial(tiles):
                start = (tiles - 1 - k) * block_N  # backwards: what was read last may still be in the L2 cache
                T.copy(X[bx * rows, start], x)
                for i, j in T.Parallel(rows, block_N):
                    x[i, j] = T.exp(x[i, j] - top[i]) / total[i]
                T.copy(x, Y[bx * rows, start])
            ### END SOLUTION

    return main


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "online_softmax-right", "task": false}
check(online_softmax, "right")

# %% [markdown] tags=["lang-en"]
# **See it walk.** A row of 8 in tiles of 4 (the first of two rows, each a block's). Follow `top` and `total` through
# the steps, and find the step where the sum is mended. By which factor? Then look at the other row: `block=(1,)`.

# %%
trace(online_softmax, block=(0,), shape={"M": 2, "N": 8}, block_N=4, threads=32)

# %% [markdown] tags=["lang-en"]
# ## How fast can it be?
#
# This kernel reads each element twice and writes it once. Count it:

# %%
roofline(online_softmax, shape="several tiles", card="H200")

# %% [markdown] tags=["lang-en"]
# A copy moves 8 bytes for each element, this kernel 12. If every one of them comes from DRAM (the chips that global
# memory is made of), it reaches 2/3 of a copy's speed. It can do better than that: between DRAM and the SMs lies the
# *L2 cache*, tens of megabytes on a data-centre card, and what the second pass finds there doesn't have to be fetched
# again. How much that is depends on how many rows are under way at the same time.
#
# The judge counts 8 bytes for each element, whatever a kernel moves: the figure says how fast the work is done.
# The next cell measures 2048 rows of 65 536: as many bytes as before, in longer rows.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "online_softmax-fast", "task": false}
check(online_softmax, "fast")

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# What needs a GPU says so; `tilelab compile` needs nvcc (NVIDIA's compiler), but no GPU.
#
# * **Why not -∞?** Set `LOWEST = -math.inf` and check again. On which kind of inputs does it fail, and at which line is
#   the first NaN made? Which two numbers made it? Find a row of four that hurts the plain Python above in the same way.
# * **Where does spilling begin?** Predict it for `rows` = 1, 2, 4 and 8. Then change the default of `rows` in
#   `softmax`, save, and ask the compiler in a terminal: `tilelab compile lab05_softmax.ipynb --kernel softmax`. Why
#   does a thread take more registers than its share of x?
# * **Without the maximum.** Leave `top` out of the powers in `softmax`. Which of the judge's inputs are then still
#   right? Predict. The judge names the first kind that isn't, and the score whose power is too large.
# * **Powers of two.** The hardware computes 2^x; `T.exp` is made from it, with further instructions. `T.exp2((x -
#   top) * 1.44269504)` is the same number. How many registers does `softmax` take with it, and how many blocks fit on
#   an SM then? (GPU) Is it faster? What does a memory-bound kernel wait for?
# * **Rows under way** (GPU). In `online_softmax`, try `block_N=2048, threads=128`, and `block_N=16384,
#   threads=1024`. `tilelab compile` says how many blocks fit on an SM. How many bytes of rows are then under way on
#   the whole card, and do they fit into L2 (`torch.cuda.get_device_properties(0).L2_cache_size` bytes)? Now let the
#   second pass go the other way. When does that matter, and when doesn't it?
#
# **Read next:** lab 06. There, the scores of a row are never stored at all: they are made tile by tile, and the sum
# that has to be mended is a whole tile of the result.

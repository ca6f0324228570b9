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
# # Lab 00 · The environment, and a first tile
#
# **You will learn** how a lab works: who judges your kernels, how to ask, and how to look into a kernel. You will
# move a first tile, and meet three words that return in every lab: *latency*, *bandwidth* and *relative error*.
#
# **You will write** two lines. It takes 45 minutes with reading.
#
# Run the cells one after the other: click into a cell and press Shift+Enter.
#
# ## Is everything here?
#
# Each lab begins with the next cell. Where all is in place, it takes a second and says who judges your kernels: your
# GPU, or a *simulator* that runs them on the CPU. On Google Colab it first installs what is missing; for that,
# upload the file `tilelang_labs-….whl` that came with the labs (the folder sign at the left, then Upload). If it
# asks for a restart, do that and begin again at the first cell.
#
# On your own machine the cell should install nothing. If it ends with "No matching distribution found for
# tilelang-labs", the notebook runs in another Python than the one that the labs were set up in. Choose that one as the
# notebook's kernel (in VS Code at the upper right), or start the labs with `make lab`.

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
import torch

from grader import check, roofline, trace

# %% [markdown] tags=["lang-en"]
# ## The picture
#
# A *kernel* is a function that runs on the GPU. The GPU has a large memory of its own, called *global memory*:
# gigabytes, but slow to reach. Its arithmetic units stand in groups, the *multiprocessors* (SMs), and beside each group
# lies *shared memory*: quick, but only some hundred kilobytes. So a kernel brings a piece of the data near, works on it
# there, and puts the result back. The piece is called a *tile*.
#
# ```text
#     A (global memory)               tile                 B (global memory)
#    +-----+-----+-----+         (shared memory)          +-----+-----+-----+
#    |     |  @  |     |   copy      +-----+      copy    |     |  @  |     |
#    +-----+-----+-----+  ------->   |  @  |   ------->   +-----+-----+-----+
#    |     |     |     |             +-----+              |     |     |     |
#    +-----+-----+-----+                                  +-----+-----+-----+
#
#     bx = 0, 1, 2  from left to right;  by = 0, 1  from top to bottom;  @ is the tile of block (1, 0)
# ```
#
# A *block* is a team of threads on one multiprocessor, with shared memory of its own. Many blocks run at the same time,
# and each moves one tile. All of them run the same code; only their indices `bx` and `by` differ. Block `(bx, by)` looks
# after the tile whose first element stands in row `by * block_M` and column `bx * block_N`.
#
# In TileLang you say what a whole block does. How its threads share out the work is up to the compiler; you only say
# how many they are. They come in groups of 32, called *warps*.

# %% [markdown] tags=["lang-en"]
# ## A worked example
#
# The kernel below fills a matrix with ones, tile by tile. Read it from the outside in:
#
# | line | what it says |
# | --- | --- |
# | `@tilelang.jit(out_idx=[-1])` | this function builds a kernel; the last tensor is its result |
# | `@T.prim_func` | here the kernel itself begins; its parameters are tensors with a shape and a dtype |
# | `with T.Kernel(columns, rows, threads=128) as (bx, by)` | starts `columns` × `rows` blocks of 128 threads; a block's indices are `bx` and `by` |
# | `T.ceildiv(N, block_N)` | N / block_N, rounded up: how many tiles it takes to cover N columns |
# | `T.alloc_shared((block_M, block_N), "float32")` | a tile in shared memory |
# | `T.fill(tile, 1.0)` | writes 1.0 to every element of the tile |
# | `T.copy(tile, B[row, column])` | copies the tile to the place in `B` that begins at `[row, column]` |
#
# Where the last tiles stick out of the matrix, `T.copy` leaves out what doesn't exist.


# %%
@tilelang.jit(out_idx=[-1])
def ones(M, N, block_M=32, block_N=64, threads=128):
    @T.prim_func
    def main(B: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            tile = T.alloc_shared((block_M, block_N), "float32")
            T.fill(tile, 1.0)
            T.copy(tile, B[by * block_M, bx * block_N])

    return main


print(ones.get_tir(64, 128).script())  # the kernel as TileLang sees it: its intermediate representation

# %% [markdown] tags=["lang-en"]
# You need not understand every line of this. Find the two loops over the blocks, and your `T.fill` and `T.copy` at the
# end. The sizes have become numbers, because a kernel is built for one size: (64, 128) here. In a `T.region`, 1 means
# that the tile is read, and 2 that it is written.
#
# ## Your kernel
#
# Copy `A` to `B` by way of the tile. You know how a tile goes to a place in a tensor; the way in is the same call
# with the two turned around: `T.copy(A[row, column], tile)`. Here `A[row, column]` doesn't stand for one element, but
# for the place where the tile begins. How far it reaches, `T.copy` takes from the tile. (Don't assign with `=`, as in
# NumPy: tiles are moved by calls.)
#
# Change only the marked gap: your lines take the place of `pass`. Run the cell, then the one below it.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "tile_copy", "task": false}
@tilelang.jit(out_idx=[-1])
def tile_copy(M, N, block_M=32, block_N=64, threads=128):
    @T.prim_func
    def main(
        A: T.Tensor((M, N), "float32"),
        B: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            tile = T.alloc_shared((block_M, block_N), "float32")
            ### BEGIN SOLUTION lines=2 hint="One T.copy into the tile, one out of it. Both begin at row by * block_M"
            ### HINT and column bx * block_N.
            T.copy(A[by * block_M, bx * block_N], tile)
            T.copy(tile, B[by * block_M, bx * block_N])
            ### END SOLUTION

    return main


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "tile_copy-right", "task": false}
check(tile_copy, "right")

# %% [markdown] tags=["lang-en"]
# **How to read the table.** Each line is one question of the judge. *Passed* earns its points. *Failed* says what is
# wrong, at which shape, and, where one can be named, at which line of yours: "In [4], line 10" is the tenth line of the
# cell with `[4]` at its left. Later labs have a third word, *not assessed*: no one has judged that yet, because it needs
# a GPU; it is neither right nor wrong.
#
# The judge doesn't run your Python. It takes the kernel as you saw it printed above, gives it inputs of its own, and
# compares every element. The same tests grade the notebook later.
#
# **Break it on purpose**: swap `bx` and `by` in one of your two lines, run both cells again, and see what the table
# says. It names an element that is wrong, and can't know which line did it. The next section shows how to find out. Run
# it with the mistake still in, then put it right and run it again.

# %% [markdown] tags=["lang-en"]
# ## Look inside
#
# `trace` runs one block step by step and shows which tiles it reads and writes: move the slider. Here are a matrix of
# 8×8 and tiles of 4×4, small enough to read the numbers. Which block is this one, and where does its tile begin? Is that
# where it is read, and where it is written?

# %%
trace(tile_copy, block=(1, 0), shape={"M": 8, "N": 8}, block_M=4, block_N=4, threads=32)

# %% [markdown] tags=["lang-en"]
# ## Three words
#
# **Latency** is how long one thing takes, from its start to its end: seconds. **Bandwidth** is how much gets through
# in a second once it flows: bytes per second. A long water pipe has both: the wait until the first drop, and the
# litres a second after it.
#
# A kernel that copies pays for both. Take a card that moves 4.3 TB/s (an H200 does, though its datasheet says 4.8) and
# needs about 10 µs to get a kernel started. Every element is read once and written once, at 4 bytes each:

# %%
START = 10e-6  # seconds: the latency of a launch
BANDWIDTH = 4.3e12  # bytes a second

for side in (64, 1024, 16384):
    moved = 2 * 4 * side * side
    flowing = moved / BANDWIDTH
    share = flowing / (START + flowing)
    print(
        f"{side:5d} x {side:<5d}  {moved / 1e6:9.3f} MB  {flowing * 1e6:8.3f} µs of moving, {share:4.0%} of the time"
    )

# %% [markdown] tags=["lang-en"]
# A small matrix is all latency, a large one all bandwidth. That is why speed is measured at large shapes in these
# labs, and why a kernel's figure is given in GB/s: the bytes that it *must* move over the time that it took.
#
# **Relative error** is how far a result is off, as a share of what it should be: |got − wanted| / |wanted|. Numbers in
# a computer have a limited number of digits, so most results are off by a little. What is "a little" depends on the
# type:

# %%
third = 1 / 3
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    stored = torch.tensor(third, dtype=dtype).double().item()
    print(
        f"1/3 in {str(dtype).removeprefix('torch.'):9s} is {stored:.10f}: relative error {abs(stored - third) / third:.1e}"
    )

# %% [markdown] tags=["lang-en"]
# A copy has no excuse for any error, so here the judge asked for exactly the same numbers (that is the "± 0" where an
# element is wrong). A sum of a thousand products has an excuse: it rounds at every step. From lab 02 on the judge derives
# for each element how far a right kernel can be off.
#
# ## How fast could any card be?
#
# `roofline` counts what your kernel moves and computes, and gives the least time that it can take on known cards. It
# needs no GPU. Check the count by hand: 128 × 256 elements of 4 bytes, read once and written once. The times come from the
# cards' datasheets; a kernel that copies can't be faster. (FLOP are operations on numbers. A copy does none.)

# %%
roofline(tile_copy, shape="many tiles")

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# * Count first, then ask `roofline(tile_copy, shape="tail")`: are 100 × 200 elements moved, or whole tiles?
# * Take larger tiles, `roofline(tile_copy, shape="many tiles", block_M=64, block_N=128)`. What changes in the count, and
#   what doesn't? Why?
# * With a GPU: `from grader import bench`, then `bench(tile_copy, {"M": 64, "N": 64})` and the same at 16384 × 16384. Do
#   the shares that you computed above fit?
#
# **Read next:** lab 01, where a kernel computes something, and where you see to the last tile yourself.

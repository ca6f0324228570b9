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
# # Lab 03 · Schedules
#
# **You will learn** what a *schedule* is: everything about a kernel that changes its speed and not its result. You
# will predict by counting, sweep over schedules, choose one, and say why it is the best.
#
# **You will write** about twelve lines and one short answer in words. It takes 60 to 90 minutes. Lab 02 comes first.

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

from grader import bench, check, roofline

# %% [markdown] tags=["lang-en"]
# ## The picture
#
# The product of lab 02, at two schedules. A block computes one tile of `C`, and reads a band of `A` and a band of `B`
# for it:
#
# ```text
#     small tiles: many blocks                 large tiles: few blocks
#
#              +--+--+--+--+                           +-----+-----+
#              |  |##|  |  |  B                        |     |#####|  B
#              |  |##|  |  |                           |     |#####|
#              +--+--+--+--+                           +-----+-----+
#    +-----+   +--+--+--+--+                 +-----+   +-----+-----+
#    |     |   |  |  |  |  |                 |#####|   |     |     |
#    +-----+   +--+--+--+--+                 |#####|   |     |  @  |
#    |#####|   |  |@ |  |  |                 |#####|   |     |     |
#    +-----+   +--+--+--+--+                 +-----+   +-----+-----+
#    |     |   |  |  |  |  |                 |     |   |     |     |
#    +-----+   +--+--+--+--+                 |     |   |     |     |
#       A            C                          A            C
#
#    Each row of A is read by 4 blocks.       Each row of A is read by 2 blocks.
# ```
#
# Large tiles read less. But they take more shared memory and more registers, and there are fewer of them to share out
# among the card's multiprocessors. No formula knows the best schedule of every card. So one *sweeps*: counts what can
# be counted, throws away what can't fit, and measures the rest.
#
# | argument | what it decides |
# | --- | --- |
# | `block_M`, `block_N` | the tile of `C` that a block computes |
# | `block_K` | how far a block walks along K in one step |
# | `num_stages` | how many steps' tiles are in shared memory at the same time, so that copies run ahead of products |
# | `threads` | the threads of a block; more threads share out the fragment more thinly |
# | `swizzle` | 0: blocks run row by row. n > 0: in panels n tiles wide, so that neighbours share tiles in the L2 cache |
#
# (The *L2 cache* lies between global memory and all multiprocessors. What one block has fetched, another may find there.)
#
# In `T.use_swizzle(panel_size=n, enable=…)` only `enable` is new: it can switch the call off. All else you know from
# lab 02.

# %% [markdown] tags=["lang-en"]
# ## The kernel
#
# It is lab 02's, with the schedule as its arguments. Bring your seven lines from there: the sum that starts at zero,
# the walk along K, and the store by way of `C_out`. They are unchanged.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "scheduled-matmul", "task": false}
@tilelang.jit(out_idx=[-1])
def scheduled_matmul(M, N, K, block_M=128, block_N=128, block_K=32, num_stages=2, threads=128, swizzle=0):
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
            T.use_swizzle(panel_size=swizzle, enable=swizzle > 0)
            ### BEGIN SOLUTION lines=7 hint="Your kernel of lab 02, from T.clear(C_tile) to the store. The names of the"
            ### HINT tiles are the same.
            T.clear(C_tile)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, C_tile)
            T.copy(C_tile, C_out)
            T.copy(C_out, C[by * block_M, bx * block_N])
            ### END SOLUTION

    return main


# %% [markdown] tags=["lang-en"]
# ## A worked example
#
# Take 128×128 tiles of `C`, `block_K = 32` and 2 stages, for 4096×4096 matrices.
#
# * *Shared memory.* One stage holds a tile of `A` (128 × 32) and one of `B` (32 × 128), 2 bytes an element: 16 KiB.
#   Two stages take 32 KiB. `C_out` comes when these tiles are no longer needed, and TileLang puts it where they were.
#   So the larger of the two counts; here `C_out` takes 128 × 128 × 2 bytes, 32 KiB as well.
# * *Reads.* `4096 / 128 = 32` blocks stand side by side, and each reads the same rows of `A`. So every element of `A`
#   is read 32 times, and so is every element of `B`, unless a cache helps.
#
# Check the second count on a smaller product: with 512×512 matrices there are 4 blocks side by side. Look at the column
# "times each byte is read".

# %%
roofline(scheduled_matmul, {"M": 512, "N": 512, "K": 512}, card="H200", block_M=128, block_N=128)

# %% [markdown] tags=["lang-en"]
# The line on shared memory says more than the 32 KiB above, since it gives each tile a place of its own: first with one
# stage, then with two. It doesn't know that `C_out` comes where the others were. Your own count, with the larger of the
# two, is the one to go by.
#
# **How to read the plot.** To the right: operations for each byte. Upwards: operations a second. Under the slanted roof
# the memory is the limit, under the level one the tensor cores are. Larger matrices move the mark "if each byte comes
# once" to the right, far beyond the bend at 4096. The mark "if no cache helps" hardly moves: only larger tiles move it.
#
# ## Predict
#
# Now you, for `block_M = 128`, `block_N = 256`, `block_K = 64`, `num_stages = 3` and 4096×4096 matrices:
#
# * `shared_kib`: how many KiB of shared memory does a block need?
# * `most_stages`: with these tiles, how many stages fit where a block may have 227 KiB (Hopper and Blackwell)?
# * `reads_of_A`, `reads_of_B`: how many times is each element of `A` read, and each of `B`, if no cache helps?
#
# Write numbers, or let Python compute them. The next cell says at once whether they are right.

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "predictions", "task": false}
predictions = {"shared_kib": None, "most_stages": None, "reads_of_A": None, "reads_of_B": None}
### BEGIN SOLUTION lines=5 hint="Fill in predictions[...]. One stage: (128 · 64 + 64 · 256) elements of 2 bytes."
stage = (128 * 64 + 64 * 256) * 2 // 1024
predictions["shared_kib"] = 3 * stage
predictions["most_stages"] = 227 // stage
predictions["reads_of_A"] = 4096 // 256
predictions["reads_of_B"] = 4096 // 128
### END SOLUTION

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "schedules-predictions", "task": false}
check(predictions=predictions)

# %% [markdown] tags=["lang-en"]
# ## Sweep
#
# Write down all schedules that you would consider, and throw away those that can't fit. The limit is your card's:
# 227 KiB a block on Hopper and Blackwell (H100, H200, B200), 163 on an A100, 99 on an L4 or an RTX 40, 64 on a T4.
#
# A warning about small numbers of threads: a fragment lies in registers, and a thread has at most 255 of them. A
# fragment of 128×256 fp32 numbers takes 256 registers of each of 128 threads. So they don't fit, and the compiler
# moves some to memory ("spills").
#
# No check waits for this cell. See for yourself: `shared_kib` should give your prediction for the schedule above, and
# 144 of the 180 candidates fit into 227 KiB.

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "sweep", "task": false}
LIMIT_KIB = 227  # change it to your card's

candidates = [
    dict(block_M=block_M, block_N=block_N, block_K=block_K, num_stages=stages, threads=threads, swizzle=swizzle)
    for block_M, block_N in [(64, 64), (128, 128), (128, 256), (256, 128), (256, 256)]
    for block_K in [32, 64, 128]
    for stages in [2, 3, 4]
    for threads in [128, 256]
    for swizzle in [0, 16]
]


def shared_kib(schedule):
    """The KiB of shared memory that a block of scheduled_matmul needs at this schedule."""
    ### BEGIN SOLUTION lines=3 hint="Count elements: those of a tile of A and of a tile of B, times the stages; and those"
    ### HINT of C_out. The larger counts. Return it times 2 bytes, over 1024.
    stage = (schedule["block_M"] + schedule["block_N"]) * schedule["block_K"]
    elements = max(schedule["num_stages"] * stage, schedule["block_M"] * schedule["block_N"])
    return elements * 2 / 1024
    ### END SOLUTION


fitting = []
### BEGIN SOLUTION lines=1 hint="Those of the candidates whose shared_kib is at most LIMIT_KIB."
fitting = [schedule for schedule in candidates if shared_kib(schedule) <= LIMIT_KIB]
### END SOLUTION

print(f"{len(fitting)} of {len(candidates)} candidates fit")

# %% [markdown] tags=["lang-en"]
# That is too many to measure one by one with care, and most of them are plainly bad. Choose between four and eight
# that differ in what you want to find out, and hand them in as `schedules`. **Before** you measure, note for yourself
# which you think is the fastest.
#
# The judge takes these values: 64, 128 or 256 for `block_M` and `block_N`; 32, 64 or 128 for `block_K`; 1 to 6 stages;
# 128, 256 or 512 threads; 0 to 32 for `swizzle`. Each schedule names all six.
#
# Then choose `best`, one of them. Without a GPU, choose by counting: few reads, several stages, no spills.

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "schedules", "task": false}
schedules = []  # dicts with block_M, block_N, block_K, num_stages, threads, swizzle
best = None  # one of them
### BEGIN SOLUTION lines=8 hint="schedules = [dict(block_M=128, ...), ...], then best = schedules[...]."
schedules = [
    dict(block_M=128, block_N=256, block_K=64, num_stages=4, threads=256, swizzle=16),
    dict(block_M=128, block_N=256, block_K=64, num_stages=3, threads=256, swizzle=16),
    dict(block_M=128, block_N=256, block_K=64, num_stages=3, threads=256, swizzle=0),
    dict(block_M=128, block_N=128, block_K=64, num_stages=3, threads=256, swizzle=16),
    dict(block_M=128, block_N=128, block_K=32, num_stages=2, threads=128, swizzle=0),
]
best = schedules[0]
### END SOLUTION

# %% [markdown] tags=["lang-en"]
# With a GPU, the next cell measures each of them beside cuBLAS. That takes a while: each is compiled and timed by itself.

# %%
if torch.cuda.is_available():
    for schedule in schedules:
        print(schedule)
        bench(scheduled_matmul, "4096", **schedule)

# %% [markdown] tags=["lang-en"]
# Are all of them right, and do they fit? A schedule must never change the result. The judge tries each at sizes that
# fit the tiles and at sizes that don't.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "scheduled_matmul-right", "task": false}
check(scheduled_matmul, "right", schedules=schedules, best=best)

# %% [markdown] tags=["lang-en"]
# How good is your best? The judge has made a sweep of its own on some cards, and compares. (*Not assessed* without a
# GPU, and on cards that it has no sweep of.)

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "scheduled_matmul-fast", "task": false}
check(scheduled_matmul, "fast", schedules=schedules, best=best)

# %% [markdown] tags=["lang-en"]
# ## Why?
#
# Why is your best schedule faster than the others that you tried (or, without a GPU, why do you expect it to be)? Name
# at least one figure that you counted or measured, and what keeps still larger tiles or more stages from being better.
# Double-click the next cell and write. A teacher reads it.

# %% [markdown] nbgrader={"grade": true, "solution": true, "locked": false, "schema_version": 3, "grade_id": "schedules-reason", "task": false} tags=["lang-en"]
# ### BEGIN ANSWER sentences=4 hint="Which schedule, which figures, which limit."
# A tile of 128×256 reads each element of A 16 times and each of B 32 times; with 128×128 it is 32 times each.
# Four stages let the copies run ahead of the products, which hides the memory's latency.
# They take 192 of 227 KiB, so a fifth stage has no room, and neither have 256×256 tiles with enough stages to hide it.
# 256 threads hold the fragment in 128 registers each; with 128 threads it would spill.
# ### END ANSWER

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# (Without a GPU: predict, count, and keep the measuring for later.)
#
# * Swizzling changes no count of yours. Measure your best with `swizzle=0`, 4, 16: what does it change, then?
# * How much does the best schedule at 4096 lose at 1024? Count the blocks of both, and the multiprocessors of your card
#   (an H200 has 132).
# * Save, and type `tilelab compile lab03_schedules.ipynb --shape all` in a terminal (a minute or two; it needs nvcc,
#   NVIDIA's compiler, but no GPU). It says what the compiler makes of each of your schedules: shared memory, registers
#   and spills, and how many blocks a multiprocessor holds at once. Is it what you counted? (On `sm_90a` there is up to
#   1 KiB more, for barriers.)
#
# **Read next:** lab 04, where the product doesn't go to memory as it is.

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
# # Lab 06 · FlashAttention
#
# **You will learn** how attention is computed without ever storing its scores, how a result is mended that was
# begun with the wrong maximum, which tiles a causal mask lets you leave out, and where a NaN lies in wait.
#
# **You will write** two kernels: 28 lines in six gaps. It takes 75 to 90 minutes with reading. It all comes
# together here: the tiles and the pipeline of lab 02, work on a fragment between two products as in lab 04, the online
# softmax of lab 05.

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
import torch

from grader import check, roofline, trace

# %% [markdown] tags=["lang-en"]
# ## Attention
#
# A sequence has S places. Each place has a *query*, a *key* and a *value*: a row of D numbers in `Q`, in `K` and in
# `V`. A query is compared with all keys, and takes a mean of the values, in which keys that fit have a large weight:
#
# ```text
# scores  = Q Kᵀ / √D           S×S    how well query i fits key j
# weights = softmax(scores)     S×S    row by row: each row adds up to 1
# O       = weights V           S×D    the means
# ```
#
# There are `H` independent *heads* in each of `B` batches, so all four tensors are (B, H, S, D).
#
# Now count, for B = 4, H = 32, S = 8192, D = 128, with 2 bytes a number. Each of `Q`, `K`, `V` and `O` has 134 million
# numbers: 268 MB. The scores are 8.6 billion numbers: 17 GB. To write them once and to read them once takes an H200
# about 8 ms. That is longer than the two products need, if the tensor cores never wait. So the scores must not go
# to global memory at all.
#
# ## The picture
#
# A block takes `block_M` queries of one head. It walks along the keys, tile by tile, and holds only one tile of scores
# at a time:
#
# ```text
#                   K, tile by tile              in step n the block
#                 +-----+-----+-----+
#                 |  0  |  n  |     |            1. copies tile n of K,
#                 +-----+-----+-----+
#   Q                  scores                    2. makes a tile of scores: Q times the tile
#  +-----+        +- - -+-----+- - -+               of K, transposed,
#  |     |              |     |
#  +-----+        +- - -+-----+- - -+            3. replaces them by weights (online softmax),
#  |block| -----> :     |  @  |     :
#  +-----+        +- - -+-----+- - -+            4. copies tile n of V,
#  |     |
#  +-----+        +-----+-----+-----+            5. adds the weights times the tile of V
#   result <----- |  0  |  n  |     |               to its result.
#                 +-----+-----+-----+
#                   V, tile by tile
# ```
#
# In words: the only tile of scores that exists is the one marked @. It lives in a fragment, is made in step 2, used up
# in step 5, and made anew for the next tile of keys. `Q` is read once, `O` is written once. `K` and `V` are read once
# by every block of queries.

# %% [markdown] tags=["lang-en"]
# ## What there is to mend
#
# Lab 05 walked along a row twice: first for the maximum and the sum, then for the weights. Here a second walk would
# make all scores a second time. One walk is enough, if the result is mended just as the sum is.
#
# Take one query with the scores 2, 0, 3, 1 and four values of one number each, in two tiles of two:
#
# ```text
#                 tile 0        tile 1
#               +---------+  +---------+
#    scores     |  2   0  |  |  3   1  |
#               +---------+  +---------+
#    values     | 10  20  |  | 30  40  |
#               +---------+  +---------+
#
#    after tile 0:   m = 2   s = exp(2-2) + exp(0-2)              = 1.1353
#                            o = exp(2-2) × 10 + exp(0-2) × 20    = 12.7067
#    after tile 1:   m = 3   o = 12.7067 × ? + exp(3-3) × 30 + exp(1-3) × 40
# ```
#
# **On paper**, before you read on: what stands for the question mark? What do you divide by at the end, and why not
# after each tile? Then compare with the next cell.


# %%
def online_attention(scores, values, width):
    """The softmax of ``scores`` times ``values``, tile by tile, in one walk."""
    m, s, o = -math.inf, 0.0, 0.0
    for start in range(0, len(scores), width):
        tile = slice(start, start + width)
        m_old, m = m, max(m, *scores[tile])
        weights = [math.exp(x - m) for x in scores[tile]]
        factor = math.exp(m_old - m)
        s = s * factor + sum(weights)
        o = o * factor + sum(w * v for w, v in zip(weights, values[tile], strict=True))
        print(f"m = {m:g}, factor = {factor:.4f}, s = {s:.4f}, o = {o:.4f}")
    return o / s


print(f"{online_attention([2.0, 0.0, 3.0, 1.0], [10.0, 20.0, 30.0, 40.0], width=2):.4f}")
in_one_go = torch.tensor([2.0, 0.0, 3.0, 1.0]).softmax(0) @ torch.tensor([10.0, 20.0, 30.0, 40.0])
print(f"in one go: {in_one_go:.4f}")

# %% [markdown] tags=["lang-en"]
# The factor is that of the sum, and it is the same for every column of the result: what came before was weighted by
# `exp(x - m_old)` and should have been by `exp(x - m_new)`.
#
# ## What is new in TileLang
#
# | call | what it does |
# | --- | --- |
# | `T.gemm(A, B, C, transpose_B=True)` | `C += A @ Bᵀ`: both tiles are stored row by row, queries and keys alike |
# | `T.gemm(tile, V_tile, result)` | the first factor may be a fragment, of fp16 numbers |
# | `policy=T.GemmWarpPolicy.FullRow` | each warp (32 threads) gets whole rows of the result, so it can reduce them alone |
# | `T.if_then_else(condition, a, b)` | one of two values, element by element |
# | `T.exp2(x)` | 2 to the x, which is what the hardware computes |
# | `T.Kernel(nx, ny, nz)` | a grid of three dimensions: here blocks of queries, heads and batches |
#
# **exp2.** `exp(x / √D)` is `2^(x log₂(e) / √D)`. So one multiplication by `to_exponent = log₂(e) / √D` both scales a
# score and changes the base.
#
# **Rules.** Which keys may be seen is said by four small functions, the *rules*. They are plain Python: TileLang
# calls them while it builds the kernel, and what they return becomes part of it. The kernel of the second part differs
# from the first in nothing but its rules.


# %%
def rules_of_attention(S, block_M, block_N):
    """Every query may see every key that exists."""
    return {
        # The first query of block bx.
        "first_query": lambda bx: bx * block_M,
        # How many tiles of keys are visited by the block whose first query is ``first``.
        "tiles": lambda first: T.ceildiv(S, block_N),
        # May this query see this key?
        "may_see": lambda query, key: key < S,
        # May all queries of the block see all keys of tile n? Then nothing has to be masked.
        "all_seen": lambda first, n: (n + 1) * block_N <= S,
    }


# %% [markdown] tags=["lang-en"]
# ## Your kernel
#
# The last tile of keys may stick out. There, `T.copy` leaves zeros, and a zero is a key like any other: its scores are
# 0, and `exp(0 - m)` is not 0. A score of -∞ has the weight 0. So the tile of scores *starts* at 0 where a key may be seen
# and at -∞ where it may not, and `T.gemm` adds the product to that.
#
# `top` starts at `LOWEST`, a number below every score: the product of two rows of 128 fp16 numbers is never below -6e11.
#
# `top`, `before`, `part` and `total` are those of lab 05, one number for each query. `factor` is what mends.
# Change only the marked gaps. Then run the cell below.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "attention", "task": false}
LOWEST = -1e30


def flash_attention(B, H, S, D, block_M, block_N, num_stages, threads, first_query, tiles, may_see, all_seen):
    to_exponent = math.log2(math.e) / math.sqrt(D)
    by_rows, unseen = T.GemmWarpPolicy.FullRow, -T.infinity("float32")

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, S, D), "float16"),
        K: T.Tensor((B, H, S, D), "float16"),
        V: T.Tensor((B, H, S, D), "float16"),
        O: T.Tensor((B, H, S, D), "float16"),
    ):
        with T.Kernel(T.ceildiv(S, block_M), H, B, threads=threads) as (bx, head, batch):
            Q_tile = T.alloc_shared((block_M, D), "float16")
            K_tile = T.alloc_shared((block_N, D), "float16")
            V_tile = T.alloc_shared((block_N, D), "float16")
            O_tile = T.alloc_shared((block_M, D), "float16")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), "float16")
            result = T.alloc_fragment((block_M, D), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            factor = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            first = first_query(bx)
            T.copy(Q[batch, head, first, 0], Q_tile)

            # 1. Before the first tile of keys: top, total and result.
            ### BEGIN SOLUTION lines=3 hint="As in lab 05, and a result to which nothing has been added yet."
            T.fill(top, LOWEST)
            T.clear(total)
            T.clear(result)
            ### END SOLUTION

            for n in T.Pipelined(tiles(first), num_stages=num_stages):
                T.copy(K[batch, head, n * block_N, 0], K_tile)

                # 2. The scores, not yet scaled.
                ### BEGIN SOLUTION lines=6 hint="If all_seen(first, n), clear them. Else a T.Parallel loop makes"
                ### HINT each 0 or unseen (which is minus infinity), by T.if_then_else and may_see: row i is query
                ### HINT first + i, column j is key n * block_N + j. Then T.gemm, with transpose_B and policy=by_rows.
                if all_seen(first, n):
                    T.clear(scores)
                else:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(may_see(first + i, n * block_N + j), 0, unseen)
                T.gemm(Q_tile, K_tile, scores, transpose_B=True, policy=by_rows)
                ### END SOLUTION

                # 3. The new maxima, the powers in place of the scores, the factors, and the mended sums.
                ### BEGIN SOLUTION lines=8 hint="The steps of lab 05. Its T.exp(x - m) is T.exp2(x * to_exponent - m"
                ### HINT * to_exponent) here. Keep the factor of each row: the next gap needs it.
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * to_exponent - top[i] * to_exponent)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(block_M):
                    factor[i] = T.exp2(before[i] * to_exponent - top[i] * to_exponent)
                    total[i] = total[i] * factor[i] + part[i]
                ### END SOLUTION

                # 4. The mended result, and what this tile adds to it.
                ### BEGIN SOLUTION lines=5 hint="Multiply each row of result by its factor. T.copy scores to weights,"
                ### HINT which makes them fp16. Copy tile n of V as that of K above, and T.gemm with policy=by_rows.
                for i, j in T.Parallel(block_M, D):
                    result[i, j] = result[i, j] * factor[i]
                T.copy(scores, weights)
                T.copy(V[batch, head, n * block_N, 0], V_tile)
                T.gemm(weights, V_tile, result, policy=by_rows)
                ### END SOLUTION

            # 5. The division.
            ### BEGIN SOLUTION lines=2 hint="Once, when the walk is over. By what?"
            for i, j in T.Parallel(block_M, D):
                result[i, j] = result[i, j] / total[i]
            ### END SOLUTION

            T.copy(result, O_tile)
            T.copy(O_tile, O[batch, head, first, 0])

    return main


@tilelang.jit(out_idx=[-1])
def attention(B, H, S, D, block_M=192, block_N=128, num_stages=2, threads=384):
    rules = rules_of_attention(S, block_M, block_N)
    return flash_attention(B, H, S, D, block_M, block_N, num_stages, threads, **rules)


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "attention-right", "task": false}
check(attention, "right")

# %% [markdown] tags=["lang-en"]
# **What the judge tries.** Scores that grow along the sequence, so that every tile brings a new maximum; scores that
# fall; a first key that outweighs all others; scores that are all equal; rows in which one key has nearly all of the
# weight; sequences of 1, 5, 200 or 333 places.
#
# **The proof that no score is stored.** The judge counts every byte, on any machine. `O` may be written once, `Q` be
# read once, `K` and `V` once for every 64 queries. Count it yourself:

# %%
roofline(attention, shape="long", card="H200")

# %% [markdown] tags=["lang-en"]
# S is 768 there, and D is 64: each tensor has 98,304 bytes, 96 KiB. All scores, in fp16, would have 1.125 MiB. Which
# row of the table has as many bytes, and why does none of them go to global memory? How often is each element of `K`
# read? Which number of the schedule decides that?
#
# **See it walk.** One block, two tiles of keys, with the values of step after step: find the factor in both rounds.

# %%
trace(attention, block=(0, 0, 0), shape={"B": 1, "H": 1, "S": 16, "D": 8}, block_M=8, block_N=8, threads=32)

# %% [markdown] tags=["lang-en"]
# ## How fast can it be?
#
# A pair of a query and a key costs 2 D operations for the score and 2 D for the value. Without a mask that is
# 4 B H S² D in all: 4.4 trillion at S = 8192, for 1.07 GB that have to be moved. It is compute-bound, as `matmul` is.
#
# But between the two products stands `exp2`. At D = 128 a score costs 512 operations on the tensor cores, of which a
# Hopper SM does 4096 in a clock cycle, and one power, of which it does 16. So the powers alone take half as long as the
# products, and the tensor cores must not wait for them. Groups of 128 threads, with 64 queries each, help each other
# out: while one group makes its powers, another has the tensor cores. With `block_M=192` and 384 threads there are
# three such groups.
#
# The schedule is one for an H200. It takes 176 KiB of shared memory a block, more than cards before Hopper and an
# RTX 50 have. And for cards before Hopper TileLang 0.1.15 can't pipeline a loop that copies at two places and whose
# number of steps is known only on the card, as it is in the second part. On all of these set `block_M=128`,
# `num_stages=1` and `threads=256` in both kernels: that takes 96 KiB. A T4 has 64: there `block_M=64`, `block_N=64`,
# `num_stages=1` and `threads=128` fit, with 48 KiB.
#
# On a GPU the next cell measures your kernel at B = 4, H = 32, D = 128, S = 2048 and S = 8192, beside the attention
# of cuDNN or of PyTorch, whichever is faster.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "attention-fast", "task": false}
check(attention, "fast")

# %% [markdown] tags=["lang-en"]
# ## Causal attention
#
# A language model predicts the next word, so no place may look at what comes after it: query i may see key j only if
# j ≤ i. Such attention is called *causal*. Half of all scores are not needed. With four blocks of queries and four tiles
# of keys of the same size:
#
# ```text
#                 keys
#                 tile 0   tile 1   tile 2   tile 3
#   queries     +--------+--------+--------+--------+
#   block 0     |  mask  |  skip  |  skip  |  skip  |      mask   some pairs may be seen
#               +--------+--------+--------+--------+
#   block 1     |  all   |  mask  |  skip  |  skip  |      all    all pairs may be seen
#               +--------+--------+--------+--------+
#   block 2     |  all   |  all   |  mask  |  skip  |      skip   no pair may be seen
#               +--------+--------+--------+--------+
#   block 3     |  all   |  all   |  all   |  mask  |
#               +--------+--------+--------+--------+
# ```
#
# In words: below the diagonal nothing is masked, on the diagonal a part of each tile is, and above it the tiles need
# not be visited. Here 10 of 16 tiles are left; with many tiles it comes close to half.
#
# **On paper.** With block_M = 192 and block_N = 128: which tiles does block 1 visit, the one with the queries 192 to
# 383? Which of them need the mask? And does the mask of the tail (`key < S`) still have to be asked for? What do the
# queries see that lie beyond S, and where does it go?
#
# Block 3 has four times the work of block 0. Blocks start in the order of `bx`. If the long ones come last, the card
# is nearly empty while they end. So let the long ones come first.
#
# Write the rules. You need not do it all at once: with the right `may_see` and an `all_seen` that doesn't say too much,
# the kernel is right. The other two make it fast. (`first`, `n`, `query` and `key` get their values only when the kernel
# runs, so Python's `min` and `and` can't work with them: write `T.min(a, b)` and `T.And(a, b)`.)


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "causal_attention", "task": false}
@tilelang.jit(out_idx=[-1])
def causal_attention(B, H, S, D, block_M=192, block_N=128, num_stages=2, threads=384):
    rules = rules_of_attention(S, block_M, block_N)

    # 6. The rules that differ: rules["may_see"] = lambda query, key: ..., and so on.
    ### BEGIN SOLUTION lines=4 hint="all_seen: is the last key of tile n one that even the first query may see? tiles:"
    ### HINT the last query is first + block_M - 1, or S - 1 if that is less (T.min). first_query: count the blocks
    ### HINT from the last one down.
    rules["may_see"] = lambda query, key: key <= query
    rules["all_seen"] = lambda first, n: (n + 1) * block_N - 1 <= first
    rules["tiles"] = lambda first: T.ceildiv(T.min(first + block_M, S), block_N)
    rules["first_query"] = lambda bx: (T.ceildiv(S, block_M) - 1 - bx) * block_M
    ### END SOLUTION

    return flash_attention(B, H, S, D, block_M, block_N, num_stages, threads, **rules)


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "causal_attention-right", "task": false}
check(causal_attention, "right")

# %% [markdown] tags=["lang-en"]
# That tiles are left out is counted, too: at S = 768, `T.gemm` may do at most 5/6 of the operations that all tiles
# take. Compare with the count above:

# %%
roofline(causal_attention, shape="long", card="H200")

# %% [markdown] tags=["lang-en"]
# The work of S (S + 1) / 2 pairs counts: those that may be seen, the diagonal included. If a kernel visits all tiles and
# masks half of the scores, it reaches half of the speed at best.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "causal_attention-fast", "task": false}
check(causal_attention, "fast")

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# The first three need no GPU.
#
# * **Without mending.** Leave out the line that multiplies `result` by `factor`. On which kinds of inputs is the kernel
#   still right? Predict first. The judge names a kind that is wrong, and none that is right; so leave `* factor` out
#   of the line of `o` in `online_attention`, too, and give that scores of each kind, in tiles of two.
# * **-∞ minus -∞.** Set `LOWEST = -math.inf`, check, and say why it is still right. Now let the causal kernel walk
#   from the last tile to the first: in the loop, put `m = tiles(first) - 1 - n` and use `m` in place of `n`. Where is the
#   first NaN made, and of which two numbers? In which rows? Why is there none with block_M = 128 and `threads=256`?
#   Does `LOWEST = -1e30` help?
# * **Half of half.** Count with `roofline` what `causal_attention` multiplies at "long" with block_M = 64, 128 and 192.
#   What would be exactly half of all pairs? Where is the rest?
# * **The order of blocks** (GPU). Let `first_query` count upwards. How much does that cost at S = 2048, and at 8192?
#   Why is it less there?
# * **The mask's price** (GPU). Let `all_seen` be `lambda first, n: False`. How much slower is the causal kernel?
# * **The schedule** (GPU). Measure 128×128 with 256 threads, then with 128 threads, and one stage instead of two.
#   `tilelab compile lab06_flash_attention.ipynb --kernel attention` shows registers and spills.
#
# **Read next:** Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao and others,
# "FlashAttention" (2022), "FlashAttention-2" (2023) and, for Hopper, Shah and others, "FlashAttention-3" (2024). Then
# lab 07, which finds schedules by itself.

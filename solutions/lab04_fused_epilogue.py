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
# # Lab 04 · Fused epilogue: bias and GELU in the accumulator
#
# **You will learn** what a second kernel costs, how to count it, why the fragment of a matrix product is the right
# place for whatever comes after the product, and what an exact formula can cost there.
#
# **You will write** ten lines in four gaps; six of the lines are those of lab 02, which comes first. It takes 45 to 60
# minutes with reading.

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

from grader import check, roofline

# %% [markdown] tags=["lang-en"]
# ## The picture
#
# A layer of a neural network computes `C = GELU(A B + bias)`. `A` is M×K, `B` is K×N, `bias` has N elements, one for
# each column of `C`, and GELU is a function of each element by itself. As two kernels:
#
# ```text
#   kernel 1: product                    kernel 2: bias and GELU
#
#   A, B --> [ fragment ] --> Z          Z --> [ registers ] --> C
#               fp32          |          |
#                             v          |
#                      global memory ----+
#                          fp16
# ```
#
# and as one:
#
# ```text
#   A, B --> [ fragment, then bias and GELU on it ] --> C
#               fp32                                    fp16
# ```
#
# In words: in the first picture the product `Z` goes out to global memory and comes back. In the second it never
# leaves the registers. What follows the product in the same kernel is called its *epilogue*; the two kernels are
# *fused*.
#
# ## What is new in TileLang
#
# | call | what it does |
# | --- | --- |
# | `T.alloc_shared((columns,), dtype)` | a tile may have one dimension |
# | `T.copy(bias[column], tile)` | copies a tile of a vector; what lies outside arrives as 0, as ever |
# | `for i, j in T.Parallel(rows, columns)` | each element of a tile by itself; the body may read and write fragments |
# | `T.tanh(x)`, `T.exp2(x)` | tanh x and 2 to the x, in fp32 |
# | `T.fast_rcp(x)` | 1 / x of an fp32 `x` in a single instruction |

# %% [markdown] tags=["lang-en"]
# ## A worked example: the second kernel
#
# This kernel does bias and GELU by itself, on a `Z` from global memory. The formula is PyTorch's
# `gelu(z, approximate="tanh")`:
#
# `GELU(z) = ½ z (1 + tanh v)` with `v = √(2/π) (z + 0.044715 z³)`
#
# Two things to notice. `bias_tile[j]` has only the column's index, so each bias is added along its column. And the
# name `z` stands for an fp32 value: the sum and GELU are computed in fp32, and only the store rounds to fp16. Powers are
# written as products, for `**` doesn't exist here; and functions are TileLang's, as neither `math.exp2` nor PyTorch
# knows an element's value when the kernel is built.


# %%
@tilelang.jit(out_idx=[-1])
def bias_gelu(M, N, block_M=64, block_N=128, threads=256):
    @T.prim_func
    def main(
        Z: T.Tensor((M, N), "float16"),
        bias: T.Tensor((N,), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            bias_tile = T.alloc_shared((block_N,), "float16")
            T.copy(Z[by * block_M, bx * block_N], tile)
            T.copy(bias[bx * block_N], bias_tile)
            for i, j in T.Parallel(block_M, block_N):
                z = tile[i, j] + bias_tile[j]
                tile[i, j] = 0.5 * z * (1 + T.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)))
            T.copy(tile, C[by * block_M, bx * block_N])

    return main


print(bias_gelu.get_tir(4096, 4096).script())

# %% [markdown] tags=["lang-en"]
# ## Count before you write
#
# Take M = N = K = 4096. Each matrix has 4096² elements of 2 bytes, which makes 33.6 MB (1 MB = 10⁶ bytes); the bias
# has 8 kB and doesn't matter. Count each matrix once whenever a kernel reads or writes it:
#
# | | product alone | bias and GELU alone | both kernels | fused |
# | --- | --- | --- | --- | --- |
# | reads | `A`, `B` | `Z` | ? | ? |
# | writes | `Z` | `C` | ? | ? |
# | MB | 101 | ? | ? | ? |
#
# Fill in the question marks, on paper. Then two more:
#
# * An H200 moves about 4.3 TB/s. How long does the detour through global memory take?
# * The product has 2 · 4096³ operations, and the card does some 700 TFLOP/s. How long does the product take? By what
#   share could fusing shorten the whole?
#
# The answers are at the end of this notebook.

# %% [markdown] tags=["lang-en"]
# ## Why in the accumulator? The digits
#
# The detour costs digits, too. `Z` in global memory is fp16: it is rounded before GELU sees it. In the fragment it is
# still fp32. The next cell compares both with the exact value. It measures the error in halves of the spacing of fp16
# numbers there: up to 1 is lost by rounding the exact result, so no kernel can promise less.
#
# The last column is another form of the same formula. Because `½ (1 + tanh v) = 1 / (1 + exp(−2v))`,
#
# `GELU(z) = z / (1 + exp2(z (C1 + C3 z²)))` with `C1 = −2 log₂e √(2/π)` and `C3 = 0.044715 C1`


# %%
C1 = -2 * math.log2(math.e) * math.sqrt(2 / math.pi)
C3 = 0.044715 * C1


def error(computed, exact):
    """The largest error, in halves of fp16's spacing at the exact value."""
    spacing = torch.exp2(exact.abs().clamp(min=2.0**-14).log2().floor() - 10)
    return float(((computed.double() - exact).abs() / (spacing / 2)).max())


print("z between    z rounded to fp16    all in fp32    in fp32, by exp2")
for low, high in ((0, 4), (-1, 0), (-2, -1), (-3, -2), (-4, -3)):
    z = torch.linspace(low, high, 100_001)
    exact = torch.nn.functional.gelu(z.double(), approximate="tanh")
    early = torch.nn.functional.gelu(z.half().float(), approximate="tanh").half()
    late = torch.nn.functional.gelu(z, approximate="tanh").half()
    other = (z / (1 + torch.exp2(z * (C1 + C3 * z * z)))).half()
    print(
        f"{low:3} and {high:2} {error(early, exact):18.2f} {error(late, exact):15.2f} {error(other, exact):16.2f}"
    )

# %% [markdown] tags=["lang-en"]
# Rounding `z` early costs most where `z` is negative: GELU comes close to 0 there while `z` doesn't, so an error that
# was small beside `z` is large beside the result. A kernel that rounds first does not pass here. (PyTorch's `addmm`
# followed by `gelu` rounds first, so it would not pass either.)
#
# Below −3, the tanh form loses digits even in fp32: `1 + tanh v` is the difference of two nearly equal numbers. The
# judge allows for that. The exp2 form has nothing that cancels.

# %% [markdown] tags=["lang-en"]
# ## Your kernel
#
# The product, gap 2, and the store, gap 4, are those of lab 02: bring your lines. The fragment is called `acc` here,
# for *accumulator*. New are the block's piece of the bias and the epilogue.
#
# Both forms of GELU pass. Prefer the one by exp2: the hardware has an instruction for 2 to the x and one for 1 / x,
# while tanh takes many.
#
# Change only the marked gaps. Then run the cell below. The schedule is that of lab 02: where it didn't fit, write
# `num_stages=2` here, too (on a T4 `num_stages=1` and `block_N=128`, for the bias takes some room).


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "gemm_bias_gelu", "task": false}
@tilelang.jit(out_idx=[-1])
def gemm_bias_gelu(M, N, K, block_M=128, block_N=256, block_K=64, num_stages=3, threads=256):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        bias: T.Tensor((N,), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float16")
            B_tile = T.alloc_shared((block_K, block_N), "float16")
            bias_tile = T.alloc_shared((block_N,), "float16")
            acc = T.alloc_fragment((block_M, block_N), "float32")
            C_out = T.alloc_shared((block_M, block_N), "float16")
            T.use_swizzle(panel_size=16)

            # 1. The bias of this block's columns.
            ### BEGIN SOLUTION lines=1 hint="One T.copy, from where this block's columns start."
            T.copy(bias[bx * block_N], bias_tile)
            ### END SOLUTION

            # 2. The product, as in lab 02.
            T.clear(acc)
            ### BEGIN SOLUTION lines=4 hint="The pipelined loop over the tiles of A and B, with its T.gemm."
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, acc)
            ### END SOLUTION

            # 3. The epilogue: bias and GELU, in place.
            ### BEGIN SOLUTION lines=3 hint="A T.Parallel loop over the tile, as in the worked example. Name the sum of"
            ### HINT element and bias z, and write GELU of z back to the element. For the quotient in one
            ### HINT instruction: z * T.fast_rcp(...).
            for i, j in T.Parallel(block_M, block_N):
                z = acc[i, j] + bias_tile[j]
                acc[i, j] = z * T.fast_rcp(1 + T.exp2(z * (C1 + C3 * z * z)))
            ### END SOLUTION

            # 4. The store, as in lab 02.
            ### BEGIN SOLUTION lines=2 hint="By way of C_out."
            T.copy(acc, C_out)
            T.copy(C_out, C[by * block_M, bx * block_N])
            ### END SOLUTION

    return main


# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "gemm_bias_gelu-right", "task": false}
check(gemm_bias_gelu, "right")

# %% [markdown] tags=["lang-en"]
# **The check of the bytes.** The simulator counted what your kernel asks of global memory. `C` may be written once and
# no more: a product that is stored first and then overwritten fails. `A` and `B` may be read as often as tiles of
# 64 × 64 would need: generous, but not enough for a kernel that doesn't share its tiles.
#
# See the counts yourself:

# %%
roofline(gemm_bias_gelu, shape={"M": 512, "N": 512, "K": 512})

# %% [markdown] tags=["lang-en"]
# In the table of bytes, find how often each byte of `A`, `B` and `bias` is read, and explain the three numbers from
# the sizes of the tiles. In the table of operations, compare the count of the matrix products with all the others
# together.

# %% [markdown] tags=["lang-en"]
# ## Is the epilogue free?
#
# By operations, nearly. Nine for each element of `C` stand beside 2 K = 8192 of the product: 0.1 %. But the product's
# run on tensor cores and these don't. And while a block is in its epilogue, the tensor cores wait: with these tiles
# only one block fits on a multiprocessor of an H200 at a time, so no other block fills the gap. What counts is how
# many *instructions* an element takes. Compiled for an H200, bias and GELU take
#
# | form | instructions an element |
# | --- | --- |
# | `T.exp2` and `T.fast_rcp` | 11 |
# | `T.tanh` | 23 |
# | `T.exp2` and `/`, a division that rounds correctly | 26 |
#
# On a GPU the next cell measures your kernel beside the same work in PyTorch, as it runs line by line (*eager*) and
# through `torch.compile`.

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "gemm_bias_gelu-fast", "task": false}
check(gemm_bias_gelu, "fast")

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# (Without a GPU: the first two work on the simulator. Predict the others, and keep the measuring for later.)
#
# * **Another GELU.** The original GELU is `½ z (1 + erf(z / √2))`, `T.erf` in TileLang. The two never differ by more
#   than 0.0005. Can the judge tell them apart? For which `z` is 0.0005 less than fp16 can show, and for which not?
#   Predict, then check it, and look at the element that the judge names.
# * **Round first.** Round `z` before GELU: `T.cast(T.cast(z, "float16"), "float32")`. Does the judge see it? Which
#   row of the table of digits does the named element belong to? (GELU is lowest, -0.17, at z = -0.75, so two negative
#   `z` have the value that the element should have. Rounding hurts the lower one.)
# * **T.tanh instead of T.exp2.** Both are right. Which share of the time does the other form cost?
# * **The compiler's fast math.** `@tilelang.jit(out_idx=[-1], pass_configs={"tl.enable_fast_math": True})` lets nvcc
#   replace functions by quick approximations. Your `exp2` form loses next to nothing. `T.tanh` becomes a hardware
#   instruction whose result is off by up to 1 part in 2000, no better than fp16. Explain why `1 + tanh v` then ruins
#   negative `z`. The simulator does not know of fast math; a card's check does: try both there.
#
# ## The answers to the counting
#
# * Bias and GELU alone read `Z` and write `C`: 67 MB.
# * Both kernels read `A`, `B`, `Z` and write `Z`, `C`: 168 MB.
# * Fused, the kernel reads `A`, `B` and writes `C`: 101 MB, no more than the product alone.
# * The 67 MB between take 16 µs, the product takes 196 µs. Fusing saves 40 % of the bytes, and at most 7 % of the time.
#
# **Read next:** lab 05, where a kernel has no product at all, and every byte counts.

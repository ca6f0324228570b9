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
# # Lab 07 · Autotuning
#
# **You will learn** to let the machine choose a schedule: write down a search space, throw away what can't fit, give a
# tuner the few that are worth its time, and keep what it found for as long as it holds.
#
# **You will write** about fifteen lines. It takes 60 to 90 minutes. Lab 03 comes first.

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
import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import tilelang
import tilelang.language as T
import torch

from grader import bench, check

# %% [markdown] tags=["lang-en"]
# ## The picture
#
# A language model that writes 64 answers at once handles 64 tokens in each step. All its large products look like this:
# `X` has 64 rows, `W` are the weights of a layer, and `R` is what the layer adds its result to.
#
# ```text
#                 W   8192 × 8192, 128 MiB
#               +--+--+--+--+--     --+--+
#               |##|  |  |  |   ...   |  |
#               |##|  |  |  |         |  |      A block computes one tile (@): all 64 rows,
#               |##|  |  |  |         |  |      and block_N columns. It reads all of X, the
#               |##|  |  |  |         |  |      columns of W above its tile (#), and a tile
#               +--+--+--+--+--     --+--+      of R that is as large as its own.
#     +-----+   +--+--+--+--+--     --+--+
#     |#####|   |@ |  |  |  |   ...   |  |
#     +-----+   +--+--+--+--+--     --+--+
#        X       Y = X W + R
#     64 × 8192, 1 MiB       64 × 8192, 1 MiB
# ```
#
# Each weight is read once, and used for 64 multiply-adds only. An H200 copies at 4.3 TB/s, so the weights alone take
# about 31 µs; its tensor cores would be done in 12. So this is a race for bytes, and the schedules that were good in
# lab 03 are bad here: with tiles 256 columns wide there are 32 blocks, and an H200 has 132 multiprocessors.
#
# | new | what it does |
# | --- | --- |
# | `tilelang.autotune(configs=…)` | makes of a kernel's factory one that compiles and times each schedule, and gives you the fastest |
# | `tuner(64, 8192, 8192)` | tunes for these sizes; gives the kernel, whose `config` is the schedule that won |
#
# Mostly it stands above `@tilelang.jit`, as `@tilelang.autotune(configs=…)`. That is the same.

# %% [markdown] tags=["lang-en"]
# ## The kernel
#
# It is given. All 64 rows fit into one tile, so four things are left to choose. `R`'s tile is fetched *before* the
# loop, so that it is there when it is needed.


# %%
@tilelang.jit(out_idx=[-1])
def projection(M, N, K, block_N=128, block_K=32, num_stages=2, threads=128):
    rows = 64

    @T.prim_func
    def main(
        X: T.Tensor((M, K), "float16"),
        W: T.Tensor((K, N), "float16"),
        R: T.Tensor((M, N), "float16"),
        Y: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, rows), threads=threads) as (bx, by):
            X_tile = T.alloc_shared((rows, block_K), "float16")
            W_tile = T.alloc_shared((block_K, block_N), "float16")
            R_tile = T.alloc_shared((rows, block_N), "float16")
            Y_tile = T.alloc_shared((rows, block_N), "float16")
            acc = T.alloc_fragment((rows, block_N), "float32")
            T.copy(R[by * rows, bx * block_N], R_tile)
            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(X[by * rows, step * block_K], X_tile)
                T.copy(W[step * block_K, bx * block_N], W_tile)
                T.gemm(X_tile, W_tile, acc)
            for i, j in T.Parallel(rows, block_N):
                acc[i, j] += R_tile[i, j]
            T.copy(acc, Y_tile)
            T.copy(Y_tile, Y[by * rows, bx * block_N])

    return main


# %% [markdown] tags=["lang-en"]
# ## The search space
#
# A search space is a list of schedules: every combination of a few values for each argument.

# %%
space = [
    dict(block_N=block_N, block_K=block_K, num_stages=num_stages, threads=threads)
    for block_N in [32, 64, 128, 256]
    for block_K in [32, 64, 128]
    for num_stages in [2, 3, 4, 5, 6]
    for threads in [128, 256]
]
print(f"{len(space)} schedules; the first is {space[0]}")

# %% [markdown] tags=["lang-en"]
# To compile one takes about five seconds, and then it must be timed. That is ten minutes for the whole space, for one
# shape on one card. Many of these would be compiled in vain: they need more shared memory than a block may have, and
# to find that out takes a formula, no compiler.
#
# ## A worked example
#
# Take `block_N = 128`, `block_K = 64`, `num_stages = 2`. Go through the kernel and ask of each tile: *when* is it in
# use?
#
# ```text
#     time            before     the loop              after
#                   |        |                       |        |
#     X_tile        |        |#######################|        |   64 × 64 × 2 bytes, for each of 2 stages
#     W_tile        |        |#######################|        |   64 × 128 × 2 bytes, for each of 2 stages
#     R_tile        |########|#######################|####    |   64 × 128 × 2 bytes, once
#     Y_tile        |        |                       |    ####|   64 × 128 × 2 bytes, once
# ```
#
# Each `#` is a time at which the tile holds something that is still needed. Tiles that are in use at the same time
# need room beside each other. Tiles that never are can lie in the same place, and TileLang puts them there. So look for
# the moment at which most is in use, and add up what is in use then.
#
# The compiler can be asked how much it takes. That needs no GPU, and about a second. First count, then run the cell.


# %%
def compiled_bytes(**schedule):
    """The bytes of shared memory that a block takes, as TileLang compiles it for Hopper (H100, H200)."""
    target = tilelang.tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}, host="c")
    with target:
        lowered = tilelang.lower(projection.get_tir(64, 8192, 8192, **schedule), target=target)
    (code,) = lowered.device_mod.functions.values()
    return int(code.attrs["dyn_shared_memory_buf"])


compiled_bytes(block_N=128, block_K=64, num_stages=2)

# %% [markdown] tags=["lang-en"]
# ## Filter
#
# Write the formula, and keep what fits into `BUDGET`: 99 KiB, what a block may have on an L4 or an RTX 40. An A100, H100
# or B200 gives a block more, so what fits there runs on these, too, and an H100's multiprocessors hold two such blocks.
# (A T4 gives a block 64 KiB. Keep the budget, which the judge goes by; but tune only schedules that fit there.)
#
# Try your formula on a schedule or two with `compiled_bytes`. (Don't filter with it: the judge gives a notebook 90
# seconds, and the compiler needs longer than that for all of the space.)

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "filter", "task": false}
BUDGET = 99 * 1024  # bytes


def shared_bytes(schedule):
    """The bytes of shared memory that a block of projection takes at this schedule."""
    ### BEGIN SOLUTION lines=3 hint="When is most in use? Count what is in use then: the tiles of X and W of all stages,"
    ### HINT and what else? Each element has 2 bytes.
    stage = 64 * schedule["block_K"] + schedule["block_K"] * schedule["block_N"]
    tile = 64 * schedule["block_N"]
    return 2 * (schedule["num_stages"] * stage + tile)
    ### END SOLUTION


kept = None  # those of the space that fit
### BEGIN SOLUTION lines=1 hint="A list of the schedules in space whose shared_bytes is at most BUDGET."
kept = [schedule for schedule in space if shared_bytes(schedule) <= BUDGET]
### END SOLUTION

if kept is not None:
    print(f"{len(kept)} of {len(space)} schedules fit into {BUDGET} bytes")

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "autotuning-kept", "task": false}
check(kept=kept)

# %% [markdown] tags=["lang-en"]
# ## A shortlist
#
# That is still five minutes of compiling. Most of these schedules are plainly bad, and counting shows which. Two
# figures matter where bytes do:
#
# * **Under way**: how many bytes can all blocks that run at the same time have asked for and not yet got? A byte of
#   global memory takes roughly a microsecond to arrive. To get 4 TB each second, some 4 MB must be under way all the
#   time (*Little's law*: bytes under way = bytes each second × seconds that each takes). More blocks, more stages and
#   larger tiles all help, as long as they fit on the card's multiprocessors together.
# * **Read**: how many bytes do all blocks read together? `W` is read once, but each block reads all of `X`. `X` is small,
#   and comes from the L2 cache; but that has its limits, too.

# %%
SMS = 132  # multiprocessors, and the bytes of shared memory that each has: those of an H100 or H200
SM_BYTES = 228 * 1024
if torch.cuda.is_available():
    SMS = torch.cuda.get_device_properties(0).multi_processor_count
    SM_BYTES = torch.cuda.get_device_properties(0).shared_memory_per_multiprocessor


def figures(schedule):
    """For 64 tokens: the number of blocks, those that run at the same time, MiB under way, and MiB read."""
    blocks = -(-8192 // schedule["block_N"])
    together = min(blocks, SMS * (SM_BYTES // (shared_bytes(schedule) + 1024)))  # CUDA takes 1 KiB of each block
    stage = 2 * schedule["block_K"] * (64 + schedule["block_N"])
    under_way = together * schedule["num_stages"] * stage
    read = 2 * 8192 * (8192 + 64 * blocks)
    return blocks, together, under_way / 2**20, read / 2**20


if kept is not None:
    print("block_N  block_K  num_stages  blocks  together  under way      read")
    for schedule in sorted(kept, key=lambda schedule: -figures(schedule)[2]):
        if schedule["threads"] == 128:  # these figures don't depend on the threads
            columns = "{block_N:7}  {block_K:7}  {num_stages:10}".format(**schedule)
            print(columns, "{:7}  {:8}  {:5.1f} MiB  {:4.0f} MiB".format(*figures(schedule)))

# %% [markdown] tags=["lang-en"]
# No figure decides alone: narrow tiles put more under way, but read more. That is what a tuner is for.
#
# Choose between three and eight for `shortlist`. Let them differ: a tuner that only sees neighbours of one schedule
# can't tell you that you were wrong. Then make the tuner.

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "shortlist", "task": false}
shortlist = None  # 3 to 8 of those that you kept
tuner = None
### BEGIN SOLUTION lines=9 hint="shortlist = [dict(block_N=64, ...), ...], and tuner = tilelang.autotune(...) applied to"
### HINT the kernel: what stands above a function as @decorate(...) can be called as decorate(...)(function).
shortlist = [
    dict(block_N=64, block_K=64, num_stages=5, threads=128),
    dict(block_N=64, block_K=128, num_stages=2, threads=128),
    dict(block_N=64, block_K=64, num_stages=4, threads=256),
    dict(block_N=32, block_K=128, num_stages=3, threads=128),
    dict(block_N=32, block_K=64, num_stages=6, threads=128),
    dict(block_N=128, block_K=64, num_stages=3, threads=128),
]
tuner = tilelang.autotune(configs=shortlist)(projection)
### END SOLUTION

# %%
configs = getattr(tuner, "configs", None)  # what the tuner will try: this is handed in

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "autotuning-configs", "task": false}
check(configs=configs, kept=kept)

# %% [markdown] tags=["lang-en"]
# ## A cache of results
#
# Tuning takes a minute, so it must happen once. But a result holds only for what was tuned: for *this* shape and
# dtype, on *this* card, with *this* version of the kernel. A cache that forgets one of these gives a wrong answer
# quickly.
#
# TileLang has such a cache, in `~/.tilelang/cache`. Its key is made of the kernel's source, the sizes, the
# configurations, TileLang's version and the architecture. The card's name is not among them: an H100 and an H200 have
# the same architecture, and not the same memory. So you write your own:
#
# * `key_of` makes one text of all that a result depends on, so that different things give different texts;
# * `remember` adds a schedule to the file (JSON, one dict), and leaves the others in it;
# * `recall` reads it back: the schedule, or `None` if the file doesn't exist or has none under this key.


# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "cache", "task": false}
def key_of(shape, dtype, card, version):
    """A text that is the same only if all four are. shape is a tuple of numbers, the others are texts."""
    ### BEGIN SOLUTION lines=1 hint="json.dumps makes a text of a list of all four."
    return json.dumps([shape, dtype, card, version])
    ### END SOLUTION


def remember(file, key, schedule):
    """Writes the schedule (a dict) to the file (a Path) under the key."""
    ### BEGIN SOLUTION lines=3 hint="Read what the file holds (a dict; an empty one if it doesn't exist), add to it, and"
    ### HINT write it: json.loads(file.read_text()), file.write_text(json.dumps(...)).
    known = json.loads(file.read_text()) if file.exists() else {}
    known[key] = schedule
    file.write_text(json.dumps(known, indent=1))
    ### END SOLUTION


def recall(file, key):
    """The schedule that the file holds under the key; None if there is none, or no file."""
    ### BEGIN SOLUTION lines=2 hint="The file must be read anew each time: it may have been written by another process."
    known = json.loads(file.read_text()) if file.exists() else {}
    return known.get(key)
    ### END SOLUTION


# %% [markdown] tags=["lang-en"]
# The next cell tries it: it remembers schedules with `block_N` 64, 128 and 32, and notes which one it gets back when
# (0 stands for none).


# %%
def try_cache():
    """What the cache answers: the block_N of the schedule that it finds, or 0."""
    answers = {}
    one = {"shape": (64, 8192, 8192), "dtype": "float16", "card": "NVIDIA H200", "version": "5f1c"}

    def ask(name, file, **other):
        answers[name] = (recall(file, key_of(**(one | other))) or {"block_N": 0})["block_N"]

    with tempfile.TemporaryDirectory() as folder:
        file, copy = Path(folder, "tuned.json"), Path(folder, "copy.json")
        ask("before", file)
        remember(file, key_of(**one), {"block_N": 64, "num_stages": 4})
        ask("after", file)
        if file.exists():
            shutil.copy(file, copy)
        ask("copied_file", copy)
        ask("other_file", Path(folder, "another.json"))
        ask("other_shape", file, shape=(64, 8192, 4096))
        ask("other_dtype", file, dtype="bfloat16")
        ask("other_card", file, card="NVIDIA H100 80GB HBM3")
        ask("other_version", file, version="5f1d")
        remember(file, key_of(**(one | {"card": "NVIDIA L4"})), {"block_N": 128, "num_stages": 2})
        ask("first_of_two", file)
        ask("second_of_two", file, card="NVIDIA L4")
        remember(file, key_of(**one), {"block_N": 32, "num_stages": 6})
        ask("replaced", file)
    return answers


cache_answers = try_cache()
print(cache_answers)

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "autotuning-cache_answers", "task": false}
check(cache_answers=cache_answers)

# %% [markdown] tags=["lang-en"]
# ## Tune
#
# With a GPU, the next cell tunes, or finds in your cache that it was done before. (The tuner also writes
# `autotuner.log`; look there if a schedule is missing from what it prints.) Run it twice, then change a line of the
# kernel and run it again.
#
# Without a GPU nothing can be timed. Choose by the figures that you counted; a card will judge your choice later.

# %%
CACHE = Path("tuned.json")
card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no card"
version = hashlib.sha256(projection.func_source.encode()).hexdigest()[:12]  # another source, another version
key = key_of((64, 8192, 8192), "float16", card, version)
found = recall(CACHE, key)
if found is not None:
    print("remembered:", found)
elif torch.cuda.is_available() and tuner is not None:
    found = tuner(64, 8192, 8192).config
    remember(CACHE, key, found)
    print("tuned:", found)
else:
    print("Nothing is remembered, and there is nothing to tune with: choose by counting.")

# %% [markdown] tags=["lang-en"]
# The judge doesn't run your tuner: it takes your word, and measures. Write down the schedule, one of your `configs`.

# %% nbgrader={"grade": false, "solution": true, "locked": false, "schema_version": 3, "grade_id": "tuned", "task": false}
tuned = None  # what the tuner found: dict(block_N=..., block_K=..., num_stages=..., threads=...)
### BEGIN SOLUTION lines=1 hint="Copy it from above. Without a GPU: the one of your configs that you believe in."
tuned = dict(block_N=64, block_K=64, num_stages=5, threads=128)
### END SOLUTION

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "projection-right", "task": false}
check(projection, "right", configs=configs, tuned=tuned)

# %% [markdown] tags=["lang-en"]
# How good is it? First beside cuBLAS, then beside the best of the judge's own sweep of this space. (*Not assessed*
# without a GPU, and on cards that it has no sweep of.)

# %%
if torch.cuda.is_available() and tuned is not None:
    bench(projection, "64 tokens", **tuned)
    bench(projection, "64 tokens")  # the defaults: what you would have had without tuning

# %% nbgrader={"grade": true, "solution": false, "locked": true, "schema_version": 3, "grade_id": "projection-fast", "task": false}
check(projection, "fast", configs=configs, tuned=tuned)

# %% [markdown] tags=["lang-en"]
# ## Try it
#
# (Without a GPU: count, predict, and keep the measuring for later.)
#
# * What does the budget cost you? Measure `bench(projection, "64 tokens", ...)` with your tuned tiles and as many
#   stages as your card takes (227 KiB a block on an H100 or H200), and count what is under way then.
# * How wrong would another shape's answer be? Let the tuner find the best for 4096 rows, `tuner(4096, 8192, 8192)`,
#   and measure that schedule at 64.
# * Move the line that fetches `R_tile` behind the loop. What does `compiled_bytes` say now, and why? Which schedules
#   would fit that didn't? (Then put it back.)
# * Give the tuner a reference to check each schedule against: `tilelang.autotune(configs=shortlist,
#   ref_prog=lambda X, W, R: X @ W + R)(projection)`. TileLang 0.1.15 keeps no result on disk then, for it can't tell
#   whether two functions are the same. Must your cache know of the reference?
#
# **Read next:** lab 08, where something is wrong, and you find out what.

"""Times schedules and forms of lab 05's kernels beside a copy, torch and torch.compile, on this machine's card.

    PYTHONPATH=. python benchmarks/softmax_schedules.py [softmax | online_softmax]

Both, if none is named. The kernels are the solution's, with parts of their text changed. All are timed in turns,
behind a write that empties the L2 cache. GB/s count 8 bytes for each element, as the lab does, whatever a kernel
moves. The last column is the largest error over the judge's bound: above 1 the judge refuses it. One minute each.
"""

import itertools
import linecache
import math
import sys
from pathlib import Path

import tilelang
import tilelang.language as T
import torch

from grader import catalog
from grader.catalog import Group, Shape
from grader.gpu import timing
from grader.judge import tasks

LAB = "lab05_softmax"
SOLUTION = Path(__file__).parents[1] / "solutions" / f"{LAB}.py"
SECONDS = 15.0
CHECKED = 64  # rows whose errors are looked at

EXP2 = ("T.exp(x[i, j] - top[i])", "T.exp2((x[i, j] - top[i]) * 1.44269504)")
FMA = ("T.exp(x[i, j] - top[i])", "T.exp2(x[i, j] * 1.44269504 - top[i] * 1.44269504)")
FORWARD = ("(tiles - 1 - k) * block_N", "k * block_N")
FIRST_PASS = "for k in T.serial(tiles):\n                T.copy(X[bx * rows, k * block_N], x)"
PIPELINED = [
    (
        FIRST_PASS,
        "X_tile = T.alloc_shared((rows, block_N), 'float32')\n"
        "            for k in T.Pipelined(tiles, num_stages=2):\n"
        "                T.copy(X[bx * rows, k * block_N], X_tile)\n"
        "                T.copy(X_tile, x)",
    )
]
#: The last tile's powers are still in x when the first pass ends: it need not be read again.
KEPT = [
    (
        "for k in T.serial(tiles):\n                start = (tiles - 1 - k) * block_N",
        "for i, j in T.Parallel(rows, block_N):\n"
        "                x[i, j] = x[i, j] / total[i]\n"
        "            T.copy(x, Y[bx * rows, (tiles - 1) * block_N])\n"
        "            for k in T.serial(tiles - 1):\n"
        "                start = (tiles - 2 - k) * block_N",
    )
]

VARIANTS = {
    "softmax": {
        "solution": ({}, []),
        "2 rows": ({"rows": 2}, []),
        "4 rows": ({"rows": 4}, []),
        "8 rows (spills)": ({"rows": 8}, []),
        "64 threads": ({"threads": 64}, []),
        "256 threads": ({"threads": 256}, []),
        "512 threads": ({"threads": 512}, []),
        "exp2 of the difference": ({}, [EXP2]),
        "exp2, multiply-add": ({}, [FMA]),
    },
    "online_softmax": {
        "solution": ({}, []),
        "solution, forwards": ({}, [FORWARD]),
        "tiles of 2048, 128 threads": ({"block_N": 2048, "threads": 128}, []),
        "the same, forwards": ({"block_N": 2048, "threads": 128}, [FORWARD]),
        "tiles of 4096, 256 threads": ({"block_N": 4096, "threads": 256}, []),
        "tiles of 8192, 256 threads": ({"block_N": 8192, "threads": 256}, []),
        "tiles of 16384, 512 threads": ({"block_N": 16384, "threads": 512}, []),
        "tiles of 16384, 1024 threads": ({"block_N": 16384, "threads": 1024}, []),
        "the same, forwards ": ({"block_N": 16384, "threads": 1024}, [FORWARD]),
        "tiles of 32768, 1024 threads": ({"block_N": 32768, "threads": 1024}, []),
        "tiles of 8192, last one kept": ({}, KEPT),
        "tiles of 16384, 512 threads, last one kept": ({"block_N": 16384, "threads": 512}, KEPT),
        "tiles of 16384, 1024 threads, last one kept": ({"block_N": 16384, "threads": 1024}, KEPT),
        "tiles of 32768, 1024 threads, last one kept": ({"block_N": 32768, "threads": 1024}, KEPT),
        "tiles of 4096, 256 threads, pipelined": ({"block_N": 4096, "threads": 256}, PIPELINED),
        "tiles of 8192, 512 threads, pipelined": ({}, PIPELINED),
        "exp2 of the difference": ({}, [EXP2]),
    },
}
_numbers = itertools.count(1)


def variant(name: str, shape: Shape, schedule: dict[str, int], changes: list[tuple[str, str]]):
    """The solution's kernel at a shape, changed, as a prim_func. ValueError if a text to change isn't there."""
    cells = SOLUTION.read_text().split("\n# %%")
    (cell,) = (cell for cell in cells if f"\ndef {name}(" in cell)
    source = cell.partition("\n")[2]
    for old, new in changes:
        if old not in source:
            raise ValueError(f"not in the solution: {old}")
        source = source.replace(old, new)
    file = f"<{name} {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"tilelang": tilelang, "T": T, "math": math}
    exec(compile(source, file, "exec"), names)
    return names[name].get_tir(**shape.sizes, **schedule)


def measure(name: str) -> None:
    (shape,) = catalog.find(LAB).kernel(name).group(Group.TIMED)
    task = tasks.find(LAB, name)
    inputs = task.inputs("normal", shape, torch.Generator("cuda").manual_seed(0))
    (x,) = inputs
    output = torch.empty_like(x)
    functions = [variant(name, shape, *how) for how in VARIANTS[name].values()]
    built = tilelang.par_compile(functions, out_idx=[-1], num_workers=16, ignore_error=True)
    calls = {"copy": lambda: output.copy_(x)}
    calls |= {peer.name: peer.prepare(inputs, output) for peer in task.peers}
    for label, kernel in zip(VARIANTS[name], built, strict=True):
        if kernel is None:
            print(f"{label}: it can't be compiled here", flush=True)
        else:
            calls[label] = lambda kernel=kernel: kernel(x)
    few = (x[:CHECKED],)
    reference = task.reference(few)
    bound = task.bound(few, reference)
    worst = {}
    for label, call in calls.items():
        worst[label] = float(((call()[:CHECKED].double() - reference).abs() / bound).max())
    samples = timing.interleave([lambda _round, call=call: call() for call in calls.values()], seconds=SECONDS)
    copy = samples.median(0)
    print(f"\n{name} at {shape}: {torch.cuda.get_device_name()}, torch {torch.__version__}, ", end="")
    print(f"TileLang {tilelang.__version__}, {samples.rounds} rounds")
    print(f"{'':46} {'ms':>7} {'GB/s':>7} {'of copy':>8} {'error/bound':>12}")
    for number, label in enumerate(calls):
        ms = samples.median(number)
        error = "" if number == 0 else f"{worst[label]:12.3f}"
        print(f"{label:46} {ms:7.4f} {task.rate(shape, ms):7.0f} {copy / ms:8.3f} {error}", flush=True)


if __name__ == "__main__":
    for kernel in sys.argv[1:] or VARIANTS:
        measure(kernel)

"""How fast lab 07's kernel is at every schedule that its filter keeps, and what its budget costs, on this card.

    PYTHONPATH=. python benchmarks/autotune_schedules.py [--seconds 40] [--json FILE] [--tuner]

All schedules within the budget, and some beyond it, are compiled, checked, and timed in turns with cuBLAS, behind
a write that empties the L2 cache. A row: the schedule, the shared memory of a block, the time, GB/s (as the lab
counts them), and the ratio to cuBLAS with an interval; the fastest come first. The last lines name the best of all
of them, of those within the budget, of the judge's own sweep, and of the solution's shortlist. With ``--tuner``,
TileLang's own tuner chooses from that shortlist, and once more with its result on disk. About two minutes.
"""

import argparse
import json
import linecache
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from grader import catalog
from grader.catalog import Group
from grader.gpu import compiler, hardware, lock, timing
from grader.gpu.architectures import ARCHITECTURES, architecture
from grader.gpu.launch import load
from grader.judge import lab07_autotuning as lab07
from grader.judge import sweep
from grader.judge.workbench import Workbench

LAB = catalog.find("lab07_autotuning")
SOLUTION = Path(__file__).parents[1] / "solutions" / f"{LAB.id}.py"
(OWN,) = (one for one in sweep.SWEEPS if one.lab == LAB.id)
TASK = lab07.PROJECTION
#: Beyond the budget: (block_N, block_K, stages), with 128 threads.
BEYOND = (
    (32, 64, 8),
    (32, 128, 4),
    (32, 128, 6),
    (64, 64, 6),
    (64, 64, 8),
    (64, 128, 3),
    (64, 128, 4),
    (64, 128, 6),
    (128, 64, 4),
    (128, 64, 6),
    (128, 128, 3),
    (256, 64, 3),
)


def schedules(limit: int) -> list[lab07.Schedule]:
    names = ("block_N", "block_K", "num_stages")
    beyond = [dict(zip(names, numbers, strict=True)) | {"threads": 128} for numbers in BEYOND]
    return [one for one in (*lab07.FITTING, *beyond) if lab07.shared_bytes(one) <= limit]


def libraries(wanted: list[lab07.Schedule], arch: str) -> dict[int, Path]:
    """The compiled kernels, by their place among the schedules."""
    own = replace(OWN, schedules=tuple(wanted))
    kernel = sweep.at_schedules_of(own, LAB)
    places = {shape.name: place for place, shape in enumerate(kernel.shapes)}
    traced = sweep.traced(own, LAB, kernel)
    sources = {name: compiler.Source(json_, arch, options) for name, json_, options in traced}
    found = {}
    for name, built in compiler.build_all(sources):
        if isinstance(built, compiler.Built):
            found[places[name]] = built.library
        else:
            print(f"not built: {wanted[places[name]]}: {built.text.strip().splitlines()[-1][:100]}")
    return found


def measure(wanted: list[lab07.Schedule], built: dict[int, Path], seconds: float) -> list[dict]:
    """A row for each kernel that is right, and first one for cuBLAS."""
    (shape,) = LAB.kernel(OWN.kernel).group(Group.TIMED)
    bench = Workbench(TASK, LAB.kernel(OWN.kernel), shape, "schedules", "normal", 2)
    calls = [TASK.peers[0].prepare(inputs, bench.outputs[0].tensor) for inputs in bench.inputs]
    right = {}
    for place, library in built.items():
        kernel = load(library)
        try:
            for number in range(bench.sets):
                bench.refresh(number)
                bench.launch(kernel, number)
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"not launched: {wanted[place]}: {str(error).splitlines()[0][:100]}")
            continue
        wrong = bench.wrong()
        if wrong is None:
            right[place] = kernel
        else:
            print(f"wrong: {wanted[place]}: {wrong.message}")
    launches = [lambda round_, kernel=kernel: bench.launch(kernel, round_) for kernel in right.values()]
    samples = timing.interleave(
        [lambda round_: calls[round_ % bench.sets](), *launches],
        prepare=bench.refresh,
        seconds=seconds,
        enough=lambda _samples: False,
        sets=bench.sets,
    )
    rows = []
    for number, place in enumerate([None, *right]):
        ratio, low, high = samples.ratio(number, 0)
        ms = samples.median(number)
        schedule = None if place is None else dict(wanted[place])
        rows.append(
            {"schedule": schedule, "us": 1e3 * ms, "rate": TASK.rate(shape, ms), "ratio": (ratio, low, high)}
        )
    return rows


def show(rows: list[dict], shortlist: list[lab07.Schedule]) -> None:
    print("| block_N | block_K | stages | threads | KiB | µs | GB/s | ratio to cuBLAS |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    ordered = sorted(rows, key=lambda row: row["us"])
    for row in ordered:
        schedule, (ratio, low, high) = row["schedule"], row["ratio"]
        numbers = ["cuBLAS", "", "", ""] if schedule is None else [str(number) for number in schedule.values()]
        kib = "" if schedule is None else f"{lab07.shared_bytes(schedule) / 1024:.0f}"
        figures = [kib, f"{row['us']:.1f}", f"{row['rate']:.0f}", f"{ratio:.3f} ({low:.3f}–{high:.3f})"]
        print("| " + " | ".join([*numbers, *figures]) + " |")
    groups = {
        "all": [row["schedule"] for row in ordered if row["schedule"]],
        "those within the budget": lab07.FITTING,
        "the judge's own sweep": lab07.SWEEP,
        "the solution's shortlist": shortlist,
    }
    for name, among in groups.items():
        best = next((row for row in ordered if row["schedule"] in among), None)
        if best is not None:
            print(f"the best of {name}: {best['schedule']}, {best['us']:.1f} µs, {best['rate']:.0f} GB/s")


def of_solution(*marks: str) -> dict:
    """The names that the solution's cells with these marks define."""
    import tilelang
    import tilelang.language as T

    cells = SOLUTION.read_text().split("\n# %%")
    text = "\n\n".join(cell.partition("\n")[2] for mark in marks for cell in cells if mark in cell)
    file = "<lab 07's solution>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"tilelang": tilelang, "T": T}
    exec(compile(text, file, "exec"), names)
    return names


def tune() -> None:
    """TileLang's tuner on the solution's shortlist: first anew, then from what it left on disk."""
    sizes = LAB.kernel(OWN.kernel).group(Group.TIMED)[0].sizes
    for what in ("anew", "again, with another tuner"):
        tuner = of_solution("\ndef projection", "\nshortlist = ")["tuner"]
        type(tuner.get_tunner())._memory_cache.clear()
        start = time.monotonic()
        kernel = tuner(*(sizes[name] for name in "MNK"))
        print(f"tuned {what} in {time.monotonic() - start:.1f} s: {kernel.config}, {kernel.latency * 1e3:.1f} µs")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=40.0, help="for all schedules together")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--tuner", action="store_true", help="let TileLang's tuner choose, too")
    asked = parser.parse_args()
    card = hardware.judging_card()
    if card is None:
        raise SystemExit("There is no GPU here that could measure; 'tilelab doctor' says why.")
    arch = architecture(card.capability)
    wanted = schedules(ARCHITECTURES[arch].shared_a_block)
    with tempfile.TemporaryDirectory() as folder, lock.held(lock.path_for(card.uuid)):
        os.environ["TILELANG_CACHE_DIR"] = folder
        shortlist = of_solution("\ndef projection", "\nshortlist = ")["shortlist"]
        start = time.monotonic()
        built = libraries(wanted, arch)
        print(f"{len(built)} of {len(wanted)} schedules compiled in {time.monotonic() - start:.0f} s")
        rows = measure(wanted, built, asked.seconds)
        print(f"{card.name}, torch {torch.__version__}, 64 tokens, 8192 × 8192\n")
        show(rows, shortlist)
        if asked.json:
            asked.json.write_text(json.dumps({"card": card.name, "rows": rows}, indent=1))
        if asked.tuner:
            tune()


if __name__ == "__main__":
    main()

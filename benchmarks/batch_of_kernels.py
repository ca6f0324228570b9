"""A batch of different kernels on one card: how long it takes, and how much of that the card spends measuring.

    PYTHONPATH=tests python benchmarks/batch_of_kernels.py [--jobs 8] [--json FILE]

Twenty right kernels of labs 01 and 02 with schedules of their own, and three that must cost only themselves: an
illegal access, an endless loop, and one that asks for more memory than there is. The card is held exactly as long
as its lock is, which the operating system's list of locks tells from outside.
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import tilelang.language as T
from attacks.attack import ADD, MATMUL, Attack, Stop, add
from kernels import capture_of, matmul, vector_add

from grader.autograders import judge_capture
from grader.autograders.batch import judge_files
from grader.gpu import hardware, lock
from grader.verdict import Verdict

POLL = 0.005  # seconds

TILES = [
    {"block_M": m, "block_N": n, "block_K": k, "num_stages": stages, "threads": threads}
    for m, n, k, stages, threads in (
        (128, 256, 64, 3, 256),
        (128, 256, 64, 2, 256),
        (256, 128, 64, 3, 256),
        (128, 128, 64, 4, 256),
        (128, 128, 64, 3, 128),
        (128, 128, 32, 4, 128),
        (128, 128, 32, 2, 128),
        (128, 64, 64, 3, 128),
        (64, 128, 64, 3, 128),
        (64, 64, 32, 2, 128),
    )
]
STRIPS = [(1024, 256), (2048, 256), (4096, 256), (512, 128), (1024, 128), (2048, 512), (4096, 512), (8192, 256)]
STRIPS += [(256, 128), (1024, 512)]


@T.macro
def far_away(A, B, C, bx, N):
    for i in T.Parallel(1024):
        C[(bx * 1024 + i) * 65536] = A[0] + B[0]


@T.macro
def endless(A, B, C, bx, N):
    left = T.alloc_var("float32")
    left = T.abs(A[0]) + 1.0
    while left > 0.0:
        left = left * 0.5 + 1.0
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i] + left


@T.macro
def too_much(A, B, C, bx, N):
    own = T.alloc_local((2**17,), "float32")
    for i in T.serial(16):
        own[i * 8191] = A[0] + i
    for i in T.Parallel(1024):
        if bx * 1024 + i < N:
            C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i] + own[bx % 16 * 8191]


FAULTY = {"illegal access": far_away, "endless loop": endless, "out of memory": too_much}


def captures(folder: Path) -> list[Path]:
    made = {
        f"add {size} {threads}": capture_of(ADD, vector_add, block_N=size, threads=threads)
        for size, threads in STRIPS
    }
    made |= {"matmul " + " ".join(map(str, tile.values())): capture_of(MATMUL, matmul, **tile) for tile in TILES}
    made |= {name: Attack(name, add(inside), Stop.CARD, "").capture() for name, inside in FAULTY.items()}
    # The faulty ones come early, so that what they might leave behind would be met by the others.
    names = list(made)
    order = [*names[20:], *names[:20]]
    for name in order:
        (folder / f"{name}.json").write_text(made[name].to_json())
    return [folder / f"{name}.json" for name in order]


class Held(threading.Thread):
    """For how long somebody has the card's lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        with lock.held(path):  # so that it is there
            self.inode = path.stat().st_ino
        self.seconds = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        last = time.monotonic()
        while not self.over.wait(POLL):
            now = time.monotonic()
            rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            # A line of a waiting process begins its second field with an arrow.
            if any(row[1] != "->" and row[5].endswith(f":{self.inode}") for row in rows):
                self.seconds += now - last
            last = now


def line_of(name: str, verdict: Verdict | None, error: object) -> str:
    if verdict is None:
        return f"| {name} | | | {error} |"
    fast = next(check for check in verdict.checks if check.name == "test_fast")
    figures = f"{fast.figures[0].achieved:.0f} {fast.figures[0].unit}" if fast.figures else ""
    why = fast.findings[0].message if fast.findings and not fast.figures else ""
    return f"| {name} | {verdict.points:g} | {figures or why} | {fast.outcome} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = captures(Path(folder))
        watch = Held(lock.path_for(hardware.judging_card().uuid))
        start = time.monotonic()
        watch.start()
        done = list(judge_files(files, lambda capture: judge_capture(capture, device="gpu"), jobs=asked.jobs))
        wall = time.monotonic() - start
        watch.over.set()
    done.sort(key=lambda judged: files.index(judged.file))
    print("| kernel | points | speed, or why not | verdict on speed |\n| --- | --- | --- | --- |")
    for judged in done:
        print(line_of(judged.file.stem, judged.verdict, judged.error))
    seconds = [check.seconds for one in done if one.verdict for check in one.verdict.checks]
    print(f"\n{len(done)} kernels in {wall:.0f} s, {asked.jobs} at once.", end=" ")
    print(f"The card was held {watch.seconds:.0f} s of it ({watch.seconds / wall:.0%});", end=" ")
    print(f"a check took {statistics.mean(seconds):.1f} s on average")
    if asked.json:
        rows = [
            {
                "kernel": judged.file.stem,
                "points": judged.verdict and judged.verdict.points,
                "error": str(judged.error),
            }
            for judged in done
        ]
        asked.json.write_text(json.dumps({"wall": wall, "held": watch.seconds, "kernels": rows}))


if __name__ == "__main__":
    main()

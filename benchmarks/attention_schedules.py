"""Which schedule of lab 06's solution is fastest on this card, and how long the judge looks at its output.

    python benchmarks/attention_schedules.py [--seconds 2] [--shape 2k --shape 8k]

Each kernel of ``solutions/lab06_flash_attention.py`` is built with each schedule, checked, and timed in turns with
the others and with cuDNN. A row: the schedule, its rate, and its ratio to cuDNN with an interval. The last lines
say how long one look at an output takes: by its part, and as a whole.
"""

import argparse
import linecache
import math
import time
from pathlib import Path

import tilelang
import tilelang.language as T
import torch
from tilelang import tvm

from grader import catalog
from grader.admit import admit
from grader.gpu import compiler, hardware, lock, timing
from grader.gpu.architectures import architecture
from grader.gpu.launch import load
from grader.judge import tasks
from grader.judge.parts import mismatch
from grader.judge.peers import Missing
from grader.judge.workbench import Workbench

LAB = catalog.find("lab06_flash_attention")
SOLUTION = Path(__file__).parent.parent / "solutions" / f"{LAB.id}.py"
#: Changes of the solution's text, and of its arguments.
NEVER_SEEN = ('"all_seen": lambda first, n: (n + 1) * block_N <= S', '"all_seen": lambda first, n: False')
CAUSAL_NEVER_SEEN = ("lambda first, n: (n + 1) * block_N - 1 <= first", "lambda first, n: False")
UPWARDS = ("(T.ceildiv(S, block_M) - 1 - bx) * block_M", "bx * block_M")
SCHEDULES = {
    "as it is": ((), {}),
    "128x128, 256 threads": ((), {"block_M": 128, "threads": 256}),
    "192x80": ((), {"block_N": 80}),
    "192x96": ((), {"block_N": 96}),
    "192x112": ((), {"block_N": 112}),
    "128x176, 256 threads": ((), {"block_M": 128, "block_N": 176, "threads": 256}),
    "1 stage": ((), {"num_stages": 1}),
    "128x128, 3 stages": ((), {"block_M": 128, "threads": 256, "num_stages": 3}),
    "blocks upwards": ((UPWARDS,), {}),
    "mask everywhere": ((NEVER_SEEN, CAUSAL_NEVER_SEEN), {}),
}


def source() -> str:
    """The solution's rules and kernels, without what judges them."""
    cells = SOLUTION.read_text().split("\n# %%")
    wanted = [cell for cell in cells if "def rules_of_attention" in cell or '"solution": true' in cell]
    return "\n\n".join(cell.partition("\n")[2] for cell in wanted)


def factory(name: str, changes: tuple[tuple[str, str], ...]):
    text = source()
    for old, new in changes:
        if old not in text:
            raise ValueError(f"the solution no longer holds {old!r}")
        text = text.replace(old, new)
    file = f"<{name} {len(linecache.cache)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"tilelang": tilelang, "T": T, "math": math}
    exec(compile(text, file, "exec"), names)
    return names[name]


def libraries(name: str, shape: catalog.Shape, arch: str) -> dict[str, Path]:
    sources = {}
    for schedule, (changes, arguments) in SCHEDULES.items():
        traced = factory(name, changes).get_tir(**shape.sizes, **arguments)
        admitted = admit(tvm.ir.save_json(traced), LAB.kernel(name), shape)
        sources[schedule] = compiler.Source(admitted.json, arch, admitted.options)
    found = {}
    for schedule, built in compiler.build_all(sources):
        if isinstance(built, compiler.Built):
            found[schedule] = built.library
        else:
            print(f"| {name} | {shape.name} | {schedule} | not built: {built.text.splitlines()[-1][:80]} | |")
    return found


def measure(name: str, shape: catalog.Shape, built: dict[str, Path], seconds: float) -> None:
    task = tasks.find(LAB.id, name)
    bench = Workbench(task, LAB.kernel(name), shape, "schedules", "normal", 2)
    try:
        calls = [task.peers[0].prepare(inputs, bench.outputs[0].tensor) for inputs in bench.inputs]
    except Missing as error:
        print(f"no cuDNN here: {error}")
        return
    right = {}
    for schedule, library in built.items():
        kernel = load(library)
        for number in range(bench.sets):
            bench.refresh(number)
            try:
                bench.launch(kernel, number)
            except RuntimeError as error:
                print(f"| {name} | {shape.name} | {schedule} | {str(error).split()[:8]} | |")
                break
        else:
            torch.cuda.synchronize()
            wrong = bench.wrong()
            if wrong is None:
                right[schedule] = kernel
            else:
                print(f"| {name} | {shape.name} | {schedule} | wrong: {wrong.message} | |")
    launches = [lambda round_, kernel=kernel: bench.launch(kernel, round_) for kernel in right.values()]
    samples = timing.interleave(
        [lambda round_: calls[round_ % bench.sets](), *launches],
        prepare=bench.refresh,
        seconds=seconds * (1 + len(right)),
        enough=lambda _samples: False,
        sets=bench.sets,
    )
    for number, schedule in enumerate(["cuDNN", *right]):
        ratio, low, high = samples.ratio(number, 0)
        rate = task.rate(shape, samples.median(number))
        print(
            f"| {name} | {shape.name} | {schedule} | {rate:.0f} | {ratio:.3f} ({low:.3f}–{high:.3f}) |", flush=True
        )
    look(task, shape, bench)


def look(task, shape: catalog.Shape, bench: Workbench) -> None:
    """Seconds for one look at an output, by its part and as a whole."""
    inputs, output = bench.inputs[0], bench.outputs[0].tensor
    whole = catalog.Shape(shape.name, shape.sizes, catalog.Group.TILES)
    for words, at in (("a part", shape), ("the whole", whole)):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.monotonic()
        mismatch(task, "O", at, inputs, output)
        torch.cuda.synchronize()
        took, memory = time.monotonic() - start, torch.cuda.max_memory_allocated() / 2**30
        print(f"{task.kernel}, {shape.name}: {words} is looked at in {took:.2f} s, with {memory:.1f} GiB at most")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0, help="for each schedule")
    parser.add_argument("--shape", action="append", choices=("2k", "8k"))
    parser.add_argument("--kernel", action="append", choices=("attention", "causal_attention"))
    asked = parser.parse_args()
    card = hardware.judging_card()
    if card is None:
        raise SystemExit("There is no GPU here that could measure; 'tilelab doctor' says why.")
    print("| kernel | shape | schedule | TFLOP/s | ratio to cuDNN |")
    print("| --- | --- | --- | --- | --- |")
    with lock.held(lock.path_for(card.uuid)):
        for name in asked.kernel or ("attention", "causal_attention"):
            for shape in map(LAB.kernel(name).shape, asked.shape or ("2k", "8k")):
                measure(name, shape, libraries(name, shape, architecture(card.capability)), asked.seconds)


if __name__ == "__main__":
    main()

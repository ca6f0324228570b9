"""Measures how long a student waits for compiled kernels: the matmul of lab 02 at the lab's shapes.

    python benchmarks/turnaround.py [--rounds 3] [--arch sm_90a] [--json FILE]

Each way to compile (nvcc, NVRTC, NVRTC with precompiled headers) is measured on three events: cold (a new process
compiles all shapes), a small edit (a process that was started before compiles all shapes with one constant
changed), and nothing new (all comes from the cache on disk). The figures are wall times, the least of so many
rounds: what the machine does besides only adds to them. On a card the machine code of the ways is compared, too:
registers and spills by ptxas, and device times in turns in one loop. Without one, ``--arch`` names a card's.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import tilelang.language as T
from tilelang import tvm

from grader import catalog, ir
from grader.gpu import hardware, toolchain
from grader.gpu.architectures import architecture
from grader.gpu.compiler import Built, Compiler, Source, build_all, default_workers
from grader.gpu.lowering import Lowered, lower
from grader.gpu.nvrtc import Nvrtc
from grader.gpu.resources import parse

PHASES = ("lowering", "device", "linking")


def matmul(m: int, n: int, k: int, block_k: int = 64):
    """C = A B, fp16 in and out, fp32 sums; the fastest schedule known for an H200, but for its swizzle."""
    block_m, block_n = 128, 256

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=256) as (bx, by):
            a = T.alloc_shared((block_m, block_k), "float16")
            b = T.alloc_shared((block_k, block_n), "float16")
            c = T.alloc_fragment((block_m, block_n), "float32")
            out = T.alloc_shared((block_m, block_n), "float16")
            T.use_swizzle(8)
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=3):
                T.copy(A[by * block_m, step * block_k], a)
                T.copy(B[step * block_k, bx * block_n], b)
                T.gemm(a, b, c)
            T.copy(c, out)
            T.copy(out, C[by * block_m, bx * block_n])

    return main


@dataclass(frozen=True)
class Event:
    """Seconds of wall time until all kernels were there and until the first was; ``phases`` are medians."""

    way: str
    event: str
    total: float
    first: float
    importing: float | None
    phases: dict[str, float]
    notes: tuple[str, ...] = ()


def sources(arch: str, block_k: int = 64) -> dict[str, Source]:
    """The kernel at each of the lab's shapes, written by us as the judge does."""
    (kernel,) = catalog.find("lab02_matmul").kernels
    found = {}
    for shape in kernel.shapes:
        m, n, k = (shape.sizes[name] for name in "MNK")
        found[shape.name] = Source(ir.write(ir.read(tvm.ir.save_json(matmul(m, n, k, block_k)))), arch)
    return found


def timed(results: Iterator, start: float) -> tuple[float, float, list[Built]]:
    """(until all, until the first, results). RuntimeError if a kernel did not compile."""
    first, built = None, []
    for name, result in results:
        first = first or perf_counter() - start
        if not isinstance(result, Built):
            raise RuntimeError(f"{name} was not compiled: {result.kind}: {result.text}")
        built.append(result)
    return perf_counter() - start, first, built


def event(way: str, name: str, found: tuple[float, float, list[Built]], importing: float | None = None) -> Event:
    total, first, built = found
    phases = {phase: median(result.phases.get(phase, 0.0) for result in built) for phase in PHASES}
    notes = {note for result in built for note in result.notes}
    notes |= {f"compiled by {result.by}" for result in built if result.by != way}
    return Event(way, name, total, first, importing, phases, tuple(sorted(notes)))


def measure(way: str, arch: str) -> list[Event]:
    """One round of a way: all events."""
    first, edited = sources(arch), sources(arch, block_k=32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = perf_counter()
        with Compiler(first.values(), way=way) as compiler:
            cold = event(way, "cold", timed(compiler.build(first, folder), start), compiler.started)
            start = perf_counter()
            edit = event(way, "small edit, process there", timed(compiler.build(edited, folder), start))
            (timed_shape,) = (name for name in edited if name == "4096")
            start = perf_counter()
            one = timed(compiler.build({timed_shape: sources(arch, block_k=16)[timed_shape]}, folder), start)
            single = event(way, "one kernel, process there", one)
        for _round in range(2):
            start = perf_counter()
            results = build_all(first, cache=folder / "cache", into=folder, way=way)
            hit = event(way, "nothing new", timed(results, start))
    return [cold, edit, single, hit]


def least(rounds: list[list[Event]]) -> list[Event]:
    return [min(same, key=lambda one: one.total) for same in zip(*rounds, strict=True)]


# -- the machine code ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Code:
    """ptxas's figures of a compiler's code for the timed shape; ``ms`` on this card, ``ratio`` nvcc's over it."""

    compiler: str
    seconds: float
    registers: int
    spills: int
    ms: float | None = None
    ratio: tuple[float, float, float] | None = None


def codes(arch: str) -> list[Code]:
    """The timed shape by both compilers."""
    tools = toolchain.find()
    lowered = lower(sources(arch)["4096"].json, arch)
    if not isinstance(lowered, Lowered):
        raise RuntimeError(f"the kernel was not lowered: {lowered.text}")
    found = []
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "kernel.cu")
        file.write_text(lowered.source)
        command = [
            str(tools.nvcc),
            *toolchain.nvcc_options(arch, {}),
            "-w",
            "-Xptxas=-v",
            "-o",
            f"{name}/x",
            str(file),
        ]
        start = perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(_code(toolchain.NVCC, perf_counter() - start, done.stderr))
        if tools.nvrtc is not None:
            start = perf_counter()
            log = _nvrtc_log(tools, arch, lowered.source)
            found.append(_code(toolchain.NVRTC, perf_counter() - start, log))
    return found


def _nvrtc_log(tools: toolchain.Toolchain, arch: str, source: str) -> str:
    """What NVRTC prints with ptxas's figures: it stands in the log of a compilation that succeeded."""
    nvrtc = Nvrtc(tools.nvrtc)
    options = [*toolchain.nvrtc_options(tools, arch, {}), "--ptxas-options=-v"]
    return nvrtc.log_of(toolchain.without_headers(source), options)


def _code(compiler: str, seconds: float, printed: str) -> Code:
    figures = parse(printed)
    return Code(compiler, seconds, figures.registers, figures.spill_stores + figures.spill_loads)


def on_card(arch: str, found: list[Code]) -> list[Code]:
    """With the device times of each compiler's code, in turns in one loop."""
    import torch

    from grader.gpu import timing
    from grader.gpu.launch import load

    wanted = {"4096": sources(arch)["4096"]}
    launches = []
    with tempfile.TemporaryDirectory() as name:
        for code in found:
            ((_name, built),) = build_all(wanted, cache=None, into=Path(name), way=code.compiler)
            launches.append(load(built.library))
        a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _tensor in range(2))
        outputs = [torch.empty_like(a) for _launch in launches]
        calls = [lambda _round, go=go, c=c: go(a, b, c) for go, c in zip(launches, outputs, strict=True)]
        samples = timing.interleave(
            calls,
            seconds=20.0,
            enough=lambda samples: all(
                high - low <= 0.004 for _mid, low, high in (samples.ratio(i, 0) for i in range(1, len(calls)))
            ),
        )
    if not all(torch.equal(outputs[0], other) for other in outputs[1:]):
        raise RuntimeError("the compilers' codes give different results")
    return [
        Code(code.compiler, code.seconds, code.registers, code.spills, samples.median(i), samples.ratio(i, 0))
        for i, code in enumerate(found)
    ]


# -- what is printed ----------------------------------------------------------------------------------------


def tables(events: list[Event], machine_code: list[Code]) -> Iterator[str]:
    """Markdown."""
    yield "| way | event | all there | first there | TileLang imported | lowering | device code | linking |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for one in events:
        phases = " | ".join(f"{one.phases[name]:.2f} s" if one.phases[name] else "" for name in PHASES)
        imported = "" if one.importing is None else f"{one.importing:.2f} s"
        row = f"| {one.way} | {one.event} | {one.total:.2f} s | {one.first:.2f} s | {imported} | {phases} |"
        yield row if one.total >= 0.1 else row.replace(f"{one.total:.2f} s", f"{one.total * 1e3:.0f} ms")
    for note in sorted({note for one in events for note in one.notes}):
        yield f"\nNote: {note}"
    yield "\n| compiler | seconds | registers | spills | device time | nvcc's time over it (95 %) |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for code in machine_code:
        ms = "" if code.ms is None else f"{code.ms:.4f} ms"
        ratio = "" if code.ratio is None else "{:.4f} ({:.4f}–{:.4f})".format(*code.ratio)
        yield f"| {code.compiler} | {code.seconds:.2f} | {code.registers} | {code.spills} B | {ms} | {ratio} |"


@contextmanager
def said(what: str) -> Iterator[None]:
    print(f"… {what}", flush=True)
    yield


def facts(arch: str) -> Mapping[str, str]:
    card = hardware.judging_card()
    tools = toolchain.find()
    return {
        "card": card.name if card else "none",
        "architecture": arch,
        "CPU": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))}, {default_workers()} workers",
        "nvcc": tools.release,
        "NVRTC": str(tools.nvrtc or "none of nvcc's release"),
        "TileLang": toolchain.importlib.metadata.version("tilelang"),
        "Python": platform.python_version(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arch", help="an architecture; this machine's card's, if it has one")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    card = hardware.judging_card()
    if toolchain.find() is None:
        raise SystemExit("There is no nvcc here that runs.")
    if card is None and asked.arch is None:
        raise SystemExit("There is no card here: name an architecture, for instance --arch sm_90a.")
    arch = asked.arch or architecture(card.capability)
    rounds: dict[str, list[list[Event]]] = {way: [] for way in toolchain.WAYS}
    for number in range(asked.rounds):
        for way, measured in rounds.items():  # in turns: a busy moment of the machine hits all alike
            with said(f"round {number + 1} of {asked.rounds}: {way}"):
                measured.append(measure(way, arch))
    with said("the machine code"):
        machine_code = codes(arch)
        if card is not None and asked.arch in (None, architecture(card.capability)):
            machine_code = on_card(arch, machine_code)
    events = [one for measured in rounds.values() for one in least(measured)]
    print("\n" + ", ".join(f"{name}: {value}" for name, value in facts(arch).items()) + "\n")
    print("\n".join(tables(events, machine_code)))
    if asked.json is not None:
        rows = {"facts": facts(arch), "events": [one.__dict__ for one in events]}
        asked.json.write_text(json.dumps(rows | {"code": [one.__dict__ for one in machine_code]}, indent=1))


if __name__ == "__main__":
    main()

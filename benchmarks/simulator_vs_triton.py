"""Times the simulator beside Triton's interpreter, on the same work and the same CPU.

    python benchmarks/simulator_vs_triton.py [--rounds 9] [--threads 1] [--clock wall] [--json FILE]

Each workload runs in three ways: in the simulator without and with its clean-run checks, and in Triton's
interpreter (``pip install triton``; without it only the simulator is timed). All three get the same inputs, and
each result is compared with torch's in float64. The first run of each way is not counted. Then come rounds, in
each of which every way runs once, so that a busy moment of the machine hits all of them alike; the figures are
medians over the rounds. A run of the simulator includes compiling the kernel's IR to closures, but not the
tracing of the kernel by TileLang (told apart), which happens once.

torch, and numpy's BLAS under Triton's interpreter, get the same number of threads: 1, unless ``--threads`` says
otherwise. On a machine that is busy with other things, ``--clock cpu`` tells the time that the process ran, which
with one thread is what an idle machine's wall clock would show.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
CLOCKS = {"wall": perf_counter, "cpu": process_time}
FACTOR = 10  # how many times faster than Triton's interpreter the simulator is to be
CHECKS_FACTOR = 4  # how many times longer the checks may make a run


@dataclass(frozen=True)
class Workload:
    """``kernel`` names a function of both files of kernels, ``arguments`` are the parameters of both.

    ``tolerance`` is absolute; the inputs are of the order of 1. ``limit`` is in milliseconds, without checks; a
    workload that has none is there for comparison, and no bar applies to its speed.
    """

    name: str
    kernel: str
    arguments: tuple[int, ...]
    tolerance: float
    limit: float | None


WORKLOADS = (
    Workload("matmul 512³, fp16, tiles 128×128×32", "matmul", (512, 512, 512, 128, 128, 32), 0.05, 40),
    Workload("softmax 256×1024, fp32, one row a block", "softmax", (256, 1024), 1e-6, 40),
    Workload(
        "FlashAttention B1 H2 S256 D64, tiles of 64", "flash_attention", (1, 2, 256, 64, 64, False), 2e-3, 20
    ),
    Workload("the same, causal", "flash_attention", (1, 2, 256, 64, 64, 1), 4e-3, None),
)


@dataclass(frozen=True)
class Row:
    """Milliseconds a run: medians over the rounds. None: not measured."""

    workload: str
    trace: float
    checks_off: float
    checks_on: float
    triton: float | None
    limit: float | None

    @property
    def times_faster(self) -> float | None:
        return None if self.triton is None else self.triton / self.checks_off

    @property
    def times_faster_checked(self) -> float | None:
        return None if self.triton is None else self.triton / self.checks_on

    @property
    def cost_of_checks(self) -> float:
        return self.checks_on / self.checks_off


def inputs(workload: Workload) -> tuple[list, Callable]:
    """Input tensors, and the function that gives the right output in float64."""
    import torch

    draw = torch.Generator().manual_seed(0)
    sizes = workload.arguments
    if workload.kernel == "matmul":
        m, n, k = sizes[:3]
        given = [torch.randn(shape, generator=draw).half() for shape in ((m, k), (k, n))]
        return given, lambda a, b: a @ b
    if workload.kernel == "softmax":
        return [torch.randn(sizes, generator=draw)], lambda x: x.softmax(1)
    given = [torch.randn(sizes[:4], generator=draw).half() for _ in range(3)]
    attention, causal = torch.nn.functional.scaled_dot_product_attention, bool(sizes[5])
    return given, lambda q, k, v: attention(q, k, v, is_causal=causal)


def measure(workload: Workload, rounds: int, clock: Callable[[], float], with_triton: bool) -> Row:
    import tile_kernels
    import torch
    from tilelang import tvm  # noqa: F401 (must come before tvm.ir)
    from tvm.ir import save_json

    from grader import ir
    from grader.simulator import run

    given, reference = inputs(workload)
    right = reference(*(tensor.double() for tensor in given))
    output = torch.empty(right.shape, dtype=given[0].dtype)
    started = clock()
    kernel = ir.read(save_json(getattr(tile_kernels, workload.kernel)(*workload.arguments)))
    trace = clock() - started

    def simulate(checks: bool) -> None:
        faults = run(kernel, [*given, output], checks=checks).faults
        if faults:
            raise SystemExit(f"{workload.name}: the simulator reports {faults}")

    ways: dict[str, Callable[[], None]] = {"off": lambda: simulate(False), "on": lambda: simulate(True)}
    if with_triton:
        import triton_kernels

        launch = getattr(triton_kernels, workload.kernel)(*workload.arguments)
        ways["triton"] = lambda: launch(*given, output)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, once in ways.items():
            output.fill_(float("nan"))
            started = clock()
            once()
            passed = clock() - started
            off = (output.double() - right).abs().max().item()
            if not off <= workload.tolerance:  # NaN is wrong too
                raise SystemExit(f"{workload.name}, {way}: wrong by {off}")
            if number:
                times[way].append(1e3 * passed)
    medians = {way: median(found) for way, found in times.items()}
    return Row(
        workload.name,
        1e3 * trace,
        medians["off"],
        medians["on"],
        medians.get("triton"),
        workload.limit,
    )


def table(rows: list[Row]) -> str:
    head = (
        "| workload | checks off | checks on | on ÷ off | Triton's interpreter | Triton ÷ off | Triton ÷ on |\n"
        "| --- | --- | --- | --- | --- | --- | --- |"
    )
    lines = []
    for row in rows:
        bar = "" if row.limit is None else f" (limit {row.limit:g})"
        triton = "not installed" if row.triton is None else f"{row.triton:.1f} ms"
        ratios = [
            "–" if ratio is None else f"{ratio:.1f}" for ratio in (row.times_faster, row.times_faster_checked)
        ]
        lines.append(
            f"| {row.workload} | {row.checks_off:.1f} ms{bar} | {row.checks_on:.1f} ms "
            f"| {row.cost_of_checks:.2f} | {triton} | {ratios[0]} | {ratios[1]} |"
        )
    return "\n".join([head, *lines])


def misses(rows: list[Row]) -> list[str]:
    """What falls short of the bars, in words."""
    found = []
    for row in rows:
        if row.limit is not None and row.checks_off > row.limit:
            found.append(f"{row.workload}: {row.checks_off:.1f} ms without checks, the limit is {row.limit:g} ms")
        if row.cost_of_checks > CHECKS_FACTOR:
            found.append(f"{row.workload}: checks make a run {row.cost_of_checks:.1f} times as long")
        if None not in (row.limit, row.times_faster) and row.times_faster < FACTOR:
            found.append(f"{row.workload}: {row.times_faster:.1f} times as fast as Triton's interpreter")
    return found


def processor() -> str:
    """The CPU's name as the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="of torch and of numpy's BLAS")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", type=Path, default=Path("simulator_vs_triton.json"), help="where the figures go")
    options = parser.parse_args()
    # These are read when the libraries are loaded, so nothing has been imported yet that loads them.
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(options.threads)))
    os.environ["TRITON_INTERPRET"] = "1"

    import numpy
    import tilelang
    import torch

    torch.set_num_threads(options.threads)
    try:
        import triton
    except ImportError:
        triton = None
        print("Triton is not installed, so only the simulator is timed: pip install triton", file=sys.stderr)
    versions = {
        "python": platform.python_version(),
        **{library.__name__: library.__version__ for library in (torch, numpy, tilelang, triton) if library},
    }
    machine = {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "threads": options.threads}
    rows = [measure(workload, options.rounds, CLOCKS[options.clock], triton is not None) for workload in WORKLOADS]

    print(f"{machine['processor']}, {machine['cores']} cores, {options.threads} thread(s) of torch and of BLAS")
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(
        f"Medians of {options.rounds} interleaved rounds ({options.clock} clock), each way's first run left out.\n"
    )
    print(table(rows))
    short = misses(rows)
    print("\n" + ("\n".join(["Short of the bars:", *short]) if short else "All bars are met."))
    figures = {
        "machine": machine,
        "versions": versions,
        "rounds": options.rounds,
        "clock": options.clock,
        "rows": [
            {
                **asdict(row),
                "cost_of_checks": row.cost_of_checks,
                "times_faster": row.times_faster,
                "times_faster_checked": row.times_faster_checked,
            }
            for row in rows
        ],
        "short": short,
    }
    options.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())

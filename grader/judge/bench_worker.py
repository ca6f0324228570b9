"""The disposable process on the card that times one kernel at one shape beside every peer.

    python -m grader.judge.bench_worker FOLDER PARENT

As ``card_worker``, it knows compiled kernels, sizes and a seed, and nothing else. It decides nothing.
"""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from grader.catalog import Group, Role, Shape, find
from grader.gpu import lock, state, timing
from grader.gpu.launch import Launch, load
from grader.judge import tasks
from grader.judge.launching import PREPARE, Launcher
from grader.judge.parts import mismatch
from grader.judge.peers import Missing
from grader.judge.workbench import Guarded, Workbench, output_of
from grader.judge.worker_process import Report, receive
from grader.messages import _
from grader.verdict.bench import Estimate

PEERS = 300.0  # seconds that their preparation may take: torch.compile tunes


def main() -> None:
    report, job = receive()
    with lock.held(lock.path_for(job["uuid"]), waiting=lambda: report.phase("waiting", None)):
        _Bencher(report, job).run()


class _Bencher(Launcher):
    def __init__(self, report: Report, job: dict[str, Any]) -> None:
        super().__init__(report, tasks.find(job["lab"], job["kernel"]), find(job["lab"]).kernel(job["kernel"]))
        self.job = job
        self.shape = Shape(job["shape"], job["sizes"], Group(job["group"]))

    def run(self) -> None:
        self.report.phase("preparing", PREPARE)
        launch = load(Path(self.job["library"]))
        dtype, size = output_of(self.kernel, self.shape)
        of_libraries = (1 + len(self.task.peers)) * torch.Size(size).numel() * dtype.itemsize
        sets = self.sets(self.shape, beside=of_libraries)
        if sets and self.right_on_other_families(launch):
            bench = Workbench(self.task, self.kernel, self.shape, self.job["seed"], self.task.families[0], sets)
            if self.right(self.shape, launch, bench):
                self.time(launch, bench)
        self.report.say(done=True)

    def right_on_other_families(self, launch: Launch) -> bool:
        return all(
            self.right(
                self.shape,
                launch,
                Workbench(self.task, self.kernel, self.shape, self.job["seed"], family, 1),
            )
            for family in self.task.families[1:]
        )

    def time(self, launch: Launch, bench: Workbench) -> None:
        self.report.phase("preparing peers", PEERS)
        calls, peers = self.peers(bench)
        seconds = self.job["seconds"]
        self.report.phase("timing", 3 * seconds + 60)
        with state.watched(self.job["uuid"]) as seen:
            samples = timing.interleave(
                [lambda round_: bench.launch(launch, round_), *calls],
                prepare=bench.refresh,
                seconds=seconds,
                enough=_narrow,
                sets=bench.sets,
            )
        if self.still_right(self.shape, bench):
            self.report.say(measured=figures(samples, peers), state=dataclasses.asdict(seen))

    def peers(self, bench: Workbench) -> tuple[list[timing.Launch], list[dict[str, Any]]]:
        """The launches of those that run here, and a row for each: its place among the launches, and a note."""
        place = Guarded(*output_of(self.kernel, self.shape))
        launches: list[timing.Launch] = []
        rows: list[dict[str, Any]] = []
        for peer in self.task.peers:
            try:
                calls = [peer.prepare(inputs, place.tensor) for inputs in bench.inputs]
            except Missing as error:
                rows.append({"name": peer.name, "launch": None, "note": str(error)})
                continue
            place.refresh()
            note = self.differs(bench, calls[0]())
            launches.append(_in_turn(calls))
            rows.append({"name": peer.name, "launch": len(launches), "note": note})
        return launches, rows

    def differs(self, bench: Workbench, output: torch.Tensor) -> str:
        """A library's result is held against the reference, too: one that does less is no peer."""
        inputs = bench.inputs[0]
        name = next(p.name for p in self.kernel.parameters if p.role is Role.OUT)
        found = mismatch(self.task, name, self.shape, inputs, output, peer=True)
        return "" if found is None else _("outside our bounds: {what}").format(what=found.message)


def _in_turn(calls: Sequence[Callable[[], torch.Tensor]]) -> timing.Launch:
    return lambda round_: calls[round_ % len(calls)]()


def _narrow(samples: timing.Samples) -> bool:
    """Is the ratio to each peer known to ±1 %?"""
    for peer in range(1, len(samples.ms)):
        ratio, low, high = samples.ratio(0, peer)
        if high - low > 2 * timing.HALF_WIDTH * ratio:
            return False
    return True


def figures(samples: timing.Samples, peers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was measured, as plain values. Launch 0 is the kernel; ``peers`` name the others."""
    return {
        "ms": [dataclasses.asdict(_estimate(times)) for times in samples.ms],
        "ratios": [dataclasses.asdict(Estimate(*samples.ratio(0, i))) for i in range(len(samples.ms))],
        "peers": list(peers),
        "rounds": samples.rounds,
        "clock": samples.clock.value,
        "overhead_ms": samples.overhead_ms,
        "host_ms": samples.host_ms[0],
        "disturbed": samples.disturbed(),
        "notes": list(samples.notes),
    }


def _estimate(times: Sequence[float]) -> Estimate:
    ordered = sorted(times)
    return Estimate(statistics.median(ordered), *timing.median_interval(ordered))


if __name__ == "__main__":
    main()

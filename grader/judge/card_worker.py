"""The disposable process on the card: runs, checks and times one kernel that was compiled beforehand.

    python -m grader.judge.card_worker FOLDER PARENT

It knows compiled kernels, sizes and a seed, and nothing else: no gradebook, no submission. An error of CUDA ends
it, which is what it is for.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from grader.catalog import Group, Shape, find
from grader.gpu import lock, state, timing
from grader.gpu.launch import Launch, load
from grader.judge import seeds, tasks
from grader.judge.peers import Missing
from grader.judge.workbench import Guarded, Workbench, fitting_sets, memory_needed, output_of, same_bits
from grader.judge.worker_process import Report, receive
from grader.messages import _
from grader.verdict import Finding

PREPARE = 300.0  # seconds for what is ours: inputs, references, comparisons
LAUNCH = 10.0  # seconds for launches of the kernel that together take milliseconds
SPOT_CHECKS = 3  # of outputs between timed rounds, at random
GIB = 2**30


def main() -> None:
    report, job = receive()
    with lock.held(lock.path_for(job["uuid"]), waiting=lambda: report.phase("waiting", None)):
        _Worker(report, job).run()


class _Worker:
    def __init__(self, report: Report, job: dict[str, Any]) -> None:
        self.report = report
        self.job = job
        self.seed = job["seed"]
        self.task = tasks.find(job["lab"], job["kernel"])
        self.kernel = find(job["lab"]).kernel(job["kernel"])
        self.shapes = [Shape(row["name"], row["sizes"], Group(row["group"])) for row in job["shapes"]]
        self.rows = {row["name"]: row for row in job["shapes"]}

    def run(self) -> None:
        # The timed shapes come last: an error there leaves the others' results standing.
        for shape in sorted(self.shapes, key=lambda shape: shape.group is Group.TIMED):
            self.report.phase("preparing", PREPARE)
            launch = load(Path(self.rows[shape.name]["library"]))
            if shape.group is Group.TIMED:
                self.measure(shape, launch)
            else:
                self.check(shape, launch)
        self.report.say(done=True)

    def check(self, shape: Shape, launch: Launch) -> None:
        """Runs every family of inputs and hands the outputs back; the judge compares them."""
        for number, family in enumerate(self.task.families):
            generator = seeds.generator(self.seed, self.task.kernel, shape.name, family)
            inputs = [Guarded.holding(tensor.cuda()) for tensor in self.task.inputs(family, shape, generator)]
            output = Guarded(*output_of(self.kernel, shape))
            before = [guard.tensor.clone() for guard in inputs]
            arguments = (*(guard.tensor for guard in inputs), output.tensor)
            if not self.ran(shape, lambda given=arguments: launch(*given)):
                return
            if not output.intact() or not all(guard.intact() for guard in inputs):
                self.problem(shape, Finding(_("The kernel wrote outside its tensors."), _("See 'clean'.")))
                return
            if any(not same_bits(guard.tensor, copy) for guard, copy in zip(inputs, before, strict=True)):
                self.problem(shape, Finding(_("The kernel wrote to its inputs."), _("Inputs are only read.")))
                return
            file = f"{shape.name.replace(' ', '-')}-{number}.pt"
            torch.save(output.tensor.cpu(), self.report.folder / file)
            self.report.say(ran=shape.name, file=file)

    def ran(self, shape: Shape, launch: Callable[[], object]) -> bool:
        """Launches and waits. What fails or does not end here is the kernel's doing, and the report says so."""
        torch.cuda.synchronize()
        self.report.phase("launching", LAUNCH, shape=shape.name)
        try:
            launch()
        except Exception as error:  # the launcher's refusal, e.g. of more shared memory than there is
            self.problem(shape, refusal(error))
            torch.cuda.synchronize()  # if the card is lost with it, this process ends here
            return False
        torch.cuda.synchronize()
        self.report.phase("preparing", PREPARE)
        return True

    def measure(self, shape: Shape, launch: Launch) -> None:
        """Checks every family at a timed shape, then times the kernel next to its peer."""
        torch.cuda.empty_cache()  # of the shape before
        free, _total = torch.cuda.mem_get_info()
        sets = fitting_sets(self.kernel, shape, free)
        if not sets:
            needed = memory_needed(self.kernel, shape, 2)
            text = _("The card has {free:.1f} GiB of free memory; measuring at {shape} takes {needed:.1f} GiB.")
            advice = _("End what else uses the card ('nvidia-smi' lists it), or measure on a larger one.")
            message = text.format(free=free / GIB, needed=needed / GIB, shape=shape)
            self.report.say(lacking=message, advice=advice, shape=shape.name)
            return
        for family in self.task.families[1:]:
            if not self.right(shape, launch, Workbench(self.task, self.kernel, shape, self.seed, family, 1)):
                return
        bench = Workbench(self.task, self.kernel, shape, self.seed, self.task.families[0], sets)
        if self.right(shape, launch, bench):
            self.time(shape, launch, bench)

    def right(self, shape: Shape, launch: Launch, bench: Workbench) -> bool:
        def launches() -> None:
            for number in range(bench.sets):
                bench.launch(launch, number)

        return self.ran(shape, launches) and self.still_right(shape, bench)

    def still_right(self, shape: Shape, bench: Workbench) -> bool:
        self.report.phase("preparing", PREPARE)
        wrong = bench.wrong()
        if wrong is not None:
            self.problem(shape, wrong)
        return wrong is None

    def problem(self, shape: Shape, finding: Finding) -> None:
        self.report.say(problem=dataclasses.asdict(finding), shape=shape.name)

    def time(self, shape: Shape, launch: Launch, bench: Workbench) -> None:
        peer, thresholds = (self.rows[shape.name][key] for key in ("peer", "thresholds"))
        peer = self.task.peer(peer)
        place = Guarded(*output_of(self.kernel, shape)).tensor
        try:
            calls = [peer.prepare(inputs, place) for inputs in bench.inputs]
        except Missing as error:
            message = _("The peer {peer} does not run here: {why}").format(peer=peer.name, why=error)
            self.report.say(lacking=message, shape=shape.name)
            return
        seconds = self.job["seconds"]
        self.report.phase("timing", 3 * seconds + 60)
        spots = _SpotChecks(bench)
        try:
            with state.watched(self.job["uuid"]) as seen:
                measured = timing.compare(
                    lambda round_: bench.launch(launch, round_),
                    lambda round_: calls[round_ % bench.sets](),
                    prepare=bench.refresh,
                    seconds=seconds,
                    decided=partial(decided, thresholds),
                    after_batch=spots,
                    sets=bench.sets,
                )
        except _Wrong as error:
            self.problem(shape, error.finding)
            return
        if self.still_right(shape, bench):
            row = dataclasses.asdict(measured) | {"peer": peer.name, "checked": spots.done + 1}
            self.report.say(timed=row, state=dataclasses.asdict(seen), shape=shape.name)


def decided(thresholds: Sequence[float], low: float, high: float) -> bool:
    """Is no threshold within the interval of the ratio? While one is, it pays to go on."""
    return not any(low < threshold <= high for threshold in thresholds)


def refusal(error: Exception) -> Finding:
    """Why a launcher refused, in plain words where it is known."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = " ".join(lines) or type(error).__name__
    if "OUT_OF_MEMORY" in words:
        return Finding(
            _("The kernel can't be launched: the card has no memory left for its threads' local memory."),
            _("What T.alloc_local and fragments hold is needed for every thread at once: make them smaller."),
            evidence=(words[:300],),
        )
    return Finding(_("The kernel can't be launched: {why}").format(why=words[:300]))


class _Wrong(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class _SpotChecks:
    """Looks at the outputs after a few batches that nobody can foresee."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self.done = 0
        self.next = random.randint(bench.sets, 40)

    def __call__(self, rounds: int) -> None:
        if rounds < self.next or self.done == SPOT_CHECKS:
            return
        wrong = self.bench.wrong()
        if wrong is not None:
            raise _Wrong(wrong)
        self.done += 1
        self.next = rounds + random.randint(20, 200)


if __name__ == "__main__":
    main()

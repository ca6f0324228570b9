"""The disposable process on the card: runs, checks and times one kernel that was compiled beforehand.

    python -m grader.judge.card_worker FOLDER PARENT

It knows compiled kernels, sizes and a seed, and nothing else: no gradebook, no submission. An error of CUDA ends
it, which is what it is for.
"""

import dataclasses
import random
from pathlib import Path
from typing import Any

import torch

from grader.catalog import Group, Shape, find
from grader.gpu import lock, state, timing
from grader.gpu.launch import Launch, load
from grader.judge import seeds, tasks
from grader.judge.launching import PREPARE, Launcher
from grader.judge.peers import Missing
from grader.judge.speed import widened
from grader.judge.workbench import Guarded, Workbench, output_of, same_bits
from grader.judge.worker_process import Report, receive
from grader.messages import _
from grader.verdict import Finding

SPOT_CHECKS = 3  # of outputs between timed rounds, at random


def main() -> None:
    report, job = receive()
    with lock.held(lock.path_for(job["uuid"]), waiting=lambda: report.phase("waiting", None)):
        _Worker(report, job).run()


class _Worker(Launcher):
    def __init__(self, report: Report, job: dict[str, Any]) -> None:
        super().__init__(report, tasks.find(job["lab"], job["kernel"]), find(job["lab"]).kernel(job["kernel"]))
        self.job = job
        self.seed = job["seed"]
        self.shapes = [
            Shape(row["name"], row["sizes"], Group(row["group"]), hidden=row["hidden"]) for row in job["shapes"]
        ]
        self.libraries = {row["name"]: Path(row["library"]) for row in job["shapes"]}

    def run(self) -> None:
        # The timed shape comes last: an error there leaves the others' results standing.
        for shape in sorted(self.shapes, key=lambda shape: shape.group is Group.TIMED):
            self.report.phase("preparing", PREPARE)
            self.report.say(begun=shape.name)
            launch = load(self.libraries[shape.name])
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
        self.report.say(ran_all=shape.name)

    def measure(self, shape: Shape, launch: Launch) -> None:
        """Checks every family at the timed shape, then times the kernel next to its peer."""
        sets = self.sets(shape)
        if not sets:
            return
        for family in self.task.families[1:]:
            if not self.right(shape, launch, Workbench(self.task, self.kernel, shape, self.seed, family, 1)):
                return
        bench = Workbench(self.task, self.kernel, shape, self.seed, self.task.families[0], sets)
        if self.right(shape, launch, bench):
            self.time(shape, launch, bench)

    def time(self, shape: Shape, launch: Launch, bench: Workbench) -> None:
        peer = self.task.peer(self.job["peer"])
        place = Guarded(*output_of(self.kernel, shape)).tensor
        try:
            calls = [peer.prepare(inputs, place) for inputs in bench.inputs]
        except Missing as error:
            message = _("The peer {peer} does not run here: {why}").format(peer=peer.name, why=error)
            self.report.say(lacking=message)
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
                    decided=self.decided,
                    after_batch=spots,
                    sets=bench.sets,
                )
        except _Wrong as error:
            self.problem(shape, error.finding, ran=True)
            return
        if self.still_right(shape, bench):
            row = dataclasses.asdict(measured) | {"peer": peer.name, "checked": spots.done + 1}
            self.report.say(timed=row, state=dataclasses.asdict(seen))

    def decided(self, low: float, high: float) -> bool:
        """Is no threshold within the interval that will be decided on? While one is, it pays to go on."""
        low, high = widened(low, high)
        return not any(low < threshold <= high for threshold in self.job["thresholds"])


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

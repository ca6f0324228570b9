"""The disposable process on the card: compiles, runs, checks and times one kernel.

    python -m grader.judge.card_worker FOLDER

Reads FOLDER/job.json; appends to FOLDER/report.jsonl one line for each thing that is done. An error of CUDA ends
this process, which is what it is for.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from grader.catalog import Group, Role, Shape, find
from grader.gpu import timing
from grader.gpu.compiler import Launch, Source, compile_all
from grader.judge import seeds, tasks
from grader.judge.comparison import compare, is_poison, poison
from grader.judge.task import Task, Tensors
from grader.messages import _

CANARY = 4096  # elements before and after an output that must stay as they are
SETS = 3  # of inputs for timing
SECONDS = 20.0
MAX_MESSAGE = 20_000  # characters of what a compiler says


def main() -> None:
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    with (folder / "report.jsonl").open("a", buffering=1) as report:
        _Worker(folder, job, report).run()


class _Worker:
    def __init__(self, folder: Path, job: dict[str, Any], report) -> None:
        self.folder = folder
        self.report = report
        self.seed = job["seed"]
        self.task: Task = tasks.find(job["lab"], job["kernel"])
        self.kernel = find(job["lab"]).kernel(job["kernel"])
        self.shapes = {s["name"]: Shape(s["name"], s["sizes"], Group(s["group"])) for s in job["shapes"]}
        self.sources = {s["name"]: Source(s["json"], s["options"]) for s in job["shapes"]}

    def say(self, **line: object) -> None:
        self.report.write(json.dumps(line) + "\n")

    def run(self) -> None:
        launches: dict[str, Launch] = {}
        for name, compiled in compile_all(self.sources):
            if isinstance(compiled, Exception):
                self.say(uncompilable=str(compiled)[:MAX_MESSAGE], shape=name)
            else:
                launches[name] = compiled
        # The timed shape comes last: an error there leaves the others' results standing.
        for name in sorted(launches, key=lambda name: self.shapes[name].group is Group.TIMED):
            shape = self.shapes[name]
            if shape.group is Group.TIMED:
                self.measure(shape, launches[name])
            else:
                self.check(shape, launches[name])
        self.say(done=True)

    def check(self, shape: Shape, launch: Launch) -> None:
        """Runs every family of inputs and hands the outputs back; the judge compares them."""
        for number, family in enumerate(self.task.families):
            generator = seeds.generator(self.seed, self.task.kernel, shape.name, family)
            inputs = tuple(tensor.cuda() for tensor in self.task.inputs(family, shape, generator))
            guarded = _Guarded(self.dtype, self.output_size(shape))
            launch(*inputs, guarded.output)
            torch.cuda.synchronize()
            if not guarded.intact():
                self.say(problem=_("The kernel wrote outside its output."), shape=shape.name)
                return
            file = f"{shape.name.replace(' ', '-')}-{number}.pt"
            torch.save(guarded.output.cpu(), self.folder / file)
            self.say(ran=shape.name, file=file)

    @property
    def dtype(self) -> torch.dtype:
        (parameter,) = (p for p in self.kernel.parameters if p.role is Role.OUT)
        return getattr(torch, parameter.dtype)

    def output_size(self, shape: Shape) -> tuple[int, ...]:
        (parameter,) = (p for p in self.kernel.parameters if p.role is Role.OUT)
        return parameter.sizes(shape)

    def measure(self, shape: Shape, launch: Launch) -> None:
        """Times the kernel next to its peer, with fresh outputs that are checked afterwards."""
        family = self.task.families[0]
        sets: list[Tensors] = []
        for number in range(SETS):
            names = (self.task.kernel, shape.name, family, str(number))
            sets.append(self.task.inputs(family, shape, seeds.generator(self.seed, *names, device="cuda")))
        outputs = [_Guarded(self.dtype, self.output_size(shape)) for _inputs in sets]
        peer_output = torch.empty(self.output_size(shape), dtype=self.dtype, device="cuda")
        for inputs, guarded in zip(sets, outputs, strict=True):
            launch(*inputs, guarded.output)
        if not self.right(shape, sets, outputs):
            return
        measured = timing.compare(
            lambda i: launch(*sets[i % SETS], outputs[i % SETS].output),
            lambda i: self.task.peer(sets[i % SETS], peer_output),
            prepare=lambda i: outputs[i % SETS].refresh(),
            seconds=SECONDS,
        )
        if self.right(shape, sets, outputs):
            self.say(timed=measured.__dict__)

    def right(self, shape: Shape, sets: list[Tensors], outputs: list["_Guarded"]) -> bool:
        """Are the outputs of the last launches right? Says so if not."""
        for inputs, guarded in zip(sets, outputs, strict=True):
            reference = self.task.reference(inputs)
            mismatch = compare("C", guarded.output, reference, self.task.bound(inputs, reference))
            if mismatch is not None:
                self.say(problem=mismatch.message, shape=shape.name)
                return False
            if not guarded.intact():
                self.say(problem=_("The kernel wrote outside its output."), shape=shape.name)
                return False
        return True


class _Guarded:
    """A poisoned output between two canaries."""

    def __init__(self, dtype: torch.dtype, size: tuple[int, ...]) -> None:
        count = torch.Size(size).numel()
        self.memory = torch.empty(count + 2 * CANARY, dtype=dtype, device="cuda")
        self.refresh()
        self.output = self.memory[CANARY : CANARY + count].view(size)

    def refresh(self) -> None:
        poison(self.memory)

    def intact(self) -> bool:
        return bool(is_poison(self.memory[:CANARY]).all() and is_poison(self.memory[-CANARY:]).all())


if __name__ == "__main__":
    main()

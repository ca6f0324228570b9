"""The disposable process that calibrates the card: its ceilings, and all peers of all tasks.

    python -m grader.judge.calibration_worker FOLDER PARENT

No submission comes near it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from grader.catalog import Group, Kernel, Lab, Shape, find
from grader.gpu import ceilings, launch, lock, state
from grader.gpu.timing import interleave, median_interval
from grader.judge import tasks
from grader.judge.comparison import poison
from grader.judge.parts import mismatch
from grader.judge.peers import Missing, Peer
from grader.judge.task import Task
from grader.judge.workbench import GIB, Guarded, Workbench, fitting_sets, no_room, output_of
from grader.judge.worker_process import Report, receive
from grader.messages import _
from grader.messages.errors import first_line

CEILING = 60.0  # seconds that one ceiling may take
WORK = 240.0  # seconds that the peers of one work may take: they compile
SECONDS = 8.0  # of timing the peers of one work, at most

Call = Callable[[], torch.Tensor]


def main() -> None:
    report, job = receive()
    with lock.held(lock.path_for(job["uuid"]), waiting=lambda: report.phase("waiting", None)):
        report.phase("starting", CEILING)
        with state.watched(job["uuid"]) as seen:
            if not measure_ceilings(report):
                return
            for lab, task, kernel, shape in timed():
                report.phase("peers", WORK, what=f"{lab.id}: {kernel.name}, {shape.name}")
                found = measure_peers(task, kernel, shape)
                report.say(peers=found, lab=lab.id, kernel=kernel.name, shape=shape.name)
                torch.cuda.empty_cache()
                mine = [row for row in job["sweep"] if (row["lab"], row["kernel"]) == (lab.id, kernel.name)]
                if mine:
                    report.phase("sweep", WORK, what=f"{lab.id}: {kernel.name}")
                    report.say(sweep=measure_sweep(task, kernel, shape, mine), lab=lab.id, kernel=kernel.name)
                    torch.cuda.empty_cache()
        report.say(state=dataclasses.asdict(seen))
        report.say(done=True)


def timed() -> Iterator[tuple[Lab, Task, Kernel, Shape]]:
    """Everything that is timed, in the labs' order."""
    for lab_id, of_lab in tasks.TASKS.items():
        lab = find(lab_id)
        for task in of_lab:
            kernel = lab.kernel(task.kernel)
            for shape in kernel.group(Group.TIMED):
                yield lab, task, kernel, shape


def measure_ceilings(report: Report) -> bool:
    try:
        found = ceilings.measure(lambda what: report.phase("ceiling", CEILING, what=what))
    except torch.OutOfMemoryError:
        free, total = torch.cuda.mem_get_info()
        text = _("Only {free:.1f} of the card's {total:.1f} GiB of memory are free: too little to calibrate it.")
        report.say(lacking=text.format(free=free / GIB, total=total / GIB))
        return False
    torch.cuda.empty_cache()
    report.say(ceilings=dataclasses.asdict(found))
    return True


def measure_peers(task: Task, kernel: Kernel, shape: Shape, device: str = "cuda") -> dict[str, object]:
    """Every peer that is right, timed in turns on a kernel's inputs; of the others, why they are not taken."""
    free, _total = torch.cuda.mem_get_info()
    sets = fitting_sets(kernel, shape, free)
    if not sets:
        why = no_room(kernel, shape, free).message
        return {"rows": [{"peer": peer.name, "why_not": why} for peer in task.peers], "disturbed": 0.0}
    bench = Workbench(task, kernel, shape, "calibrate", task.families[0], sets, device)
    place = Guarded(*output_of(kernel, shape), device).tensor
    calls: dict[str, list[Call]] = {}
    rows: dict[str, dict[str, object]] = {}
    for peer in task.peers:
        try:
            calls[peer.name] = prepared(peer, task, bench, place)
        except (Missing, torch.OutOfMemoryError) as error:
            rows[peer.name] = {"peer": peer.name, "why_not": first_line(error)}
    torch.cuda.empty_cache()
    disturbed = 0.0
    if calls:
        samples = interleave(
            [lambda round_, own=own: own[round_ % sets]() for own in calls.values()],
            seconds=SECONDS,
            enough=ceilings.settled,
            sets=sets,
        )
        disturbed = samples.disturbed()
        for number, name in enumerate(calls):
            short, long = median_interval(sorted(samples.ms[number]))
            ms = samples.median(number)
            rate, low, high = (task.rate(shape, value) for value in (ms, long, short))
            figures = {"rate": rate, "low": low, "high": high, "milliseconds": ms, "rounds": samples.rounds}
            rows[name] = {"peer": name, **figures}
    return {"rows": [rows[peer.name] for peer in task.peers], "disturbed": disturbed}


def measure_sweep(
    task: Task,
    kernel: Kernel,
    shape: Shape,
    entries: Sequence[Mapping[str, Any]],
    device: str = "cuda",
    load: Callable[[Path], Callable[..., None]] = launch.load,
) -> dict[str, object]:
    """The judge's own kernels (``sweep.Entry`` as data), timed in turns; of those that aren't right, why not."""
    free, _total = torch.cuda.mem_get_info()
    sets = fitting_sets(kernel, shape, free)
    rows = [
        {"schedule": entry["shape"]["schedule"], "rate": None, "why_not": entry["why_not"]} for entry in entries
    ]
    if not sets:
        return {"rows": [row | {"why_not": _("the card's memory is too small")} for row in rows], "disturbed": 0.0}
    bench = Workbench(task, kernel, shape, "calibrate", task.families[0], sets, device)
    kernels: dict[int, Callable[..., None]] = {}
    for number, entry in enumerate(entries):
        if entry["library"]:
            try:
                kernels[number] = right(load(Path(entry["library"])), bench)
            except (Missing, RuntimeError, TypeError) as error:
                rows[number]["why_not"] = first_line(error)
    if not kernels:
        return {"rows": rows, "disturbed": 0.0}
    samples = interleave(
        [lambda round_, own=own: bench.launch(own, round_) for own in kernels.values()],
        prepare=bench.refresh,
        seconds=2 * SECONDS,
        enough=ceilings.settled,
        sets=sets,
    )
    for position, number in enumerate(kernels):
        rows[number]["rate"] = task.rate(shape, samples.median(position))
    return {"rows": rows, "disturbed": samples.disturbed()}


def right(kernel: Callable[..., None], bench: Workbench) -> Callable[..., None]:
    """The kernel, whose results were right. Raises Missing otherwise."""
    for number in range(bench.sets):
        bench.refresh(number)
        bench.launch(kernel, number)
    wrong = bench.wrong()
    if wrong is not None:
        raise Missing(_("it is wrong: {why}").format(why=wrong.message))
    return kernel


def prepared(peer: Peer, task: Task, bench: Workbench, place: torch.Tensor) -> list[Call]:
    """A call for each set of inputs, whose result was right. Raises Missing otherwise."""
    calls = []
    for inputs in bench.inputs:
        call = peer.prepare(inputs, place)
        poison(place)
        result = call()
        if (result.dtype, result.shape) != (place.dtype, place.shape):
            raise Missing(_("its result is {got}").format(got=f"{result.dtype} {tuple(result.shape)}"))
        found = mismatch(task, _("the result"), bench.shape, inputs, result, peer=True)
        if found is not None:
            raise Missing(_("it is wrong: {why}").format(why=found.message))
        calls.append(call)
    return calls


if __name__ == "__main__":
    main()

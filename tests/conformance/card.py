"""Runs the cases on the card through TileLang, beside the simulator, in worker processes.

One case can't end the run: a worker that crashes, hangs or meets an error of CUDA's is replaced, and its case is
one row that says so. Each worker compiles and launches by itself, so that compilation uses all cores.
"""

import json
import multiprocessing
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from pathlib import Path

from .card_worker import work
from .registry import Case

CASE_SECONDS = 60.0  # a case that takes longer hangs
START_SECONDS = 120.0  # a worker imports torch and TileLang and makes a CUDA context
LOST_STARTS = 5  # workers that may fail to start before the run is given up

RIGHT, NOT_RUN = "right", "not run"


@dataclass
class CardResult:
    """What became of a case on the card.

    ``status`` is "right", "wrong" (beside float64), "apart" (from the simulator), "not compiled", "failed",
    "crashed", "hung", "no simulator" (right, but the simulator has no result to compare) or "not run".
    ``share`` and ``apart`` are the largest distances, from float64 and from the simulator, as shares of what the
    bounds allow; ``identical`` is the share of elements with the same bits as the simulator's.
    """

    case: str
    construct: str
    dtype: str
    shape: list[int]
    status: str = NOT_RUN
    detail: str = ""
    share: float = 0.0
    apart: float = 0.0
    identical: float = 0.0
    seconds: float = 0.0


@dataclass
class _Worker:
    process: multiprocessing.Process
    connection: Connection
    log: Path
    deadline: float
    ready: bool = False
    case: Case | None = None
    stage: str = ""
    begun: float = 0.0


class NoWorkers(Exception):
    """Workers end before they are ready: nothing can be run. The message is the last that one of them said."""


@dataclass
class Run:
    """A run of some cases, and what has become of them."""

    queue: deque[Case]
    results: dict[str, CardResult]
    until: float
    logs: Path
    work: Callable[[Connection, str], None]
    case_seconds: float
    workers: list[_Worker] = field(default_factory=list)
    lost: int = 0
    facts: dict[str, str] = field(default_factory=dict)


def run(cases: Sequence[Case], workers: int, seconds: float, out: Path, part: tuple[int, int] = (1, 1)) -> int:
    """Runs all, writes ``conformance.json`` and ``conformance.md`` into ``out``; gives the exit status."""
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: nothing is run", file=sys.stderr)
        return 2
    try:
        state = run_cases(ordered(cases)[part[0] - 1 :: part[1]], workers, seconds)
    except NoWorkers as error:
        print(f"the workers don't start:\n{error}", file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    name = "conformance" if part[1] == 1 else f"conformance-{part[0]}-of-{part[1]}"
    record = {"facts": state.facts | {"date": f"{datetime.now(UTC):%Y-%m-%d}"}, "results": []}
    record["results"] = [asdict(result) for result in state.results.values()]
    (out / f"{name}.json").write_text(json.dumps(record, indent=1))
    from .markdown import page

    (out / f"{name}.md").write_text(page(record))
    print(page(record))
    return 0 if state.results and all(result.status == RIGHT for result in state.results.values()) else 1


def run_cases(
    cases: Sequence[Case],
    workers: int,
    seconds: float,
    *,
    worker: Callable[[Connection, str], None] = work,
    case_seconds: float = CASE_SECONDS,
) -> Run:
    """Gives the cases to worker processes, one at a time each. Raises NoWorkers if they don't start."""
    results = {case.name: CardResult(case.name, case.construct, case.dtype, list(case.shape)) for case in cases}
    with tempfile.TemporaryDirectory() as logs:
        state = Run(deque(cases), results, time.monotonic() + seconds, Path(logs), worker, case_seconds)
        try:
            _work_off(state, min(workers, len(cases)))
        finally:
            for one in state.workers:
                one.process.kill()
    return state


def ordered(cases: Sequence[Case]) -> list[Case]:
    """The cases that run on a card: every kernel at its first shape before any at its second."""
    seen: dict[tuple, int] = {}
    ranked = []
    for case in cases:
        if case.uncompilable or case.refused or case.off_card:
            continue
        key = (case.kernel, case.dtype, str(case.options))
        seen[key] = seen.get(key, -1) + 1
        ranked.append((seen[key], len(ranked), case))
    return [case for _rank, _number, case in sorted(ranked, key=lambda item: item[:2])]


def _work_off(state: Run, count: int) -> None:
    state.workers = [_start(state) for _number in range(count)]
    reported = time.monotonic()
    while state.workers:
        ready = wait([worker.connection for worker in state.workers], timeout=1.0)
        for worker in list(state.workers):
            if worker.connection in ready:
                _hear(state, worker)
            elif time.monotonic() > worker.deadline:
                _lose(
                    state, worker, "hung", f"no end within {state.case_seconds:.0f} s while it was {worker.stage}"
                )
        if time.monotonic() - reported > 15:
            reported = time.monotonic()
            done = sum(result.status != NOT_RUN for result in state.results.values())
            print(f"{done} of {len(state.results)} cases", file=sys.stderr, flush=True)


def _start(state: Run) -> _Worker:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    log = Path(tempfile.mkstemp(dir=state.logs)[1])
    process = context.Process(target=state.work, args=(there, str(log)), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here, log, time.monotonic() + START_SECONDS)


def _hear(state: Run, worker: _Worker) -> None:
    """Takes a worker's next message, and gives it a case if it is idle."""
    try:
        message = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join(5)
        _lose(state, worker, "crashed", f"exit status {worker.process.exitcode} while it was {worker.stage}")
        return
    kind = message.pop("kind")
    if kind == "stage":
        worker.stage = message["stage"]
        return
    if kind == "ready":
        worker.ready = True
        state.facts |= message["facts"]
    else:
        _note(state, worker, **message)
    if kind == "last":  # the worker's CUDA context is no good any more
        _replace(state, worker)
        return
    if not state.queue or time.monotonic() > state.until:
        _retire(state, worker)
        return
    worker.case = state.queue.popleft()
    worker.begun = time.monotonic()
    worker.deadline = worker.begun + state.case_seconds
    worker.connection.send(worker.case.name)


def _note(state: Run, worker: _Worker, **found: object) -> None:
    assert worker.case is not None
    result = state.results[worker.case.name]
    for key, value in found.items():
        setattr(result, key, value)
    result.seconds = round(time.monotonic() - worker.begun, 2)
    worker.case = None


def _lose(state: Run, worker: _Worker, status: str, detail: str) -> None:
    """A worker that crashed or hangs."""
    lines = worker.log.read_text(errors="replace").strip().splitlines()
    if worker.case is not None:
        _note(state, worker, status=status, detail=f"{detail}: {lines[-1][:200]}" if lines else detail)
    if not worker.ready:
        state.lost += 1
        if state.lost >= LOST_STARTS:
            raise NoWorkers("\n".join(lines[-20:]))
    _replace(state, worker)


def _replace(state: Run, worker: _Worker) -> None:
    _retire(state, worker)
    if state.queue and time.monotonic() < state.until:
        state.workers.append(_start(state))


def _retire(state: Run, worker: _Worker) -> None:
    state.workers.remove(worker)
    worker.connection.close()
    worker.process.kill()
    worker.process.join(10)


def merged(files: Sequence[Path]) -> dict[str, object]:
    """Several runs' records as one."""
    records = [json.loads(file.read_text()) for file in files]
    facts: dict[str, str] = {}
    for record in records:
        facts |= record["facts"]
    return {"facts": facts, "results": list(_results(records))}


def _results(records: Sequence[dict]) -> Iterator[dict]:
    """Each case once: the last record that ran it counts."""
    found: dict[str, dict] = {}
    for record in records:
        for result in record["results"]:
            if result["case"] not in found or result["status"] != NOT_RUN:
                found[result["case"]] = result
    yield from found.values()

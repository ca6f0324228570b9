"""Compiles a kernel on CPU workers, then runs and times it on the card, in a disposable process.

That worker (``card_worker``) gets compiled kernels, sizes and a seed, and nothing else: no gradebook, no
submission. It reports line by line, so that a kernel which kills it costs only what came after.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from grader.admit import Admitted
from grader.catalog import Lab, Shape
from grader.gpu import compiler, targets
from grader.gpu.architectures import architecture
from grader.gpu.compile_errors import explain_text
from grader.gpu.hardware import Card
from grader.gpu.state import State
from grader.ir.nodes import Line
from grader.judge.outcome import Broke, Ran
from grader.judge.speed import decide, figures_of, unquiet
from grader.judge.task import Task
from grader.judge.workbench import MAKE_ROOM
from grader.judge.worker_process import Ending, Worker
from grader.messages import _, progress
from grader.verdict import Assessment, Finding, JudgeFailed, Location, Outcome

SECONDS = 8.0  # of timing, at most, the first time
TRIES = 2  # measurements, if one is inconclusive: the second may take twice as long
MOST_LATE = 2  # groups of shapes at which a kernel may fail to end
PAUSE = 2.0  # seconds before another try, for what disturbed it to pass

Locate = Callable[[Line | None], Location | None]
Asked = Mapping[str, targets.Target]
"""The targets of timed shapes on a card, by the shape's name."""


@dataclass(frozen=True)
class Timing:
    """The raw report of a timed shape, the card's state meanwhile, and after how many tries."""

    report: dict[str, Any]
    state: State
    tries: int = 1


@dataclass
class Session:
    """What one kernel did on the card. ``timings`` has the timed shapes, by name, that it got to.

    ``whole`` names the shapes where it ran on every family of inputs. ``lacking`` says what the card or the
    installation lacks for the measurement: not the kernel's fault. ``lacking_at`` says so of one timed shape.
    """

    ran: dict[str, list[Ran | Broke]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    timings: dict[str, Timing] = field(default_factory=dict)
    problems: dict[str, Finding] = field(default_factory=dict)
    lacking: Finding | None = None
    lacking_at: dict[str, Finding] = field(default_factory=dict)
    ended: Finding | None = None
    late: int = 0  # the processes that were ended because the kernel did not end
    begun: str = ""  # the shape that the worker came to last
    phase: str = "starting"
    done: bool = False

    def results(self, shape: Shape) -> list[Ran | Broke]:
        """As ``simulated.run`` gives them."""
        results = list(self.ran.get(shape.name, []))
        problem = self.problem(shape)
        if problem is not None:
            results.append(Broke(problem))
        elif self.lacking is not None and shape.name not in self.whole:
            results.append(Broke(self.lacking, missing=True))
        return results

    def lacking_for(self, shape: Shape) -> Finding | None:
        """What was lacking for a measurement at ``shape``."""
        return self.lacking_at.get(shape.name, self.lacking)

    def over(self, name: str) -> bool:
        """Is it known how the kernel does at the shape of that name?"""
        return any(name in found for found in (self.whole, self.timings, self.problems, self.lacking_at))

    def problem(self, shape: Shape) -> Finding | None:
        return self.problems.get(shape.name) or (self.ended if shape.name not in self.whole else None)


def launch(
    lab: Lab,
    task: Task,
    admitted: Mapping[str, Admitted],
    seed: str,
    card: Card,
    asked: Asked,
    locate: Locate,
    *,
    cached: bool = True,
) -> Session:
    """Compiles, runs and times a kernel at the shapes that were admitted.

    ``asked`` has the targets of the timed shapes (for none, there is none for this card): which peer is timed
    beside it, and when to measure again. ``cached``: may the compiled kernel come from the user's cache?
    """
    shapes = [shape for shape in lab.kernel(task.kernel).shapes if shape.name in admitted]
    session = Session()
    # The worker imports torch while the kernel is compiled; it has no card yet.
    with start_worker(card) as worker:
        libraries = _compile(task, shapes, admitted, card, locate, session, cached)
        if not libraries:
            return session
        job = _job(lab, task, shapes, libraries, seed, card, asked)
        end(session, worker.run(job, lambda line: read(line, worker.folder, session)))
    while rest := _rest(session, job["shapes"]):
        with start_worker(card) as worker:
            end(session, worker.run(job | {"shapes": rest}, lambda line: read(line, worker.folder, session)))
    for shape in shapes:
        while _undecided(session, task, shape, asked.get(shape.name)):
            progress.say(_("Too noisy to say; measuring {kernel} again.").format(kernel=task.kernel))
            time.sleep(PAUSE)
            only_this = [row for row in job["shapes"] if row["name"] == shape.name]
            _measure_again(session, shape, job | {"shapes": only_this}, card)
    return session


def start_worker(card: Card, module: str = "grader.judge.card_worker") -> Worker:
    return Worker(module, card.alone)


def _compile(
    task: Task,
    shapes: list[Shape],
    admitted: Mapping[str, Admitted],
    card: Card,
    locate: Locate,
    session: Session,
    cached: bool,
) -> dict[str, str]:
    """The libraries by shape; what can't be compiled becomes a problem of its shape."""
    arch = architecture(card.capability)
    sources = {
        shape.name: compiler.Source(admitted[shape.name].json, arch, admitted[shape.name].options)
        for shape in shapes
    }
    progress.say(_("Compiling {kernel} at {count} shapes.").format(kernel=task.kernel, count=len(sources)))
    libraries = {}
    for name, built in compiler.build_all(sources, cache=... if cached else None):
        if isinstance(built, compiler.Built):
            libraries[name] = str(built.library)
        else:
            session.problems[name] = uncompilable(built.text, admitted[name], locate)
    return libraries


def _job(
    lab: Lab,
    task: Task,
    shapes: list[Shape],
    libraries: Mapping[str, str],
    seed: str,
    card: Card,
    asked: Asked,
) -> dict[str, Any]:
    return {
        "lab": lab.id,
        "kernel": task.kernel,
        "seed": seed,
        "uuid": card.uuid,
        "seconds": SECONDS,
        "shapes": [
            {
                "name": shape.name,
                "sizes": shape.sizes,
                "group": shape.group,
                "hidden": shape.hidden,
                "library": libraries[shape.name],
            }
            | _measured_beside(asked.get(shape.name))
            for shape in shapes
            if shape.name in libraries
        ],
    }


def _measured_beside(target: targets.Target | None) -> dict[str, Any]:
    if target is None:
        return {"peer": None, "thresholds": []}
    return {"peer": target.peer, "thresholds": [tier.at / target.peer_rate for tier in target.tiers]}


def _rest(session: Session, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The shapes that a kernel which ended its process is still tried at: those of other groups.

    What is wrong where the last tile sticks out says nothing of the other points. What was found at a shape before
    stands. A kernel that did not end at two groups is tried at no third: each such try holds the card for long.
    """
    if session.ended is None or session.late == MOST_LATE:
        return []
    (group,) = {row["group"] for row in rows if row["name"] == session.begun}
    open_ = [row for row in rows if not session.over(row["name"])]
    for row in open_:
        if row["group"] == group:
            session.problems[row["name"]] = session.ended
    rest = [row for row in open_ if row["group"] != group]
    if rest:
        session.ended, session.phase, session.done = None, "starting", False
    return rest


def _undecided(session: Session, task: Task, shape: Shape, target: targets.Target | None) -> bool:
    timing = session.timings.get(shape.name)
    if timing is None or target is None or timing.tries == TRIES:
        return False
    return fast(session, task, shape, target).outcome is Outcome.INCONCLUSIVE


def _measure_again(session: Session, shape: Shape, job: dict[str, Any], card: Card) -> None:
    """Another measurement in a new process, with more time. What it finds replaces the last one's figures."""
    tries = session.timings.pop(shape.name).tries + 1
    again = Session()
    with start_worker(card) as worker:
        ending = worker.run(
            job | {"seconds": SECONDS * 2 ** (tries - 1)}, lambda line: read(line, worker.folder, again)
        )
        end(again, ending)
    if shape.name in again.timings:
        session.timings[shape.name] = replace(again.timings[shape.name], tries=tries)
    # Whatever stands in the way now does so at this shape: the others have had their turn.
    lacking = again.lacking_for(shape)
    if lacking is not None:
        session.lacking_at[shape.name] = lacking
    problem = again.problem(shape)
    if problem is not None:
        session.problems[shape.name] = problem


def uncompilable(text: str, admitted: Admitted, locate: Locate) -> Finding:
    """The compiler's words as a finding, with the student's line where one can be told."""
    explained = explain_text(text, admitted.kernel)
    places = [place for line in explained.lines if (place := locate(line)) is not None]
    evidence = (explained.own_words,) if explained.known else ()
    return Finding(explained.message, explained.advice, places[0] if places else None, evidence)


def read(line: dict[str, Any], folder: Path, session: Session) -> None:
    """One line of the worker's report."""
    match line:
        case {"begun": str(shape)}:
            session.begun = shape
        case {"ran": str(shape), "file": str(file)}:
            output = torch.load(folder / file, weights_only=True)
            session.ran.setdefault(shape, []).append(Ran(output))
        case {"ran_all": str(shape)}:
            session.whole.add(shape)
        case {"timed": dict(report), "state": dict(state), "shape": str(shape)}:
            session.timings[shape] = Timing(report, State(**state))
        case {"problem": dict(finding), "shape": str(shape)}:
            session.problems[shape] = finding_of(finding)
        case {"lacking": str(message), "shape": str(shape)}:
            session.lacking_at[shape] = Finding(message, line.get("advice", ""))
        case {"lacking": str(message)}:
            session.lacking = Finding(message, line.get("advice", ""))
        case {"done": True}:
            session.done = True
        case {"phase": str(phase)}:
            session.phase = phase
            if phase == "waiting":
                progress.say(_("The card is busy with another measurement; waiting for it."))
            elif phase == "timing":
                progress.say(_("Measuring on the card."))


def finding_of(row: dict[str, Any]) -> Finding:
    """A worker's finding; it knows no places."""
    return Finding(row["message"], row["advice"], evidence=tuple(row["evidence"]))


#: What a launch says if the machine is at fault, and not the kernel.
MACHINE = (
    "uncorrectable",  # memory (ECC) or NVLink
    "no CUDA-capable device",
    "devices are busy or unavailable",
    "fallen off the bus",
    "system not yet initialized",
    "driver shutting down",
    "forward compatibility",
)

#: What a launch says of a kernel, and what that is in plain words.
KERNELS = (
    ("illegal memory access", _("The kernel accessed memory that is not its own (illegal memory access).")),
    ("misaligned address", _("The kernel accessed memory at a misaligned address.")),
    ("illegal instruction", _("The card met an instruction that it does not have (illegal instruction).")),
    ("out of memory", _("The card had no memory left for the kernel (its threads' local memory, most likely).")),
    ("unspecified launch failure", _("The kernel failed on the card (unspecified launch failure).")),
)


def end(session: Session, ending: Ending) -> None:
    """What a worker's early end says. Raises JudgeFailed if it failed by itself: that costs no student points."""
    if session.done and ending.late is None:
        return
    console, kernels_turn = ending.console, session.phase in ("launching", "timing")
    if ending.late is not None and kernels_turn:
        session.late += 1
        shape = ending.late.get("shape", _("the timed shape"))
        session.ended = Finding(
            _("The kernel did not end on the card within {seconds:.0f} s (at {shape}).").format(
                seconds=ending.late["limit"], shape=shape
            ),
            _("Look for a loop that never ends."),
        )
        return
    # Torch's own allocations are ours, whoever's turn it is.
    if "OutOfMemoryError" in console or (not kernels_turn and "out of memory" in console):
        session.lacking = Finding(
            _("The card has too little free memory for this measurement."),
            MAKE_ROOM,
        )
        return
    if not (kernels_turn and (ending.status < 0 or "CUDA error" in console)) or any(
        words in console for words in MACHINE
    ):
        # What no kernel causes: our fault, or the machine's.
        why = f"was killed in '{ending.late['phase']}'" if ending.late else f"ended with status {ending.status}"
        raise JudgeFailed(f"the worker on the card {why}:\n{console}")
    for known, message in KERNELS:
        if known in console:
            session.ended = Finding(message, _("The simulator's check names the line: see 'clean'."))
            return
    last = [line for line in console.splitlines() if line.strip()][-1:] or [_("it gave no message")]
    session.ended = Finding(
        _("The kernel ended the process that ran it (status {status}): {why}").format(
            status=ending.status, why=last[0][:300]
        )
    )


def fast(session: Session, task: Task, shape: Shape, target: targets.Target | None) -> Assessment:
    """Compares what was measured at the timed ``shape`` with the target for this card."""
    problem, timing = session.problems.get(shape.name), session.timings.get(shape.name)
    if problem is None and timing is None:
        lacking = session.lacking_for(shape)
        if lacking is not None:
            return Assessment(Outcome.NOT_ASSESSED, (lacking,))
        problem = session.ended
        if problem is None:
            raise JudgeFailed("the worker on the card measured nothing, and did not say why")
    if problem is not None:
        return Assessment(Outcome.FAILED, (problem,))
    figures = figures_of(timing.report, timing.state, task, shape, target)
    if target is None:
        finding = Finding(
            _("There is no target for this card yet."),
            _("'tilelab calibrate --keep' measures what the card can do, and derives one."),
        )
        return Assessment(Outcome.NOT_ASSESSED, (finding,), (figures,))
    return decide(figures, target, unquiet(timing.report, timing.state), timing.tries)

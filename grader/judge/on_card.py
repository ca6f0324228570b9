"""Compiles a kernel on CPU workers, then runs and times it on the card, in a disposable process.

That worker (``card_worker``) gets compiled kernels, sizes and a seed, and nothing else: no gradebook, no
submission. It reports line by line, so that a kernel which kills it costs only what came after.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from grader.admit import Admitted
from grader.catalog import Group, Lab, Shape
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
PAUSE = 2.0  # seconds before another try, for what disturbed it to pass

Locate = Callable[[Line | None], Location | None]


@dataclass
class Session:
    """What one kernel did on the card. ``timing`` is the raw report of the timed shape, if it got that far.

    ``whole`` names the shapes where it ran on every family of inputs. ``lacking`` says what the card or the
    installation lacks for the measurement: not the kernel's fault.
    """

    ran: dict[str, list[Ran | Broke]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    timing: dict[str, Any] | None = None
    state: State = field(default_factory=State)
    problems: dict[str, Finding] = field(default_factory=dict)
    lacking: Finding | None = None
    ended: Finding | None = None
    tries: int = 1
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

    def problem(self, shape: Shape) -> Finding | None:
        return self.problems.get(shape.name) or (self.ended if shape.name not in self.whole else None)


def launch(
    lab: Lab,
    task: Task,
    admitted: Mapping[str, Admitted],
    seed: str,
    card: Card,
    target: targets.Target | None,
    locate: Locate,
) -> Session:
    """Compiles, runs and times a kernel at the shapes that were admitted.

    ``target`` (None: there is none for this card) says which peer is timed beside it, and when to measure again.
    """
    shapes = [shape for shape in lab.kernel(task.kernel).shapes if shape.name in admitted]
    timed = next((shape for shape in shapes if shape.group is Group.TIMED), None)
    session = Session()
    # The worker imports torch while the kernel is compiled; it has no card yet.
    with start_worker(card) as worker:
        libraries = _compile(task, shapes, admitted, card, locate, session)
        if not libraries:
            return session
        job = _job(lab, task, shapes, libraries, seed, card, target)
        end(session, worker.run(job, lambda line: read(line, worker.folder, session)))
    while rest := _rest(session, job["shapes"]):
        with start_worker(card) as worker:
            end(session, worker.run(job | {"shapes": rest}, lambda line: read(line, worker.folder, session)))
    while timed is not None and timed.name in libraries and _undecided(session, task, timed, target):
        session.tries += 1
        progress.say(_("Too noisy to say; measuring {kernel} again.").format(kernel=task.kernel))
        time.sleep(PAUSE)
        only_timed = [row for row in job["shapes"] if row["name"] == timed.name]
        _measure_again(session, job | {"shapes": only_timed}, card)
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
) -> dict[str, str]:
    """The libraries by shape; what can't be compiled becomes a problem of its shape."""
    arch = architecture(card.capability)
    sources = {
        shape.name: compiler.Source(admitted[shape.name].json, arch, admitted[shape.name].options)
        for shape in shapes
    }
    progress.say(_("Compiling {kernel} at {count} shapes.").format(kernel=task.kernel, count=len(sources)))
    libraries = {}
    for name, built in compiler.build_all(sources):
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
    target: targets.Target | None,
) -> dict[str, Any]:
    return {
        "lab": lab.id,
        "kernel": task.kernel,
        "seed": seed,
        "uuid": card.uuid,
        "seconds": SECONDS,
        "peer": None if target is None else target.peer,
        "thresholds": [] if target is None else [tier.at / target.peer_rate for tier in target.tiers],
        "shapes": [
            {
                "name": shape.name,
                "sizes": shape.sizes,
                "group": shape.group,
                "hidden": shape.hidden,
                "library": libraries[shape.name],
            }
            for shape in shapes
            if shape.name in libraries
        ],
    }


def _rest(session: Session, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The shapes that a kernel which ended its process is still tried at: those of other groups.

    What is wrong where the last tile sticks out says nothing of the other points.
    """
    if session.ended is None:
        return []
    (group,) = {row["group"] for row in rows if row["name"] == session.begun}
    for row in rows:
        if row["group"] == group and row["name"] not in session.whole:
            session.problems.setdefault(row["name"], session.ended)
    rest = [row for row in rows if row["name"] not in session.whole and row["name"] not in session.problems]
    if rest:
        session.ended, session.phase, session.done = None, "starting", False
    return rest


def _undecided(session: Session, task: Task, shape: Shape, target: targets.Target | None) -> bool:
    if session.timing is None or target is None or session.tries == TRIES:
        return False
    return fast(session, task, shape, target).outcome is Outcome.INCONCLUSIVE


def _measure_again(session: Session, job: dict[str, Any], card: Card) -> None:
    """Another measurement in a new process, with more time. What it finds replaces the last one's figures."""
    again = Session()
    with start_worker(card) as worker:
        ending = worker.run(
            job | {"seconds": SECONDS * 2 ** (session.tries - 1)}, lambda line: read(line, worker.folder, again)
        )
        end(again, ending)
    session.timing, session.state, session.lacking = again.timing, again.state, again.lacking
    session.problems |= again.problems
    session.ended = session.ended or again.ended


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
        case {"timed": dict(timing), "state": dict(state)}:
            session.timing, session.state = timing, State(**state)
        case {"problem": dict(finding), "shape": str(shape)}:
            session.problems[shape] = finding_of(finding)
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
    problem = session.problems.get(shape.name)
    if problem is None and session.timing is None:
        if session.lacking is not None:
            return Assessment(Outcome.NOT_ASSESSED, (session.lacking,))
        problem = session.ended
        if problem is None:
            raise JudgeFailed("the worker on the card measured nothing, and did not say why")
    if problem is not None:
        return Assessment(Outcome.FAILED, (problem,))
    figures = figures_of(session.timing, session.state, task, shape, target)
    if target is None:
        finding = Finding(
            _("There is no target for this card yet."),
            _("'tilelab calibrate --keep' measures what the card can do, and derives one."),
        )
        return Assessment(Outcome.NOT_ASSESSED, (finding,), (figures,))
    return decide(figures, target, unquiet(session.timing, session.state), session.tries)

"""Runs and times a kernel on the card, through a disposable worker process, and decides on its speed.

The worker (``card_worker``) gets admitted IR, sizes and a seed, and nothing else: no gradebook, no submission.
It reports line by line, so that a kernel which kills it costs only what came after.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from grader.admit import Admitted
from grader.catalog import Lab, Shape
from grader.gpu import targets
from grader.gpu.compile_errors import explain_text
from grader.gpu.hardware import Card
from grader.ir.nodes import Line
from grader.judge.outcome import Broke, Ran
from grader.judge.task import Task
from grader.messages import _
from grader.verdict import Assessment, Figures, Finding, JudgeFailed, Location, Outcome

SECONDS = 240.0

Locate = Callable[[Line | None], Location | None]


@dataclass
class Session:
    """What one kernel did on the card. ``timing`` is the raw report of the timed shape, if it got that far."""

    ran: dict[str, list[Ran | Broke]] = field(default_factory=dict)
    timing: dict[str, float] | None = None
    problems: dict[str, Finding] = field(default_factory=dict)
    ended: Finding | None = None

    def results(self, shape: Shape) -> list[Ran | Broke]:
        """As ``simulated.run`` gives them."""
        results = list(self.ran.get(shape.name, []))
        problem = self.problem(shape)
        if problem is not None:
            results.append(Broke(problem))
        return results

    def problem(self, shape: Shape) -> Finding | None:
        return self.problems.get(shape.name) or (self.ended if shape.name not in self.ran else None)


def launch(lab: Lab, task: Task, admitted: dict[str, Admitted], seed: str, locate: Locate) -> Session:
    """Compiles, runs and times a kernel at the shapes that were admitted."""
    with tempfile.TemporaryDirectory(prefix="tilelab-card-") as folder:
        job = {
            "lab": lab.id,
            "kernel": task.kernel,
            "seed": seed,
            "shapes": [
                {"name": shape.name, "sizes": shape.sizes, "group": shape.group}
                | {"json": admitted[shape.name].json, "options": admitted[shape.name].options}
                for shape in lab.kernel(task.kernel).shapes
                if shape.name in admitted
            ],
        }
        Path(folder, "job.json").write_text(json.dumps(job))
        status, console = _run_worker(folder)
        return _read(
            Path(folder), status, console, lambda shape, text: _uncompilable(text, admitted[shape], locate)
        )


def _run_worker(folder: str) -> tuple[int | None, str]:
    """The worker's exit status (None: it did not end in time) and the end of what it printed."""
    environment = os.environ | {"TILELANG_CACHE_DIR": f"{folder}/cache", "TMPDIR": folder}
    command = [sys.executable, "-P", "-m", "grader.judge.card_worker", folder]
    with Path(folder, "console").open("w+b") as console:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            # Compilers that it started end with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        console.seek(max(0, console.seek(0, os.SEEK_END) - 4000))
        return status, console.read().decode(errors="replace")


def _uncompilable(text: str, admitted: Admitted, locate: Locate) -> Finding:
    """The compiler's words as a finding, with the student's line where one can be told."""
    explained = explain_text(text, admitted.kernel)
    places = [place for line in explained.lines if (place := locate(line)) is not None]
    evidence = (explained.own_words,) if explained.known else ()
    return Finding(explained.message, explained.advice, places[0] if places else None, evidence)


def _read(folder: Path, status: int | None, console: str, explain: Callable[[str, str], Finding]) -> Session:
    """``explain`` makes a finding of a shape's name and what the compiler said of the kernel there."""
    session = Session()
    report = folder / "report.jsonl"
    for line in report.read_text().splitlines() if report.exists() else []:
        match json.loads(line):
            case {"ran": str(shape), "file": str(file)}:
                output = torch.load(folder / file, weights_only=True)
                session.ran.setdefault(shape, []).append(Ran(output))
            case {"timed": dict(timing)}:
                session.timing = timing
            case {"uncompilable": str(text), "shape": str(shape)}:
                session.problems[shape] = explain(shape, text)
            case {"problem": str(message), "shape": str(shape)}:
                session.problems[shape] = Finding(message)
            case {"done": True}:
                return session
    session.ended = _why(status, console)
    return session


def _why(status: int | None, console: str) -> Finding:
    """What the kernel did to its worker. Raises JudgeFailed if the worker failed by itself."""
    if status is None:
        return Finding(
            _("The kernel did not end on the card within {seconds:.0f} s.").format(seconds=SECONDS),
            _("Look for a loop that never ends."),
        )
    for known, message in (
        ("illegal memory access", _("The kernel accessed memory that is not its own (illegal memory access).")),
        ("misaligned address", _("The kernel accessed memory at a misaligned address.")),
        ("out of memory", _("The card ran out of memory.")),
        ("unspecified launch failure", _("The kernel failed on the card (unspecified launch failure).")),
    ):
        if known in console:
            return Finding(message, _("The simulator's check names the line: see 'clean'."))
    if status > 0 and "CUDA error" not in console:
        # A Python exception that no kernel causes: ours, or the machine's. It must cost no student points.
        raise JudgeFailed(f"the worker on the card ended with status {status}:\n{console}")
    last = [line for line in console.splitlines() if line.strip()][-1:] or [_("it gave no message")]
    return Finding(
        _("The worker on the card ended with status {status}: {why}").format(status=status, why=last[0][:300])
    )


def fast(session: Session, card: Card, lab: Lab, task: Task, shape: Shape) -> Assessment:
    """Compares what was measured at the timed ``shape`` with the target for this card."""
    problem = session.problems.get(shape.name)
    if problem is None and session.timing is None:
        problem = session.ended or Finding(_("Nothing was measured."))
    if problem is not None:
        return Assessment(Outcome.FAILED, (problem,))
    timing = session.timing
    target = targets.find(lab.id, task.kernel, shape.name, card.name)
    figures = Figures(
        shape=str(shape),
        unit=task.unit,
        achieved=task.rate(shape, timing["kernel_ms"]),
        milliseconds=timing["kernel_ms"],
        peer=task.peer_name,
        peer_achieved=task.rate(shape, timing["peer_ms"]),
        ratio=timing["ratio"],
        ratio_low=timing["low"],
        ratio_high=timing["high"],
        runs=int(timing["rounds"]),
        decided=None if target is None else timing["ratio"] * target.peer_rate,
        target=None if target is None else target.full,
    )
    if target is None:
        finding = Finding(_("There is no target for the {card} yet.").format(card=card.name))
        return Assessment(Outcome.NOT_ASSESSED, (finding,), (figures,))
    return decide(figures, target)


def decide(figures: Figures, target: targets.Target) -> Assessment:
    """The tier that is reached for sure. A tier that lies inside the ratio's interval can't be decided."""
    if figures.achieved > target.peak:
        finding = Finding(
            _("{figure:.0f} {unit} is more than the card can do ({peak:.0f}): the work was not done.").format(
                figure=figures.achieved, unit=figures.unit, peak=target.peak
            )
        )
        return Assessment(Outcome.FAILED, (finding,), (figures,))
    low, high = figures.ratio_low * target.peer_rate, figures.ratio_high * target.peer_rate
    reached = [tier for tier in target.tiers if low >= tier.at]
    possible = [tier for tier in target.tiers if high >= tier.at]
    if reached != possible:
        finding = Finding(
            _(
                "Too noisy to say: between {low:.0f} and {high:.0f} {unit}, and a threshold lies in between."
            ).format(low=low, high=high, unit=figures.unit),
            _("Run it again, with nothing else on the card."),
        )
        return Assessment(Outcome.INCONCLUSIVE, (finding,), (figures,))
    if not reached:
        finding = Finding(
            _("{figure:.0f} {unit}; points begin at {first:.0f}.").format(
                figure=figures.decided, unit=figures.unit, first=target.tiers[0].at
            )
        )
        return Assessment(Outcome.FAILED, (finding,), (figures,))
    share = reached[-1].share
    findings = ()
    if share < 1.0:
        text = _("{figure:.0f} {unit} earns {share:.0%} of the points; {full:.0f} earns all.").format(
            figure=figures.decided, unit=figures.unit, share=share, full=target.full
        )
        findings = (Finding(text),)
    return Assessment(Outcome.PASSED, findings, (figures,), share)

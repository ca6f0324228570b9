"""Measures captured kernels on the card beside every peer: for tables and charts, never for points.

Kernels are admitted and compiled as for a judgement; each is then timed in a disposable process of its own, so
that one which breaks costs only its own figure.
"""

import contextlib
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from grader.admit import Admitted
from grader.capture.format import Capture
from grader.catalog import Group, Kernel, Lab, Shape, at_defaults
from grader.gpu import compiler, hardware, roofs, unfit
from grader.gpu.architectures import architecture
from grader.gpu.disposable import waiting_threads
from grader.gpu.hardware import Card
from grader.gpu.state import State
from grader.judge import on_card, tasks
from grader.judge.speed import unquiet
from grader.judge.submission import Submission
from grader.judge.task import Task
from grader.messages import _, progress
from grader.verdict import Finding, JudgeFailed, Unusable
from grader.verdict.bench import Bench, CardState, Estimate, Measurement, Peer, Row, Speed, Trouble

SECONDS = 10.0  # of timing for each work, at most
AT_ONCE = 2  # processes: one starts while the other has the card, whose lock lets in one at a time
SEED = "bench"
MODULE = "grader.judge.bench_worker"

AskedShape = str | Mapping[str, int]
"""A shape of a lab by its name, or sizes of one's own: all that a kernel has, each from 1 on."""


@dataclass(frozen=True)
class _Job:
    """One kernel at one shape."""

    submission: Submission
    lab: Lab
    task: Task
    shape: Shape

    @property
    def key(self) -> str:
        return f"{self.lab.id} {self.task.kernel} {self.shape.name}"


def must_have_card() -> Card:
    """The card that measures. Raises Unavailable, with the reason, if there is none."""
    return unfit.needed(_("There is no GPU here that could measure."))


def chosen(lab: Lab, shapes: Sequence[AskedShape]) -> Lab:
    """The lab with the shapes that are asked for and nothing else; if none is, with those that are timed.

    Kernels that have none of them are left out. Raises Unusable if no kernel is left.
    """
    found = [(at_defaults(kernel), _wanted(kernel, shapes)) for kernel in lab.kernels]
    kernels = tuple(replace(kernel, shapes=shapes) for kernel, shapes in found if shapes)
    if not kernels:
        known = ", ".join(f"'{shape.name}'" for kernel in lab.kernels for shape in kernel.shapes)
        raise Unusable(
            _("{lab} has no shape {asked}. Its shapes are: {known}.").format(
                lab=lab.id, asked=_told_shapes(shapes), known=known
            )
        )
    return replace(lab, kernels=kernels)


def having(labs: Sequence[Lab], shapes: Sequence[AskedShape]) -> list[Lab]:
    """The labs that have a shape that is asked for; if none is, one that is timed. Raises Unusable if none has."""
    found = [lab for lab in labs if any(_wanted(kernel, shapes) for kernel in lab.kernels)]
    if not found:
        raise Unusable(
            _("No lab has a shape {asked}. Name a lab, too, and its shapes are told.").format(
                asked=_told_shapes(shapes)
            )
        )
    return found


def _wanted(kernel: Kernel, shapes: Sequence[AskedShape]) -> tuple[Shape, ...]:
    if not shapes:
        return kernel.group(Group.TIMED)
    named = [shape for shape in kernel.shapes if shape.name in shapes]
    own = [
        Shape(_named(asked), dict(asked), Group.TIMED)
        for asked in shapes
        if not isinstance(asked, str)
        and set(asked) == set(kernel.shapes[0].sizes)
        and all(size >= 1 for size in asked.values())
    ]
    return (*named, *own)


def _named(asked: AskedShape) -> str:
    return asked if isinstance(asked, str) else ",".join(f"{name}={size}" for name, size in asked.items())


def _told_shapes(shapes: Sequence[AskedShape]) -> str:
    return _(" or ").join(f"'{_named(shape)}'" for shape in shapes)


def run(works: Sequence[tuple[Lab, Capture]], card: Card, source: str, seconds: float = SECONDS) -> Bench:
    """Measures every kernel of each lab at every shape that it has there. ``source`` says where they are from."""
    rows: dict[str, Row] = {}
    jobs: list[_Job] = []
    admitted: dict[str, Admitted] = {}
    for job in _jobs(works, card):
        found = job.submission.admitted(job.task.kernel, job.shape)
        rows[job.key] = _row(job, Trouble.FAILED, found)
        if isinstance(found, Admitted):
            jobs.append(job)
            admitted[job.key] = found
    libraries = _compile(jobs, admitted, card, rows)
    compiled = [job for job in jobs if job.key in libraries]
    with waiting_threads(AT_ONCE) as pool:
        measured = pool.map(lambda job: _measured_or_ours(job, libraries[job.key], card, seconds), compiled)
        rows |= {job.key: row for job, row in zip(compiled, measured, strict=True)}
    needed = [tasks.find(row.lab, row.kernel).ceiling for row in rows.values()]
    return Bench(
        card.name,
        datetime.now(UTC).isoformat(timespec="seconds"),
        source,
        tuple(rows.values()),
        roofs.of_card(card.name, needed),
        versions(),
    )


def _jobs(works: Sequence[tuple[Lab, Capture]], card: Card) -> list[_Job]:
    return [
        _Job(submission, lab, tasks.find(lab.id, kernel.name), shape)
        for lab, capture in works
        for submission in (Submission(capture, lab, card, SEED),)
        for kernel in lab.kernels
        for shape in kernel.shapes
    ]


def _compile(
    jobs: Sequence[_Job], admitted: Mapping[str, Admitted], card: Card, rows: dict[str, Row]
) -> dict[str, str]:
    """The libraries by job, compiled side by side; what can't be compiled becomes the trouble of its row."""
    arch = architecture(card.capability)
    sources = {key: compiler.Source(found.json, arch, found.options) for key, found in admitted.items()}
    if sources:
        progress.say(_("Compiling {count} kernels.").format(count=len(sources)))
    of_key = {job.key: job for job in jobs}
    libraries = {}
    for key, built in compiler.build_all(sources):
        if isinstance(built, compiler.Built):
            libraries[key] = str(built.library)
        else:
            job = of_key[key]
            finding = on_card.uncompilable(built.text, admitted[key], job.submission.locate)
            rows[key] = _row(job, Trouble.FAILED, finding)
    return libraries


def _row(job: _Job, trouble: Trouble | None, finding: Finding | Admitted | None, measured=None) -> Row:
    work = job.task.work(job.shape)
    return Row(
        lab=job.lab.id,
        kernel=job.task.kernel,
        shape=job.shape.name,
        sizes=str(job.shape),
        unit=job.task.unit,
        bytes=work.bytes,
        operations=work.operations,
        intensity=work.operations / work.bytes,
        measurement=measured,
        trouble=trouble,
        finding=finding if isinstance(finding, Finding) else None,
    )


def _measured_or_ours(job: _Job, library: str, card: Card, seconds: float) -> Row:
    """A fault of ours costs the row that it is met in: those that are finished took minutes of a card's time."""
    try:
        return _measure(job, library, card, seconds)
    except JudgeFailed as error:
        message = _("The measurement itself failed. That is our fault. Please report this:")
        return _row(job, Trouble.OURS, Finding(message, evidence=tuple(str(error).splitlines()[-15:])))


def _measure(job: _Job, library: str, card: Card, seconds: float) -> Row:
    """In a process of its own."""
    session = on_card.Session()
    told: list[dict[str, Any]] = []
    names = ", ".join(peer.name for peer in job.task.peers)

    def read(line: dict[str, Any]) -> None:
        if "measured" in line or "problem" in line:
            told.append(line)
        elif line.get("phase") == "timing":
            session.phase = "timing"
            progress.say(
                _("Timing {kernel} at {shape} beside {peers}.").format(
                    kernel=job.task.kernel, shape=job.shape, peers=names
                )
            )
        else:
            on_card.read(line, worker.folder, session)

    with on_card.start_worker(card, MODULE) as worker:
        progress.say(_("Preparing {kernel} at {shape}.").format(kernel=job.task.kernel, shape=job.shape))
        on_card.end(session, worker.run(_order(job, library, card, seconds), read))
    return _told(job, card, session, told)


def _order(job: _Job, library: str, card: Card, seconds: float) -> dict[str, Any]:
    return {
        "lab": job.lab.id,
        "kernel": job.task.kernel,
        "shape": job.shape.name,
        "sizes": job.shape.sizes,
        "group": job.shape.group,
        "library": library,
        "seed": SEED,
        "uuid": card.uuid,
        "seconds": seconds,
    }


def _told(job: _Job, card: Card, session: on_card.Session, told: Sequence[dict[str, Any]]) -> Row:
    """The row that a worker's report makes."""
    for line in told:
        match line:
            case {"problem": dict(found), "ran_wrong": bool(ran)}:
                return _row(job, Trouble.WRONG if ran else Trouble.FAILED, on_card.finding_of(found))
    if session.ended is not None:
        return _row(job, Trouble.FAILED, session.ended)
    lacking = session.lacking_for(job.shape)
    if lacking is not None:
        return _row(job, Trouble.NOT_MEASURED, lacking)
    if not told:
        raise JudgeFailed(f"the worker ended without a word on {job.key}")
    return _row(job, None, None, _measurement(job, card, told[-1]["measured"], told[-1]["state"]))


def _measurement(job: _Job, card: Card, measured: Mapping[str, Any], state: Mapping[str, Any]) -> Measurement:
    limits = roofs.limits(card.name, job.task.ceiling)

    def speed(launch: int) -> Speed:
        ms = Estimate(**measured["ms"][launch])
        rate = job.task.rate(job.shape, ms.value)
        parts = (None if limit is None else rate / limit for limit in (limits.ceiling, limits.peak))
        return Speed(ms, rate, *parts)

    def peer(row: Mapping[str, Any]) -> Peer:
        launch = row["launch"]
        if launch is None:
            return Peer(row["name"], None, None, row["note"])
        return Peer(row["name"], speed(launch), Estimate(**measured["ratios"][launch]), row["note"])

    return Measurement(
        kernel=speed(0),
        peers=tuple(peer(row) for row in measured["peers"]),
        rounds=measured["rounds"],
        clock=measured["clock"],
        overhead_ms=measured["overhead_ms"],
        host_ms=measured["host_ms"],
        disturbed=measured["disturbed"],
        state=CardState(
            sm_mhz=tuple(state["sm_mhz"]),
            celsius=tuple(state["celsius"]),
            watts=state["watts"],
            slowed=tuple(state["slowed"]),
            others=tuple(state["others"]),
            unknown=tuple(state["unknown"]),
        ),
        warnings=unquiet(measured, State(**state)),
        notes=tuple(measured["notes"]),
    )


def versions() -> dict[str, str]:
    """Of what measures: driver, nvcc, Python and packages, as far as they are there."""
    gpu = hardware.look()
    found = {"python": platform.python_version()}
    for package in ("torch", "tilelang"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # it may lie on a path, uninstalled
            found[package] = importlib.metadata.version(package)
    if gpu.driver is not None and gpu.driver.version:
        found["driver"] = gpu.driver.version
    if gpu.compiler is not None and gpu.compiler.version is not None:
        found["nvcc"] = ".".join(map(str, gpu.compiler.version))
    return found

"""A kernel under NVIDIA's compute-sanitizer, on request, and what it finds in the student's terms.

Each tool looks at each untimed shape in a process of its own (``sanitize_worker``): the lines of a log are those
of one generated source. Which statement of the student's such a line came from is told by TileLang, which can
write the student's line numbers between the lines that it generates, and by the buffers that the line touches.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from grader.admit import Admitted
from grader.capture.format import Capture
from grader.catalog import Group, Kernel, Lab, Shape, at_schedules
from grader.gpu import compiler, lock, sanitizer, toolchain, unfit
from grader.gpu.architectures import ARCHITECTURES, architecture
from grader.gpu.disposable import usual_jobs, waiting_threads
from grader.gpu.generated import Generated
from grader.gpu.hardware import Card
from grader.gpu.lowering import Job, Lowered, lower_all
from grader.gpu.sanitizer import TOOLS, Kind, Log
from grader.judge.on_card import uncompilable
from grader.judge.sanitizer_words import about, finding_of
from grader.judge.submission import Submission
from grader.messages import _, progress
from grader.verdict import Finding, JudgeFailed, Unavailable, Unusable
from grader.verdict.sanitized import Sanitized, ToolRun

SECONDS = 180.0  # for a tool at a shape: the sanitizer makes a kernel up to some hundred times slower
AT_ONCE = min(8, 2 * usual_jobs())  # tools that run at the same time: they spend most of it in starting

LINE_MARKS = {"tl.emit_line_directives": True}


def must_have() -> tuple[str, Card]:
    """The sanitizer's path, and the card. Raises Unavailable if one of them is missing."""
    card = unfit.needed(
        _("There is no GPU here for compute-sanitizer to watch."),
        _("The simulator looks for the same faults: --device sim."),
    )
    path = sanitizer.find()
    if path is None:
        message = _("NVIDIA's compute-sanitizer is not here.")
        advice = _(
            "It is a part of the CUDA toolkit (package cuda-sanitizer). Install it, and put it on the PATH or set "
            "CUDA_HOME. All else works without it."
        )
        raise Unavailable(Finding(message, advice))
    return path, card


def sanitize(capture: Capture, lab: Lab, seed: str = "local") -> tuple[Sanitized, ...]:
    """What the sanitizer says of each of the lab's kernels. Raises Unavailable, Unusable and JudgeFailed."""
    path, card = must_have()
    lab = at_schedules(lab, capture.plain_values)
    return tuple(_Kernel(capture, lab, kernel, card, path).sanitize(seed) for kernel in lab.kernels)


# Running


@dataclass(frozen=True)
class Watched:
    """How one run under a tool ended: its log, the program's exit status (None: too late) and last words."""

    log: str
    status: int | None
    console: str


def watch(
    path: str, lab: Lab, kernel: Kernel, admitted: Mapping[str, Admitted], card: Card, seed: str, folder: Path
) -> tuple[dict[str, str], dict[tuple[str, str], Watched]]:
    """Compiles a kernel, and runs it on the card at each shape under each tool; ``admitted`` is by shapes' names.

    Gives what the compiler said, by the names of the shapes where it refused, and the runs at the others, by shape
    and tool. ``folder`` is for the files of these processes.
    """
    refused, libraries = _compiled(admitted, architecture(card.capability), folder)
    rows = {
        name: {"sizes": kernel.shape(name).sizes, "group": kernel.shape(name).group, "library": str(library)}
        for name, library in libraries.items()
    }
    job = {"lab": lab.id, "kernel": kernel.name, "seed": seed, "shapes": rows}
    (folder / "job.json").write_text(json.dumps(job))
    # Each tensor is an allocation of its own: the tool then knows where it ends.
    environment = os.environ | {"TMPDIR": str(folder), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    environment |= card.alone
    command = [sys.executable, "-P", "-m", "grader.judge.sanitize_worker", str(folder)]
    runs = [(name, tool) for name in libraries for tool in TOOLS]

    def one(run: tuple[str, str]) -> Watched:
        name, tool = run
        log = folder / f"{name.replace(' ', '-')}-{tool}.log"
        status, console = sanitizer.run(
            path, tool, [*command, name], log, environment=environment, seconds=SECONDS
        )
        return Watched(log.read_text(errors="replace") if log.exists() else "", status, console)

    # The tools don't mind one another, but a measurement would mind them.
    busy = _("The card is busy with another measurement; waiting for it.")
    with lock.held(lock.path_for(card.uuid), lambda: progress.say(busy)), waiting_threads(AT_ONCE) as pool:
        return refused, dict(zip(runs, pool.map(one, runs), strict=True))


def _compiled(admitted: Mapping[str, Admitted], arch: str, folder: Path) -> tuple[dict[str, str], dict[str, Path]]:
    """What the compiler said at the shapes where it refused, and the libraries at the others.

    nvcc gets the source as TileLang generates it. The faster ways put other lines before it, so that a log's line
    numbers would not be those of the source.
    """
    sources = {name: compiler.Source(found.json, arch, found.options) for name, found in admitted.items()}
    refused: dict[str, str] = {}
    libraries: dict[str, Path] = {}
    for name, result in compiler.build_all(sources, into=folder / "libraries", way=toolchain.NVCC):
        if isinstance(result, compiler.Built):
            libraries[name] = result.library
        else:
            refused[name] = result.text
    return refused, libraries


# What it says


class _Kernel:
    """One kernel of a submission."""

    def __init__(self, capture: Capture, lab: Lab, kernel: Kernel, card: Card, path: str) -> None:
        self.lab, self.kernel, self.card, self.path = lab, kernel, card, path
        self.submission = Submission(capture, lab, None, "")

    def sanitize(self, seed: str) -> Sanitized:
        shapes = [shape for shape in self.kernel.shapes if shape.group is not Group.TIMED]
        admitted = {shape.name: self._admitted(shape) for shape in shapes}
        with tempfile.TemporaryDirectory(prefix="tilelab-sanitize-") as folder:
            refused, watched = watch(self.path, self.lab, self.kernel, admitted, self.card, seed, Path(folder))
        for name, text in refused.items():
            raise Unusable(uncompilable(text, admitted[name], self.submission.locate))
        logs = {(name, tool): sanitizer.parse(seen.log, tool) for (name, tool), seen in watched.items()}
        for run, log in logs.items():
            _must_be_whole(run, log, watched[run])
        logs = _without_consequences(logs)
        sources = self._sources(admitted, [name for (name, _tool), log in logs.items() if log.reports])
        tools = []
        for tool in TOOLS:
            of_tool = {name: log for (name, which), log in logs.items() if which == tool}
            findings = [*self._findings(of_tool, sources), *self._late(tool, of_tool)]
            tools.append(ToolRun(tool, about(tool, sanitizer.sees_tiles(self.path)), tuple(findings)))
        return Sanitized(self.lab.id, self.kernel.name, tuple(map(str, shapes)), tuple(tools))

    def _admitted(self, shape: Shape) -> Admitted:
        found = self.submission.admitted(self.kernel.name, shape)
        if isinstance(found, Finding):
            raise Unusable(found)
        return found

    def _sources(self, admitted: Mapping[str, Admitted], names: list[str]) -> dict[str, Generated]:
        """The generated source at some shapes, as far as TileLang gives it."""
        wanted = list(dict.fromkeys(names))
        arch = architecture(self.card.capability)
        jobs = [Job(admitted[name].json, arch, admitted[name].options | LINE_MARKS) for name in wanted]
        # Of an architecture that is not known here there are findings without lines.
        lowered = lower_all(jobs) if jobs and arch in ARCHITECTURES else []
        return {
            name: Generated(found.source, admitted[name].kernel)
            for name, found in zip(wanted, lowered, strict=False)
            if isinstance(found, Lowered)
        }

    def _findings(self, logs: Mapping[str, Log], sources: Mapping[str, Generated]) -> Iterator[Finding]:
        """Each fault once, with the shapes where it was seen."""
        seen: dict[object, tuple[Finding, list[str]]] = {}
        for name, log in logs.items():
            for report in log.reports:
                finding = finding_of(report, sources.get(name), self.submission.locate)
                key = (report.kind, report.space, finding.where, finding.advice)
                seen.setdefault(key, (finding, []))[1].append(str(self.kernel.shape(name)))
        for finding, shapes in seen.values():
            at = _("seen at {shapes}").format(shapes=_(" and ").join(dict.fromkeys(shapes)))
            yield replace(finding, evidence=(*finding.evidence, at))

    def _late(self, tool: str, logs: Mapping[str, Log]) -> Iterator[Finding]:
        late = [str(self.kernel.shape(name)) for name, log in logs.items() if log.errors is None]
        if late:
            text = _("{tool} did not come to an end within {seconds:.0f} s.")
            at = _("seen at {shapes}").format(shapes=_(" and ").join(late))
            yield Finding(
                text.format(tool=tool, seconds=SECONDS), _("Look for a loop that never ends."), evidence=(at,)
            )


def _without_consequences(logs: Mapping[tuple[str, str], Log]) -> dict[tuple[str, str], Log]:
    """Logs without what follows from a fault at the same shape: a failed call of CUDA's, a program that gave up.

    A kernel that ends the program does so under every tool, also under those that have nothing to say of it.
    """
    explained = {
        name for (name, _tool), log in logs.items() if any(report.kind is not Kind.OTHER for report in log.reports)
    }
    return {
        (name, tool): replace(
            log, reports=tuple(r for r in log.reports if r.kind is not Kind.OTHER or name not in explained)
        )
        for (name, tool), log in logs.items()
    }


def _must_be_whole(run: tuple[str, str], log: Log, seen: Watched) -> None:
    """A log has an end unless the tool was too late. Without a report, the program has ended well."""
    if seen.status is None or (log.errors is not None and (log.reports or seen.status == 0)):
        return
    name, tool = run
    raise JudgeFailed(f"{tool} at {name} ended with status {seen.status}:\n{seen.log[-2000:]}\n{seen.console}")

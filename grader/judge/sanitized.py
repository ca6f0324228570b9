"""A kernel under NVIDIA's compute-sanitizer, on request, and what it finds in the student's terms.

Each tool looks at each untimed shape in a process of its own (``sanitize_worker``): the lines of a log are those
of one generated source. Which statement of the student's such a line came from is told by TileLang, which can
write the student's line numbers between the lines that it generates, and by the buffers that the line touches.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from grader.admit import Admitted
from grader.capture.format import Capture
from grader.catalog import Group, Kernel, Lab, Shape
from grader.gpu import sanitizer
from grader.gpu.compile_errors import explain_text
from grader.gpu.generated import Generated
from grader.gpu.hardware import Card
from grader.gpu.lowering import Job, Lowered, lower_all
from grader.gpu.sanitizer import TOOLS, Kind, Log, Report
from grader.ir.nodes import Line
from grader.judge.submission import Submission
from grader.messages import _
from grader.verdict import Finding, JudgeFailed, Location, Unavailable, Unusable
from grader.verdict.sanitized import Sanitized, ToolRun

COMPILE_SECONDS = 300.0
SECONDS = 180.0  # for a tool at a shape: the sanitizer makes a kernel up to some hundred times slower
AT_ONCE = 4  # tools that run at the same time: they spend most of it in starting

LINE_MARKS = {"tl.emit_line_directives": True}


def must_have() -> str:
    """The sanitizer's path. Raises Unavailable if it is not installed."""
    path = sanitizer.find()
    if path is None:
        raise Unavailable(
            Finding(
                _("NVIDIA's compute-sanitizer is not here."),
                _(
                    "It is a part of the CUDA toolkit (package cuda-sanitizer). Install it, and put it on the "
                    "PATH or set CUDA_HOME. All else works without it."
                ),
            )
        )
    return path


def sanitize(capture: Capture, lab: Lab, card: Card, seed: str) -> tuple[Sanitized, ...]:
    """What the sanitizer says of each of the lab's kernels. Raises Unavailable, Unusable and JudgeFailed."""
    path = must_have()
    return tuple(_Kernel(capture, lab, kernel, card, path).sanitize(seed) for kernel in lab.kernels)


@dataclass(frozen=True)
class Watched:
    """How one run under a tool ended: its log, the program's exit status (None: too late) and last words."""

    log: str
    status: int | None
    console: str


def watch(
    path: str, lab: Lab, kernel: Kernel, admitted: Mapping[Shape, Admitted], seed: str, folder: Path
) -> tuple[dict[str, str], dict[tuple[Shape, str], Watched]]:
    """Compiles a kernel, and runs it at each shape under each tool.

    Gives what the compiler said at the shapes where it refused, and all runs at the others. ``folder`` is for the
    files of these processes.
    """
    rows = [
        {"name": shape.name, "sizes": shape.sizes, "group": shape.group}
        | {"json": found.json, "options": found.options}
        for shape, found in admitted.items()
    ]
    job = {"lab": lab.id, "kernel": kernel.name, "seed": seed, "shapes": rows}
    (folder / "job.json").write_text(json.dumps(job))
    environment = os.environ | {
        "TILELANG_CACHE_DIR": str(folder / "cache"),
        "TMPDIR": str(folder),
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",  # each tensor is an allocation: the tool knows where it ends
    }
    command = [sys.executable, "-P", "-m", "grader.judge.sanitize_worker", str(folder)]
    refused = _compile([*command, ""], environment, folder)
    runs = [(shape, tool) for shape in admitted if shape.name not in refused for tool in TOOLS]

    def one(run: tuple[Shape, str]) -> Watched:
        shape, tool = run
        log = folder / f"{shape.name.replace(' ', '-')}-{tool}.log"
        status, console = sanitizer.run(
            path, tool, [*command, shape.name], log, environment=environment, seconds=SECONDS
        )
        return Watched(log.read_text(errors="replace") if log.exists() else "", status, console)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return refused, dict(zip(runs, pool.map(one, runs), strict=True))


def _compile(command: list[str], environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What the compiler said at the shapes where it refused, by name."""
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unusable(
            Finding(_("The kernel did not compile within {n:.0f} s.").format(n=COMPILE_SECONDS))
        ) from None
    if done.returncode != 0:
        raise JudgeFailed(f"the worker ended with status {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads((folder / "uncompilable.json").read_text())


class _Kernel:
    """One kernel of a submission."""

    def __init__(self, capture: Capture, lab: Lab, kernel: Kernel, card: Card, path: str) -> None:
        self.capture, self.lab, self.kernel, self.path = capture, lab, kernel, path
        major, minor = card.capability
        self.arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
        self.submission = Submission(capture, lab, None, "")

    def sanitize(self, seed: str) -> Sanitized:
        shapes = [shape for shape in self.kernel.shapes if shape.group is not Group.TIMED]
        admitted = {shape: self._admitted(shape) for shape in shapes}
        with tempfile.TemporaryDirectory(prefix="tilelab-sanitize-") as folder:
            refused, watched = watch(self.path, self.lab, self.kernel, admitted, seed, Path(folder))
        for shape, text in ((shape, refused[shape.name]) for shape in shapes if shape.name in refused):
            explained = explain_text(text, admitted[shape].kernel)
            raise Unusable(Finding(explained.message, explained.advice, self._first(explained.lines)))
        logs = {run: sanitizer.parse(seen.log, run[1]) for run, seen in watched.items()}
        sources = self._sources(admitted, logs)
        tools = []
        for tool in TOOLS:
            of_tool = {shape: log for (shape, name), log in logs.items() if name == tool}
            findings = list(self._findings(admitted, of_tool, sources))
            for shape in of_tool:
                findings += self._unfinished(tool, shape, logs[shape, tool], watched[shape, tool])
            tools.append(ToolRun(tool, about(tool), tuple(findings)))
        return Sanitized(self.lab.id, self.kernel.name, tuple(map(str, shapes)), tuple(tools))

    def _admitted(self, shape: Shape) -> Admitted:
        found = self.submission.admitted(self.kernel.name, shape)
        if isinstance(found, Finding):
            raise Unusable(found)
        return found

    def _sources(
        self, admitted: Mapping[Shape, Admitted], logs: Mapping[tuple[Shape, str], Log]
    ) -> dict[Shape, Generated]:
        """The generated source at the shapes with reports, as far as TileLang gives it."""
        shapes = list(dict.fromkeys(shape for (shape, _tool), log in logs.items() if log.reports))
        if not shapes:
            return {}
        jobs = [Job(admitted[shape].json, self.arch, admitted[shape].options | LINE_MARKS) for shape in shapes]
        return {
            shape: Generated(found.source, admitted[shape].kernel)
            for shape, found in zip(shapes, lower_all(jobs), strict=True)
            if isinstance(found, Lowered)
        }

    def _findings(
        self, admitted: Mapping[Shape, Admitted], logs: Mapping[Shape, Log], sources: Mapping[Shape, Generated]
    ) -> Iterator[Finding]:
        """Each fault once, with the shapes where it was seen."""
        seen: dict[object, tuple[Finding, list[Shape]]] = {}
        for shape, log in logs.items():
            source = sources.get(shape)
            for report in log.reports:
                finding = finding_of(report, source, self._locate)
                key = (report.kind, report.space, finding.where, finding.advice)
                seen.setdefault(key, (finding, []))[1].append(shape)
        for finding, shapes in seen.values():
            places = dict.fromkeys(str(shape) for shape in shapes)
            at = _("seen at {shapes}").format(shapes=_(" and ").join(places))
            yield Finding(finding.message, finding.advice, finding.where, (*finding.evidence, at))

    def _unfinished(self, tool: str, shape: Shape, log: Log, seen: Watched) -> list[Finding]:
        if log.errors is not None and (log.reports or seen.status == 0):
            return []
        if seen.status is None:
            message = _("{tool} did not come to an end within {seconds:.0f} s ({shape}).")
            return [Finding(message.format(tool=tool, seconds=SECONDS, shape=shape))]
        raise JudgeFailed(
            f"{tool} at {shape} ended with status {seen.status}:\n{seen.log[-2000:]}\n{seen.console}"
        )

    def _locate(self, line: Line | None) -> Location | None:
        return None if line is None else self.capture.locate(line.file, line.number)

    def _first(self, lines: Iterable[Line]) -> Location | None:
        return next((place for line in lines if (place := self._locate(line)) is not None), None)


def about(tool: str) -> str:
    """What a tool looks for."""
    return {
        "memcheck": _("accesses outside of a tensor or tile, or misaligned"),
        "racecheck": _("threads of a block that touch one element of a shared tile at once"),
        "initcheck": _("reads of what nothing has written"),
        "synccheck": _("barriers that not all threads reach"),
    }[tool]


def finding_of(report: Report, source: Generated | None, locate) -> Finding:
    """A report in the student's terms; ``source`` is the generated source that its lines are of."""
    sites = [source.statements(place.line, place.access) if source else () for place in report.places]
    lines = list(dict.fromkeys(site.line for found in sites for site in found if site.line is not None))
    places = [place for line in lines if (place := locate(line)) is not None]
    names = [source.touched(place.line) if source else "" for place in report.places]
    message, advice = _words(report, next(filter(None, names), ""))
    evidence = [_counted(report)]
    if source is not None:
        evidence += [_("generated: {text}").format(text=text) for text in _texts(report, source)]
    evidence += [_("or {place}: {text}").format(place=place, text=place.text) for place in places[1:]]
    if report.kind is Kind.RACE and places[1:]:
        evidence = [
            item.replace(_("or "), _("and "), 1) if item.startswith(_("or ")) else item for item in evidence
        ]
    return Finding(message, advice, places[0] if places else None, tuple(filter(None, evidence)))


def _texts(report: Report, source: Generated) -> list[str]:
    texts = [source.text(place.line) for place in report.places]
    return list(dict.fromkeys(text[:120] for text in texts if text))


def _words(report: Report, name: str) -> tuple[str, str]:
    """Message and advice."""
    space = {"global": _("global memory"), "shared": _("shared memory"), "local": _("local memory")}.get(
        report.space, _("memory")
    )
    what = f"{name} ({space})" if name else space
    match report.kind:
        case Kind.OUT_OF_BOUNDS | Kind.MISALIGNED:
            verb = {"read": _("reads"), "write": _("writes")}.get(report.places[0].access, _("updates"))
            if report.kind is Kind.MISALIGNED:
                return (
                    _(
                        "A thread {verb} {size} bytes of {what} at an address that is no multiple of {size}."
                    ).format(verb=verb, size=report.size, what=what),
                    _("A vector begins at a multiple of its own size: look at the index that it starts from."),
                )
            return (
                _("A thread {verb} {size} bytes outside of {what}.").format(
                    verb=verb, size=report.size, what=what
                ),
                _("Guard the access ('if index < size:'), or make the tile as large as what is put into it."),
            )
        case Kind.RACE:
            accesses = _(" and ").join(
                dict.fromkeys(
                    {"read": _("a read"), "write": _("a write")}.get(p.access, _("an update"))
                    for p in report.places
                )
            )
            return (
                _("Threads of one block touch the same elements of {what} at once: {accesses}.").format(
                    what=what, accesses=accesses
                ),
                _("Let each iteration write elements of its own, or put T.sync_threads() between the two."),
            )
        case Kind.UNINITIALISED:
            return (
                _("A thread reads {size} bytes of {what} that nothing has written.").format(
                    size=report.size, what=what
                ),
                _("An accumulator needs T.clear before the loop; a tile needs T.copy before it is used."),
            )
        case Kind.UNWRITTEN:
            return (
                _("When the kernel has ended, a part of its output was never written."),
                _("Do the blocks cover the whole output? Does a guard leave out too much?"),
            )
        case Kind.BARRIER:
            return (
                _("A barrier is not reached by all threads that it waits for."),
                _("Put T.sync_threads() where all threads of the block come by: not inside of an 'if'."),
            )
    return _("The tool says: {words}").format(words=report.headline[:300]), ""


def _counted(report: Report) -> str:
    if report.kind is Kind.UNWRITTEN:
        return ""
    if report.kind is Kind.RACE:
        return _("{count} pairs of accesses").format(count=report.count)
    place = ""
    if report.thread:
        place = _("first thread {thread} of block {block}").format(
            thread=_tuple(report.thread), block=_tuple(report.block)
        )
    count = _("{count} times, in {blocks} blocks").format(count=report.count, blocks=report.blocks)
    return f"{count}; {place}" if place else count


def _tuple(numbers: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"

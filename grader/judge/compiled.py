"""Does a submission's kernel compile for an architecture, and to which instructions? Answered without a GPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from grader import ir
from grader.admit import Admitted, Refused, admit
from grader.capture.format import Capture
from grader.catalog import Kernel, Shape
from grader.gpu import compile_errors
from grader.gpu.architectures import ARCHITECTURES, Architecture, Misfit, misfits, occupancy
from grader.gpu.compile_errors import Explained
from grader.gpu.landmarks import accesses, landmarks, renamed
from grader.gpu.lowering import Job, Lowered, NotLowered, lower_all
from grader.gpu.resources import NoCompiler, NotCompiled, Resources, compile_source
from grader.gpu.sites import sites
from grader.ir.nodes import Line
from grader.messages import _
from grader.verdict import Finding, Location, Unusable
from grader.verdict.compilation import Compilation, GlobalAccess, MachineCode

Locate = Callable[[Line | None], Location | None]

TENSOR_CORES = ("mma", "wgmma", "tcgen05")

MAX_LINES = 3


@dataclass(frozen=True)
class Candidate:
    """A kernel to compile: its name and shape for the reader, and its admitted form."""

    name: str
    shape: str
    kernel: ir.Kernel
    json: str
    options: Mapping[str, bool | int]


def compile_capture(
    capture: Capture, kernel: Kernel, shapes: Sequence[Shape], architectures: Sequence[str]
) -> tuple[Compilation, ...]:
    """The captured ``kernel`` at each shape for each architecture.

    Raises Unusable if there is no kernel to compile: it was not traced or is not admitted.
    """

    def locate(line: Line | None) -> Location | None:
        return None if line is None else capture.locate(line.file, line.number)

    candidates = [_candidate(capture, kernel, shape, locate) for shape in shapes]
    return compile_all(candidates, architectures, locate)


def _candidate(capture: Capture, kernel: Kernel, shape: Shape, locate: Locate) -> Candidate:
    admitted = _admitted(capture, kernel, shape, locate)
    return Candidate(kernel.name, f"{shape.name} ({shape})", admitted.kernel, admitted.json, admitted.options)


def _admitted(capture: Capture, kernel: Kernel, shape: Shape, locate: Locate) -> Admitted:
    trace = capture.trace(kernel.name, shape.name)
    if trace is None:
        raise Unusable(_("'{name}' was not captured at {shape}.").format(name=kernel.name, shape=shape))
    if trace.ir is None or trace.error is not None:
        error = trace.error
        why = f"{error.kind}: {error.message}" if error else _("it gave no kernel")
        where = capture.locate(error.file, error.line) if error else None
        message = _("'{name}' can't be traced at {shape}: {why}").format(name=kernel.name, shape=shape, why=why)
        raise Unusable(Finding(message, _("Mend this first; 'tilelab check' says more."), where))
    try:
        return admit(trace.ir, kernel, shape, trace.options)
    except Refused as error:
        message = _("Refused: {why}.").format(why=error.message)
        raise Unusable(Finding(message, error.advice, locate(error.line))) from None


def compile_all(
    candidates: Sequence[Candidate], architectures: Sequence[str], locate: Locate, *, machine_code: bool = True
) -> tuple[Compilation, ...]:
    """Every candidate for every architecture; TileLang lowers all in one process, nvcc compiles what comes out.

    Without ``machine_code``, nvcc is left alone: the CUDA source is all that is asked for.
    """
    wanted = [(candidate, arch) for candidate in candidates for arch in architectures]
    jobs = [Job(candidate.json, arch, candidate.options) for candidate, arch in wanted]
    return tuple(
        _refused(candidate, result, locate)
        if isinstance(result, NotLowered)
        else _compiled(candidate, result, locate, machine_code)
        for (candidate, _arch), result in zip(wanted, lower_all(jobs), strict=True)
    )


def _refused(candidate: Candidate, error: NotLowered, locate: Locate) -> Compilation:
    explained = compile_errors.explain(error, candidate.kernel, candidate.options)
    findings = (told(explained, locate),)
    return Compilation(
        candidate.name, candidate.shape, error.arch, compiles=False, seconds=error.seconds, findings=findings
    )


def told(explained: Explained, locate: Locate) -> Finding:
    """An explanation with its first line as the place, and the others as evidence."""
    places = [place for place in map(locate, explained.lines[:MAX_LINES]) if place is not None]
    evidence = [_("it may also be {place}: {text}").format(place=place, text=place.text) for place in places[1:]]
    if explained.known:
        evidence.append(_("the compiler's words: {words}").format(words=explained.own_words))
    return Finding(explained.message, explained.advice, places[0] if places else None, tuple(evidence))


def _compiled(candidate: Candidate, lowered: Lowered, locate: Locate, machine_code: bool) -> Compilation:
    arch = ARCHITECTURES[lowered.arch]
    fast_math = bool(candidate.options.get("tl.enable_fast_math", False))
    found = compile_source(lowered.source, lowered.arch, fast_math=fast_math) if machine_code else None
    names = {name: getattr(node, "name", name) for name, node in ir.written_names(candidate.kernel).items()}
    marks = landmarks(lowered.source)
    findings = [told(warning, locate) for warning in compile_errors.explain_warnings(lowered, candidate.kernel)]
    findings += _notes(candidate, marks)
    result = Compilation(
        candidate.name,
        candidate.shape,
        arch.name,
        compiles=True,
        seconds=lowered.seconds,
        threads=lowered.threads,
        shared=lowered.shared,
        shared_limit=arch.shared_a_block,
        landmarks=marks,
        accesses=tuple(
            GlobalAccess(access.parameter, access.writes, access.bits, access.count)
            for access in renamed(accesses(lowered.source), names)
        ),
        findings=tuple(findings),
        source=lowered.source,
    )
    match found:
        case NotCompiled(text=text, seconds=seconds):
            refusal = told(compile_errors.explain_text(text, candidate.kernel, compiler="nvcc"), locate)
            return replace(
                result, compiles=False, seconds=lowered.seconds + seconds, findings=(refusal, *findings)
            )
        case NoCompiler(why=why):
            result = replace(
                result, not_assessed=_("{why} ('tilelab doctor' says how to get one)").format(why=why)
            )
        case Resources():
            code = MachineCode(
                found.registers, found.spill_stores + found.spill_loads, found.shared, found.seconds, found.sass
            )
            shared = lowered.shared + found.shared
            result = replace(result, machine_code=code, shared=shared, findings=(*findings, *_spilled(code)))
    return _fitted(result, arch, lowered)


def _fitted(result: Compilation, arch: Architecture, lowered: Lowered) -> Compilation:
    """With what the architecture's limits make of the kernel."""
    lacking = misfits(arch, result.threads, result.shared, lowered.grid)
    if lacking:
        findings = tuple(_misfit(arch, misfit) for misfit in lacking)
        return replace(result, compiles=False, findings=(*findings, *result.findings))
    registers = result.machine_code.registers if result.machine_code else None
    held = occupancy(arch, result.threads, result.shared, registers)
    return replace(result, blocks=held.blocks, limits=held.limits, occupancy=held.share)


def _misfit(arch: Architecture, misfit: Misfit) -> Finding:
    match misfit.kind:
        case "shared memory":
            return Finding(
                _("It needs {needs:.1f} KiB of shared memory a block; {family} has {has:.0f} KiB.").format(
                    needs=misfit.needs / 1024, has=misfit.has / 1024, family=arch.family
                ),
                _("Choose smaller tiles or fewer stages: each stage has tiles of its own."),
            )
        case "threads":
            return Finding(
                _("It launches {needs} threads a block; a card has at most {has}.").format(
                    needs=misfit.needs, has=misfit.has
                ),
                _("Ask for fewer threads: a warp-specialised kernel adds some that copy."),
            )
    return Finding(
        _("It launches {needs} blocks along one axis of the grid; a card takes at most {has}.").format(
            needs=misfit.needs, has=misfit.has
        ),
        _("Put the long axis first in T.Kernel: blockIdx.x has room."),
    )


def _notes(candidate: Candidate, marks: dict[str, int]) -> list[Finding]:
    """What is right and still not what the student may think."""
    multiplies = any(site.op == "gemm" for site in sites(candidate.kernel))
    if multiplies and not any(mark in marks for mark in TENSOR_CORES):
        message = _("T.gemm does not use the tensor cores of this architecture for these dtypes.")
        return [Finding(message, _("Slow, but right. Other dtypes, or a newer architecture, use them."))]
    return []


def _spilled(code: MachineCode) -> list[Finding]:
    if not code.spills:
        return []
    message = _("It spills: {bytes} bytes a thread go through local memory, for lack of registers.")
    advice = _("Use more threads or smaller fragments: a thread then holds fewer elements.")
    return [Finding(message.format(bytes=code.spills), advice)]

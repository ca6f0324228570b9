"""Lab 08's questions: what the compiler really makes of ``scores``, and whether what was mended is tidied up."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from grader.admit import Admitted
from grader.catalog import Group
from grader.gpu import compile_errors
from grader.gpu.landmarks import landmarks, places
from grader.gpu.lowering import Lowered, NotLowered
from grader.gpu.sites import gemm_of, sites
from grader.ir import nodes
from grader.judge.submission import Submission
from grader.messages import _
from grader.verdict import Assessment, Finding, JudgeFailed, Outcome

#: The shape whose source is looked at, and what it must hold by architecture.
SHAPE = "square"
WANTED: Mapping[str, tuple[str, ...]] = {
    "sm_80": ("mma", "ldmatrix", "cp.async"),
    "sm_90a": ("wgmma", "TMA load", "mbarrier"),
}

HALF = "float16"  # of A and B, as the lab has them

#: What the answers name, and the landmarks that it may be.
KINDS = {
    "tensor_cores": ("mma", "wgmma", "tcgen05"),
    "async_copies": ("cp.async", "TMA load"),
    "matrix_loads": ("ldmatrix",),
    "barriers": ("__syncthreads", "mbarrier", "named barrier"),
}


def mended(submission: Submission) -> Assessment:
    """Is ``scores`` right, and does it become what a product of halves should become?"""
    right = submission.correct("scores", Group.TILES)
    if right.outcome is not Outcome.PASSED:
        return right
    results = _lowered(submission)
    if isinstance(results, Assessment):
        return results
    lacking, counted = [], []
    for arch, result in results.items():
        marks = landmarks(result.source)
        absent = [name for name in WANTED[arch] if name not in marks]
        counts = ", ".join(f"{name} ×{count}" for name, count in marks.items())
        if absent:
            message = _("For {arch}, the compiler's output for 'scores' holds no {names}.")
            advice = _(
                'Look with show_cuda(scores, "{shape}", arch="{arch}"): how do the tiles get there instead?'
            )
            lacking.append(
                Finding(
                    message.format(arch=arch, names=_(" and no ").join(absent)),
                    advice.format(shape=SHAPE, arch=arch),
                    evidence=(_("it holds: {counts}").format(counts=counts),),
                )
            )
        counted.append(Finding(_("{arch}: {counts}.").format(arch=arch, counts=counts)))
    lacking = lacking or _converted(submission)
    if lacking:
        return Assessment(Outcome.FAILED, tuple(lacking))
    return Assessment(Outcome.PASSED, tuple(counted))


def _converted(submission: Submission) -> list[Finding]:
    """Products of other tiles than of halves, at any shape: landmarks may come from what stands beside them."""
    for shape in submission.lab.kernel("scores").shapes:
        admitted = submission.admitted("scores", shape)
        for site in sites(admitted.kernel) if isinstance(admitted, Admitted) else ():
            product = gemm_of(site)
            kinds = {product.a.buffer.dtype, product.b.buffer.dtype} - {HALF} if product else ()
            if kinds:
                message = _("There is still a T.gemm of tiles that are {dtype}.").format(dtype=min(kinds))
                advice = _("Every product, at every shape, multiplies the halves as they are in global memory.")
                return [Finding(message, advice, submission.locate(site.line))]
    return []


def _lowered(submission: Submission) -> dict[str, Lowered] | Assessment:
    """The compiler's output by architecture, or why there is none."""
    try:
        results = submission.lowered("scores", submission.lab.kernel("scores").shape(SHAPE), tuple(WANTED))
    except JudgeFailed as error:
        message = _("TileLang's compiler could not be run here, so its output was not looked at.")
        return Assessment(Outcome.NOT_ASSESSED, (Finding(message, evidence=tuple(str(error).splitlines()[-3:])),))
    if isinstance(results, Finding):
        return Assessment(Outcome.FAILED, (results,))
    admitted = submission.admitted("scores", submission.lab.kernel("scores").shape(SHAPE))
    for result in results:
        if isinstance(result, NotLowered):
            told = compile_errors.explain(result, admitted.kernel, admitted.options)
            where = submission.locate(told.lines[0]) if told.lines else None
            return Assessment(Outcome.FAILED, (Finding(told.message, told.advice, where),))
    return {result.arch: result for result in results}


def truth(lowered: Lowered) -> dict[str, str | int]:
    """The right answers about a source. Of several landmarks of a kind, the one with the most places counts."""
    marks = landmarks(lowered.source)
    answers: dict[str, str | int] = {
        kind: max((name for name in names if name in marks), key=marks.__getitem__, default="none")
        for kind, names in KINDS.items()
    }
    answers["tensor_core_places"] = sum(marks.get(name, 0) for name in KINDS["tensor_cores"])
    answers["threads"] = lowered.threads
    found = places(lowered.source)
    first = next((place.line for place in found if place.name in KINDS["barriers"]), None)
    ahead = [place for place in found if place.name in KINDS["async_copies"]]
    answers["copies_before_barrier"] = sum(first is None or place.line < first for place in ahead)
    return answers


def named(submission: Submission, arch: str, answers: Mapping[str, Any]) -> Assessment:
    """Are the landmarks of the student's own ``scores``, mended, for ``arch`` named and counted right?"""
    return after(mended(submission), lambda: _named(submission, arch, answers))


def _named(submission: Submission, arch: str, answers: Mapping[str, Any]) -> Assessment:
    results = _lowered(submission)
    if isinstance(results, Assessment):
        return results
    right = truth(results[arch])
    wrong = [name for name in answers if answers[name] != right[name]]
    if not wrong:
        return Assessment(Outcome.PASSED)
    text = _("For {arch}, {name} is not {value}.")
    advice = _('show_cuda(scores, "{shape}", arch="{arch}") shows the source. {help}')
    return Assessment(
        Outcome.FAILED,
        tuple(
            Finding(
                text.format(arch=arch, name=name, value=answers[name]),
                advice.format(shape=SHAPE, arch=arch, help=_help()[name]),
            )
            for name in wrong
        ),
    )


def _help() -> dict[str, str]:
    return {
        "tensor_cores": _("Which landmark multiplies?"),
        "async_copies": _("Which landmark copies from global to shared memory, and goes on?"),
        "matrix_loads": _('Does anything load matrices from shared memory to registers? If not, it is "none".'),
        "barriers": _("Of the landmarks at which threads wait, take the one with the most places."),
        "tensor_core_places": _("The table counts them."),
        "threads": _("The sentence below the table says it, and so does __launch_bounds__."),
        "copies_before_barrier": _("Count the lines with cp.async above the first line with a barrier."),
    }


# What all three share


def after(first: Assessment, then: Callable[[], Assessment]) -> Assessment:
    """``then``, once the bug is gone: a kernel that still has it must earn nothing with what was right before."""
    if first.outcome is Outcome.FAILED:
        return Assessment(Outcome.FAILED, (Finding(_("This counts once the planted bug is mended.")),))
    return then() if first.outcome is Outcome.PASSED else first


def tidy(submission: Submission, name: str) -> Assessment:
    """Is the kernel clean, and is no T.print left in it?"""
    shape = submission.lab.kernel(name).shapes[0]
    found = submission.admitted(name, shape)
    if isinstance(found, Finding):
        return Assessment(Outcome.FAILED, (found,))
    lines = _prints(nodes.walk(found.kernel.body))
    if lines:
        message = _("'{name}' still holds a T.print.").format(name=name)
        advice = _("Take it out again: on a card it slows the kernel down, and prints a line for each value.")
        return Assessment(Outcome.FAILED, (Finding(message, advice, submission.locate(lines[0])),))
    return submission.clean(name)


def _prints(parts: Iterator[nodes.Expr | nodes.Stmt]) -> list[nodes.Line | None]:
    return [
        part.line for part in parts if isinstance(part, nodes.Evaluate) and isinstance(part.value, nodes.Print)
    ]

"""The CUDA source of a captured kernel, in the student's names, with its landmarks. No GPU and no nvcc needed."""

import re
from collections.abc import Mapping

from grader import ir
from grader.catalog import Shape
from grader.gpu import hardware
from grader.gpu.architectures import ARCHITECTURES, architecture
from grader.gpu.landmarks import definition, landmarks, places
from grader.gpu.sites import sites
from grader.ir import nodes
from grader.judge.compiled import Candidate, compile_all
from grader.judge.submission import Submission
from grader.messages import _
from grader.verdict import Finding, Unusable
from grader.verdict.cuda import CudaSource, Mark

Named = nodes.Buffer | nodes.Storage | nodes.Var

#: Whose source is shown where there is no card.
DEFAULT = "sm_90a"


def cuda_source(submission: Submission, name: str, shape: Shape, arch: str | None) -> CudaSource:
    """The source of the kernel ``name`` for ``arch`` (None: this machine's card, or Hopper).

    Raises Unusable, with the reason, if there is no such architecture, no kernel, or if it does not compile.
    """
    arch = _known(arch)
    admitted = submission.admitted(name, shape)
    if isinstance(admitted, Finding):
        raise Unusable(admitted)
    if not sites(admitted.kernel):
        raise Unusable(Finding(_("'{name}' does nothing yet.").format(name=name), _("Fill in its gaps first.")))
    candidate = Candidate(name, str(shape), admitted.kernel, admitted.json, admitted.options)
    (found,) = compile_all([candidate], [arch], submission.locate, machine_code=False)
    if not found.source:
        raise Unusable(found.findings[0])
    text = in_students_names(found.source, ir.written_names(admitted.kernel))
    return CudaSource(
        kernel=name,
        shape=str(shape),
        arch=arch,
        family=ARCHITECTURES[arch].family,
        source=text,
        definition=definition(text),
        marks=tuple(Mark(place.name, place.line, place.start, place.end) for place in places(text)),
        accesses=found.accesses,
        threads=found.threads,
        shared=found.shared,
        findings=found.findings,
    )


def _known(arch: str | None) -> str:
    if arch is None:
        card = hardware.judging_card()
        of_card = DEFAULT if card is None else architecture(card.capability)
        return of_card if of_card in ARCHITECTURES else DEFAULT
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        message = _("There is no architecture '{arch}' here.").format(arch=str(arch)[:60])
        if f"{arch}a" in ARCHITECTURES:
            advice = _('Did you mean "{arch}a"? The a brings the instructions that only these cards have.')
            raise Unusable(Finding(message, advice.format(arch=arch)))
        advice = _("Known are: {names}.").format(names=", ".join(ARCHITECTURES))
        raise Unusable(Finding(message, advice))
    return arch


def in_students_names(source: str, names: Mapping[str, Named]) -> str:
    """The source with the student's names for tensors, tiles and loop variables in place of the compiler's.

    A name that the source has already, or that two of them have, is not given again: each stays one thing.
    """
    taken = set(re.findall(r"[A-Za-z_]\w*", source.replace('extern "C"', "extern")))
    named: dict[str, set[object]] = {}
    for node in names.values():
        named.setdefault(node.name, set()).add(getattr(node, "storage", node))
    new = {
        written: node.name
        for written, node in names.items()
        if len(named[node.name]) == 1
        and node.name not in taken
        and re.fullmatch(r"[A-Za-z_]\w*", node.name, re.ASCII)
    }
    if not new:
        return source
    # "g0_desc" and "i0_1" are names that the compiler made of g0 and i0.
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, new))})(?![A-Za-z0-9])")
    renamed = pattern.sub(lambda match: new[match[1]], source)
    return renamed if landmarks(renamed) == landmarks(source) else source

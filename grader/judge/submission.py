"""A captured submission, and the questions that the autograders ask of it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from grader.admit import Admitted, Refused, admit
from grader.capture.format import Capture, Trace, TraceError
from grader.catalog import Group, Kernel, Lab, Role, Shape, values
from grader.gpu import compile_errors, roofline, targets
from grader.gpu.hardware import Card
from grader.gpu.lowering import Job, Lowered, NotLowered, lower_all
from grader.ir.nodes import Line
from grader.ir.structure import difference
from grader.judge import on_card, replay, sampled, seeds, simulated, tasks
from grader.judge.allowance import exceeded, kept
from grader.judge.comparison import compare, is_poison
from grader.judge.compiled import told
from grader.judge.outcome import Broke, Ran
from grader.judge.task import Task, Tensors
from grader.judge.untraced import advice_on
from grader.messages import _
from grader.verdict import Assessment, Finding, JudgeFailed, Location, Outcome, Unusable
from grader.verdict.printout import Printout
from grader.verdict.trace import BlockTrace
from grader.verdict.traffic import Counted

#: Seconds of simulation that may be spent in vain on a kernel before it has to hurry, and what it gets then for
#: all inputs of a shape: an endless kernel would else take a minute at every shape.
PATIENCE, HURRY = 15.0, 5.0

#: Architectures with different ways to copy and to multiply: what compiles for neither has a fault of its own.
WITNESSES = ("sm_80", "sm_90a")

#: All tensors of a kernel together, where it runs for people to look at. Timed shapes take 3 GiB at most.
MOST_BYTES = 4 * 2**30

#: Lines of evidence that a finding gathers from several shapes.
MAX_EVIDENCE = 6

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


class Submission:
    """One submission of ``lab``, judged on ``card`` (None: the simulator) with inputs drawn from ``seed``.

    Kernels that are judged at the student's schedules have them in their shapes: see ``catalog.at_schedules``.
    ``no_card`` says why no card judges; None if the simulator was asked for.

    Each question returns an Assessment. Work that several questions share is done once.
    """

    def __init__(
        self, capture: Capture, lab: Lab, card: Card | None, seed: str, no_card: Finding | None = None
    ) -> None:
        self.capture = capture
        self.lab = lab
        self.card = card
        self.seed = seed
        self.no_card = no_card or Finding(_("This was judged on the simulator."))
        self._admitted: dict[tuple[str, str], Admitted | Finding] = {}
        self._simulated: dict[tuple[str, str], list[Ran | Broke]] = {}
        self._compared: dict[tuple[str, str, bool], Finding | Broke | None] = {}  # on the simulator, or not
        self._refused: dict[str, Broke | None] = {}  # what the compiler says, by kernel
        self._slow: dict[str, Shape] = {}  # by kernel, where the simulator first spent its time on it in vain
        self._on_card: dict[str, on_card.Session] = {}
        self._lowered: dict[tuple[str, str, tuple[str, ...]], tuple[Lowered | NotLowered, ...]] = {}

    # The questions

    def signature(self, name: str) -> Assessment:
        """Is there a kernel of that name, with the parameters that the lab asks for, at every shape?"""
        unscheduled = self._unscheduled(name)
        if unscheduled is not None:
            return Assessment(Outcome.FAILED, (unscheduled,))
        for shape in self.lab.kernel(name).shapes:
            found = self._admit(name, shape)
            if isinstance(found, Finding):
                return Assessment(Outcome.FAILED, (self._veiled(found, shape),))
        return Assessment(Outcome.PASSED)

    def correct(self, name: str, group: Group) -> Assessment:
        """Is the output right at the shapes of ``group``, on every family of inputs?"""
        unscheduled = self._unscheduled(name)
        if unscheduled is not None:
            return Assessment(Outcome.FAILED, (unscheduled,))
        run = self._simulate if self.card is None else self._launch
        wrong: list[tuple[Shape, Finding]] = []
        lacking: list[Finding] = []
        for shape in self.lab.kernel(name).group(group):
            found = self._wrong_at(name, shape, run)
            if isinstance(found, Finding):
                wrong.append((shape, self._veiled(found, shape)))
            elif isinstance(found, Broke):
                lacking.append(self._veiled(found.finding, shape))
        if wrong:
            return Assessment(Outcome.FAILED, _told_once(wrong))
        if lacking:
            return Assessment(Outcome.NOT_ASSESSED, tuple(dict.fromkeys(lacking)))
        return Assessment(Outcome.PASSED)

    def clean(self, name: str) -> Assessment:
        """Does the kernel touch only memory that exists, read only what was written, and write without races?

        The simulator answers this, on every machine: it sees each access. A kernel that is right at no shape at
        all earns nothing here: doing nothing is clean, too.
        """
        unscheduled = self._unscheduled(name)
        if unscheduled is not None:
            return Assessment(Outcome.FAILED, (unscheduled,))
        faults: list[tuple[Shape, Finding]] = []
        lacking: list[Finding] = []
        right = False
        for shape in self._untimed(name):
            found = self._admit(name, shape)
            if isinstance(found, Finding):
                return Assessment(Outcome.FAILED, (self._veiled(found, shape),))
            for result in self._simulate(name, shape):
                if isinstance(result, Ran):
                    faults += [(shape, self._veiled(finding, shape)) for finding in result.findings]
                elif result.missing:
                    lacking.append(self._veiled(result.finding, shape))
                else:
                    faults.append((shape, self._veiled(result.finding, shape)))
            right = right or self._wrong_at(name, shape, self._simulate) is None
        if faults:
            return Assessment(Outcome.FAILED, _told_once(faults))
        if lacking:
            return Assessment(Outcome.NOT_ASSESSED, tuple(dict.fromkeys(lacking)))
        if not right:
            return Assessment(Outcome.FAILED, (Finding(_("This counts once the kernel is right at one shape.")),))
        return Assessment(Outcome.PASSED)

    def lean(self, name: str, group: Group = Group.TILES) -> Assessment:
        """Does the kernel move no more bytes of global memory than its task allows, at the shapes of ``group``?

        The simulator counts them, on every machine, with each family of inputs. Only a right kernel's bytes count:
        doing nothing moves nothing.
        """
        task = tasks.find(self.lab.id, name)
        if task.allowance is None:
            raise TypeError(f"the task of {name} allows no number of bytes")
        over: list[tuple[Shape, Finding]] = []
        lacking: list[Finding] = []
        within: list[Finding] = []
        for shape in self.lab.kernel(name).group(group):
            refused = self._admit(name, shape)
            if isinstance(refused, Finding):
                return Assessment(Outcome.FAILED, (self._veiled(refused, shape),))
            wrong = self._wrong_at(name, shape, self._simulate)
            if isinstance(wrong, Broke) and wrong.missing:
                lacking.append(self._veiled(wrong.finding, shape))
                continue
            if wrong is not None:
                message = _("Bytes count once the kernel is right at all of these shapes.")
                return Assessment(Outcome.FAILED, (Finding(message),))
            allowed = task.allowance(shape)
            for result in self._simulate(name, shape):
                found = exceeded(name, result.traffic, allowed)
                if found is not None:
                    over.append((shape, self._veiled(found, shape)))
                    break
            else:
                if not shape.hidden:
                    within.append(kept(shape, result.traffic, allowed))
        if over:
            return Assessment(Outcome.FAILED, _told_once(over))
        if lacking:
            return Assessment(Outcome.NOT_ASSESSED, tuple(dict.fromkeys(lacking)))
        return Assessment(Outcome.PASSED, tuple(within))

    def fast(self, name: str, at: str | None = None) -> Assessment:
        """Does the kernel reach its target at a timed shape, next to its peer, on this card?

        ``at`` names the shape, where several are timed.
        """
        unscheduled = self._unscheduled(name)
        if unscheduled is not None:
            return Assessment(Outcome.FAILED, (unscheduled,))
        kernel, task = self.lab.kernel(name), tasks.find(self.lab.id, name)
        (shape,) = (one for one in kernel.group(Group.TIMED) if at in (None, one.name))
        found = self._admit(name, shape)
        if isinstance(found, Finding):
            return Assessment(Outcome.FAILED, (found,))
        unclean = sampled.faults(found, kernel, task, shape, self.seed, self.locate)
        if unclean:
            return self._built_otherwise(name, shape, Assessment(Outcome.FAILED, unclean))
        if self.card is None:
            message = _("Speed is measured on a GPU. {why}").format(why=self.no_card.message)
            return Assessment(Outcome.NOT_ASSESSED, (Finding(message, self.no_card.advice),))
        assessment = on_card.fast(self._session(name), task, shape, self._targets(name).get(shape.name))
        return assessment if assessment.figures else self._built_otherwise(name, shape, assessment)

    def value(self, name: str) -> Any | Finding:
        """The value of that name as plain data of the lab's kind, or what is wrong with it."""
        handed = self.capture.handed(name)
        if handed is None:
            trace = Trace(name, "", error=TraceError("Missing", _missing(name)))
            return self._explain(trace)
        where = self.capture.assignment(name)
        kind = self.lab.value(name).kind
        if handed.error:
            message = _("'{name}' is or holds {what}; it has to be {want}.")
            return Finding(message.format(name=name, what=handed.error, want=values.said(kind)), where=where)
        try:
            return values.read(handed.value, kind, name)
        except values.WrongValue as error:
            return Finding(f"{error}.", where=where)

    def judge_value(self, name: str, judge: Callable[[Any], Assessment]) -> Assessment:
        """What ``judge`` says of a value. One that is missing or not of its kind fails, and says so."""
        found = self.value(name)
        if isinstance(found, Finding):
            return Assessment(Outcome.FAILED, (found,))
        assessment, where = judge(found), self.capture.assignment(name)
        located = tuple(replace(f, where=f.where or where) for f in assessment.findings)
        return replace(assessment, findings=located)

    def written(self) -> Assessment:
        """An answer in words: a teacher reads it, and gives its points."""
        return Assessment(Outcome.NOT_ASSESSED, (Finding(_("A teacher reads this answer.")),))

    def trace(self, name: str, shape: Shape, block: tuple[int, ...]) -> BlockTrace:
        """What a block of the kernel does at ``shape``, step by step. Raises Unusable, with the reason."""
        found = self._admit(name, shape)
        if isinstance(found, Finding):
            raise Unusable(found)
        inputs = self._example(name, shape)
        output = _output(self.lab.kernel(name), shape)
        return replay.record(name, found, inputs, *output, block, self.capture)

    def count(self, name: str, shape: Shape, card: str | None = None) -> Counted:
        """What the kernel moves and computes at ``shape``, and the least time for it on a card, or on all known.

        Raises Unusable, with the reason.
        """
        cards = roofline.cards() if card is None else (roofline.find(card),)
        found = self._admit(name, shape)
        if isinstance(found, Finding):
            raise Unusable(found)
        inputs = self._example(name, shape)
        traffic = replay.count(found, inputs, *_output(self.lab.kernel(name), shape), self.capture)
        return Counted(self.lab.id, name, str(shape), traffic, roofline.bounds(traffic, cards))

    def printout(self, name: str, shape: Shape, block: tuple[int, ...] | None = None) -> Printout:
        """What the kernel's T.print statements print at ``shape``, on the simulator: in all blocks, or in one.

        Raises Unusable, with the reason.
        """
        found = self._admit(name, shape)
        if isinstance(found, Finding):
            raise Unusable(found)
        inputs = self._example(name, shape)
        output = _output(self.lab.kernel(name), shape)
        printed, left_out = replay.printout(name, found, inputs, *output, self.capture, block)
        return Printout(name, str(shape), printed, left_out)

    def lowered(
        self, name: str, shape: Shape, architectures: tuple[str, ...]
    ) -> tuple[Lowered | NotLowered, ...] | Finding:
        """What TileLang's compiler makes of the kernel for each architecture; a Finding if it may not be run.

        Raises JudgeFailed if the compiler's process can't start.
        """
        found = self._admit(name, shape)
        if isinstance(found, Finding):
            return found
        key = (name, shape.name, architectures)
        if key not in self._lowered:
            jobs = [Job(found.json, arch, found.options) for arch in architectures]
            self._lowered[key] = tuple(lower_all(jobs))
        return self._lowered[key]

    def admitted(self, name: str, shape: Shape) -> Admitted | Finding:
        """The kernel as it may be run at ``shape``, or why it may not."""
        return self._admit(name, shape)

    def locate(self, line: Line | None) -> Location | None:
        """The student's line that a line of the IR is from."""
        return None if line is None else self.capture.locate(line.file, line.number)

    # How they are answered

    def _unscheduled(self, name: str) -> Finding | None:
        """What is wrong with the values that the kernel's schedules are from; None if there is nothing."""
        schedules = self.lab.kernel(name).schedules
        for value in () if schedules is None else (schedules.tried, schedules.timed):
            found = self.value(value)
            if isinstance(found, Finding):
                return found
        return None

    def _built_otherwise(self, name: str, shape: Shape, assessment: Assessment) -> Assessment:
        """Says beside what is wrong at ``shape`` if the kernel there is another one than at all untimed shapes.

        Such a kernel was tried nowhere else, so that its fault comes as a surprise.
        """
        here = self._known(name, shape).kernel
        same = [other for other in self._untimed(name) if other.schedule == shape.schedule]
        others = [self._admit(name, other) for other in same]
        apart = [difference(here, other.kernel) for other in others if isinstance(other, Admitted)]
        if assessment.outcome is not Outcome.FAILED or not assessment.findings or not apart or None in apart:
            return assessment
        first, *rest = assessment.findings
        line = next((found.first or found.second for found in apart if found.first or found.second), None)
        where = self.locate(line)
        said = _(
            "the kernel built for {shape} differs from those for all other shapes in more than its sizes"
        ).format(shape=shape)
        if where is not None:
            said = _("{said}, from {where} on").format(said=said, where=where)
        return replace(assessment, findings=(replace(first, evidence=(*first.evidence, said)), *rest))

    def _untimed(self, name: str) -> tuple[Shape, ...]:
        return tuple(shape for shape in self.lab.kernel(name).shapes if shape.group is not Group.TIMED)

    def _wrong_at(
        self, name: str, shape: Shape, run: Callable[[str, Shape], list[Ran | Broke]]
    ) -> Finding | Broke | None:
        """What is wrong at ``shape`` (None: nothing); a Broke if ``run`` lacks what it would take to tell."""
        key = (name, shape.name, run == self._simulate)
        if key not in self._compared:
            self._compared[key] = self._compare(name, shape, run)
        return self._compared[key]

    def _compare(
        self, name: str, shape: Shape, run: Callable[[str, Shape], list[Ran | Broke]]
    ) -> Finding | Broke | None:
        found = self._admit(name, shape)
        if isinstance(found, Finding):
            return found
        task, kernel = tasks.find(self.lab.id, name), self.lab.kernel(name)
        output = next(p for p in kernel.parameters if p.role is Role.OUT)
        results = run(name, shape)
        for family, result in zip(task.families, results, strict=False):
            if isinstance(result, Broke):
                return result if result.missing else result.finding
            inputs = self._inputs(task, family, shape)
            reference = task.reference(inputs)
            mismatch = compare(output.name, result.output, reference, task.bound(inputs, reference))
            if mismatch is not None:
                kind = _("inputs of the kind '{family}'").format(family=family)
                born = self._birth(name, shape, inputs, result.output, reference)
                if born is not None:
                    evidence = (*mismatch.evidence, born.message, *born.evidence, kind)
                    return Finding(mismatch.message, mismatch.advice, born.where, evidence)
                return Finding(mismatch.message, mismatch.advice, evidence=(*mismatch.evidence, kind))
        if len(results) != len(task.families):
            raise JudgeFailed(f"{len(results)} results for {len(task.families)} families of inputs")
        return None

    def _birth(
        self, name: str, shape: Shape, inputs: Tensors, output: torch.Tensor, reference: torch.Tensor
    ) -> Finding | None:
        """Where the first value came from that is not finite and should be, on the simulator."""
        bad = ~output.isfinite() & reference.isfinite() & ~is_poison(output)
        if shape.group is Group.TIMED or not bool(bad.any()):
            return None
        index = tuple(bad.nonzero()[0].tolist())
        return simulated.birth(
            self._known(name, shape), inputs, output.dtype, tuple(output.shape), index, self.locate
        )

    def _example(self, name: str, shape: Shape) -> Tensors:
        """Inputs to look at a run with. Raises Unusable if the tensors need more memory than may be asked for."""
        task, kernel = tasks.find(self.lab.id, name), self.lab.kernel(name)
        size = bytes_of(kernel, shape)
        if size > MOST_BYTES:
            message = _(
                "At {shape}, the tensors of '{name}' need {needs:,.1f} GiB of memory; at most {most} may be."
            )
            text = message.format(shape=shape, name=name, needs=size / 2**30, most=MOST_BYTES // 2**30)
            raise Unusable(Finding(text, _("The simulator runs here, in memory: take a smaller shape.")))
        return self._inputs(task, task.families[0], shape)

    def _inputs(self, task: Task, family: str, shape: Shape) -> Tensors:
        return task.inputs(family, shape, seeds.generator(self.seed, task.kernel, shape.name, family))

    def _simulate(self, name: str, shape: Shape) -> list[Ran | Broke]:
        key = (name, shape.name)
        if key not in self._simulated:
            task, kernel = tasks.find(self.lab.id, name), self.lab.kernel(name)
            inputs = [self._inputs(task, family, shape) for family in task.families]
            dtype, sizes = _output(kernel, shape)
            admitted, before = self._known(name, shape), self._slow.get(name)
            seconds = simulated.SECONDS if before is None else HURRY
            results = simulated.run(admitted, inputs, dtype, sizes, self.locate, seconds)
            if results and isinstance(results[-1], Broke) and results[-1].missing:
                results[-1] = self._uncompilable(name, shape) or results[-1]
            self._simulated[key] = results if before is None else [_hurried(result, before) for result in results]
            if any(isinstance(result, Broke) and result.seconds > PATIENCE for result in results):
                self._slow.setdefault(name, shape)
        return self._simulated[key]

    def _uncompilable(self, name: str, shape: Shape) -> Broke | None:
        """Why the compiler refuses what the simulator can't run; None if it compiles for some card.

        No GPU helps a kernel that compiles for none of WITNESSES. To ask takes some seconds, so this is done at
        the first such shape of a kernel alone: what the simulator can't run is no matter of sizes.
        """
        if name not in self._refused:
            self._refused[name] = None
            admitted = self._known(name, shape)
            try:
                lowered = self.lowered(name, shape, WITNESSES)
            except JudgeFailed:  # there is no compiler to ask: it stays unknown, which is what is then said
                return None
            errors = [one for one in lowered if isinstance(one, NotLowered) and one.kind != "Timeout"]
            if len(errors) == len(lowered):
                explained = compile_errors.explain(errors[-1], admitted.kernel, admitted.options)
                self._refused[name] = Broke(told(explained, self.locate))
        return self._refused[name]

    def _launch(self, name: str, shape: Shape) -> list[Ran | Broke]:
        return self._session(name).results(shape)

    def _session(self, name: str) -> on_card.Session:
        """Everything that the card does for one kernel, in one disposable process."""
        if name not in self._on_card:
            task, kernel = tasks.find(self.lab.id, name), self.lab.kernel(name)
            admitted = {shape.name: self._admit(name, shape) for shape in kernel.shapes}
            usable = {shape: found for shape, found in admitted.items() if isinstance(found, Admitted)}
            # Without bubblewrap, the notebook could have written to the cache: what lies there is loaded.
            cached = self.capture.sandbox != "process"
            self._on_card[name] = on_card.launch(
                self.lab, task, usable, self.seed, self.card, self._targets(name), self.locate, cached=cached
            )
        return self._on_card[name]

    def _targets(self, name: str) -> on_card.Asked:
        """What is asked of the kernel's speed on this card, by timed shape: of some, or all, it may be nothing."""
        shapes = self.lab.kernel(name).group(Group.TIMED)
        found = {shape.name: targets.find(self.lab.id, name, shape.name, self.card.name) for shape in shapes}
        return {shape: target for shape, target in found.items() if target is not None}

    def _known(self, name: str, shape: Shape) -> Admitted:
        found = self._admit(name, shape)
        if isinstance(found, Finding):
            raise TypeError(f"{name} was not admitted at {shape.name}")
        return found

    def _admit(self, name: str, shape: Shape) -> Admitted | Finding:
        key = (name, shape.name)
        if key not in self._admitted:
            self._admitted[key] = self._read(self.lab.kernel(name), shape)
        return self._admitted[key]

    def _read(self, kernel: Kernel, shape: Shape) -> Admitted | Finding:
        trace = self.capture.trace(kernel.name, shape.name)
        if trace is None:
            return Finding(
                _("'{name}' was not captured at {shape}.").format(name=kernel.name, shape=shape),
                _("Capture the notebook again with this version of the labs."),
            )
        if trace.error is not None or trace.ir is None:
            return self._explain(trace)
        try:
            return admit(trace.ir, kernel, shape, trace.options)
        except Refused as error:
            return Finding(_("Refused: {why}.").format(why=error.message), error.advice, self.locate(error.line))

    def _explain(self, trace: Trace) -> Finding:
        """A kernel that could not be traced; if it is missing, the reason may be an earlier cell's error."""
        error = trace.error or TraceError("Missing", _("'{name}' gave no kernel.").format(name=trace.kernel))
        if error.kind == "Missing" and self.capture.cell_errors:
            first = self.capture.cell_errors[0]
            where = self.capture.locate(first.file, first.line)
            return Finding(
                f"{first.kind}: {first.message}", _("Mend this first: what comes after it needs it."), where
            )
        message = error.message if error.kind in ("Missing", "Not a kernel") else f"{error.kind}: {error.message}"
        return Finding(message, advice_on(error.message), self.capture.locate(error.file, error.line))

    def _veiled(self, finding: Finding, shape: Shape) -> Finding:
        """What may be said of a hidden shape: that it is one, and which kind."""
        if not shape.hidden:
            return finding
        return Finding(
            _("Wrong at a further shape of the official run ({group}).").format(group=shape.group),
            _("Try sizes of your own: small ones, odd ones, some that are no multiple of your tile."),
            finding.where,
        )


def _missing(name: str) -> str:
    return _("The notebook defines no '{name}'. Keep the name that the lab gives.").format(name=name)


def _hurried(result: Ran | Broke, before: Shape) -> Ran | Broke:
    """Says of a run that had less time than usual why that was so, if it broke."""
    if isinstance(result, Ran):
        return result
    why = _("it had {seconds:.0f} s here, as it did not end in its time at {shape}").format(
        seconds=HURRY, shape=_("another shape") if before.hidden else before
    )
    return replace(result, finding=replace(result.finding, evidence=(*result.finding.evidence, why)))


def bytes_of(kernel: Kernel, shape: Shape) -> int:
    """All of a kernel's tensors at a shape."""
    return sum(math.prod(p.sizes(shape)) * DTYPES[p.dtype].itemsize for p in kernel.parameters)


def _output(kernel: Kernel, shape: Shape) -> tuple[torch.dtype, tuple[int, ...]]:
    (parameter,) = (p for p in kernel.parameters if p.role is Role.OUT)
    return DTYPES[parameter.dtype], parameter.sizes(shape)


def _told_once(found: Iterable[tuple[Shape, Finding]]) -> tuple[Finding, ...]:
    """One finding for each cause (place and advice): in full at its first shape; the others are only listed."""
    causes: dict[object, list[tuple[Shape, Finding]]] = {}
    for shape, finding in found:
        causes.setdefault((finding.where, finding.advice), []).append((shape, finding))
    return tuple(_merged(same) for same in causes.values())


def _merged(same: list[tuple[Shape, Finding]]) -> Finding:
    first, finding = same[0]
    if first.hidden:
        return finding
    evidence = dict.fromkeys(item for shape, other in same if shape == first for item in other.evidence)
    places = [_("seen at {shape}").format(shape=first)]
    others = dict.fromkeys(str(shape) for shape, _finding in same if shape != first)
    if others:
        places.append(_("also at {shapes}").format(shapes=" and ".join(others)))
    return replace(finding, evidence=(*list(evidence)[:MAX_EVIDENCE], "; ".join(places)))

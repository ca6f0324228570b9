"""Lab 07: Y = X W + R for few rows, what of a search space fits a budget of shared memory, and a cache of results.

``kept`` is compared with the whole space: how much the lab's kernel takes at each schedule is a formula here, and
a test holds it against the compiler at every one. The student's own kernel is compiled at the schedules of the
shortlist, eight at most, and what the compiler takes there must fit.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from grader import catalog
from grader.catalog import Group, Shape
from grader.gpu import compile_errors
from grader.gpu.architectures import ARCHITECTURES, architecture
from grader.gpu.lowering import Job, NotLowered, lower_all, timed_out
from grader.judge.peers import Tensors, writing
from grader.judge.task import Task, Work
from grader.judge.tolerance import accumulated, rounded
from grader.messages import _
from grader.verdict import Assessment, Finding, JudgeFailed, Outcome

if TYPE_CHECKING:
    from grader.judge.submission import Submission

Schedule = Mapping[str, int]

#: What a block may have on Ada (L4, RTX 40), the least of all cards of the course from Ampere on; in bytes.
BUDGET = 99 * 1024
ROWS = 64  # of a tile, whatever the schedule
FP16 = 2  # bytes

#: For which architecture the shortlist is compiled where no card judges.
DEFAULT = "sm_90a"

#: How many wrong schedules are named.
NAMED = 3


def _space() -> tuple[Schedule, ...]:
    fields = catalog.find("lab07_autotuning").value("tuned").kind.fields
    axes = [[(name, number) for number in kind.among] for name, kind in fields.items()]
    return tuple(dict(point) for point in itertools.product(*axes))


def shared_bytes(schedule: Schedule) -> int:
    """The shared memory that a block of ``projection`` takes, in bytes: the most that is in use at the same time.

    That is in the loop: tiles of X and W for each stage, and R's, which is filled before and read after. The
    tile that Y leaves by comes when all of these are done with, and is no larger.
    """
    stage = (ROWS + schedule["block_N"]) * schedule["block_K"]
    return (schedule["num_stages"] * stage + ROWS * schedule["block_N"]) * FP16


SPACE = _space()
FITTING = tuple(schedule for schedule in SPACE if shared_bytes(schedule) <= BUDGET)


def _deepest() -> tuple[Schedule, ...]:
    """For each tile and number of threads, the most stages that fit: more bytes are under way."""
    best: dict[tuple[int, int, int], Schedule] = {}
    for schedule in FITTING:
        key = (schedule["block_N"], schedule["block_K"], schedule["threads"])
        if key not in best or schedule["num_stages"] > best[key]["num_stages"]:
            best[key] = schedule
    return tuple(best.values())


#: The judge's own sweep.
SWEEP = _deepest()


def filtered(kept: Sequence[Schedule]) -> Assessment:
    """Is this all that fits, and nothing else?"""
    too_large = [schedule for schedule in kept if shared_bytes(schedule) > BUDGET]
    dropped = [schedule for schedule in FITTING if schedule not in kept]
    findings = []
    if too_large:
        text = _("Too large for {budget} bytes: {count} of the {all} that are kept.")
        message = text.format(budget=BUDGET, count=len(too_large), all=len(kept))
        advice = _("Which tiles are in use at the same time? Those of all stages, and what else?")
        findings.append(Finding(message, advice, evidence=_named(too_large)))
    if dropped:
        text = _("Dropped, though they fit into {budget} bytes: {count} of {all}.")
        message = text.format(budget=BUDGET, count=len(dropped), all=len(FITTING))
        advice = _("Which tiles are never in use at the same time? They can lie in the same place.")
        findings.append(Finding(message, advice, evidence=_named(dropped)))
    return Assessment(Outcome.FAILED if findings else Outcome.PASSED, tuple(findings))


def _named(schedules: Sequence[Schedule]) -> tuple[str, ...]:
    """The schedules that are nearest to the budget, with what they take."""
    near = sorted(schedules, key=lambda schedule: abs(shared_bytes(schedule) - BUDGET))[:NAMED]
    text = _("{schedule} takes {needs} bytes")
    return tuple(text.format(schedule=_said(schedule), needs=shared_bytes(schedule)) for schedule in near)


def _said(schedule: Schedule) -> str:
    return ", ".join(f"{name}={number}" for name, number in schedule.items())


def shortlisted(configs: Sequence[Schedule], kept: object) -> Assessment:
    """Is each of the tuner's schedules among those that were kept?"""
    if isinstance(kept, Finding):
        return Assessment(Outcome.FAILED, (kept,))
    strangers = [number for number, schedule in enumerate(configs) if schedule not in kept]
    if not strangers:
        return Assessment(Outcome.PASSED)
    message = _("configs[{number}] is none of 'kept': {schedule}.")
    first = strangers[0]
    advice = _("The tuner compiles all that it is given. Choose from what fits.")
    return Assessment(
        Outcome.FAILED, (Finding(message.format(number=first, schedule=_said(configs[first])), advice),)
    )


def among(tuned: Schedule, configs: object) -> Assessment:
    """Is the tuned schedule one that the tuner was given?"""
    if isinstance(configs, Finding):
        return Assessment(Outcome.FAILED, (configs,))
    if tuned in configs:
        return Assessment(Outcome.PASSED)
    message = _("'tuned' is none of the tuner's configs.")
    return Assessment(Outcome.FAILED, (Finding(message, _("Write down the schedule that the tuner found.")),))


#: What the cache is asked in the notebook, and the block_N of the schedule that it has to give (0: none).
ANSWERS = {
    "before": (0, _("A file that isn't there yet holds nothing.")),
    "after": (64, _("What was remembered is found again.")),
    "copied_file": (64, _("The file holds it: so does a copy of the file.")),
    "other_file": (0, _("Another file holds nothing of it.")),
    "other_shape": (0, _("Another shape may want another schedule.")),
    "other_dtype": (0, _("Another dtype may want another schedule.")),
    "other_card": (0, _("Another card may want another schedule.")),
    "other_version": (0, _("A changed kernel has to be tuned anew.")),
    "first_of_two": (64, _("What is remembered under another key leaves this one as it is.")),
    "second_of_two": (128, _("A second result is found under its own key.")),
    "replaced": (32, _("The last that was remembered under a key counts.")),
}


def remembered(answers: Mapping[str, int]) -> Assessment:
    """Does the cache give what was stored, and only where it holds?

    The student's functions ran in the student's process: the judge sees the answers only.
    """
    findings = []
    for name, (right, why) in ANSWERS.items():
        if answers[name] != right:
            text = _("{name}: the cache gave {got}, but should give {right}.")
            message = text.format(name=name, got=_block_n(answers[name]), right=_block_n(right))
            findings.append(Finding(message, why))
    return Assessment(Outcome.FAILED if findings else Outcome.PASSED, tuple(findings))


def _block_n(number: int) -> str:
    return _("the schedule with block_N = {number}").format(number=number) if number else _("none")


def compiled(submission: "Submission") -> Assessment:
    """Does the student's kernel compile at each schedule of the shortlist, and fit the budget as compiled?

    Lowered for the judging card, or for Hopper: no GPU is needed.
    """
    for name in ("configs", "tuned"):
        found = submission.value(name)
        if isinstance(found, Finding):
            return Assessment(Outcome.FAILED, (found,))
    shapes = submission.lab.kernel("projection").group(Group.TILES)
    admitted = [submission.admitted("projection", shape) for shape in shapes]
    refused = [found for found in admitted if isinstance(found, Finding)]
    if refused:
        return Assessment(Outcome.FAILED, (refused[0],))
    arch = DEFAULT if submission.card is None else architecture(submission.card.capability)
    if arch not in ARCHITECTURES:
        arch = DEFAULT
    jobs = [Job(found.json, arch, found.options) for found in admitted]
    try:
        results = lower_all(jobs, until=timed_out(arch))
    except JudgeFailed as error:
        message = _("TileLang's compiler could not be run here, so nothing was compiled.")
        return Assessment(Outcome.NOT_ASSESSED, (Finding(message, evidence=tuple(str(error).splitlines()[-3:])),))
    findings = []
    for shape, found, result in zip(shapes, admitted, results, strict=False):  # after a timeout there are no more
        schedule = _said(shape.schedule)
        if isinstance(result, NotLowered):
            why = compile_errors.explain(result, found.kernel, found.options)
            where = submission.locate(why.lines[0]) if why.lines else None
            text = _("It doesn't compile for {arch} with {schedule}: {why}")
            message = text.format(arch=arch, schedule=schedule, why=why.message)
            findings.append(Finding(message, why.advice, where))
        elif result.shared > BUDGET:
            text = _("With {schedule} it takes {needs} bytes of shared memory; the budget is {budget}.")
            findings.append(Finding(text.format(schedule=schedule, needs=result.shared, budget=BUDGET)))
    return Assessment(Outcome.FAILED if findings else Outcome.PASSED, tuple(findings))


# The kernel


def _inputs(family: str, shape: Shape, generator: torch.Generator) -> Tensors:
    m, n, k = (shape.sizes[name] for name in "MNK")
    device = generator.device

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, device=device)

    x, w, r = normal(m, k), normal(k, n) / math.sqrt(k), normal(m, n)
    match family:
        case "normal":
            pass
        case "one-hot":
            # Each row of X W is a row of W, and no two elements of R are near each other: indices show.
            x = torch.zeros(m, k, device=device)
            x[torch.arange(m, device=device), torch.randint(k, (m,), generator=generator, device=device)] = 1.0
            r = r * 32
        case "cancelling":
            # Neighbouring terms nearly cancel: what is lost in a half-precision sum stands out.
            half = k // 2
            x, w = x * 8, w * math.sqrt(k)
            x[:, half : 2 * half] = -x[:, :half]
            w[half : 2 * half] = w[:half] * (1 + 2.0**-7)
        case "large":
            # Sums of thousands, where fp16 counts by ones, and R beside them.
            x, w, r = x.abs() * 4, w * math.sqrt(k) * 8, r * 1000
        case _:
            raise ValueError(f"no family {family!r}")
    return x.half(), w.half(), r.half()


def _reference(inputs: Tensors) -> torch.Tensor:
    x, w, r = (tensor.double() for tensor in inputs)
    return x @ w + r


def _bound(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    x, w, r = (tensor.double() for tensor in inputs)
    magnitude = x.abs() @ w.abs() + r.abs()
    return rounded(reference, accumulated(magnitude, terms=x.shape[1] + 1), torch.float16)


def _work(shape: Shape) -> Work:
    m, n, k = (shape.sizes[name] for name in "MNK")
    return Work(2 * (m * k + k * n + m * n), 2 * m * n, operations=2 * m * n * k)


def _addmm(inputs: Tensors, output: torch.Tensor) -> None:
    """cuBLAS may share out K among blocks and add their parts in fp16. The kernel adds in fp32, and so must it."""
    x, w, r = inputs
    settings = torch.backends.cuda.matmul
    before = settings.allow_fp16_reduced_precision_reduction
    settings.allow_fp16_reduced_precision_reduction = False
    try:
        torch.addmm(r, x, w, out=output)
    finally:
        settings.allow_fp16_reduced_precision_reduction = before


PROJECTION = Task(
    kernel="projection",
    families=("normal", "one-hot", "cancelling", "large"),
    inputs=_inputs,
    reference=_reference,
    bound=_bound,
    peers=(writing("cuBLAS (torch.addmm)", _addmm),),
    work=_work,
    unit="GB/s",
    ceiling="read",
)

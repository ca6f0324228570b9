"""Launches a kernel in a worker on the card, within a limit, and reports what is wrong with it."""

import dataclasses
import math
import re
from collections.abc import Callable

import torch

from grader.catalog import Kernel, Shape
from grader.gpu.launch import Launch
from grader.judge.task import Task
from grader.judge.workbench import Workbench, fitting_sets, no_room
from grader.judge.worker_process import Report
from grader.messages import _
from grader.verdict import Finding

PREPARE = 300.0  # seconds for what is ours: inputs, references, comparisons
LAUNCH = 10.0  # seconds for launches of the kernel that together take milliseconds


class Launcher:
    """Launches ``kernel``, and tells ``report`` of each problem at which shape it was.

    An error of CUDA goes up and ends the process, in the phase "launching": that phase's time is the kernel's.
    """

    def __init__(self, report: Report, task: Task, kernel: Kernel) -> None:
        self.report = report
        self.task = task
        self.kernel = kernel

    def ran(self, shape: Shape, launch: Callable[[], object]) -> bool:
        """Launches and waits. What fails or does not end here is the kernel's doing, and the report says so."""
        torch.cuda.synchronize()
        self.report.phase("launching", LAUNCH, shape=told(shape))
        try:
            launch()
        except Exception as error:  # the launcher's refusal, e.g. of more shared memory than there is
            self.problem(shape, refusal(error))
            torch.cuda.synchronize()  # if the card is lost with it, this process ends here
            return False
        torch.cuda.synchronize()
        self.report.phase("preparing", PREPARE)
        return True

    def right(self, shape: Shape, launch: Launch, bench: Workbench) -> bool:
        """Launches once on each set of inputs, and looks at what that left."""

        def launches() -> None:
            for number in range(bench.sets):
                bench.launch(launch, number)

        return self.ran(shape, launches) and self.still_right(shape, bench)

    def still_right(self, shape: Shape, bench: Workbench) -> bool:
        self.report.phase("preparing", PREPARE)
        wrong = bench.wrong()
        if wrong is not None:
            self.problem(shape, wrong, ran=True)
        return wrong is None

    def problem(self, shape: Shape, finding: Finding, *, ran: bool = False) -> None:
        """``ran``: the kernel came to its end, and what it left is wrong."""
        self.report.say(problem=dataclasses.asdict(finding), shape=shape.name, ran_wrong=ran)

    def sets(self, shape: Shape, beside: int = 0) -> int:
        """How many sets of inputs have room ``beside`` so many bytes of others; 0, and it is said, if not two."""
        torch.cuda.empty_cache()  # of the shape before
        free = max(torch.cuda.mem_get_info()[0] - beside, 0)
        sets = fitting_sets(self.kernel, shape, free)
        if not sets:
            finding = no_room(self.kernel, shape, free)
            self.report.say(lacking=finding.message, advice=finding.advice, shape=shape.name)
        return sets


def told(shape: Shape) -> str:
    """What may be said of a shape to everybody: of a hidden one, that it is one."""
    return _("a further shape of the official run") if shape.hidden else shape.name


def refusal(error: Exception) -> Finding:
    """Why a launcher refused, in plain words where it is known."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = " ".join(lines) or type(error).__name__
    if "OUT_OF_MEMORY" in words:
        return Finding(
            _("The kernel can't be launched: the card has no memory left for its threads' local memory."),
            _("What T.alloc_local and fragments hold is needed for every thread at once: make them smaller."),
            evidence=(words[:300],),
        )
    asked = re.search(r"dynamic shared memory size to (\d+)", words)
    if asked:
        return Finding(
            _("A block needs {needs:.0f} KiB of shared memory; on this card it can have {has:.0f} KiB.").format(
                needs=math.ceil(int(asked[1]) / 1024), has=_most_shared() / 1024
            ),
            _(
                "Lower num_stages first: each stage has tiles of its own. Then block_M, block_N or block_K. They "
                "stand in the first line of the kernel's function."
            ),
            evidence=(words[:300],),
        )
    return Finding(_("The kernel can't be launched: {why}").format(why=words[:300]))


def _most_shared() -> int:
    """Bytes of shared memory that a block may have on this card."""
    return torch.cuda.get_device_properties().shared_memory_per_block_optin

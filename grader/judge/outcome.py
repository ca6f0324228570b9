"""What running one kernel at one shape and family gave, on the simulator or on a card."""

from dataclasses import dataclass

import torch

from grader.verdict import Finding
from grader.verdict.traffic import Traffic


@dataclass(frozen=True)
class Ran:
    """It ran: ``output`` is a CPU tensor, ``findings`` are faults that were seen on the way.

    ``traffic`` is what the simulator counted; a card doesn't count.
    """

    output: torch.Tensor
    findings: tuple[Finding, ...] = ()
    traffic: Traffic | None = None


@dataclass(frozen=True)
class Broke:
    """It did not run to its end: why. ``missing`` marks what our tools lack, which is not the student's fault.

    ``seconds`` is how long it was tried, where that is known.
    """

    finding: Finding
    missing: bool = False
    seconds: float = 0.0

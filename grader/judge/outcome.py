"""What running one kernel at one shape and family gave, on the simulator or on a card."""

from dataclasses import dataclass

import torch

from grader.verdict import Finding


@dataclass(frozen=True)
class Ran:
    """It ran: ``output`` is a CPU tensor, ``findings`` are faults that were seen on the way."""

    output: torch.Tensor
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Broke:
    """It did not run to its end: why. ``missing`` marks what our tools lack, which is not the student's fault.

    ``seconds`` is how long it was tried, where that is known.
    """

    finding: Finding
    missing: bool = False
    seconds: float = 0.0

"""Times a kernel next to its peer, interleaved, until the ratio of the two is known well enough.

A card's clock and temperature move every absolute time by some per cent, but hardly the ratio of two launches
that follow each other. Before each timed launch the L2 cache is overwritten, which also keeps the GPU behind the
CPU, so that CUDA events see device time and not the launch overhead.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

MIN_ROUNDS = 30
MAX_ROUNDS = 1000
WARM_UP_ROUNDS = 5
HALF_WIDTH = 0.01  # of the ratio
BATCH = 10


@dataclass(frozen=True)
class Timing:
    """Medians in milliseconds; ``ratio`` is the median of peer time over kernel time, with its 95 % interval."""

    kernel_ms: float
    peer_ms: float
    ratio: float
    low: float
    high: float
    rounds: int


def compare(
    kernel: Callable[[int], None],
    peer: Callable[[int], None],
    *,
    prepare: Callable[[int], None],
    seconds: float,
) -> Timing:
    """Times ``kernel(i)`` and ``peer(i)`` in turn for rounds i = 0, 1, …

    ``prepare(i)`` makes the round's output fresh and is not timed. Ends when the 95 % interval of the ratio is
    within ±1 %, or after ``seconds``.
    """
    flush = _Flush()
    kernel_ms: list[float] = []
    peer_ms: list[float] = []
    start = time.monotonic()
    round_ = 0
    while True:
        batch = []
        for _ in range(BATCH):
            prepare(round_)
            # Who goes first alternates, so that neither always follows the other.
            first, second = (kernel, peer) if round_ % 2 == 0 else (peer, kernel)
            times = (_timed(flush, first, round_), _timed(flush, second, round_))
            batch.append(times if round_ % 2 == 0 else times[::-1])
            round_ += 1
        torch.cuda.synchronize()
        for mine, theirs in batch:
            kernel_ms.append(mine[0].elapsed_time(mine[1]))
            peer_ms.append(theirs[0].elapsed_time(theirs[1]))
        timing = _summary(kernel_ms[WARM_UP_ROUNDS:], peer_ms[WARM_UP_ROUNDS:])
        narrow = timing.high - timing.low <= 2 * HALF_WIDTH * timing.ratio
        over = time.monotonic() - start > seconds or round_ >= MAX_ROUNDS
        if (round_ >= MIN_ROUNDS and narrow) or over:
            return timing


class _Flush:
    """Overwrites twice the L2 cache (and at least 256 MB, so that the GPU has work while the CPU queues)."""

    def __init__(self) -> None:
        l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.buffer = torch.empty(max(2 * l2, 256 * 2**20), dtype=torch.int8, device="cuda")

    def __call__(self) -> None:
        self.buffer.zero_()


def _timed(flush: _Flush, launch: Callable[[int], None], round_: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush()
    start.record()
    launch(round_)
    end.record()
    return start, end


def _summary(kernel_ms: list[float], peer_ms: list[float]) -> Timing:
    ratios = sorted(theirs / mine for mine, theirs in zip(kernel_ms, peer_ms, strict=True))
    low, high = median_interval(ratios)
    return Timing(
        statistics.median(kernel_ms), statistics.median(peer_ms), statistics.median(ratios), low, high, len(ratios)
    )


def median_interval(ordered: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median of a sorted sample, by order statistics: it assumes no distribution.

    Ranks n/2 ± 0.98 √n (W. J. Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2).
    """
    n = len(ordered)
    spread = 0.98 * math.sqrt(n)
    low, high = math.floor(n / 2 - spread), math.ceil(n / 2 + spread)
    return ordered[max(low, 0)], ordered[min(high, n - 1)]

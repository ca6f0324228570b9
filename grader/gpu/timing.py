"""Times launches on the card, interleaved, until what is asked of the times is known well enough.

A card's clock and temperature move every absolute time by some per cent, but hardly the ratio of two launches
that follow each other. So the launches take turns, in an order that alternates. Before each timed launch the L2
cache is filled with other data, which also keeps the GPU busy while the CPU queues: CUDA events then see device
time, and not how long the CPU takes to launch. Where that is not enough, there are two more ways (``Clock``).
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

import torch

from grader.messages.errors import first_line

Launch = Callable[[int], None]
"""Launches the work of a round (0, 1, …) on the current stream, and does not wait for it."""

WARM_UP = 0.3  # seconds, in which the clock settles
LEAST_SECONDS = 0.5
LEAST_ROUNDS = 30
FEWEST = 6  # rounds that are run however long they take: fewer give no interval
MOST_ROUNDS = 2000
SHORT_MS = 0.05  # work below this is timed by CUPTI where it is there
HALF_WIDTH = 0.01  # of a ratio: what "known well enough" means
DISTURBED = 1.25  # times the median: a round that something else has delayed
BATCH_SECONDS = 0.1  # that a batch takes about, unless one round takes longer


class Clock(StrEnum):
    """How device time is taken."""

    EVENTS = "CUDA events"
    GRAPH = "CUDA events around graph replays"
    CUPTI = "CUPTI"


@dataclass(frozen=True)
class Samples:
    """``ms[i][r]``: device time in milliseconds of launch i in round r, less what an empty pair of events shows.

    ``overhead_ms`` is that of the empty pair (0 by CUPTI), ``host_ms`` the CPU's time for each launch.
    """

    ms: tuple[list[float], ...]
    clock: Clock
    overhead_ms: float
    host_ms: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        return len(self.ms[0])

    def median(self, launch: int) -> float:
        return statistics.median(self.ms[launch])

    def ratio(self, launch: int, peer: int) -> tuple[float, float, float]:
        """The peer's time over the launch's, by rounds: (median, low, high) with a 95 % interval."""
        ratios = sorted(theirs / mine for mine, theirs in zip(self.ms[launch], self.ms[peer], strict=True))
        return statistics.median(ratios), *median_interval(ratios)

    def disturbed(self) -> float:
        """The share of times that are far above their launch's median: on a quiet card there are hardly any.

        What disturbs the card delays all launches alike. A library that the CPU is slow to launch delays only its
        own (torch.compile: 4 to 5 % on an idle H200). So this is the median of the launches' shares, of two the
        lower one.
        """
        return statistics.median_low(
            sum(value > DISTURBED * statistics.median(times) for value in times) / len(times) for times in self.ms
        )


@dataclass(frozen=True)
class Timing:
    """A kernel next to its peer: medians in milliseconds; ``ratio`` is peer time over kernel time."""

    kernel_ms: float
    peer_ms: float
    ratio: float
    low: float
    high: float
    rounds: int
    clock: str
    overhead_ms: float
    disturbed: float
    notes: list[str] = field(default_factory=list)


def compare(
    kernel: Launch,
    peer: Launch,
    *,
    prepare: Launch,
    seconds: float,
    decided: Callable[[float, float], bool] = lambda low, high: True,
    after_batch: Callable[[int], None] = lambda rounds: None,
    sets: int = 1,
) -> Timing:
    """Times ``kernel(i)`` and ``peer(i)`` in turn, as ``interleave`` does.

    Ends when the 95 % interval of the ratio is within ±1 % and ``decided(low, high)`` says that it lies clear of
    what matters, or after ``seconds``.
    """

    def enough(samples: Samples) -> bool:
        ratio, low, high = samples.ratio(0, 1)
        return high - low <= 2 * HALF_WIDTH * ratio and decided(low, high)

    samples = interleave(
        (kernel, peer), prepare=prepare, seconds=seconds, enough=enough, after_batch=after_batch, sets=sets
    )
    ratio, low, high = samples.ratio(0, 1)
    return Timing(
        samples.median(0),
        samples.median(1),
        ratio,
        low,
        high,
        samples.rounds,
        samples.clock.value,
        samples.overhead_ms,
        samples.disturbed(),
        list(samples.notes),
    )


def interleave(
    launches: Sequence[Launch],
    *,
    prepare: Launch = lambda round_: None,
    seconds: float,
    enough: Callable[[Samples], bool] = lambda samples: True,
    after_batch: Callable[[int], None] = lambda rounds: None,
    sets: int = 1,
) -> Samples:
    """Times launches in turn, round by round.

    ``prepare(i)`` makes what round i needs (fresh outputs) and is not timed. ``after_batch(n)`` is called, with
    nothing running, after each batch of rounds; n rounds have been run then. Batches vary in length. Ends as soon
    as ``enough(samples)`` (asked after each batch, from LEAST_SECONDS and LEAST_ROUNDS on), or after ``seconds``
    of timing and FEWEST rounds. A launch must do the same for rounds that are equal modulo ``sets``.
    """
    loop = _Loop(tuple(launches), prepare, max(sets, 1))
    loop.warm_up(after_batch)
    spent = 0.0
    while True:
        start = time.monotonic()
        loop.batch()
        spent += time.monotonic() - start
        after_batch(loop.round)
        samples = loop.samples()
        if (spent > seconds and samples.rounds >= FEWEST) or samples.rounds >= MOST_ROUNDS:
            return samples
        if spent >= LEAST_SECONDS and samples.rounds >= LEAST_ROUNDS and enough(samples):
            return samples


class _Loop:
    """The state of one interleaved measurement."""

    def __init__(self, launches: tuple[Launch, ...], prepare: Launch, sets: int) -> None:
        self.launches = launches
        self.prepare = prepare
        self.sets = sets
        self.flush = _Flush()
        self.round = 0
        self.ms: tuple[list[float], ...] = tuple([] for _launch in launches)
        self.empty_ms: list[float] = []
        self.host: tuple[list[float], ...] = tuple([] for _launch in launches)
        self.clock = self.otherwise = Clock.EVENTS
        self.notes: list[str] = []
        self.seconds = BATCH_SECONDS  # that a round takes, by the wall clock: unknown yet, so begin with one

    def warm_up(self, after_batch: Callable[[int], None]) -> None:
        """Runs until the clock has settled; then chooses how to take time, and forgets what was measured."""
        start = time.monotonic()
        while time.monotonic() - start < WARM_UP:
            self.batch()
        after_batch(self.round)
        self._choose()
        self._forget()

    def _forget(self) -> None:
        for values in (*self.ms, *self.host):
            values.clear()
        self.empty_ms.clear()

    def _choose(self) -> None:
        device = [statistics.median(times) for times in self.ms]
        host = [statistics.median(times) for times in self.host]
        # Up to here the flush covers the CPU's time; beyond it the GPU waits, and events count the waiting.
        if any(h > d + self.flush.milliseconds for h, d in zip(host, device, strict=True)):
            self._capture_graphs()
        if min(device) < SHORT_MS:
            self._try_cupti()

    def _capture_graphs(self) -> None:
        try:
            graphs = [[_captured(launch, i) for i in range(self.sets)] for launch in self.launches]
        except RuntimeError as error:
            # What can't be captured (it allocates, or waits) is timed as before.
            torch.cuda.synchronize()
            self.notes.append(f"not as CUDA graphs: {first_line(error)[:200]}")
            return
        self.launches = tuple(_replay(of_launch) for of_launch in graphs)
        self.clock = Clock.GRAPH

    def _try_cupti(self) -> None:
        self.otherwise, self.clock = self.clock, Clock.CUPTI
        self.batch()

    def batch(self) -> None:
        usual = max(1, min(15, round(BATCH_SECONDS / self.seconds)))
        rounds = random.randint((usual + 1) // 2, usual)
        start = time.monotonic()
        try:
            if self.clock is Clock.CUPTI:
                self._batch_by_cupti(rounds)
            else:
                self._batch_by_events(rounds)
        except _NoCupti as error:
            # From now on as without it, and anew: what two clocks show is not put together.
            self.notes.append(f"not by CUPTI: {error}")
            self.clock = self.otherwise
            self._forget()
            self._batch_by_events(rounds)
        self.seconds = (time.monotonic() - start) / rounds

    def _batch_by_events(self, rounds: int) -> None:
        pairs: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = []
        empties = []
        for _ in range(rounds):
            self.prepare(self.round)
            pairs.append([None] * len(self.launches))
            for i in self._order():
                pairs[-1][i] = self._timed(i)
            empties.append(self._empty())
            self.round += 1
        torch.cuda.synchronize()
        self.empty_ms += [start.elapsed_time(end) for start, end in empties]
        overhead = statistics.median(self.empty_ms)
        for row in pairs:
            for times, (start, end) in zip(self.ms, row, strict=True):
                times.append(max(start.elapsed_time(end) - overhead, 1e-6))

    def _order(self) -> list[int]:
        """Who goes first changes, so that none always follows the same other."""
        order = list(range(len(self.launches)))
        shift = self.round % len(order)
        order = order[shift:] + order[:shift]
        return order if self.round // len(order) % 2 == 0 else order[::-1]

    def _timed(self, i: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.flush()
        start.record()
        begin = time.perf_counter()
        self.launches[i](self.round)
        self.host[i].append((time.perf_counter() - begin) * 1e3)
        end.record()
        return start, end

    def _empty(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        end.record()
        return start, end

    def _batch_by_cupti(self, rounds: int) -> None:
        from torch.profiler import ProfilerActivity, profile, record_function

        name = "tilelab launch {}".format
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(rounds):
                self.prepare(self.round)
                for i in self._order():
                    self.flush()
                    begin = time.perf_counter()
                    with record_function(name(i)):
                        self.launches[i](self.round)
                    self.host[i].append((time.perf_counter() - begin) * 1e3)
                self.round += 1
            torch.cuda.synchronize()
        found = [
            # What the card did within an annotated range, from its first kernel's start to its last one's end.
            [
                event.time_range.elapsed_us() / 1e3
                for event in profiler.events()
                if event.name == name(i) and event.device_type == torch.autograd.DeviceType.CUDA
            ]
            for i in range(len(self.launches))
        ]
        if any(len(times) != rounds for times in found):
            raise _NoCupti(f"{[len(times) for times in found]} of {rounds} launches were seen")
        for times, new in zip(self.ms, found, strict=True):
            times.extend(new)

    def samples(self) -> Samples:
        overhead = statistics.median(self.empty_ms) if self.empty_ms else 0.0
        host = tuple(statistics.median(times) for times in self.host)
        return Samples(self.ms, self.clock, overhead, host, tuple(self.notes))


class _NoCupti(RuntimeError):
    """The profiler did not see the launches."""


def _captured(launch: Launch, round_: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        launch(round_)
    return graph


def _replay(graphs: list[torch.cuda.CUDAGraph]) -> Launch:
    return lambda round_: graphs[round_ % len(graphs)].replay()


class _Flush:
    """Fills the L2 cache with other data: twice its size (and at least 256 MB: meanwhile the CPU queues).

    It reads. What a write leaves in the cache would have to be written back at the cost of the work that is timed:
    0.7 % of a vector add on an H200.
    """

    def __init__(self) -> None:
        l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.buffer = torch.zeros(max(2 * l2, 256 * 2**20) // 4, dtype=torch.float32, device="cuda")
        self.sink = torch.empty((), dtype=torch.float32, device="cuda")
        self.milliseconds = self._measured()

    def __call__(self) -> None:
        torch.amax(self.buffer, 0, out=self.sink)

    def _measured(self) -> float:
        pairs = []
        for _ in range(5):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self()
            start.record()
            self()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in pairs)


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median of a sorted sample, by order statistics: it assumes no distribution.

    The median lies below the j-th smallest of n values as often as fewer than j of n tossed coins show heads; j is
    the largest for which that, and so an error on either side, has a probability of at most 2.5 % (W. J. Conover,
    Practical Nonparametric Statistics, 3rd ed., section 3.2). ValueError for fewer than FEWEST values.
    """
    below = _outside(len(ordered))
    return ordered[below], ordered[-1 - below]


@cache
def _outside(n: int) -> int:
    """How many values on either side lie outside of the interval."""
    if n < FEWEST:
        raise ValueError(f"{n} values bound no median with 95 %")
    ways, tail, below = 1, 1, 0  # of n coins: how exactly, and how at most, ``below`` show heads
    while True:
        ways = ways * (n - below) // (below + 1)
        tail += ways
        if 40 * tail > 2**n:
            return below
        below += 1

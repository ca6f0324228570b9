"""What a card reaches with plain library calls: bandwidth by mix of reads and writes, matrix products by dtype,
and what a launch costs. For worker processes on the card.

A ceiling is the best median of a few calls and sizes, timed in turns with a cold L2 cache, as kernels are judged.
A mix has a ceiling of its own: on an H200 an add (two reads a write) moves more bytes a second than a copy.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from grader.gpu.timing import Launch, Samples, interleave, median_interval
from grader.messages.errors import first_line

Medians = Callable[[Sequence[Launch]], list[float]]
"""Times launches in turns: the median of each, in milliseconds."""

SECONDS = 4.0  # at most, for one interleaved loop
SETTLED = 0.005  # half width of a median's interval, relative to it, that is good enough
LARGEST_ARRAY, SMALLEST_ARRAY = 2**30, 2**24  # bytes; what stays in the L2 after a write must not count
SIZES = (4096, 8192)  # of matrix products
LAUNCHES, PAIRS = 1000, 10

#: dtype of the operands -> the oldest compute capability whose tensor cores take it.
CAPABILITY = {
    "float16": (7, 0),
    "bfloat16": (8, 0),
    "float32": (8, 0),  # as tf32
    "float8_e4m3fn": (8, 9),
    "int8": (7, 2),
}


@dataclass
class Measurement:
    """GB/s by mix, TFLOP/s by dtype, microseconds; ``lacking`` says why a dtype has no figure.

    ``array`` is the size in bytes of the arrays that were moved.
    """

    bandwidth: dict[str, float] = field(default_factory=dict)
    matmul: dict[str, float] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    array: int = 0
    launch_us: float = 0.0
    kernel_us: float = 0.0
    event_us: float = 0.0


def settled(samples: Samples) -> bool:
    """Is every launch's median known well enough?"""
    for launch, times in enumerate(samples.ms):
        low, high = median_interval(sorted(times))
        if high - low > 2 * SETTLED * samples.median(launch):
            return False
    return True


def medians(launches: Sequence[Launch]) -> list[float]:
    samples = interleave(launches, seconds=SECONDS, enough=settled)
    return [samples.median(i) for i in range(len(launches))]


def measure(say: Callable[[str], None] = lambda what: None) -> Measurement:
    """All ceilings of the current CUDA device; ``say`` is told what comes next.

    Raises torch.OutOfMemoryError if not even SMALLEST_ARRAY has room.
    """
    found = Measurement()
    say("bandwidth")
    found.bandwidth, found.array = bandwidth()
    for dtype in CAPABILITY:
        say(dtype)
        try:
            found.matmul[dtype] = matmul(dtype, torch.cuda.get_device_capability())
        except Lacking as error:
            found.lacking[dtype] = str(error)
    say("launch")
    found.launch_us, found.kernel_us, found.event_us = overheads()
    return found


# Moving bytes


def bandwidth(
    time_all: Medians = medians, device: str = "cuda", largest: int = LARGEST_ARRAY
) -> tuple[dict[str, float], int]:
    """(GB/s by mix, bytes of an array). Where memory is scarce the arrays are smaller."""
    size = largest
    while True:
        try:
            return _bandwidth(time_all, device, size), size
        except torch.OutOfMemoryError:
            if size // 2 < SMALLEST_ARRAY:
                raise
        size //= 2
        torch.cuda.empty_cache()


def _bandwidth(time_all: Medians, device: str, size: int) -> dict[str, float]:
    calls = list(_moves(size // 4, device))
    best: dict[str, float] = {}
    for (mix, arrays, _launch), ms in zip(calls, time_all([launch for *_names, launch in calls]), strict=True):
        best[mix] = max(best.get(mix, 0.0), arrays * size / ms / 1e6)
    return best


def _moves(count: int, device: str) -> Iterator[tuple[str, int, Launch]]:
    """(mix, how many arrays of ``count`` fp32 numbers are moved, call)."""
    a, b, c = (torch.randn(count, device=device) for _ in range(3))
    wide_a, wide_b, wide_c = (tensor.view(torch.float64) for tensor in (a, b, c))
    one, wide_one = (torch.empty((), dtype=dtype, device=device) for dtype in (torch.float32, torch.float64))
    yield "read", 1, lambda i: torch.amax(a, 0, out=one)
    yield "read", 1, lambda i: torch.amax(wide_a, 0, out=wide_one)
    yield "read", 1, lambda i: torch.sum(a, 0, out=one)
    yield "read", 2, lambda i: torch.dot(a, b, out=one)
    yield "fill", 1, lambda i: c.fill_(1.0)
    yield "fill", 1, lambda i: c.zero_()
    yield "copy", 2, lambda i: c.copy_(a)
    yield "copy", 2, lambda i: torch.neg(a, out=c)
    yield "copy", 2, lambda i: torch.neg(wide_a, out=wide_c)
    yield "add", 3, lambda i: torch.add(a, b, out=c)
    yield "add", 3, lambda i: torch.maximum(a, b, out=c)
    yield "add", 3, lambda i: torch.maximum(wide_a, wide_b, out=wide_c)


# Matrix products


class Lacking(RuntimeError):
    """The card or this installation has no such product: the message says why."""


def matmul(
    dtype: str,
    capability: tuple[int, int],
    time_all: Medians = medians,
    device: str = "cuda",
    sizes: tuple[int, ...] = SIZES,
) -> float:
    """TFLOP/s of the best call at the best size, of square operands of ``dtype``. Raises Lacking."""
    if capability < CAPABILITY[dtype]:
        major, minor = CAPABILITY[dtype]
        raise Lacking(f"needs compute capability {major}.{minor}, the card has {capability[0]}.{capability[1]}")
    calls: list[tuple[int, Launch]] = []
    lacking = ""
    with _tf32():
        for size in sizes:
            try:
                for launch in _products(dtype, size, device):
                    refused = _refused(launch)
                    if refused is None:
                        calls.append((size, launch))
                    else:
                        lacking = refused
            except torch.OutOfMemoryError:
                break
        if not calls:
            raise Lacking(lacking or "not enough memory")
        # Each size by itself: large products heat the card, and its clock then falls for the small ones, too.
        best = 0.0
        for size in dict.fromkeys(size for size, _launch in calls):
            times = time_all([launch for of_size, launch in calls if of_size == size])
            best = max(best, 2 * size**3 / min(times) / 1e9)
    return best


def _refused(launch: Launch) -> str | None:
    """Why a call can't run here; None if it can."""
    try:
        launch(0)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AttributeError) as error:
        return first_line(error)[:200]
    return None


def _products(dtype: str, size: int, device: str) -> Iterator[Launch]:
    """Calls for both layouts of B that libraries take; data as a kernel's: zeros would draw less power."""
    shape = (size, size)
    if dtype == "int8":
        a, b = (torch.randint(-128, 128, shape, dtype=torch.int8, device=device) for _ in range(2))
        yield lambda i: torch._int_mm(a, b.t())
        yield lambda i: torch._int_mm(a, b)
        return
    a, b = (torch.randn(shape, device=device).to(getattr(torch, dtype)) for _ in range(2))
    if dtype.startswith("float8"):
        one = torch.ones((), device=device)
        for fast in (True, False):
            yield lambda i, fast=fast: torch._scaled_mm(
                a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
            )
        return
    c = torch.empty(shape, dtype=a.dtype, device=device)
    yield lambda i: torch.matmul(a, b, out=c)
    yield lambda i: torch.matmul(a, b.t(), out=c)


@contextmanager
def _tf32() -> Iterator[None]:
    """fp32 products on tensor cores, as TileLang makes them."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# Launches


def overheads() -> tuple[float, float, float]:
    """In microseconds: the CPU's time for a launch, the card's for a tiny kernel, and that between two events."""
    tiny = torch.zeros(1, device="cuda")
    a_launch = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            tiny.add_(1.0)
        a_launch.append((time.perf_counter() - begin) / LAUNCHES)
        torch.cuda.synchronize()
    kernel_ms = medians([lambda i: tiny.add_(1.0)])[0]
    return min(a_launch) * 1e6, kernel_ms * 1e3, _between_events() * 1e3


def _between_events() -> float:
    """Milliseconds, with the card kept busy before: else it waits for the CPU between the two."""
    busy = torch.zeros(2**28, dtype=torch.uint8, device="cuda")
    found = []
    for _ in range(10):
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(PAIRS)]
        for event in (event for pair in pairs for event in pair):
            event.record()  # the first time it is created, which takes the CPU a while
        torch.cuda.synchronize()
        for value in range(4):
            busy.fill_(value)
        for start, end in pairs:
            start.record()
            end.record()
        torch.cuda.synchronize()
        found += [start.elapsed_time(end) for start, end in pairs]
    return statistics.median(found)

"""The state of a card while something is measured on it, by NVIDIA's management library (NVML).

Clock, temperature, what slows it down, and who else uses it. A figure that was taken while the card was slowed
down or shared says little about a kernel.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pynvml

from grader.messages import _

PERIOD = 0.05  # seconds between samples
BUSY = 1  # per cent of the card's time from which on another process counts

#: What slows a card down although the kernel does not ask for it. The power cap is missing on purpose: a dense
#: matrix product runs into it on many cards, and the peer in the same loop does, too.
SLOWDOWNS = {
    "nvmlClocksThrottleReasonHwSlowdown": _("the hardware slowed it down"),
    "nvmlClocksThrottleReasonHwThermalSlowdown": _("too hot (hardware)"),
    "nvmlClocksThrottleReasonSwThermalSlowdown": _("too hot (driver)"),
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": _("the power supply slowed it down"),
}


@dataclass(frozen=True)
class Sample:
    """The clock in MHz, temperature in °C, power in W, ``reasons`` as NVML's bits."""

    sm_mhz: int
    celsius: int
    watts: float
    reasons: int


@dataclass
class State:
    """What was seen in a span of time. ``slowed``: reasons; ``others``: processes that used the card meanwhile.

    ``present`` is how many other processes had the card open, at work or not: NVML's account of who works lags
    behind by up to a second. ``unknown`` names what NVML does not tell on this machine.
    """

    sm_mhz: tuple[int, int] = (0, 0)
    celsius: tuple[int, int] = (0, 0)
    watts: float = 0.0
    samples: int = 0
    slowed: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    present: int = 0
    unknown: list[str] = field(default_factory=list)


@contextmanager
def watched(uuid: str) -> Iterator[State]:
    """Samples the card of that UUID until the block ends; the State is filled in then. No NVML: it stays empty."""
    state = State()
    watcher = _Watcher(uuid)
    watcher.start()
    try:
        yield state
    finally:
        watcher.stop(state)


class _Watcher(threading.Thread):
    def __init__(self, uuid: str) -> None:
        super().__init__(daemon=True)
        self.uuid = uuid
        self.over = threading.Event()
        self.samples: list[Sample] = []
        self.unknown: set[str] = set()
        self.present = 0
        self.handle = None
        self.since = 0

    def run(self) -> None:
        while True:
            if self.handle is not None:
                self._sample()
            if self.over.wait(PERIOD):
                return

    def start(self) -> None:
        try:
            pynvml.nvmlInit()
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)
        except pynvml.NVMLError as error:
            self.unknown.add(str(error))
        self.since = int(time.time() * 1e6)
        super().start()

    def _sample(self) -> None:
        def ask(what: str, function, *arguments):
            try:
                return function(self.handle, *arguments)
            except pynvml.NVMLError as error:
                self.unknown.add(f"{what}: {error}")
                return 0

        self.samples.append(
            Sample(
                sm_mhz=ask("clock", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
                celsius=ask("temperature", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
                watts=ask("power", pynvml.nvmlDeviceGetPowerUsage) / 1000,
                reasons=ask("throttle reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons),
            )
        )

        running = ask("open by", pynvml.nvmlDeviceGetComputeRunningProcesses)
        if running:
            # In a container this process may have another number: one of them is it, then.
            own = sum(process.pid == os.getpid() for process in running) or 1
            self.present = max(self.present, len(running) - own)

    def stop(self, state: State) -> None:
        self.over.set()
        self.join()
        if self.handle is not None:
            self._others(state)
        state.present = self.present
        if self.samples:
            state.samples = len(self.samples)
            state.sm_mhz = _range(sample.sm_mhz for sample in self.samples)
            state.celsius = _range(sample.celsius for sample in self.samples)
            state.watts = max(sample.watts for sample in self.samples)
            seen = 0
            for sample in self.samples:
                seen |= sample.reasons
            state.slowed = [words for name, words in SLOWDOWNS.items() if seen & getattr(pynvml, name, 0)]
        state.unknown = sorted(self.unknown)

    def _others(self, state: State) -> None:
        """Other processes that ran on the card since ``since``.

        In a container processes may have other numbers here than for the driver: then the busiest is this one.
        """
        try:
            busy: dict[int, int] = {}
            for sample in pynvml.nvmlDeviceGetProcessUtilization(self.handle, self.since):
                busy[sample.pid] = max(busy.get(sample.pid, 0), sample.smUtil)
        except pynvml.NVMLError_NotFound:
            busy = {}  # no process was seen in that time
        except pynvml.NVMLError as error:
            self.unknown.add(f"processes: {error}")
            busy = {}
        own = os.getpid() if os.getpid() in busy else max(busy, key=busy.__getitem__, default=None)
        state.others = [
            _("process {pid} ({share} % of the card)").format(pid=pid, share=share)
            for pid, share in sorted(busy.items())
            if pid != own and share > BUSY
        ]


def _range(values) -> tuple[int, int]:
    values = list(values)
    return min(values), max(values)

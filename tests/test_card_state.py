"""What NVML says of a card during a measurement, with NVML played by a stand-in."""

import os
from types import SimpleNamespace

import pynvml
import pytest

from grader.gpu import state


@pytest.fixture
def nvml(monkeypatch):
    """A card of which the tests say what it answers."""
    card = SimpleNamespace(mhz=1900, celsius=50, watts=600_000, reasons=0, processes={}, open={}, fails=())

    def answers(name, value):
        def ask(*_arguments):
            if name in card.fails:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return value()

        monkeypatch.setattr(pynvml, name, ask)

    answers("nvmlInit", lambda: None)
    answers("nvmlDeviceGetHandleByUUID", lambda: "handle")
    answers("nvmlDeviceGetClockInfo", lambda: card.mhz)
    answers("nvmlDeviceGetTemperature", lambda: card.celsius)
    answers("nvmlDeviceGetPowerUsage", lambda: card.watts)
    answers("nvmlDeviceGetCurrentClocksThrottleReasons", lambda: card.reasons)
    samples = lambda: [SimpleNamespace(pid=pid, smUtil=share) for pid, share in card.processes.items()]  # noqa: E731
    answers("nvmlDeviceGetProcessUtilization", samples)
    answers("nvmlDeviceGetComputeRunningProcesses", lambda: [SimpleNamespace(pid=pid) for pid in card.open])
    return card


def seen() -> state.State:
    with state.watched("GPU-1") as found:
        pass
    return found


def test_a_quiet_card_has_nothing_to_tell(nvml):
    nvml.processes = {os.getpid(): 95}
    nvml.reasons = pynvml.nvmlClocksThrottleReasonSwPowerCap
    found = seen()
    assert found.slowed == found.others == found.unknown == []
    assert (found.sm_mhz, found.celsius, found.watts) == ((1900, 1900), (50, 50), 600.0)
    assert found.samples >= 1


@pytest.mark.parametrize("name", list(state.SLOWDOWNS))
def test_what_slows_the_card_is_told(nvml, name):
    nvml.reasons = getattr(pynvml, name) | pynvml.nvmlClocksThrottleReasonGpuIdle
    assert seen().slowed == [state.SLOWDOWNS[name]]


def test_another_process_at_work_is_told_and_an_idle_one_is_not(nvml):
    nvml.processes = {os.getpid(): 60, 7: 40, 8: 0}
    (other,) = seen().others
    assert "process 7 (40 %" in other


def test_in_a_container_the_busiest_is_this_one(nvml):
    nvml.processes = {700001: 60, 700002: 40}
    (other,) = seen().others
    assert "700002" in other


@pytest.mark.parametrize(
    ("processes", "present"), [([os.getpid()], 0), ([os.getpid(), 7], 1), ([700001, 700002, 700003], 2), ([], 0)]
)
def test_who_else_has_the_card_open_is_counted(nvml, processes, present):
    nvml.open = processes
    assert seen().present == present


def test_what_nvml_does_not_tell_is_unknown_and_no_fault(nvml):
    nvml.fails = ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetPowerUsage")
    found = seen()
    assert found.others == []
    assert [item.split(":")[0] for item in found.unknown] == ["power", "processes"]
    assert found.celsius == (50, 50)


def test_without_nvml_the_state_is_unknown(nvml):
    nvml.fails = ("nvmlInit",)
    found = seen()
    assert found.samples == 0
    assert found.unknown

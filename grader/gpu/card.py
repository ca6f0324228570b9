"""Which card is there, asked of NVML: that needs no CUDA context and works before torch is imported."""

from dataclasses import dataclass

import pynvml


@dataclass(frozen=True)
class Card:
    """A GPU: its name as the driver gives it, the driver's version, compute capability, bytes of memory."""

    name: str
    driver: str
    capability: tuple[int, int]
    memory: int


def find() -> Card | None:
    """The first CUDA card of this machine, or None: no driver, no card, or none that may be used."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        if pynvml.nvmlDeviceGetCount() == 0:
            return None
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return Card(
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            driver=_text(pynvml.nvmlSystemGetDriverVersion()),
            capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
            memory=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        )
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

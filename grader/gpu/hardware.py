"""The facts about this machine's GPU: driver, cards, torch's build, compiler; and whether a card can judge.

Facts are gathered without importing torch and without a CUDA context, so that asking costs milliseconds and a
broken installation can still be described. ``grader.doctor`` puts them into words.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

import pynvml

OLDEST_CAPABILITY = (7, 5)
"""Turing: the oldest whose tensor cores TileLang multiplies fp16 tiles on, and that CUDA 13 compiles for."""


@dataclass(frozen=True)
class Card:
    """``name`` as the driver gives it, ``memory`` in bytes, ``capability`` is CUDA's, e.g. (9, 0).

    ``uuid`` tells it from others of its name, and is what CUDA_VISIBLE_DEVICES takes. A slice of a divided card
    (MIG) is a card of its own, with a name and a UUID of its own.
    """

    name: str
    memory: int
    capability: tuple[int, int]
    uuid: str = ""

    @property
    def alone(self) -> dict[str, str]:
        """The environment of a process that is to see this card and no other, whatever their numbers are."""
        return {"CUDA_VISIBLE_DEVICES": self.uuid} if self.uuid else {}


@dataclass(frozen=True)
class Driver:
    """``cuda`` is the newest that the driver supports; ``error`` is its own message, if it doesn't answer.

    ``unsliced`` are the names of cards that are set to be divided (MIG) and have no slice, so that nothing can use
    them.
    """

    version: str = ""
    cuda: tuple[int, int] = (0, 0)
    cards: tuple[Card, ...] = ()
    error: str = ""
    unsliced: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiler:
    """nvcc. ``version`` is None if it doesn't run; then ``error`` says why."""

    path: str
    version: tuple[int, int] | None
    error: str = ""


@dataclass(frozen=True)
class Gpu:
    """All that decides whether a card can judge. ``driver`` is None without NVIDIA's driver library.

    ``torch_cuda`` is the CUDA that torch was built for; None for a CPU build or no torch. ``hidden`` is True if
    CUDA_VISIBLE_DEVICES hides every card; cards that it shows are the only ones in ``driver``.
    """

    driver: Driver | None
    torch_cuda: tuple[int, int] | None
    compiler: Compiler | None
    hidden: bool = False


def look() -> Gpu:
    driver = look_at_driver()
    cards = driver.cards if driver else ()
    shown = visible(cards, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if driver and shown:
        driver = replace(driver, cards=shown)
    return Gpu(
        driver=driver,
        torch_cuda=_cuda_of_torch(),
        compiler=look_at_compiler(),
        hidden=bool(cards) and not shown,
    )


def visible(cards: Sequence[Card], setting: str | None) -> tuple[Card, ...]:
    """The cards that CUDA_VISIBLE_DEVICES shows, in its order: numbers, or beginnings of UUIDs.

    As in CUDA, the list ends at the first entry that means no card.
    """
    if setting is None:
        return tuple(cards)
    shown: list[Card] = []
    for entry in map(str.strip, setting.split(",")):
        if entry.isdecimal():
            meant = cards[int(entry) : int(entry) + 1]
        else:
            meant = [card for card in cards if entry and card.uuid.startswith(entry)]
        if len(meant) != 1:
            break
        shown += meant
    return tuple(shown)


def look_at_driver() -> Driver | None:
    """What NVIDIA's management library says; None if the machine doesn't have that library."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return None
    except pynvml.NVMLError as error:
        return Driver(error=str(error))
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        # Of a divided card CUDA sees the slices only.
        cards = [tuple(_slices(handle)) if _divided(handle) else (_card(handle),) for handle in handles]
        return Driver(
            version=pynvml.nvmlSystemGetDriverVersion(),
            cuda=(cuda // 1000, cuda % 1000 // 10),
            cards=tuple(card for group in cards for card in group),
            unsliced=tuple(
                pynvml.nvmlDeviceGetName(handle) for handle, group in zip(handles, cards, strict=True) if not group
            ),
        )
    except pynvml.NVMLError as error:
        return Driver(error=str(error))
    finally:
        pynvml.nvmlShutdown()


def _card(handle: object) -> Card:
    return Card(
        name=pynvml.nvmlDeviceGetName(handle),
        memory=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        uuid=pynvml.nvmlDeviceGetUUID(handle),
    )


def _divided(handle: object) -> bool:
    """Is it divided into slices (MIG)?"""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return current == pynvml.NVML_DEVICE_MIG_ENABLE


def _slices(handle: object) -> Iterator[Card]:
    """A slice must not pass for the whole card: its name says what it is."""
    capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except pynvml.NVMLError_NotFound:
            continue
        name, memory = pynvml.nvmlDeviceGetName(part), pynvml.nvmlDeviceGetMemoryInfo(part).total
        if "MIG" not in name:
            name = f"{name} MIG {memory / 2**30:.0f}gb"
        yield Card(name, memory, capability, pynvml.nvmlDeviceGetUUID(part))


def _cuda_of_torch() -> tuple[int, int] | None:
    """The CUDA that torch was built for, read from its version file: importing torch would take seconds."""
    try:
        version_file = Path(str(importlib.metadata.distribution("torch").locate_file("torch/version.py")))
    except importlib.metadata.PackageNotFoundError:
        return None
    if not version_file.is_file():
        return None
    found = re.search(r"^cuda\b.*?=\s*['\"](\d+)\.(\d+)", version_file.read_text(), flags=re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def look_at_compiler() -> Compiler | None:
    """The nvcc that TileLang would take: it looks in the same places, in the same order."""
    path = _find_nvcc()
    if path is None:
        return None
    answer, error = ask([path, "--version"])
    found = re.search(r"release (\d+)\.(\d+)", answer)
    if found is None:
        return Compiler(path, None, error or answer.strip()[:200])
    return Compiler(path, (int(found[1]), int(found[2])))


def _find_nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return _executable(Path(home, "bin", "nvcc"))
    return shutil.which("nvcc") or _nvcc_of_wheel() or _executable(Path("/usr/local/cuda/bin/nvcc"))


def _nvcc_of_wheel() -> str | None:
    try:
        files = importlib.metadata.files("nvidia-cuda-nvcc") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == "nvcc"), None)


def _executable(path: Path) -> str | None:
    return str(path) if os.access(path, os.X_OK) else None


def ask(command: list[str]) -> tuple[str, str]:
    """(output, error): error is "" if the command ended well."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return done.stdout, "" if done.returncode == 0 else (done.stderr.strip() or f"exit status {done.returncode}")


# -- the decision -------------------------------------------------------------------------------------------


class Obstacle(Enum):
    """Why no card judges. ``grader.gpu.unfit`` puts it into words."""

    NO_DRIVER = auto()
    DRIVER_FAILS = auto()
    NO_CARD = auto()
    NO_SLICE = auto()
    HIDDEN = auto()
    OLD_CARD = auto()
    TORCH_WITHOUT_CUDA = auto()
    DRIVER_OLDER_THAN_TORCH = auto()
    NO_COMPILER = auto()
    COMPILER_FAILS = auto()
    DRIVER_OLDER_THAN_COMPILER = auto()


def judging_card(gpu: Gpu | None = None) -> Card | None:
    """The card that judges here; None if there is none that driver, torch and compiler can all use.

    Of several it is the first that is new enough. On a divided card (MIG) it is the first slice, under the slice's
    own name; a virtual card (vGPU) has a name of its own, too. A whole card's targets are meant for neither: their
    speed is not assessed until a teacher calibrates them.
    """
    gpu = gpu or look()
    return first_usable(gpu) if obstacle(gpu) is None else None


def obstacle(gpu: Gpu) -> Obstacle | None:
    """What keeps the cards of this machine from judging: the first thing that must be mended; None if nothing."""
    driver = gpu.driver
    if driver is None:
        return Obstacle.NO_DRIVER
    if driver.error:
        return Obstacle.DRIVER_FAILS
    if not driver.cards:
        return Obstacle.NO_SLICE if driver.unsliced else Obstacle.NO_CARD
    if gpu.hidden:
        return Obstacle.HIDDEN
    if first_usable(gpu).capability < OLDEST_CAPABILITY:
        return Obstacle.OLD_CARD
    if gpu.torch_cuda is None:
        return Obstacle.TORCH_WITHOUT_CUDA
    if gpu.torch_cuda[0] > driver.cuda[0]:
        return Obstacle.DRIVER_OLDER_THAN_TORCH
    if gpu.compiler is None:
        return Obstacle.NO_COMPILER
    if gpu.compiler.version is None:
        return Obstacle.COMPILER_FAILS
    if gpu.compiler.version[0] > driver.cuda[0]:
        return Obstacle.DRIVER_OLDER_THAN_COMPILER
    return None


def first_usable(gpu: Gpu) -> Card:
    """The first card that is new enough, else the first. ValueError if there is none."""
    if gpu.driver is None or not gpu.driver.cards:
        raise ValueError("there are no cards")
    cards = gpu.driver.cards
    return next((card for card in cards if card.capability >= OLDEST_CAPABILITY), cards[0])

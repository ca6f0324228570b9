"""The facts about this machine's GPU: driver, cards, torch's build, compiler; and whether a card can judge.

Facts are gathered without importing torch and without a CUDA context, so that asking costs milliseconds and a
broken installation can still be described. ``grader.doctor`` puts them into words.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pynvml

OLDEST_CAPABILITY = (8, 0)
"""Ampere: the first with the asynchronous copies and bf16 tensor cores that the labs' kernels use."""


@dataclass(frozen=True)
class Card:
    """``name`` as the driver gives it, ``memory`` in bytes, ``capability`` is CUDA's, e.g. (9, 0).

    ``uuid`` tells it from other cards, whatever their numbering.
    """

    name: str
    memory: int
    capability: tuple[int, int]
    uuid: str = ""


@dataclass(frozen=True)
class Driver:
    """``cuda`` is the newest that the driver supports; ``error`` is its own message, if it doesn't answer."""

    version: str = ""
    cuda: tuple[int, int] = (0, 0)
    cards: tuple[Card, ...] = ()
    error: str = ""


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
    CUDA_VISIBLE_DEVICES hides every card.
    """

    driver: Driver | None
    torch_cuda: tuple[int, int] | None
    compiler: Compiler | None
    hidden: bool = False


def look() -> Gpu:
    return Gpu(
        driver=look_at_driver(),
        torch_cuda=_cuda_of_torch(),
        compiler=look_at_compiler(),
        hidden=os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"),
    )


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
        return Driver(
            version=pynvml.nvmlSystemGetDriverVersion(),
            cuda=(cuda // 1000, cuda % 1000 // 10),
            cards=tuple(
                Card(
                    name=pynvml.nvmlDeviceGetName(handle),
                    memory=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                    capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
                    uuid=pynvml.nvmlDeviceGetUUID(handle),
                )
                for handle in handles
            ),
        )
    except pynvml.NVMLError as error:
        return Driver(error=str(error))
    finally:
        pynvml.nvmlShutdown()


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


def judging_card(gpu: Gpu | None = None) -> Card | None:
    """The card that judges here; None if there is none that driver, torch and compiler can all use."""
    gpu = gpu or look()
    if gpu.driver is None or gpu.driver.error or not gpu.driver.cards or gpu.hidden:
        return None
    if gpu.torch_cuda is None or gpu.compiler is None or gpu.compiler.version is None:
        return None
    newest = gpu.driver.cuda[0]
    if gpu.torch_cuda[0] > newest or gpu.compiler.version[0] > newest:
        return None
    return next((card for card in gpu.driver.cards if card.capability >= OLDEST_CAPABILITY), None)

"""Why no card judges on this machine, in a sentence, and what to do about it."""

from grader.gpu.hardware import OLDEST_CAPABILITY, Card, Gpu, Obstacle, first_usable, look, obstacle
from grader.messages import _
from grader.verdict import Finding, Unavailable

COMPILER_PACKAGES = "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl,nvrtc]==13.0.3.0"
"""CUDA's compiler as wheels, every part of the release that the locked torch's CUDA build asks for (another one
would replace torch's runtime); the Dockerfile installs the same."""

INSTALL_COMPILER = f'pip install "{COMPILER_PACKAGES}"'

FIRST_DRIVER = {12: "525", 13: "580"}
"""The first driver release for each CUDA major version on Linux (CUDA's release notes, minor version
compatibility): a driver runs every build of its own major version and of older ones."""


def why(gpu: Gpu | None = None) -> Finding | None:
    """The first thing that is in the way; None if a card can judge."""
    gpu = gpu or look()
    found = obstacle(gpu)
    return None if found is None else explain(found, gpu)


def needed(message: str, otherwise: str = "", gpu: Gpu | None = None) -> Card:
    """The card that judges here.

    Raises Unavailable if there is none: ``message``, why, what to do about it, and what to do ``otherwise``.
    """
    gpu = gpu or look()
    lacking = why(gpu)
    if lacking is None:
        return first_usable(gpu)
    raise Unavailable(Finding(f"{message} {lacking.message}", f"{lacking.advice} {otherwise}".strip()))


def explain(found: Obstacle, gpu: Gpu) -> Finding:
    """What ``hardware.obstacle(gpu)`` found, in words."""
    match found:
        case Obstacle.NO_DRIVER:
            return Finding(
                _("No NVIDIA driver on this machine."),
                _("If it has an NVIDIA GPU, install the driver, {first}.").format(first=_first_driver(gpu)),
            )
        case Obstacle.NO_CARD:
            return Finding(
                _("No NVIDIA GPU on this machine."),
                _("If it has one, 'nvidia-smi' should list it; a container must be given it ('--gpus all')."),
            )
    driver = gpu.driver
    assert driver is not None
    match found:
        case Obstacle.DRIVER_FAILS:
            return Finding(
                _("NVIDIA's driver library is here, but the driver doesn't answer ({error}).").format(
                    error=driver.error
                ),
                _("If this machine has a GPU, restart it or install the driver anew."),
            )
        case Obstacle.NO_SLICE:
            return Finding(
                _("The {card} is set to be divided (MIG) and has no slice.").format(card=driver.unsliced[0]),
                _("Make a slice, or switch that mode off: 'nvidia-smi mig' does both."),
            )
    card = first_usable(gpu)
    match found:
        case Obstacle.HIDDEN:
            return Finding(
                _("CUDA_VISIBLE_DEVICES hides the {card}.").format(card=card.name),
                _("Unset it to use the card."),
            )
        case Obstacle.OLD_CARD:
            return Finding(
                _("The {card} has compute capability {has}, and the labs' kernels need {wants} or newer.").format(
                    card=card.name, has=dotted(card.capability), wants=dotted(OLDEST_CAPABILITY)
                ),
                _("Cards from Turing on can judge (T4, RTX 20)."),
            )
        case Obstacle.TORCH_WITHOUT_CUDA:
            return Finding(
                _("There is a {card}, but torch is missing or built without CUDA.").format(card=card.name),
                _("To use the card, install torch's CUDA build in the version of requirements.lock."),
            )
        case Obstacle.DRIVER_OLDER_THAN_TORCH:
            return Finding(
                _("The NVIDIA driver {driver} supports CUDA {has}; torch was built for CUDA {wants}.").format(
                    driver=driver.version, has=dotted(driver.cuda), wants=_version(gpu.torch_cuda)
                ),
                _("Update the driver to {first}.").format(first=_first_driver(gpu)),
            )
        case Obstacle.NO_COMPILER:
            return Finding(
                _("CUDA's compiler nvcc was not found, and the card needs it."),
                _("Run '{install}'.").format(install=INSTALL_COMPILER),
            )
    compiler = gpu.compiler
    assert compiler is not None
    if found is Obstacle.COMPILER_FAILS:
        return Finding(
            _("CUDA's compiler {path} doesn't run ({error}).").format(path=compiler.path, error=compiler.error),
            _("Correct CUDA_HOME or PATH, or unset CUDA_HOME and run '{install}'.").format(
                install=INSTALL_COMPILER
            ),
        )
    return Finding(
        _("nvcc {nvcc} makes kernels that the driver {driver} can't run: it supports CUDA {has}.").format(
            nvcc=_version(compiler.version), driver=driver.version, has=dotted(driver.cuda)
        ),
        _("Update the driver, or point CUDA_HOME to an older CUDA."),
    )


def dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _version(version: tuple[int, int] | None) -> str:
    return "?" if version is None else dotted(version)


def _first_driver(gpu: Gpu) -> str:
    """Which driver runs what torch was built for."""
    major = gpu.torch_cuda[0] if gpu.torch_cuda else max(FIRST_DRIVER)
    if major in FIRST_DRIVER:
        return _("{first} or newer").format(first=FIRST_DRIVER[major])
    return _("one for CUDA {major}").format(major=major)

"""Can a card judge here? Driver, torch's build and the compiler must fit together; else the simulator judges."""

from grader.doctor.machine import Machine
from grader.doctor.report import Finding, Status
from grader.gpu.hardware import OLDEST_CAPABILITY, Card, Gpu, judging_card
from grader.messages import _

SIMULATOR = "simulator"

COMPILER_PACKAGES = "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl,nvrtc]==13.0.3.0"
"""CUDA's compiler as wheels, every part of the release that the locked torch's CUDA build asks for (another one
would replace torch's runtime); the Dockerfile installs the same."""

FIRST_DRIVER = {12: "525", 13: "580"}
"""The first driver release for each CUDA major version on Linux (CUDA's release notes, minor version
compatibility): a driver runs every build of its own major version and of older ones."""


def device(gpu: Gpu) -> str:
    """The card's name if a card can judge here, else "simulator"."""
    card = judging_card(gpu)
    return SIMULATOR if card is None else card.name


def driver(machine: Machine) -> Finding:
    return _driver(machine.gpu)


def compiler(machine: Machine) -> Finding:
    return _compiler(machine.gpu)


def _driver(gpu: Gpu) -> Finding:
    def found(status: Status, message: str, **values: str) -> Finding:
        return Finding("gpu", status, message.format(**values))

    if gpu.driver is None:
        return found(Status.NOTE, _("No NVIDIA driver on this machine, so the labs run on the simulator."))
    if gpu.driver.error:
        message = _(
            "NVIDIA's driver library is here, but the driver doesn't answer ({error}), so the labs run on "
            "the simulator. If this machine has a GPU, restart it or install the driver anew."
        )
        return found(Status.NOTE, message, error=gpu.driver.error)
    if not gpu.driver.cards:
        return found(Status.NOTE, _("No NVIDIA GPU on this machine, so the labs run on the simulator."))
    if gpu.hidden:
        message = _(
            "CUDA_VISIBLE_DEVICES hides the {card}, so the labs run on the simulator. Unset it to use the card."
        )
        return found(Status.NOTE, message, card=gpu.driver.cards[0].name)
    card = _first_usable(gpu)
    if card.capability < OLDEST_CAPABILITY:
        message = _(
            "The {card} has compute capability {has}, and the labs' kernels need {wants} or newer "
            "(Ampere), so the labs run on the simulator."
        )
        return found(
            Status.NOTE, message, card=card.name, has=_dotted(card.capability), wants=_dotted(OLDEST_CAPABILITY)
        )
    if gpu.torch_cuda is None:
        message = _(
            "There is a {card}, but torch is missing or built without CUDA, so the labs run on the "
            "simulator. To use the card, install torch's CUDA build in the version of requirements.lock."
        )
        return found(Status.NOTE, message, card=card.name)
    if gpu.driver.cuda[0] < gpu.torch_cuda[0]:
        message = _(
            "The NVIDIA driver {driver} supports CUDA up to {has}, and torch was built for CUDA {wants}: "
            "update the driver to {first} or newer; until then the labs run on the simulator."
        )
        return found(
            Status.PROBLEM,
            message,
            driver=gpu.driver.version,
            has=_dotted(gpu.driver.cuda),
            wants=_dotted(gpu.torch_cuda),
            first=FIRST_DRIVER.get(gpu.torch_cuda[0], _("one for CUDA {major}").format(major=gpu.torch_cuda[0])),
        )
    message = _("{card}, {memory} GiB, compute capability {capability}; driver {driver} for CUDA up to {cuda}.")
    return found(
        Status.OK,
        message,
        card=card.name,
        memory=f"{card.memory / 2**30:.0f}",
        capability=_dotted(card.capability),
        driver=gpu.driver.version,
        cuda=_dotted(gpu.driver.cuda),
    )


def _compiler(gpu: Gpu) -> Finding:
    """A missing compiler is a problem only where a card waits for it; the simulator needs none."""
    card_waits = _driver(gpu).status is Status.OK
    severity = Status.PROBLEM if card_waits else Status.NOTE
    install = f'pip install "{COMPILER_PACKAGES}"'
    if gpu.compiler is None:
        message = (
            _("CUDA's compiler nvcc was not found, and the card needs it: run '{install}'.")
            if card_waits
            else _(
                "CUDA's compiler nvcc was not found: kernels are simulated, not compiled. '{install}' brings it."
            )
        )
        return Finding("nvcc", severity, message.format(install=install))
    if gpu.compiler.version is None:
        message = _(
            "CUDA's compiler {path} doesn't run ({error}): correct CUDA_HOME or PATH, or unset CUDA_HOME "
            "and run '{install}'."
        )
        text = message.format(path=gpu.compiler.path, error=gpu.compiler.error, install=install)
        return Finding("nvcc", severity, text)
    if card_waits and gpu.driver is not None and gpu.compiler.version[0] > gpu.driver.cuda[0]:
        message = _(
            "nvcc {nvcc} makes kernels that the driver can't run (it supports CUDA up to {has}): update "
            "the driver, or point CUDA_HOME to an older CUDA."
        )
        text = message.format(nvcc=_dotted(gpu.compiler.version), has=_dotted(gpu.driver.cuda))
        return Finding("nvcc", Status.PROBLEM, text)
    message = _("nvcc {version} ({path}).")
    return Finding(
        "nvcc", Status.OK, message.format(version=_dotted(gpu.compiler.version), path=gpu.compiler.path)
    )


def _first_usable(gpu: Gpu) -> Card:
    """The card that judges: the first that is new enough, else the first. Call it only if there are cards."""
    assert gpu.driver is not None
    cards = gpu.driver.cards
    return next((card for card in cards if card.capability >= OLDEST_CAPABILITY), cards[0])


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"

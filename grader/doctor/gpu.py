"""Can a card judge here? Driver, torch's build and the compiler must fit together; else the simulator judges."""

from grader.doctor.machine import Machine
from grader.doctor.report import Finding, Status
from grader.gpu.hardware import Gpu, Obstacle, first_usable, judging_card, obstacle
from grader.gpu.unfit import INSTALL_COMPILER, dotted, explain
from grader.messages import _
from grader.verdict import SIMULATOR

COMPILER_OBSTACLES = (
    Obstacle.NO_COMPILER,
    Obstacle.COMPILER_FAILS,
    Obstacle.DRIVER_OLDER_THAN_COMPILER,
)


def device(gpu: Gpu) -> str:
    """The card's name if a card can judge here, else "simulator"."""
    card = judging_card(gpu)
    return SIMULATOR if card is None else card.name


def driver(machine: Machine) -> Finding:
    gpu, found = machine.gpu, obstacle(machine.gpu)
    if found is not None and found not in COMPILER_OBSTACLES:
        # Only an old driver is for the reader to mend: the other machines are fit as they are.
        status = Status.PROBLEM if found is Obstacle.DRIVER_OLDER_THAN_TORCH else Status.NOTE
        return Finding("gpu", status, f"{_words(found, gpu)} {_('Here the labs run on the simulator.')}")
    card = first_usable(gpu)
    assert gpu.driver is not None
    message = _("{card}, {memory} GiB, compute capability {capability}; driver {driver} for CUDA up to {cuda}.")
    return Finding(
        "gpu",
        Status.OK,
        message.format(
            card=card.name,
            memory=f"{card.memory / 2**30:.0f}",
            capability=dotted(card.capability),
            driver=gpu.driver.version,
            cuda=dotted(gpu.driver.cuda),
        ),
    )


def compiler(machine: Machine) -> Finding:
    """A missing compiler is a problem only where a card waits for it; the simulator needs none."""
    gpu, found = machine.gpu, obstacle(machine.gpu)
    if found in COMPILER_OBSTACLES:
        return Finding("nvcc", Status.PROBLEM, _words(found, gpu))
    if gpu.compiler is None:
        message = _(
            "CUDA's compiler nvcc was not found: kernels are simulated, not compiled. '{install}' brings it."
        )
        return Finding("nvcc", Status.NOTE, message.format(install=INSTALL_COMPILER))
    if gpu.compiler.version is None:
        return Finding("nvcc", Status.NOTE, _words(Obstacle.COMPILER_FAILS, gpu))
    text = _("nvcc {version} ({path}).").format(version=dotted(gpu.compiler.version), path=gpu.compiler.path)
    return Finding("nvcc", Status.OK, text)


def _words(found: Obstacle, gpu: Gpu) -> str:
    said = explain(found, gpu)
    return f"{said.message} {said.advice}"

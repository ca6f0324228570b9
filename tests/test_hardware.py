"""Machines that aren't there: which card judges on them, and what is said where none does."""

from dataclasses import replace

import pynvml
import pytest
from kernels import capture_of, vector_add

from grader import catalog
from grader.autograders import judge_capture
from grader.autograders import run as autograder
from grader.classroom import grade as classroom
from grader.gpu import hardware, targets, unfit
from grader.gpu.hardware import Card, Compiler, Driver, Gpu, Obstacle, judging_card, obstacle
from grader.judge.submission import Submission
from grader.verdict import Outcome, Unavailable

H200 = Card("NVIDIA H200", 140 * 2**30, (9, 0), "GPU-aaaa")
T4 = Card("Tesla T4", 15 * 2**30, (7, 5), "GPU-bbbb")
V100 = Card("Tesla V100", 16 * 2**30, (7, 0), "GPU-cccc")
DRIVER = Driver("580.1", (13, 0), (H200,))
FIT = Gpu(DRIVER, torch_cuda=(13, 0), compiler=Compiler("/nvcc", (13, 0)))

POOR = {
    Obstacle.NO_DRIVER: (replace(FIT, driver=None), "No NVIDIA driver", "install the driver, 580 or newer"),
    Obstacle.DRIVER_FAILS: (
        replace(FIT, driver=Driver(error="Driver/library version mismatch")),
        "the driver doesn't answer (Driver/library version mismatch)",
        "restart it",
    ),
    Obstacle.NO_CARD: (replace(FIT, driver=replace(DRIVER, cards=())), "No NVIDIA GPU", "nvidia-smi"),
    Obstacle.NO_SLICE: (
        replace(FIT, driver=replace(DRIVER, cards=(), unsliced=("NVIDIA H200",))),
        "The NVIDIA H200 is set to be divided (MIG) and has no slice.",
        "nvidia-smi mig",
    ),
    Obstacle.HIDDEN: (replace(FIT, hidden=True), "CUDA_VISIBLE_DEVICES hides the NVIDIA H200.", "Unset it"),
    Obstacle.OLD_CARD: (
        replace(FIT, driver=replace(DRIVER, cards=(V100,))),
        "The Tesla V100 has compute capability 7.0, and the labs' kernels need 7.5 or newer.",
        "Turing",
    ),
    Obstacle.TORCH_WITHOUT_CUDA: (
        replace(FIT, torch_cuda=None),
        "There is a NVIDIA H200, but torch is missing or built without CUDA.",
        "install torch's CUDA build",
    ),
    Obstacle.DRIVER_OLDER_THAN_TORCH: (
        replace(FIT, driver=replace(DRIVER, version="525.60", cuda=(12, 0))),
        "The NVIDIA driver 525.60 supports CUDA 12.0; torch was built for CUDA 13.0.",
        "Update the driver to 580 or newer.",
    ),
    Obstacle.NO_COMPILER: (replace(FIT, compiler=None), "nvcc was not found", unfit.COMPILER_PACKAGES),
    Obstacle.COMPILER_FAILS: (
        replace(FIT, compiler=Compiler("/nvcc", None, "no such file")),
        "nvcc doesn't run (no such file)",
        "CUDA_HOME",
    ),
    Obstacle.DRIVER_OLDER_THAN_COMPILER: (
        replace(FIT, compiler=Compiler("/nvcc", (14, 0))),
        "nvcc 14.0 makes kernels that the driver 580.1 can't run: it supports CUDA 13.0.",
        "point CUDA_HOME to an older CUDA",
    ),
}
EACH = pytest.mark.parametrize(("gpu", "says", "advice"), POOR.values(), ids=[o.name.lower() for o in POOR])


def on(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    """This machine's facts are others."""
    monkeypatch.setattr(hardware, "look", lambda: gpu)
    monkeypatch.setattr(unfit, "look", lambda: gpu)


def test_every_obstacle_is_simulated():
    assert set(POOR) == set(Obstacle)
    for found, (gpu, *_words) in POOR.items():
        assert obstacle(gpu) is found
        assert judging_card(gpu) is None
    assert obstacle(FIT) is None
    assert unfit.why(FIT) is None
    assert judging_card(FIT) == H200


@EACH
def test_what_is_missing_is_one_sentence_with_what_to_do(gpu, says, advice):
    finding = unfit.why(gpu)
    assert says in finding.message
    assert finding.message.endswith(".")
    assert advice in finding.advice


@EACH
def test_a_gpu_run_is_refused_before_anything_is_run_with_the_reason(monkeypatch, gpu, says, advice):
    on(monkeypatch, gpu)
    with pytest.raises(Unavailable) as error:
        judge_capture(capture_of("lab01_vector_add", vector_add), device="gpu")
    assert "There is no GPU here that could judge." in error.value.finding.message
    assert says in error.value.finding.message
    assert advice in error.value.finding.advice
    with pytest.raises(Unavailable) as error:
        classroom.grade(None, "lab01_vector_add", device="gpu")
    assert says in error.value.finding.message


@EACH
def test_speed_is_not_assessed_and_says_why(gpu, says, advice):
    capture = capture_of("lab01_vector_add", vector_add)
    judged = Submission(capture, catalog.find("lab01_vector_add"), None, "seed", unfit.why(gpu))
    assessment = judged.fast("vector_add")
    assert assessment.outcome is Outcome.NOT_ASSESSED
    assert says in assessment.findings[0].message
    assert advice in assessment.findings[0].advice


def test_a_simulated_run_that_was_asked_for_says_so():
    capture = capture_of("lab01_vector_add", vector_add)
    assessment = Submission(capture, catalog.find("lab01_vector_add"), None, "seed").fast("vector_add")
    assert assessment.outcome is Outcome.NOT_ASSESSED
    assert "on the simulator" in assessment.findings[0].message


@pytest.mark.skipif(judging_card() is not None, reason="there is a card here")
@pytest.mark.parametrize("device", ["auto", "sim"])
def test_the_reason_gets_into_the_verdict(device):
    verdict = judge_capture(capture_of("lab01_vector_add", vector_add), device=device, part="fast")
    (check,) = verdict.checks
    assert check.outcome is Outcome.NOT_ASSESSED
    expected = unfit.why().message if device == "auto" else "This was judged on the simulator."
    assert expected in check.findings[0].message


def test_a_slip_in_the_teachers_targets_is_told_before_a_run_on_a_card(monkeypatch, tmp_path):
    on(monkeypatch, FIT)
    (tmp_path / "mine.toml").write_text("card = 3\n")
    monkeypatch.setenv(targets.FILE_VARIABLE, str(tmp_path / "mine.toml"))
    with pytest.raises(Unavailable, match=r"mine\.toml: card: Extra inputs"):
        autograder.must_have("auto")
    autograder.must_have("sim")


def test_a_t4_judges_and_an_older_card_does_not():
    assert judging_card(replace(FIT, driver=replace(DRIVER, cards=(T4,)))) == T4
    assert judging_card(replace(FIT, driver=replace(DRIVER, cards=(V100, T4, H200)))) == T4


# Which cards there are


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (None, (H200, T4)),
        ("", ()),
        ("-1", ()),
        ("1", (T4,)),
        ("1,0", (T4, H200)),
        ("GPU-bb", (T4,)),
        (" GPU-aaaa , 1", (H200, T4)),
        ("0,7,1", (H200,)),
        ("GPU-x", ()),
        ("GPU-", ()),
        ("NoDevFiles", ()),
    ],
)
def test_the_cards_that_the_environment_shows(setting, shown):
    assert hardware.visible((H200, T4), setting) == shown


class Nvml:
    """A driver with these cards: {index: fields}; a slice has an index of its own, beyond the cards'."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, count: int, divided: dict[int, list[int]], names: dict
    ) -> None:
        self.divided, self.names = divided, names
        functions = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 12040,
            "nvmlSystemGetDriverVersion": lambda: "550.54.15",
            "nvmlDeviceGetCount": lambda: count,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda handle: names[handle],
            "nvmlDeviceGetMemoryInfo": lambda handle: type("Memory", (), {"total": H200.memory}),
            "nvmlDeviceGetCudaComputeCapability": lambda handle: [9, 0],
            "nvmlDeviceGetUUID": lambda handle: f"UUID-{handle}",
            "nvmlDeviceGetMigMode": self.mode,
            "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": self.part,
        }
        for name, function in functions.items():
            monkeypatch.setattr(pynvml, name, function)

    def mode(self, handle: int) -> list[int]:
        if not self.divided:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(handle in self.divided), 0]

    def part(self, handle: int, number: int) -> int:
        if number >= len(self.divided[handle]):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.divided[handle][number]


def test_the_driver_is_read_in_full(monkeypatch):
    Nvml(monkeypatch, 1, {}, {0: "NVIDIA H200"})
    card = Card("NVIDIA H200", H200.memory, (9, 0), "UUID-0")
    assert hardware.look_at_driver() == Driver("550.54.15", (12, 4), (card,))


def test_slices_of_a_divided_card_are_cards_of_their_own_name(monkeypatch):
    names = {0: "NVIDIA H200", 1: "NVIDIA H200", 10: "NVIDIA H200 MIG 1g.18gb", 11: "NVIDIA H200"}
    Nvml(monkeypatch, 2, {0: [10, 11]}, names)
    found = hardware.look_at_driver()
    assert [card.name for card in found.cards] == [
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA H200 MIG 140gb",
        "NVIDIA H200",
    ]
    assert [card.uuid for card in found.cards] == ["UUID-10", "UUID-11", "UUID-1"]
    assert found.unsliced == ()
    # The whole card's targets are not a slice's.
    card = judging_card(replace(FIT, driver=replace(found, cuda=(13, 0))))
    assert targets.of_card(card.name) == ()


def test_a_divided_card_without_slices_is_none(monkeypatch):
    Nvml(monkeypatch, 1, {0: []}, {0: "NVIDIA H200"})
    assert hardware.look_at_driver() == Driver("550.54.15", (12, 4), (), unsliced=("NVIDIA H200",))


def test_an_error_of_the_driver_midway_is_kept(monkeypatch):
    Nvml(monkeypatch, 1, {}, {0: "NVIDIA H200"})

    def lost(_handle):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lost)
    assert hardware.look_at_driver() == Driver(error="GPU is lost")


def test_what_the_environment_hides_is_seen(monkeypatch):
    Nvml(monkeypatch, 2, {}, {0: "NVIDIA H200", 1: "Tesla T4"})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = hardware.look()
    assert ([card.name for card in found.driver.cards], found.hidden) == (["Tesla T4"], False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert hardware.look().hidden
    assert obstacle(replace(FIT, driver=hardware.look().driver, hidden=True)) is Obstacle.HIDDEN

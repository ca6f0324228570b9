"""The judge's side of the card: what a worker reports, and what is said when it dies."""

from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from kernels import capture_of, json_of, vector_add

from grader import catalog
from grader.admit import admit
from grader.catalog import Group, Shape
from grader.gpu import compiler, hardware, targets
from grader.gpu.hardware import Card, Compiler, Driver, Gpu
from grader.gpu.state import State
from grader.judge import launching, on_card
from grader.judge.launching import refusal, told
from grader.judge.outcome import Broke, Ran
from grader.judge.submission import Submission
from grader.judge.tasks import find
from grader.judge.worker_process import Ending
from grader.verdict import Finding, JudgeFailed, Outcome

LAB = catalog.find("lab01_vector_add")
KERNEL = LAB.kernel("vector_add")
ONE, MANY, LARGE = KERNEL.shape("one tile"), KERNEL.shape("many tiles"), KERNEL.shape("large")
ODD, TAIL = KERNEL.group(Group.TAILS)[:2]
FURTHER = Shape("further tiles", {"N": 8192}, Group.TILES, hidden=True)
TASK = find(LAB.id, "vector_add")
H200 = Card("NVIDIA H200", 141 * 2**30, (9, 0))


def session(tmp_path, *lines: dict, ending: Ending | None = None) -> on_card.Session:
    """What is made of a worker's report, and of its end."""
    torch.save(torch.ones(4), tmp_path / "x.pt")
    found = on_card.Session()
    for line in lines:
        on_card.read(line, tmp_path, found)
    on_card.end(found, ending or Ending(0, ""))
    return found


RAN = {"ran": ONE.name, "file": "x.pt"}
LAUNCHING = {"phase": "launching", "limit": 10.0, "shape": MANY.name}
PREPARING = {"phase": "preparing", "limit": 300.0}
DONE = {"done": True}
TIMED = {
    "timed": {
        "kernel_ms": 0.735,
        "peer_ms": 0.737,
        "ratio": 1.002,
        "low": 1.001,
        "high": 1.003,
        "rounds": 200,
        "clock": "CUDA events",
        "overhead_ms": 0.001,
        "disturbed": 0.0,
        "notes": [],
        "peer": "torch.add",
        "checked": 4,
    },
    "state": asdict(State(sm_mhz=(1900, 1980), celsius=(40, 45), watts=500.0, samples=10)),
    "shape": LARGE.name,
}
ROW = targets.find(LAB.id, "vector_add", LARGE.name, H200.name)


def speed(found: on_card.Session, target=ROW):
    return on_card.fast(found, TASK, LARGE, target)


def test_results_come_back_by_shape(tmp_path):
    found = session(tmp_path, RAN, TIMED, DONE)
    (result,) = found.results(ONE)
    assert isinstance(result, Ran)
    assert torch.equal(result.output, torch.ones(4))


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending(-9, "", late=LAUNCHING), f"did not end on the card within 10 s (at {MANY.name})"),
        (Ending(1, "CUDA error: an illegal memory access was encountered"), "illegal memory access"),
        (Ending(1, "CUDA error: out of memory"), "had no memory left"),
        (Ending(-11, ""), "ended the process that ran it (status -11)"),
        (Ending(1, "x\nAcceleratorError: CUDA error: what it says\n\n"), "CUDA error: what it says"),
    ],
)
def test_a_kernel_that_ends_its_worker_leaves_what_was_there_and_a_reason(tmp_path, ending, words):
    found = session(tmp_path, PREPARING, RAN, LAUNCHING, ending=ending)
    assert isinstance(found.results(ONE)[0], Ran)
    (broke,) = found.results(MANY)
    assert isinstance(broke, Broke)
    assert words in broke.finding.message
    assessment = speed(found)
    assert assessment.outcome is Outcome.FAILED
    assert words in assessment.findings[0].message


@pytest.mark.parametrize(
    ("phase", "ending"),
    [
        (PREPARING, Ending(1, "TypeError: ours")),
        (PREPARING, Ending(-9, "", late=PREPARING)),
        (LAUNCHING, Ending(1, "TypeError: ours")),
        (LAUNCHING, Ending(1, "CUDA error: uncorrectable ECC error encountered")),
        (PREPARING, Ending(1, "CUDA error: an illegal memory access was encountered")),
    ],
)
def test_what_no_kernel_causes_is_our_fault_or_the_machines(tmp_path, phase, ending):
    with pytest.raises(JudgeFailed):
        session(tmp_path, phase, ending=ending)


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        ([{"lacking": "The card has 3.0 GiB of free memory.", "advice": "End what else uses it."}, DONE], None),
        ([PREPARING], Ending(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3 GiB")),
    ],
)
def test_too_little_memory_for_the_judges_own_tensors_is_not_assessed(tmp_path, lines, ending):
    assessment = speed(session(tmp_path, RAN, *lines, ending=ending))
    assert assessment.outcome is Outcome.NOT_ASSESSED
    assert "free memory" in assessment.findings[0].message
    assert assessment.findings[0].advice


def test_a_launchers_refusal_keeps_its_reason_and_an_exhausted_memory_is_said_plainly():
    full = refusal(RuntimeError("CUDALaunch Error: CUDA_ERROR_OUT_OF_MEMORY\n grid=(262144,1,1)\n"))
    assert "local memory" in full.message
    assert "CUDA_ERROR_OUT_OF_MEMORY" in full.evidence[0]
    other = refusal(RuntimeError("CUDALaunch Error: CUDA_ERROR_INVALID_VALUE\n grid=(1,1,1)\n"))
    assert "CUDA_ERROR_INVALID_VALUE grid=(1,1,1)" in other.message
    assert "KeyError" in refusal(KeyError()).message


def test_too_large_tiles_are_told_with_the_cards_limit_and_what_to_lower(monkeypatch):
    """The words are TVM's, where the driver refuses: for lab 02's schedule on an RTX 4090."""
    monkeypatch.setattr(launching, "_most_shared", lambda: 99 * 1024)
    refused = refusal(RuntimeError("Failed to set the allowed dynamic shared memory size to 147456"))
    assert "144 KiB" in refused.message
    assert "99 KiB" in refused.message
    assert "num_stages" in refused.advice


@pytest.mark.gpu
def test_the_cards_limit_is_known():
    assert launching._most_shared() >= 48 * 1024


def test_a_problem_belongs_to_its_shape(tmp_path):
    problem = asdict(Finding("It can't be launched.", evidence=("why",)))
    found = session(tmp_path, {"problem": problem, "shape": MANY.name}, RAN, TIMED, DONE)
    assert found.problem(ONE) is None
    assert found.results(MANY)[0].finding == Finding("It can't be launched.", evidence=("why",))


def test_no_measurement_and_no_reason_is_a_fault_of_ours(tmp_path):
    with pytest.raises(JudgeFailed, match="measured nothing"):
        speed(session(tmp_path, RAN, DONE))


FAMILIES = len(TASK.families)
RAN_ALL = {"ran_all": ONE.name}


def test_a_kernel_that_breaks_on_its_second_inputs_is_at_fault_at_that_shape(tmp_path):
    """An endless loop that only some values enter: the first inputs' result is there, the others' are not."""
    late = {"phase": "launching", "limit": 10.0, "shape": ONE.name}
    found = session(tmp_path, RAN, late, ending=Ending(-9, "", late=late))
    first, broke = found.results(ONE)
    assert isinstance(first, Ran)
    assert "did not end" in broke.finding.message
    later = session(tmp_path, *[RAN] * FAMILIES, RAN_ALL, late, ending=Ending(-9, "", late=late))
    assert later.problem(ONE) is None


@pytest.mark.parametrize("ran", [0, 1])
def test_where_the_judges_tensors_had_no_room_a_shape_is_not_assessed(tmp_path, monkeypatch, ran):
    """At the untimed shapes as well: neither the kernel's fault nor ours."""
    out = Ending(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3 GiB")
    judged = Submission(capture_of(LAB.id, vector_add), LAB, H200, "seed")
    right = torch.add(*judged._inputs(TASK, TASK.families[0], ONE))
    found = session(tmp_path, PREPARING, ending=out)
    if ran:
        found.ran[ONE.name] = [Ran(right)]
    monkeypatch.setattr(judged, "_session", lambda name: found)
    assessment = judged.correct("vector_add", ONE.group)
    assert assessment.outcome is Outcome.NOT_ASSESSED
    assert "free memory" in assessment.findings[0].message


def test_torchs_own_allocations_are_ours_in_the_middle_of_timing_too(tmp_path):
    timing = {"phase": "timing", "limit": 84.0}
    out = Ending(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3 GiB")
    assert speed(session(tmp_path, RAN, timing, ending=out)).outcome is Outcome.NOT_ASSESSED


def test_no_word_of_a_hidden_shape_reaches_those_that_everybody_sees(tmp_path):
    """A kernel that hangs at a hidden shape is found wanting at the later ones, too, and at the timed one."""
    secret = Shape("further tail", {"N": 12_289}, MANY.group, hidden=True)
    assert told(MANY) == MANY.name
    late = LAUNCHING | {"shape": told(secret)}
    found = session(tmp_path, PREPARING, late, ending=Ending(-9, "", late=late))
    said = found.problem(MANY).message + speed(found).findings[0].message
    assert "did not end" in said
    assert secret.name not in said
    assert "12289" not in said
    row = on_card._job(LAB, TASK, [secret], {secret.name: "x.so"}, "seed", H200, {})["shapes"][0]
    assert row["hidden"]


def test_a_card_without_a_target_is_not_assessed_and_still_shown(tmp_path):
    assessment = speed(session(tmp_path, RAN, TIMED, DONE), target=None)
    assert assessment.outcome is Outcome.NOT_ASSESSED
    assert "calibrate" in assessment.findings[0].advice
    assert assessment.figures[0].achieved == pytest.approx(3 * 4 * 2**28 / 0.735e-3 / 1e9)


def test_a_measured_kernel_is_decided_by_ratio_and_calibrated_peer(tmp_path):
    assessment = speed(session(tmp_path, RAN, TIMED, DONE))
    assert assessment.outcome is Outcome.PASSED
    assert assessment.figures[0].decided == pytest.approx(1.002 * ROW.peer_rate)
    assert assessment.figures[0].ratio_low < 1.001
    assert assessment.figures[0].ratio_high > 1.003
    assert "1900–1980 MHz" in assessment.figures[0].card_state


def timed(ratio=0.9, **more):
    return {"timed": TIMED["timed"] | {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01} | more}


def test_an_inconclusive_measurement_is_repeated_by_itself(tmp_path, monkeypatch):
    """The first is too noisy, the second is not; each has a process of its own, and the second more time."""
    noisy = timed(ROW.full / ROW.peer_rate) | {"state": TIMED["state"], "shape": LARGE.name}
    workers = Workers([noisy], [TIMED])
    found = workers.launch(monkeypatch)
    assert found.timings[LARGE.name].tries == 2
    assert speed(found).outcome is Outcome.PASSED
    assert [job["seconds"] for job in workers.jobs] == [8.0, 16.0]
    assert [[row["name"] for row in job["shapes"]] for job in workers.jobs[1:]] == [[LARGE.name]]


def test_what_stays_inconclusive_is_said_with_its_reasons(monkeypatch):
    shared = TIMED | {"state": asdict(State(samples=10, others=["process 7 (50 % of the card)"]))}
    shared = shared | timed(0.99, kernel_ms=2.0)
    workers = Workers([shared], [shared])
    found = workers.launch(monkeypatch)
    assert found.timings[LARGE.name].tries == 2
    assessment = speed(found)
    assert assessment.outcome is Outcome.INCONCLUSIVE
    assert any("process 7" in item for item in assessment.findings[0].evidence)
    assert "measured 2 times" in assessment.findings[0].evidence


def test_a_kernel_that_ends_its_process_is_still_tried_at_the_shapes_of_other_groups(tmp_path, monkeypatch):
    """Wrong tails cost neither the points for whole tiles, which an official run comes to later, nor speed."""
    torch.save(torch.ones(4), tmp_path / "x.pt")
    late = LAUNCHING | {"shape": ODD.name}
    first = [{"begun": ONE.name}, *[RAN] * FAMILIES, RAN_ALL, {"begun": ODD.name}, late]
    second = [{"begun": FURTHER.name}, *[RAN | {"ran": FURTHER.name}] * FAMILIES, {"ran_all": FURTHER.name}]
    second += [{"begun": LARGE.name}, TIMED, DONE]
    workers = Workers(runs=[(first, Ending(-9, "", late=late)), (second, Ending(0, ""))])
    workers.folder = tmp_path
    found = workers.launch(monkeypatch, shapes=(ONE, ODD, TAIL, FURTHER, LARGE))
    assert [{row["name"] for row in job["shapes"]} for job in workers.jobs[1:]] == [{FURTHER.name, LARGE.name}]
    for whole in (ONE, FURTHER):
        assert found.problem(whole) is None
        assert len(found.results(whole)) == FAMILIES
    for tail in (ODD, TAIL):
        assert "did not end" in found.problem(tail).message
    assert speed(found).outcome is Outcome.PASSED


def test_a_kernel_that_always_ends_its_process_is_tried_once_for_each_group(monkeypatch):
    runs = []
    for shape in (ONE, ODD, LARGE):
        lines = [{"begun": shape.name}, LAUNCHING]
        runs.append((lines, Ending(1, "CUDA error: an illegal memory access was encountered")))
    workers = Workers(runs=runs)
    found = workers.launch(monkeypatch, shapes=(ONE, ODD, TAIL, FURTHER, LARGE))
    assert len(workers.jobs) == 3
    for shape in (ONE, ODD, TAIL, FURTHER, LARGE):
        assert "illegal memory access" in found.problem(shape).message
    assert speed(found).outcome is Outcome.FAILED


def test_a_kernel_that_never_ends_is_tried_at_two_groups(monkeypatch):
    runs = []
    for shape in (ONE, ODD):
        late = LAUNCHING | {"shape": shape.name}
        runs.append(([{"begun": shape.name}, late], Ending(-9, "", late=late)))
    workers = Workers(runs=runs)
    found = workers.launch(monkeypatch, shapes=(ONE, ODD, TAIL, FURTHER, LARGE))
    assert len(workers.jobs) == 2
    for shape in (ONE, ODD, TAIL, FURTHER, LARGE):
        assert "did not end" in found.problem(shape).message
    assert speed(found).outcome is Outcome.FAILED


class Workers:
    """Stands in for the processes on the card: each reports the lines of the next of ``timings``, or of ``runs``.

    A run has its ending beside its lines.
    """

    def __init__(self, *timings, runs=()):
        self.runs = [([*lines, DONE], Ending(0, "")) for lines in timings] + list(runs)
        self.jobs = []

    def __call__(self, _card):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    folder = Path()

    def run(self, job, on_line):
        self.jobs.append(job)
        lines, ending = self.runs.pop(0)
        for line in lines:
            on_line(line)
        return ending

    def launch(
        self, monkeypatch, lab=LAB, task=TASK, shapes=(ONE, LARGE), asked=MappingProxyType({LARGE.name: ROW})
    ) -> on_card.Session:
        monkeypatch.setattr(on_card, "start_worker", self)
        monkeypatch.setattr(on_card, "PAUSE", 0.0)
        monkeypatch.setattr(on_card, "_compile", lambda _task, shapes, *_more: {s.name: "x.so" for s in shapes})
        admitted = {shape.name: None for shape in shapes}
        lab = lab.with_shapes({task.kernel: tuple(shape for shape in shapes if shape.hidden)})
        return on_card.launch(lab, task, admitted, "seed", H200, asked, lambda line: None)


@pytest.mark.skipif(hardware.judging_card() is not None, reason="there is a card here")
def test_a_worker_that_fails_by_itself_costs_no_points():
    judged = Submission(capture_of(LAB.id, vector_add), LAB, H200, "seed")
    with pytest.raises(JudgeFailed, match="the worker on the card ended with status 1"):
        judged.correct("vector_add", ONE.group)


# Which card judges

FIT = Gpu(Driver("580.1", (13, 0), (H200,)), torch_cuda=(13, 0), compiler=Compiler("/nvcc", (13, 0)))


def test_a_card_judges_only_if_driver_torch_and_compiler_can_use_it():
    assert hardware.judging_card(FIT) == H200
    for unfit in (
        Gpu(None, (13, 0), FIT.compiler),
        Gpu(Driver(error="x"), (13, 0), FIT.compiler),
        Gpu(Driver("1", (13, 0), ()), (13, 0), FIT.compiler),
        Gpu(FIT.driver, None, FIT.compiler),
        Gpu(FIT.driver, (13, 0), None),
        Gpu(FIT.driver, (13, 0), Compiler("/nvcc", None, "broken")),
        Gpu(Driver("550", (12, 4), (H200,)), (13, 0), FIT.compiler),
        Gpu(FIT.driver, (13, 0), Compiler("/nvcc", (14, 0))),
        Gpu(FIT.driver, (13, 0), FIT.compiler, hidden=True),
        Gpu(Driver("580", (13, 0), (Card("V100", 1, (7, 0)),)), (13, 0), FIT.compiler),
    ):
        assert hardware.judging_card(unfit) is None


def test_what_the_compiler_refuses_is_a_problem_of_its_shape(monkeypatch):
    built = {
        ONE.name: compiler.NotBuilt("nvcc", "no layout", 1.0),
        MANY.name: compiler.Built(Path("x.so"), 1.0, False),
    }
    monkeypatch.setattr(compiler, "build_all", lambda sources, *, cache: ((name, built[name]) for name in sources))
    admitted = {
        shape.name: admit(json_of(vector_add.get_tir(**shape.sizes)), KERNEL, shape) for shape in (ONE, MANY)
    }
    found = on_card.Session()
    libraries = on_card._compile(TASK, [ONE, MANY], admitted, H200, lambda line: None, found, True)
    assert libraries == {MANY.name: "x.so"}
    assert "no layout" in found.problem(ONE).message


@pytest.mark.parametrize(("sandbox", "cache"), [("bubblewrap", ...), ("notebook", ...), ("process", None)])
def test_of_a_notebook_that_could_write_to_the_cache_nothing_is_taken_from_there(monkeypatch, sandbox, cache):
    given = []

    def build_all(sources, *, cache):
        given.append(cache)
        return ((name, compiler.NotBuilt("nvcc", "no layout", 1.0)) for name in sources)

    monkeypatch.setattr(compiler, "build_all", build_all)
    monkeypatch.setattr(on_card, "start_worker", Workers())
    capture = replace(capture_of(LAB.id, vector_add), sandbox=sandbox)
    assert Submission(capture, LAB, H200, "seed").correct("vector_add", ONE.group).outcome is Outcome.FAILED
    assert given == [cache]


def test_a_compilers_words_become_the_students():
    text = json_of(vector_add.get_tir(**ONE.sizes))
    admitted = admit(text, KERNEL, ONE)
    finding = on_card.uncompilable("Check failed: something new about buffer2", admitted, lambda line: None)
    assert "something new" in finding.message
    assert "can't compile" in finding.message
    assert finding.advice


# A kernel that is timed at several shapes

ATTENTION_LAB = catalog.find("lab06_flash_attention")
ATTENTION = find(ATTENTION_LAB.id, "attention")
TWO_K, EIGHT_K = ATTENTION_LAB.kernel("attention").group(Group.TIMED)


def asked_of(shape) -> targets.Target:
    tiers = (targets.Tier(300.0, 0.5), targets.Tier(450.0, 1.0))
    return targets.Target(
        ATTENTION_LAB.id, "attention", shape.name, H200.name, "TFLOP/s", "cuDNN", 600.0, 989.0, tiers, "made up"
    )


def timed_at(shape, ratio: float) -> dict:
    """A report of a kernel that does ``ratio`` times 600 TFLOP/s."""
    milliseconds = ATTENTION.work(shape).operations / (ratio * 600e9)
    figures = {"kernel_ms": milliseconds, "peer_ms": milliseconds * ratio, "peer": "cuDNN"}
    figures |= {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01}
    return TIMED | {"timed": TIMED["timed"] | figures, "shape": shape.name}


def speed_at(found: on_card.Session, shape):
    return on_card.fast(found, ATTENTION, shape, asked_of(shape))


def test_every_timed_shape_has_a_measurement_and_a_target_of_its_own(tmp_path):
    found = session(tmp_path, timed_at(TWO_K, 0.6), timed_at(EIGHT_K, 0.95), DONE)
    two, eight = speed_at(found, TWO_K), speed_at(found, EIGHT_K)
    assert (two.outcome, two.share) == (Outcome.PASSED, 0.5)
    assert (eight.outcome, eight.share) == (Outcome.PASSED, 1.0)
    assert [figures.shape for figures in (*two.figures, *eight.figures)] == [str(TWO_K), str(EIGHT_K)]


def test_what_ends_the_worker_at_one_timed_shape_leaves_the_others_figures(tmp_path):
    launching = LAUNCHING | {"shape": EIGHT_K.name}
    found = session(tmp_path, timed_at(TWO_K, 0.95), launching, ending=Ending(-11, ""))
    assert speed_at(found, TWO_K).outcome is Outcome.PASSED
    assert speed_at(found, EIGHT_K).outcome is Outcome.FAILED


def test_a_kernel_that_ends_its_process_at_one_timed_shape_keeps_what_was_found_at_the_one_before(monkeypatch):
    late = LAUNCHING | {"shape": EIGHT_K.name}
    lines = [{"begun": TWO_K.name}, timed_at(TWO_K, 0.95), {"begun": EIGHT_K.name}, late]
    workers = Workers(runs=[(lines, Ending(-9, "", late=late))])
    asked = {shape.name: asked_of(shape) for shape in (TWO_K, EIGHT_K)}
    found = workers.launch(monkeypatch, ATTENTION_LAB, ATTENTION, (TWO_K, EIGHT_K), asked)
    assert speed_at(found, TWO_K).outcome is Outcome.PASSED
    assert speed_at(found, EIGHT_K).outcome is Outcome.FAILED
    assert "did not end" in found.problem(EIGHT_K).message


def test_what_ends_a_second_measurement_is_said_of_its_shape_alone(monkeypatch):
    first = ([timed_at(TWO_K, 0.75), timed_at(EIGHT_K, 0.95), DONE], Ending(0, ""))
    second = ([LAUNCHING | {"shape": TWO_K.name}], Ending(1, "CUDA error: an illegal memory access"))
    workers = Workers(runs=[first, second])
    asked = {shape.name: asked_of(shape) for shape in (TWO_K, EIGHT_K)}
    found = workers.launch(monkeypatch, ATTENTION_LAB, ATTENTION, (TWO_K, EIGHT_K), asked)
    assert "illegal memory access" in speed_at(found, TWO_K).findings[0].message
    assert speed_at(found, EIGHT_K).outcome is Outcome.PASSED


def test_what_is_lacking_at_one_timed_shape_says_nothing_of_the_others(tmp_path):
    lacking = {"lacking": "The card has 3.0 GiB of free memory.", "shape": EIGHT_K.name}
    found = session(tmp_path, timed_at(TWO_K, 0.95), lacking, DONE)
    assert speed_at(found, TWO_K).outcome is Outcome.PASSED
    assert speed_at(found, EIGHT_K).outcome is Outcome.NOT_ASSESSED


def test_only_the_shape_that_is_undecided_is_measured_again(monkeypatch):
    """The second one lies on a threshold the first time."""
    workers = Workers([timed_at(TWO_K, 0.95), timed_at(EIGHT_K, 0.75)], [timed_at(EIGHT_K, 0.95)])
    asked = {shape.name: asked_of(shape) for shape in (TWO_K, EIGHT_K)}
    found = workers.launch(monkeypatch, ATTENTION_LAB, ATTENTION, (TWO_K, EIGHT_K), asked)
    assert [[row["name"] for row in job["shapes"]] for job in workers.jobs] == [["2k", "8k"], ["8k"]]
    assert workers.jobs[0]["shapes"][0]["thresholds"] == [0.5, 0.75]
    assert [found.timings[shape.name].tries for shape in (TWO_K, EIGHT_K)] == [1, 2]
    assert speed_at(found, EIGHT_K).outcome is Outcome.PASSED

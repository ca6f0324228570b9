"""The judge's sums: bounds that hold for right kernels and catch wrong ones, and the decision on speed."""

import functools
import math
from dataclasses import replace

import pytest
import tilelang
import tilelang.language as T
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import capture_of, matmul, vector_add

from grader import catalog, simulator
from grader.catalog import Group, Shape
from grader.gpu.lowering import Lowered, NotLowered
from grader.gpu.state import State
from grader.gpu.targets import Target, Tier, rows
from grader.gpu.timing import median_interval
from grader.judge import seeds, simulated
from grader.judge.comparison import compare, is_poison, poison
from grader.judge.lab00_environment import TILE_COPY
from grader.judge.lab02_matmul import MATMUL as MATMUL_TASK
from grader.judge.lab03_schedules import SCHEDULED_MATMUL
from grader.judge.lab04_fused_epilogue import GEMM_BIAS_GELU
from grader.judge.lab07_autotuning import PROJECTION
from grader.judge.lab08_introspection import SCORES
from grader.judge.peers import Missing
from grader.judge.speed import decide, unquiet
from grader.judge.submission import Submission
from grader.judge.tasks import TASKS
from grader.simulator import Fault, FaultKind
from grader.verdict import Figures, JudgeFailed, Outcome

ALL = [(lab, task) for lab, tasks in TASKS.items() for task in tasks]
PRODUCTS = (MATMUL_TASK, SCHEDULED_MATMUL, GEMM_BIAS_GELU, PROJECTION, SCORES)


def cases():
    for lab, task in ALL:
        for shape in catalog.find(lab).kernel(task.kernel).shapes:
            if shape.group is not Group.TIMED:
                for family in task.families:
                    yield pytest.param(task, shape, family, id=f"{task.kernel}-{shape.name}-{family}")


def drawn(task, shape, family):
    inputs = task.inputs(family, shape, seeds.generator("test", family, shape.name))
    reference = task.reference(inputs)
    return inputs, reference, task.bound(inputs, reference)


CASES = list(cases())


def cheats():
    """What a kernel could write instead of its result, where that is a cheat at all."""
    for number, case in enumerate(CASES):
        task, shape, _family = case.values
        applicable = ["zeros"]
        if not ("softmax" in task.kernel or task.kernel == "scale_rows") or shape.sizes["N"] > 1:
            applicable.append("stale")  # the softmax of one score is 1, whichever it is; so is one scaled element
        if max(shape.sizes.values()) > 1:
            applicable.append("mean")  # of one element it is that element
        if task is not TILE_COPY and (task not in PRODUCTS or len(set(shape.sizes.values())) == 1):
            applicable.append("input")  # where it has the output's shape, and is not what is asked for
        yield from (pytest.param(number, cheat, id=f"{case.id}-{cheat}") for cheat in applicable)


@functools.lru_cache(maxsize=1)  # a case's cheats come one after the other
def case_drawn(number):
    return drawn(*CASES[number].values)


def by_a_library(task, inputs, output):
    """The result of the first peer that runs on a CPU."""
    for peer in task.peers:
        try:
            return peer.prepare(inputs, output)()
        except Missing:
            continue
    raise AssertionError(f"no peer of {task.kernel} runs on a CPU")


@pytest.mark.parametrize(("task", "shape", "family"), CASES)
def test_torch_is_within_the_bound(task, shape, family):
    inputs, reference, bound = drawn(task, shape, family)
    if task.peer_bound is not None:
        bound = task.peer_bound(inputs, reference)
    output = torch.empty(reference.shape, dtype=inputs[0].dtype)
    result = by_a_library(task, inputs, output)
    assert compare("C", result, reference, bound) is None


@pytest.mark.parametrize(("number", "cheat"), list(cheats()))
def test_cheap_answers_are_outside_the_bound(number, cheat):
    task, shape, family = CASES[number].values
    inputs, reference, bound = case_drawn(number)
    dtype = inputs[0].dtype
    if cheat == "zeros":
        output = torch.zeros(reference.shape, dtype=dtype)
    elif cheat == "mean":
        finite = reference[torch.isfinite(reference)]
        output = torch.full(reference.shape, float(finite.mean()), dtype=dtype)
    elif cheat == "stale":
        other = task.inputs(family, shape, seeds.generator("another seed", family, shape.name))
        output = task.reference(other).to(dtype)
    else:
        output = inputs[0].clone()
    assert compare("C", output, reference, bound) is not None


@pytest.mark.parametrize("family", ["normal", "cancelling", "large"])
@pytest.mark.parametrize("sizes", [(256, 256, 256), (128, 128, 2048)])
def test_half_precision_sums_are_outside_the_bound(family, sizes):
    shape = Shape("x", dict(zip("MNK", sizes, strict=True)), Group.TILES)
    (a, b), reference, bound = drawn(MATMUL_TASK, shape, family)
    total = torch.zeros(reference.shape, dtype=torch.float16)
    for k in range(0, sizes[2], 16):  # as tensor cores do it: 16 terms at once, then a rounding
        total = (total.float() + a[:, k : k + 16].float() @ b[k : k + 16].float()).half()
    assert compare("C", total, reference, bound) is not None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), terms=st.integers(1, 600), order=st.randoms(use_true_random=False))
def test_the_bound_holds_for_any_order_of_fp32_sums(seed, terms, order):
    shape = Shape("x", {"M": 4, "N": 4, "K": terms}, Group.TAILS)
    family = order.choice(MATMUL_TASK.families)
    a, b = MATMUL_TASK.inputs(family, shape, seeds.generator(str(seed)))
    reference = MATMUL_TASK.reference((a, b))
    permutation = torch.tensor(order.sample(range(terms), terms))
    total = torch.zeros(4, 4)
    for k in permutation.tolist():
        total = total + torch.outer(a[:, k].float(), b[k].float())
    assert compare("C", total.half(), reference, MATMUL_TASK.bound((a, b), reference)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_poison_is_seen_where_it_stays(dtype):
    tensor = torch.empty(5, 7, dtype=dtype)
    poison(tensor)
    tensor[1, 2] = float("nan")  # an ordinary NaN is not the poison
    assert is_poison(tensor).sum() == 34


def test_an_unwritten_region_is_described():
    reference = torch.randn(8, 6).double()
    output = reference.half()
    poison(output[:, 4:].contiguous())
    holes = reference.half()
    poisoned = holes.clone()
    poison(poisoned)
    holes[:, 4:] = poisoned[:, 4:]
    found = compare("C", holes, reference, torch.full_like(reference, 1e-2))
    assert found.message == "16 of 48 elements of 'C' are never written: C[0:8, 4:6]."
    assert "start at its own tile" in found.advice


def test_a_wrong_element_is_shown_with_what_it_should_be():
    reference = torch.ones(4, 4).double()
    output = torch.ones(4, 4)
    output[2, 3] = 5.0
    found = compare("C", output, reference, torch.full_like(reference, 0.5))
    assert found.message == "1 of 16 elements of 'C' are wrong: C[2, 3]."
    assert found.evidence == ("C[2, 3] is 5, should be 1 ± 0.5",)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nonfinite_results_are_wrong(value):
    output = torch.ones(4)
    output[1] = value
    assert compare("C", output, torch.ones(4).double(), torch.full((4,), 1e9).double()) is not None


@pytest.mark.parametrize("got", [1.0, -float("inf"), float("nan"), 3e38])
def test_where_the_answer_is_infinite_nothing_else_is_right(got):
    reference = torch.tensor([float("inf"), 1.0]).double()
    bound = torch.tensor([float("inf"), 1e-6]).double()
    assert compare("C", torch.tensor([float("inf"), 1.0]), reference, bound) is None
    assert compare("C", torch.tensor([got, 1.0]), reference, bound) is not None


def test_a_bound_that_accepts_anything_is_an_error_of_ours():
    with pytest.raises(ValueError, match="accept anything"):
        compare("C", torch.ones(2), torch.ones(2).double(), torch.full((2,), float("inf")).double())


# The decision on speed

TIERS = (Tier(600.0, 0.5), Tier(900.0, 1.0))
TARGET = Target("lab", "kernel", "shape", "card", "GB/s", "peer", 1000.0, 1500.0, TIERS, origin="made up")


def measured(ratio, spread=0.005, achieved=None):
    low, high = ratio - spread, ratio + spread
    return Figures(
        "N = 1", "GB/s", achieved or 1000 * ratio, 1.0, "peer", 1000.0, ratio, low, high, 30, 1000 * ratio, 900.0
    )


@pytest.mark.parametrize(
    ("figures", "outcome", "share"),
    [
        (measured(1.0), Outcome.PASSED, 1.0),
        (measured(0.7), Outcome.PASSED, 0.5),
        (measured(0.3), Outcome.FAILED, None),
        (measured(0.9), Outcome.INCONCLUSIVE, None),
        (measured(0.6), Outcome.INCONCLUSIVE, None),
        (measured(1.0, achieved=1501.0), Outcome.FAILED, None),
    ],
)
def test_the_tier_that_is_reached_for_sure_decides(figures, outcome, share):
    assessment = decide(figures, TARGET)
    assert assessment.outcome is outcome
    if share is not None:
        assert assessment.share == share


@pytest.mark.parametrize("at", [0.3, 3.3, 33.3, 333.0, 3940.0])
@pytest.mark.parametrize("ratio", [0.997, 0.9979])
def test_what_is_less_than_its_target_also_reads_so(at, ratio):
    """No '330 TFLOP/s; points begin at 330.'"""
    target = replace(TARGET, unit="TFLOP/s", peer_rate=at, peak=1e9, tiers=(Tier(at, 1.0),))
    figures = replace(measured(ratio, 0.0), decided=ratio * at, achieved=ratio * at, target=at)
    (finding,) = decide(figures, target).findings
    figure, first = (float(word.strip(".")) for word in finding.message.split() if word[0].isdigit())
    assert figure < first


@pytest.mark.parametrize(
    ("low", "high", "outcome", "share"),
    [
        (0.9, 0.95, Outcome.PASSED, 1.0),
        (0.6, math.nextafter(0.9, 0.0), Outcome.PASSED, 0.5),
        (math.nextafter(0.9, 0.0), 0.9, Outcome.INCONCLUSIVE, 1.0),
        (0.1, math.nextafter(0.6, 0.0), Outcome.FAILED, 1.0),
    ],
)
def test_what_equals_a_threshold_reaches_it_and_nothing_less_does(low, high, outcome, share):
    assessment = decide(replace(measured(0.7), ratio_low=low, ratio_high=high), TARGET)
    assert (assessment.outcome, assessment.share) == (outcome, share)


SHARED = ("the card was shared: process 7 (50 % of the card)",)


@pytest.mark.parametrize(
    ("figures", "outcome", "share"),
    [
        (measured(1.0), Outcome.PASSED, 1.0),
        # The peer suffered more than the kernel: the ratio says yes, the raw figure does not.
        (measured(1.0, achieved=800.0), Outcome.INCONCLUSIVE, None),
        (measured(0.7), Outcome.INCONCLUSIVE, None),
        (measured(0.3), Outcome.INCONCLUSIVE, None),
        (measured(0.3, achieved=1501.0), Outcome.FAILED, None),
    ],
)
def test_on_a_card_that_is_not_quiet_only_what_is_sure_in_spite_of_it_decides(figures, outcome, share):
    assessment = decide(figures, TARGET, SHARED)
    assert assessment.outcome is outcome
    if share is not None:
        assert assessment.share == share
    if outcome is Outcome.INCONCLUSIVE:
        assert SHARED[0] in assessment.findings[0].evidence


@pytest.mark.parametrize(
    ("target", "achieved", "outcome"),
    [
        (replace(TARGET, ceiling=1000.0), 1029.0, Outcome.PASSED),
        (replace(TARGET, ceiling=1000.0), 1031.0, Outcome.FAILED),
        (replace(TARGET, ceiling=1000.0, unit="TFLOP/s"), 1100.0, Outcome.PASSED),
        (replace(TARGET, ceiling=None), 1499.0, Outcome.PASSED),
        (replace(TARGET, ceiling=1000.0, peak=None), 1029.0, Outcome.PASSED),
        (replace(TARGET, ceiling=1000.0, peak=None), 1031.0, Outcome.FAILED),
        (replace(TARGET, ceiling=1000.0, peak=None, unit="TFLOP/s"), 1999.0, Outcome.PASSED),
        (replace(TARGET, ceiling=1000.0, peak=None, unit="TFLOP/s"), 2001.0, Outcome.FAILED),
        (replace(TARGET, ceiling=None, peak=None), 1e9, Outcome.PASSED),
    ],
)
def test_what_moves_more_bytes_than_the_card_can_is_impossible(target, achieved, outcome):
    """A matrix product may beat the library's that was measured as a ceiling; moving bytes may not."""
    assert decide(measured(1.0, achieved=achieved), target).outcome is outcome


@pytest.mark.parametrize(
    ("disturbed", "state", "quiet"),
    [
        (0.024, State(samples=5), True),
        (0.05, State(samples=5), False),
        (0.01, State(samples=5, present=1), True),
        (0.02, State(samples=5, present=1), False),
        (0.0, State(samples=5, others=["process 7 (50 % of the card)"]), False),
        (0.0, State(samples=5, slowed=["too hot"]), False),
        (0.0, State(), True),
    ],
)
def test_what_counts_as_quiet(disturbed, state, quiet):
    assert (unquiet({"disturbed": disturbed}, state) == ()) is quiet


def test_every_target_is_sound():
    for row in rows():
        lab = catalog.find(row.lab)
        assert lab.kernel(row.kernel).shape(row.shape).group is Group.TIMED
        assert 0 < row.tiers[0].at < row.full < row.peer_rate * 1.05 < row.peak


@given(st.lists(st.floats(0.5, 2.0), min_size=30, max_size=200))
def test_the_interval_holds_the_median(ratios):
    ordered = sorted(ratios)
    low, high = median_interval(ordered)
    assert low <= ordered[len(ordered) // 2] <= high


# Whole submissions, on the simulator


def submission(lab, kernel, **arguments):
    return Submission(capture_of(lab, kernel, **arguments), catalog.find(lab), None, "test")


@tilelang.jit
def product_into_shared_memory(M, N, K):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_shared((64, 64), "float16")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


def test_what_neither_simulator_nor_compiler_takes_is_a_failed_check():
    judged = submission("lab02_matmul", product_into_shared_memory)
    for assessment in (judged.correct("matmul", Group.TILES), judged.clean("matmul")):
        assert assessment.outcome is Outcome.FAILED
        (finding,) = assessment.findings
        assert "T.alloc_fragment" in finding.advice


@pytest.mark.parametrize("compiler", ["takes it for one card", "is too slow", "isn't there"])
def test_what_only_the_simulator_refuses_waits_for_a_gpu(monkeypatch, compiler):
    def lower_all(jobs):
        if compiler == "isn't there":
            raise JudgeFailed("the compiler's process did not start")
        no = NotLowered(jobs[0].arch, "Timeout" if compiler == "is too slow" else "InternalError", "no", 1.0)
        return [no, no if compiler == "is too slow" else Lowered(jobs[1].arch, "source", 128, (1,), 0, 1.0)]

    monkeypatch.setattr("grader.judge.submission.lower_all", lower_all)
    assessment = submission("lab02_matmul", product_into_shared_memory).correct("matmul", Group.TILES)
    assert assessment.outcome is Outcome.NOT_ASSESSED
    assert "The simulator can't run" in assessment.findings[0].message


def test_right_kernels_pass_what_can_be_assessed():
    for lab, kernel in (("lab01_vector_add", vector_add), ("lab02_matmul", matmul)):
        judged = submission(lab, kernel)
        name = catalog.find(lab).kernels[0].name
        assert judged.signature(name).outcome is Outcome.PASSED
        assert judged.correct(name, Group.TILES).outcome is Outcome.PASSED
        assert judged.correct(name, Group.TAILS).outcome is Outcome.PASSED
        assert judged.clean(name).outcome is Outcome.PASSED
        assert judged.fast(name).outcome is Outcome.NOT_ASSESSED


@pytest.mark.parametrize(
    ("arguments", "failing"),
    [
        ({"accumulator": "float16"}, {"correct", "clean"}),  # right at no shape, so being clean earns nothing
        ({"clear": False}, {"correct", "clean"}),
    ],
)
def test_wrong_matmuls_fail_where_they_should(arguments, failing):
    judged = submission("lab02_matmul", matmul, **arguments)
    outcomes = {
        "signature": judged.signature("matmul").outcome,
        "correct": judged.correct("matmul", Group.TILES).outcome,
        "clean": judged.clean("matmul").outcome,
    }
    assert {name for name, outcome in outcomes.items() if outcome is Outcome.FAILED} == failing


def test_an_accumulator_that_is_not_cleared_is_named_with_its_line():
    found = submission("lab02_matmul", matmul, clear=False).clean("matmul").findings[0]
    assert "before anything was written there" in found.message
    assert "T.clear" in found.advice


def test_a_hidden_shape_is_not_told():
    lab = catalog.find("lab02_matmul").with_shapes(
        {"matmul": (Shape("further", {"M": 72, "N": 88, "K": 104}, Group.TAILS, hidden=True),)}
    )
    capture = capture_of("lab02_matmul", matmul, accumulator="float16")
    findings = Submission(capture, lab, None, "s").correct("matmul", Group.TAILS).findings
    assert any("official run" in finding.message for finding in findings)
    assert not any(number in str(findings) for number in ("72", "88", "104"))


@pytest.mark.parametrize("kind", FaultKind)
def test_every_fault_has_words(kind):
    fault = Fault(kind, "A", None, (1, 0, 0), (3,), 2, "A[i]")
    finding = simulated.explain(fault, lambda line: None)
    if kind is FaultKind.UNWRITTEN:  # no block has done it
        assert finding.message == "No block writes A[3]."
        assert finding.evidence == ("A[3], 2 elements",)
        return
    assert "(1, 0, 0)" in finding.message
    assert finding.evidence == ("A[3], 2 accesses",)


@tilelang.jit(out_idx=[-1])
def lazy_worker(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            for i in T.Parallel(1024):
                if i < 1:
                    C[i] = A[i]

    return main


@tilelang.jit(out_idx=[-1])
def zeros(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=128) as bx:
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    C[bx * 1024 + i] = 0.0

    return main


def test_doing_hardly_anything_is_not_clean():
    assessment = submission("lab01_vector_add", zeros).clean("vector_add")
    assert assessment.outcome is Outcome.FAILED
    assert "right at one shape" in assessment.findings[0].message


def test_what_is_never_written_is_not_clean():
    finding = submission("lab01_vector_add", lazy_worker).clean("vector_add").findings[0]
    assert finding.message == "No block writes C[1]."
    assert finding.evidence[0] == "C[1], 1023 elements"


@tilelang.jit(out_idx=[-1])
def dividing(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 1024), threads=128) as bx:
            for i in T.Parallel(1024):
                if bx * 1024 + i < N:
                    C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i] / (A[bx * 1024 + i] - A[bx * 1024 + i])

    return main


def test_a_value_that_is_not_finite_is_told_where_it_was_born():
    finding = submission("lab01_vector_add", dividing).correct("vector_add", Group.TILES).findings[0]
    (born,) = [item for item in finding.evidence if "became" in item]
    assert born.startswith("Block (0, 0, 0): C[0] became ")
    assert "inf here: B[bx * 1024 + i] / (A[bx * 1024 + i] - A[bx * 1024 + i])." in born


def test_a_fault_of_ours_is_no_verdict(monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(simulated.simulator, "run", broken)
    with pytest.raises(JudgeFailed, match="ZeroDivisionError: ours"):
        submission("lab01_vector_add", vector_add).correct("vector_add", Group.TILES)


def test_what_the_simulator_lacks_does_not_hide_what_is_wrong(monkeypatch):
    real = simulated.simulator.run

    def lacking_at_65536(kernel, tensors, **options):
        if tensors[0].numel() == 65536:
            raise simulator.Unsupported("something")
        return real(kernel, tensors, **options)

    monkeypatch.setattr(simulated.simulator, "run", lacking_at_65536)
    assert submission("lab01_vector_add", lazy_worker).correct("vector_add", Group.TILES).outcome is Outcome.FAILED
    assert (
        submission("lab01_vector_add", vector_add).correct("vector_add", Group.TILES).outcome
        is Outcome.NOT_ASSESSED
    )

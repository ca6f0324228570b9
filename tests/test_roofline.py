"""The roofline: peaks by datasheet, and what bounds a kernel."""

from types import SimpleNamespace

import pytest
import torch
from cells import MATMUL
from typer.testing import CliRunner

from grader import simulator
from grader.cli.app import app
from grader.gpu import roofline, targets
from grader.gpu.roofline import Lacking, Peaks, bound, bounds, cards, find, ridge
from grader.judge import replay
from grader.verdict import Unusable
from grader.verdict.traffic import BufferTraffic, Kind, Operations, Traffic, from_json

TOY = Peaks("toy", "", memory=100.0, fp32=2.0, tensor={"fp16": 8.0, "tf32": 4.0})


def traffic(*operations: Operations, asked: int = 3_000, distinct: int = 1_000) -> Traffic:
    buffer = BufferTraffic("A", "global", distinct, asked, 0, distinct, 0)
    return Traffic((buffer,), operations, (), 1, 128, 0, 0, 0)


def test_the_slowest_resource_limits():
    by_memory = bound({"float16": 8 * 10**12}, 10**12, 200 * 10**9, TOY)
    assert (by_memory.limit, by_memory.seconds, by_memory.gbs, by_memory.tflops) == ("memory", 2.0, 100.0, 4.5)
    by_tensor = bound({"float16": 32 * 10**12, "float32": 4 * 10**12}, 10**12, 200 * 10**9, TOY)
    assert (by_tensor.limit, by_tensor.seconds, by_tensor.gbs) == ("tensor cores", 5.0, 40.0)
    by_arithmetic = bound({}, 8 * 10**12, 100 * 10**9, TOY)
    assert (by_arithmetic.limit, by_arithmetic.seconds, by_arithmetic.tflops) == ("arithmetic", 4.0, 2.0)


def test_what_a_card_lacks_is_named():
    with pytest.raises(Lacking, match="bfloat16"):
        bound({"bfloat16": 1}, 0, 1, TOY)
    with pytest.raises(Lacking, match="int32"):
        ridge(TOY, "int32")
    with pytest.raises(ValueError, match="no bytes"):
        bound({}, 0, 0, TOY)


def test_at_the_ridge_memory_and_tensor_cores_take_the_same_time():
    at = ridge(TOY, "float16")
    assert at == 80.0
    assert bound({"float16": 79_000}, 0, 1_000, TOY).limit == "memory"
    assert bound({"float16": 81_000}, 0, 1_000, TOY).limit == "tensor cores"


def test_both_bounds_of_a_kernel():
    work = traffic(Operations(Kind.GEMM, "float16", 160_000), Operations(Kind.ADD, "float32", 500))
    (found,) = bounds(work, (TOY,))
    assert (found.asked.limit, found.distinct.limit) == ("memory", "tensor cores")
    assert found.asked.seconds == pytest.approx(3_000 / 100e9)
    assert found.distinct.seconds == pytest.approx(160_000 / 8e12)
    (lacking,) = bounds(traffic(Operations(Kind.GEMM, "int8", 5)), (TOY,))
    assert (lacking.asked, lacking.distinct, lacking.lacking) == (None, None, "no tensor cores for int8")
    assert bounds(traffic(asked=0, distinct=0), cards()) == ()


def test_integer_products_need_tensor_cores_but_are_no_flops():
    work = traffic(Operations(Kind.GEMM, "int8", 10**9))
    assert (work.flops, work.gemm_operations) == (0, {"int8": 10**9})
    (found,) = bounds(work, (find("T4"),))
    assert (found.asked.limit, found.asked.tflops) == ("tensor cores", pytest.approx(130.0))


def test_every_card_of_the_table_is_whole():
    names = [card.name for card in cards()]
    assert len(names) == len(set(names)) >= 6
    for card in cards():
        assert card.source.startswith("NVIDIA")
        assert set(card.tensor) <= set(roofline.TENSOR_CORES.values())
        assert card.fp32 > 0
        assert 100 < card.memory < 10_000
        assert card.tensor["fp16"] >= card.fp32
        # By the width of the operands; on GeForce cards, halves are slowed down when they add up in fp32.
        assert card.tensor["int8"] >= 2 * card.tensor["fp16"]
        if "tf32" in card.tensor:
            assert card.tensor["tf32"] == pytest.approx(card.tensor["fp16"] / 2, rel=0.03)
            assert card.tensor["bf16"] == card.tensor["fp16"]


def test_a_card_is_found_by_the_start_of_its_name():
    assert find("h200").name == "H200 SXM"
    assert find("NVIDIA L40S").name == "L40S"
    for unknown in ("GTX 1080", "", "nvidia"):
        with pytest.raises(Unusable, match="H200 SXM"):
            find(unknown)


def test_the_targets_peaks_are_those_of_the_datasheet():
    for row in targets.rows():
        card = find(row.card)
        assert row.peak == (card.memory if row.unit == "GB/s" else card.tensor["fp16"])


def test_the_drivers_names_tell_cards_apart():
    names = [name for card in cards() for name in card.drivers]
    assert len(names) == len(set(names))
    assert find("NVIDIA A100-SXM4-40GB").memory == 1555.0
    assert find("NVIDIA A100-SXM4-80GB").memory == find("A100").memory == 2039.0
    assert find("Tesla T4").name == "T4"
    assert roofline.of_driver("NVIDIA L4").name == "L4"
    assert roofline.of_driver("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None


def test_the_command_counts_a_notebooks_kernel(notebook):
    path = str(notebook("lab02_matmul.ipynb", MATMUL))
    sizes = ["--shape", "M=128,N=256,K=64"]
    shown = CliRunner().invoke(app, ["roofline", path, *sizes, "--card", "h200", "--json"])
    assert shown.exit_code == 0, shown.output
    counted = from_json(shown.stdout)
    assert (counted.lab, counted.kernel, counted.shape) == ("lab02_matmul", "matmul", "M = 128, N = 256, K = 64")
    assert counted.traffic.buffer("A").reread == 2.0
    assert counted.traffic.count(Kind.GEMM, "float16") == 2 * 128 * 256 * 64
    assert [card.card for card in counted.cards] == ["H200 SXM"]
    text = CliRunner().invoke(app, ["roofline", path, *sizes])
    assert text.exit_code == 0
    assert "4,194,304" in text.stdout


def test_counting_has_more_time_than_recording_one_block(monkeypatch):
    """A timed shape has hundreds of blocks, and each is counted."""
    given = []

    def run(_kernel, _tensors, *, budget, **_more):
        given.append(budget)
        raise simulator.OverBudget("the time is up")

    monkeypatch.setattr(replay.simulator, "run", run)
    with pytest.raises(Unusable, match="The time is up"):
        replay.count(SimpleNamespace(kernel=None), (), torch.float32, (1,), None)
    assert given[0].seconds >= 4 * replay.BUDGET.seconds


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--card", "none"], "There are no figures"),
        (["--kernel", "x"], "no kernel 'x'"),
        (["--shape", "x"], "'x'"),
    ],
)
def test_what_the_command_does_not_know_is_said_before_anything_is_run(notebook, arguments, said):
    path = str(notebook("lab02_matmul.ipynb", "raise SystemExit"))
    with pytest.raises(Unusable, match=said):
        CliRunner().invoke(app, ["roofline", path, *arguments], catch_exceptions=False)

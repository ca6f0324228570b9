"""Every construct of the language, on the simulator; and the run on a card, whose workers may do anything."""

import json
from pathlib import Path

import pytest
import torch
from conformance import card, card_worker, simulated
from conformance.bounded import Bounded, bounded, excess, product
from conformance.command import select
from conformance.registry import CASES, Built, Case, built, draw, out
from scripted_workers import dead_worker, scripted_worker

CASES_OF: dict[str, list[Case]] = {}
for _case in select(""):
    CASES_OF.setdefault(_case.construct, []).append(_case)


@pytest.mark.parametrize("construct", CASES_OF)
def test_construct(construct):
    results = [simulated.check(case) for case in CASES_OF[construct]]
    wrong = [f"{result.case}: {result.status}: {result.detail}" for result in results if not result.ok]
    assert not wrong, "\n".join(wrong)


def test_every_kernel_has_two_shapes():
    shapes: dict[tuple, set] = {}
    for case in CASES.values():
        shapes.setdefault((case.kernel, case.dtype, str(case.options)), set()).add(case.shape)
    assert min(map(len, shapes.values())) >= 2


# The bounds must tell wrong from right.


def test_a_product_accumulated_in_half_is_outside_the_bound_of_float32():
    x, y = draw("float16", (32, 256), -2, 2), draw("float16", (256, 32), -2, 2)
    want = product(x, y)
    assert excess((x.float() @ y.float()), want)[1] == 0
    assert excess((x @ y).float(), want)[0] > 1
    assert excess(torch.zeros(32, 32), want)[1] == 32 * 32


def test_truncating_instead_of_rounding_is_outside_the_bound():
    x = draw("float32", (1000,))
    want = bounded(x).rounded(torch.float16)
    down = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)  # cuts to 10 bits, as half has
    assert excess(x.half(), want)[1] == 0
    assert excess(down.half(), want)[1] > 0


def test_one_wrong_element_is_found():
    x = draw("float32", (64,))
    wrong = x.clone()
    wrong[17] = x[17] * 1.0001
    assert excess(wrong, bounded(x))[1] == 1
    wrong[17] = float("nan")
    assert excess(wrong, bounded(x))[1] == 1
    assert excess(x.to(torch.int32), bounded(x.to(torch.int32)))[1] == 0
    assert excess(x.to(torch.int32) + 1, bounded(x.to(torch.int32)))[1] == 64


def test_a_bound_that_accepts_anything_is_an_error():
    x = draw("float32", (8,))
    with pytest.raises(ValueError, match="not finite"):
        excess(x, Bounded(x.double(), torch.full((8,), torch.inf).double()))


def test_infinities_and_nan_must_be_the_same():
    special = torch.tensor([float("inf"), -float("inf"), float("nan")])
    assert excess(special, bounded(special))[1] == 0
    assert excess(torch.tensor([float("inf"), 3.0, 4.0]), bounded(special))[1] == 2


# The run on a card, with a worker of ours in the card's place.


def _cases(*names: str) -> list[Case]:
    def make(dtype: str, shape: tuple[int, ...]) -> Built:
        raise AssertionError("the worker of this test builds nothing")

    return [Case("construct", name, "float32", (1,), {}, make) for name in names]


def test_one_case_is_one_row_whatever_it_does():
    cases = _cases("good-1", "crash-1", "hang-1", "error-1", "good-2", "crash-2", "good-3")
    state = card.run_cases(cases, 2, 60.0, worker=scripted_worker, case_seconds=3.0)
    found = {name.split("[")[0]: vars(result) for name, result in state.results.items()}
    assert {name: row["status"] for name, row in found.items()} == {
        "good-1": "right",
        "crash-1": "crashed",
        "hang-1": "hung",
        "error-1": "failed",
        "good-2": "right",
        "crash-2": "crashed",
        "good-3": "right",
    }
    assert "exit status 9 while it was running: a last word" in found["crash-1"]["detail"]


@pytest.mark.parametrize("dtype", ["bool", "float16", "float8_e5m2", "uint32", "int64"])
def test_tensors_lie_between_margins_as_they_were(dtype):
    tensor = draw(dtype, (6, 10))[1:4, :8].transpose(0, 1)
    copy, memory = card_worker.between_margins(tensor, "cpu")
    assert copy.stride() == tensor.stride()
    assert torch.equal(card_worker.bits(copy), card_worker.bits(tensor))
    copy.fill_(0)
    assert card_worker.untouched(memory)
    memory[-1] = 0
    assert not card_worker.untouched(memory)


def test_the_card_is_judged_by_float64_first_and_then_by_the_simulator():
    x = draw("float32", (64,))
    made = built(None, [], out((bounded(x) + 1.0).rounded(torch.float32), "float32"))
    right = x + 1
    near = torch.nextafter(right, torch.full_like(right, 100))

    def status(result: torch.Tensor, simulated: torch.Tensor | None, **changed) -> str:
        options = {"intact": True, "why": ""} | changed
        simulation = None if simulated is None else [simulated]
        found = card_worker.judge(made, [result], options["intact"], simulation, options["why"])
        return found["status"]

    assert status(right, right) == "right"
    assert status(right + 1e-3, right) == "wrong"
    assert status(right, right + 1e-3) == "apart"
    assert status(right, None, why="no such operator") == "no simulator"
    assert status(right, right, why="the simulator found a race") == "apart"
    assert status(right, right, intact=False) == "wrong"
    found = card_worker.judge(made, [right], True, [torch.cat((near[:16], right[16:]))], "")
    assert found["identical"] == 0.75


def test_no_case_is_begun_when_time_is_over():
    state = card.run_cases(_cases("good-1", "good-2"), 1, 0.0, worker=scripted_worker)
    assert [result.status for result in state.results.values()] == ["not run", "not run"]


def test_workers_that_never_start_end_the_run():
    with pytest.raises(card.NoWorkers, match="no CUDA"):
        card.run_cases(_cases("good-1"), 1, 60.0, worker=dead_worker)


def test_runs_of_parts_make_one_page(tmp_path):
    from conformance.markdown import page

    def record(**statuses: str) -> Path:
        results = [
            vars(card.CardResult(name, "T.copy", "float32", [1], status)) for name, status in statuses.items()
        ]
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        file.write_text(json.dumps({"facts": {"card": "a card"}, "results": results}))
        return file

    both = card.merged([record(a="right", b="not run"), record(b="wrong", c="right")])
    assert {result["case"]: result["status"] for result in both["results"]} == {
        "a": "right",
        "b": "wrong",
        "c": "right",
    }
    text = page(both)
    assert "| T.copy | 3 | f32 | 2 |" in text
    assert "| `b` | wrong |" in text


def test_kernels_at_their_first_shape_run_first():
    cases = [case for case in select("") if case.kernel in ("grid_of_two", "vector_add")]
    order = [case.shape for case in card.ordered(cases)]
    assert order == [shape for rank in (0, 1) for shape in _shapes_of(cases, rank)]


def _shapes_of(cases: list[Case], rank: int) -> list[tuple[int, ...]]:
    by_kernel: dict[tuple, list] = {}
    for case in cases:
        by_kernel.setdefault((case.kernel, case.dtype), []).append(case.shape)
    return [shapes[rank] for shapes in by_kernel.values()]


def test_an_output_is_compared_in_its_own_shape():
    with pytest.raises(ValueError, match="shape"):
        excess(torch.zeros(3), out(torch.zeros(4), "float32").want)

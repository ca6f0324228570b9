"""What the judge's own tensors see: outputs, guards, inputs. On the CPU, with launches in torch."""

import pytest
import torch

from grader import catalog
from grader.judge import tasks
from grader.judge.comparison import is_poison
from grader.judge.workbench import CANARY, SETS, Guarded, Workbench, fitting_sets, memory_needed

LAB = catalog.find("lab02_matmul")
KERNEL, TASK = LAB.kernel("matmul"), tasks.find("lab02_matmul", "matmul")
SHAPE = KERNEL.shapes[0]


def bench(family="normal", sets=2) -> Workbench:
    return Workbench(TASK, KERNEL, SHAPE, "seed", family, sets, device="cpu")


def right(a, b, c):
    c.copy_(a.float() @ b.float())


def after(launch, one=None):
    one = one or bench()
    for round_ in range(2 * one.sets):
        one.refresh(round_)
        one.launch(launch, round_)
    return one.wrong()


@pytest.mark.parametrize("family", TASK.families)
def test_right_outputs_are_right(family):
    assert after(right, bench(family)) is None


def test_sets_differ_and_come_again():
    one = bench()
    assert not torch.equal(one.inputs[0][0], one.inputs[1][0])
    assert torch.equal(one.inputs[0][0], bench().inputs[0][0])


def outside(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """Elements beyond a tensor's end (or, with a negative offset, before its begin)."""
    start = tensor.storage_offset() + (tensor.numel() + offset if offset >= 0 else offset)
    return torch.as_strided(tensor, (1,), (1,), start)


def wrote_behind_output(a, b, c):
    right(a, b, c)
    outside(c, CANARY - 1).fill_(1)


def wrote_before_output(a, b, c):
    right(a, b, c)
    outside(c, -1).fill_(1)


def wrote_behind_input(a, b, c):
    right(a, b, c)
    outside(b, 0).fill_(1)


def wrote_input(a, b, c):
    right(a, b, c)
    a[0, 0] += 1


def nothing(a, b, c):
    pass


def half(a, b, c):
    c[: c.shape[0] // 2] = (a.float() @ b.float())[: c.shape[0] // 2]


def zeros(a, b, c):
    c.zero_()


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (wrote_behind_output, "wrote outside its output"),
        (wrote_before_output, "wrote outside its output"),
        (wrote_behind_input, "wrote to its input 'B'"),
        (wrote_input, "wrote to its input 'A'"),
        (nothing, "never written"),
        (half, "never written"),
        (zeros, "is 0 everywhere"),
    ],
)
def test_what_is_wrong_is_seen(launch, words):
    assert words in after(launch).message


def test_an_input_must_keep_its_bits_and_not_only_its_values():
    def sign(a, b, c):
        right(a, b, c)
        a[a == 0] = -0.0

    assert "wrote to its input 'A'" in after(sign, bench("one-hot")).message


def test_skipping_work_where_the_output_was_right_before_is_seen():
    """Every round begins with a fresh output."""

    def lazy(a, b, c):
        if bool(is_poison(c).all()) and not hasattr(lazy, "done"):
            right(a, b, c)
            lazy.done = True

    assert "never written" in after(lazy).message


def test_one_wrong_set_is_enough():
    calls = []

    def once(a, b, c):
        calls.append(1)
        if len(calls) != 3:
            right(a, b, c)

    assert after(once) is not None


def test_fewer_sets_are_taken_where_memory_is_short():
    everything = memory_needed(KERNEL, SHAPE, SETS)
    assert fitting_sets(KERNEL, SHAPE, everything) == SETS
    assert fitting_sets(KERNEL, SHAPE, everything - 1) == SETS - 1
    assert fitting_sets(KERNEL, SHAPE, memory_needed(KERNEL, SHAPE, 2) - 1) == 0


def test_a_guarded_tensor_begins_as_poison_and_ends_where_tensors_may():
    guarded = Guarded(torch.float16, (3, 5), "cpu")
    assert bool(is_poison(guarded.tensor).all())
    assert guarded.tensor.data_ptr() % 128 == guarded.memory.data_ptr() % 128
    guarded.tensor.fill_(1)
    assert guarded.intact()

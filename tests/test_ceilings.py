"""Ceilings: what is counted as moved and computed, and what happens where memory or a dtype is missing.

The clock is a stand-in: every launch is run, and takes as long as the test says.
"""

import pytest
import torch

from grader.gpu import ceilings, roofline, targets
from grader.gpu.ceilings import Lacking
from grader.gpu.timing import Clock, Samples


def all_take(ms: float):
    def clock(launches):
        for launch in launches:
            launch(0)
        return [ms] * len(launches)

    return clock


def test_each_mix_counts_the_bytes_that_it_moves():
    found, size = ceilings.bandwidth(all_take(1.0), "cpu", 2**24)
    assert size == 2**24
    one = 2**24 / 1e6  # GB/s, of one array in a millisecond
    # Of calls that take the same time, the one that reads two arrays is the best.
    assert found == pytest.approx({"read": 2 * one, "fill": one, "copy": 2 * one, "add": 3 * one})
    assert tuple(found) == targets.MIXES


def test_the_best_call_counts():
    def clock(launches):
        return [float(i + 1) for i in range(len(launches))]

    mixes = [mix for mix, *_rest in ceilings._moves(16, "cpu")]
    found, _size = ceilings.bandwidth(clock, "cpu", 2**24)
    assert found["add"] == pytest.approx(3 * 2**24 / (mixes.index("add") + 1) / 1e6)


def test_where_memory_is_scarce_arrays_are_smaller():
    tried = []

    def clock(launches):
        tried.append(len(launches))
        if len(tried) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [1.0] * len(launches)

    _found, size = ceilings.bandwidth(clock, "cpu", 2**26)
    assert size == 2**24

    def never(launches):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        ceilings.bandwidth(never, "cpu", 2**25)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_a_product_counts_two_operations_a_multiply_add(dtype):
    found = ceilings.matmul(dtype, (9, 0), all_take(2.0), "cpu", (32, 64))
    assert found == pytest.approx(2 * 64**3 / 2e-3 / 1e12)
    assert torch.get_float32_matmul_precision() == "highest"


def test_an_older_card_lacks_newer_types():
    with pytest.raises(Lacking, match=r"needs compute capability 8\.0, the card has 7\.5"):
        ceilings.matmul("float32", (7, 5), all_take(1.0), "cpu", (32,))


def test_what_the_library_refuses_is_lacking_with_its_words(monkeypatch):
    def refuse(*_arguments, **_options):
        raise RuntimeError("no such product here\nmore")

    monkeypatch.setattr(torch, "_int_mm", refuse)
    with pytest.raises(Lacking, match=r"^no such product here$"):
        ceilings.matmul("int8", (9, 0), all_take(1.0), "cpu", (32,))
    monkeypatch.delattr(torch, "_int_mm")
    with pytest.raises(Lacking, match="_int_mm"):
        ceilings.matmul("int8", (9, 0), all_take(1.0), "cpu", (32,))


def test_a_layout_that_the_library_refuses_leaves_the_others(monkeypatch):
    real = torch._int_mm

    def only_transposed(a, b):
        if b.is_contiguous():
            raise RuntimeError("no such layout")
        return real(a, b)

    monkeypatch.setattr(torch, "_int_mm", only_transposed)
    found = ceilings.matmul("int8", (9, 0), all_take(1.0), "cpu", (32, 64))
    assert found == pytest.approx(2 * 64**3 / 1e9)


def test_a_size_that_has_no_room_is_left_out(monkeypatch):
    real = torch.randn

    def small(shape, **options):
        if shape[0] > 32:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(shape, **options)

    monkeypatch.setattr(torch, "randn", small)
    assert ceilings.matmul("float16", (9, 0), all_take(1.0), "cpu", (32, 64)) == pytest.approx(2 * 32**3 / 1e9)
    with pytest.raises(Lacking, match="not enough memory"):
        ceilings.matmul("float16", (9, 0), all_take(1.0), "cpu", (64,))


def test_settled_means_that_every_median_is_known():
    steady, wild = [1.0 + i * 1e-5 for i in range(40)], [1.0 + i * 1e-2 for i in range(40)]
    assert ceilings.settled(Samples((steady, steady), Clock.EVENTS, 0.0, (0.0, 0.0)))
    assert not ceilings.settled(Samples((steady, wild), Clock.EVENTS, 0.0, (0.0, 0.0)))


def test_the_dtypes_are_those_that_targets_and_rooflines_know():
    assert set(ceilings.CAPABILITY) <= set(roofline.TENSOR_CORES)
    assert {one.ceiling for one in targets.asked()} <= set(ceilings.CAPABILITY) | set(targets.MIXES)

"""A sample of a large kernel's blocks on the simulator."""

import re
import resource

import pytest
import tilelang.language as T
import torch
from attacks.attack import ADD, MATMUL, Attack, Stop, add, at_the_timed_shape, honest_add
from attacks.on_memory import read_beyond
from hypothesis import given
from hypothesis import strategies as st
from kernels import json_of, matmul

from grader import catalog
from grader.admit import admit
from grader.catalog import Group
from grader.judge import sampled, tasks
from grader.judge.repeating import PERIOD, repeating
from grader.judge.submission import Submission
from grader.verdict import Outcome

EXTENTS = st.lists(st.integers(1, 2**20), min_size=1, max_size=3)


@given(EXTENTS, st.text(max_size=5))
def test_corners_and_neighbours_are_in_the_sample(extents, seed):
    corners, inside = sampled.blocks(extents, seed)
    grid = (*extents, *[1] * (3 - len(extents)))
    last = tuple(extent - 1 for extent in grid)
    assert {(0, 0, 0), last} <= set(corners)
    assert len(set(corners)) == len(corners) <= 8
    for block in (*corners, *inside):
        assert all(0 <= index < extent for index, extent in zip(block, grid, strict=True))
    for axis, extent in enumerate(grid):
        if extent > 1:
            step = tuple(int(other == axis) for other in range(3))
            assert {step, tuple(index - one for index, one in zip(last, step, strict=True))} <= set(inside)


def test_the_sample_follows_from_the_seed():
    assert sampled.blocks([4096, 4096], "a") == sampled.blocks([4096, 4096], "a")
    assert sampled.blocks([4096, 4096], "a") != sampled.blocks([4096, 4096], "b")


def test_a_large_tensor_of_random_numbers_takes_hardly_any_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = 2**28
    tensor = repeating(torch.float32, (count // 4, 4), torch.Generator().manual_seed(0))
    assert tensor.shape == (count // 4, 4)
    flat, period = tensor.view(-1), PERIOD // 4
    assert flat[-1] == flat[(count - 1) % period]
    assert torch.equal(flat[:1000], flat[period : period + 1000])
    assert 0.9 < flat[:period].std() < 1.1
    flat[5 * period] = 7.0
    assert flat[0] != 7.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


def test_more_than_there_is_room_for_is_no_fault_of_the_judges():
    with pytest.raises(MemoryError):
        repeating(torch.float32, (2**46,), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.bool, torch.float8_e4m3fn])
def test_it_comes_in_every_dtype(dtype):
    tensor = repeating(dtype, (3, 5), torch.Generator().manual_seed(1))
    assert (tensor.dtype, tensor.shape) == (dtype, (3, 5))
    assert torch.isfinite(tensor.float()).all()


@T.macro
def by_copies(A, B, C, bx, N):
    a = T.alloc_fragment((1024,), "float32")
    b = T.alloc_shared((1024,), "float32")
    T.copy(A[bx * 1024], a)
    T.copy(B[bx * 1024], b)
    for i in T.Parallel(1024):
        a[i] = a[i] + b[i]
    T.copy(a, C[bx * 1024])


@T.macro
def without_a_guard(A, B, C, bx, N):
    """Right where the tiles fit, as they do there."""
    for i in T.Parallel(1024):
        C[bx * 1024 + i] = A[bx * 1024 + i] + B[bx * 1024 + i]


@T.macro
def by_threads(A, B, C, bx, N):
    tx = T.get_thread_binding(0)
    for j in T.unroll(4):
        if bx * 1024 + j * 256 + tx < N:
            C[bx * 1024 + j * 256 + tx] = A[bx * 1024 + j * 256 + tx] + B[bx * 1024 + j * 256 + tx]


@T.macro
def blocks_that_stay(A, B, C, bx, N):
    for step in T.serial(T.ceildiv(N, 132 * 4096)):
        for i in T.Parallel(4096):
            if (step * 132 + bx) * 4096 + i < N:
                C[(step * 132 + bx) * 4096 + i] = A[(step * 132 + bx) * 4096 + i] + B[(step * 132 + bx) * 4096 + i]


@T.macro
def a_tile_that_does_not_divide(A, B, C, bx, N):
    for i in T.Parallel(1000):
        if bx * 1000 + i < N:
            C[bx * 1000 + i] = A[bx * 1000 + i] + B[bx * 1000 + i]


HONEST = {
    "by copies": (ADD, add(by_copies)),
    "without a guard": (ADD, add(without_a_guard)),
    "by threads": (ADD, add(by_threads)),
    "blocks that stay": (ADD, add(blocks_that_stay, blocks=lambda n: 132)),
    "a tile that does not divide": (ADD, add(a_tile_that_does_not_divide, blocks=lambda n: -(-n // 1000))),
    "a product": (MATMUL, matmul.get_tir),
    "small tiles": (
        MATMUL,
        lambda M, N, K: matmul.get_tir(M, N, K, block_M=16, block_N=16, block_K=16, threads=32),
    ),
    "tiles that don't divide": (MATMUL, lambda M, N, K: matmul.get_tir(M, N, K, block_M=192, block_N=96)),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_are_clean(name):
    lab_id, build = HONEST[name]
    lab = catalog.find(lab_id)
    (kernel,) = lab.kernels
    (shape,) = kernel.group(Group.TIMED)
    admitted = admit(json_of(build(**shape.sizes)), kernel, shape)
    task = tasks.find(lab_id, kernel.name)
    assert sampled.faults(admitted, kernel, task, shape, "seed", lambda line: None) == ()


def test_a_kernel_that_was_built_otherwise_is_said_to_be():
    lab = catalog.find(ADD)
    (kernel,) = lab.kernels
    there_only = Attack("there only", at_the_timed_shape(add(read_beyond), add(honest_add)), Stop.SAMPLE, "")
    everywhere = Attack("everywhere", add(read_beyond), Stop.CLEAN, "")
    said = []
    for attack in (there_only, everywhere):
        fast = Submission(attack.capture(), lab, None, "seed").fast(kernel.name)
        assert fast.outcome is Outcome.FAILED
        evidence = " ".join(fast.findings[0].evidence)
        assert "a sample of its blocks at N = 268435456" in evidence
        said.append(re.search("differs from those for all other shapes", evidence) is not None)
    assert said == [True, False]

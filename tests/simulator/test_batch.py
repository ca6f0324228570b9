"""Several blocks at once give what a block at a time gives: the same elements, faults and counts.

Sums and matrix products are added in the same order either way (torch reduces the same rows, and multiplies each
matrix of a batch by itself), so that they are the same to the bit. Only functions that torch computes by vectors
of a register, and by another routine in what is left over at the end of a tensor, may differ there: each of the
two is within one unit in the last place of the true value.
"""

from dataclasses import fields

import pytest
import tilelang.language as T
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_kernels import attention, matmul, odd, softmax, threads_own, vector_add

from grader.ir import nodes
from grader.simulator import Budget, FaultKind, OverBudget, Run, run


def tensors_of(kernel: nodes.Kernel, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for buffer in kernel.params:
        shape, dtype = [extent.value for extent in buffer.shape], getattr(torch, buffer.dtype)
        if dtype.is_floating_point:
            tensors.append(torch.randn(shape, generator=generator).to(dtype))
        else:
            tensors.append(torch.randint(0, 100, shape, generator=generator).to(dtype))
    return tensors


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def same(first: torch.Tensor, second: torch.Tensor, ulps: int) -> bool:
    if not ulps:
        return torch.equal(bits(first), bits(second))
    near = (first.double() - second.double()).abs() <= ulps * torch.finfo(first.dtype).eps * first.double().abs()
    return bool((near | (first.isnan() & second.isnan()) | (first == second)).all())


@pytest.fixture(scope="session")
def both(read):
    """both(prim_func, ulps=0, **options) -> the Run, the same with all ways to run a kernel."""

    def both(function, *tensors: torch.Tensor, ulps: int = 0, **options) -> Run:
        kernel = function if isinstance(function, nodes.Kernel) else read(function)
        given_ = list(tensors) or tensors_of(kernel)
        results = []
        for way in ({"batched": False}, {}, {"checks": False}, {"checks": False, "batched": False}):
            mine = [tensor.clone() for tensor in given_]
            results.append((run(kernel, mine, **way, **options), mine))
        (single, expected), *others = results
        for other, mine in others:
            checked = bool(other.written)
            assert not checked or single.traffic == other.traffic
            for item in fields(Run):
                if not item.compare:
                    continue
                if item.name == "written":
                    pairs = zip(single.written, other.written, strict=True) if checked else ()
                    assert all(torch.equal(a, b) for a, b in pairs)
                elif item.name == "count":
                    assert not checked or other.traffic == single.traffic
                elif item.name == "faults" and not checked:
                    kept = (FaultKind.RACE, FaultKind.UNINITIALISED_READ)
                    assert other.faults == tuple(fault for fault in single.faults if fault.kind not in kept)
                else:
                    assert getattr(single, item.name) == getattr(other, item.name), item.name
            if checked or not any(fault.kind == FaultKind.RACE for fault in single.faults):
                assert all(same(a, b, ulps) for a, b in zip(expected, mine, strict=True))
        return single

    return both


@pytest.fixture
def at_once(monkeypatch):
    """Fails if a kernel is walked a block at a time."""

    def walked(*_):
        raise AssertionError("walked a block at a time")

    monkeypatch.setitem(run.__globals__, "_blocks", walked)


CLEAN = {
    "vector_add": vector_add(5000, 64),
    "vector_add_tail": vector_add(4999, 64),
    "matmul": matmul(96, 64, 64, blocks=(16, 16, 16)),
    "matmul_tails": matmul(90, 60, 50, blocks=(16, 16, 16)),
    "matmul_float32": matmul(64, 64, 48, "float32", blocks=(32, 16, 16)),
    "softmax": softmax(32, 64, 1),
    "softmax_tail": softmax(31, 50, 4),
    "attention": attention(2, 3, 64, 16, causal=False, block=16),
    "attention_tail": attention(1, 2, 40, 16, causal=False, block=16),
    "attention_causal": attention(2, 3, 64, 16, causal=True, block=16),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_kernels_run_at_once(read, at_once, name):
    kernel = read(CLEAN[name])
    for checks in (True, False):
        assert not run(kernel, tensors_of(kernel), checks=checks).faults


@pytest.mark.parametrize("name", CLEAN)
def test_clean_kernels(both, name):
    assert not both(CLEAN[name], ulps=8 if "attention" in name else 0).faults


@pytest.mark.parametrize("elements", [512, 1 << 11])
@pytest.mark.parametrize("name", CLEAN)
def test_several_boxes(both, monkeypatch, name, elements):
    monkeypatch.setattr("grader.simulator.batch.ELEMENTS", elements)
    assert not both(CLEAN[name], ulps=8 if "attention" in name else 0).faults


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 400), st.sampled_from([1, 16, 48]))
def test_any_vector(both, n, block):
    assert not both(vector_add(n, block)).faults


@settings(max_examples=25, deadline=None)
@given(*[st.integers(1, 70)] * 3, st.sampled_from(["float16", "bfloat16", "float32"]))
def test_any_matmul(both, m, n, k, dtype):
    assert not both(matmul(m, n, k, dtype, blocks=(16, 16, 16))).faults


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 90), st.integers(1, 5))
def test_any_softmax(both, rows, columns, per_block):
    assert not both(softmax(rows, columns, per_block)).faults


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 40), st.booleans())
def test_any_attention(both, batch, heads, length, causal):
    both(attention(batch, heads, length, 16, causal, block=16), ulps=64)


def test_kernels_that_use_much_of_the_language(both):
    both(odd(40))
    both(threads_own())


@T.prim_func
def three_dimensions(X: T.Tensor((5, 9, 33), "int32"), Y: T.Tensor((5, 9, 33), "int32")):
    with T.Kernel(T.ceildiv(33, 8), T.ceildiv(9, 4), 5, threads=32) as (bx, by, bz):
        s = T.alloc_shared((4, 8), "int32")
        flat = T.reshape(s, (32,))
        T.copy(X[bz, by * 4 : by * 4 + 4, bx * 8 : bx * 8 + 8], s)
        for i in T.Parallel(32):
            flat[i] = flat[i] * (bx + 10 * by + 100 * bz) + i
        T.copy(s, Y[bz, by * 4 : by * 4 + 4, bx * 8 : bx * 8 + 8])


@T.prim_func
def stencil(X: T.Tensor((70, 70), "float32"), Y: T.Tensor((70, 70), "float32")):
    with T.Kernel(T.ceildiv(70, 16), T.ceildiv(70, 16), threads=32) as (bx, by):
        halo = T.alloc_shared((18, 18), "float32")
        T.copy(X[by * 16 - 1 : by * 16 + 17, bx * 16 - 1 : bx * 16 + 17], halo)
        for i, j in T.Parallel(16, 16):
            if by * 16 + i < 70 and bx * 16 + j < 70:
                Y[by * 16 + i, bx * 16 + j] = (
                    halo[i, j + 1] + halo[i + 2, j + 1] - halo[i + 1, j] * halo[i + 1, j + 2]
                )


@T.prim_func
def own_memory(X: T.Tensor((64, 8), "float32"), N: T.Tensor((64,), "int32"), Y: T.Tensor((64, 8), "float32")):
    with T.Kernel(8, threads=32) as bx:
        v = T.alloc_var("float32")
        w = T.alloc_local((3,), "float32")
        count = T.alloc_var("int32")
        count = 0
        while count < 3:
            count += 1
        for i, j in T.Parallel(8, 8):
            v = 0.0
            for k in T.serial(3):
                w[k] = X[bx * 8 + i, (j + k) % 8]
            for k in T.serial(N[bx * 8 + i] % 4):
                v += w[k % 3] * T.cast(count, "float32")
            Y[bx * 8 + i, j] = v


@T.prim_func
def gather(X: T.Tensor((50, 16), "float16"), N: T.Tensor((40,), "int32"), Y: T.Tensor((40, 16), "float32")):
    with T.Kernel(40, threads=32) as bx:
        total = T.alloc_fragment((1,), "float32")
        row = T.alloc_fragment((1, 16), "float32")
        at = N[bx] % 50
        for i, j in T.Parallel(1, 16):
            row[i, j] = T.cast(X[at, j], "float32")
        T.reduce_sum(row, total, dim=1)
        for j in T.Parallel(16):
            Y[bx, j] = row[0, j] / total[0] + T.Select(bx % 3 == 1, 1.0, 2.0)


@T.prim_func
def bytes_and_halves(
    A: T.Tensor((48, 32), "int8"),
    B: T.Tensor((32, 32), "int8"),
    C: T.Tensor((48, 32), "int32"),
    H: T.Tensor((48, 32), "float16"),
    U: T.Tensor((48, 32), "uint8"),
):
    with T.Kernel(2, 3, threads=32) as (bx, by):
        a = T.alloc_shared((16, 32), "int8")
        b = T.alloc_shared((32, 16), "int8")
        c = T.alloc_fragment((16, 16), "int32")
        h = T.alloc_fragment((16, 16), "float16")
        top = T.alloc_fragment((16,), "int32")
        T.copy(A[by * 16, 0], a)
        T.copy(B[0, bx * 16], b)
        T.gemm(a, b, c, clear_accum=True)
        T.copy(c, C[by * 16, bx * 16])
        T.reduce_max(c, top, dim=0)
        for i, j in T.Parallel(16, 16):
            h[i, j] = T.cast(c[i, j], "float16") * T.cast(0.01, "float16") + T.cast(top[j], "float16")
        T.copy(h, H[by * 16, bx * 16])
        for i, j in T.Parallel(16, 16):
            U[by * 16 + i, bx * 16 + j] = T.cast(c[i, j] & 255, "uint8") + T.cast(by, "uint8")


@T.prim_func
def halves(A: T.Tensor((64, 40), "float16"), B: T.Tensor((64, 40), "float16"), C: T.Tensor((64, 64), "float16")):
    with T.Kernel(4, 4, threads=32) as (bx, by):
        a = T.alloc_shared((16, 40), "float16")
        b = T.alloc_shared((16, 40), "float16")
        c = T.alloc_fragment((16, 16), "float16")
        T.copy(A[by * 16, 0], a)
        T.copy(B[bx * 16, 0], b)
        T.clear(c)
        T.gemm(a, b, c, transpose_B=True)
        T.gemm(a, b, c, transpose_B=True)
        T.copy(c, C[by * 16, bx * 16])


@pytest.mark.parametrize("kernel", [three_dimensions, stencil, own_memory, gather, bytes_and_halves, halves])
def test_other_kernels(read, both, at_once, monkeypatch, kernel):
    run(read(kernel), tensors_of(read(kernel)))
    monkeypatch.undo()
    assert not both(kernel).faults


@T.prim_func
def edges(X: T.Tensor((64,), "float32"), N: T.Tensor((1,), "int32"), Y: T.Tensor((64,), "float32")):
    with T.Kernel(16, threads=32) as bx:
        for i in T.Parallel(4):
            Y[bx * 4 + i] = X[bx * 4 + i] + T.if_then_else(bx == 2 and i == 1, T.cast(N[0], "float32"), 1.0)
            if bx == 0 and i == 0:
                Y[0] = 1.0
            elif bx * 4 + i > 40:
                Y[bx * 4 + i] = 2.0
            for _k in T.serial(T.min(bx, 3)):
                Y[bx * 4 + i] = T.cast(i, "float32")


@T.prim_func
def every_other(X: T.Tensor((200,), "float32"), Y: T.Tensor((200,), "float32")):
    with T.Kernel(50, threads=32) as bx:
        for i in T.Parallel(4):
            if bx % 2 == 1 and i > 1:
                Y[bx * 4 + i] = X[bx * 4 + i]


def test_blocks_that_do_not_run_a_statement_do_not_count_it(both):
    assert not both(edges).faults
    assert not both(every_other).faults


# What isn't clean


@T.prim_func
def all_write_one(X: T.Tensor((64,), "float32"), Y: T.Tensor((8,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        for i in T.Parallel(8):
            Y[i] = X[bx * 8 + i]


@T.prim_func
def neighbours_write_one(X: T.Tensor((64,), "float32"), Y: T.Tensor((72,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        s = T.alloc_shared((9,), "float32")
        T.copy(X[bx * 8 : bx * 8 + 9], s)
        T.copy(s, Y[bx * 8 : bx * 8 + 9])


@T.prim_func
def scattered(N: T.Tensor((64,), "int32"), Y: T.Tensor((100,), "int32")):
    with T.Kernel(8, threads=32) as bx:
        for i in T.Parallel(8):
            Y[N[bx * 8 + i]] = bx


@T.prim_func
def overlapping_later(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        s = T.alloc_shared((8,), "float32")
        T.copy(X[bx * 8], s)
        T.copy(s, Y[bx * 8])
        T.copy(s, Y[(bx + 1) % 8 * 8])


@T.prim_func
def unguarded(X: T.Tensor((60,), "float32"), Y: T.Tensor((60,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        for i in T.Parallel(8):
            Y[bx * 8 + i] = X[bx * 8 + i] + 1.0


@T.prim_func
def unwritten(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        s = T.alloc_shared((8,), "float32")
        for i in T.Parallel(8):
            if i < 7 or bx != 3:
                s[i] = X[bx * 8 + i]
        for i in T.Parallel(8):
            Y[bx * 8 + i] = s[i]


@T.prim_func
def tile_outside(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        s = T.alloc_shared((16,), "float32")
        T.fill(s, 0)
        T.copy(X[bx * 8 : bx * 8 + 8], s[bx + 2 : bx + 10])
        T.copy(s[0:8], Y[bx * 8 : bx * 8 + 8])


@T.prim_func
def divided(N: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
    with T.Kernel(8, threads=32) as bx:
        for i in T.Parallel(8):
            Y[bx * 8 + i] = T.truncdiv(100, N[bx * 8 + i] % 3)


@T.prim_func
def reads_its_output(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        for i in T.Parallel(8):
            Y[bx * 8 + i] = X[bx * 8 + i]
        for i in T.Parallel(8):
            Y[bx * 8 + i] = Y[T.max(bx * 8 + i - 3, 0)] + 1.0


UNCLEAN = {
    "all_write_one": (all_write_one, FaultKind.RACE),
    "neighbours_write_one": (neighbours_write_one, FaultKind.RACE),
    "scattered": (scattered, FaultKind.RACE),
    "overlapping_later": (overlapping_later, FaultKind.RACE),
    "unguarded": (unguarded, FaultKind.OUT_OF_BOUNDS_WRITE),
    "unwritten": (unwritten, FaultKind.UNINITIALISED_READ),
    "tile_outside": (tile_outside, FaultKind.OUT_OF_BOUNDS_WRITE),
    "divided": (divided, FaultKind.DIVISION_BY_ZERO),
    "reads_its_output": (reads_its_output, FaultKind.RACE),
}


@pytest.mark.parametrize("name", UNCLEAN)
def test_faults(both, name):
    function, kind = UNCLEAN[name]
    assert kind in {fault.kind for fault in both(function).faults}


@T.prim_func
def depends_on_data(N: T.Tensor((8,), "int32"), Y: T.Tensor((64,), "int32")):
    with T.Kernel(8, threads=32) as bx:
        n = T.alloc_shared((1,), "int32")
        T.copy(N[bx : bx + 1], n)
        for i in T.Parallel(8):
            Y[bx * 8 + i] = 0
        if n[0] > 50:
            for i in T.Parallel(8):
                Y[bx * 8 + i] = n[0]


@T.prim_func
def depends_on_block(Y: T.Tensor((64,), "int32")):
    with T.Kernel(8, threads=32) as bx:
        for i in T.Parallel(8):
            Y[bx * 8 + i] = bx
        if bx % 2 == 0:
            for i in T.Parallel(8):
                Y[bx * 8 + i] = -i


def test_conditions(both):
    both(depends_on_data)
    both(depends_on_data, torch.full((8,), 77, dtype=torch.int32), torch.zeros(64, dtype=torch.int32))
    both(depends_on_block)


def test_tensors_that_share_memory(read):
    """A block then reads what another wrote, and must be walked in turn."""
    kernel = read(unguarded)
    results = []
    for batched in (True, False):
        memory = torch.arange(61.0)
        run(kernel, [memory[:60], memory[1:]], batched=batched)
        results.append(memory)
    assert torch.equal(*results)


@pytest.mark.parametrize("steps", [1, 10, 100, 300])
def test_the_budget_ends_where_it_does_a_block_at_a_time(read, steps):
    kernel = read(matmul(96, 64, 64, blocks=(16, 16, 16)))
    ends = []
    for batched in (True, False):
        with pytest.raises(OverBudget) as caught:
            run(kernel, tensors_of(kernel), budget=Budget(steps=steps), batched=batched)
        ends.append((caught.value.message, caught.value.line))
    assert ends[0] == ends[1]


def test_little_memory_is_used_for_fewer_blocks(read, at_once):
    kernel = read(softmax(64, 100, 1))
    assert not run(kernel, tensors_of(kernel), budget=Budget(bytes=1 << 17)).faults


def test_boxes_follow_the_order_of_memory_budget_and_grid():
    from grader.simulator.batch import _chunks

    assert _chunks([1000], 250) == [250]
    assert _chunks([1001], 250) == [201]
    assert _chunks([4, 8], 16) == [2, 8]
    assert _chunks([4, 8], 8) == [1, 8]
    assert _chunks([4, 8], 5) == [1, 4]
    assert _chunks([3, 2, 2], 100) == [3, 2, 2]
    assert _chunks([7], 0) == [1]

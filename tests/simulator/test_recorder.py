"""The record of one block: what each step reads and writes, with values known to be right."""

import pytest
import tilelang.language as T
import torch
from simulated_kernels import matmul, vector_add

from grader.simulator import Recorder


def recorded(simulate, kernel, *tensors, block=(0, 0), **limits):
    recorder = Recorder(block, **limits)
    simulate(kernel, *tensors, record=recorder)
    return recorder.trace("kernel")


def tile(touch) -> torch.Tensor:
    """The values of a touch that is a whole box, in its shape."""
    assert touch.elements is None
    return torch.tensor(touch.values).reshape([high - low for low, high in touch.box])


def named(trace, touches):
    return {trace.buffers[touch.buffer].name: touch for touch in touches}


@pytest.mark.parametrize("block", [(0, 0), (2, 1)])
def test_a_matmul_step_by_step(simulate, block):
    m, n, k, bm, bn, bk = 64, 96, 64, 32, 32, 16
    a, b, c = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.zeros(m, n).half()
    trace = recorded(simulate, matmul(m, n, k, blocks=(bm, bn, bk)), a, b, c, block=block)
    bx, by = block
    rows, columns = slice(by * bm, by * bm + bm), slice(bx * bn, bx * bn + bn)
    assert trace.block == block
    assert trace.grid == (3, 2)
    assert [(x.name, x.scope, x.shape) for x in trace.buffers[:3]] == [
        ("A", "global", (m, k)),
        ("B", "global", (k, n)),
        ("C", "global", (m, n)),
    ]
    assert [(x.scope, x.shape) for x in trace.buffers[3:]] == [
        ("fragment", (bm, bn)),
        ("shared", (bm, bk)),
        ("shared", (bk, bn)),
    ]
    clear, *loop, back = trace.steps
    assert clear.reads == ()
    assert torch.equal(tile(clear.writes[0]), torch.zeros(bm, bn))
    total = torch.zeros(bm, bn)
    assert len(loop) == 3 * (k // bk)
    for ko in range(k // bk):
        part = slice(ko * bk, ko * bk + bk)
        copy_a, copy_b, product = loop[3 * ko : 3 * ko + 3]
        assert dict(copy_a.variables) == {"bx": bx, "by": by, "ko": ko}
        assert copy_a.reads[0].box == ((by * bm, by * bm + bm), (ko * bk, ko * bk + bk))
        assert torch.equal(tile(copy_a.reads[0]), a[rows, part].float())
        assert torch.equal(tile(copy_a.writes[0]), a[rows, part].float())
        assert copy_b.reads[0].box == ((ko * bk, ko * bk + bk), (bx * bn, bx * bn + bn))
        assert torch.equal(tile(copy_b.writes[0]), b[part, columns].float())
        total += a[rows, part].float() @ b[part, columns].float()
        assert set(named(trace, product.reads)) == {"a", "b", "c"}
        torch.testing.assert_close(tile(product.writes[0]), total)
    assert torch.equal(tile(back.writes[0]), c[rows, columns].float())
    assert back.writes[0].box == ((by * bm, by * bm + bm), (bx * bn, bx * bn + bn))
    assert trace.notes == ()


def test_a_tail_touches_only_what_exists(simulate):
    a, b, c = torch.randn(100), torch.randn(100), torch.zeros(100)
    (step,) = recorded(simulate, vector_add(100, 64), a, b, c, block=(1,)).steps
    assert step.parallel == (("i", 64),)
    assert [touch.box for touch in (*step.reads, *step.writes)] == [((64, 100),)] * 3
    assert torch.equal(tile(step.writes[0]), (a + b)[64:])
    assert step.text == "C[bx * 64 + i] = A[bx * 64 + i] + B[bx * 64 + i]"


def test_lines_lets_and_scattered_elements(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), N: T.Tensor((4,), "int32"), Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(2, threads=32) as bx:
            first = N[bx]  # let
            for k in T.serial(2):
                if N[k] > 2:  # condition
                    for i in T.Parallel(8):
                        if i % 2 == 0:
                            Y[first, i] = X[i, i] + T.cast(k, "float32")  # diagonal

    x = torch.randn(8, 8)
    trace = recorded(simulate, main, x, torch.tensor([5, 1, 0, 0], dtype=torch.int32), torch.zeros(8, 8))
    assert [step.where.line for step in trace.steps] == [
        line_of(marker) for marker in ("let", "condition", "diagonal", "condition")
    ]
    let, condition, store, other = trace.steps
    assert (let.text, let.reads[0].values) == ("first = N[bx]", (5,))
    assert (condition.text, condition.reads[0].box, dict(condition.variables)["k"]) == (
        "if N[k] > 2",
        ((0, 1),),
        0,
    )
    assert (other.reads[0].box, dict(other.variables)["k"]) == (((1, 2),), 1)
    (read,), (write,) = store.reads, store.writes
    assert dict(store.variables)["first"] == 5
    assert read.box == ((0, 7), (0, 7))
    assert read.elements == (0, 16, 32, 48)
    assert torch.equal(torch.tensor(read.values), x.diagonal()[::2])
    assert (write.box, write.elements) == (((5, 6), (0, 7)), (0, 2, 4, 6))
    assert torch.equal(torch.tensor(write.values), x.diagonal()[::2])


def test_views_show_as_the_memory_that_they_view(simulate):
    @T.prim_func
    def main(X: T.Tensor((4, 8), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            t = T.alloc_fragment((4, 8), "float32")
            flat = T.reshape(t, (32,))
            T.copy(X, t)
            for i in T.Parallel(5):
                flat[i + 8] = flat[i + 8] * 2.0
            T.copy(flat, Y)

    x = torch.randn(4, 8)
    trace = recorded(simulate, main, x, torch.zeros(32))
    assert [buffer.shape for buffer in trace.buffers] == [(4, 8), (32,), (4, 8)]
    (write,) = trace.steps[1].writes
    assert (write.buffer, write.box) == (2, ((1, 2), (0, 5)))
    assert torch.equal(tile(write), 2 * x[1:2, :5])


def test_a_record_changes_nothing(simulate):
    kernel = matmul(64, 64, 64, blocks=(32, 32, 16))
    inputs = torch.randn(64, 64).half(), torch.randn(64, 64).half()
    plain, watched = torch.zeros(64, 64).half(), torch.zeros(64, 64).half()
    before = simulate(kernel, *inputs, plain)
    after = simulate(kernel, *inputs, watched, record=Recorder())
    assert torch.equal(plain, watched)
    assert (before.steps, before.traffic) == (after.steps, after.traffic)


def test_what_is_left_out_is_said(simulate):
    inputs = [torch.zeros(64, 64).half() for _ in range(3)]
    kernel = matmul(64, 64, 64, blocks=(32, 32, 16))
    few = recorded(simulate, kernel, *inputs, steps=5)
    assert len(few.steps) == 5
    assert few.notes == ("Only the first 5 steps are shown; 9 more were executed.",)
    short = recorded(simulate, kernel, *inputs, values=2000)
    assert len(short.steps) == 14
    kept = sum(len(t.values) for s in short.steps for t in (*s.reads, *s.writes) if t.values is not None)
    all_ = sum(t.count for s in short.steps for t in (*s.reads, *s.writes))
    assert 0 < kept <= 2000
    assert short.notes == (f"The values of {all_ - kept} elements were left out: only 2000 are kept.",)


@pytest.mark.parametrize("block", [(2, 0), (0, -1), (0, 0, 1), (0, 0, 0, 0)])
def test_a_block_that_does_not_exist(simulate, block):
    with pytest.raises(ValueError, match="has no block"):
        recorded(simulate, matmul(64, 64, 64, blocks=(32, 32, 16)), *[torch.zeros(64, 64).half()] * 3, block=block)

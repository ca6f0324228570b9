"""T.print, and what else serves to find errors."""

import tilelang.language as T
import torch

from grader.capture.lines import students_lines
from grader.simulator import FaultKind
from grader.simulator.printing import MOST_VALUES


def test_prints_are_recorded_with_block_and_line(simulate, line_of):
    with students_lines(None):

        @T.prim_func
        def main(X: T.Tensor((2, 4), "float32"), Y: T.Tensor((2, 4), "float32")):
            with T.Kernel(2, threads=32) as bx:
                x = T.alloc_shared((4,), "float32")
                f = T.alloc_fragment((2, 2), "int32")
                T.copy(X[bx, :], x)
                T.print(x, msg="the row")  # shared
                T.print(bx * 10 + 1)  # expression
                T.print(msg="here")  # message
                T.fill(f, bx)
                T.print(f)  # fragment
                T.copy(x, Y[bx, :])

    x = torch.arange(8.0).reshape(2, 4)
    result = simulate(main, x, torch.zeros(2, 4))
    said = [(p.block[0], p.line.number, p.message, p.name, p.values) for p in result.prints]
    for bx in range(2):
        assert said[4 * bx : 4 * bx + 4] == [
            (bx, line_of("shared"), "the row", "x", tuple(x[bx].tolist())),
            (bx, line_of("expression"), "expr<bx * 10 + 1>", "", (10 * bx + 1,)),
            (bx, line_of("message"), "here", "", ()),
            (bx, line_of("fragment"), "buffer<f, int32>", "f", (bx, bx, bx, bx)),
        ]
    assert result.prints_left_out == 0


def test_prints_of_iterations_and_threads(simulate):
    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            tx = T.get_thread_binding()
            for i in T.Parallel(8):
                if X[i] > 4.0:
                    T.print(X[i], msg="large")
                Y[i] = X[i]
            if tx >= 30:
                T.print(tx, msg="thread")

    result = simulate(main, torch.arange(8.0), torch.zeros(8))
    assert [(p.message, p.values) for p in result.prints] == [("large", (5.0, 6.0, 7.0)), ("thread", (30, 31))]


def test_a_flood_is_cut(simulate):
    @T.prim_func
    def main(Y: T.Tensor((1024,), "float32")):
        with T.Kernel(8, threads=32) as bx:
            x = T.alloc_shared((1024,), "float32")
            T.fill(x, 1.0)
            T.print(x)
            if bx == 0:
                T.copy(x, Y)

    result = simulate(main, torch.zeros(1024))
    assert sum(len(p.values) for p in result.prints) == MOST_VALUES
    assert result.prints_left_out == 8 * 1024 - MOST_VALUES


def test_of_a_flood_in_one_statement_the_beginning_is_kept(simulate):
    @T.prim_func
    def main(Y: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(2 * MOST_VALUES):
                T.print(i)
            T.print(Y.shape[0])

    result = simulate(main, torch.zeros(1, dtype=torch.int32))
    (printed,) = result.prints
    assert printed.values == tuple(range(MOST_VALUES))
    assert result.prints_left_out == MOST_VALUES + 1


def test_a_failed_assertion_says_its_message(simulate):
    @T.prim_func
    def main(Y: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            T.device_assert(bx < 3, "one block too many")
            Y[bx] = 1.0

    result = simulate(main, torch.zeros(4), faulty=True)
    (fault,) = result.faults
    assert (fault.kind, fault.block, fault.count) == (FaultKind.ASSERTION, (3, 0, 0), 1)
    assert "one block too many" in fault.expression


def test_hints_change_nothing(simulate):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            T.annotate_min_blocks_per_sm(2)
            T.annotate_l2_hit_ratio({X: 0.5})
            T.annotate_restrict_buffers(X, Y)
            for i in T.Parallel(64, coalesced_width=2):
                Y[i] = X[i] + 1.0

    x, y = torch.randn(64), torch.zeros(64)
    simulate(main, x, y)
    assert torch.equal(y, x + 1)

"""Every kind of fault: found where it is, with its line, block and element, and not where it isn't."""

import tilelang.language as T
import torch

NAN = float("nan")


def seen(result):
    return [(str(f.kind), f.buffer, f.line.number, f.block, f.index, f.count) for f in result.faults]


def test_out_of_bounds_of_global_memory(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((100,), "float32"), Y: T.Tensor((100,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] + 1.0  # access

    x, y = torch.randn(100), torch.full((100,), NAN)
    result = simulate(main, x, y, faulty=True)
    here = line_of("access")
    assert seen(result) == [
        ("out_of_bounds_read", "X", here, (1, 0, 0), (100,), 28),
        ("out_of_bounds_write", "Y", here, (1, 0, 0), (100,), 28),
    ]
    assert result.faults[0].expression == "X[bx * 64 + i]"
    assert torch.equal(y, x + 1)


def test_negative_indices(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i, j in T.Parallel(8, 8):
                Y[i, j] = X[i, j - 2]

    x, y = torch.randn(8, 8), torch.full((8, 8), NAN)
    result = simulate(main, x, y, faulty=True)
    ((kind, buffer, _line, block, index, count),) = seen(result)
    assert (kind, buffer, block, index, count) == ("out_of_bounds_read", "X", (0, 0, 0), (0, -2), 16)
    assert torch.equal(y[:, 2:], x[:, :-2])
    assert not y[:, :2].any()


def test_out_of_bounds_of_a_tile(simulate):
    @T.prim_func
    def main(Y: T.Tensor((8,), "float32"), Z: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((8,), "float32")
            b = T.alloc_fragment((8,), "int32")
            for i in T.Parallel(8):
                a[i + 1] = 2.0
            a[0] = 1.0
            for i in T.Parallel(8):
                b[i] = i
            for i in T.Parallel(8):
                Y[i] = a[i * 2]
                Z[i] = b[i]
            Z[0] = b[8]

    y, z = torch.zeros(8), torch.zeros(8, dtype=torch.int32)
    result = simulate(main, y, z, faulty=True)
    assert [s[:2] + s[4:] for s in seen(result)] == [
        ("out_of_bounds_write", "a", (8,), 1),
        ("out_of_bounds_read", "a", (8,), 4),
        ("out_of_bounds_read", "b", (8,), 1),
    ]
    assert y[:4].tolist() == [1, 2, 2, 2]
    assert y[4:].isnan().all()


def test_a_copy_over_the_edge_of_a_tile(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((8,), "float32")
            T.copy(X[0:8], a[4:12])  # copy
            T.copy(X[0:4], a[0:4])
            T.copy(a, Y)

    result = simulate(main, torch.randn(64), torch.zeros(8), faulty=True)
    assert seen(result) == [("out_of_bounds_write", "a", line_of("copy"), (0, 0, 0), (8,), 4)]


def test_uninitialised_tiles(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float16"), Y: T.Tensor((8, 8), "float32"), Z: T.Tensor((8,), "int32")):
        with T.Kernel(3, threads=32) as bx:
            a = T.alloc_shared((8, 8), "float16")
            c = T.alloc_fragment((8, 8), "float32")
            n = T.alloc_fragment((8,), "int32")
            m = T.alloc_fragment((8,), "float32")
            T.copy(X, a)
            T.gemm(a, a, c)  # gemm
            T.reduce_max(c, m, dim=1, clear=False)
            if bx == 2:
                T.copy(c, Y)
                for i in T.Parallel(8):
                    if i > 4:
                        n[i] = i
                T.copy(n, Z)  # copy out

    result = simulate(main, torch.ones(8, 8).half(), torch.zeros(8, 8), torch.zeros(8).int(), faulty=True)
    product, reduction, copy = seen(result)
    assert product == ("uninitialised_read", "c", line_of("gemm"), (0, 0, 0), (0, 0), 3 * 64)
    # T.reduce is a macro: its statements have lines of TileLang's own file.
    assert reduction[:2] + reduction[3:] == ("uninitialised_read", "m", (0, 0, 0), (0,), 3 * 8)
    assert result.faults[1].line.file.endswith("reduce_op.py")
    assert copy == ("uninitialised_read", "n", line_of("copy out"), (2, 0, 0), (0,), 5)


def test_an_output_that_is_read(simulate):
    @T.prim_func
    def main(Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(8):
                Y[i] = Y[i] + 1.0

    result = simulate(main, torch.zeros(8), faulty=True)
    assert [s[:2] + s[4:] for s in seen(result)] == [("uninitialised_read", "Y", (0,), 8)]
    y = torch.zeros(8)
    simulate(main, y, outputs=())  # a parameter that goes in and out
    assert y.tolist() == [1.0] * 8


def test_a_race_between_iterations(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i, j in T.Parallel(8, 8):
                Y[i] = X[i, j]  # race

    x, y = torch.randn(8, 8), torch.zeros(8)
    x[3] = 1.0
    result = simulate(main, x, y, faulty=True)
    ((kind, buffer, line, block, index, count),) = seen(result)
    assert (kind, buffer, line, block, index) == ("race", "Y", line_of("race"), (0, 0, 0), (0,))
    assert count == 7 * 7
    assert torch.equal(y, x[:, 7])


def test_iterations_that_write_the_same_value_are_no_race(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((8,), "float32"), Z: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i, j in T.Parallel(8, 8):
                Y[i] = X[i, 0]
                Z[i // 2] = T.if_then_else(j >= 0, 3.0, 4.0)

    x, y, z = torch.randn(8, 8), torch.zeros(8), torch.zeros(8)
    simulate(main, x, y, z)
    assert torch.equal(y, x[:, 0])
    assert z.tolist() == [3.0] * 4 + [0.0] * 4


def test_a_race_between_reads_and_writes_of_a_nest(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((16,), "float32")
            T.clear(a)
            T.copy(X, a[0:8])
            for i in T.Parallel(8):
                a[i] = a[i + 1]  # shift
            T.copy(a[0:8], Y)

    result = simulate(main, torch.arange(8.0) + 1, torch.zeros(8), faulty=True)
    ((kind, buffer, line, _block, index, count),) = seen(result)
    assert (kind, buffer, line, index, count) == ("race", "a", line_of("shift"), (1,), 7)


def test_a_sum_over_iterations_is_a_race(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            total = T.alloc_fragment((8,), "float32")
            T.clear(total)
            for i, j in T.Parallel(8, 8):
                total[i] += X[i, j]
            T.copy(total, Y)

    result = simulate(main, torch.ones(8, 8), torch.zeros(8), faulty=True)
    assert {s[:2] for s in seen(result)} == {("race", "total")}


def test_iterations_of_inner_loops_that_meet(simulate):
    @T.prim_func
    def main(Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(8):
                for k in T.serial(3):
                    Y[i + k] = T.cast(i, "float32")

    result = simulate(main, torch.zeros(16), faulty=True)
    assert {s[:2] for s in seen(result)} == {("race", "Y")}


def test_in_place_updates_are_no_race(simulate):
    @T.prim_func
    def main(Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_fragment((8, 8), "float32")
            flat = T.reshape(a, (64,))
            row = T.alloc_fragment((8,), "float32")
            T.fill(a, 1)
            T.fill(row, 2)
            for i, j in T.Parallel(8, 8):
                r = i
                a[r, j] = a[r, j] + row[i]
                a[i, j] = a[i, j] * 2.0
            for i, j in T.Parallel(8, 8):
                flat[i * 8 + j] = flat[i * 8 + j] + 1.0
            for i, j in T.Parallel(8, 8):
                for _ in T.serial(3):
                    a[i, j] += 1.0
            T.copy(a, Y)

    y = torch.zeros(8, 8)
    simulate(main, y)
    assert y.tolist() == [[10.0] * 8] * 8


def test_a_variable_carried_from_iteration_to_iteration(simulate):
    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            v = T.alloc_var("float32")
            v = 0.0
            for i in T.Parallel(8):
                v += X[i]
            Y[0] = v

    result = simulate(main, torch.ones(8), torch.zeros(1), faulty=True)
    assert [s[:2] for s in seen(result)] == [("race", "v"), ("uninitialised_read", "v")]


def test_a_race_between_blocks(simulate, line_of):
    @T.prim_func
    def main(Y: T.Tensor((64,), "float32"), Z: T.Tensor((8,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            a = T.alloc_shared((20,), "float32")
            T.fill(a, 1)
            T.copy(a, Y[bx * 16])  # overlap
            Z[0] = 1.0  # scalar

    result = simulate(main, torch.zeros(64), torch.zeros(8), faulty=True)
    assert seen(result) == [
        ("race", "Z", line_of("scalar"), (1, 0, 0), (0,), 3),
        ("race", "Y", line_of("overlap"), (1, 0, 0), (16,), 12),
    ] or seen(result) == [
        ("race", "Y", line_of("overlap"), (1, 0, 0), (16,), 12),
        ("race", "Z", line_of("scalar"), (1, 0, 0), (0,), 3),
    ]


def test_reading_what_another_block_wrote(simulate):
    @T.prim_func
    def main(Y: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            if bx == 0:
                Y[0] = 1.0
            else:
                Y[bx] = Y[bx - 1] + 1.0

    result = simulate(main, torch.zeros(4), faulty=True)
    assert [s[:2] + s[3:] for s in seen(result)] == [("race", "Y", (1, 0, 0), (0,), 3)]


def test_statements_that_every_thread_runs(simulate, line_of):
    @T.prim_func
    def main(Y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((4,), "float32")
            n = T.alloc_var("float32")
            a[0] = 1.0
            a[1] = a[0] + 1.0
            a[0] = a[0] + 1.0  # twice
            n = 1.0
            n = n + 1.0
            Y[0] = a[0] + n

    result = simulate(main, torch.zeros(4), faulty=True)
    assert seen(result) == [("race", "a", line_of("twice"), (0, 0, 0), (0,), 1)]


def test_a_copy_onto_itself(simulate):
    @T.prim_func
    def main(X: T.Tensor((16,), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((16,), "float32")
            T.copy(X, a)
            T.copy(a[0:8], a[8:16])
            T.copy(a[0:8], a[4:12])
            T.copy(a, Y)

    result = simulate(main, torch.randn(16), torch.zeros(16), faulty=True)
    assert [s[:2] for s in seen(result)] == [("race", "a")]


def test_division_by_zero(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((8,), "int32"), Y: T.Tensor((8,), "int32"), Z: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(8):
                Y[i] = T.truncdiv(i, X[i])  # parallel
                Z[i] = T.if_then_else(X[i] != 0, T.truncmod(i, X[i]), 9)
            Z[0] = X[1] // X[0]  # single

    x = torch.tensor([0, 1, 2, 0, 3, 3, -1, -2], dtype=torch.int32)
    y, z = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    result = simulate(main, x, y, z, faulty=True)
    assert [(str(f.kind), f.line.number, f.count) for f in result.faults] == [
        ("division_by_zero", line_of("parallel"), 2),
        ("division_by_zero", line_of("single"), 1),
    ]
    assert y.tolist() == [0, 1, 1, 0, 1, 1, -6, -3]


def test_assertions(simulate):
    @T.prim_func
    def main(X: T.Tensor((8,), "int32")):
        with T.Kernel(4, threads=32) as bx:
            T.device_assert(bx < 3)
            T.device_assert(X[bx] == 0)

    result = simulate(main, torch.zeros(8, dtype=torch.int32), faulty=True)
    assert [(str(f.kind), f.block) for f in result.faults] == [("assertion", (3, 0, 0))]

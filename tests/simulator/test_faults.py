"""Every kind of fault: found where it is, with its line, block and element, and not where it isn't."""

import pytest
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


@pytest.mark.parametrize("m", [3, 4, 7])
@pytest.mark.parametrize("n", [4, 6, 8])
@pytest.mark.parametrize("guard", ["none", "rows", "columns", "both"])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_missing_guard_of_two_loops(simulate, m, n, guard, transposed):
    """Whichever dimensions leave the buffer, each alone or together, loads and stores are faults, no crash."""
    rows, columns = (2 * m, n) if transposed else (m, n)
    block = 4

    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(columns, block), T.ceildiv(rows, block), threads=32) as (bx, by):
            for i, j in T.Parallel(block, block):
                r = by * block + (j if transposed else i)
                c = bx * block + (i if transposed else j)
                if (guard in ("none", "columns") or r < rows) and (guard in ("none", "rows") or c < columns):
                    Y[r, c] = X[r, c] + X[r, 0] + X[0, c]

    x, y = torch.randn(rows, columns), torch.full((rows, columns), NAN)
    result = simulate(main, x, y, faulty=True)
    up = -(-rows // block) * block if guard in ("none", "columns") else rows
    right = -(-columns // block) * block if guard in ("none", "rows") else columns
    missing = up * right - rows * columns
    writes = [fault for fault in result.faults if fault.kind == "out_of_bounds_write"]
    assert sum(fault.count for fault in writes) == missing
    assert bool(result.faults) == bool(missing)
    for fault in result.faults:
        assert fault.index[0] >= rows or fault.index[1] >= columns
        assert fault.index[0] < up and fault.index[1] < right  # noqa: PT018
    assert torch.equal(y, x + x[:, :1] + x[:1])


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


def _shifted(n: int, distance: int):
    @T.prim_func
    def main(X: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 8), threads=32) as bx:
            ahead = T.alloc_fragment((8,), "float32")
            for i in T.Parallel(8):
                ahead[i] = T.if_then_else(bx * 8 + i + distance < n, X[bx * 8 + i + distance], 0.0)
            for i in T.Parallel(8):
                X[bx * 8 + i] = ahead[i]  # in place

    return main


def test_writing_what_another_block_has_read(simulate, line_of):
    x = torch.arange(32.0)
    result = simulate(_shifted(32, 3), x, faulty=True, outputs=())
    # Blocks 0 to 2 read the first three elements of the next block's, which that one writes.
    assert seen(result) == [("race", "X", line_of("in place"), (1, 0, 0), (8,), 9)]
    assert torch.equal(x, torch.cat((torch.arange(3.0, 32.0), torch.zeros(3))))
    simulate(_shifted(32, 0), x, outputs=())


def test_a_block_may_write_what_only_it_has_read(simulate):
    @T.prim_func
    def main(X: T.Tensor((32, 32), "float16")):
        with T.Kernel(2, 2, threads=32) as (bx, by):
            tile = T.alloc_shared((16, 16), "float16")
            T.copy(X[by * 16, bx * 16], tile)
            for i, j in T.Parallel(16, 16):
                X[by * 16 + i, bx * 16 + j] = X[by * 16 + i, bx * 16 + j] + tile[i, j]
            T.copy(tile, X[by * 16, bx * 16])

    x = torch.randn(32, 32).half()
    before = x.clone()
    simulate(main, x, outputs=())
    assert torch.equal(x, before)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_tile_that_another_block_has_read(simulate, line_of, transposed):
    """A transposition in place: on the diagonal a block meets only itself."""

    @T.prim_func
    def main(X: T.Tensor((32, 32), "float32")):
        with T.Kernel(2, 2, threads=32) as (bx, by):
            tile = T.alloc_shared((16, 16), "float32")
            T.copy(X[by * 16, bx * 16], tile)
            if transposed:
                T.copy(tile, X[bx * 16, by * 16])  # to the other side
            else:
                T.copy(tile, X[by * 16, bx * 16])

    result = simulate(main, torch.randn(32, 32), faulty=True, outputs=())
    races = seen(result)
    if not transposed:
        assert not races
        return
    # Block (1, 0) overwrites what block (0, 1) reads, which finds that out when it comes to read it, and
    # overwrites in turn what block (1, 0) has read.
    assert races[1] == ("race", "X", line_of("to the other side"), (0, 1, 0), (0, 16), 256)
    assert [race[3:] for race in races] == [((0, 1, 0), (16, 0), 256), ((0, 1, 0), (0, 16), 256)]


def test_reads_of_inactive_iterations_do_not_count(simulate):
    @T.prim_func
    def main(X: T.Tensor((32,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(16):
                if bx * 8 + i < T.min(bx * 8 + 8, 32):
                    X[bx * 8 + i] = X[bx * 8 + i] + 1.0

    simulate(main, torch.zeros(32), outputs=())


def test_a_sliding_window_that_is_read_and_overwritten(simulate, line_of):
    """Several iterations read one element; the blocks' windows overlap by two."""

    @T.prim_func
    def main(X: T.Tensor((32,), "float32"), Y: T.Tensor((30, 3), "float32")):
        with T.Kernel(3, threads=32) as bx:
            for i, j in T.Parallel(10, 3):
                Y[bx * 10 + i, j] = X[bx * 10 + i + j]
            for i in T.Parallel(10):
                X[bx * 10 + i] = 0.0  # overwrite

    x, y = torch.randn(32), torch.zeros(30, 3)
    windows = x.clone().unfold(0, 3, 1)
    result = simulate(main, x, y, faulty=True, outputs=(1,))
    assert seen(result) == [("race", "X", line_of("overwrite"), (1, 0, 0), (10,), 4)]
    assert torch.equal(y, windows)


def test_output_elements_that_are_never_written(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((40,), "float32"), Y: T.Tensor((40,), "float32"), Z: T.Tensor((2, 3), "float32")):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(16):
                Y[bx * 16 + i] = X[bx * 16 + i]  # too few
                if bx == 0 and i == 5:
                    Y[39] = 1.0  # the last

    tensors = torch.randn(40), torch.full((40,), NAN), torch.full((2, 3), NAN)
    result = simulate(main, *tensors, faulty=True, outputs=(1, 2))
    assert seen(result) == [
        ("unwritten", "Y", line_of("the last"), (), (32,), 7),
        ("unwritten", "Z", result.faults[1].line.number, (), (0, 0), 6),
    ]
    assert result.faults[0].expression == "Y[39] = 1"
    assert simulate(main, *tensors).faults == ()  # nobody said that Y is an output


def test_a_copy_that_leaves_out_a_part_of_the_output(simulate, line_of):
    @T.prim_func
    def main(X: T.Tensor((24, 24), "float16"), Y: T.Tensor((24, 24), "float16")):
        with T.Kernel(1, 2, threads=32) as (_bx, by):
            tile = T.alloc_shared((16, 16), "float16")
            T.copy(X[by * 16, 0], tile)
            T.copy(tile, Y[by * 16, 0])  # one column of tiles

    result = simulate(main, torch.randn(24, 24).half(), torch.zeros(24, 24).half(), faulty=True, outputs=(1,))
    assert seen(result) == [("unwritten", "Y", line_of("one column of tiles"), (), (0, 16), 24 * 8)]


def test_half_an_element_is_no_element(simulate):
    @T.prim_func
    def main(Y: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            halves = T.view(Y, (8,), "int16")
            for i in T.Parallel(7):
                halves[i] = T.cast(i, "int16")

    result = simulate(main, torch.zeros(4, dtype=torch.int32), faulty=True, outputs=(0,))
    assert [fault[0:2] + fault[4:] for fault in seen(result)] == [("unwritten", "Y", (3,), 1)]


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


@T.macro
def _counter(a, w, X):
    v = T.alloc_var("float32", init=0.0)
    for _k in T.serial(4):
        v = a[0] + 1.0
        a[0] = v


@T.macro
def _let(a, w, X):
    t = a[0] + 1.0
    a[0] = t


@T.macro
def _serial_sum(a, w, X):
    v = T.alloc_var("float32", init=0.0)
    for k in T.serial(4):
        v = v + a[k]
    a[0] = v


@T.macro
def _ping_pong(a, w, X):
    for _k in T.serial(4):
        a[1] = a[0]
        a[0] = a[1] * 2.0


@T.macro
def _swap(a, w, X):
    t = a[0]
    a[0] = a[1]
    a[1] = t


@T.macro
def _test_and_set(a, w, X):
    if a[0] == 1.0:
        a[0] = 2.0


@T.macro
def _backwards(a, w, X):
    for k in T.serial(3):
        a[k] = a[k + 1]
    for k in T.serial(3):
        a[k + 1] = a[k]


@T.macro
def _rewritten(a, w, X):
    v = T.alloc_var("float32", init=0.0)
    for k in T.serial(4):
        a[0] = T.cast(k, "float32")
        v = v + a[0]


@T.macro
def _written_twice(a, w, X):
    a[0] = 5.0
    a[0] = 6.0
    w[0] = a[0]


@T.macro
def _through_a_view(a, w, X):
    flat = T.view(a, (8,), dtype="float16")
    w[0] = a[0]
    flat[1] = T.float16(3.0)


@T.macro
def _fills_registers(a, w, X):
    v = T.alloc_var("float32", init=0.0)
    f = T.alloc_fragment((4,), "float32")
    v = a[0]
    T.fill(f, 1.0)
    a[0] = v + 1.0


RACES = [_counter, _let, _serial_sum, _ping_pong, _swap, _test_and_set, _backwards, _rewritten, _written_twice]
RACES += [_through_a_view, _fills_registers]


@T.macro
def _constants(a, w, X):
    for _k in T.serial(4):
        a[0] = 7.0
        a[1] = 8.0
        w[0] = a[0] + a[1]
    a[2] = 1.0
    a[2] = 2.0


@T.macro
def _inputs(a, w, X):
    for k in T.serial(4):
        a[k] = X[k] * 2.0
    w[0] = a[0] + a[3]


@T.macro
def _chain(a, w, X):
    for k in T.serial(3):
        a[k + 1] = a[k] + 1.0
    w[0] = a[3]


@T.macro
def _fenced(a, w, X):
    v = T.alloc_var("float32", init=0.0)
    for _k in T.serial(3):
        v = a[0] + 1.0
        T.sync_threads()
        a[0] = v
        T.sync_threads()


@T.macro
def _tiles_between(a, w, X):
    v = T.alloc_var("float32", init=0.0)
    for _k in T.serial(3):
        v = v + a[0]
        T.copy(X[0:4], a)
        v = v + a[1]
        for i in T.Parallel(4):
            a[i] = a[i] + 1.0


@T.macro
def _reduced(a, w, X):
    v = T.alloc_var("float32", init=0.0)
    f = T.alloc_fragment((4,), "float32")
    r = T.alloc_fragment((1,), "float32")
    T.copy(X[0:4], f)
    T.reduce_sum(f, r, dim=0)
    v = r[0]
    T.reduce_max(f, r, dim=0)
    v = v + r[0]


@T.macro
def _own(a, w, X):
    v = T.alloc_var("float32", init=0.0)
    w[0] = 0.0
    for k in T.serial(4):
        w[0] = w[0] + X[k]
        w[1] = w[0]
        w[0] = w[1]
        v = v * 2.0
    a[0] = w[0] + v


NO_RACES = [_constants, _inputs, _chain, _fenced, _tiles_between, _reduced, _own]


def _on_chip(body, alloc):
    @T.prim_func
    def main(X: T.Tensor((4,), "float32"), Y: T.Tensor((2, 4), "float32")):
        with T.Kernel(2, threads=32) as bx:
            a = alloc((4,), "float32")
            w = T.alloc_local((2,), "float32")
            T.copy(X, a)
            body(a, w, X)
            T.copy(a, Y[bx, 0:4])

    return main


def _in_global(body):
    @T.prim_func
    def main(X: T.Tensor((4,), "float32"), Y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            w = T.alloc_local((2,), "float32")
            body(Y, w, X)

    return main


def _run_by_every_thread(simulate, body, memory):
    x = torch.tensor([1.0, 2.0, 3.0, 5.0])
    if memory == "global":
        return simulate(_in_global(body), x, x.clone(), faulty=True, outputs=())
    alloc = T.alloc_shared if memory == "shared" else T.alloc_fragment
    return simulate(_on_chip(body, alloc), x, torch.zeros(2, 4), faulty=True)


def _named(body):
    return body.orig_func.__name__


@pytest.mark.parametrize("memory", ["shared", "global", "fragment"])
@pytest.mark.parametrize("body", RACES, ids=_named)
def test_races_of_statements_that_every_thread_runs(simulate, body, memory):
    if memory == "global" and body is _through_a_view:
        pytest.skip("views are of memory on the chip")
    result = _run_by_every_thread(simulate, body, memory)
    assert {str(fault.kind) for fault in result.faults} == {"race"}
    assert {fault.buffer for fault in result.faults} <= {"Y" if memory == "global" else "a", "flat"}
    assert len({fault.line for fault in result.faults}) == len(result.faults)


@pytest.mark.parametrize("memory", ["shared", "global"])
@pytest.mark.parametrize("body", NO_RACES, ids=_named)
def test_statements_that_are_the_same_for_every_thread_are_no_race(simulate, body, memory):
    if memory == "global" and body is _tiles_between:
        pytest.skip("tile operations on global memory alone are no barrier")
    assert _run_by_every_thread(simulate, body, memory).faults == ()


def test_blocks_are_no_threads(simulate):
    """What one block read, another block's threads read at another time: that is for other checks."""

    @T.prim_func
    def main(X: T.Tensor((4,), "float32"), Y: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            a = T.alloc_shared((1,), "float32")
            a[0] = X[bx]
            Y[bx] = a[0]

    x, y = torch.randn(4), torch.full((4,), NAN)
    simulate(main, x, y)
    assert torch.equal(x, y)


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

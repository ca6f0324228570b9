"""What a kernel moved and computed, against formulas in terms of the shapes."""

from math import ceil

import pytest
import tilelang.language as T
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_kernels import attention, matmul, softmax, vector_add

from grader.simulator.counters import Counters
from grader.verdict.traffic import Copies, Kind, Operations, Traffic

NAN = float("nan")


def operations(*items: tuple[Kind, str, int]) -> set[Operations]:
    return {Operations(kind, dtype, count) for kind, dtype, count in items if count}


@pytest.mark.parametrize("n", [1, 255, 256, 1000, 65536])
def test_vector_add(simulate, n):
    traffic = simulate(vector_add(n), torch.randn(n), torch.randn(n), torch.full((n,), NAN)).traffic
    for name in "AB":
        buffer = traffic.buffer(name)
        assert (buffer.read, buffer.written, buffer.distinct_read, buffer.reread) == (4 * n, 0, 4 * n, 1.0)
    c = traffic.buffer("C")
    assert (c.read, c.written, c.distinct_read, c.distinct_written, c.reread) == (0, 4 * n, 0, 4 * n, None)
    assert set(traffic.operations) == operations((Kind.ADD, "float32", n))
    assert (traffic.bytes, traffic.distinct, traffic.flops) == (12 * n, 12 * n, n)
    assert traffic.intensity == pytest.approx(1 / 12)
    assert (traffic.blocks, traffic.threads, traffic.shared, traffic.copies) == (ceil(n / 256), 128, 0, ())


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("m", "n", "k", "blocks"),
    [
        (256, 384, 128, (128, 128, 32)),
        (100, 70, 90, (64, 32, 32)),
        (1, 1, 1, (16, 16, 16)),
        (129, 257, 33, (128, 64, 16)),
    ],
)
def test_matmul(simulate, m, n, k, blocks, dtype):
    bm, bn, bk = blocks
    rows, columns, steps = ceil(m / bm), ceil(n / bn), ceil(k / bk)
    grid, e = rows * columns, 2 if dtype == "float16" else 4
    tensors = [torch.ones(m, k), torch.ones(k, n), torch.full((m, n), NAN)]
    run = simulate(matmul(m, n, k, dtype, blocks), *(x.to(getattr(torch, dtype)) for x in tensors))
    traffic = run.traffic

    a, b, c = (traffic.buffer(name) for name in "ABC")
    assert (a.read, a.distinct_read, a.reread) == (e * m * k * columns, e * m * k, columns)
    assert (b.read, b.distinct_read, b.reread) == (e * k * n * rows, e * k * n, rows)
    assert (c.read, c.written, c.distinct_written) == (0, e * m * n, e * m * n)
    tile = traffic.buffer("a")
    assert (tile.scope, tile.size, tile.distinct_read) == ("shared", e * bm * bk, None)
    assert (tile.read, tile.written) == (grid * steps * e * bm * bk, grid * steps * e * bm * bk)
    total = traffic.buffer("c")
    assert total.scope == "fragment"
    assert total.written == grid * (1 + steps) * 4 * bm * bn
    assert total.read == grid * steps * 4 * bm * bn + 4 * m * n

    assert set(traffic.operations) == operations((Kind.GEMM, dtype, grid * steps * 2 * bm * bn * bk))
    assert traffic.flops == traffic.gemm_operations[dtype]
    assert set(traffic.copies) == {
        Copies("global", "shared", e * (m * k * columns + k * n * rows)),
        Copies("fragment", "global", 4 * m * n),
    }
    assert traffic.shared == e * (bm * bk + bk * bn)
    assert traffic.staged == 3 * traffic.shared
    outside = rows * bm * steps * bk * columns - m * k * columns  # of A, then of B and C
    outside += steps * bk * columns * bn * rows - k * n * rows + rows * bm * columns * bn - m * n
    assert traffic.guarded == run.guarded == outside


@pytest.mark.parametrize(("rows", "columns", "height"), [(16, 256, 4), (13, 300, 4), (1, 1, 1), (7, 33, 8)])
def test_softmax(simulate, rows, columns, height):
    grid = ceil(rows / height)
    all_rows = grid * height  # those that hang over the edge are computed too
    kernel = softmax(rows, columns, height)
    traffic = simulate(kernel, torch.randn(rows, columns), torch.full((rows, columns), NAN)).traffic
    assert (traffic.buffer("X").read, traffic.buffer("Y").written) == (4 * rows * columns, 4 * rows * columns)
    assert traffic.distinct == traffic.bytes == 8 * rows * columns
    assert set(traffic.operations) == operations(
        (Kind.REDUCE, "float32", 2 * all_rows * (columns - 1)),
        (Kind.ADD, "float32", all_rows * columns),
        (Kind.FUNCTION, "float32", all_rows * columns),
        (Kind.DIVIDE, "float32", all_rows * columns),
    )
    assert traffic.flops == all_rows * (5 * columns - 2)
    x, top = traffic.buffer("x"), traffic.buffer("top")
    assert (x.read, x.written) == (4 * (4 * all_rows + rows) * columns, 4 * 3 * all_rows * columns)
    assert (top.read, top.written) == (4 * all_rows, 4 * all_rows)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("batch", "heads", "length", "depth", "block"), [(2, 2, 128, 64, 64), (1, 3, 200, 32, 64), (1, 1, 40, 16, 64)]
)
def test_attention(simulate, batch, heads, length, depth, block, causal):
    tensors = [torch.randn(batch, length, heads, depth).half() for _ in range(3)]
    out = torch.full_like(tensors[0], NAN)
    traffic = simulate(attention(batch, heads, length, depth, causal, block), *tensors, out).traffic

    tiles = ceil(length / block)
    steps = batch * heads * (tiles * (tiles + 1) // 2 if causal else tiles * tiles)
    whole = 2 * batch * heads * length * depth  # bytes of each tensor
    # Of K and V, the block of query tile i reads the rows of tiles 0 to i, or all of them.
    share = (block * tiles * (tiles - 1) // 2 + length) / length if causal else tiles
    assert traffic.blocks == batch * heads * tiles
    assert traffic.buffer("Q").read == traffic.buffer("Out").written == whole
    for name in "KV":
        buffer = traffic.buffer(name)
        assert (buffer.read, buffer.distinct_read) == (round(whole * share), whole)
        assert buffer.reread == pytest.approx(share)
    assert traffic.distinct == 4 * whole
    assert set(traffic.operations) == operations(
        (Kind.GEMM, "float16", steps * 4 * block * block * depth),
        (Kind.REDUCE, "float32", steps * (block * block + block * (block - 1))),
        # exp2(before * scale - top * scale), exp2(s * scale - top * scale), total * factor + part, o * factor
        (Kind.MULTIPLY, "float32", steps * (2 * block + block * block + block + block + block * depth)),
        (Kind.ADD, "float32", steps * (block + block * block + block)),
        (Kind.FUNCTION, "float32", steps * (block + block * block)),
        (Kind.DIVIDE, "float32", traffic.blocks * block * depth),
    )
    assert traffic.intensity == pytest.approx(traffic.flops / ((2 + 2 * share) * whole))


def test_masks_count_the_active_iterations(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), Z: T.Tensor((8,), "float32"), Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i, j in T.Parallel(8, 8):
                if i >= 2 and i > j:
                    Y[i, j] = X[i, j] + T.exp(Z[i])

    y = torch.zeros(8, 8)
    traffic = simulate(main, torch.randn(8, 8), torch.randn(8), y).traffic
    below = 28 - 1  # of pairs i > j, without i = 1
    assert set(traffic.operations) == operations((Kind.ADD, "float32", below), (Kind.FUNCTION, "float32", 6))
    assert [traffic.buffer(name).read for name in "XZ"] == [4 * below, 4 * 6]
    assert [traffic.buffer(name).distinct_read for name in "XZ"] == [4 * below, 4 * 6]
    assert (traffic.buffer("Y").written, traffic.buffer("Y").distinct_written) == (4 * below, 4 * below)


def test_lazy_sides_count_where_they_are_taken(simulate):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32"), Z: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(64):
                Y[i] = T.if_then_else(X[i] > 0.5, T.exp(X[i]), X[i] * 2.0 + 1.0)
            for i in T.Parallel(64):
                Z[i] = T.Select(X[i] > 0.5, T.exp(X[i]), X[i] * 2.0)

    x = torch.rand(64)
    high = int((x > 0.5).sum())
    traffic = simulate(main, x, torch.full((64,), NAN), torch.full((64,), NAN)).traffic
    assert set(traffic.operations) == operations(
        (Kind.COMPARE, "float32", 2 * 64),
        (Kind.FUNCTION, "float32", high + 64),
        (Kind.MULTIPLY, "float32", 64 - high + 64),
        (Kind.ADD, "float32", 64 - high),
    )
    assert traffic.buffer("X").read == 4 * (2 * 64 + 3 * 64)
    assert traffic.buffer("X").distinct_read == 4 * 64


def test_only_integers_from_memory_count_and_indices_do_not(simulate):
    @T.prim_func
    def main(N: T.Tensor((16,), "int32"), X: T.Tensor((64,), "float16"), Y: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(16):
                half = N[i] // 2
                Y[i] = (half & 3) + (i * 5 - 1) + T.cast(X[(N[i] * 3 + i) % 64], "int32")

    n = torch.arange(16, dtype=torch.int32)
    x, y = torch.arange(64).half(), torch.full((16,), -1, dtype=torch.int32)
    traffic = simulate(main, n, x, y).traffic
    i = torch.arange(16)
    assert torch.equal(y.long(), (i // 2 & 3) + i * 5 - 1 + (4 * i) % 64)
    assert set(traffic.operations) == operations((Kind.INTEGER, "int32", 16 * (1 + 1 + 2)))
    assert traffic.flops == 0
    assert traffic.buffer("N").read == 2 * 16 * 4
    assert traffic.buffer("X").distinct_read == 16 * 2  # 4 i mod 64: no two alike


def test_atomics_read_write_and_update(simulate):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((4,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                T.atomic_add(Y[i % 4], X[bx * 32 + i] * 2.0)

    x, y = torch.ones(64), torch.zeros(4)
    traffic = simulate(main, x, y).traffic
    assert torch.equal(y, torch.full((4,), 32.0))
    target = traffic.buffer("Y")
    assert (target.read, target.written) == (256, 256)
    assert (target.distinct_read, target.distinct_written) == (16, 16)
    assert set(traffic.operations) == operations((Kind.ATOMIC, "float32", 64), (Kind.MULTIPLY, "float32", 64))
    assert traffic.flops == 128


@pytest.mark.parametrize(("rows", "start"), [(48, 0), (40, 8)])
def test_an_atomic_tile_is_read_written_and_updated(simulate, rows, start):
    @T.prim_func
    def main(X: T.Tensor((3, rows, 16), "float32"), Y: T.Tensor((48, 16), "float32")):
        with T.Kernel(3, threads=128) as bx:
            x = T.alloc_fragment((rows, 16), "float32")
            T.copy(X[bx, 0, 0], x)
            T.atomic_add(Y[start, 0], x)

    traffic = simulate(main, torch.ones(3, rows, 16), torch.zeros(48, 16)).traffic
    y = traffic.buffer("Y")
    assert (y.read, y.written) == (3 * rows * 16 * 4, 3 * rows * 16 * 4)
    assert (y.distinct_read, y.distinct_written) == (rows * 16 * 4, rows * 16 * 4)
    assert set(traffic.operations) == operations((Kind.ATOMIC, "float32", 3 * rows * 16))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_scan_joins_each_element_but_the_first_of_a_line(simulate, dim):
    @T.prim_func
    def main(X: T.Tensor((40, 24), "float32"), Y: T.Tensor((40, 24), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_shared((40, 24), "float32")
            T.copy(X, x)
            T.cumsum(x, dim=dim)
            T.copy(x, Y)

    traffic = simulate(main, torch.ones(40, 24), torch.zeros(40, 24)).traffic
    assert set(traffic.operations) == operations((Kind.REDUCE, "float32", 40 * 24 - (24, 40)[dim]))
    x = traffic.buffer("x")
    assert (x.read, x.written) == (2 * 4 * 40 * 24, 2 * 4 * 40 * 24)


def test_a_reducer_joins_each_contribution(simulate):
    @T.prim_func
    def main(X: T.Tensor((16, 40), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(2, threads=128) as _bx:
            total = T.alloc_reducer((16,), "float32", op="sum")
            y = T.alloc_fragment((16,), "float32")
            T.reducer_init(total)
            for i, j in T.Parallel(16, 40):
                if j >= 4:
                    T.reducer_update(total[i], X[i, j] * X[i, j])
            T.finalize_reducer(total, y)
            if _bx == 0:
                T.copy(y, Y)

    traffic = simulate(main, torch.ones(16, 40), torch.zeros(16)).traffic
    contributions = 2 * 16 * 36
    assert set(traffic.operations) == operations(
        (Kind.MULTIPLY, "float32", contributions), (Kind.REDUCE, "float32", contributions)
    )
    assert traffic.buffer("X").read == 2 * 4 * contributions
    assert traffic.buffer("X").distinct_read == 4 * 16 * 36


def test_statements_outside_a_nest_count_once_a_block(simulate):
    @T.prim_func
    def main(X: T.Tensor((12,), "float32"), Y: T.Tensor((3,), "float32")):
        with T.Kernel(3, threads=32) as bx:
            v = T.alloc_var("float32")
            v = 0.0
            for k in T.serial(4):
                v = v + X[bx * 4 + k] * 0.5
            Y[bx] = v

    x, y = torch.randn(12), torch.full((3,), NAN)
    traffic = simulate(main, x, y).traffic
    assert set(traffic.operations) == operations((Kind.ADD, "float32", 12), (Kind.MULTIPLY, "float32", 12))
    assert (traffic.buffer("X").read, traffic.buffer("X").distinct_read) == (48, 48)
    v = traffic.buffer("v")
    assert (v.scope, v.read, v.written) == ("local", 4 * (12 + 3), 4 * (12 + 3))


def test_many_windows_and_elements_are_laid_out_on_the_way(simulate):
    @T.prim_func
    def main(X: T.Tensor((96, 96), "float32"), Y: T.Tensor((96,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_fragment((8,), "float32")
            v = T.alloc_var("float32")
            v = 0.0
            for i, j in T.grid(96, 88):
                T.copy(X[i, j : j + 8], a)
            for i, j in T.grid(95, 96):
                v = v + X[i, j]
            for i in T.Parallel(96):
                Y[i] = v + a[i % 8]

    traffic = simulate(main, torch.randn(96, 96), torch.full((96,), NAN)).traffic
    assert traffic.buffer("X").read == 4 * (96 * 88 * 8 + 95 * 96)
    assert traffic.buffer("X").distinct_read == 4 * (95 * 96 + 95)  # of the last row, all but its last element


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 20), st.integers(0, 20), st.integers(1, 3))
def test_a_copy_reads_what_is_in_bounds_and_distinct_bytes_are_those_of_the_union(
    simulate, rows, columns, top, left, blocks
):
    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float16"), Y: T.Tensor((64, 16), "float16")):
        with T.Kernel(blocks, threads=32) as bx:
            tile = T.alloc_shared((16, 16), "float16")
            T.copy(X[top + bx * 8, left], tile)
            T.copy(tile, Y[bx * 16, 0])

    traffic = simulate(main, torch.ones(rows, columns).half(), torch.zeros(64, 16).half()).traffic
    seen = torch.zeros(rows, columns, dtype=torch.int64)
    for block in range(blocks):
        seen[top + block * 8 : top + block * 8 + 16, left : left + 16] += 1
    x = traffic.buffer("X")
    assert (x.read, x.distinct_read) == (2 * int(seen.sum()), 2 * int((seen > 0).sum()))
    assert traffic.buffer("Y").written == blocks * 16 * 16 * 2


def test_counters_add_up_and_can_be_cleared():
    counters, others = Counters(), Counters()
    counters.operations(Kind.ADD, "float32")(5)
    more = others.operations(Kind.FUNCTION, "float32"), others.operations(Kind.ADD, "float32")
    for count in more:
        count(2)
    counters.add(others)
    assert counters.all_operations() == (
        Operations(Kind.ADD, "float32", 7),
        Operations(Kind.FUNCTION, "float32", 2),
    )
    others.clear()
    assert others.all_operations() == ()
    more[0](1)
    assert others.all_operations() == (Operations(Kind.FUNCTION, "float32", 1),)


def test_blocks_that_run_at_once_all_count():
    counters = Counters(lead=(3, 2))
    counters.operations(Kind.ADD, "float32")(5)
    assert counters.get("operations", Kind.ADD, "float32") == 30
    assert counters.touched(None, (1, 1, 4)) == 24
    mask = torch.tensor([True, False, True]).reshape(3, 1, 1)
    assert counters.touched(mask, (1, 1, 4)) == 16
    assert counters.touched(mask, (3, 2, 1)) == 4


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        (matmul(300, 170, 90, blocks=(64, 32, 32)), [(300, 90), (90, 170), (300, 170)]),
        (attention(2, 3, 200, 32, True), [(2, 200, 3, 32)] * 4),
    ],
)
def test_several_blocks_at_once_count_as_one_by_one(simulate, kernel, shapes):
    def counted(batched: bool) -> Traffic:
        return simulate(kernel, *(torch.ones(shape).half() for shape in shapes), batched=batched).traffic

    assert counted(batched=True) == counted(batched=False)


def test_a_condition_that_differs_between_blocks_counts_in_those_where_it_holds(simulate):
    @T.prim_func
    def main(
        X: T.Tensor((1,), "float32"),
        Z: T.Tensor((6,), "float32"),
        N: T.Tensor((6,), "int32"),
        Y: T.Tensor((6, 8), "float32"),
    ):
        with T.Kernel(6, threads=32) as bx:
            for i in T.Parallel(8):
                if i < N[bx]:
                    Y[bx, i] = X[0] * 2.0 + Z[bx]

    def counted(batched: bool) -> Traffic:
        n = torch.tensor([0, 3, 8, 0, 1, 0], dtype=torch.int32)
        return simulate(main, torch.ones(1), torch.ones(6), n, torch.zeros(6, 8), batched=batched).traffic

    traffic = counted(batched=True)
    assert [traffic.buffer(name).read for name in "XZN"] == [4 * 3, 4 * 3, 4 * 6]
    assert [traffic.buffer(name).distinct_read for name in "XZN"] == [4, 4 * 3, 4 * 6]
    assert set(traffic.operations) == operations(
        (Kind.COMPARE, "int32", 6 * 8), (Kind.MULTIPLY, "float32", 3), (Kind.ADD, "float32", 3)
    )
    assert traffic.buffer("Y").written == 4 * 12
    assert traffic == counted(batched=False)


def test_traffic_needs_the_checks(simulate):
    run = simulate(vector_add(10), torch.ones(10), torch.ones(10), torch.zeros(10), checks=False)
    with pytest.raises(ValueError, match="checks"):
        _ = run.traffic

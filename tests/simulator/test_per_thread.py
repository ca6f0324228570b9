"""Code by thread index, and atomic operations."""

import pytest
import tilelang.language as T
import torch

from grader import ir
from grader.simulator import FaultKind, Unsupported, run


def test_every_thread_runs_its_own_branch_with_its_own_variables(simulate):
    @T.prim_func
    def main(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            tx = T.get_thread_binding()
            v = T.alloc_var("float32")
            w = T.alloc_local((2,), "float32")
            v = X[bx * 128 + tx]
            w[0] = v * 2.0
            w[1] = w[0] + 1.0
            if tx < 64:
                Y[bx * 128 + tx] = v + w[1]
            else:
                v = v - w[0]
                Y[bx * 128 + tx] = v

    x, y = torch.rand(256), torch.zeros(256)
    simulate(main, x, y)
    assert torch.equal(y, torch.where(torch.arange(256) % 128 < 64, x + (2 * x + 1), x - 2 * x))


def test_a_two_dimensional_block(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 32), "int32"), Y: T.Tensor((32, 8), "int32")):
        with T.Kernel(1, threads=(32, 4)) as _bx:
            tx = T.get_thread_binding(0)
            ty = T.get_thread_binding(1)
            for row in T.serial(2):
                Y[tx, row * 4 + ty] = X[row * 4 + ty, tx] + 10 * ty

    x, y = torch.arange(256, dtype=torch.int32).view(8, 32), torch.zeros(32, 8, dtype=torch.int32)
    simulate(main, x, y)
    assert torch.equal(y, (x + 10 * (torch.arange(8, dtype=torch.int32) % 4)[:, None]).t())


def test_tile_operations_and_thread_code_take_turns(simulate):
    """A dot product of rows: each thread sums a part, a tree in shared memory joins them."""

    @T.prim_func
    def main(X: T.Tensor((4, 256), "float32"), Y: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            tile = T.alloc_shared((256,), "float32")
            part = T.alloc_shared((64,), "float32")
            total = T.alloc_local((1,), "float32")
            T.copy(X[bx, :], tile)
            T.clear(total)
            for k in T.serial(4):
                total[0] += tile[k * 64 + tx] * tile[k * 64 + tx]
            part[tx] = total[0]
            T.sync_threads()
            for step in T.serial(6):
                if tx < (32 >> step):
                    part[tx] += part[tx + (32 >> step)]
                T.sync_threads()
            if tx == 0:
                Y[bx] = part[0]

    x, y = torch.rand(4, 256), torch.zeros(4)
    simulate(main, x, y)
    torch.testing.assert_close(y, (x.double() ** 2).sum(1).float())


def test_threads_that_write_one_element_race(simulate, line_of):
    @T.prim_func
    def main(Y: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            tx = T.get_thread_binding()
            Y[tx // 2] = tx  # race

    (fault,) = simulate(main, torch.zeros(16, dtype=torch.int32), faulty=True).faults
    assert (fault.kind, fault.line.number, fault.buffer) == (FaultKind.RACE, line_of("race"), "Y")


def test_threads_leave_a_loop_when_they_like(simulate):
    @T.prim_func
    def main(N: T.Tensor((32,), "int32"), Y: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            tx = T.get_thread_binding()
            n = T.alloc_var("int32")
            n = 0
            for k in T.serial(10):
                if k % 2 == 1:
                    continue
                if k >= N[tx]:
                    break
                n += k
            while n % 7 != 0:
                n += 1
            Y[tx] = n

    counts, y = torch.arange(32, dtype=torch.int32) % 12, torch.zeros(32, dtype=torch.int32)
    simulate(main, counts, y)
    sums = [sum(k for k in range(0, 10, 2) if k < n) for n in counts.tolist()]
    assert y.tolist() == [-(-total // 7) * 7 for total in sums]


def test_iterations_of_a_nest_leave_a_loop_when_they_like(simulate):
    @T.prim_func
    def main(N: T.Tensor((4, 8), "int32"), Y: T.Tensor((4, 8), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            n = T.alloc_var("int32")
            for i, j in T.Parallel(4, 8):
                n = 0
                for k in T.serial(6):
                    for m in T.serial(3):
                        if m == i:
                            break
                        n += 1
                    if k == N[i, j]:
                        break
                    n += 100
                Y[i, j] = n

    counts, y = torch.arange(32, dtype=torch.int32).view(4, 8) % 9, torch.zeros(4, 8, dtype=torch.int32)
    simulate(main, counts, y)
    for i in range(4):
        for j in range(8):
            stop = int(counts[i, j])
            turns = stop + 1 if stop < 6 else 6
            assert y[i, j] == turns * min(i, 3) + 100 * (turns - (stop < 6))


def test_scalar_loops_break_and_continue(simulate):
    @T.prim_func
    def main(Y: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for k in T.serial(8):
                Y[k] = -1
            for k in T.serial(8):
                if k == 2:
                    continue
                if k == 5:
                    break
                Y[k] = k

    y = torch.zeros(8, dtype=torch.int32)
    simulate(main, y)
    assert y.tolist() == [0, 1, -1, 3, 4, -1, -1, -1]


def test_persistent_blocks_take_tile_after_tile(simulate):
    @T.prim_func
    def main(X: T.Tensor((256, 128), "float32"), Y: T.Tensor((256, 128), "float32")):
        with T.Kernel(3, threads=128) as block:
            tile = T.alloc_fragment((64, 64), "float32")
            for bx, by in T.Persistent([4, 2], 3, block):
                T.copy(X[bx * 64, by * 64], tile)
                T.copy(tile, Y[bx * 64, by * 64])

    x, y = torch.rand(256, 128), torch.zeros(256, 128)
    simulate(main, x, y)
    assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16", "bfloat16", "uint32", "int64"])
def test_atomics_of_many_iterations_and_blocks_on_few_elements(simulate, dtype):
    @T.prim_func
    def main(X: T.Tensor((256,), dtype), Y: T.Tensor((3, 4), dtype)):
        with T.Kernel(2, threads=128) as bx:
            for i in T.Parallel(128):
                T.atomic_add(Y[0, i % 4], X[bx * 128 + i])
                T.atomic_max(Y[1, i % 4], X[bx * 128 + i])
                T.atomic_min(Y[2, i % 4], X[bx * 128 + i])

    held = getattr(torch, dtype)
    x = torch.randint(0, 3, (256,)).to(held)  # sums of small integers are exact in every dtype
    y = torch.ones(3, 4).to(held)
    simulate(main, x, y)
    values = x.double().view(64, 4)
    assert y[0].double().tolist() == (values.sum(0) + 1).tolist()
    assert y[1].double().tolist() == values.amax(0).clamp(min=1).tolist()
    assert y[2].double().tolist() == values.amin(0).clamp(max=1).tolist()


def test_every_thread_adds_and_learns_what_was_there(simulate):
    @T.prim_func
    def main(C: T.Tensor((2,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            mine = T.alloc_var("int32")
            mine = T.atomic_add(C[0], 2, return_prev=True)
            Y[bx * 32 + tx] = mine
            T.atomic_add(C[1], 1)

    counter, y = torch.zeros(2, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    simulate(main, counter, y)
    assert counter.tolist() == [128, 64]
    assert sorted(y.tolist()) == list(range(0, 128, 2))


def test_pairs_and_quadruples_and_bits_and_plain_atomics(simulate):
    @T.prim_func
    def main(X: T.Tensor((16,), "float32"), Y: T.Tensor((16,), "float32"), N: T.Tensor((3,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(8):
                T.atomic_addx2(Y[i * 2], X[i * 2])
            for i in T.Parallel(4):
                T.atomic_addx4(Y[i * 4], X[i * 4])
            for i in T.Parallel(5):
                T.atomic_or(N[0], 1 << i)
            T.atomic_store(N[1], 7)
            for _i in T.Parallel(1):
                N[2] = T.atomic_load(N[1])

    x, y, n = torch.rand(16), torch.ones(16), torch.zeros(3, dtype=torch.int32)
    simulate(main, x, y, n)
    assert torch.equal(y, (1 + x) + x)
    assert n.tolist() == [31, 7, 7]


def test_a_histogram_in_shared_memory(simulate):
    @T.prim_func
    def main(X: T.Tensor((1024,), "int32"), Y: T.Tensor((16,), "int32")):
        with T.Kernel(4, threads=128) as bx:
            bins = T.alloc_shared((16,), "int32")
            T.clear(bins)
            for i in T.Parallel(256):
                T.atomic_add(bins[X[bx * 256 + i]], 1)
            for i in T.Parallel(16):
                T.atomic_add(Y[i], bins[i])

    x, y = torch.randint(0, 16, (1024,), dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    simulate(main, x, y)
    assert torch.equal(y.long(), x.bincount(minlength=16))


def test_atomics_race_with_plain_accesses_of_others(simulate, line_of):
    @T.prim_func
    def within(Y: T.Tensor((32,), "float32"), Z: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(32):
                T.atomic_add(Y[0], 1.0)
                Z[i] = Y[0]  # read

    @T.prim_func
    def between(Y: T.Tensor((1,), "float32"), Z: T.Tensor((2,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            for _i in T.Parallel(1):
                if bx == 0:
                    Y[0] = 3.0
                else:
                    T.atomic_add(Y[0], 1.0)  # other block

    faults = simulate(within, torch.zeros(32), torch.zeros(32), faulty=True).faults
    assert {(fault.kind, fault.buffer) for fault in faults} == {(FaultKind.RACE, "Y")}
    assert line_of("read") in {fault.line.number for fault in faults}
    (fault,) = simulate(between, torch.zeros(1), torch.zeros(2), faulty=True).faults
    assert (fault.kind, fault.line.number, fault.block) == (FaultKind.RACE, line_of("other block"), (1, 0, 0))


def test_adding_to_what_nothing_has_written_is_a_fault(simulate):
    @T.prim_func
    def main(Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(8):
                T.atomic_add(Y[i], 1.0)

    faults = simulate(main, torch.zeros(8), faulty=True, outputs=[0]).faults
    assert [(fault.kind, fault.count) for fault in faults] == [(FaultKind.UNINITIALISED_READ, 8)]
    simulate(main, torch.zeros(8))


def test_a_barrier_that_some_threads_miss_is_refused(read, line_of):
    @T.prim_func
    def main(Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            tx = T.get_thread_binding()
            if tx < 16:
                Y[tx] = 1.0
                T.sync_threads()  # some

    with pytest.raises(Unsupported, match="barrier") as caught:
        run(read(main), [torch.zeros(32)])
    assert caught.value.line.number == line_of("some")


def test_any_and_all_of_a_row(simulate):
    @T.prim_func
    def main(M: T.Tensor((3, 8), "bool"), Y: T.Tensor((3, 2), "int32")):
        with T.Kernel(3, threads=32) as bx:
            mask = T.alloc_shared((8,), "bool")
            T.copy(M[bx, :], mask)
            for i in T.serial(2):
                Y[bx, i] = 0
            if T.any_of(mask):
                Y[bx, 0] = 1
            if T.all_of(mask):
                Y[bx, 1] = 1

    masks = torch.tensor([[False] * 8, [True] * 8, [True] + [False] * 7])
    y = torch.zeros(3, 2, dtype=torch.int32)
    simulate(main, masks, y)
    assert y.tolist() == [[0, 0], [1, 1], [1, 0]]


def test_an_assumption_that_does_not_hold_is_a_fault(simulate, line_of):
    n = T.dynamic("n")

    @T.prim_func
    def main(Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            T.assume(n % 4 == 0)  # multiple
            for i in T.Parallel(4):
                Y[i] = 1.0

    simulate(main, torch.zeros(8))
    (fault,) = simulate(main, torch.zeros(6), faulty=True).faults
    assert (fault.kind, fault.line.number) == (FaultKind.ASSERTION, line_of("multiple"))


def test_a_loop_bound_to_the_threads(simulate):
    @T.prim_func
    def main(X: T.Tensor((2, 64, 4), "float32"), Y: T.Tensor((2, 64), "float32")):
        with T.Kernel(2, threads=64) as bx:
            for tx in T.thread_binding(0, 64, thread="threadIdx.x"):
                Y[bx, tx] = 0.0
                for k in T.serial(4):
                    Y[bx, tx] += X[bx, tx, k]

    x, y = torch.rand(2, 64, 4), torch.zeros(2, 64)
    simulate(main, x, y)
    torch.testing.assert_close(y, x.sum(2))


def test_a_loop_bound_to_threads_that_are_not_there_is_malformed(read):
    @T.prim_func
    def main(Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            for tx in T.thread_binding(0, 32, thread="threadIdx.x"):
                Y[tx] = 0.0

    with pytest.raises(ir.Malformed, match="threads that the block doesn't have"):
        read(main)


def test_no_number_takes_part_in_atomic_extremes(simulate):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((2, 2), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            for i in T.Parallel(64):
                T.atomic_max(Y[0, i % 2], X[i])
            for i in T.Parallel(2):
                T.atomic_min(Y[1, i], X[i])

    x = torch.arange(64.0)
    x[5] = x[1] = float("nan")
    y = torch.tensor([[0.0, 0.0], [3.0, 3.0]])
    simulate(main, x, y)
    assert y.tolist() == [[62.0, 63.0], [0.0, 3.0]]

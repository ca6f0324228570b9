"""Loops, conditions, lets, thread-own memory, and T.Parallel nests of every form."""

import tilelang.language as T
import torch

NAN = float("nan")


def test_grid_in_three_dimensions(simulate):
    @T.prim_func
    def main(Y: T.Tensor((4, 3, 2), "int32")):
        with T.Kernel(2, 3, 4, threads=32) as (bx, by, bz):
            Y[bz, by, bx] = bx + 10 * by + 100 * bz

    y = torch.zeros(4, 3, 2, dtype=torch.int32)
    simulate(main, y)
    assert y[3, 2, 1] == 321
    assert y[1, 0, 1] == 101


def test_parallel_nests_with_guards(simulate):
    @T.prim_func
    def main(X: T.Tensor((50, 70), "float32"), Y: T.Tensor((70, 50), "float32")):
        with T.Kernel(2, 3, threads=32) as (bx, by):
            for i, j in T.Parallel(32, 32):
                if bx * 32 + i < 50:  # noqa: SIM102
                    if by * 32 + j < 70:
                        Y[by * 32 + j, bx * 32 + i] = X[bx * 32 + i, by * 32 + j] * 2.0

    x, y = torch.randn(50, 70), torch.full((70, 50), NAN)
    result = simulate(main, x, y)
    assert torch.equal(y, 2 * x.t())
    assert result.traffic.read() == 50 * 70 * 4
    assert result.traffic.written() == 50 * 70 * 4


def test_else_and_nested_masks(simulate):
    @T.prim_func
    def main(Y: T.Tensor((40,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(40):
                if i % 2 == 0:
                    if i % 3 == 0:
                        Y[i] = 6
                    else:
                        Y[i] = 2
                else:
                    Y[i] = 1

    y = torch.zeros(40, dtype=torch.int32)
    simulate(main, y)
    assert y.tolist() == [6 if i % 6 == 0 else 2 if i % 2 == 0 else 1 for i in range(40)]


def test_gather_indices_and_negative_coefficients(simulate):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), N: T.Tensor((64,), "int32"), Y: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(64):
                Y[0, i] = X[N[i]]
                Y[1, i] = X[63 - i]
                Y[2, i] = X[i // 4]
                Y[3, i] = X[(i * 5) % 64]

    x, y = torch.randn(64), torch.full((4, 64), NAN)
    index = torch.randperm(64).int()
    simulate(main, x, index, y)
    i = torch.arange(64)
    assert torch.equal(y, torch.stack([x[index.long()], x.flip(0), x[i // 4], x[i * 5 % 64]]))


def test_serial_loops_inside_parallel(simulate):
    @T.prim_func
    def main(X: T.Tensor((16, 8), "float32"), Y: T.Tensor((16,), "float32"), Z: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            total = T.alloc_fragment((16,), "float32")
            for i in T.Parallel(16):
                total[i] = 0.0
                for k in T.serial(8):
                    total[i] += X[i, k]
            for i in T.Parallel(16):
                Y[i] = total[i]
            for i in T.Parallel(16):
                Z[i] = 0
                for k in T.serial(i):
                    Z[i] += k

    x, y, z = torch.randn(16, 8), torch.full((16,), NAN), torch.zeros(16, dtype=torch.int32)
    simulate(main, x, y, z)
    expected = torch.zeros(16)
    for k in range(8):
        expected += x[:, k]
    assert torch.equal(y, expected)
    assert z.tolist() == [i * (i - 1) // 2 for i in range(16)]


def test_memory_of_a_thread_inside_parallel(simulate):
    @T.prim_func
    def main(X: T.Tensor((16, 8), "float32"), Y: T.Tensor((16, 4), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            v = T.alloc_var("float32")
            w = T.alloc_local((2,), "float32")
            for i, j in T.Parallel(16, 4):
                v = 0.0
                w[0] = 1.0
                w[1] = 2.0
                for k in T.serial(8):
                    if k % 4 == j:
                        v += X[i, k] * w[k % 2]
                Y[i, j] = v

    x, y = torch.randn(16, 8), torch.full((16, 4), NAN)
    simulate(main, x, y)
    weights = torch.tensor([1.0, 2.0]).repeat(4)
    scaled = x * weights
    assert torch.equal(y, scaled[:, :4] + scaled[:, 4:])


def test_lets_keep_their_value(simulate):
    @T.prim_func
    def main(X: T.Tensor((16,), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((16,), "float32")
            T.copy(X, a)
            for i in T.Parallel(16):
                before = a[i]
                a[i] = 0.0
                Y[i] = before + a[i]

    x, y = torch.randn(16), torch.full((16,), NAN)
    simulate(main, x, y)
    assert torch.equal(y, x)


def test_loops_while_and_variables(simulate):
    @T.prim_func
    def main(Y: T.Tensor((6,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            n = T.alloc_var("int32")
            m = T.alloc_var("int32")
            n = 0
            while n < 10:
                n += 3
            Y[0] = n
            m = 0
            for i in T.serial(2, 11, 3):
                m += i
            Y[1] = m
            m = 1
            for _ in T.unroll(4):
                m *= 2
            Y[2] = m
            if n > 3:
                Y[3] = 7
            else:
                Y[3] = 8
            for i in T.serial(10):
                if i == 4:
                    break
                m = i
            Y[4] = m
            k = n * 2
            n = 0
            Y[5] = k

    y = torch.zeros(6, dtype=torch.int32)
    simulate(main, y)
    assert y.tolist() == [12, 2 + 5 + 8, 16, 7, 3, 24]


def test_while_inside_parallel(simulate):
    @T.prim_func
    def main(Y: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            n = T.alloc_var("int32")
            for i in T.Parallel(16):
                n = i
                while n % 5 != 0:
                    n += 1
                Y[i] = n

    y = torch.zeros(16, dtype=torch.int32)
    simulate(main, y)
    assert y.tolist() == [-(-i // 5) * 5 for i in range(16)]


def test_dynamic_sizes(simulate):
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                if bx * 32 + i < n:
                    Y[bx * 32 + i] = X[bx * 32 + i] + 1.0

    for size in (1, 32, 100):
        x, y = torch.randn(size), torch.full((size,), NAN)
        simulate(main, x, y)
        assert torch.equal(y, x + 1)


def test_statements_between_parallel_loops(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 16), "float32"), Y: T.Tensor((8, 16), "float32"), Z: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(8):
                Z[i] = X[i, 0]
                for j in T.Parallel(16):
                    Y[i, j] = X[i, j] * 2.0

    x, y, z = torch.randn(8, 16), torch.full((8, 16), NAN), torch.full((8,), NAN)
    simulate(main, x, y, z)
    assert torch.equal(y, 2 * x)
    assert torch.equal(z, x[:, 0])


def test_every_block_has_fresh_memory(simulate):
    @T.prim_func
    def main(Y: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            a = T.alloc_shared((1,), "float32")
            if bx == 0:
                a[0] = 1.0
            Y[bx] = a[0]

    y = torch.zeros(4)
    result = simulate(main, y, faulty=True)
    assert y[0] == 1
    assert y[1:].isnan().all()
    (fault,) = result.faults
    assert (fault.kind, fault.buffer, fault.block, fault.count) == ("uninitialised_read", "a", (1, 0, 0), 3)


def test_constants_that_have_a_name(simulate):
    """Names of constants may stand wherever their numbers may, inside and outside T.Parallel, of any dtype."""

    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32"), Z: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            half = T.float32(0.5)
            quarter = half * T.float32(0.5)
            three = T.int32(3)
            six = three * 2
            small = T.cast(half, "float16")
            off = half > quarter
            for i in T.Parallel(8):
                more = T.exp(half) + T.max(quarter, half) + T.cast(T.cast(small, "float32"), "float32")
                again = more * half
                if off and i < six + 2:
                    Y[i] = X[i] * half + again + T.cast(six // three, "float32")
                    Z[(i + six + 2) % 8] = T.if_then_else(off, -half, quarter)

    x, y, z = torch.randn(8), torch.full((8,), float("nan")), torch.full((8,), float("nan"))
    simulate(main, x, y, z)
    more = torch.tensor(0.5).exp() + 1.0
    assert torch.allclose(y, x * 0.5 + more * 0.5 + 2.0)
    assert torch.equal(z, torch.full((8,), -0.5))


def test_a_loops_extent_is_looked_at_before_every_turn(simulate):
    """As in C: for (i = 0; i < n; ++i), with n from memory. On an H200 the first gives 5, too."""

    @T.prim_func
    def main(Y: T.Tensor((1,), "int32"), Z: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            n = T.alloc_var("int32")
            m = T.alloc_var("int32")
            n = 8
            m = 0
            for _k in T.serial(n):
                n = n - 1
                m = m + 1
            Y[0] = m + 1
            for i in T.Parallel(8):
                n = i
                m = 0
                for _k in T.serial(n):
                    n = n - 1
                    m = m + 1
                Z[i] = m

    y, z = torch.zeros(1, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    simulate(main, y, z)
    assert y.item() == 5
    assert z.tolist() == [0, 1, 1, 2, 2, 3, 3, 4]

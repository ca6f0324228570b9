"""T.atomic_add, T.atomic_max and T.atomic_min of tiles."""

import pytest
import tilelang.language as T
import torch

from grader.simulator import FaultKind, Unsupported, run


def update(op, dtype, rows=40, blocks=4, scope="fragment", **options):
    @T.prim_func
    def main(X: T.Tensor((blocks, rows, 16), dtype), Y: T.Tensor((rows, 16), dtype)):
        with T.Kernel(blocks, threads=128) as bx:
            x = T.alloc_fragment((rows, 16), dtype) if scope == "fragment" else T.alloc_shared((rows, 16), dtype)
            T.copy(X[bx, 0, 0], x)
            getattr(T, op)(Y, x, **options)

    return main


@pytest.mark.parametrize(
    ("op", "exact"),
    [
        ("atomic_add", lambda x, y: y + x.sum(0)),
        ("atomic_max", lambda x, y: torch.maximum(y, x.amax(0))),
        ("atomic_min", lambda x, y: torch.minimum(y, x.amin(0))),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "float64"])
@pytest.mark.parametrize("scope", ["fragment", "shared"])
def test_blocks_update_one_tile(simulate, op, exact, dtype, scope):
    held = getattr(torch, dtype)
    x = torch.randint(-9, 9, (4, 40, 16)).to(held)
    y = torch.randint(-9, 9, (40, 16)).to(held)
    expected = exact(x.double(), y.double())
    result = simulate(update(op, dtype, scope=scope, memory_order="release"), x, y)
    assert torch.equal(y.double(), expected)
    assert bool(result.written[1].all())
    assert result.traffic.written() == 4 * y.numel() * y.element_size()


def test_parts_out_of_bounds_are_left_out(simulate):
    @T.prim_func
    def main(Y: T.Tensor((10, 16), "float32"), Z: T.Tensor((10, 16), "float32")):
        with T.Kernel(2, threads=128) as bx:
            x = T.alloc_fragment((8, 16), "float32")
            T.fill(x, 2.0)
            T.atomic_add(Y[bx * 8, 0], x)
            T.atomic_add(Z[bx * 4 : bx * 4 + 8, 0:16], 1)

    y, z = torch.ones(10, 16), torch.zeros(10, 16)
    result = simulate(main, y, z)
    assert torch.equal(y, torch.full((10, 16), 3.0))
    assert z[:, 0].tolist() == [1, 1, 1, 1, 2, 2, 2, 2, 1, 1]
    assert result.guarded == (6 + 2) * 16


def test_half_sums_are_rounded_block_by_block(simulate):
    x = torch.full((4, 40, 16), 0.6).half()
    y = torch.full((40, 16), 1024.0).half()
    simulate(update("atomic_add", "float16"), x, y)
    step = 1024.0
    for _ in range(4):
        step = float((torch.tensor(step).half() + torch.tensor(0.6).half()).half())
    assert torch.equal(y, torch.full_like(y, step))
    assert step == 1028.0  # not 1026.4: each addition rounds up to an integer


def test_subnormal_sums_in_global_memory_are_zero(simulate):
    x, y = torch.full((4, 40, 16), 1e-40), torch.zeros(40, 16)
    simulate(update("atomic_add", "float32"), x, y)
    assert not y.any()


def test_nothing_is_larger_than_nan(simulate):
    x = torch.full((4, 40, 16), float("nan"))
    y = torch.ones(40, 16)
    y[0] = float("nan")
    simulate(update("atomic_max", "float32"), x, y)
    assert y[0].isnan().all()
    assert torch.equal(y[1:], torch.ones(39, 16))


def test_into_shared_memory(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 16), "int32"), Y: T.Tensor((8, 16), "int32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_fragment((8, 16), "int32")
            s = T.alloc_shared((8, 16), "int32")
            T.copy(X, x)
            T.clear(s)
            T.atomic_add(s, x)
            T.atomic_add(s, x)
            T.copy(s, Y)

    x, y = torch.randint(0, 9, (8, 16), dtype=torch.int32), torch.zeros(8, 16, dtype=torch.int32)
    simulate(main, x, y)
    assert torch.equal(y, 2 * x)


@pytest.mark.parametrize("first", ["write", "read", "nothing"])
def test_plain_and_atomic_accesses_of_different_blocks_are_a_race(simulate, first):
    @T.prim_func
    def main(Y: T.Tensor((16,), "float32"), Z: T.Tensor((16,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            x = T.alloc_fragment((16,), "float32")
            T.fill(x, 1.0)
            if first == "write":
                if bx == 0:
                    T.copy(x, Y)
                else:
                    T.atomic_add(Y, x)
            elif first == "read":
                T.atomic_add(Y, x)
                T.copy(Y, x)
                if bx == 1:
                    T.copy(x, Z)
            else:
                T.atomic_add(Y, x)

    result = simulate(main, torch.zeros(16), torch.zeros(16), faulty=True)
    kinds = {fault.kind for fault in result.faults}
    assert kinds == (set() if first == "nothing" else {FaultKind.RACE})


def test_an_output_that_nothing_has_set_is_found(simulate):
    kernel = update("atomic_add", "float32", blocks=1)
    result = simulate(kernel, torch.zeros(1, 40, 16), torch.zeros(40, 16), faulty=True, outputs=[1])
    assert [fault.kind for fault in result.faults] == [FaultKind.UNINITIALISED_READ]


@pytest.mark.parametrize(
    ("op", "dtype"), [("atomic_add", "int8"), ("atomic_add", "float8_e4m3fn"), ("atomic_max", "int64")]
)
def test_dtypes_that_do_not_compile_are_refused(read, op, dtype):
    held = getattr(torch, dtype)
    with pytest.raises(Unsupported, match=dtype):
        run(read(update(op, dtype)), [torch.zeros(4, 40, 16).to(held), torch.zeros(40, 16).to(held)])

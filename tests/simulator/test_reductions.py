"""T.reduce_* beyond the plain cases of test_tiles, and reducers."""

import pytest
import tilelang.language as T
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.simulator import Unsupported, run
from grader.simulator.dtypes import DTYPES
from grader.simulator.tileops.reducers import join_groups

NAN, INF = float("nan"), float("inf")


def reduction(
    kind, shape, dtype, out=None, dim=1, clear=True, start=0, scopes=("fragment", "fragment"), **options
):
    kept = tuple(size for axis, size in enumerate(shape) if axis != dim) or (1,)
    allocate = {"fragment": T.alloc_fragment, "shared": T.alloc_shared}
    out = out or dtype

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(kept, out)):
        with T.Kernel(1, threads=128) as _bx:
            x = allocate[scopes[0]](shape, dtype)
            y = allocate[scopes[1]](kept, out)
            T.copy(X, x)
            T.fill(y, start)
            T.reduce(x, y, kind, dim, clear, **options)
            T.copy(y, Y)

    return main


def reduced(simulate, x, kind, dim=1, out=None, **options):
    name = str(x.dtype).removeprefix("torch.")
    kept = [size for axis, size in enumerate(x.shape) if axis != dim] or [1]
    y = torch.zeros(kept, dtype=getattr(torch, out or name))
    simulate(reduction(kind, tuple(x.shape), name, out=out, dim=dim, **options), x, y)
    return y


@pytest.mark.parametrize("scopes", [(a, b) for a in ("fragment", "shared") for b in ("fragment", "shared")])
@pytest.mark.parametrize("clear", [True, False])
def test_tiles_in_shared_memory_go_through_fragments(simulate, scopes, clear):
    x = torch.randint(-50, 50, (16, 24)).float()
    y = reduced(simulate, x, "sum", clear=clear, start=7, scopes=scopes)
    assert torch.equal(y, x.sum(1) + (0 if clear else 7))


@pytest.mark.parametrize(
    ("kind", "exact", "start"),
    [
        ("bitand", lambda x: x[:, 0] & x[:, 1] & x[:, 2], -1),
        ("bitor", lambda x: x[:, 0] | x[:, 1] | x[:, 2], 0),
        ("bitxor", lambda x: x[:, 0] ^ x[:, 1] ^ x[:, 2], 5),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8])
def test_bits(simulate, kind, exact, start, dtype):
    x = torch.randint(0, 128, (9, 3)).to(dtype)
    assert torch.equal(reduced(simulate, x, kind), exact(x))
    if dtype == torch.int32:
        joined = {"bitand": exact(x), "bitor": exact(x), "bitxor": exact(x) ^ 5}[kind]
        assert torch.equal(reduced(simulate, x, kind, clear=False, start=start), joined)


def test_three_dimensions_and_one(simulate):
    x = torch.randint(-9, 9, (3, 4, 5), dtype=torch.int32)
    for dim in range(3):
        assert torch.equal(reduced(simulate, x, "max", dim=dim), x.amax(dim))
    line = torch.arange(33, dtype=torch.int32)
    assert reduced(simulate, line, "sum", dim=0).tolist() == [33 * 16]


def test_values_are_converted_before_they_are_joined(simulate):
    bytes_ = torch.full((2, 64), 100, dtype=torch.int8)
    assert reduced(simulate, bytes_, "sum").tolist() == [0, 0]  # 6400 in 8 bits
    assert reduced(simulate, bytes_, "sum", out="int32").tolist() == [6400, 6400]
    halves = torch.full((1, 4096), 0.1).half()
    assert reduced(simulate, halves, "sum", out="float32")[0] == 4096 * float(halves[0, 0])
    assert abs(float(reduced(simulate, torch.full((1, 4096), 0.1), "sum", out="float16")[0]) - 409.6) < 1


def test_a_row_of_nan_gives_the_neutral_value(simulate):
    x = torch.full((2, 8), NAN)
    x[1, 3] = -2.0
    assert reduced(simulate, x, "max").tolist() == [-INF, -2.0]
    assert reduced(simulate, x, "min").tolist() == [INF, -2.0]
    assert reduced(simulate, x, "absmax").tolist() == [0.0, 2.0]
    assert reduced(simulate, x, "max", clear=False, start=-5).tolist() == [-5.0, -2.0]
    assert reduced(simulate, x.half(), "max").tolist() == [-INF, -2.0]
    assert reduced(simulate, x, "sum").isnan().all()


def test_a_nan_stays_if_asked_to(simulate):
    x = torch.zeros(2, 8).half()
    x[0, 5] = NAN
    y = reduced(simulate, x, "max", annotations={"nan_propagate": True})
    assert y.isnan().tolist() == [True, False]
    with pytest.raises(Unsupported, match="nan_propagate"):
        reduced(simulate, x.float(), "max", annotations={"nan_propagate": True})


def test_how_threads_share_the_work_makes_no_difference(simulate):
    x = torch.randint(-9, 9, (8, 64)).float()
    assert torch.equal(reduced(simulate, x, "sum", batch=4, annotations={"enable_fadd2": False}), x.sum(1))


def test_memory_of_a_thread(simulate):
    @T.prim_func
    def main(X: T.Tensor((4, 6), "float32"), Y: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            x = T.alloc_local((6,), "float32")
            y = T.alloc_local((1,), "float32")
            for i in T.serial(6):
                x[i] = X[bx, i]
            T.reduce_sum(x, y, dim=0)
            Y[bx] = y[0]

    x, y = torch.randint(0, 9, (4, 6)).float(), torch.zeros(4)
    simulate(main, x, y)
    assert torch.equal(y, x.sum(1))


def test_what_tilelang_gets_wrong_or_does_not_compile_is_refused(read):
    @T.prim_func
    def part(X: T.Tensor((64, 32), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_fragment((64, 32), "float32")
            y = T.alloc_fragment((32,), "float32")
            T.copy(X, x)
            T.reduce_sum(x[32:64, 0:32], y, dim=1)
            T.copy(y, Y)

    @T.prim_func
    def kept(X: T.Tensor((64, 32), "float32"), Y: T.Tensor((64, 1), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_fragment((64, 32), "float32")
            y = T.alloc_fragment((64, 1), "float32")
            T.copy(X, x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, Y)

    for function, named, shape in ((part, "part of the fragment 'x'", (32,)), (kept, "keeps", (64, 1))):
        with pytest.raises(Unsupported, match=named):
            run(read(function), [torch.zeros(64, 32), torch.zeros(shape)])


# Reducers


def reducer(kind, dtype, start=None):
    @T.prim_func
    def main(X: T.Tensor((16, 40), dtype), Y: T.Tensor((16,), dtype)):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_shared((16, 40), dtype)
            y = T.alloc_fragment((16,), dtype)
            acc = T.alloc_reducer((16,), dtype, op=kind)
            T.copy(X, x)
            if start is None:
                T.reducer_init(acc)
            else:
                T.reducer_init(acc, start)
            for k in T.serial(2):
                for i, j in T.Parallel(16, 20):
                    T.reducer_update(acc[i], x[i, k * 20 + j])
            T.finalize_reducer(acc, y)
            T.copy(y, Y)

    return main


@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        ("sum", lambda x: x.sum(1)),
        ("max", lambda x: x.amax(1)),
        ("min", lambda x: x.amin(1)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_reducers(simulate, kind, exact, dtype):
    held = getattr(torch, dtype)
    x, y = torch.randint(-20, 20, (16, 40)).to(held), torch.zeros(16).to(held)
    simulate(reducer(kind, dtype), x, y)
    assert torch.equal(y.double(), exact(x.double()))
    simulate(reducer(kind, dtype, start=5), x, y)
    joined = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}[kind]
    assert torch.equal(y.double(), joined(exact(x.double()), torch.tensor(5.0).double()))


@pytest.mark.parametrize("replication", [None, "all", "none"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_older_form(simulate, replication):
    @T.prim_func
    def main(X: T.Tensor((16, 40), "float32"), Y: T.Tensor((16,), "float32"), Z: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            x = T.alloc_fragment((16, 40), "float32")
            total = T.alloc_reducer((16,), "float32", op="sum", replication=replication)
            most = T.alloc_reducer((16,), "float32", op="max", replication=replication)
            T.copy(X, x)
            T.clear(total)
            T.fill(most, -3.0)
            for i, j in T.Parallel(16, 40):
                total[i] += x[i, j]
                most[i] = T.max(most[i], x[i, j])
            T.finalize_reducer(total)
            T.finalize_reducer(most)
            for i in T.Parallel(16):
                Y[i] = total[i] * 2.0
            T.copy(most, Z)

    x = torch.randint(-20, 20, (16, 40)).float()
    x[0] = -9.0
    y, z = torch.zeros(16), torch.zeros(16)
    simulate(main, x, y, z)
    assert torch.equal(y, 2 * x.sum(1))
    assert torch.equal(z, x.amax(1).clamp(min=-3.0))


def misuse(what):
    @T.prim_func
    def main(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            y = T.alloc_fragment((8,), "float32")
            acc = T.alloc_reducer((8,), "float32", op="sum")
            if what != "no init":
                T.reducer_init(acc)
            if what == "twice":
                T.reducer_init(acc)
            for i, j in T.Parallel(8, 8):
                T.reducer_update(acc[i], X[i, j])
            if what == "read":
                for i in T.Parallel(8):
                    y[i] = acc[i]
            if what == "loop":
                for _k in T.serial(2):
                    T.finalize_reducer(acc, y)
            elif what != "open":
                T.finalize_reducer(acc, y)
            if what == "late":
                for i, j in T.Parallel(8, 8):
                    T.reducer_update(acc[i], X[i, j])
            T.copy(y, Y)

    return main


@pytest.mark.parametrize("what", ["no init", "twice", "read", "loop", "open", "late"])
def test_reducers_that_tilelang_refuses_are_refused(read, what):
    with pytest.raises(Unsupported, match="'acc'"):
        run(read(misuse(what)), [torch.zeros(8, 8), torch.zeros(8)])
    assert not run(read(misuse("nothing")), [torch.zeros(8, 8), torch.zeros(8)]).faults


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-50, 50)), min_size=1, max_size=60))
def test_groups_are_joined_whole(items):
    keys = torch.tensor([key for key, _value in items])
    values = torch.tensor([value for _key, value in items], dtype=torch.int32)
    elements, group = keys.unique(return_inverse=True)
    joined = join_groups(values, group, torch.add, DTYPES["int32"])
    expected = [sum(value for key, value in items if key == element) for element in elements.tolist()]
    assert joined.tolist() == expected

"""64-bit unsigned integers, above 2**63 too: by what Python's own integers say."""

import operator

import pytest
import tilelang.language as T
import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.simulator import Unsupported, unsigned

TOP = 2**64 - 1
VALUES = [0, 1, 2, 7, 1000, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1000, TOP - 1, TOP]
PAIRS = [(a, b) for a in VALUES for b in VALUES]
N = len(PAIRS)


def tensor(values, dtype=torch.uint64):
    """torch reads no number from 2**63 on."""
    return torch.tensor([(v + 2**63) % 2**64 - 2**63 for v in values], dtype=torch.int64).view(dtype)


def numbers(x: torch.Tensor) -> list[int]:
    return [value % 2**64 for value in x.view(torch.int64).flatten().tolist()]


def rows(functions, form: str, out: str = "uint64", n: int = N):
    """Z[k, i] = functions[k](X[i], Y[i]): in T.Parallel, an element at a time, or in blocks that run at once."""
    count = len(functions)

    def all_of(Z, i, x, y):
        for row, function in enumerate(functions):
            T.buffer_store(Z, function(x, y), [row, i])

    if form == "parallel":

        @T.prim_func
        def main(X: T.Tensor((n,), "uint64"), Y: T.Tensor((n,), "uint64"), Z: T.Tensor((count, n), out)):
            with T.Kernel(1, threads=32) as _bx:
                for i in T.Parallel(n):
                    all_of(Z, i, X[i], Y[i])

        return main
    if form == "serial":

        @T.prim_func
        def main2(X: T.Tensor((n,), "uint64"), Y: T.Tensor((n,), "uint64"), Z: T.Tensor((count, n), out)):
            with T.Kernel(1, threads=32) as _bx:
                for i in T.serial(n):
                    all_of(Z, i, X[i], Y[i])

        return main2

    @T.prim_func
    def main3(X: T.Tensor((n,), "uint64"), Y: T.Tensor((n,), "uint64"), Z: T.Tensor((count, n), out)):
        with T.Kernel(T.ceildiv(n, 4), threads=32) as bx:
            for j in T.Parallel(4):
                if bx * 4 + j < n:
                    all_of(Z, bx * 4 + j, X[bx * 4 + j], Y[bx * 4 + j])

    return main3


FORMS = ("parallel", "serial", "blocks")


def check(simulate, form, functions, exact, pairs=None, out="uint64", held=torch.uint64):
    pairs = PAIRS if pairs is None else pairs
    x, y = (tensor(column) for column in zip(*pairs, strict=True))
    z = torch.zeros(len(functions), len(pairs), dtype=held)
    simulate(rows(functions, form, out, len(pairs)), x, y, z, batched=form == "blocks")
    for row, right in zip(z, exact, strict=True):
        found = numbers(row) if held == torch.uint64 else row.tolist()
        assert found == [right(a, b) for a, b in pairs]


@pytest.mark.parametrize("form", FORMS)
def test_arithmetic(simulate, form):
    check(
        simulate,
        form,
        [
            operator.add,
            operator.sub,
            operator.mul,
            T.min,
            T.max,
            operator.and_,
            operator.or_,
            operator.xor,
            lambda x, y: ~x,
            lambda x, y: T.clamp(x, T.cast(5, "uint64"), T.uint64(2**63 + 9)),
            lambda x, y: x + T.max_value("uint64"),
            lambda x, y: T.max(x, T.uint64(2**63)),
        ],
        [
            lambda a, b: (a + b) & TOP,
            lambda a, b: (a - b) & TOP,
            lambda a, b: (a * b) & TOP,
            min,
            max,
            operator.and_,
            operator.or_,
            operator.xor,
            lambda a, b: a ^ TOP,
            lambda a, b: min(max(a, 5), 2**63 + 9),
            lambda a, b: (a - 1) & TOP,
            lambda a, b: max(a, 2**63),
        ],
    )


@pytest.mark.parametrize("form", FORMS)
def test_division(simulate, form):
    check(
        simulate,
        form,
        [
            operator.floordiv,
            operator.mod,
            T.truncdiv,
            T.truncmod,
            lambda x, y: x // T.cast(7, "uint64"),
            lambda x, y: x % T.uint64(2**63 + 1),
            lambda x, y: x // T.max_value("uint64"),
        ],
        [
            operator.floordiv,
            operator.mod,
            operator.floordiv,
            operator.mod,
            lambda a, b: a // 7,
            lambda a, b: a % (2**63 + 1),
            lambda a, b: a // TOP,
        ],
        [(a, b) for a, b in PAIRS if b],
    )


@pytest.mark.parametrize("form", FORMS)
def test_comparisons(simulate, form):
    compared = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
    functions = [lambda x, y, f=f: T.cast(f(x, y), "int32") for f in compared]
    functions.append(lambda x, y: T.cast(x < T.uint64(2**63), "int32"))
    exact = [lambda a, b, f=f: int(f(a, b)) for f in compared]
    exact.append(lambda a, b: int(a < 2**63))
    check(simulate, form, functions, exact, out="int32", held=torch.int32)


@pytest.mark.parametrize("form", FORMS)
def test_shifts(simulate, form):
    pairs = [(a, by) for a in VALUES for by in (0, 1, 31, 32, 62, 63)]
    check(
        simulate,
        form,
        [operator.lshift, operator.rshift, lambda x, y: x >> T.cast(4, "uint64")],
        [lambda a, b: (a << b) & TOP, lambda a, b: a >> b, lambda a, b: a >> 4],
        pairs,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_casts_to_floats_round_once(simulate, form, dtype):
    held = getattr(torch, dtype)
    pairs = [(a, 0) for a in (*VALUES, 2**63 + 2**10, 2**63 + 2**10 + 1, 2**63 + 2**39, 2**63 + 2**39 + 1)]

    def rounded(a: int) -> float:
        bits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[dtype]
        if dtype == "bfloat16":  # by way of float32, as int64 values are
            a = cut(a, 24)
        value = cut(a, bits)
        return float(value) if value < torch.finfo(held).max else float("inf")

    check(simulate, form, [lambda x, y: T.cast(x, dtype)], [lambda a, b: rounded(a)], pairs, dtype, held)


def cut(value: int, bits: int) -> int:
    """The nearest integer of so many significant bits; of two, the even one."""
    step = 1 << max(value.bit_length() - bits, 0)
    low, rest = divmod(value, step)
    return (low + (2 * rest > step or (2 * rest == step and low % 2 == 1))) * step


def cast_from(dtype: str, out: str, n: int):
    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), out), S: T.Tensor((n,), out)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Z[i] = T.cast(X[i], out)
            for i in T.serial(n):
                S[i] = T.cast(X[i], out)

    return main


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_casts_from_floats_saturate(simulate, dtype):
    given = [0.0, 1.75, 2.0**63, 2.0**63 + 2.0**40, 2.0**64, 3e30, -1.0, -5e20, float("inf"), float("nan")]
    right = [0, 1, 2**63, 2**63 + 2**40, TOP, TOP, 0, 0, TOP, 2**63]
    x = torch.tensor(given, dtype=getattr(torch, dtype))
    z, s = torch.zeros(2, len(given), dtype=torch.uint64)
    simulate(cast_from(dtype, "uint64", len(given)), x, z, s)
    assert numbers(z) == numbers(s) == right


def test_casts_of_floats_to_uint32_reach_its_upper_half(simulate):
    x = torch.tensor([3e9, 4294967040.0, 5e9, -1.0])
    z, s = torch.zeros(2, 4, dtype=torch.uint32)
    simulate(cast_from("float32", "uint32", 4), x, z, s)
    assert z.tolist() == s.tolist() == [3_000_000_000, 4_294_967_040, 2**32 - 1, 0]


@pytest.mark.parametrize("out", ["int8", "uint32", "int64", "uint8"])
def test_casts_to_integers_keep_the_low_bits(simulate, out):
    x, held = tensor(VALUES), getattr(torch, out)
    z, s = torch.zeros(2, len(VALUES), dtype=held)
    simulate(cast_from("uint64", out, len(VALUES)), x, z, s)
    bits = 8 * held.itemsize
    right = [v % 2**bits for v in VALUES]
    if not out.startswith("u"):
        right = [v - 2**bits if v >= 2 ** (bits - 1) else v for v in right]
    assert z.tolist() == s.tolist() == right


def test_casts_from_integers_extend_the_sign(simulate):
    x = torch.tensor([-1, 5, -(2**31)], dtype=torch.int32)
    z, s = torch.zeros(2, 3, dtype=torch.uint64)
    simulate(cast_from("int32", "uint64", 3), x, z, s)
    assert numbers(z) == numbers(s) == [TOP, 5, 2**64 - 2**31]


def test_reinterpreting_keeps_the_bits(simulate):
    @T.prim_func
    def main(X: T.Tensor((3,), "float64"), Z: T.Tensor((3,), "uint64")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(3):
                Z[i] = T.reinterpret(X[i], "uint64")

    z = torch.zeros(3, dtype=torch.uint64)
    simulate(main, torch.tensor([-0.0, 1.0, -2.0], dtype=torch.float64), z)
    assert numbers(z) == [2**63, 0x3FF0000000000000, 0xC000000000000000]


def test_guards_on_loop_variables(simulate):
    """A comparison that bounds alone might decide, about a number that no int64 is."""

    @T.prim_func
    def main(Z: T.Tensor((4, 8), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(8):
                Z[0, i] = T.if_then_else(T.cast(i, "uint64") < T.uint64(2**63), 1, 0)
                Z[1, i] = T.if_then_else(T.cast(i, "uint64") + T.uint64(2**63) > T.cast(5, "uint64"), 1, 0)
                Z[2, i] = T.if_then_else(T.cast(i, "uint64") - T.cast(3, "uint64") < T.cast(2, "uint64"), 1, 0)
                Z[3, i] = T.if_then_else(T.cast(i, "uint64") + T.uint64(2**63 - 4) >= T.uint64(2**63), 1, 0)

    z = torch.zeros(4, 8, dtype=torch.int32)
    simulate(main, z)
    assert z.tolist() == [[1] * 8, [1] * 8, [0, 0, 0, 1, 1, 0, 0, 0], [0] * 4 + [1] * 4]


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("sum", lambda row: sum(row) & TOP),
        ("max", max),
        ("min", min),
        ("absmax", max),
        ("bitand", lambda row: row[0] & row[1] & row[2] & row[3]),
        ("bitor", lambda row: row[0] | row[1] | row[2] | row[3]),
    ],
)
@pytest.mark.parametrize("clear", [True, False])
def test_reductions(simulate, operation, right, clear):
    reduce = getattr(T, f"reduce_{operation}")

    @T.prim_func
    def main(X: T.Tensor((8, 4), "uint64"), Z: T.Tensor((8,), "uint64")):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((8, 4), "uint64")
            z = T.alloc_fragment((8,), "uint64")
            T.copy(X, x)
            T.copy(Z, z)
            reduce(x, z, dim=1, clear=clear)
            T.copy(z, Z)

    values = [[VALUES[(3 * i + 5 * j) % len(VALUES)] for j in range(4)] for i in range(8)]
    x = tensor([v for row in values for v in row]).view(8, 4)
    start = 0 if operation not in ("min", "bitand") else TOP
    z = tensor([start] * 8)
    simulate(main, x, z, outputs=())
    assert numbers(z) == [right(row) for row in values]


def test_scans(simulate):
    @T.prim_func
    def main(X: T.Tensor((40,), "uint64"), S: T.Tensor((40,), "uint64"), M: T.Tensor((40,), "uint64")):
        with T.Kernel(1, threads=32) as _bx:
            s = T.alloc_shared((40,), "uint64")
            m = T.alloc_shared((40,), "uint64")
            T.copy(X, s)
            T.copy(X, m)
            T.cumsum(s)
            T.cummax(m, dim=0)
            T.copy(s, S)
            T.copy(m, M)

    values = [VALUES[(5 * i) % 7] + (2**63 if i == 20 else 0) for i in range(40)]
    s, m = torch.zeros(2, 40, dtype=torch.uint64)
    simulate(main, tensor(values), s, m)
    assert numbers(s) == [sum(values[: i + 1]) & TOP for i in range(40)]
    assert numbers(m) == [max(values[: i + 1]) for i in range(40)]


@pytest.mark.parametrize("spread", [1, 8])
def test_atomics_of_elements(simulate, spread):
    @T.prim_func
    def main(X: T.Tensor((16,), "uint64"), Z: T.Tensor((4, 8), "uint64")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(16):
                T.atomic_add(Z[0, i % spread], X[i])
                T.atomic_max(Z[1, i % spread], X[i])
                T.atomic_min(Z[2, i % spread], X[i])

    values = [VALUES[(5 * i) % len(VALUES)] for i in range(16)]
    z = tensor([3] * 16 + [TOP] * 8 + [3] * 8).view(4, 8)
    simulate(main, tensor(values), z)
    groups = [values[k::spread] for k in range(spread)]
    found = numbers(z)
    assert found[:spread] == [(3 + sum(group)) & TOP for group in groups]
    assert found[8 : 8 + spread] == [max(3, *group) for group in groups]
    assert found[16 : 16 + spread] == [min(TOP, *group) for group in groups]


@pytest.mark.parametrize(("op", "join"), [("sum", lambda v: sum(v) & TOP), ("max", max), ("min", min)])
def test_reducers(simulate, op, join):
    @T.prim_func
    def main(X: T.Tensor((14,), "uint64"), Z: T.Tensor((1,), "uint64")):
        with T.Kernel(1, threads=32) as _bx:
            r = T.alloc_reducer((1,), "uint64", op)
            T.reducer_init(r)
            for i in T.Parallel(14):
                T.reducer_update(r[0], X[i])
            f = T.alloc_fragment((1,), "uint64")
            T.finalize_reducer(r, f)
            T.copy(f, Z)

    z = torch.zeros(1, dtype=torch.uint64)
    simulate(main, tensor(VALUES), z)
    assert numbers(z) == [join(VALUES)]


def test_printing(simulate):
    @T.prim_func
    def main(X: T.Tensor((2,), "uint64")):
        with T.Kernel(1, threads=32) as _bx:
            T.print(X[0])
            T.print(X[1])

    printed = simulate(main, tensor([TOP, 7])).prints
    assert [record.values for record in printed] == [(TOP,), (7,)]


@given(st.integers(0, TOP), st.integers(1, TOP), st.integers(0, 63))
def test_division_and_shifts_of_any_numbers(a, b, by):
    x, y = tensor([a], torch.int64), tensor([b], torch.int64)
    assert numbers(unsigned.quotient(x, y)) == [a // b]
    assert numbers(unsigned.shift_right(x, torch.tensor([by]))) == [a >> by]
    assert unsigned.to_float(x, torch.float64).tolist() == [float(a)]
    assert numbers(unsigned.from_float(torch.tensor([float(a)], dtype=torch.float64))) == [min(int(float(a)), TOP)]


@pytest.mark.parametrize(
    ("dtype", "out", "right"), [("float32", "int64", -(2**63)), ("float64", "int32", -(2**31))]
)
def test_nan_becomes_the_lowest_integer_where_a_side_has_64_bits(simulate, dtype, out, right):
    """PTX ISA, cvt: else it becomes 0."""
    x = torch.tensor([float("nan")], dtype=getattr(torch, dtype))
    z, s = torch.ones(2, 1, dtype=getattr(torch, out))
    simulate(cast_from(dtype, out, 1), x, z, s)
    assert z.tolist() == s.tolist() == [right]


@pytest.mark.parametrize("form", FORMS)
def test_shifts_by_too_much_leave_nothing(simulate, form):
    """As PTX's shifts do, which take any amount for at most the width."""
    pairs = [(TOP, 64), (2**63, 100), (TOP, TOP)]
    check(simulate, form, [operator.lshift, operator.rshift], [lambda a, b: 0] * 2, pairs)


def test_atomics_of_tiles_are_refused(simulate):
    @T.prim_func
    def main(X: T.Tensor((32,), "uint64"), Z: T.Tensor((32,), "uint64")):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_fragment((32,), "uint64")
            T.copy(X, x)
            T.atomic_max(Z, x)

    with pytest.raises(Unsupported, match="uint64"):
        simulate(main, *torch.zeros(2, 32, dtype=torch.uint64))

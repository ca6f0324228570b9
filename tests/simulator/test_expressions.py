"""Every operator and function: on tensors (in T.Parallel) and on scalars, in the dtype that it has."""

import operator

import pytest
import tilelang.language as T
import torch

N = 64
UNARY = {
    "exp": (T.exp, torch.exp),
    "exp2": (T.exp2, torch.exp2),
    "exp10": (T.exp10, lambda x: 10**x),
    "log": (T.log, torch.log),
    "log2": (T.log2, torch.log2),
    "log10": (T.log10, torch.log10),
    "log1p": (T.log1p, torch.log1p),
    "sqrt": (T.sqrt, torch.sqrt),
    "rsqrt": (T.rsqrt, torch.rsqrt),
    "sin": (T.sin, torch.sin),
    "cos": (T.cos, torch.cos),
    "tan": (T.tan, torch.tan),
    "tanh": (T.tanh, torch.tanh),
    "sigmoid": (T.sigmoid, torch.sigmoid),
    "erf": (T.erf, torch.erf),
    "abs": (T.abs, torch.abs),
    "floor": (T.floor, torch.floor),
    "ceil": (T.ceil, torch.ceil),
    "trunc": (T.trunc, torch.trunc),
    "negative": (lambda x: -x, torch.neg),
    "fast exp": (T.__exp, torch.exp),
    "fast log": (T.__log, torch.log),
}
TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
UNITS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-21, "float64": 2**-21}


def elementwise(function, dtype: str, out: str | None = None, n: int = N, count: int = 1):
    """Y[i] = function(X[i], …), in T.Parallel."""
    out = out or dtype
    if count == 1:

        @T.prim_func
        def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), out)):
            with T.Kernel(1, threads=32) as _bx:
                for i in T.Parallel(n):
                    Y[i] = function(X[i])

        return main

    @T.prim_func
    def main2(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), dtype), Y: T.Tensor((n,), out)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(n):
                Y[i] = function(X[i], Z[i])

    return main2


def by_element(function, dtype: str, out: str | None = None, n: int = N, count: int = 1):
    """The same, an element at a time."""
    out = out or dtype
    if count == 1:

        @T.prim_func
        def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), out)):
            with T.Kernel(1, threads=32) as _bx:
                for i in T.serial(n):
                    Y[i] = function(X[i])

        return main

    @T.prim_func
    def main2(X: T.Tensor((n,), dtype), Z: T.Tensor((n,), dtype), Y: T.Tensor((n,), out)):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.serial(n):
                Y[i] = function(X[i], Z[i])

    return main2


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("name", UNARY)
def test_functions(simulate, name, dtype):
    function, exact = UNARY[name]
    x = (torch.rand(N) * 3 + 0.05).to(TORCH[dtype])
    if name in ("floor", "ceil", "trunc", "abs", "negative", "tanh", "erf"):
        x -= 1.5
    for build in (elementwise, by_element):
        y = torch.full((N,), float("nan"), dtype=TORCH[dtype])
        simulate(build(function, dtype), x, y)
        expected = exact(x.double())
        assert ((y.double() - expected).abs() <= UNITS[dtype] * expected.abs() + UNITS[dtype] ** 2).all()


@pytest.mark.parametrize("dtype", TORCH)
def test_float_arithmetic_rounds_after_each_operation(simulate, dtype):
    x, z = (10 * torch.randn(2, N)).to(TORCH[dtype])
    for function, exact in (
        (lambda a, b: a * b + a, lambda a, b: a * b + a),
        (lambda a, b: (a - b) / b, lambda a, b: (a - b) / b),
        (T.max, torch.maximum),
        (T.min, torch.minimum),
        (T.fmod, torch.fmod),
    ):
        for build in (elementwise, by_element):
            y = torch.full((N,), float("nan"), dtype=TORCH[dtype])
            simulate(build(function, dtype, count=2), x, z, y)
            assert torch.equal(y, exact(x, z)), function


def test_pow(simulate):
    x, z, y = torch.rand(N) + 0.1, torch.randn(N), torch.zeros(N)
    simulate(elementwise(T.pow, "float32", count=2), x, z, y)
    assert torch.allclose(y, x**z)


INTEGER_BINARY = {
    "add": (operator.add, lambda a, b: a + b),
    "sub": (operator.sub, lambda a, b: a - b),
    "mul": (operator.mul, lambda a, b: a * b),
    "truncdiv": (T.truncdiv, lambda a, b: int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)),
    "truncmod": (T.truncmod, lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1)),
    "floordiv": (T.floordiv, lambda a, b: a // b),
    "floormod": (T.floormod, lambda a, b: a % b),
    "max": (T.max, max),
    "min": (T.min, min),
    "and": (operator.and_, lambda a, b: a & b),
    "or": (operator.or_, lambda a, b: a | b),
    "xor": (operator.xor, lambda a, b: a ^ b),
    "shift left": (lambda a, b: a << (b & 7), lambda a, b: a << (b & 7)),
    "shift right": (lambda a, b: a >> (b & 7), lambda a, b: a >> (b & 7)),
    "not": (lambda a, b: ~a, lambda a, b: ~a),
}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"])
@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_integer_arithmetic(simulate, name, dtype):
    function, exact = INTEGER_BINARY[name]
    held = getattr(torch, dtype)
    info = torch.iinfo(held)
    edge = [info.min, info.max, 1, info.max - 1, 0, info.max // 2 + 1]
    xs = [x for x in edge for _ in edge] + [7, 100, 100, 5]
    zs = [z for _ in edge for z in edge] + [2, 3, 7, 100]
    if info.min < 0:
        xs, zs = [*xs, -7, -7, 7], [*zs, 2, -2, -2]
    zs = [z or 3 for z in zs]
    n = len(xs)
    x, z = torch.tensor(xs, dtype=held), torch.tensor(zs, dtype=held)
    bits = 1 << info.bits
    expected = [(exact(a, b) - info.min) % bits + info.min for a, b in zip(xs, zs, strict=True)]
    for build in (elementwise, by_element):
        y = torch.zeros(n, dtype=held)
        simulate(build(function, dtype, n=n, count=2), x, z, y)
        assert y.tolist() == expected


def test_comparisons_and_logic(simulate):
    x = torch.arange(N, dtype=torch.int32)
    for function, exact in (
        (lambda a: a < 5, lambda a: a < 5),
        (lambda a: a <= 5, lambda a: a <= 5),
        (lambda a: a > 5, lambda a: a > 5),
        (lambda a: a >= 5, lambda a: a >= 5),
        (lambda a: a == 5, lambda a: a == 5),
        (lambda a: a != 5, lambda a: a != 5),
        (lambda a: T.And(a > 3, a < 9), lambda a: 3 < a < 9),
        (lambda a: T.Or(a < 3, T.Not(a < 60)), lambda a: a < 3 or a >= 60),
    ):
        for build in (elementwise, by_element):
            y = torch.zeros(N, dtype=torch.int32)
            simulate(build(lambda a, f=function: T.Select(f(a), 1, 0), "int32"), x, y)
            assert y.tolist() == [int(exact(a)) for a in range(N)]


CASTS = [
    ("float32", "float16", [1e-9, 65504.0, 65520.0, 1.0009765, -3.7]),
    ("float32", "bfloat16", [1.00390625, 3.0e38, -1e-40]),
    ("float16", "float32", [1.5, 65504.0, 6e-8]),
    ("float32", "int32", [1.9, -1.9, 3e9, -3e9, float("nan"), float("inf")]),
    ("int32", "float32", [16777217, -5, 2**31 - 1]),
    ("int32", "int8", [127, 128, 255, 256, -129]),
    ("int32", "uint8", [127, 128, 255, 256, -1]),
    ("int64", "int32", [2**31, -(2**31) - 1, 2**40 + 3]),
    ("uint8", "float16", [0, 255]),
    ("float32", "float8_e4m3fn", [1.06, 448.0, 1000.0, -0.01]),
    ("float8_e5m2", "float32", [1.25, -57344.0]),
    ("float32", "int64", [3e18, -2.5]),
]
RESULTS = {
    ("float32", "int32"): [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1],
    ("int32", "int8"): [127, -128, -1, 0, 127],
    ("int32", "uint8"): [127, 128, 255, 0, 255],
    ("int64", "int32"): [-(2**31), 2**31 - 1, 3],
    ("float32", "float8_e4m3fn"): [1.0, 448.0, 448.0, -0.009765625],
}


def held(dtype: str) -> torch.dtype:
    return getattr(torch, dtype)


@pytest.mark.parametrize(("source", "target", "values"), CASTS)
def test_casts(simulate, source, target, values):
    x = torch.tensor(values).to(held(source))
    expected = RESULTS.get((source, target))
    expected = torch.tensor(expected) if expected is not None else x.to(held(target))
    for build in (elementwise, by_element):
        y = torch.zeros(len(values), dtype=held(target))
        simulate(build(lambda a: T.cast(a, target), source, target, n=len(values)), x, y)
        assert y.to(torch.float64).tolist() == expected.to(torch.float64).tolist()


def test_if_then_else_evaluates_only_the_side_that_is_taken(simulate):
    @T.prim_func
    def main(X: T.Tensor((10,), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(16):
                Y[i] = T.if_then_else(i < 10, X[i], -1.0)

    x, y = torch.randn(10), torch.zeros(16)
    simulate(main, x, y)
    assert y.tolist() == [*x.tolist(), *[-1.0] * 6]


def test_and_guards_its_right_side(simulate):
    @T.prim_func
    def main(X: T.Tensor((10,), "int32"), Y: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(16):
                Y[i] = 0
                if i < 10 and X[i] > 0:
                    Y[i] = X[i]

    x, y = torch.arange(-5, 5, dtype=torch.int32), torch.full((16,), -1, dtype=torch.int32)
    simulate(main, x, y)
    assert y.tolist() == [*x.clamp(min=0).tolist(), *[0] * 6]


def test_select_evaluates_both_sides(simulate):
    @T.prim_func
    def main(X: T.Tensor((10,), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(16):
                Y[i] = T.Select(i < 10, X[i], -1.0)

    y = torch.zeros(16)
    result = simulate(main, torch.randn(10), y, faulty=True)
    assert [(f.kind, f.buffer, f.index, f.count) for f in result.faults] == [("out_of_bounds_read", "X", (10,), 6)]


def test_scalars_are_rounded_to_their_dtype(simulate):
    @T.prim_func
    def main(X: T.Tensor((1,), "float32"), Y: T.Tensor((1,), "float32"), Z: T.Tensor((1,), "float16")):
        with T.Kernel(1, threads=32) as _bx:
            v = T.alloc_var("float32")
            h = T.alloc_var("float16")
            v = X[0]
            h = T.cast(X[0], "float16")
            for _ in T.serial(10):
                v = v * 1.1 + 0.1
                h = h * T.float16(1.1) + T.float16(0.1)
            Y[0] = v
            Z[0] = h

    x, y, z = torch.tensor([0.3]), torch.zeros(1), torch.zeros(1).half()
    simulate(main, x, y, z)
    v, h = x.clone(), x.half()
    for _ in range(10):
        v = v * torch.tensor(1.1) + torch.tensor(0.1)
        h = h * torch.tensor(1.1).half() + torch.tensor(0.1).half()
    assert torch.equal(y, v)
    assert torch.equal(z, h)


def test_infinity_and_nan(simulate):
    @T.prim_func
    def main(X: T.Tensor((4,), "float32"), Y: T.Tensor((4,), "float32"), Z: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(4):
                Y[i] = T.max(X[i], -T.infinity("float32"))
                Z[i] = T.Select(T.isnan(X[i]), 1, 0)

    x = torch.tensor([1.0, float("nan"), float("-inf"), float("inf")])
    y, z = torch.zeros(4), torch.zeros(4, dtype=torch.int32)
    simulate(main, x, y, z)
    assert y.tolist() == [1.0, float("-inf"), float("-inf"), float("inf")]
    assert z.tolist() == [0, 1, 0, 0]


def test_reinterpret(simulate):
    x, y = torch.randn(N), torch.zeros(N, dtype=torch.int32)
    simulate(elementwise(lambda a: T.reinterpret(a, "int32"), "float32", "int32"), x, y)
    assert torch.equal(y, x.view(torch.int32))


def test_integer_overflow_of_an_index_expression_wraps(simulate):
    @T.prim_func
    def main(Y: T.Tensor((8,), "int32")):
        with T.Kernel(8, threads=32) as bx:
            for i in T.Parallel(1):
                Y[bx + i] = (bx + 40000) * (i + 60000)

    y = torch.zeros(8, dtype=torch.int32)
    simulate(main, y)
    assert y.tolist() == [((b + 40000) * 60000 + 2**31) % 2**32 - 2**31 for b in range(8)]

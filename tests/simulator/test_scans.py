"""T.cumsum and T.cummax."""

import pytest
import tilelang.language as T
import torch

from grader.simulator import Unsupported, run

NAN, INF = float("nan"), float("inf")


def scan(shape, dtype, op="cumsum", dim=0, reverse=False, scope="shared", threads=128):
    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads) as _bx:
            x = T.alloc_shared(shape, dtype) if scope == "shared" else T.alloc_fragment(shape, dtype)
            y = T.alloc_shared(shape, dtype) if scope == "shared" else T.alloc_fragment(shape, dtype)
            T.copy(X, x)
            getattr(T, op)(x, y, dim=dim, reverse=reverse)
            T.copy(y, Y)

    return main


def scanned(simulate, x: torch.Tensor, **options) -> torch.Tensor:
    y = torch.zeros_like(x)
    dtype = str(x.dtype).removeprefix("torch.")
    simulate(scan(tuple(x.shape), dtype, **options), x, y)
    return y


@pytest.mark.parametrize("scope", ["shared", "fragment"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((70,), 0), ((1,), 0), ((5, 33), 1), ((40, 3), 0), ((4, 8), -1)])
def test_sums_along_any_dimension(simulate, shape, dim, reverse, scope):
    x = torch.randint(-9, 9, shape).float()
    y = scanned(simulate, x, dim=dim, reverse=reverse, scope=scope)
    expected = x.flip(dim).cumsum(dim).flip(dim) if reverse else x.cumsum(dim)
    assert torch.equal(y, expected)


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int16, torch.int64, torch.float64, torch.bfloat16]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_maxima_of_every_dtype(simulate, dtype, reverse):
    x = torch.randint(0, 100, (3, 50)).to(dtype)
    y = scanned(simulate, x, op="cummax", dim=1, reverse=reverse)
    along = x.double().flip(1) if reverse else x.double()
    expected = along.cummax(1).values
    assert torch.equal(y.double(), expected.flip(1) if reverse else expected)


def test_integers_wrap(simulate):
    x = torch.full((40,), 100, dtype=torch.int8)
    assert torch.equal(scanned(simulate, x), x.long().cumsum(0).to(torch.int8))


def by_lanes(line: list[float], dtype: torch.dtype, reverse: bool) -> list[float]:
    """A warp's scan, lane by lane, each sum rounded."""

    def add(a: float, b: float) -> float:
        return float((torch.tensor(a, dtype=dtype) + torch.tensor(b, dtype=dtype)).to(dtype))

    carry, result, sign = 0.0, [0.0] * len(line), -1 if reverse else 1
    for start in list(range(0, len(line), 32))[::sign]:
        lanes = (line[start : start + 32] + [0.0] * 32)[:32]
        for step in (1, 2, 4, 8, 16):
            partner = [i - sign * step for i in range(32)]
            lanes = [add(v, lanes[j]) if 0 <= j < 32 else v for v, j in zip(lanes, partner, strict=True)]
        lanes = [add(v, carry) for v in lanes]
        carry = lanes[0 if reverse else 31]
        result[start : start + 32] = lanes[: len(line) - start]
    return result


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_are_rounded_in_the_order_of_the_cards_lanes(simulate, dtype, reverse):
    x = (10 * torch.randn(75)).to(dtype)
    assert scanned(simulate, x, reverse=reverse).tolist() == by_lanes(x.tolist(), dtype, reverse)


def test_a_nan_is_no_maximum(simulate):
    x = torch.tensor([NAN, 1.0, NAN, 3.0, 2.0])
    assert scanned(simulate, x, op="cummax").tolist() == [-INF, 1.0, 1.0, 3.0, 3.0]
    # Of doubles, a NaN stays where it stands: the card compares there.
    y = scanned(simulate, x.double(), op="cummax")
    assert y.isnan().tolist() == [True, False, True, False, False]


def test_a_part_of_a_tile_in_place(simulate):
    @T.prim_func
    def main(X: T.Tensor((8, 64), "int32"), Y: T.Tensor((8, 64), "int32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_shared((8, 64), "int32")
            T.copy(X, x)
            T.cumsum(x[2:6, 8:48], dim=1)
            T.copy(x, Y)

    x, y = torch.randint(0, 9, (8, 64), dtype=torch.int32), torch.zeros(8, 64, dtype=torch.int32)
    simulate(main, x, y)
    expected = x.clone()
    expected[2:6, 8:48] = x[2:6, 8:48].cumsum(1)
    assert torch.equal(y, expected)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"shape": (2, 2, 2), "dtype": "float32"}, "dimensions"),
        ({"shape": (8,), "dtype": "float32", "threads": 96}, "threads"),
        ({"shape": (8,), "dtype": "float8_e4m3fn"}, "float8"),
    ],
)
def test_what_the_card_has_no_code_for_is_refused(read, options, named):
    function = scan(**options)
    held = getattr(torch, options["dtype"])
    with pytest.raises(Unsupported, match=named):
        run(read(function), [torch.zeros(options["shape"]).to(held) for _ in range(2)])


def test_an_unwritten_tile_is_found(simulate):
    @T.prim_func
    def main(Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_shared((64,), "float32")
            T.fill(x[0:60], 1.0)
            T.cumsum(x)
            T.copy(x, Y)

    result = simulate(main, torch.zeros(64), faulty=True)
    assert [(fault.kind, fault.index, fault.count) for fault in result.faults] == [
        ("uninitialised_read", (60,), 4)
    ]

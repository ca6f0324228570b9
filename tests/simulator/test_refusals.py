"""What the simulator can't do it names; what would cost too much it stops; wrong tensors it doesn't take."""

import dataclasses
import itertools
import multiprocessing
import resource
import time

import psutil
import pytest
import tilelang.language as T
import torch

from grader.ir import nodes
from grader.simulator import Budget, OverBudget, Unsupported, run

LINE = nodes.Line("k.py", 7)


def const(value, dtype="int32"):
    return nodes.Const(dtype, value)


def kernel(body, *, shape=(64,), grid=1, allocations=(), dtype="float32"):
    """A kernel of one output Y, by hand."""
    y = nodes.Buffer("Y", dtype, tuple(map(const, shape)), (), nodes.Storage("Y", "global"))
    threads = tuple(nodes.Var("int32", name) for name in ("tx", "ty", "tz"))
    blocks = (nodes.Grid(nodes.Var("int32", "bx"), "x", const(grid)),)
    body = body(y) if callable(body) else body
    return nodes.Kernel((y,), (), blocks, (32, 1, 1), threads, tuple(allocations), (), body, LINE)


def loop(extent, body, kind=nodes.SERIAL):
    var = nodes.Var("int32", "i")
    extent = const(extent) if isinstance(extent, int) else extent
    return nodes.For(LINE, var, const(0), extent, kind, body(var))


def store(buffer, *indices, value=None):
    return nodes.Store(LINE, buffer, indices, value or const(1.0, "float32"))


NOTHING = nodes.Evaluate(LINE, const(0))


@pytest.mark.parametrize(
    "body",
    [
        nodes.While(LINE, const(True, "bool"), NOTHING),
        loop(const(2**40, "int64"), lambda i: NOTHING),
        loop(2**31 - 1, lambda i: loop(2**31 - 1, lambda j: NOTHING)),
        lambda y: loop(const(2**40, "int64"), lambda i: store(y, i), nodes.PARALLEL),
        lambda y: loop(2**31 - 1, lambda i: store(y, const(0)), nodes.PARALLEL),
        lambda y: loop(2**20, lambda i: loop(2**20, lambda j: store(y, i), nodes.PARALLEL), nodes.PARALLEL),
        lambda y: nodes.While(LINE, const(True, "bool"), store(y, const(0))),
    ],
)
def test_endless_and_huge_loops_are_stopped(body):
    start = time.process_time()
    with pytest.raises(OverBudget) as caught:
        run(kernel(body), [torch.zeros(64)], budget=Budget(steps=50_000, seconds=5.0, bytes=1 << 26))
    assert caught.value.line in (LINE, None)
    assert caught.value.message
    assert time.process_time() - start < 5


def test_a_budget_of_seconds():
    start = time.process_time()
    with pytest.raises(OverBudget, match="seconds"):
        run(
            kernel(nodes.While(LINE, const(True, "bool"), NOTHING)),
            [torch.zeros(64)],
            budget=Budget(steps=10**12, seconds=0.2),
        )
    assert time.process_time() - start < 2


def test_huge_grids_and_tiles_are_stopped():
    with pytest.raises(OverBudget):
        run(kernel(NOTHING, grid=2**31 - 1), [torch.zeros(64)], budget=Budget(steps=1000))
    huge = nodes.Buffer("a", "float32", (const(2**20), const(2**18)), (), nodes.Storage("a", "shared.dyn"))
    with pytest.raises(OverBudget, match="memory"):
        run(kernel(NOTHING, allocations=[huge]), [torch.zeros(64)])
    tile = nodes.Buffer("a", "float32", (const(8), const(8)), (), nodes.Storage("a", "shared.dyn"))

    def region(buffer, *extents):
        return nodes.Region("handle", buffer, tuple(const(0) for _ in extents), tuple(map(const, extents)), 3)

    big = region(tile, 2**18, 2**18)
    accumulator = nodes.Buffer("c", "float32", (const(8), const(8)), (), nodes.Storage("c", "local.fragment"))
    product = nodes.Call(
        "handle",
        "tl.tileop.gemm",
        (
            big,
            big,
            region(accumulator, 2**18, 2**18),
            *[const(False, "bool")] * 2,
            *[const(2**18)] * 3,
            const(0),
            const(False, "bool"),
        )
        + (const(0),) * 3,
    )
    with pytest.raises(OverBudget):
        run(kernel(nodes.Evaluate(LINE, product), allocations=[tile, accumulator]), [torch.zeros(64)])
    copy = nodes.Call("handle", "tl.tileop.copy", (region(tile, 2**30, 2**30), region(tile, 2**30, 2**30)))
    with pytest.raises(OverBudget):
        run(kernel(nodes.Evaluate(LINE, copy), allocations=[tile]), [torch.zeros(64)])


def test_a_doubling_expression_is_stopped():
    def body(y):
        value = nodes.Load("float32", y, (const(0),))
        for _ in range(40):
            value = nodes.Binary("float32", "Add", value, value)
        return store(y, const(0), value=value)

    start = time.process_time()
    with pytest.raises(OverBudget):
        run(kernel(body), [torch.zeros(64)], budget=Budget(steps=10_000, seconds=1.0))
    assert time.process_time() - start < 4


def test_deep_expressions_end_without_a_crash():
    def body(y):
        value = nodes.Load("float32", y, (const(0),))
        for _ in range(100_000):
            value = nodes.Binary("float32", "Add", value, const(1.0, "float32"))
        return store(y, const(0), value=value)

    with pytest.raises(OverBudget, match="deep"):
        run(kernel(body), [torch.zeros(64)])


def test_unsupported_constructs_are_named(read, line_of):
    @T.prim_func
    def threads(Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            tx = T.get_thread_binding()
            for i in T.Parallel(32):
                Y[i] = T.cast(tx, "float32")  # thread

    @T.prim_func
    def some(Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            tx = T.get_thread_binding()
            if tx < 3:
                T.fill(Y, 0)  # not all threads

    @T.prim_func
    def scan(Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            a = T.alloc_shared((8, 8), "float32")
            T.clear(a)
            T.async_copy(Y, a)  # scan
            T.copy(a, Y)

    for function, name, shape in (
        (threads, "tx", (32,)),
        (some, "not all threads", (32,)),
        (scan, "async_copy", (8, 8)),
    ):
        with pytest.raises(Unsupported, match=name) as caught:
            run(read(function), [torch.zeros(shape)])
        assert caught.value.line.number == line_of({"tx": "thread", "async_copy": "scan"}.get(name, name))


def test_float_comparisons_with_themselves_are_refused(read):
    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(8):
                Y[i] = T.if_then_else(X[i] == X[i], X[i] - X[i], 7.0)

    with pytest.raises(Unsupported, match="itself"):
        run(read(main), [torch.zeros(8), torch.zeros(8)])


X = nodes.Var("int32", "x")
OTHER = nodes.Buffer("other", "float32", (const(4),), (), nodes.Storage("other", "shared.dyn"))


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (lambda y: store(y, X), "'x'"),
        (lambda y: store(y, const(1.0, "float32")), "index"),
        (lambda y: store(y, const(0), value=const(1)), "cast"),
        (store, "indices"),
        (lambda y: nodes.Evaluate(LINE, nodes.Call("handle", "tirx.break_loop", ())), "break_loop"),
        (lambda y: store(OTHER, const(0)), "'other'"),
        (lambda y: store(y, nodes.Binary("int32", "Add", const(1), const(1, "int64"))), "dtypes"),
        (lambda y: nodes.If(LINE, const(1), NOTHING, None), "condition"),
        (lambda y: nodes.Evaluate(LINE, nodes.Call("handle", "tl.ptx_mma", ())), "tl.ptx_mma"),
        (lambda y: store(y, const(0), value=nodes.Call("float32", "tirx.call_extern", ())), "call_extern"),
        (lambda y: store(y, const(0), value=nodes.Call("float32", "tirx.exp", (const(1),))), "tirx.exp"),
        (lambda y: store(y, const(0), value=nodes.Call("float32", "tirx.exp", ())), "tirx.exp"),
        (lambda y: store(y, const(0, "handle")), "handle"),
        (lambda y: nodes.Evaluate(LINE, nodes.Call("handle", "tl.tileop.copy", ())), "copy"),
        (lambda y: nodes.Evaluate(LINE, nodes.Call("handle", "tl.tileop.fill", (const(0), const(0)))), "fill"),
        (lambda y: nodes.Seq(LINE, (nodes.Bind(LINE, X, const(0)), nodes.Bind(LINE, X, const(1)))), "'x'"),
        (lambda y: nodes.Bind(LINE, X, const(1.0, "float32")), "dtype"),
        (lambda y: loop(nodes.Const("float32", 3.0), lambda i: NOTHING), "integer"),
        (lambda y: loop(4, lambda i: loop(i, lambda j: NOTHING, nodes.PARALLEL), nodes.PARALLEL), "differs"),
    ],
)
def test_malformed_kernels_are_refused_by_name(body, named):
    with pytest.raises(Unsupported, match=named) as caught:
        run(kernel(body), [torch.zeros(64)])
    assert caught.value.line == LINE


TILE = nodes.Buffer("a", "float32", (const(8), const(8)), (), nodes.Storage("a", "shared.dyn"))
WHOLE = nodes.Region("handle", TILE, (const(0), const(0)), (const(8), const(8)), 3)
NO, NULL = const(False, "bool"), const(0)
REDUCTION = (WHOLE, WHOLE, nodes.Text("handle", "sum"), NULL, NO)
SUM = nodes.Buffer("c", "float32", (const(8), const(8)), (), nodes.Storage("c", "local.fragment"))
WHOLE_SUM = nodes.Region("handle", SUM, (const(0), const(0)), (const(8), const(8)), 3)
PRODUCT = (WHOLE, WHOLE, WHOLE_SUM, NO, NO, const(8), const(8), const(8), NULL, NO, NULL, NULL, NULL)
NO_NUMBERS = [const(value, dtype) for value in (float("nan"), float("inf"), 0.5) for dtype in ("float32", "int32")]
NO_NUMBERS += [const(2**31), const(-1, "uint8"), const(2, "bool"), const(0.0, "bool"), const(0, "handle")]
NO_NUMBERS += [nodes.Var("int32", "free"), nodes.Text("int32", "0"), WHOLE]


def tile_operation(op, args, position, value):
    args = (*args[:position], value, *args[position + 1 :])
    call = nodes.Call("handle", f"tl.tileop.{op}", args)
    run(kernel(nodes.Evaluate(LINE, call), allocations=[TILE, SUM]), [torch.zeros(64)])


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize(
    ("op", "args", "position"),
    [*(("reduce", REDUCTION, position) for position in (3, 4))]
    + [("gemm", PRODUCT, position) for position in range(3, 13)],
)
def test_options_of_tile_operations_must_be_integers(op, args, position, value):
    with pytest.raises(Unsupported) as caught:
        tile_operation(op, args, position, value)
    assert caught.value.line == LINE


@pytest.mark.parametrize("value", [-5, 1, 7, 9, 16, 2**31 - 1])
@pytest.mark.parametrize("position", range(3, 13))
def test_what_a_product_says_must_follow_from_its_tiles(position, value):
    if value == 1 and position in (3, 4, 8, 9):  # transposed, another policy, cleared
        tile_operation("gemm", PRODUCT, position, const(value))
    else:
        with pytest.raises(Unsupported):
            tile_operation("gemm", PRODUCT, position, const(value))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *((value, "int32") for value in (2**31, 2**32 + 200, -(2**31) - 1, 0.0, float("nan"), "0", None)),
        *((-1, "uint32"), (2**32, "uint32"), (128, "int8"), (256, "uint8"), (2**63, "int64")),
        *((2**20000, "int64"), (2**20000, "float32"), (None, "float32"), (2, "bool"), (float("inf"), "bool")),
    ],
    ids=itertools.count(),
)
def test_numbers_must_fit_their_dtype(value, dtype):
    condition = nodes.Binary("bool", "EQ", const(value, dtype), const(value, dtype))
    with pytest.raises(Unsupported, match=dtype) as caught:
        run(kernel(nodes.If(LINE, condition, NOTHING, None)), [torch.zeros(64)])
    assert caught.value.line == LINE


def starve(sender):
    """Many values that are alive at once, each small enough, in a process that may have little memory."""

    def body(y):
        def inside(i):
            values = [nodes.Binary("int32", "Add", i, const(n)) for n in range(100)]
            names = [nodes.Var("int32", f"v{n}") for n in range(100)]
            binds = [nodes.Bind(LINE, var, value) for var, value in zip(names, values, strict=True)]
            return nodes.Seq(LINE, (*binds, store(y, const(0))))

        return loop(1 << 22, inside, nodes.PARALLEL)

    torch.set_num_threads(1)
    limit = psutil.Process().memory_info().vms + (400 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        run(kernel(body), [torch.zeros(64)])
    except Exception as error:
        sender.send((type(error).__name__, str(error)))
    else:
        sender.send(("nothing", ""))


def test_memory_that_the_system_refuses_is_over_budget():
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=starve, args=(sender,))
    process.start()
    assert receiver.poll(30)
    name, message = receiver.recv()
    process.join()
    assert name == "OverBudget", message
    assert "memory" in message


def test_errors_of_ours_are_not_taken_for_a_lack_of_memory(monkeypatch):
    def broken(*_):
        raise RuntimeError("The expanded size of the tensor")

    monkeypatch.setitem(run.__globals__, "prepare", broken)
    with pytest.raises(RuntimeError, match="expanded"):
        run(kernel(NOTHING), [torch.zeros(64)])


def test_views_larger_than_their_memory_are_refused():
    def body(y):
        view = nodes.Buffer("view", "float32", (const(65),), (), y.storage)
        return store(view, const(0))

    with pytest.raises(Unsupported, match="view"):
        run(kernel(body), [torch.zeros(64)])
    with pytest.raises(Unsupported, match="view"):
        run(
            kernel(
                lambda y: store(
                    dataclasses.replace(y, shape=(const(2), const(2)), strides=(const(64), const(1))),
                    const(0),
                    const(0),
                )
            ),
            [torch.zeros(64)],
        )


def test_tensors_must_fit_the_kernel():
    plain = kernel(NOTHING)
    for tensors in (
        [],
        [torch.zeros(64), torch.zeros(64)],
        [torch.zeros(63)],
        [torch.zeros(64).half()],
        [torch.zeros(64, 1)],
        [torch.zeros(128)[::2]],
    ):
        with pytest.raises(ValueError, match=r"Y|parameters"):
            run(plain, tensors)

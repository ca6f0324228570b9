"""A message names the student's line and buffer, also in what TileLang makes of several statements of its own."""

import tilelang
import tilelang.language as T
import torch

from grader import ir
from grader.capture.tracing import trace
from grader.catalog import Group, Kernel, Parameter, Role, Shape
from grader.ir import nodes
from grader.simulator import run

N = 64
SHAPE = Shape("one", {"N": N}, Group.TILES)
KERNEL = Kernel(
    "work", ("N",), (Parameter("A", "float32", ("N", "N")), Parameter("B", "float32", ("N",), Role.OUT)), (SHAPE,)
)


@T.macro
def twice(tile):
    for i, j in T.Parallel(N, N):
        tile[i, j] = tile[i, j] * 2.0  # in the student's macro


@tilelang.jit
def work(N):
    @T.prim_func
    def main(A: T.Tensor((N, N), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            shared = T.alloc_shared((N, N), "float32")
            tile = T.alloc_fragment((N, N), "float32")
            top = T.alloc_fragment((N,), "float32")
            start = T.alloc_var("float32", init=1.0)  # start
            T.copy(A, shared)  # copy
            T.copy(shared, tile)  # to registers
            T.reduce_max(tile, top, dim=1)  # max
            T.reduce_sum(shared, top, dim=1)  # sum
            T.cumsum(tile, dim=1)  # cumsum
            T.cumsum(shared, dim=0)  # cumsum in place
            twice(tile)
            for i in T.Parallel(N):
                top[i] = top[i] + tile[i, N - 1] + start  # add
            T.copy(top, B)  # back

    return main


def lines(kernel: ir.Kernel) -> list[tuple[int, str]]:
    """The lines of the statements that do something, each with the first buffer that it names."""
    found = []
    for part in nodes.walk(kernel.body):
        if isinstance(part, nodes.Store | nodes.Evaluate):
            assert part.line.file == __file__
            names = [p.buffer.name for p in nodes.walk(part) if isinstance(p, nodes.Region | nodes.Store)]
            found.append((part.line.number, names[0]))
    return found


def test_statements_of_macros_have_the_callers_line_and_names(line_of):
    before = work.get_tir(N=N)  # TileLang keeps this one
    kernel = ir.read(trace(work, KERNEL, SHAPE, {__file__}.__contains__).ir)
    want = [
        ("start", "start"),
        ("copy", "A"),
        ("to registers", "shared"),
        ("max", "tile"),
        ("sum", "shared"),
        ("sum", "shared_frag"),
        ("cumsum", "tile"),
        ("cumsum", "scan_smem"),
        ("cumsum", "scan_smem"),
        ("cumsum in place", "shared"),
        ("in the student's macro", "tile"),
        ("add", "top"),
        ("back", "top"),
    ]
    assert lines(kernel) == [(line_of(marker), name) for marker, name in want]
    assert work.get_tir(N=N) is before


def test_tracing_leaves_tilelang_as_it_was():
    from tilelang.language.eager.builder import Builder
    from tvm.script.ir_builder import IRBuilder

    before = dict(vars(Builder)), IRBuilder.name
    trace(work, KERNEL, SHAPE, {__file__}.__contains__)
    trace(lambda N: 1 // 0, KERNEL, SHAPE, {__file__}.__contains__)
    assert (dict(vars(Builder)), IRBuilder.name) == before


@tilelang.jit
def unwritten(N):
    @T.prim_func
    def main(A: T.Tensor((N, N), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            tile = T.alloc_fragment((N, N), "float32")
            top = T.alloc_fragment((N,), "float32")
            T.reduce_max(tile, top, dim=1)  # of nothing
            T.copy(top, B)

    return main


def test_a_fault_in_a_macro_is_at_the_students_line(line_of):
    kernel = ir.read(trace(unwritten, KERNEL, SHAPE, {__file__}.__contains__).ir)
    fault = run(kernel, [torch.randn(N, N), torch.zeros(N)]).faults[0]
    assert (fault.kind, fault.buffer, fault.line.number) == ("uninitialised_read", "tile", line_of("of nothing"))

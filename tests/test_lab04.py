"""Lab 04: wrong epilogues are seen, right ones pass whatever their form, and needless bytes are counted."""

import math
from dataclasses import replace

import pytest
import tilelang
import tilelang.language as T
import torch
from kernels import json_of

from grader import catalog
from grader.capture.format import Capture, Trace
from grader.catalog import Group, Shape
from grader.judge import allowance, seeds, tolerance
from grader.judge.comparison import compare
from grader.judge.lab04_fused_epilogue import GEMM_BIAS_GELU as TASK
from grader.judge.submission import Submission
from grader.verdict import Outcome
from grader.verdict.traffic import BufferTraffic, Traffic

LAB, NAME = "lab04_fused_epilogue", "gemm_bias_gelu"
V1 = math.sqrt(2 / math.pi)
C1 = -2 * math.log2(math.e) * V1
C3 = 0.044715 * C1

PASSED, FAILED = Outcome.PASSED, Outcome.FAILED


def by_tanh(z):
    return 0.5 * z * (1 + T.tanh(V1 * (z + 0.044715 * z * z * z)))


def by_exp2(z):
    return z * T.fast_rcp(1 + T.exp2(z * (C1 + C3 * z * z)))


def by_exp(z):
    return z / (1 + T.exp(-2 * V1 * (z + 0.044715 * z * z * z)))


EPILOGUES = {
    "exp2": lambda c, row, column: by_exp2(c + column),
    "quotient": lambda c, row, column: by_exp(c + column),
    "tanh": lambda c, row, column: by_tanh(c + column),
    "rows": lambda c, row, column: by_tanh(c + row),
    "gelu first": lambda c, row, column: by_tanh(c) + column,
    "no bias": lambda c, row, column: by_tanh(c),
    "no gelu": lambda c, row, column: c + column,
    "relu": lambda c, row, column: T.max(c + column, 0.0),
    "erf": lambda c, row, column: 0.5 * (c + column) * (1 + T.erf((c + column) * math.sqrt(0.5))),
    "rounded": lambda c, row, column: by_tanh(T.cast(T.cast(c + column, "float16"), "float32")),
    "no cube": lambda c, row, column: 0.5 * (c + column) * (1 + T.tanh(V1 * (c + column))),
}


@tilelang.jit(out_idx=[-1])
def gemm_bias_gelu(M, N, K, form="exp2", block=64, accumulator="float32", twice=False):
    epilogue = EPILOGUES[form]

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        bias: T.Tensor((N,), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            a = T.alloc_shared((block, 64), "float16")
            b = T.alloc_shared((64, block), "float16")
            columns = T.alloc_shared((block,), "float16")
            c = T.alloc_fragment((block, block), accumulator)
            T.copy(bias[bx * block], columns)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
                T.copy(A[by * block, k * 64], a)
                T.copy(B[k * 64, bx * block], b)
                T.gemm(a, b, c)
            if twice:
                T.copy(c, C[by * block, bx * block])
            for i, j in T.Parallel(block, block):
                c[i, j] = epilogue(c[i, j], columns[i], columns[j])
            T.copy(c, C[by * block, bx * block])

    return main


SHAPES = (
    Shape("tiles", {"M": 128, "N": 192, "K": 64}, Group.TILES),
    Shape("long K", {"M": 64, "N": 64, "K": 512}, Group.TILES),
    Shape("tail", {"M": 40, "N": 72, "K": 56}, Group.TAILS),
)


def submission(shapes: tuple[Shape, ...] = SHAPES, **arguments) -> Submission:
    """A submission of the lab with few and small shapes."""
    lab = catalog.find(LAB)
    lab = replace(lab, kernels=(replace(lab.kernel(NAME), shapes=shapes),))
    traces = tuple(
        Trace(NAME, shape.name, ir=json_of(gemm_bias_gelu.get_tir(**shape.sizes, **arguments))) for shape in shapes
    )
    return Submission(Capture(lab.id, lab.version, traces, sandbox="test"), lab, None, "test")


@pytest.mark.parametrize("form", ["exp2", "quotient", "tanh"])
def test_any_form_of_the_formula_passes(form):
    judged = submission(form=form)
    assert judged.correct(NAME, Group.TILES).outcome is PASSED
    assert judged.correct(NAME, Group.TAILS).outcome is PASSED
    assert judged.clean(NAME).outcome is PASSED
    assert judged.lean(NAME).outcome is PASSED


@pytest.mark.parametrize("form", ["rows", "gelu first", "no bias", "no gelu", "relu", "erf", "rounded", "no cube"])
def test_wrong_epilogues_fail(form):
    judged = submission(form=form)
    assert judged.correct(NAME, Group.TILES).outcome is FAILED
    assert judged.correct(NAME, Group.TAILS).outcome is FAILED
    found = judged.lean(NAME)
    assert found.outcome is FAILED
    assert "once the kernel is right" in found.findings[0].message


def test_a_half_precision_accumulator_fails():
    assert submission(form="tanh", accumulator="float16").correct(NAME, Group.TILES).outcome is FAILED


def test_a_product_that_is_stored_before_is_right_and_not_lean():
    judged = submission(twice=True)
    assert judged.correct(NAME, Group.TILES).outcome is PASSED
    assert judged.clean(NAME).outcome is PASSED
    found = judged.lean(NAME)
    assert found.outcome is FAILED
    (finding,) = found.findings
    size = 2 * 128 * 192
    assert f"writes {2 * size:,} bytes, and may write {size:,}" in finding.message
    assert f"C: {2 * size:,} bytes written, each 2 times" in finding.evidence
    assert "reads" not in finding.message


def test_tiles_that_share_too_little_are_not_lean():
    found = submission(block=32).lean(NAME)
    assert found.outcome is FAILED
    read = 2 * 128 * 64 * 6  # A, once for each 32 of 192 columns
    assert f"A: {read:,} bytes read, each 6 times" in found.findings[0].evidence


def test_a_lean_kernel_shows_its_figures():
    first, _second = submission().lean(NAME).findings
    read = 2 * (128 * 64 * 3 + 64 * 192 * 2 + 192 * 2)
    assert first.message == f"{read:,} bytes read (at most {read:,}), 49,152 written (at most 49,152)."
    assert first.evidence == ("counted at M = 128, N = 192, K = 64",)


def test_a_hidden_shapes_bytes_are_not_told():
    found = submission((replace(SHAPES[0], hidden=True),), twice=True).lean(NAME)
    assert found.outcome is FAILED
    assert "official run" in found.findings[0].message
    assert not any(number in str(found.findings) for number in ("128", "192", "49,152", "98,304"))
    assert submission((replace(SHAPES[0], hidden=True),)).lean(NAME).findings == ()


def test_a_task_without_an_allowance_has_no_such_question():
    judged = Submission(Capture("lab02_matmul", 1, (), sandbox="test"), catalog.find("lab02_matmul"), None, "s")
    with pytest.raises(TypeError, match="allows no number of bytes"):
        judged.lean("matmul")


def test_what_is_read_and_written_too_much_is_told_of_each_parameter():
    buffers = (
        BufferTraffic("X", "global", 100, 300, 0, 100, 0),
        BufferTraffic("Y", "global", 100, 0, 0, 0, 0),
        BufferTraffic("tile", "shared", 10, 900, 900),
        BufferTraffic("Z", "global", 100, 0, 150, 0, 100),
    )
    traffic = Traffic(buffers, (), (), 1, 32, 10, 10, 0)
    limits = {"rule": "the rule", "advice": "the advice"}
    assert allowance.exceeded("k", traffic, allowance.Allowance(300, 150, **limits)) is None
    finding = allowance.exceeded("k", traffic, allowance.Allowance(299, 149, **limits))
    assert "reads 300 bytes, and may read 299, and writes 150 bytes, and may write 149" in finding.message
    assert finding.advice == "the advice"
    assert finding.evidence == (
        "X: 300 bytes read, each 3 times",
        "Y: not touched",
        "Z: 150 bytes written, each 1.5 times",
        "the rule",
    )


# What the text says of digits


def drawn(family: str):
    shape = Shape("x", {"M": 64, "N": 64, "K": 256}, Group.TILES)
    inputs = TASK.inputs(family, shape, seeds.generator("test", family))
    return inputs, TASK.reference(inputs)


@pytest.mark.parametrize("family", ["normal", "one-hot", "wide", "bias"])
def test_eager_torch_rounds_between_its_kernels_and_that_is_seen(family):
    inputs, reference = drawn(family)
    output = torch.empty(reference.shape, dtype=torch.float16)
    eager = TASK.peer(None).prepare(inputs, output)()
    assert compare("C", eager, reference, TASK.bound(inputs, reference)) is not None


def test_the_hardwares_tanh_is_too_coarse():
    """tanh.approx is off by up to 2^-11 of the value (PTX ISA): too much for negative z."""
    z = torch.linspace(-4, 4, 10_001).double()
    exact = torch.nn.functional.gelu(z, approximate="tanh")
    coarse = torch.tanh(V1 * (z + 0.044715 * z**3)) * (1 - 2.0**-11)
    bound = tolerance.gelu(z, torch.zeros_like(z), torch.float16)
    wrong = ((0.5 * z * (1 + coarse)).half().double() - exact).abs() > bound
    assert wrong[z < -1].double().mean() > 0.9


@pytest.mark.parametrize(("low", "high", "seen"), [(-5.5, -1.0, True), (0.0, 8.0, False)])
def test_both_gelus_differ_visibly_for_negative_z_only(low, high, seen):
    z = torch.linspace(low, high, 10_001).double()
    exact = torch.nn.functional.gelu(z, approximate="tanh")
    other = torch.nn.functional.gelu(z)
    assert float((other - exact).abs().max()) < 0.0005
    error = (other - exact).abs() > tolerance.UNIT[torch.float16] * exact.abs()
    assert bool(error.any()) == seen

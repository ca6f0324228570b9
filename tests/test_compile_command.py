"""``tilelab compile``: from a notebook to a table, with nvcc and without."""

import json
from dataclasses import replace

import pytest
from cells import MATMUL
from kernels import json_of, matmul
from typer.testing import CliRunner

from grader.capture.format import Capture, Trace, TraceError
from grader.catalog import find
from grader.cli.app import app
from grader.gpu import resources
from grader.gpu.hardware import look_at_compiler
from grader.judge.compiled import compile_capture
from grader.verdict import Unusable
from grader.verdict.compilation import GlobalAccess

needs_nvcc = pytest.mark.skipif(look_at_compiler() is None, reason="not assessed: needs nvcc")


MATMUL_KERNEL = find("lab02_matmul").kernel("matmul")


def capture_of(trace: Trace) -> Capture:
    return Capture("lab02_matmul", 1, (trace,))


def traced(shape: str) -> Capture:
    """A capture of the right product at one shape, made in this process."""
    function = matmul.get_tir(**MATMUL_KERNEL.shape(shape).sizes)
    return capture_of(Trace("matmul", shape, ir=json_of(function)))


def run(*arguments: object, status: int = 0) -> str:
    """The command's output; it must end with ``status``. Unusable input is raised, as ``main`` wants it."""
    result = CliRunner().invoke(app, ["compile", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == status, result.output[:2000]
    return result.stdout


@pytest.fixture
def no_nvcc(monkeypatch) -> None:
    monkeypatch.setattr(resources, "look_at_compiler", lambda: None)


@pytest.mark.usefixtures("no_nvcc")
def test_without_nvcc_all_but_registers_is_said(notebook):
    path = notebook("lab02_matmul", MATMUL.replace("block_K=32", "block_K=64"))
    arguments = ("--arch", "sm_75", "--arch", "sm_90a", "--shape", "square", "--json")
    small, hopper = json.loads(run(path, *arguments, status=1))
    # Three stages of A (128×64) and B (64×128) in float16.
    assert small["shared"] == hopper["shared"] == 3 * 2 * 128 * 64 * 2
    assert not small["compiles"]
    assert small["findings"][0]["message"] == "It needs 96.0 KiB of shared memory a block; Turing has 64 KiB."
    assert small["blocks"] is None
    assert hopper["compiles"]
    assert hopper["landmarks"]["wgmma"] >= 1
    assert hopper["blocks"] == 2
    assert hopper["machine_code"] is None
    assert "no nvcc" in hopper["not_assessed"]
    assert "wgmma" in hopper["source"]


@needs_nvcc
def test_with_nvcc_registers_and_spills_are_said():
    (row,) = compile_capture(traced("square"), MATMUL_KERNEL, [MATMUL_KERNEL.shape("square")], ["sm_80"])
    assert row.compiles
    assert 128 <= row.machine_code.registers <= 255  # the accumulator alone has 128 a thread
    assert row.machine_code.spills == 0
    assert row.limits == ("registers",)
    assert GlobalAccess("C", writes=True, bits=32, places=1) in row.accesses


@pytest.mark.usefixtures("no_nvcc")
def test_the_table_names_the_line_of_an_error(notebook):
    text = run(notebook("lab02_matmul", MATMUL.replace("threads=128", "threads=96")), "--arch", "sm_80", status=1)
    assert "✗ no" in text
    assert "can't share its 128×128 tile among 3 warps" in text
    assert "line 13: T.gemm(A_tile, B_tile, C_tile)" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--arch", "sm_42"), "no architecture 'sm_42'"),
        (("--shape", "round"), "no shape 'round'"),
        (("--kernel", "softmax"), "Which kernel"),
    ],
)
def test_what_is_unknown_is_said_before_anything_is_run(notebook, arguments, words):
    with pytest.raises(Unusable, match=words):
        run(notebook("lab02_matmul", MATMUL), *arguments)


def test_a_kernel_that_is_not_admitted_or_not_there_is_not_compiled():
    square, wide = MATMUL_KERNEL.shape("square"), MATMUL_KERNEL.shape("wide")
    other_shape = replace(traced("square").traces[0], shape="wide")
    with pytest.raises(Unusable, match="has shape"):
        compile_capture(capture_of(other_shape), MATMUL_KERNEL, [wide], ["sm_80"])
    with pytest.raises(Unusable, match="was not captured"):
        compile_capture(traced("square"), MATMUL_KERNEL, [wide], ["sm_80"])
    failed = Trace("matmul", "square", error=TraceError("ValueError", "no such tile"))
    with pytest.raises(Unusable, match=r"can't be traced .* ValueError: no such tile"):
        compile_capture(capture_of(failed), MATMUL_KERNEL, [square], ["sm_80"])

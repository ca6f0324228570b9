"""What Python, TVM or torch say of a kernel that can't be traced comes with what to try."""

import itertools
import linecache
import math

import pytest
import tilelang
import tilelang.language as T
import torch
from cells import VECTOR_ADD

from grader import catalog
from grader.capture.tracing import trace
from grader.judge.untraced import advice_on

(KERNEL,) = catalog.find("lab01_vector_add").kernels
SUM = "C[index] = A[index] + B[index]"
_numbers = itertools.count(1)


def said_of(old, new):
    """The advice on lab 01's kernel with a piece of its text changed."""
    assert old in VECTOR_ADD
    text = VECTOR_ADD.replace(old, new)
    file = f"<untraced {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = {"T": T, "math": math, "tilelang": tilelang, "torch": torch}
    exec(compile(text, file, "exec"), namespace)
    traced = trace(namespace["vector_add"], KERNEL, KERNEL.shapes[0], lambda name: name == file)
    assert traced.error is not None
    return advice_on(traced.error.message)


@pytest.mark.parametrize(
    ("old", "new", "advice"),
    [
        (SUM, "C[index] = math.exp(A[index])", "Use TileLang's functions"),
        (SUM, "C[index] = torch.relu(A[index])", "PyTorch's functions take tensors only"),
        (SUM, "C[index] = max(A[index], B[index])", "T.max"),
        (SUM, "a = A[index] + 1\n                    C[index] = a**2", "x * x"),
        (SUM, "C[index] = A + B", "Name single elements"),
        (SUM, "C[index] = A[index] + B", "Name single elements"),
        ("T.Parallel(block_N)", "reversed(range(T.ceildiv(block_N, 1)))", "T.serial"),
        (SUM, "C[index] = A[index] + D[index]", ""),
    ],
)
def test_a_kernel_that_cannot_be_traced_gets_advice(old, new, advice):
    said = said_of(old, new)
    assert advice in said
    assert bool(said) == bool(advice)

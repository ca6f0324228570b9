"""What the simulator's tests share: kernels are traced by TileLang and read, as a submission is."""

import functools

import pytest
import torch

from grader import ir
from grader.simulator import Run, run


def _read(function) -> ir.Kernel:
    from tilelang import tvm  # noqa: F401 (must come first)
    from tvm.ir import save_json

    return ir.read(save_json(function))


@pytest.fixture(scope="session")
def read():
    """read(prim_func) -> grader.ir.Kernel"""
    return functools.cache(_read)


@pytest.fixture(scope="session")
def simulate():
    """simulate(prim_func or Kernel, *tensors, **options) -> Run, which must have no faults unless ``faulty``."""

    def simulate(kernel, *tensors: torch.Tensor, faulty: bool = False, **options) -> Run:
        kernel = kernel if isinstance(kernel, ir.Kernel) else _read(kernel)
        result = run(kernel, tensors, **options)
        assert faulty or not result.faults, result.faults
        return result

    return simulate

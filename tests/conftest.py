"""Settings of the test run, and notebooks for tests."""

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from grader.gpu import hardware

ROOT = Path(__file__).parents[1]

# The secret of official runs belongs to the test run, not to whoever runs it.
os.environ["TILELAB_SECRET"] = str(ROOT / "build" / "test-secret")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if hardware.judging_card() is not None:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="not assessed: needs a CUDA device"))


IMPORTS = "import tilelang\nimport tilelang.language as T\nfrom grader import check"

VECTOR_ADD = """
@tilelang.jit(out_idx=[-1])
def vector_add(N, block_N=1024, threads=256):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            for i in T.Parallel(block_N):
                index = bx * block_N + i
                if index < N:
                    C[index] = A[index] + B[index]

    return main
""".strip()

MATMUL = """
@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, block_M=128, block_N=128, block_K=32, num_stages=3, threads=128):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float16")
            B_tile = T.alloc_shared((block_K, block_N), "float16")
            C_tile = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_tile)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, C_tile)
            T.copy(C_tile, C[by * block_M, bx * block_N])

    return main
""".strip()


@pytest.fixture
def notebook(tmp_path: Path) -> Callable[..., Path]:
    """Writes a notebook of code cells: ``notebook("lab02_matmul", cell, …)``; the imports come first."""

    def write(name: str, *cells: str, imports: bool = True) -> Path:
        sources = [IMPORTS, *cells] if imports else list(cells)
        path = tmp_path / f"{name}.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
        return path

    return write

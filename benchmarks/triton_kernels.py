"""The kernels of ``tile_kernels.py`` in Triton: the same tiles, the same steps, the same dtypes.

Needs Triton. Each function returns a launch: call it with the tensors to run the kernel once.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

Launch = Callable[..., None]


@triton.jit
def _matmul(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    left = a + rows[:, None] * k + depth[None, :]
    right = b + depth[:, None] * n + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, k, BLOCK_K):
        sums = tl.dot(tl.load(left), tl.load(right), sums)
        left += BLOCK_K
        right += BLOCK_K * n
    tl.store(c + rows[:, None] * n + columns[None, :], sums.to(tl.float16))


def matmul(m: int, n: int, k: int, block_m: int, block_n: int, block_k: int) -> Launch:
    def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        _matmul[(n // block_n, m // block_m)](a, b, c, m, n, k, block_m, block_n, block_k)

    return launch


@triton.jit
def _softmax(x, y, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.load(x + at)
    row = tl.exp(row - tl.max(row, axis=0))
    tl.store(y + at, row / tl.sum(row, axis=0))


def softmax(rows: int, columns: int) -> Launch:
    def launch(x: torch.Tensor, y: torch.Tensor) -> None:
        _softmax[(rows,)](x, y, columns)

    return launch


@triton.jit
def _flash_attention(
    q, k, v, out, scale, length, heads, DEPTH: tl.constexpr, BLOCK: tl.constexpr, CAUSAL: tl.constexpr
):
    head = (tl.program_id(2) * heads + tl.program_id(1)) * length * DEPTH
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK)
    depth = tl.arange(0, DEPTH)
    query = tl.load(q + head + rows[:, None] * DEPTH + depth[None, :])
    key = k + head + columns[None, :] * DEPTH + depth[:, None]
    value = v + head + columns[:, None] * DEPTH + depth[None, :]
    sums = tl.zeros((BLOCK, DEPTH), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    end = (tl.program_id(0) + 1) * BLOCK if CAUSAL else length
    for start in range(0, end, BLOCK):
        if CAUSAL:
            scores = tl.where(rows[:, None] >= start + columns[None, :], 0.0, float("-inf"))
        else:
            scores = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        scores = tl.dot(query, tl.load(key + start * DEPTH), scores)
        higher = tl.maximum(top, tl.max(scores, axis=1))
        rescale = tl.exp2(top * scale - higher * scale)
        scores = tl.exp2(scores * scale - higher[:, None] * scale)
        total = total * rescale + tl.sum(scores, axis=1)
        sums = sums * rescale[:, None]
        sums = tl.dot(scores.to(tl.float16), tl.load(value + start * DEPTH), sums)
        top = higher
    sums = sums / total[:, None]
    tl.store(out + head + rows[:, None] * DEPTH + depth[None, :], sums.to(tl.float16))


def flash_attention(batch: int, heads: int, length: int, depth: int, block: int, causal: bool) -> Launch:
    scale = depth**-0.5 * 1.4426950408889634  # log2(e): the powers are of 2

    def launch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        grid = (length // block, heads, batch)
        _flash_attention[grid](q, k, v, out, scale, length, heads, depth, block, causal)

    return launch

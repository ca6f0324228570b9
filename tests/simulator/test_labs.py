"""Whole kernels, as in the labs, against torch in double precision."""

import tilelang.language as T
import torch

NAN = float("nan")


def vector_add(n: int, block: int = 256):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                if bx * block + i < n:
                    C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return main


def matmul(m: int, n: int, k: int, dtype: str = "float16", blocks: tuple[int, int, int] = (128, 128, 32)):
    bm, bn, bk = blocks

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), "float32")
            T.use_swizzle(10)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=3):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return main


def softmax(rows: int, columns: int, per_block: int = 4):
    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(rows, per_block), threads=128) as bx:
            x = T.alloc_fragment((per_block, columns), "float32")
            top = T.alloc_fragment((per_block,), "float32")
            total = T.alloc_fragment((per_block,), "float32")
            T.copy(X[bx * per_block, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(per_block, columns):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(per_block, columns):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * per_block, 0])

    return main


def attention(batch: int, heads: int, length: int, depth: int, causal: bool, block: int = 64):
    scale = depth**-0.5 * 1.44269504
    shape = (batch, length, heads, depth)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        Out: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(T.ceildiv(length, block), heads, batch, threads=128) as (bx, by, bz):
            q = T.alloc_shared((block, depth), "float16")
            k = T.alloc_shared((block, depth), "float16")
            v = T.alloc_shared((block, depth), "float16")
            s = T.alloc_fragment((block, block), "float32")
            p = T.alloc_fragment((block, block), "float16")
            o = T.alloc_fragment((block, depth), "float32")
            top = T.alloc_fragment((block,), "float32")
            before = T.alloc_fragment((block,), "float32")
            factor = T.alloc_fragment((block,), "float32")
            part = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.copy(Q[bz, bx * block : (bx + 1) * block, by, :], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            tiles = T.min(bx + 1, T.ceildiv(length, block)) if causal else T.ceildiv(length, block)
            for n in T.Pipelined(tiles, num_stages=1):
                T.copy(K[bz, n * block : (n + 1) * block, by, :], k)
                if causal:
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.if_then_else(bx * block + i >= n * block + j, 0, -T.infinity("float32"))
                else:
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.if_then_else(n * block + j >= length, -T.infinity("float32"), 0)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(V[bz, n * block : (n + 1) * block, by, :], v)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i in T.Parallel(block):
                    factor[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(block, block):
                    s[i, j] = T.exp2(s[i, j] * scale - top[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(block):
                    total[i] = total[i] * factor[i] + part[i]
                T.copy(s, p)
                for i, j in T.Parallel(block, depth):
                    o[i, j] *= factor[i]
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block, depth):
                o[i, j] /= total[i]
            T.copy(o, Out[bz, bx * block : (bx + 1) * block, by, :])

    return main


def test_vector_add(simulate):
    for n in (1, 255, 256, 1000, 65536):
        a, b, c = torch.randn(n), torch.randn(n), torch.full((n,), NAN)
        result = simulate(vector_add(n), a, b, c)
        assert torch.equal(c, a + b)
        assert bool(result.written[2].all())
        assert not result.written[0].any()
        assert result.read == (True, True, False)
        assert (result.global_bytes_read, result.global_bytes_written) == (8 * n, 4 * n)
        assert result.guarded == 0


def test_matmul(simulate):
    for m, n, k in ((512, 512, 512), (100, 70, 90), (1, 1, 1), (129, 257, 33)):
        a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
        c = torch.full((m, n), NAN).half()
        result = simulate(matmul(m, n, k), a, b, c)
        exact = a.double() @ b.double()
        assert ((c.double() - exact).abs() <= 1e-3 * exact.abs() + 1e-3 * k**0.5).all()
        assert bool(result.written[2].all())
        assert (result.guarded == 0) == (m % 128 == n % 128 == k % 32 == 0)


def test_matmul_counts_what_it_moves(simulate):
    a, b, c = torch.ones(256, 128).half(), torch.ones(128, 384).half(), torch.full((256, 384), NAN).half()
    result = simulate(matmul(256, 384, 128), a, b, c)
    blocks = 2 * 3
    assert result.global_bytes_read == blocks * (128 * 128 + 128 * 128) * 2
    assert result.global_bytes_written == 256 * 384 * 2
    assert result.operations["gemm"] == 2 * 256 * 384 * 128


def test_softmax(simulate):
    x, y = 10 * torch.randn(13, 300), torch.full((13, 300), NAN)
    result = simulate(softmax(13, 300), x, y)
    assert torch.allclose(y.double(), x.double().softmax(1), atol=1e-6)
    assert bool(result.written[1].all())


def test_attention(simulate):
    for causal in (False, True):
        q, k, v = (torch.randn(2, 128, 2, 64).half() for _ in range(3))
        out = torch.full_like(q, NAN)
        result = simulate(attention(2, 2, 128, 64, causal), q, k, v, out)
        exact = torch.nn.functional.scaled_dot_product_attention(
            *(x.double().transpose(1, 2) for x in (q, k, v)), is_causal=causal
        ).transpose(1, 2)
        assert (out.double() - exact).abs().max() < 4e-3
        assert bool(result.written[3].all())


def test_a_run_repeats_bit_for_bit_and_changes_no_global_state(simulate):
    state = (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.random.get_rng_state(),
    )
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        a, b, c = torch.randn(200, 100).half(), torch.randn(100, 90).half(), torch.zeros(200, 90).half()
        result = simulate(matmul(200, 90, 100), a, b, c)
        results.append((c, result.steps, result.guarded, result.global_bytes_read))
    torch.random.set_rng_state(state[3])
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:]
    assert state[:3] == (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())

"""Whole kernels, as in the labs, against torch in double precision."""

import torch
from simulated_kernels import attention, matmul, softmax, vector_add

from grader.verdict.traffic import Kind

NAN = float("nan")


def test_vector_add(simulate):
    for n in (1, 255, 256, 1000, 65536):
        a, b, c = torch.randn(n), torch.randn(n), torch.full((n,), NAN)
        result = simulate(vector_add(n), a, b, c)
        assert torch.equal(c, a + b)
        assert bool(result.written[2].all())
        assert not result.written[0].any()
        assert result.read == (True, True, False)
        assert (result.traffic.read(), result.traffic.written()) == (8 * n, 4 * n)
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
    assert result.traffic.read() == blocks * (128 * 128 + 128 * 128) * 2
    assert result.traffic.written() == 256 * 384 * 2
    assert result.traffic.count(Kind.GEMM) == 2 * 256 * 384 * 128


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
        results.append((c, result.steps, result.guarded, result.traffic))
    torch.random.set_rng_state(state[3])
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:]
    assert state[:3] == (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())

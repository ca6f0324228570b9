"""How wrong a right kernel can be. Derived from types, reduction length and magnitude, never chosen.

Notation: u is the unit roundoff of a type (half the spacing of numbers just above 1).
"""

import math

import torch

#: Unit roundoff, and half the spacing of subnormal numbers, by dtype.
UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
UNDERFLOW = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134, torch.float32: 2.0**-150}


def rounded(exact: torch.Tensor, error: torch.Tensor | float, dtype: torch.dtype) -> torch.Tensor:
    """The bound after rounding ``exact`` ± ``error`` to ``dtype``: |fl(x) − x| ≤ u |x| + underflow."""
    return error + UNIT[dtype] * (exact.abs() + error) + UNDERFLOW[dtype]


def accumulated(magnitude: torch.Tensor, terms: int) -> torch.Tensor:
    """The bound on a sum of ``terms`` exact products accumulated in fp32, in any order.

    ``magnitude`` is the sum of the terms' absolute values. Rounding errors of a long sum are close to independent:
    their sum stays within λ √n u Σ|aᵢbᵢ| but for a probability of 2 exp(−λ²/2) an element (Higham and Mary, "A
    new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4). λ = 8
    leaves 2.5e-14. Tensor cores truncate where IEEE arithmetic rounds, so u is 2^-23 here, twice fp32's.
    """
    confidence = 8.0
    return confidence * math.sqrt(terms) * 2.0**-23 * magnitude


#: The most by which CUDA's expf, exp2f, tanhf and a division compiled for speed are off, in units in the last
#: place (CUDA Programming Guide, appendix "Mathematical Functions", tables of maximum errors). One such unit is
#: at most 2u of the value.
FUNCTION_ULPS = 2
_U = UNIT[torch.float32]
_FUNCTION = FUNCTION_ULPS * 2 * _U
#: What the functions above may flush to zero.
_FLUSHED = 2.0**-126
#: The shortest tile of an online softmax, if no other is told: the depth of a tensor core's product of halves.
_TILE = 16


def exponentials(scores: torch.Tensor, error: torch.Tensor | float, tile: int = _TILE) -> torch.Tensor:
    """The relative error of exp(sⱼ − m) in fp32, for ``scores`` of a row (last dimension) known to ± ``error``.

    Whatever m is, it is the same for the row. In the form exp2(s log₂e − m log₂e) of scaled scores, which is the
    least exact one, the scaling, the products, their difference and log₂e itself are off by u(|s| + |m|) each at
    most, and |m| is at most the largest |s| of the row; an error d of the exponent is a factor of exp(d).

    An online softmax multiplies what it has so far by exp(m − m'), once for each ``tile`` scores or more. With
    fused multiply-adds one of the two products is rounded and the other isn't: u|m| each time, even if m = m'. The
    differences and log₂e add u|m − m'|, and as m only rises, all of these together at most twice the largest |s|.
    Where a score is −∞, exp is 0 exactly.
    """
    finite = torch.isfinite(scores)
    size = torch.where(finite, scores.abs(), 0.0)
    largest = size.amax(-1, keepdim=True)
    rescalings = math.ceil(scores.shape[-1] / tile)
    exponent = error + 4 * _U * (size + largest) + (rescalings + 4) * _U * largest
    factors = (1 + rescalings) * math.log1p(_FUNCTION) + rescalings * math.log1p(_U)
    return torch.where(finite, torch.expm1(exponent + factors), 0.0)


def _divisor(weights: torch.Tensor, each: torch.Tensor) -> torch.Tensor:
    """The relative error of the sum that softmax divides by, for exact ``weights`` and their relative errors.

    Its terms are positive, and add up to 1 after division: the error is at most the weighted mean of theirs, and
    that of the summation.
    """
    total = (weights * each).sum(-1, keepdim=True) + accumulated(torch.ones(()), weights.shape[-1])
    if not (total < 1).all():
        raise ValueError("scores so large that fp32 knows nothing of their softmax")
    return total


def quotient(exact: torch.Tensor) -> torch.Tensor:
    """The bound on a quotient of two exact numbers in fp32, also by way of the reciprocal (rounded once more)."""
    return rounded(exact, _FUNCTION * exact.abs() + _FLUSHED, torch.float32)


def standardised(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The bound on (x − m) / √(v + ε) in fp32: mean m and variance v of each row of an exact float64 ``x``.

    The mean is off by at most d: its sum's bound, and a division. Then each difference is off by e = d + u(|x − m|
    + d), its square by 2|x − m| e + e² and a rounding, and v by the mean of these, the bound of its own sum, and a
    division. An error of v + ε by a fraction r makes one of 1/√(1 − r) − 1 in the root's reciprocal.
    """
    terms = x.shape[-1]
    mean = x.mean(-1, keepdim=True)
    off = accumulated(x.abs().sum(-1, keepdim=True), terms) / terms
    off = off + _FUNCTION * (mean.abs() + off)
    centred = (x - mean).abs()
    each = off + _U * (centred + off)
    largest = (centred + each) ** 2
    squares = (2 * centred * each + each**2 + _U * largest).mean(-1, keepdim=True)
    variance = (centred**2).mean(-1, keepdim=True)
    spread = squares + accumulated(largest.mean(-1, keepdim=True), terms)
    spread = spread + (_FUNCTION + _U) * (variance + epsilon + spread)
    fraction = spread / (variance + epsilon)
    if not (fraction < 1).all():
        raise ValueError("rows whose variance fp32 knows nothing of")
    root = 1 / (variance + epsilon).sqrt()
    # A root and a division, or a reciprocal root and a product.
    factor = (1 - fraction).rsqrt() * (1 + _FUNCTION) ** 2
    return rounded(centred * root, root * (centred * (factor - 1) + each * factor) + _FLUSHED, torch.float32)


def softmax(scores: torch.Tensor, dtype: torch.dtype, tile: int = _TILE) -> torch.Tensor:
    """The bound on softmax over the last dimension of exact float64 ``scores``, in fp32, rounded to ``dtype``.

    It may be computed online, by tiles of ``tile`` columns or more.
    """
    weights = scores.softmax(-1)
    each = exponentials(scores, 0.0, tile)
    # Of a quotient whose parts are off by a and b, relative to them: (1 + a)/(1 − b) − 1.
    quotient = (1 + each) * (1 + _FUNCTION) / (1 - _divisor(weights, each)) - 1
    return rounded(weights, weights * quotient + _FLUSHED, dtype)


def attention(scores: torch.Tensor, error: torch.Tensor, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The bound on softmax(scores) @ values, with fp32 sums and ``dtype`` for weights and output.

    ``scores`` (…, rows, keys; −∞ where masked) are known to ± ``error`` when exponentiated; ``values`` are
    (…, keys, columns). The weights before division, exp(s − m) ≤ 1, are rounded to ``dtype`` for the tensor cores;
    whether their sum is taken before or after that is left open. Where one underflows, the value counts by up to
    half the smallest subnormal: the sum that divides it is at least 1.
    """
    weights, magnitude = scores.softmax(-1), values.abs()
    each = (1 + exponentials(scores, error)) * (1 + UNIT[dtype]) - 1
    total = _divisor(weights, each)
    product = (weights * each) @ magnitude + accumulated(weights @ magnitude, scores.shape[-1])
    product = product + UNDERFLOW[dtype] * (torch.isfinite(scores).double() @ magnitude)
    exact = weights @ values
    # (N + n)/(D (1 − b)) − N/D, and the rounding of the division.
    quotient = (product + exact.abs() * total) / (1 - total)
    return rounded(exact, quotient + _FUNCTION * (exact.abs() + quotient) + _FLUSHED, dtype)


def gelu(z: torch.Tensor, error: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The bound on ½ z (1 + tanh v), v = √(2/π) (z + 0.044715 z³), in fp32 for a ``z`` known to ± ``error``.

    By Taylor's theorem z's error is multiplied by |f′(z)|, and by half of max |f″| < 1 once more. The evaluation
    adds: six roundings in v, whose terms have one sign; those of tanh and of 1 + tanh, whose cancellation leaves
    an absolute error; and two products.

    Which form is evaluated is left open: the other is z σ with σ = ½ (1 + tanh v) = 1/(1 + e), e = exp(−2v). There
    v is scaled by log₂e (two roundings more) for exp2; an error d of e, relative to it, is one of (1 − σ) d in σ;
    and the sum, its reciprocal and the product are rounded.
    """
    inner = math.sqrt(2 / math.pi)
    v = inner * (z + 0.044715 * z**3)
    tanh = torch.tanh(v)
    bend = 1 - tanh**2
    slope = 0.5 * (1 + tanh) + 0.5 * z * bend * inner * (1 + 3 * 0.044715 * z**2)
    exact = 0.5 * z * (1 + tanh)
    within = 6 * _U * v.abs() * bend + _FUNCTION * tanh.abs() + _U * (1 + tanh)
    by_tanh = 0.5 * z.abs() * within + 2 * _U * exact.abs()
    by_exp = exact.abs() * (0.5 * (1 - tanh) * (16 * _U * v.abs() + _FUNCTION) + 2 * _U + _FUNCTION)
    evaluation = torch.maximum(by_tanh, by_exp) + _FLUSHED * (1 + z.abs())
    return rounded(exact, slope.abs() * error + 0.5 * error**2 + evaluation, dtype)

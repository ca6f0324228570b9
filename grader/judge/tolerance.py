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

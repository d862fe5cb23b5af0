"""The error of skipping pairs of slices: a rigorous bound, and the fewest pairs that keep a given one.

AB = sum over kept pairs + sum over dropped pairs + R_A B + (A - R_A) R_B, R being the residuals of the splits.
"""

import math
from typing import Any

from gemmrepro.core.dtypes import namespace
from gemmrepro.errors import UserError
from gemmrepro.ozaki import exactness, pairs
from gemmrepro.ozaki.splitting import Split

UNIT = 2.0**-53


def guaranteed(
    k: int,
    significant: int,
    step: int,
    slices: int,
    d: int | None = None,
    accumulator: int = exactness.FP32_BITS,
    k_block: int | None = None,
    lost: float = math.inf,
) -> float:
    """A bound on the error of C with a split by fixed steps, relative to k 2^(c_A + c_B).

    As 2^c < 2 max, a quarter of it bounds the error relative to k max|A| max|B|. Slice 0 is at most 2^c, slice p is at
    most 2^(c - beta - 1 - (p - 1) step), half a unit of slice p - 1; the residual continues the sequence. Dropped pairs
    and residuals count in full, kept pairs by the rounding of the fp64 sum.

    Args:
        significant, step, slices, d: as in `article.Fused`; beta follows from them and `k`.
        accumulator, k_block: bits of the accumulator of a pair's products, and the number of products after which it is
            added to a wider one; None: never.
        lost: the relative error of such a sum if its digits may need more bits than it has.
    """
    beta = min(exactness.exact_bits(k), significant)
    size = [1.0] + [2.0 ** (-beta - 1 - p * step) for p in range(slices)]
    bits = [beta] + [step - 1] * (slices - 1)
    total = sum(size[p] * size[q] for p, q in pairs.dropped(slices, slices, d)) + (2 + size[slices]) * size[slices]
    kept = pairs.select(slices, slices, d)
    for p, q in kept:
        total += len(kept) * UNIT * size[p] * size[q]
        exact = exactness.is_exact(k_block or k, bits[p], bits[q], accumulator)
        if not (exact and exactness.is_exact(k, bits[p], bits[q])):
            total += lost * size[p] * size[q]
    return total


def smallest_d(a: Split, b: Split, abs_product: Any, law: str = "random") -> int:
    """The least d for which what Fast Mode drops satisfies 2 sqrt(k) u |A||B| everywhere: the article's criterion.
    `abs_product`: |A||B| [m,n]; `law`: how dropped pairs add up, "worst" or "random" (`truncation`). Residuals of the
    splits, which no d removes, are left out. Returns slices_a + slices_b - 1 if only all pairs do."""
    if law not in ("worst", "random"):
        raise UserError(f"law is {law!r}; choose 'worst' or 'random'.")
    xp = namespace(a.residual)
    allowed = 2.0 * math.sqrt(a.residual.shape[1]) * UNIT * abs_product
    all_diagonals = max(len(a) + len(b) - 1, 1)
    error = xp.zeros_like(abs_product)
    for d in range(all_diagonals - 1, 0, -1):
        for p, q in pairs.select(len(a), len(b), d + 1):
            if p + q != d:
                continue
            left, right = xp.abs(a.slices[p].value()), xp.abs(b.slices[q].value())
            error += left @ right if law == "worst" else (left * left) @ (right * right)
        if bool(((error if law == "worst" else xp.sqrt(error)) > allowed).any()):
            return d + 1
    return 1

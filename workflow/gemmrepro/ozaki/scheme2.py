"""Scheme II as a product: C from INT8 products modulo N moduli, and the error of its modes.

C = 2^(-s_i - t_j) C'_ij with C' = A' B' exact, so the only errors are the rounding of A and B to A' and B' and one
rounding of C. With Â = 2^-s A' and B̂ = B' 2^-t,

    |C - AB| <= |A - Â| |B| + |Â| |B - B̂| + u' |C|,      u' = 2^-53 (1 + 2^-40),

and with truncation every element of |A - Â| is below 2^-s_i and |Â| <= |A| (with rounding to nearest: half that, and
|Â| up to |A| + 2^(-s_i - 1)). Underflow of C adds at most 2^-1074.

**Fast** (N fixed). As 2^-s_i < 2 ||a_i|| (1 + eps) / R, R^2 = (M - 1) / 2, for *any*
finite input

    |C - AB|_ij <= 4 sqrt(k) (1 + 2^-40) ||a_i|| ||b_j|| / R + u' |C_ij|,

normwise: relative to the norms of a row and a column, which may be far above (|A||B|)_ij. If the elements of a row are
of like size, 15 moduli give operands of 58.4 - log2(k) / 2 bits. Whether that is good depends on the input.

**Accurate** (`residues.exponents_by_products`, N fixed). The first inequality with a larger s and t where an INT8
product shows room; again normwise, no componentwise promise.

**Certified** (N grows with the input). One product of magnitudes rounded *down*, of e5m2 at the rate of INT8, gives
L <= |A||B|; integers of 7 bits would see nothing below 1/124 of a maximum. Where (half of it, rounding to nearest)

    2^-s_i sum_h |b_hj| + 2^-t_j sum_h |a_ih|  <=  gamma L_ij

the element is within gamma |A||B| + u' |C|, componentwise; what fails is computed in float64. `decided` has its
constants.
"""

import math
from typing import Any

from gemmrepro.core.dtypes import namespace
from gemmrepro.ozaki import residues


def fast_bound(a: Any, b: Any, count: int) -> Any:
    """The fast mode's promise [m,n] for any finite input, without the last rounding: 4 sqrt(k) ||a_i|| ||b_j|| / R."""
    xp = namespace(a)
    norms = xp.sqrt((a * a).sum(axis=1, keepdims=True)), xp.sqrt((b * b).sum(axis=0, keepdims=True))
    return 4.0 * math.sqrt(a.shape[1]) * (1 + 2.0**-40) / residues.radius(count) * norms[0] * norms[1]

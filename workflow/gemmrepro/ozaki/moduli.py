"""Pairwise coprime moduli up to 256, so that residues fit int8.

Symmetric residues of an odd p lie within (p - 1) / 2 <= 127, those of 256 in [-128, 127]. Taken greedily from 256 down,
as arXiv:2504.08009 does: 256, 255, 253, 251, 247, 241, 239, ... Their product M bounds the integers that N residues
determine: |C'| < M / 2. Each modulus adds a little less than 8 bits to the product, so a little less than 4 to each
operand.

An int32 accumulator holds inner products of k terms of odd moduli up to k = 133 144. Modulo 256, 2^17 products of -128
with -128 make 2^31, which wraps to -2^31: harmless, as 2^32 is a multiple of 256. So k may be 2^17; longer products are
cut into blocks.
"""

import math
from functools import cache

from gemmrepro.errors import UserError

LARGEST = 256
MOST = 24
LONGEST_K = 2**17


@cache
def moduli(count: int) -> tuple[int, ...]:
    """The first `count` of the greedy sequence, 2 to 24 (M from 2^16 to 2^183). Raises UserError for another count."""
    if not 2 <= count <= MOST:
        raise UserError(f"{count} moduli were requested; choose 2 to {MOST}.")
    chosen: list[int] = []
    candidate = LARGEST
    while len(chosen) < count:
        if all(math.gcd(candidate, modulus) == 1 for modulus in chosen):
            chosen.append(candidate)
        candidate -= 1
    return tuple(chosen)


def product(count: int) -> int:
    """M, the product of the first `count` moduli."""
    return math.prod(moduli(count))

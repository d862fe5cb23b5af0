"""The numerical gate's bounds on rounding errors.

For C = alpha A B + beta C0 every element must satisfy

    |C - C*|  <=  gamma (|alpha| |A||B| + |beta| |C0|) + underflow,

where C* is the same expression in float64. The worst case over all roundings is gamma_n = n u / (1 - n u), with u =
2^-24 and n = k + 3 roundings on the longest path (k multiply-adds, the product with alpha, beta C0, their sum). It
grows like n and would let TensorFloat-32 (u = 2^-11) pass from k = 8192 on. Treated as independent with mean zero,
rounding errors satisfy

    gamma_n(lambda) = exp(lambda sqrt(n) u + n u^2 / (1 - u)) - 1

for all m n k terms at once with probability at least 1 - 2 m n k exp(-lambda^2 (1 - u)^2 / 2), in *any* order of
summation (N. J. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41
(5), 2019, theorems 2.4 and 3.1). lambda = 9 makes the chance that a right kernel fails below 3e-6 at 8192 x 8192 x 8192
and below 1e-9 at the sizes of the gate. The gate uses the smaller of the two bounds. TF32 errs by about 2^-11 / sqrt(k)
of |A||B| on random data, so it is above this bound wherever k < 2700; the gate's cases reach down to k = 1.

That is a kernel of fp32 multiply-adds. **Tensor cores** multiply 16-bit values exactly and add each product block of 16
to the fp32 accumulator with truncation, aligned to the largest term (M. Fasi, N. J. Higham, M. Mikaitis and S. Pranesh,
"Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021): a bias, to which the probabilistic
bound does not apply. Their gamma is the worst case of k additions and two roundings a block at a truncation of 2^-23.
A 16-bit result is rounded once more: u |C*| is allowed beside gamma |A||B|. As this is coarse for long sums, operands
of small integers are judged too, whose sums are exact in fp32: there C must be C* rounded to nearest, bit for bit.

**TF32** is multiplied by the same units, four or eight products a block. **8-bit floats** are multiplied exactly too,
but Hopper keeps only about 14 bits of an aligned sum inside the unit: their gamma is that of a truncation at 2^-13, 32
products a block, which is coarse; it is the exact case that tells a right kernel from one that loses a product, with
integers so small that every partial sum of the gate's shapes fits into those 14 bits. **fp64** is judged by the bound
of fp32 with its own unit roundoff, twice, since the reference is computed in float64 as well. **8-bit integers** are
exact: their gamma is 0.

**fp16 accumulators.** A tensor core that keeps its sums in fp16 adds a block of products as above and rounds the sum
to fp16, to nearest (Fasi et al., as above). The a priori bound on that, one u = 2^-11 of |A||B| a block (P. Blanchard,
N. J. Higham, F. Lopez, T. Mary and S. Pranesh, "Mixed Precision Block Fused Multiply-Add", SIAM J. Sci. Comput. 42 (3),
2020, section 3), lets a kernel pass that loses whole steps of K. The gate takes the running error bound instead (N. J.
Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.3): a rounding errs by at most u of the sum
that it rounds, whose exact value s_j is known, so that over J blocks

    E_J  <=  u (1 + u)^J (|s_1| + ... + |s_J|),

which grows with the sums that there are, not with those that there could be. J counts blocks of 8 products, the fewest
that a tensor core adds at once. A sum that is added to an fp32 one every `promoted` products begins anew there. Sums
beyond fp16's largest number become infinite. What this bound lets pass in long sums, a few products of many, an exact
case does not: products of 1 and -1, whose sums up to 2048 fp16 holds.

The second term covers results in the subnormal range, where an operation errs by up to 2^-150 absolutely.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmrepro.operations import Problem

UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24, "fp64": 2.0**-53, "int32": 2.0**-31}
SUBNORMAL_STEP = {"fp16": 2.0**-24, "bf16": 2.0**-133, "fp32": 2.0**-149, "fp64": 2.0**-1074, "int32": 0.0}

LARGEST = {
    "fp16": 65504.0,
    "bf16": float.fromhex("0x1.fep127"),
    "fp32": float(np.finfo(np.float32).max),
    "fp64": float(np.finfo(np.float64).max),
    "int32": 2.0**31 - 1,
}

LAMBDA = 9.0
TRUNCATION = 2.0**-23

COARSE_TRUNCATION = 2.0**-13
"""Of an aligned sum of products of 8-bit floats, on the GPUs that keep least of it."""

BLOCK = 16
"""Products that one tensor-core instruction adds along K, for 16-bit operands."""

BLOCKS = {"tf32": 4, "fp8_e4m3": 32, "fp8_e5m2": 32}
"""The same for operands of other types, the fewest of any instruction."""


HALF_BLOCK = 8
"""Products along K that a tensor core adds before it rounds a sum to fp16, the fewest of any GPU (A100)."""


@dataclass(frozen=True)
class HalfSums:
    """Errors of sums kept in fp16 for each element of C, [m,n] float64. `error`: bound on the roundings to fp16.
    `reach`: the largest magnitude of a sum along the way; beyond fp16's largest number it becomes infinite."""

    error: Any
    reach: Any


def half_sums(a: Any, b: Any, promoted: int = 0, xp: Any = np) -> HalfSums:
    """The running error bound of sums of A[m,k] B[k,n] (float64) in the order of K, kept in fp16.
    `promoted`: products along K after which a sum is added to an fp32 one and begins anew; 0: never. `xp`: the
    operands' array module, NumPy or CuPy."""
    k = a.shape[1]
    total = xp.zeros((a.shape[0], b.shape[1]))
    reach, sums = xp.zeros_like(total), xp.zeros_like(total)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, k, HALF_BLOCK):
            part = a[:, start : start + HALF_BLOCK] @ b[start : start + HALF_BLOCK]
            sums = part if promoted and start % promoted == 0 else sums + part
            size = xp.abs(sums)
            total += size
            xp.maximum(reach, size, out=reach)
    unit, steps = UNIT_ROUNDOFF["fp16"], math.ceil(min(k, promoted or k) / HALF_BLOCK)
    return HalfSums(total * (unit * (1 + unit) ** steps), reach)


def gamma(k: int, unit: float = UNIT_ROUNDOFF["fp32"], extra: int = 3) -> float:
    """The gate's bound on the error of a sum of `k` products, relative to |A||B| (see the module's docstring)."""
    n = k + extra
    worst = n * unit / (1 - n * unit) if n * unit < 1 else math.inf
    likely = math.expm1(LAMBDA * math.sqrt(n) * unit + n * unit * unit / (1 - unit))
    return min(worst, likely)


def tensor_core_gamma(k: int, dtype: str = "fp16") -> float:
    """The gate's bound on a tensor core's sum of `k` products of `dtype`, relative to |A||B|, before C is rounded."""
    terms = k + 2 * math.ceil(k / BLOCKS.get(dtype, BLOCK))
    lost = terms * (COARSE_TRUNCATION if dtype.startswith("fp8") else TRUNCATION)
    return lost / (1 - lost) if lost < 1 else math.inf


def bound(problem: Problem, k: int) -> float:
    """The gate's gamma for `problem`: by what unit multiplies its operands."""
    if problem.dtype_in == "int8":
        return 0.0
    if problem.dtype_in == "fp64":
        return 2 * gamma(k, UNIT_ROUNDOFF["fp64"])
    return gamma(k) if problem.dtype_in == "fp32" else tensor_core_gamma(k, problem.dtype_in)


def allowed_error(limit: float | None, dtype_out: str) -> float | None:
    """The error that the numerical gate allows, in the units of errors: |A||B| and the output's roundoff.
    A result narrower than fp32 is rounded once more, by one such unit (see the module's docstring)."""
    unit = UNIT_ROUNDOFF.get(dtype_out)
    if limit is None or unit is None:
        return None
    return limit / unit + (1.0 if limit and unit > UNIT_ROUNDOFF["fp32"] else 0.0)


def underflow_allowance(k: int, alpha: float, dtype: str = "fp32", accumulator: str = "fp32") -> float:
    """Allowance for rounding to subnormals over `k` + 3 fp32 operations: half a step each, times alpha where above 1.
    A narrower `dtype` is rounded once more, by half of its step; fp64 and integers are summed in their own type. Sums
    in an fp16 `accumulator` are rounded once a block, by half of its step."""
    if dtype in ("fp64", "int32"):
        return 0.5 * (k + 3) * SUBNORMAL_STEP[dtype] * max(1.0, abs(alpha))
    last = 0.5 * SUBNORMAL_STEP[dtype] if dtype != "fp32" else 0.0
    if accumulator == "fp16":
        last += 0.5 * math.ceil(k / HALF_BLOCK) * SUBNORMAL_STEP["fp16"]
    return 0.5 * (k + 3) * SUBNORMAL_STEP["fp32"] * max(1.0, abs(alpha)) + last

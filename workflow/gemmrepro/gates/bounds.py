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

The second term covers results in the subnormal range, where an operation errs by up to 2^-150 absolutely.
"""

from __future__ import annotations

import math

import numpy as np

from gemmrepro.operations import Problem, Shape

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
    """What the numerical gate allows, in the units in which errors are given: |A||B| and the output's roundoff.

    A result narrower than fp32 is rounded once more, by one such unit (see the module's docstring).
    """
    unit = UNIT_ROUNDOFF.get(dtype_out)
    if limit is None or unit is None:
        return None
    return limit / unit + (1.0 if limit and unit > UNIT_ROUNDOFF["fp32"] else 0.0)


def failure_probability(shape: Shape, unit: float = UNIT_ROUNDOFF["fp32"]) -> float:
    """Upper bound on the chance that the gate fails a right kernel on one input of `shape`."""
    return min(1.0, 2.0 * shape.m * shape.n * shape.k * math.exp(-(LAMBDA**2) * (1 - unit) ** 2 / 2))


def underflow_allowance(k: int, alpha: float, dtype: str = "fp32") -> float:
    """What rounding to subnormals may add over `k` + 3 fp32 operations: half a step each, times alpha where above 1.

    A result of `dtype` narrower than fp32 is rounded once more, by half of its own step. Results of fp64 and of
    integers are summed in their own type.
    """
    if dtype in ("fp64", "int32"):
        return 0.5 * (k + 3) * SUBNORMAL_STEP[dtype] * max(1.0, abs(alpha))
    last = 0.5 * SUBNORMAL_STEP[dtype] if dtype != "fp32" else 0.0
    return 0.5 * (k + 3) * SUBNORMAL_STEP["fp32"] * max(1.0, abs(alpha)) + last

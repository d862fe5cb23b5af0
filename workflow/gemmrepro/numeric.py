"""The numerical gate: is a kernel's result right, to what its arithmetic can promise?

For C = alpha A B + beta C0 every element must satisfy

    |C - C*|  <=  gamma (|alpha| |A||B| + |beta| |C0|) + underflow,

C* being the same expression in float64. The worst case over all roundings is gamma_n = n u / (1 - n u), with u = 2^-24
and n = k + 3 roundings on the longest path (k multiply-adds, the product with alpha, beta C0, their sum); it grows like
n and would let TensorFloat-32 (u = 2^-11) pass from k = 8192 on. Rounding errors do not conspire: treated as
independent with mean zero, they satisfy

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

The second term covers results in the subnormal range, where an operation errs by up to 2^-150 absolutely. Where the
exact scale |A||B| is zero, C must be zero exactly. NaN passes only where the reference is NaN, infinity only where it
is infinite; outputs are poisoned with NaN before every launch, all arrays stand between guard bands of NaN whose
payload is checked afterwards, inputs must come back untouched, and launches on the same input must agree bit for bit
(a difference is a race).

    python -m gemmrepro.numeric --kernel ladder.naive --build results/build --seeds 2 \\
        --out results/gates/numeric/ladder.naive.json
    python -m gemmrepro.numeric --family ladder --build results/build --seeds 2 --out-dir results/gates/numeric
"""

from __future__ import annotations

import argparse
import math
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import gpu, registry
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import write_json
from gemmrepro.operands import Operands, bits, narrow, widen
from gemmrepro.registry import Kernel, Problem, Shape

UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24, "fp64": 2.0**-53}
SUBNORMAL_STEP = {"fp16": 2.0**-24, "bf16": 2.0**-133, "fp32": 2.0**-149}
LARGEST = {"fp16": 65504.0, "bf16": float.fromhex("0x1.fep127"), "fp32": float(np.finfo(np.float32).max)}
LAMBDA = 9.0
FP32_GEMM = Problem()
TRUNCATION = 2.0**-23
BLOCK = 16
"""Products that one tensor-core instruction adds along K, for 16-bit operands."""

GUARD = 2048
"""Guard elements on each side of an array; 4 KB or more keeps the array's own alignment."""
GUARD_BITS = {4: 0x7FE5A5A5, 2: 0x7FE5}
"""Quiet NaNs whose payload no arithmetic makes, by element size; the 16-bit ones are NaN as fp16 and as bf16."""
POISON_BITS = {4: 0x7FC0DEAD, 2: 0x7FCD}

CEILING_BOUND = 1e6
"""The loops that measure ceilings keep their sums below this."""

REPEATS = 3
"""Launches of one case that must agree bit for bit."""


def gamma(k: int, unit: float = UNIT_ROUNDOFF["fp32"], extra: int = 3) -> float:
    """The gate's bound on the error of a sum of `k` products, relative to |A||B| (see the module's docstring)."""
    n = k + extra
    worst = n * unit / (1 - n * unit) if n * unit < 1 else math.inf
    likely = math.expm1(LAMBDA * math.sqrt(n) * unit + n * unit * unit / (1 - unit))
    return min(worst, likely)


def tensor_core_gamma(k: int) -> float:
    """The gate's bound on a tensor core's fp32 sum of `k` products, relative to |A||B|, before C is rounded."""
    terms = k + 2 * math.ceil(k / BLOCK)
    return terms * TRUNCATION / (1 - terms * TRUNCATION)


def bound(problem: Problem, k: int) -> float:
    """The gate's gamma for `problem`: by what unit multiplies its operands."""
    return gamma(k) if problem.dtype_in == "fp32" else tensor_core_gamma(k)


def failure_probability(shape: Shape, unit: float = UNIT_ROUNDOFF["fp32"]) -> float:
    """Upper bound on the chance that the gate fails a right kernel on one input of `shape`."""
    return min(1.0, 2.0 * shape.m * shape.n * shape.k * math.exp(-(LAMBDA**2) * (1 - unit) ** 2 / 2))


@dataclass(frozen=True)
class Verdict:
    """Outcome of comparing one result.

    Attributes:
        err_scaled_max: largest |C - C*| / (|A||B| scale), in units of the output type's unit roundoff, what subnormal
            rounding may add taken off; None where no element has a finite reference and a scale above zero.
        err_fro: Frobenius norm of C - C* over that of C*, over the finite elements; None where that is 0.
        message: what is wrong, with the first wrong element; empty where nothing is.
    """

    passed: bool
    err_scaled_max: float | None
    err_fro: float | None
    message: str


def compare(
    result: Any,
    reference: Any,
    scale: Any,
    bound: float,
    *,
    dtype: str = "fp32",
    underflow: float = 0.0,
    rows: int = 2048,
) -> Verdict:
    """Judge `result` element by element.

    Args:
        result: [m, n] stored elements of `dtype`; NumPy or CuPy.
        reference: [m, n] float64, the exact result to double precision.
        scale: [m, n] float64, |alpha| |A||B| + |beta| |C0|.
        bound: gamma. Where `dtype` is narrower than fp32, its own rounding of the result is allowed for beside it.
        underflow: what subnormal rounding may add, absolutely.
        rows: elements are judged in blocks of this many rows, which bounds the memory it takes.
    """
    if isinstance(result, np.ndarray):
        xp: Any = np
    else:
        import cupy as xp
    if result.shape != reference.shape or result.shape != scale.shape:
        raise ValueError(f"shapes differ: {result.shape}, {reference.shape}, {scale.shape}")
    unit, largest = UNIT_ROUNDOFF[dtype], LARGEST[dtype]
    last_rounding = unit if dtype in ("fp16", "bf16") else 0.0
    bad_count, first, worst = 0, None, None
    square_error = square_reference = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, result.shape[0], rows):
            block = slice(start, start + rows)
            got, want, size = widen(result[block], dtype), reference[block], scale[block]
            allowed = bound * size + xp.where(size > 0, underflow, 0.0)
            if last_rounding:
                allowed = allowed + last_rounding * (xp.where(xp.isfinite(want), xp.abs(want), 0.0) + allowed)
            want_nan = xp.isnan(want)
            # Beyond the largest float by more than the bound, every correct sum has overflowed; within the bound of it,
            # either outcome is right.
            must_overflow = xp.isinf(want) | (xp.abs(want) - allowed > largest)
            may_overflow = ~want_nan & ~must_overflow & (xp.abs(want) + allowed > largest)
            same_infinity = xp.isinf(got) & (xp.sign(got) == xp.sign(want))
            close = xp.isfinite(got) & (xp.abs(got - want) <= allowed)
            good = xp.where(
                want_nan,
                xp.isnan(got),
                xp.where(must_overflow, same_infinity, close | (may_overflow & same_infinity)),
            )
            bad = int((~good).sum())
            if bad and first is None:
                row, column = (int(axis[0]) for axis in xp.nonzero(~good))
                first = (start + row, column, float(got[row, column]), float(want[row, column]))
            bad_count += bad
            finite = xp.isfinite(got) & xp.isfinite(want) & xp.isfinite(size)
            difference = xp.where(finite, xp.abs(got - want), 0.0)
            square_error += float((difference**2).sum())
            square_reference += float((xp.where(finite, want, 0.0) ** 2).sum())
            judged = finite & (size > 0)
            if bool(judged.any()):
                excess = xp.maximum(difference - underflow, 0.0)
                scaled = float((excess / xp.where(judged, size, 1.0))[judged].max()) / unit
                worst = scaled if worst is None else max(worst, scaled)
    message = ""
    if first is not None:
        row, column, got_value, want_value = first
        message = (
            f"{bad_count} of {result.size} elements are wrong; the first is C[{row},{column}] = {got_value:.9g}, "
            f"expected {want_value:.9g}"
        )
    fro = math.sqrt(square_error / square_reference) if square_reference > 0 else None
    return Verdict(bad_count == 0, worst, fro, message)


def reference_gemm(a: Any, b: Any, alpha: float, beta: float, c0: Any | None, xp: Any = np) -> tuple[Any, Any]:
    """C* and the scale |alpha||A||B| + |beta||C0| in float64, of any operands. C0 is not read when beta is 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide_a, wide_b = a.astype(xp.float64), b.astype(xp.float64)
        alpha, beta = float(np.float32(alpha)), float(np.float32(beta))
        product = alpha * (wide_a @ wide_b)
        size = abs(alpha) * (xp.abs(wide_a) @ xp.abs(wide_b))
        if beta != 0.0:
            product = product + beta * c0.astype(xp.float64)
            size = size + abs(beta) * xp.abs(c0.astype(xp.float64))
    return product, size


def underflow_allowance(k: int, alpha: float, dtype: str = "fp32") -> float:
    """What rounding to subnormals may add over `k` + 3 fp32 operations: half a step each, times alpha where above 1.

    A result of `dtype` narrower than fp32 is rounded once more, by half of its own step.
    """
    last = 0.5 * SUBNORMAL_STEP[dtype] if dtype != "fp32" else 0.0
    return 0.5 * (k + 3) * SUBNORMAL_STEP["fp32"] * max(1.0, abs(alpha)) + last


# Inputs ---------------------------------------------------------------------------------------------------------------


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def _wide(phi: float) -> Callable[[np.random.Generator, Shape], tuple[np.ndarray, np.ndarray]]:
    """(u - 1/2) exp(phi g), u uniform and g normal: the exponent range of the Ozaki-scheme literature."""

    def draw(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
        def one(size: tuple[int, int]) -> np.ndarray:
            return ((rng.random(size) - 0.5) * np.exp(phi * rng.standard_normal(size))).astype(np.float32)

        return one((shape.m, shape.k)), one((shape.k, shape.n))

    return draw


def _plain(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    return _normal(rng, (shape.m, shape.k)), _normal(rng, (shape.k, shape.n))


def _uniform(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    return rng.random((shape.m, shape.k), dtype=np.float32), rng.random((shape.k, shape.n), dtype=np.float32)


def _scaled(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Rows of A and columns of B times powers of two from 2^-30 to 2^30: relative errors must not change."""
    a, b = _plain(rng, shape)
    rows = np.exp2(rng.integers(-30, 31, (shape.m, 1))).astype(np.float32)
    columns = np.exp2(rng.integers(-30, 31, (1, shape.n))).astype(np.float32)
    return a * rows, b * columns


def _zero_rows(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    a, b = _plain(rng, shape)
    a[rng.random(shape.m) < 0.3, :] = 0.0
    a[0, :] = 0.0
    b[:, rng.random(shape.n) < 0.3] = -0.0
    return a, b


def _cancelling(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The second half of K takes back what the first half adds, but for one part in 10^4."""
    a, b = _plain(rng, shape)
    half = shape.k // 2
    if half:
        a[:, half : 2 * half] = a[:, :half]
        b[half : 2 * half] = -b[:half] * np.float32(1 - 1e-4)
    return a, b


def _subnormal(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """A in the subnormal range, B around 1: flushing inputs or results to zero shows."""
    a, b = _plain(rng, shape)
    return (a * np.float32(2.0**-100) * np.float32(2.0**-32)).astype(np.float32), b


def _tiny_products(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Normal inputs whose products are subnormal."""
    a, b = _plain(rng, shape)
    return a * np.float32(2.0**-70), b * np.float32(2.0**-66)


def _overflowing(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Row 0 of A is so large that each of its products overflows; one sign only, so the order does not matter."""
    a, b = np.abs(_plain(rng, shape)[0]) + np.float32(0.5), np.abs(_normal(rng, (shape.k, shape.n))) + np.float32(0.5)
    a[0, :] = np.float32(2.0**127)
    b[:, 0] *= np.float32(4.0)
    b[:, 1:] *= np.float32(2.0**-20)
    return a, b


def _infinite(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Infinities of both signs and NaNs in A and B: each reaches exactly the rows and columns that meet it."""
    a, b = _plain(rng, shape)
    specials = (np.inf, -np.inf, np.nan)
    for index, special in enumerate(specials):
        a[(index * 7) % shape.m, (index * 5) % shape.k] = special
        if index < 2:
            b[(index * 3 + 1) % shape.k, (index * 11 + 2) % shape.n] = special
    return a, b


INPUTS: dict[str, Callable[[np.random.Generator, Shape], tuple[np.ndarray, np.ndarray]]] = {
    "normal": _plain,
    "uniform": _uniform,
    "wide exponents, phi = 0": _wide(0.0),
    "wide exponents, phi = 1": _wide(1.0),
    "wide exponents, phi = 2": _wide(2.0),
    "wide exponents, phi = 4": _wide(4.0),
    "power-of-two rows and columns": _scaled,
    "zero rows and columns": _zero_rows,
    "cancellation": _cancelling,
    "subnormal A": _subnormal,
    "subnormal products": _tiny_products,
    "overflow": _overflowing,
    "Inf and NaN": _infinite,
}


EXACT = "small integers"
"""The inputs whose result must be exact to the last bit of its rounding."""


def _integers(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Integers so small that every partial sum of up to 2^17 of them is one of fp32's exact integers."""
    one, other = ((shape.m, shape.k), (shape.k, shape.n))
    return rng.integers(-8, 9, one).astype(np.float32), rng.integers(-8, 9, other).astype(np.float32)


def _halves_subnormal(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """A in fp16's subnormal range, B large enough that C is not."""
    a, b = _plain(rng, shape)
    return a * np.float32(2.0**-18), b * np.float32(2.0**8)


def _halves_overflowing(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Sums beyond fp16's largest number in row 0 of C, all of one sign; the others stay inside."""
    a, b = np.abs(_plain(rng, shape)[0]) + np.float32(0.5), np.abs(_normal(rng, (shape.k, shape.n))) + np.float32(0.5)
    a[0, :] = np.float32(60000.0)
    b[:, 0] *= np.float32(4.0)
    return a, b


def _scaled_little(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Rows of A and columns of B times powers of two that keep C within fp16."""
    a, b = _plain(rng, shape)
    rows = np.exp2(rng.integers(-4, 4, (shape.m, 1))).astype(np.float32)
    columns = np.exp2(rng.integers(-4, 4, (1, shape.n))).astype(np.float32)
    return a * rows, b * columns


INPUTS |= {
    EXACT: _integers,
    "power-of-two rows and columns, fp16": _scaled_little,
    "subnormal A, fp16": _halves_subnormal,
    "overflow, fp16": _halves_overflowing,
}

LAWS = {
    "fp32": [name for name in INPUTS if "fp16" not in name and name != EXACT],
    # Tensor cores add within their own alignment: products below fp32's normal range are not promised anywhere.
    "bf16": [name for name in INPUTS if "fp16" not in name and name != "subnormal products"],
    "fp16": [
        "normal",
        "uniform",
        EXACT,
        "wide exponents, phi = 0",
        "wide exponents, phi = 1",
        "power-of-two rows and columns, fp16",
        "zero rows and columns",
        "cancellation",
        "subnormal A, fp16",
        "overflow, fp16",
        "Inf and NaN",
    ],
}
"""The inputs that a kernel is judged on, by the type of its operands: those that the type can hold."""


@dataclass(frozen=True)
class Case:
    """One launch to judge. `inputs` is a key of INPUTS; the seed makes it reproducible."""

    shape: Shape
    alpha: float
    beta: float
    inputs: str
    seed: int


SCALARS = ((1.0, 0.0), (0.75, -1.5), (-2.0, 1.0), (1.0, 1.0), (0.0, 2.0), (0.3, 0.0))


def gemm_shapes(kernel: Kernel) -> tuple[list[Shape], Shape, Shape]:
    """The shapes a GEMM kernel is judged on.

    Returns:
        (shapes with tails, or of unequal multiples where the kernel takes no tails; one middling shape for the unusual
        inputs; one large enough to fill the GPU, where a race shows).
    """
    step = {axis: kernel.multiple_of.get(axis, 1) for axis in "mnk"}
    if kernel.dtype_in != "fp32" and max(step.values()) <= 16:
        # Tails against tiles of 64 to 256, in the steps that TMA and 16-byte loads leave.
        tails = [(1, 1, 1), (3, 17, 9), (65, 9, 8), (200, 17, 9), (129, 33, 1), (300, 51, 65), (96, 20, 256)]
        shapes = [Shape(m, n * step["n"], k * step["k"]) for m, n, k in tails]
        # The large one has 216 tiles of 128 x 256, so that blocks that stay on a GPU take more than one.
        return shapes, Shape(200, 17 * step["n"], 9 * step["k"]), Shape(3000, 280 * step["n"], 127 * step["k"])
    if max(step.values()) == 1:
        sizes = [(1, 1, 1), (1, 33, 5), (31, 1, 64), (33, 65, 1), (127, 129, 63), (257, 96, 130), (96, 128, 2048)]
        return [Shape(*size) for size in sizes], Shape(130, 97, 70), Shape(1000, 1030, 1011)

    def multiple(m: int, n: int, k: int) -> Shape:
        return Shape(m * step["m"], n * step["n"], k * step["k"])

    def nearest(wanted: int, axis: str) -> int:
        return max(1, round(wanted / step[axis]))

    shapes = [
        multiple(1, 1, 1),
        multiple(2, 3, 5),
        multiple(3, 1, 1),
        multiple(1, 4, nearest(72, "k")),
        multiple(1, 1, nearest(2048, "k")),
    ]
    large = multiple(nearest(1024, "m"), nearest(1152, "n"), nearest(1024, "k"))
    return shapes, multiple(2, 1, nearest(64, "k")), large


def gemm_cases(kernel: Kernel, seeds: Sequence[int]) -> list[Case]:
    """Every case of a GEMM kernel for each of `seeds`."""
    shapes, middling, large = gemm_shapes(kernel)
    scalars = SCALARS if kernel.scales else SCALARS[:1]
    plain = "normal" if kernel.dtype_in == "fp32" else EXACT
    cases = []
    for seed in seeds:
        for index, shape in enumerate(shapes):
            # Each shape with alpha = 1, beta = 0 and with one other pair in turn; one shape with all of them.
            others = scalars[1:]
            pairs = scalars if index == 1 or not others else (scalars[0], others[index % len(others)])
            cases += [Case(shape, alpha, beta, "normal", seed) for alpha, beta in pairs]
            if plain != "normal":
                cases.append(Case(shape, 1.0, 0.0, plain, seed))
        for name in LAWS[kernel.dtype_in]:
            cases.append(Case(middling, 1.0, 0.0, name, seed))
            scaled = ("uniform", "power-of-two rows and columns", "zero rows and columns", "cancellation")
            if kernel.scales and name in scaled:
                cases.append(Case(middling, 0.75, -1.5, name, seed))
        for shape in kernel.gate_shapes:
            cases += [Case(shape, 1.0, 0.0, name, seed) for name in dict.fromkeys(("normal", plain))]
        cases.append(Case(large, 1.0, 0.0, "normal", seed))
        cases.append(Case(large, 0.75, -1.5, "uniform", seed) if kernel.scales else Case(large, 1.0, 0.0, plain, seed))
    return cases


def draw(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A[m,k], B[k,n] and C0[m,n] of a case, float32, the same on every machine. C0 is NaN where beta is 0."""
    rng = np.random.default_rng([case.seed, case.shape.m, case.shape.n, case.shape.k])
    a, b = INPUTS[case.inputs](rng, case.shape)
    c0 = _normal(rng, (case.shape.m, case.shape.n))
    if case.beta == 0.0:
        c0[...] = np.nan
    else:
        # The scale of C0 follows that of the product, so that neither drowns the other.
        with np.errstate(over="ignore"):
            level = np.abs(a).max(axis=1, keepdims=True) * np.abs(b).max(axis=0, keepdims=True)
        c0 *= np.where(np.isfinite(level), level, 1.0).astype(np.float32)
    return np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32), np.ascontiguousarray(c0)


# On the GPU -----------------------------------------------------------------------------------------------------------


class Guarded:
    """An array of stored elements on the GPU between two guard bands."""

    def __init__(self, values: np.ndarray) -> None:
        import cupy

        self._flat = cupy.empty(values.size + 2 * GUARD, dtype=values.dtype)
        self._bits, self._guard = bits(self._flat), GUARD_BITS[values.dtype.itemsize]
        self._bits[...] = self._guard
        self.array = self._flat[GUARD : GUARD + values.size].reshape(values.shape)
        self.array.set(np.ascontiguousarray(values))

    def broken(self) -> int:
        """How many guard elements something wrote to."""
        low, high = self._bits[:GUARD], self._bits[-GUARD:]
        return int((low != self._guard).sum() + (high != self._guard).sum())


Launcher = Callable[[Operands], None]
"""Launches something once on operands, on the current stream."""


def run_case(
    session: gpu.Session, launch: Launcher, case: Case, problem: Problem = FP32_GEMM, repeats: int = REPEATS
) -> tuple[Verdict, float]:
    """Run a GEMM `case` of `problem` `repeats` times and judge it. Returns the verdict and gamma."""
    import cupy

    host_a, host_b, host_c = draw(case)
    host_a, host_b = (narrow(values, problem.dtype_in) for values in (host_a, host_b))
    host_c = narrow(host_c, problem.dtype_out)
    k_major = problem.layout == "row,col,row"
    a, c = Guarded(host_a), Guarded(host_c)
    b = Guarded(np.ascontiguousarray(host_b.T) if k_major else host_b)
    before = [a.array.copy(), b.array.copy()]
    operands = Operands(problem, case.shape, (a.array, b.array), c.array, case.alpha, case.beta)
    poison = POISON_BITS[c.array.dtype.itemsize]
    start = c.array.copy()
    if case.beta == 0.0:
        bits(start)[...] = poison
    results = []
    for _ in range(repeats):
        c.array[...] = start
        launch(operands)
        session.sync()
        results.append(c.array.copy())
    # Widened on the host: CuPy compiles its own kernels to flush fp32 subnormals to zero, which would judge a kernel
    # that keeps them against a reference that does not. In float64 nothing is flushed.
    types = (problem.dtype_in, problem.dtype_in, problem.dtype_out)
    wide = [cupy.asarray(widen(values, dtype)) for values, dtype in zip((host_a, host_b, host_c), types, strict=True)]
    reference, scale = (array.get() for array in reference_gemm(*wide[:2], case.alpha, case.beta, wide[2], cupy))
    limit = bound(problem, case.shape.k)
    got = results[0].get()
    allowance = underflow_allowance(case.shape.k, case.alpha, problem.dtype_out)
    verdict = compare(got, reference, scale, limit, dtype=problem.dtype_out, underflow=allowance)
    problems = [verdict.message] if verdict.message else []
    if case.inputs == EXACT:
        # + 0.0: a sum of zeros may be of either sign.
        exact = narrow(reference.astype(np.float32), problem.dtype_out)
        wrong = int((widen(got, problem.dtype_out) + 0.0 != widen(exact, problem.dtype_out)).sum())
        if wrong:
            problems.append(f"{wrong} elements of a product of small integers are not exact")
    poisoned = int((bits(results[0]) == poison).sum())
    if poisoned:
        problems.append(f"{poisoned} elements were never written")
    if any(bool((bits(other) != bits(results[0])).any()) for other in results[1:]):
        problems.append("launches on the same input differ: a race")
    for name, guarded in (("A", a), ("B", b), ("C", c)):
        if guarded.broken():
            problems.append(f"{guarded.broken()} elements outside {name} were overwritten")
    for name, array, old in (("A", a.array, before[0]), ("B", b.array, before[1])):
        if bool((bits(array) != bits(old)).any()):
            problems.append(f"the input {name} was overwritten")
    return Verdict(not problems, verdict.err_scaled_max, verdict.err_fro, "; ".join(problems)), limit


def _case_record(case: Case, verdict: Verdict, limit: float) -> dict[str, Any]:
    worst = verdict.err_scaled_max
    return {
        "shape": [case.shape.m, case.shape.n, case.shape.k],
        "alpha": case.alpha,
        "beta": case.beta,
        "inputs": case.inputs,
        "seed": case.seed,
        "err_scaled_max": None if worst is None else float(f"{worst:.4g}"),
        "gamma": float(f"{limit:.4g}"),
        "passed": verdict.passed,
        "message": verdict.message,
    }


def refusal_cases(kernel: Kernel) -> Iterator[tuple[Case, Verdict]]:
    """That a rung which takes only multiples refuses every other size by its own name, before anything is launched."""
    step = {axis: kernel.multiple_of.get(axis, 1) for axis in "mnk"}
    for axis, size in step.items():
        if size == 1:
            continue
        shape = Shape(**{other: 2 * step[other] + (1 if other == axis else 0) for other in "mnk"})
        message = f"{shape} should be refused: {axis} is not a multiple of {size}"
        try:
            kernel.check(shape)
        except UserError as error:
            message = "" if kernel.id in str(error) and str(getattr(shape, axis)) in str(error) else str(error)
        yield Case(shape, 1.0, 0.0, "refused size", 0), Verdict(not message, None, None, message)


def _exact(
    session: gpu.Session,
    launch: Launcher,
    problem: Problem,
    shape: Shape,
    inputs: list[np.ndarray],
    expected: np.ndarray,
) -> Verdict:
    """Run an operation whose result is exact and compare bit for bit, guards included."""
    arrays = [Guarded(values) for values in inputs]
    out = Guarded(np.full(expected.shape, POISON_BITS[4], np.uint32).view(np.float32))
    launch(Operands(problem, shape, tuple(guarded.array for guarded in arrays), out.array))
    session.sync()
    got = out.array.get()
    wrong = got.view(np.uint32) != expected.view(np.uint32)
    problems = []
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        problems.append(
            f"{int(wrong.sum())} of {got.size} elements are wrong; the first is [{index}] = {got.flat[index]:.9g}, "
            f"expected {expected.flat[index]:.9g}"
        )
    broken = out.broken() + sum(guarded.broken() for guarded in arrays)
    if broken:
        problems.append(f"{broken} elements outside the arrays were overwritten")
    return Verdict(not problems, 0.0 if not wrong.any() else None, None, "; ".join(problems))


def _cases(
    session: gpu.Session, kernel: Kernel, launch: Launcher, seeds: Sequence[int]
) -> Iterator[tuple[Case, Verdict, float]]:
    if kernel.op == "gemm":
        for case in gemm_cases(kernel, seeds):
            verdict, limit = run_case(session, launch, case, kernel.problem)
            yield case, verdict, limit
        for case, verdict in refusal_cases(kernel):
            yield case, verdict, bound(kernel.problem, case.shape.k)
    elif kernel.op in ("vector_add", "ceiling_bytes"):
        for seed in seeds:
            for n in (1, 31, 1023, 4096, 100_003, (1 << 20) + 5):
                shape = Shape(1, n, 1)
                rng = np.random.default_rng([seed, n])
                x, y = rng.standard_normal((2, n), dtype=np.float32)
                special = rng.integers(0, n, 3)
                x[special], y[special[:1]] = (np.inf, 1e-42, 3e38), 3e38
                with np.errstate(over="ignore", invalid="ignore"):
                    if kernel.op == "vector_add":
                        verdict = _exact(session, launch, kernel.problem, shape, [x, y], x + y)
                    else:
                        data = np.concatenate([x, y, x[::-1], y[::-1]])
                        verdict = _exact(session, launch, kernel.problem, shape, [data], data)
                yield Case(shape, 1.0, 0.0, "normal with Inf and subnormals", seed), verdict, 0.0
    elif kernel.op == "ceiling_flops":
        from gemmrepro import ceiling_gate

        for case, verdict in ceiling_gate.cases(session, kernel, launch):
            yield case, verdict, 0.0
    else:
        raise UserError(f"{kernel.id}: operation '{kernel.op}' has no numerical gate; add one to gemmrepro.numeric.")


def judge(session: gpu.Session, loaded: gpu.Loaded, seeds: Sequence[int]) -> dict[str, Any]:
    """The gate's verdict on one loaded binary: an entry of ``toolkits`` in the gate's JSON."""
    kernel = loaded.kernel

    def launch(operands: gpu.Operands) -> None:
        loaded.bind(operands)()

    records, failures = [], []
    try:
        for case, verdict, limit in _cases(session, kernel, launch, seeds):
            records.append(_case_record(case, verdict, limit))
            if not verdict.passed:
                failures.append(f"{case.shape} {case.inputs}: {verdict.message}")
        reason = f"{len(failures)} of {len(records)} cases failed; {failures[0]}" if failures else ""
    except UserError as error:
        # A launch that breaks the GPU's context ends this kernel's gate; that is a verdict too.
        failures.append(str(error))
        reason = str(error)
    return {
        "status": "failed" if failures else "passed",
        "build_key": loaded.build_key,
        "reason": reason,
        "cases": records,
    }


def gate(session: gpu.Session, kernel: Kernel, build: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Judge every toolkit's binary of `kernel` that is in `build`."""
    toolkits: dict[str, Any] = {}
    for toolkit in kernel.toolkits:
        if not (Path(build) / toolkit / f"{kernel.id}.json").is_file():
            continue
        key = gpu.build_record(kernel, build, toolkit)["build_key"]
        try:
            loaded = gpu.Loaded(session, kernel, build, toolkit)
        except UserError as error:
            toolkits[toolkit] = {"status": "not run", "build_key": key, "reason": str(error), "cases": []}
            continue
        toolkits[toolkit] = judge(session, loaded, seeds)
    if not toolkits:
        raise UserError(f"there is no build of {kernel.id} in {build}; run the build stage first.")
    return {"kernel": kernel.id, "gpu": session.gpu.name, "driver": session.gpu.driver, "toolkits": toolkits}


def fresh_seeds(count: int) -> list[int]:
    """`count` seeds nobody could have tuned for; the report records them, so a failure can be run again."""
    return [secrets.randbits(31) for _ in range(count)]


def summary_line(result: dict[str, Any]) -> str:
    """One aligned line a kernel."""
    parts = []
    for toolkit, verdict in result["toolkits"].items():
        errors = [
            (case["err_scaled_max"], case["gamma"]) for case in verdict["cases"] if case["err_scaled_max"] is not None
        ]
        unit = UNIT_ROUNDOFF[registry.kernel(result["kernel"]).dtype_out]
        worst = max((error * unit / (limit + unit * (unit > 2**-24)) for error, limit in errors if limit), default=0.0)
        parts.append(
            f"{toolkit} {verdict['status']:7} {len(verdict['cases']):3} cases, worst {100 * worst:5.1f}% of the bound"
        )
        if verdict["reason"]:
            parts.append(verdict["reason"])
    return f"{result['kernel']:24} " + " | ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.numeric", description=__doc__.split("\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--kernel", help="a kernel id, such as ladder.naive")
    which.add_argument("--family", help="every kernel of a family, in one process")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--seeds", type=int, default=2, help="how many fresh seeds each case is drawn with")
    parser.add_argument("--seed", type=int, action="append", help="a seed to use again, instead of fresh ones")
    parser.add_argument("--out", type=Path, help="where the verdict goes, with --kernel")
    parser.add_argument("--out-dir", type=Path, help="folder for one verdict a kernel, with --family")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        raise UserError("--seeds must be at least 1.")
    if arguments.kernel:
        if not arguments.out:
            raise UserError("--kernel needs --out, the file its verdict goes to.")
        targets = [(registry.kernel(arguments.kernel), arguments.out)]
    else:
        if not arguments.out_dir:
            raise UserError("--family needs --out-dir, the folder the verdicts go to.")
        registry.family(arguments.family)
        targets = [(kernel, arguments.out_dir / f"{kernel.id}.json") for kernel in registry.kernels(arguments.family)]
    session = gpu.open_gpu()
    seeds = arguments.seed or fresh_seeds(arguments.seeds)
    with gpu.exclusive(session):
        for kernel, path in targets:
            result = gate(session, kernel, arguments.build, seeds)
            write_json(path, result)
            print(summary_line(result), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    run_stage(main)

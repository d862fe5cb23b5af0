"""The cases of the GEMM gate: shapes, scalars and distributions of inputs."""

from collections.abc import Callable, Sequence

import numpy as np

from gemmrepro.gates.gate import Case
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def _wide(phi: float) -> Callable[[np.random.Generator, Shape], tuple[np.ndarray, np.ndarray]]:
    """(u - 1/2) exp(phi g), u uniform and g normal: the exponent range of the Ozaki-scheme literature."""

    def draw(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
        def matrix(size: tuple[int, int]) -> np.ndarray:
            return ((rng.random(size) - 0.5) * np.exp(phi * rng.standard_normal(size))).astype(np.float32)

        return matrix((shape.m, shape.k)), matrix((shape.k, shape.n))

    return draw


def _plain(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    return _normal(rng, (shape.m, shape.k)), _normal(rng, (shape.k, shape.n))


def _uniform(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    return rng.random((shape.m, shape.k), dtype=np.float32), rng.random((shape.k, shape.n), dtype=np.float32)


def _scaled(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Rows of A and columns of B scaled by powers of two from 2^-30 to 2^30, which must not change relative errors."""
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
    """The second half of K cancels the first half except for one part in 10^4."""
    a, b = _plain(rng, shape)
    half = shape.k // 2
    if half:
        a[:, half : 2 * half] = a[:, :half]
        b[half : 2 * half] = -b[:half] * np.float32(1 - 1e-4)
    return a, b


def _subnormal(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """A in the subnormal range, B around 1, which exposes flushing of inputs or results to zero."""
    a, b = _plain(rng, shape)
    return (a * np.float32(2.0**-100) * np.float32(2.0**-32)).astype(np.float32), b


def _tiny_products(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Normal inputs whose products are subnormal."""
    a, b = _plain(rng, shape)
    return a * np.float32(2.0**-70), b * np.float32(2.0**-66)


def _overflowing(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Row 0 of A so large that all its products overflow; all of one sign, so that the order does not matter."""
    a, b = np.abs(_plain(rng, shape)[0]) + np.float32(0.5), np.abs(_normal(rng, (shape.k, shape.n))) + np.float32(0.5)
    a[0, :] = np.float32(2.0**127)
    b[:, 0] *= np.float32(4.0)
    b[:, 1:] *= np.float32(2.0**-20)
    return a, b


def _infinite(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Infinities of both signs and NaNs in A and B; each must affect exactly its row or column of C."""
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
"""Inputs whose result must be the exact sum, correctly rounded."""


def _integers(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Integers so small that partial sums of up to 2^17 products are exact in fp32."""
    size_a, size_b = ((shape.m, shape.k), (shape.k, shape.n))
    return rng.integers(-8, 9, size_a).astype(np.float32), rng.integers(-8, 9, size_b).astype(np.float32)


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

UNITS = "unit integers"
"""As EXACT, for sums that are kept in fp16."""


def _units(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """1 and -1: every partial sum of up to 2048 products is an integer that fp16 holds, in any order."""
    return (
        (2 * rng.integers(0, 2, (shape.m, shape.k)) - 1).astype(np.float32),
        (2 * rng.integers(0, 2, (shape.k, shape.n)) - 1).astype(np.float32),
    )


INPUTS[UNITS] = _units

INTEGERS_8 = "8-bit integers"
"""Their whole range; every sum is exact in int32."""

EXTREMES_8 = "extreme 8-bit integers"

SMALLEST = "smallest integers"
"""As EXACT, for 8-bit floats."""


def _small_counts(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """1 and 2, with one sign per row: sums of up to 2048 products are below 2^13 and exceed fp16's exact integers."""
    signs = np.where(rng.random((shape.m, 1)) < 0.5, -1, 1)
    return (
        (signs * rng.integers(1, 3, (shape.m, shape.k))).astype(np.float32),
        rng.integers(1, 3, (shape.k, shape.n)).astype(np.float32),
    )


def _whole_bytes(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    return (
        rng.integers(-128, 128, (shape.m, shape.k)).astype(np.float32),
        rng.integers(-128, 128, (shape.k, shape.n)).astype(np.float32),
    )


def _extreme_bytes(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Every row of A and column of B is constant, -128 or 127, so that sums are as large as possible, of both signs."""
    a = np.where(rng.random((shape.m, 1)) < 0.5, -128, 127) * np.ones((1, shape.k))
    b = np.where(rng.random((1, shape.n)) < 0.5, -128, 127) * np.ones((shape.k, 1))
    return a.astype(np.float32), b.astype(np.float32)


def _bytes_normal(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Normal with a deviation of 32, rounded and clipped to -128 and 127, as in a sweep."""
    a, b = _plain(rng, shape)
    a, b = (np.clip(np.round(values * np.float32(32)), -128, 127) for values in (a, b))
    return a, b


def _bytes_subnormal(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """A mostly in the subnormal range of an 8-bit float with three bits of fraction, B around 1."""
    a, b = _plain(rng, shape)
    return a * np.float32(2.0**-8), b


def _bytes_in_range(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Rows of A and columns of B scaled by powers of two that keep inputs within 8-bit floats and C within fp16."""
    a, b = _plain(rng, shape)
    rows = np.exp2(rng.integers(-3, 4, (shape.m, 1))).astype(np.float32)
    columns = np.exp2(rng.integers(-3, 4, (1, shape.n))).astype(np.float32)
    return np.clip(a, -4, 4) * rows, np.clip(b, -4, 4) * columns


def _bytes_nan(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """NaNs in A and in B; both 8-bit formats have NaN."""
    a, b = _plain(rng, shape)
    a[(shape.m - 1) // 2, 0] = np.nan
    b[shape.k - 1, (shape.n - 1) // 2] = np.nan
    return a, b


INPUTS |= {
    INTEGERS_8: _whole_bytes,
    EXTREMES_8: _extreme_bytes,
    SMALLEST: _small_counts,
    "subnormal A, fp8": _bytes_subnormal,
    "power-of-two rows and columns, fp8": _bytes_in_range,
    "NaN, fp8": _bytes_nan,
    "normal, int8": _bytes_normal,
}

EXACT_INPUTS = {
    **dict.fromkeys(("fp16", "bf16", "tf32", "fp64"), EXACT),
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), SMALLEST),
    "int8": INTEGERS_8,
}
"""Inputs whose result must be exact except for the final rounding, by type."""

EXACT_LAWS = frozenset({*EXACT_INPUTS.values(), UNITS})

EXACT_IN_HALF = 32
"""Products of small integers whose sum fp16 holds: 32 times 8 times 8 is 2048."""


def exact_inputs(kernel: Kernel) -> str | None:
    """Inputs whose result must be exact except for the final rounding; None if the kernel has none."""
    compute = kernel.compute
    if compute.dtype_acc == "fp16" and not 0 < compute.promoted <= EXACT_IN_HALF:
        return UNITS
    return EXACT_INPUTS.get(compute.dtype_in)


def inputs_of(kernel: Kernel) -> list[str]:
    """Inputs of the cases: those that its operands can represent, and of exact ones those that its sums can."""
    exact = exact_inputs(kernel)
    return [exact if exact and name == EXACT else name for name in INPUTS_BY_DTYPE[kernel.compute.dtype_in]]


_FP32_INPUTS = [name for name in INPUTS if not any(word in name for word in ("fp16", "fp8", "int8", "integers"))]
_BF16_INPUTS = [*(name for name in _FP32_INPUTS if name != "subnormal products"), EXACT]

_BEYOND_FP32 = ("subnormal A", "subnormal products", "overflow")
"""Inputs at the limits of fp32's range, which are ordinary numbers in fp64."""

_FP8_INPUTS = [
    *("normal", "uniform", SMALLEST, "power-of-two rows and columns, fp8", "zero rows and columns"),
    *("subnormal A, fp8", "NaN, fp8"),
]

INPUTS_BY_DTYPE = {
    "fp32": _FP32_INPUTS,
    # Tensor cores align sums in their own way; no document specifies products below fp32's normal range.
    "bf16": _BF16_INPUTS,
    # No document specifies whether TF32's subnormals are kept.
    "tf32": [name for name in _BF16_INPUTS if name != "subnormal A"],
    "fp64": [*(name for name in _FP32_INPUTS if name not in _BEYOND_FP32), EXACT],
    "fp8_e4m3": _FP8_INPUTS,
    # e5m2 has infinities.
    "fp8_e5m2": [*_FP8_INPUTS, "Inf and NaN"],
    "int8": [INTEGERS_8, EXTREMES_8, "normal, int8"],
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
"""Inputs of the cases, by operand type: those that the type can represent."""


SCALARS = ((1.0, 0.0), (0.75, -1.5), (-2.0, 1.0), (1.0, 1.0), (0.0, 2.0), (0.3, 0.0))


def gemm_shapes(kernel: Kernel) -> tuple[list[Shape], Shape, Shape]:
    """The shapes a GEMM kernel is judged on: with tails, one for unusual inputs, and one that fills the GPU.
    The first are unequal multiples where the kernel takes no tails; a race shows on the last."""
    step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mnk"}
    if kernel.compute.dtype_in != "fp32" and max(step.values()) <= 16:
        # Tails for tiles of 64 to 256, in the multiples that TMA and 16-byte loads require.
        tails = [(1, 1, 1), (3, 17, 9), (65, 9, 8), (200, 17, 9), (129, 33, 1), (300, 51, 65), (96, 20, 256)]
        shapes = [Shape(-(-m // step["m"]) * step["m"], n * step["n"], k * step["k"]) for m, n, k in tails]
        # The large one has 216 tiles of 128 x 256, so that persistent blocks process more than one tile.
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


def large_cases(kernel: Kernel, seeds: Sequence[int]) -> list[Case]:
    large = gemm_shapes(kernel)[2]
    return [case for case in gemm_cases(kernel, seeds) if case.shape == large]


def gemm_cases(kernel: Kernel, seeds: Sequence[int]) -> list[Case]:
    shapes, middling, large = gemm_shapes(kernel)
    scalars = SCALARS if kernel.scales else SCALARS[:1]
    plain = exact_inputs(kernel) or "normal"
    cases = []
    for seed in seeds:
        for index, shape in enumerate(shapes):
            # Each shape with alpha = 1, beta = 0 and one other pair, cycling through the pairs; one shape with all.
            others = scalars[1:]
            pairs = scalars if index == 1 or not others else (scalars[0], others[index % len(others)])
            cases += [Case(shape, alpha, beta, "normal", seed) for alpha, beta in pairs]
            if plain != "normal":
                cases.append(Case(shape, 1.0, 0.0, plain, seed))
        for name in inputs_of(kernel):
            cases.append(Case(middling, 1.0, 0.0, name, seed))
            scaled = ("uniform", "power-of-two rows and columns", "zero rows and columns", "cancellation")
            if kernel.scales and name in scaled:
                cases.append(Case(middling, 0.75, -1.5, name, seed))
        if kernel.scales and "Inf and NaN" in INPUTS_BY_DTYPE[kernel.compute.dtype_in]:
            # With alpha = 0 BLAS does not read A and B, whatever they hold.
            cases += [
                Case(shape, 0.0, beta, "Inf and NaN", seed) for shape, beta in ((middling, 0.0), (shapes[1], 2.0))
            ]
        for shape in kernel.promises.gate_shapes:
            cases += [Case(shape, 1.0, 0.0, name, seed) for name in dict.fromkeys(("normal", plain))]
        cases.append(Case(large, 1.0, 0.0, "normal", seed))
        cases.append(Case(large, 0.75, -1.5, "uniform", seed) if kernel.scales else Case(large, 1.0, 0.0, plain, seed))
        if kernel.compute.dtype_acc == "fp16":
            cases.append(Case(large, 1.0, 0.0, "uniform", seed))  # long sums of one sign, of which fp16 loses most
    return cases


def deepen(values: np.ndarray, seed: int) -> np.ndarray:
    """float32 `values` as float64 with additional low bits, which expose a kernel that rounds its inputs to fp32."""
    beyond = np.random.default_rng([seed, values.size]).uniform(-1.0, 1.0, values.shape)
    return values.astype(np.float64) * (1.0 + 2.0**-25 * beyond)


def draw(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A[m,k], B[k,n] and C0[m,n] of a case, float32, the same on every machine. C0 is NaN where beta is 0."""
    rng = np.random.default_rng([case.seed, case.shape.m, case.shape.n, case.shape.k])
    a, b = INPUTS[case.inputs](rng, case.shape)
    if case.beta == 0.0:
        c0 = np.full((case.shape.m, case.shape.n), np.nan, np.float32)
    else:
        # C0 has the scale of the product, so that neither dominates.
        with np.errstate(over="ignore"):
            level = np.abs(a).max(axis=1, keepdims=True) * np.abs(b).max(axis=0, keepdims=True)
        c0 = _normal(rng, (case.shape.m, case.shape.n)) * np.where(np.isfinite(level), level, 1.0).astype(np.float32)
    return np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32), np.ascontiguousarray(c0)

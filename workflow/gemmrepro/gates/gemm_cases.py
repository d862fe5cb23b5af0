"""What a GEMM kernel is judged on: its shapes, its scalars and the distributions of its inputs."""

from __future__ import annotations

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

INTEGERS_8 = "8-bit integers"
"""Their whole range; every sum is exact in int32."""

EXTREMES_8 = "extreme 8-bit integers"

SMALLEST = "smallest integers"
"""As EXACT, for 8-bit floats."""


def _small_counts(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """1 and 2, a sign a row: sums of up to 2048 products stay within 2^13, and grow beyond what fp16 would keep."""
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
    """Rows and columns of -128 or 127 throughout, so that sums are the largest there are, of either sign."""
    a = np.where(rng.random((shape.m, 1)) < 0.5, -128, 127) * np.ones((1, shape.k))
    b = np.where(rng.random((1, shape.n)) < 0.5, -128, 127) * np.ones((shape.k, 1))
    return a.astype(np.float32), b.astype(np.float32)


def _bytes_normal(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Normal with a deviation of 32, rounded, -128 and 127 at the ends: what a sweep multiplies."""
    a, b = _plain(rng, shape)
    a, b = (np.clip(np.round(values * np.float32(32)), -128, 127) for values in (a, b))
    return a, b


def _bytes_subnormal(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """A mostly in the subnormal range of an 8-bit float with three bits of fraction, B around 1."""
    a, b = _plain(rng, shape)
    return a * np.float32(2.0**-8), b


def _bytes_in_range(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Rows of A and columns of B times powers of two that keep all within 8-bit floats and C within fp16."""
    a, b = _plain(rng, shape)
    rows = np.exp2(rng.integers(-3, 4, (shape.m, 1))).astype(np.float32)
    columns = np.exp2(rng.integers(-3, 4, (1, shape.n))).astype(np.float32)
    return np.clip(a, -4, 4) * rows, np.clip(b, -4, 4) * columns


def _bytes_nan(rng: np.random.Generator, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """NaNs, which every 8-bit float has, in A and in B."""
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
"""The inputs whose result must be exact but for its last rounding, by type."""

_FP32_INPUTS = [name for name in INPUTS if not any(word in name for word in ("fp16", "fp8", "int8", "integers"))]
_BF16_INPUTS = [*(name for name in _FP32_INPUTS if name != "subnormal products"), EXACT]

_BEYOND_FP32 = ("subnormal A", "subnormal products", "overflow")
"""Inputs at the ends of fp32's range, which are nothing special to fp64."""

_FP8_INPUTS = [
    *("normal", "uniform", SMALLEST, "power-of-two rows and columns, fp8", "zero rows and columns"),
    *("subnormal A, fp8", "NaN, fp8"),
]

INPUTS_BY_DTYPE = {
    "fp32": _FP32_INPUTS,
    # Tensor cores add within their own alignment: products below fp32's normal range are not promised anywhere.
    "bf16": _BF16_INPUTS,
    # Whether TF32's subnormals are kept is said nowhere.
    "tf32": [name for name in _BF16_INPUTS if name != "subnormal A"],
    "fp64": [*(name for name in _FP32_INPUTS if name not in _BEYOND_FP32), EXACT],
    "fp8_e4m3": _FP8_INPUTS,
    # Its infinities too.
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
"""The inputs that a kernel is judged on, by the type of its operands: those that the type can hold."""


SCALARS = ((1.0, 0.0), (0.75, -1.5), (-2.0, 1.0), (1.0, 1.0), (0.0, 2.0), (0.3, 0.0))


def gemm_shapes(kernel: Kernel) -> tuple[list[Shape], Shape, Shape]:
    """The shapes a GEMM kernel is judged on.

    Returns:
        (shapes with tails, or of unequal multiples where the kernel takes no tails; one middling shape for the unusual
        inputs; one large enough to fill the GPU, where a race shows).
    """
    step = {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "mnk"}
    if kernel.compute.dtype_in != "fp32" and max(step.values()) <= 16:
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


def large_cases(kernel: Kernel, seeds: Sequence[int]) -> list[Case]:
    """Those cases of a GEMM kernel that fill the GPU."""
    large = gemm_shapes(kernel)[2]
    return [case for case in gemm_cases(kernel, seeds) if case.shape == large]


def gemm_cases(kernel: Kernel, seeds: Sequence[int]) -> list[Case]:
    """Every case of a GEMM kernel for each of `seeds`."""
    shapes, middling, large = gemm_shapes(kernel)
    scalars = SCALARS if kernel.scales else SCALARS[:1]
    plain = EXACT_INPUTS.get(kernel.compute.dtype_in, "normal")
    cases = []
    for seed in seeds:
        for index, shape in enumerate(shapes):
            # Each shape with alpha = 1, beta = 0 and with one other pair in turn; one shape with all of them.
            others = scalars[1:]
            pairs = scalars if index == 1 or not others else (scalars[0], others[index % len(others)])
            cases += [Case(shape, alpha, beta, "normal", seed) for alpha, beta in pairs]
            if plain != "normal":
                cases.append(Case(shape, 1.0, 0.0, plain, seed))
        for name in INPUTS_BY_DTYPE[kernel.compute.dtype_in]:
            cases.append(Case(middling, 1.0, 0.0, name, seed))
            scaled = ("uniform", "power-of-two rows and columns", "zero rows and columns", "cancellation")
            if kernel.scales and name in scaled:
                cases.append(Case(middling, 0.75, -1.5, name, seed))
        for shape in kernel.promises.gate_shapes:
            cases += [Case(shape, 1.0, 0.0, name, seed) for name in dict.fromkeys(("normal", plain))]
        cases.append(Case(large, 1.0, 0.0, "normal", seed))
        cases.append(Case(large, 0.75, -1.5, "uniform", seed) if kernel.scales else Case(large, 1.0, 0.0, plain, seed))
    return cases


def deepen(values: np.ndarray, seed: int) -> np.ndarray:
    """float32 `values` as float64 with bits beyond fp32's: what a kernel that rounds its inputs to fp32 loses."""
    beyond = np.random.default_rng([seed, values.size]).uniform(-1.0, 1.0, values.shape)
    return values.astype(np.float64) * (1.0 + 2.0**-25 * beyond)


def draw(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A[m,k], B[k,n] and C0[m,n] of a case, float32, the same on every machine. C0 is NaN where beta is 0."""
    rng = np.random.default_rng([case.seed, case.shape.m, case.shape.n, case.shape.k])
    a, b = INPUTS[case.inputs](rng, case.shape)
    if case.beta == 0.0:
        c0 = np.full((case.shape.m, case.shape.n), np.nan, np.float32)
    else:
        # The scale of C0 follows that of the product, so that neither drowns the other.
        with np.errstate(over="ignore"):
            level = np.abs(a).max(axis=1, keepdims=True) * np.abs(b).max(axis=0, keepdims=True)
        c0 = _normal(rng, (case.shape.m, case.shape.n)) * np.where(np.isfinite(level), level, 1.0).astype(np.float32)
    return np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32), np.ascontiguousarray(c0)

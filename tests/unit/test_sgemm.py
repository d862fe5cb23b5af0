"""The family sgemm: its sources on the CPU, launch after launch, against float64 and the bounds that they state.

The model (staged.py) lets copies, products and threads come in any order that PTX allows; planted bugs must show. It
rounds sums to nearest where tensor cores cut them off; of those the numerical gate judges the real ones.
"""

import shutil

import hopper_grid
import numpy as np
import pytest
import staged

from gemmrepro import registry
from gemmrepro.gates import bounds
from gemmrepro.gates.gate import Case, compare, reference_gemm
from gemmrepro.gates.gemm_cases import draw
from gemmrepro.operations import Problem, Shape

KERNELS = registry.kernels("sgemm")
RINGS = [kernel for kernel in KERNELS if kernel.name not in ("bf16_x9", "remainders_7")]
"""One of those that share a source and a ring."""
REMAINDERS = KERNELS[4:]

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")


def by_id(kernel: registry.Kernel) -> str:
    return kernel.name


def verdict(kernel: registry.Kernel, c: np.ndarray, a: np.ndarray, b: np.ndarray, **scalars) -> str:
    """What the numerical gate says of a result; "" if it is right. Lines with Inf or NaN must be NaN."""
    alpha, beta, c0 = scalars.get("alpha", 1.0), scalars.get("beta", 0.0), scalars.get("c0")
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    reference, scale = reference_gemm(wide_a, wide_b, alpha, beta, c0)
    spoiled = ~np.isfinite(wide_a).all(axis=1)[:, None] | ~np.isfinite(wide_b).all(axis=0)[None, :]
    reference = np.where(spoiled, np.nan, reference)
    k = a.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        scheme = abs(alpha) * kernel.promises.error(wide_a, wide_b, np) if alpha else 0.0
    limit, under = bounds.bound(Problem(), k), bounds.underflow_allowance(k, alpha)
    return compare(c, reference, scale, limit, scheme=scheme, underflow=under).message


LAWS = (
    *("normal", "uniform", "wide exponents, phi = 2", "wide exponents, phi = 4", "power-of-two rows and columns"),
    *("zero rows and columns", "cancellation", "subnormal A", "subnormal products", "overflow", "Inf and NaN"),
)


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=by_id)
def test_every_law_of_the_gate_is_within_the_stated_bound(kernel: registry.Kernel) -> None:
    for number, law in enumerate(LAWS):
        a, b, _ = draw(Case(Shape(17, 40, 75), 1.0, 0.0, law, number))
        c = staged.Sgemm(kernel).run(a, b, seed=number % 4)[0]
        assert verdict(kernel, c, a, b) == "", law


@needs_compiler
@pytest.mark.parametrize("kernel", RINGS, ids=by_id)
def test_every_order_gives_the_product(kernel: registry.Kernel) -> None:
    """Several tiles a block, tails, more steps than the ring has and fewer; integers come out exact."""
    rng = np.random.default_rng(3)
    rows = 100 if kernel in REMAINDERS else 140  # a row of tiles for each modulus, or two
    for (m, n, k), seeds in (((rows, 200, 150), 4), ((260, 8, 33), 1), ((1, 1, 1), 1)):
        a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        for seed in range(seeds):
            c = staged.Sgemm(kernel).run(a, b, seed=seed)[0]
            assert (c == a.astype(np.float64) @ b.astype(np.float64)).all(), (m, n, k, seed)


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=by_id)
def test_views_and_scalars(kernel: registry.Kernel) -> None:
    """Either operand by columns, lines longer than they need be, alpha and beta; nothing beyond C is written."""
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((45, 37), (37, 51)))
    c0 = rng.standard_normal((45, 51)).astype(np.float32)
    for case, (by_columns, padding) in enumerate(
        (((True, False), (3, 1, 0)), ((False, True), (1, 2, 5)), ((True, True), (0, 0, 3)))
    ):
        alpha, beta = ((0.75, -1.5), (-2.0, 1.0), (0.0, 2.0))[case]
        c, beyond, *_ = staged.Sgemm(kernel).run(a, b, alpha, beta, c0, by_columns, padding)
        assert verdict(kernel, c, a, b, alpha=alpha, beta=beta, c0=c0) == "" and np.isnan(beyond).all()
    spoiled = a.copy()
    spoiled[3, 2] = np.inf
    found = staged.Sgemm(kernel).run(spoiled, b, 0.0, 2.0, c0)[0]
    assert verdict(kernel, found, spoiled, b, alpha=0.0, beta=2.0, c0=c0) == "", "with alpha = 0 A counts all the same"


# What a plant breaks: (kernel, what, pattern, replacement).
FREED = r"wgmma_wait<1>\(\);\s+release\(slot \+ SLICES - 2\)"
SUM = r"Word t = __dp4a\(static_cast<Word>\(sum\)"
SHORT_SUM = "Word t = __dp4a(static_cast<Word>(sum & 0xFFFF)"
PLANTS = [
    ("tf32_x3", "small slices freed while they are multiplied", FREED, "release(slot)"),
    ("tf32_x3", "a step's sum goes on", r"i < SLICES - 1 \|\| j < min\(i, CUT - i\)", "true"),
    ("bf16_x6", "the next slice of A begins too early", r"slice \* m \+", "slice * (m - 1) +"),
    ("tf32", "no wait for an empty slot", r"barrier_wait\(&shared\.empty\[slot\], parity \^ 1\);", ""),
    ("remainders_7", "the upper half of a sum lost", SUM, SHORT_SUM),
]


@needs_compiler
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant[0]}-{plant[1]}")
def test_a_planted_bug_shows(plant: tuple[str, str, str, str]) -> None:
    name, what, pattern, replacement = plant
    kernel = registry.kernel(f"sgemm.{name}")
    planted = hopper_grid.with_plant(staged.source_text(kernel), pattern, replacement)
    device = staged.Sgemm(kernel, planted)
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((130, 290), (290, 200)))
    for seed in range(12):
        try:
            if verdict(kernel, device.run(a, b, seed=seed)[0], a, b):
                return
        except hopper_grid.Broken:
            return
    pytest.fail(what)

"""The accuracy of FP64 products: cuBLAS's DGEMM and scheme II with 14 to 16 moduli, by exponent range and by size.

Every output of a few rows of C is compared with the product in double-double (`gemmrepro.ozaki.exact`), whose error is
about k 2^-104 |A||B|. The difference is divided by |A||B|, the sum of the products' magnitudes, and given in units of
u = 2^-53. A DGEMM rounds its sums k times; scheme II rounds A, B and the result: what do the first two cost?
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gemmrepro.experiments import Column, Experiment, Lines
from gemmrepro.ozaki import exact

DGEMM, EMULATED = "cublas.gemm", "cublas.gemm_emulated"
KERNELS = ("crt.fused_14", "crt.fused", "crt.fused_16", "crt.ping_pong", "crt.winograd_16", "crt.accurate")
LAWS = {
    "normal": "N(0, 1)",
    "phi 0": "(u - ½) exp(φ g), φ = 0",
    "phi 0.5": "φ = 0.5",
    "phi 1": "φ = 1",
    "phi 2": "φ = 2",
}
"""Distributions of the elements: u uniform in [0, 1), g normal."""


def draw(law: str, n: int, seed: int, xp: Any) -> tuple[Any, Any]:
    """A and B, float64 [n, n], of `law`; `xp` is NumPy or CuPy."""
    # Every point has its own numbers, independent of what else is measured and in which order.
    rng = xp.random.default_rng(int(hashlib.sha256(f"{law} {n} {seed}".encode()).hexdigest()[:8], 16))
    if law == "normal":
        return rng.standard_normal((n, n)), rng.standard_normal((n, n))
    phi = float(law.split()[1])

    def matrix() -> Any:
        values = rng.random((n, n))
        values -= 0.5
        values *= xp.exp(phi * rng.standard_normal((n, n)))
        return values

    return matrix(), matrix()


def errors(c: Any, high: Any, low: Any, scale: Any) -> dict[str, float]:
    """Largest and root-mean-square |C - C*| / |A||B| in u, and the Frobenius norm of C - C* over that of C* in u."""
    difference = exact.minus_double_double(c, high, low)
    ratio = difference / scale / exact.UNIT
    return {
        "max_u": float(ratio.max()),
        "rms_u": float((ratio * ratio).mean() ** 0.5),
        "fro_u": exact.frobenius(difference, high) / exact.UNIT,
    }


def _points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"law": law, "n": n} for law in parameters["laws"] for n in parameters["sizes"]]


def _measure(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.operands import Operands
    from gemmrepro.operations import Problem, Shape

    n = point["n"]
    a, b = draw(point["law"], n, context.parameters["seed"], cupy)
    # The first and the last row, and others between.
    rows = np.unique(np.linspace(0, n - 1, context.parameters["rows"]).astype(int))
    some = cupy.ascontiguousarray(a[rows])
    high, low = exact.product_double_double(some, b)
    scale = cupy.abs(some) @ cupy.abs(b)
    problem = Problem("gemm", "fp64", "fp64", "row,row,row")
    for subject in context.subjects:
        c = cupy.full((n, n), cupy.nan)
        context.bind(subject, Operands(problem, Shape.cube(n), (a.ravel(), b.ravel()), c.ravel()))()
        context.session.sync()
        yield context.row(subject, law=point["law"], n=n, **errors(c[rows], high, low, scale))
        del c


_SERIES = {
    DGEMM: "cuBLAS FP64",
    EMULATED: "cuBLAS emulated",
    "crt.fused_14": "14 moduli",
    "crt.fused": "15 moduli",
    "crt.fused_16": "16 moduli",
    "crt.winograd_16": "16 moduli Winograd",
    "crt.accurate": "15 moduli accurate",
}


def _holds(errors: Any) -> str:
    """Up to which spread of exponents 15 moduli err no more than DGEMM."""
    both = errors[["15 moduli", _SERIES[DGEMM]]].dropna()
    fine = (both["15 moduli"] <= both[_SERIES[DGEMM]]).cumprod().astype(bool)
    last = both.index.get_level_values("x")[fine]
    return f"15 moduli err no more than DGEMM up to φ = {last.max():g}" if len(last) and not fine.all() else ""


EXPERIMENTS = (
    Experiment(
        name="accuracy",
        title="Error compared with DGEMM",
        question="How many moduli does scheme II need to be as accurate as cuBLAS's DGEMM, by exponent range and size?",
        kernels=KERNELS,
        libraries=(DGEMM, EMULATED),
        columns=(
            Column("law", "distribution of the elements of A and B", kind="text"),
            Column("n", "m = n = k", kind="integer"),
            Column("max_u", "largest |C - C*| / (|A||B|)", "2^-53"),
            Column("rms_u", "root mean square of that ratio", "2^-53"),
            Column("fro_u", "Frobenius norm of C - C* over that of C*", "2^-53"),
        ),
        points=_points,
        measure=_measure,
        parameters={"laws": list(LAWS), "sizes": [1024, 4096, 8192, 16384], "rows": 16, "seed": 1},
        figures=(
            Lines(
                name="accuracy",
                title="Largest error of any element of C",
                x="law",
                x_label="φ",
                x_scale="linear",
                places={f"phi {phi}": float(phi) for phi in ("0", "0.5", "1", "2")},
                y="max_u",
                y_label="error in 2⁻⁵³ |A||B|",
                panel="n",
                panels={16384: "n = 16384"},
                series=_SERIES,
                reference=_SERIES[DGEMM],
                says=_holds,
                caption=(
                    "The largest error of 16 rows of C at 16384, against the product in double-double. Elements are "
                    "(u - ½) exp(φ g), so that exponents spread with φ."
                ),
            ),
        ),
    ),
)

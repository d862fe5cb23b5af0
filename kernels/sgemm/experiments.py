"""The error laws of FP32 products: over the exponent spread phi and over K, against float64; and cuBLAS's own modes.

`accuracy` multiplies [m, k] by [k, n] of one distribution. C* is the product in float64, whose error is 2^-29 of an
fp32's. The difference is divided by |A||B|, the sum of the products' magnitudes, and given in units of u = 2^-24. An
SGEMM rounds its sums k times; slices round every step, remainders once: who errs more, and from which phi and k on?

`modes` times the whole product at a few sizes beside cuBLAS's SGEMM, its emulation by nine bf16 products and its TF32.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.experiments import Column, Dots, Experiment, listed

SGEMM, EMULATED, TF32 = "cublas.sgemm", "cublas.sgemm_emulated", "cublas.sgemm_tf32"
LIBRARIES = (SGEMM, EMULATED, TF32)
KERNELS = (
    *("sgemm.tf32", "sgemm.tf32_x3", "sgemm.bf16_x6", "sgemm.bf16_x9"),
    *("sgemm.remainders", "sgemm.remainders_7"),
)
UNIT = 2.0**-24
LAWS = {
    "uniform": "u, of one sign",
    "phi 0": "(u - ½) exp(φ g), φ = 0",
    "phi 1": "φ = 1",
    "phi 2": "φ = 2",
    "phi 4": "φ = 4",
}
"""Distributions of the elements: u uniform in [0, 1), g normal."""


def draw(law: str, shape: tuple[int, int], rng: Any, xp: Any) -> Any:
    """A matrix of `law`, float32; `xp` is NumPy or CuPy, `rng` its generator."""
    values = rng.random(shape)
    if law != "uniform":
        values = (values - 0.5) * xp.exp(float(law.split()[1]) * rng.standard_normal(shape))
    return values.astype(xp.float32)


def errors(c: Any, exact: Any, scale: Any, xp: Any) -> dict[str, float]:
    """Largest and root-mean-square |C - C*| / |A||B|, and the mean of its signed value, in u."""
    ratio = (c.astype(xp.float64) - exact) / scale / UNIT
    return {
        "max_u": float(xp.abs(ratio).max()),
        "rms_u": math.sqrt(float((ratio * ratio).mean())),
        "bias_u": float((ratio * xp.sign(exact)).mean()),
    }


def _seed(*parts: Any) -> int:
    """Every point has its own numbers, independent of what else is measured and in which order."""
    return int(hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:8], 16)


def _calls(context: Any, operands: Any) -> Iterator[tuple[Any, Any]]:
    """(subject, its call on `operands`) of all that can multiply them: not every cuBLAS emulates."""
    for subject in context.subjects:
        try:
            call = context.bind(subject, operands)
            call()
        except UserError as error:
            context.leave_out(subject, str(error))
        else:
            yield subject, call


def _accuracy_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"law": law, "k": k} for law in parameters["laws"] for k in parameters["ks"]]


def _accuracy(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.operands import Operands
    from gemmrepro.operations import Problem, Shape

    law, k = point["law"], point["k"]
    m, n = context.parameters["m"], context.parameters["n"]
    rng = cupy.random.default_rng(_seed(law, k, context.parameters["seed"]))
    a, b = draw(law, (m, k), rng, cupy), draw(law, (k, n), rng, cupy)
    wide_a, wide_b = a.astype(cupy.float64), b.astype(cupy.float64)
    exact, scale = wide_a @ wide_b, cupy.abs(wide_a) @ cupy.abs(wide_b)
    c = cupy.empty((m, n), cupy.float32)
    for subject, _ in _calls(context, Operands(Problem(), Shape(m, n, k), (a.ravel(), b.ravel()), c.ravel())):
        context.session.sync()
        yield context.row(subject, law=law, k=k, **errors(c, exact, scale, cupy))
        c.fill(cupy.nan)


def _mode_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"n": n} for n in parameters["ns"]]


def _modes(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    from gemmrepro import timing
    from gemmrepro.operands import Operands, random
    from gemmrepro.operations import Problem, Shape

    n, repeats = point["n"], context.settings["repeats"]
    inputs, output = random(Problem(), Shape.cube(n), _seed("modes", n))
    operands = Operands(Problem(), Shape.cube(n), tuple(inputs), output)
    timer = timing.Timer(context.session)
    calls = dict(_calls(context, operands))
    taken: dict[Any, list[float]] = {subject: [] for subject in calls}
    for _ in range(repeats):  # in turn, so that drift of the clock affects all alike
        for subject, call in calls.items():
            taken[subject].append(timer.once(call))
    for subject, times in taken.items():
        middle = sorted(times)[len(times) // 2]
        yield context.row(subject, n=n, us=middle, tflops=2.0 * n**3 / middle * 1e-6)


_SERIES = {
    SGEMM: "cuBLAS FP32",
    EMULATED: "cuBLAS emulated",
    "sgemm.tf32_x3": "three TF32",
    "sgemm.bf16_x6": "six bf16",
    "sgemm.bf16_x9": "nine bf16",
    "sgemm.remainders": "8 moduli",
    "sgemm.remainders_7": "7 moduli",
}


def _keeps(errors: Any) -> str:
    """What stays below 100 units with all operands, and what does not."""
    fine, lost = (list(errors[part].index) for part in (errors.le(100).all(axis=1), errors.gt(100).any(axis=1)))
    where = "all" if errors.loc[lost].gt(100).all(axis=None) else "some"
    said = f"On {where} of these operands {listed(lost)} errs by more than 100 units, and nothing else does"
    return said if fine and lost else ""


EXPERIMENTS = (
    Experiment(
        name="accuracy",
        title="Error compared with SGEMM",
        question="Which products err less than cuBLAS's SGEMM, by exponent spread and K?",
        kernels=KERNELS,
        libraries=LIBRARIES,
        columns=(
            Column("law", "distribution of the elements of A and B", kind="text"),
            Column("k", "products per sum", kind="integer"),
            Column("max_u", "largest |C - C*| / (|A||B|)", "2^-24"),
            Column("rms_u", "root mean square of that ratio", "2^-24"),
            Column("bias_u", "mean of (|C| - |C*|) / (|A||B|): below 0 where sums are cut off", "2^-24"),
        ),
        points=_accuracy_points,
        measure=_accuracy,
        parameters={"laws": list(LAWS), "ks": [256, 1024, 4096, 16384], "m": 512, "n": 512, "seed": 1},
        figures=(
            Dots(
                name="accuracy",
                title="Largest error of any element of C",
                x="max_u",
                x_label="largest error, in 2⁻²⁴ |A||B|",
                panel="law",
                panels=LAWS,
                category="kernel",
                categories={"sgemm.tf32": "one TF32", **_SERIES},
                where={"k": 16384},
                fair=(0, 100),
                says=_keeps,
                caption=(
                    "512 rows and columns of C of K = 16384, compared with the product in float64; elements are u, or "
                    "(u - ½) exp(φ g), so that exponents spread with φ. In units of 2⁻²⁴ |A||B|; red: above 100."
                ),
            ),
        ),
    ),
    Experiment(
        name="modes",
        title="cuBLAS's own modes",
        question="What do cuBLAS's emulation of FP32 and its TF32 take beside SGEMM and the products here?",
        kernels=KERNELS,
        libraries=LIBRARIES,
        columns=(
            Column("n", "m = n = k", kind="integer"),
            Column("us", "median time of one product, all launches", "µs"),
            Column("tflops", "2 n^3 divided by that time", "TFLOP/s"),
        ),
        points=_mode_points,
        measure=_modes,
        follows={"tflops": lambda row: 2e-6 * row["n"] ** 3 / row["us"]},
        parameters={"ns": [4096, 8192]},
        settings={"repeats": 15},
    ),
)

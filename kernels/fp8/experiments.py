"""What sums of 8-bit floats lose in Hopper's tensor core, by K and by how often they are added to fp32 ones.

The model of the unit: it aligns a sum and 32 products to the largest of them, cuts each off 2^-13 below it, and adds
what is left exactly (as DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.5.2, describes the
H800). Of normal operands a sum grows as sqrt(K), and so does what each product loses, at random: an error relative to C
that grows about as K^0.6. Of operands of one sign everything is lost in one direction and grows as K. Added to an fp32
sum every 128 of K, neither grows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gemmrepro.core import dtypes
from gemmrepro.experiments import Column, Experiment, beside, with_interval

KEPT_BITS = 13
"""Bits of a sum that the model keeps below its largest term's leading one."""
AT_ONCE = 32
"""Products that one instruction adds."""
NEVER = 0
EVERY = {"fp8.fast": NEVER, "fp8.by_size": 128, "cublas.gemm": 128, "cublas.gemm_fast": NEVER}
"""Products along K after which a sum is promoted; of cublasLt's accurate mode it is the model's guess."""
PROMOTED = "fp8.promoted"
"""The kernel that takes the number of steps of 128 as its last argument."""
SOME = (16, 64)
"""Rows and columns of C for which the model is evaluated."""
RELEASES = "releases.py"
BEST = (
    *("hopper.by_energy", "hopper.stream_k", "fp8.fast", "fp8.by_size", "fp8.scaled_bulk"),
    *("crt.two_widths", "crt.first_wave", "sgemm.tf32_x3", "sgemm.remainders", "ladder.cut"),
)
"""The kernels that `releases` times, those that lead in their type."""


def draw(law: str, rows: int, k: int, seed: int) -> tuple[Any, Any]:
    """Codes of e4m3 of A and B, both [rows, k], of N(0, 1) ("normal") or of [0, 1) ("uniform")."""
    rng = np.random.default_rng(int(hashlib.sha256(f"{law} {k} {seed}".encode()).hexdigest()[:8], 16))
    drawn = [rng.random((rows, k)) if law == "uniform" else rng.standard_normal((rows, k)) for _ in "ab"]
    a, b = (dtypes.narrow(values.astype(np.float32), "fp8_e4m3") for values in drawn)
    return a, b


def modelled(a: Any, b: Any, every: int) -> Any:
    """C [m, n] of A [m, k] and B [n, k], float64, as the model adds it; promoted every `every` of K, 0: never."""
    total, held = np.zeros((len(a), len(b)), np.float32), np.zeros((len(a), len(b)))
    for start in range(0, a.shape[1], AT_ONCE):
        products = a[:, None, start : start + AT_ONCE] * b[None, :, start : start + AT_ONCE]
        largest = np.maximum(abs(held), abs(products).max(axis=2))
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 1 - KEPT_BITS)
        held = (np.trunc(held / unit) + np.trunc(products / unit[:, :, None]).sum(axis=2)) * unit
        if every and (start + AT_ONCE) % every == 0:
            total, held = total + held.astype(np.float32), np.zeros_like(held)
    return (total + held.astype(np.float32)).astype(np.float64)


def errors(c: Any, exact: Any, scale: Any) -> dict[str, float]:
    """Of C against the exact product and |A||B|: relative Frobenius norm, largest error, and its mean."""
    difference = (c - exact) / scale
    return {
        "fro": float(np.linalg.norm(c - exact) / np.linalg.norm(exact)),
        "largest": float(abs(difference).max()),
        "mean": float(difference.mean()),
    }


def _points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"law": law, "k": k} for law in parameters["laws"] for k in parameters["ks"]]


def _measure(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.operands import Operands
    from gemmrepro.operations import Problem, Shape

    rows, k = context.parameters["rows"], point["k"]
    a, b = draw(point["law"], rows, k, context.parameters["seed"])
    wide_a, wide_b = dtypes.widen(a, "fp8_e4m3"), dtypes.widen(b, "fp8_e4m3")
    exact, scale = wide_a @ wide_b.T, abs(wide_a) @ abs(wide_b).T
    part = np.s_[: SOME[0], : SOME[1]]
    c = cupy.empty(rows * rows, cupy.float16)
    operands = Operands(
        Problem("gemm", "fp8_e4m3", "fp16", "row,col,row"),
        Shape(rows, rows, k),
        (cupy.asarray(a.ravel()), cupy.asarray(b.ravel())),
        c,
    )
    for subject in context.subjects:
        calls = {EVERY.get(subject.kernel): lambda subject=subject: context.bind(subject, operands)}
        if subject.kernel == PROMOTED:
            kernel, loaded = context.kernel(subject), context.loaded(subject)
            arguments = [(*kernel.call.arguments[:-1], steps) for steps in context.parameters["steps"]]
            calls = {
                128 * each[-1]: lambda each=each, kernel=kernel, loaded=loaded: loaded.bind(
                    operands, kernel.with_call(arguments=each)
                )
                for each in arguments
            }
        for every, bind in calls.items():
            c[...] = cupy.nan
            bind()()
            context.session.sync()
            got = c.get().reshape(rows, rows).astype(np.float64)
            model = modelled(wide_a[: SOME[0]], wide_b[: SOME[1]], every).astype(np.float16).astype(np.float64)
            expected = errors(model, exact[part], scale[part])
            yield context.row(
                subject,
                law=point["law"],
                k=k,
                every=every,
                **errors(got, exact, scale),
                model=expected["fro"],
                model_mean=expected["mean"],
            )


EXPERIMENTS = (
    Experiment(
        name="sums",
        title="What sums lose in the tensor core",
        question="How does the error of C grow with K, by how often sums are added to fp32 ones?",
        kernels=("fp8.fast", PROMOTED, "fp8.by_size"),
        libraries=("cublas.gemm", "cublas.gemm_fast"),
        columns=(
            Column("law", "distribution of the elements of A and B", kind="text"),
            Column("k", "K; m = n = 256", kind="integer"),
            Column("every", "products along K after which a sum is added to an fp32 one; 0: never", kind="integer"),
            Column("fro", "Frobenius norm of C - C* over that of C*"),
            Column("largest", "largest |C - C*| / (|A||B|)"),
            Column("mean", "mean of (C - C*) / (|A||B|)"),
            Column("model", "the first of these as the model of the unit has it, of 16 x 64 elements of C"),
            Column("model_mean", "the third, likewise"),
        ),
        points=_points,
        measure=_measure,
        parameters={
            "laws": ["normal", "uniform"],
            "ks": [128, 512, 1024, 2048, 4096, 8192, 16384, 32768],
            "steps": [1, 2, 4],
            "rows": 256,
            "seed": 1,
        },
    ),
    Experiment(
        name="releases",
        title="Releases of cuBLAS",
        question="Do the ratios of the best kernels hold beside another release of cuBLAS, and are its products right?",
        kernels=BEST,
        columns=(
            Column("n", "M = N = K", kind="integer"),
            Column("release", "of cuBLAS", kind="text"),
            Column("time_us", "the kernel's time, in blocks on a hot GPU", "µs"),
            Column("library_us", "that of the library", "µs"),
            *with_interval(
                Column("times", "time of the library over the kernel's", low="times_low", high="times_high")
            ),
            Column("library_error", "Frobenius norm of C - C* over that of C*, of the library's product"),
            Column("repeats", "1 if the library's second product has the bits of its first, else 0", kind="integer"),
            Column("wrong", "what is wrong with either product", kind="text"),
        ),
        points=lambda parameters: [{"n": n} for n in parameters["ns"]],
        measure=lambda context, point: beside("fp8", RELEASES).measure(context, point),
        sources=(RELEASES,),
        parameters={"ns": [4096, 8192], "seed": 1},
        settings={"folder": "", "heat": 0.4, "seconds": 0.4, "pairs": 2},
    ),
)

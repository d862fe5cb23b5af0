"""Where a dot product's running sum is kept, and how that affects its error.

`accumulation` multiplies matrices of 2048 x K by K x 2048 and compares every output with the exact one. The reference
is a float64 product: products of fp16 numbers are exact in it, and its own rounding error stays, in any order of
summation, below K 2^-53 |A||B|, which for K = 65536 is a ten-thousandth of the unit u = 2^-24 of the errors.

`half_accumulation` does the same for sums that the instruction keeps in fp16, with the author's kernels 3.2 to 3.4.

`alignment` has the tensor cores compute sums whose terms differ by chosen powers of two, and reads off how many bits
below the largest term still count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from gemmrepro.experiments import Column, Dots, Experiment, Lines

UNIT = 2.0**-24
"""fp32's unit roundoff."""
LARGEST_INTEGER = 60
"""Sums of products of integers up to this are exact in fp32, below 2^24, for K = 16384, and are not for 32768."""
CHUNK = 4096
"""How much of K the float64 reference takes at a time."""

INSIDE, OUTSIDE, OUTSIDE4 = "ada.accumulate_inside", "ada.accumulate_outside", "ada.accumulate_outside4"
COMPENSATED, FFMA = "ada.accumulate_compensated", "ada.accumulate_ffma"
SINGLE, HALF_EACH, HALF_STEPS, HALF = "ada.packed_4x", "ada.half_each", "ada.half_steps", "ada.half"
CUBLAS, WGMMA = "cublas.gemm", "hopper.wgmma_fp16"

# Inputs ---------------------------------------------------------------------------------------------------------------


def _normal(rng: Any, xp: Any, rows: int, k: int) -> Any:
    return rng.standard_normal((rows, k), dtype=xp.float32)


def _uniform(rng: Any, xp: Any, rows: int, k: int) -> Any:
    return rng.random((rows, k), dtype=xp.float32)


def _wide(phi: float, scale: float) -> Any:
    """(u - 1/2) exp(phi g), u uniform and g normal; `scale` keeps the largest within fp16."""

    def draw(rng: Any, xp: Any, rows: int, k: int) -> Any:
        values = rng.random((rows, k), dtype=xp.float32)
        values -= xp.float32(0.5)
        values *= xp.exp(xp.float32(phi) * rng.standard_normal((rows, k), dtype=xp.float32))
        values *= xp.float32(scale)
        return values

    return draw


def _integers(rng: Any, xp: Any, rows: int, k: int) -> Any:
    return xp.floor(rng.random((rows, k), dtype=xp.float32) * xp.float32(LARGEST_INTEGER + 1))


LAWS = {
    "normal": _normal,
    "uniform": _uniform,
    "wide1": _wide(1.0, 1.0),
    "wide2": _wide(2.0, 2.0**-4),
    "cancellation": _normal,
    "integers": _integers,
}
TITLES = {
    "normal": "N(0, 1)",
    "uniform": "uniform in [0, 1)",
    "wide1": "wide exponents, φ = 1",
    "wide2": "wide exponents, φ = 2",
    "cancellation": "second half of K cancels the first",
    "integers": f"integers 0 to {LARGEST_INTEGER}",
}


def draw(law: str, m: int, n: int, k: int, seed: int, xp: Any) -> tuple[Any, Any]:
    """A[m, k] and B stored [n, k], fp16, of `law`; `xp` is NumPy or CuPy.

    In "cancellation" the second half of K cancels the first, up to one part in 10^4 before B is rounded to fp16.
    """
    # Every point has its own numbers, independent of what else is measured and in which order.
    rng = xp.random.default_rng(int(hashlib.sha256(f"{law} {k} {seed}".encode()).hexdigest()[:8], 16))
    a, b = (LAWS[law](rng, xp, rows, k) for rows in (m, n))
    if law == "cancellation":
        half = k // 2
        a[:, half:] = a[:, :half]
        b[:, half:] = b[:, :half] * xp.float32(-(1 - 1e-4))
    return a.astype(xp.float16), b.astype(xp.float16)


# Errors ---------------------------------------------------------------------------------------------------------------


def reference(a: Any, b: Any, xp: Any) -> tuple[Any, Any]:
    """A B and |A||B| in float64 of A[m, k] and B stored [n, k]."""
    size = (a.shape[0], b.shape[0])
    exact, scale = xp.zeros(size, xp.float64), xp.zeros(size, xp.float64)
    for start in range(0, a.shape[1], CHUNK):
        wide_a, wide_b = (matrix[:, start : start + CHUNK].astype(xp.float64) for matrix in (a, b))
        exact += wide_a @ wide_b.T
        scale += xp.abs(wide_a) @ xp.abs(wide_b).T
    return exact, scale


class Errors:
    """Pooled errors of several draws of one problem.

    Each output's error is divided by its |A||B|, the sum of its products' magnitudes, and given in units of 2^-24.
    """

    def __init__(self) -> None:
        self._rms: list[float] = []
        self._squares = self._norm = 0.0
        self._largest = self._toward = 0.0
        self._right = self._count = self._bits = 0

    def add(self, result: Any, exact: Any, scale: Any, xp: Any) -> None:
        """Add the `result` (fp32) of one draw."""
        error = result.astype(xp.float64) - exact
        scaled = xp.where(scale > 0, error / xp.where(scale > 0, scale, 1.0), 0.0) / UNIT
        self._rms.append(float(xp.sqrt((scaled * scaled).mean())))
        self._largest = max(self._largest, float(xp.abs(scaled).max()))
        self._toward += float((scaled * xp.sign(exact)).sum())
        self._squares += float((error * error).sum())
        self._norm += float((exact * exact).sum())
        self._right += int((result == exact.astype(xp.float32)).sum())
        self._count += int(result.size)
        # A sum modulo 2^64 of all words, each times its own odd number: almost never equal for different bits.
        odd = 2 * xp.arange(result.size, dtype=xp.uint64) + 1
        self._bits += int((result.view(xp.uint32).ravel().astype(xp.uint64) * odd).sum(dtype=xp.uint64))

    def cells(self) -> dict[str, float | str | None]:
        """The measured columns of a row."""
        return {
            "rms_u": (sum(rms**2 for rms in self._rms) / len(self._rms)) ** 0.5,
            "rms_low_u": min(self._rms),
            "rms_high_u": max(self._rms),
            "max_u": self._largest,
            "bias_u": self._toward / self._count,
            "fro": (self._squares / self._norm) ** 0.5 if self._norm else None,
            "right": self._right / self._count,
            "bits": f"{self._bits % 2**64:016x}",
        }


def _points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"law": law, "k": k} for law in parameters["laws"] for k in parameters["ks"]]


def _measure(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.operands import Operands
    from gemmrepro.operations import Problem, Shape

    problem = Problem("gemm", "fp16", "fp32", "row,col,row")
    m, n, k, law = context.parameters["m"], context.parameters["n"], point["k"], point["law"]
    errors = {subject: Errors() for subject in context.subjects}
    for seed in context.parameters["seeds"]:
        a, b = draw(law, m, n, k, seed, cupy)
        exact, scale = reference(a, b, cupy)
        result = cupy.empty((m, n), cupy.float32)
        for subject, pooled in errors.items():
            result[...] = cupy.nan  # shows outputs that are not written
            context.bind(subject, Operands(problem, Shape(m, n, k), (a, b), result))()
            pooled.add(result, exact, scale, cupy)
        del a, b, exact, scale
    for subject, pooled in errors.items():
        yield context.row(subject, law=law, m=m, n=n, k=k, seeds=len(context.parameters["seeds"]), **pooled.cells())


_SERIES = {
    INSIDE: "inside mma",
    OUTSIDE4: "outside, after four mma",
    OUTSIDE: "outside, after every mma",
    COMPENSATED: "outside, compensated",
    FFMA: "fp32 multiply-adds",
    CUBLAS: "cuBLAS",
}


def _inside(errors: Any) -> str:
    """How much more sums err inside the tensor core than outside, at the worst law."""
    over = (errors.loc[_SERIES["ada.accumulate_inside"]] / errors.loc[_SERIES["ada.accumulate_outside"]]).max()
    said = f"Sums kept inside the tensor core err up to {over:.0f} times as much as those added outside after every mma"
    return said if over > 2 else ""


ACCUMULATION = Experiment(
    name="accumulation",
    title="Accumulating inside or outside the mma instruction",
    question=(
        "Does a dot product have a smaller error if every mma.sync starts from zero and ordinary fp32 additions "
        "accumulate the results?"
    ),
    kernels=(INSIDE, OUTSIDE4, OUTSIDE, COMPENSATED, FFMA),
    libraries=(CUBLAS,),
    parameters={
        "m": 2048,
        "n": 2048,
        "ks": [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536],
        "laws": list(LAWS),
        "seeds": [1, 2, 3],
    },
    columns=(
        Column("law", "how the inputs are distributed", kind="text"),
        *(Column(axis, f"the problem's {axis.upper()}", kind="integer") for axis in "mnk"),
        Column("seeds", "draws behind the row", kind="integer"),
        Column(
            "rms_u", "root mean square of (C - C*) / |A||B|, in units of 2^-24", "u", low="rms_low_u", high="rms_high_u"
        ),
        Column("rms_low_u", "smallest of the draws", "u"),
        Column("rms_high_u", "largest of the draws", "u"),
        Column("max_u", "the largest |C - C*| / |A||B|", "u"),
        Column("bias_u", "mean of (C - C*) sign(C*) / |A||B|: negative if sums come out too small", "u"),
        Column("fro", "Frobenius norm of C - C* over that of C*"),
        Column("right", "share of outputs equal to C* rounded to nearest"),
        Column("bits", "checksum of the outputs' bits; equal if all of them are", kind="text"),
    ),
    points=_points,
    measure=_measure,
    figures=(
        Dots(
            name="accumulation",
            title="Error of a dot product by where it is accumulated, and by its operands",
            x="rms_u",
            x_label="RMS error / |A||B|, in 2⁻²⁴",
            panel="law",
            panels=TITLES,
            category="kernel",
            categories=_SERIES,
            where={"k": 65536},
            fair=(0, 100),
            says=_inside,
            caption=(
                "Root mean square of an output's error divided by the sum of its products' magnitudes at K = 65536, in "
                "units of fp32's 2⁻²⁴; red: above 100. 2048 by 2048 outputs of three draws, fp16 inputs, fp32 output, "
                "compared with float64."
            ),
        ),
    ),
)


def _outside(errors: Any) -> str:
    """How much of the error of fp16 sums is gone with fp32 additions after every instruction."""
    law = TITLES["normal"]
    last = errors.loc[law].iloc[-1]
    over = last["fp16 throughout"] / last["fp32 after every mma"]
    said = (
        f"At K = {last.name:.0f} and {law} fp32 additions after every mma divide the error of fp16 sums by {over:.0f}"
    )
    return said if over > 2 else ""


HALF_ACCUMULATION = Experiment(
    name="half_accumulation",
    title="fp16 sums inside the mma instruction, fp32 sums outside",
    question=(
        "How much of the error of sums that mma.sync keeps in fp16 goes away if ordinary fp32 additions accumulate the "
        "results of every instruction, or of every two?"
    ),
    kernels=(SINGLE, HALF_EACH, HALF_STEPS, HALF),
    parameters={
        "m": 2048,
        "n": 2048,
        "ks": [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
        "laws": ["normal", "uniform", "wide1", "cancellation"],
        "seeds": [1, 2, 3],
    },
    columns=ACCUMULATION.columns,
    points=_points,
    measure=_measure,
    figures=(
        Lines(
            name="half_accumulation",
            title="Error of a dot product summed in fp16 and outside of it",
            x="k",
            x_label="K",
            y="rms_u",
            y_label="RMS error / |A||B|, in 2⁻²⁴",
            panel="law",
            panels={law: TITLES[law] for law in ("normal", "uniform", "wide1", "cancellation")},
            says=_outside,
            series={
                HALF: "fp16 throughout",
                HALF_STEPS: "fp32 after two mma",
                HALF_EACH: "fp32 after every mma",
                SINGLE: "fp32 inside mma",
            },
            caption=(
                "Root mean square of an output's error divided by the sum of its products' magnitudes, in units of "
                "fp32's 2⁻²⁴. 2048 by 2048 outputs of three draws, fp16 inputs, fp32 output, compared with float64."
            ),
            zero="every output exact",
        ),
    ),
)

# Alignment ------------------------------------------------------------------------------------------------------------

BIG = 8
"""The large terms are 2^BIG; the small ones 2^(BIG - p)."""
STEPS = 3
"""Instructions along K per probe; each adds 16 products."""


def probes() -> dict[str, tuple[int, list[tuple[float, float]]]]:
    """Per probe: how many small terms the exact sum holds, and its products as (big, small) factors along K.

    The remainder after the large terms cancel is counted in units of the small term.
    """
    nothing, small, big, minus = (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (-1.0, 0.0)
    blank = [nothing] * 16
    return {
        # Large terms cancel within one instruction: bits shifted out by alignment are missing; no rounding follows.
        "products beside larger products": (14, [big, minus, *[small] * 14, *blank, *blank]),
        "products beside larger products, 8 apart": (14, [big, *[small] * 7, minus, *[small] * 7, *blank, *blank]),
        "accumulator beside larger products": (1, [small, *[nothing] * 15, big, minus, *[nothing] * 14, *blank]),
        # The large term stays in the sum until the next instruction: the sum is rounded to 24 bits in between.
        "sum with a larger product": (15, [big, *[small] * 15, minus, *[nothing] * 15, *blank]),
        "sum with a larger accumulator": (16, [big, *[nothing] * 15, *[small] * 16, minus, *[nothing] * 15]),
        "negative sum with a larger product": (-15, [minus, *[(0.0, -1.0)] * 15, big, *[nothing] * 15, *blank]),
    }


def _probe_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"probe": name} for name in parameters["probes"]]


def probe_matrix(factors: list[tuple[float, float]], ps: list[int]) -> list[list[float]]:
    """A[p, k]: the products of a probe for each p, to be multiplied by ones."""
    return [[big * 2.0**BIG + small * 2.0 ** (BIG - p) for big, small in factors] for p in ps]


def _probe(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.core.dtypes import STORAGE
    from gemmrepro.operands import Operands
    from gemmrepro.operations import Shape

    exact, factors = probes()[point["probe"]]
    ps = context.parameters["ps"]
    n = 8
    a = cupy.asarray(probe_matrix(factors, ps), cupy.float16)
    b = cupy.ones((n, len(factors)), cupy.float16)
    for subject in context.subjects:
        problem = context.kernel(subject).problem
        result = cupy.full((len(ps), n), cupy.nan, STORAGE[problem.dtype_out])
        context.bind(subject, Operands(problem, Shape(len(ps), n, len(factors)), (a, b), result))()
        left = result.astype(cupy.float64).get()
        counts = [[float(value) * 2.0 ** (p - BIG) for value in row] for p, row in zip(ps, left, strict=True)]
        same = all(len(set(row)) == 1 for row in counts)
        terms = [row[0] for row in counts]
        kept = 0
        for p, value in zip(ps, terms, strict=True):
            if value != exact:
                break
            kept = p
        after = terms[ps.index(kept) + 1] if kept and kept != ps[-1] else None
        yield context.row(
            subject,
            probe=point["probe"],
            exact=exact,
            kept=kept,
            next=after,
            found=" ".join(f"{value:g}" for value in terms) + ("" if same else " (columns differ)"),
        )


ALIGNMENT = Experiment(
    name="alignment",
    title="Which bits a tensor core keeps",
    question="How far below the largest term of a sum does a small term still count, and how is the sum rounded?",
    kernels=(INSIDE, WGMMA),
    parameters={"ps": list(range(16, 32)), "probes": list(probes())},
    columns=(
        Column("probe", "which terms are added to which", kind="text"),
        Column("exact", "small terms in the exact sum", kind="integer"),
        Column(
            "kept", "largest p for which all terms of 2^-p times the large one count; 0: none tried", kind="integer"
        ),
        Column("next", "small terms found at the next p"),
        Column("found", "small terms counted at each p, in ascending order", kind="text"),
    ),
    points=_probe_points,
    measure=_probe,
)

EXPERIMENTS = (ACCUMULATION, HALF_ACCUMULATION, ALIGNMENT)

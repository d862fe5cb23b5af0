"""How exact sums of integer products are, and how accurate the FP64 products built from them.

`accumulator` multiplies integers, like slices of `beta` bits, and counts inexact sums. float64 holds the exact sums,
since none reaches 2^53.

`products` makes the article's tables: slices, pairs, split and multiplication timed separately, and the error,
relative to an exact product at sampled rows and columns and to cuBLAS's FP64 product as in the article. All kernels of
a size are timed in several rounds. How fast the host launches changes from one second to the next, and at 16384 whether
blocks stay in step from one launch to the next: both show between rounds, hence in the intervals.

`variants` times the multiplication in other tiles and distributed over more blocks, and `direct` the first program
beside an FP64 product in cuTile: what the article tried without effect, and what it says that it beats.

`accuracy` multiplies operands that are hard for one scheme or another (`gemmrepro.ozaki.inputs`) and compares sampled
outputs with exact ones.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gemmrepro.experiments import Column, Dots, Experiment, Lines, listed, with_interval

PAIRS = (
    *(f"ozaki.pair_{dtype}_{bk}" for dtype in ("fp16", "bf16") for bk in (32, 128)),
    *(f"ozaki.pair_e4m3_{bk}" for bk in ("32", "64", "128", "fast")),
)


BESIDE: Mapping[str, str] = {
    "crt.fused_14,crt.fused,crt.fused_16": "14 to 16 moduli",
    "crt.ping_pong_14,crt.ping_pong,crt.ping_pong_16": "14 to 16 moduli, ping-pong",
    "crt.winograd,crt.winograd_16": "15 and 16 moduli, Winograd",
    "crt.accurate": "15 moduli accurate",
}
"""Kernels of other families that multiply float64, with their labels in legends; ids joined by commas share one line
of the frontier. They join `products`."""
GUESTS = tuple(name for names in BESIDE for name in names.split(","))
MODULI: Mapping[str, str] = {
    "crt.fused_14": "14 moduli",
    "crt.fused": "15 moduli",
    "crt.fused_16": "16 moduli",
    "crt.accurate": "15 moduli accurate",
}
"""Those of them that compute something different, one curve each; they join `accuracy`."""


def seed_of(*parts: Any) -> int:
    """The seed of one point, independent of what else is measured and in which order."""
    return int(hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:8], 16)


# Sums of integers -----------------------------------------------------------------------------------------------------

LAWS = {
    "same sign": lambda rng, beta, size, xp: rng.integers(1 << max(beta - 1, 0), (1 << beta) + 1, size),
    "either sign": lambda rng, beta, size, xp: rng.integers(-(1 << beta), (1 << beta) + 1, size),
}
"""Digits of at most 2^beta: positive and near it, the hardest case; and uniform, of either sign."""


def _accumulator_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"law": law, "dtype": dtype, "beta": beta, "k": k}
        for dtype, betas in parameters["betas"].items()
        for law in parameters["laws"]
        for beta in betas
        for k in parameters["ks"]
    ]


def _accumulator(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.core.dtypes import narrow
    from gemmrepro.operands import Operands
    from gemmrepro.operations import Shape

    m, n, k = context.parameters["m"], context.parameters["n"], point["k"]
    dtype, beta, law = point["dtype"], point["beta"], point["law"]
    subjects = [subject for subject in context.subjects if context.kernel(subject).compute.dtype_in == dtype]
    if not subjects:
        return
    rng = cupy.random.default_rng(seed_of(dtype, beta, law, k))
    digits = [LAWS[law](rng, beta, (rows, k), cupy).astype(cupy.float32) for rows in (m, n)]
    exact = digits[0].astype(cupy.float64) @ digits[1].astype(cupy.float64).T
    stored = [narrow(values, dtype) for values in digits]
    largest = float(cupy.abs(exact).max())
    for subject in subjects:
        result = cupy.full((m, n), cupy.nan, cupy.float32)
        context.bind(subject, Operands(context.kernel(subject).problem, Shape(m, n, k), tuple(stored), result))()
        error = cupy.abs(result.astype(cupy.float64) - exact)
        # A NaN counts as inexact.
        wrong = float((~(error == 0)).mean())
        yield context.row(
            subject,
            law=law,
            dtype=dtype,
            beta=beta,
            k=k,
            tile_k=context.kernel(subject).params["bk"],
            bits=float(cupy.log2(largest)) if largest else 0.0,
            wrong=wrong,
            error=float(error.max()) / largest if largest else 0.0,
        )


ACCUMULATOR = Experiment(
    name="accumulator",
    title="Which sums of integer products are exact",
    question="Does an accumulator see one K step or all of K, and how many bits does it keep?",
    kernels=PAIRS,
    libraries=(),
    parameters={
        "m": 256,
        "n": 256,
        "ks": [64, 128, 256, 512, 1024, 4096, 16384, 65536],
        "laws": list(LAWS),
        "betas": {"fp16": [5, 7, 8, 11], "bf16": [4, 5, 6, 7, 8], "fp8_e4m3": [2, 3, 4]},
    },
    columns=(
        Column("law", "distribution of the digits", kind="text"),
        Column("dtype", "type in which they are stored", kind="text"),
        Column("beta", "digits are at most 2^beta", kind="integer"),
        Column("k", "products per sum", kind="integer"),
        Column("tile_k", "products per K step of the loop", kind="integer"),
        Column("bits", "log2 of the largest exact sum"),
        Column("wrong", "share of sums that are not exact"),
        Column("error", "largest error over the largest sum"),
    ),
    points=_accumulator_points,
    measure=_accumulator,
)

# The article's tables -------------------------------------------------------------------------------------------------

NAIVE = tuple(f"ozaki.naive_{dtype}" for dtype in ("fp16", "bf16", "fp8_e4m3"))
SWEPT = tuple(f"ozaki.fused_bf16_d{d}" for d in (9, 8, 7, 6, 5))
OTHERS = ("ozaki.fused_fp16_d9", "ozaki.rows_bf16_d9", "ozaki.diagonal_bf16_d9", "ozaki.fused_e4m3_d16")
DGEMM, EMULATED = "cublas.gemm", "cublas.gemm_emulated"


CURVES: Mapping[str, str] = {
    DGEMM: "cuBLAS FP64",
    EMULATED: "cuBLAS emulated",
    SWEPT[0]: "bf16 d = 9",
    "ozaki.rows_bf16_d9": "bf16 d = 9 by row",
    "ozaki.fused_e4m3_d16": "e4m3 d = 16",
    NAIVE[0]: "naive fp16",
    **MODULI,
}
"""Rows of the figure of hard operands."""

LINES: Mapping[str, str] = {
    name: label for name, label in CURVES.items() if name not in (NAIVE[0], "ozaki.fused_e4m3_d16")
}
"""Curves of the error figures; the naive program and e4m3 have tables of their own."""


def _grows(name: str, errors: Any) -> str:
    """Which schemes err more than DGEMM at the largest of the sizes called `name`."""
    last = errors.iloc[-1].dropna()
    worse = list(last.index[last > last[LINES[DGEMM]]])
    said = f"At {name} = {last.name[1]:.0f} only {listed(worse)} err more than DGEMM"
    return said if worse and len(worse) < len(last) else ""


def _spreads(errors: Any) -> str:
    """What errs no more than DGEMM where exponents spread most, and whether one scale for a matrix errs most."""
    last = errors.iloc[-1].dropna()
    fine = list(last.index[last <= last[LINES[DGEMM]]].drop(LINES[DGEMM]))
    said = f"At φ = {last.name[1]:g} only {listed(fine)} errs no more than DGEMM; one scale for a matrix errs most"
    return said if len(fine) == 1 and last.idxmax() == LINES[SWEPT[0]] else ""


def _survives(errors: Any) -> str:
    """What keeps its digits where large elements meet only small ones."""
    law = errors["large elements meet small ones"].dropna()
    fine, lost = (list(law[part].index) for part in (law <= 100, law > 100))
    return f"Only {listed(fine)} keep their digits where large elements meet small ones" if fine and lost else ""


def _sample(size: int, count: int, rng: Any) -> Any:
    """Sorted indices, the first and the last among them."""
    import numpy as np

    inner = rng.choice(np.arange(1, size - 1), max(0, min(count, size) - 2), replace=False) if size > 2 else []
    return np.unique(np.concatenate([[0, size - 1], inner]).astype(np.int64))


class Judge:
    """Exact outputs at sampled rows and columns, and the errors of a product there."""

    def __init__(self, a: Any, b: Any, count: int, seed: int) -> None:
        import cupy
        import numpy as np

        from gemmrepro.ozaki import exact

        rng = np.random.default_rng(seed)
        self.rows, self.columns = (cupy.asarray(_sample(size, count, rng)) for size in (a.shape[0], b.shape[1]))
        some_a, some_b = a[self.rows], b[:, self.columns]
        self.hi, self.lo = exact.product_by_halves(some_a, some_b)
        self.scale = cupy.abs(some_a) @ cupy.abs(some_b)

    def cells(self, c: Any) -> dict[str, float]:
        """The errors of C at the sampled outputs, as cells of a row."""
        from gemmrepro.ozaki import exact

        difference = exact.minus_double_double(c[self.rows][:, self.columns], self.hi, self.lo)
        return {
            "err_scaled": exact.scaled(difference, self.scale),
            "err_relative": exact.relative(difference, self.hi),
            "err_fro": exact.frobenius(difference, self.hi),
        }


_ERRORS = (
    Column("err_scaled", "max |C - C*| / (|A||B|) at sampled outputs, in units of 2^-53", "u"),
    Column("err_relative", "max |C - C*| / |C*| at sampled outputs"),
    Column("err_fro", "Frobenius norm of C - C* over that of C*, at sampled outputs"),
)


def _counts(kernel: Any, slices: tuple[int, int]) -> dict[str, int]:
    from gemmrepro.ozaki import pairs

    return {
        "slices_a": slices[0],
        "slices_b": slices[1],
        "pairs": len(pairs.select(*slices, kernel.compute.d)),
    }


def _split(kernel: Any) -> Mapping[str, int]:
    """The constants of the launches that split."""
    return next(step.params for step in kernel.run.steps if step.entry == "split_a")


def _by_the_bound(kernel: Any, a: Any, b: Any, judge: Judge) -> dict[str, int]:
    """The least d within 2 sqrt(k) u |A||B| at sampled outputs, for dropped pairs adding up worst or randomly."""
    import cupy

    from gemmrepro.ozaki import bounds, exactness, splitting

    params = _split(kernel)
    rho = exactness.rho(a.shape[1], exactness.Format("", params["significant"], 0.0, 0))
    parts, sizes = [], []
    for x, places, axis in ((a, judge.rows, 0), (b, judge.columns, 1)):
        # With the row or column of the largest element the sample has the scale of the whole matrix.
        top = cupy.abs(x).max(axis=1 - axis).argmax().reshape(1)
        some = cupy.take(x, cupy.concatenate([places, top]), axis=axis)
        scale = ("row", "column")[axis] if params["vector"] else "matrix"
        parts.append(splitting.split(some, rho, scale, count=params["s"], step=params["step"]))
        sizes.append(cupy.abs(some))
    size = sizes[0] @ sizes[1]
    return {f"d_{law}": bounds.smallest_d(*parts, size, law) for law in ("worst", "random")}


def _product_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"n": n} for n in parameters["ns"]]


Rounds = list[list[float]]
"""Samples, a list for each round."""

SAMPLES, SECONDS = 5, 0.02
"""The most samples of one time in a round, and the time after which it takes no more."""

STEADY_US = 20_000.0
"""A launch that takes longer counts although it is a round's first."""

LONG_US = 100_000.0
"""A product that takes longer is not timed a second time as a whole."""


def _with_ends(name: str) -> tuple[str, str, str]:
    """A column and those of the ends of its interval: ``split_us``, ``split_low_us``, ``split_high_us``."""
    stem = name.removesuffix("_us")
    unit = name.removeprefix(stem)
    return name, f"{stem}_low{unit}", f"{stem}_high{unit}"


def _known_within(name: str, meaning: str, unit: str = "") -> tuple[Column, Column, Column]:
    """The column of a number, and those of the ends of its interval."""
    name, low, high = _with_ends(name)
    return with_interval(Column(name, meaning, unit, low=low, high=high))


def _level(name: str, rounds: Rounds, repeatability: float = 0.0) -> dict[str, float]:
    """The cells of a number sampled in `rounds`, and of the ends of its interval."""
    from gemmrepro import stats

    level = stats.rounds_interval(rounds, repeatability=repeatability)
    return dict(zip(_with_ends(name), (level.value, level.low, level.high), strict=True))


def _quotients(dividends: Rounds, times: Rounds, factor: float = 1.0) -> Rounds:
    """The median of each round's dividends over each of its times, multiplied by `factor`."""
    return [
        [factor * statistics.median(beside) / each for each in taken]
        for beside, taken in zip(dividends, times, strict=True)
    ]


_PARTS = ("split_us", "kernel_us", "total_us")
_OWN = (
    *("d", "d_worst", "d_random", "slices_a", "slices_b", "pairs"),
    *(column for name in ("split_us", "kernel_us", "share") for column in _with_ends(name)),
)
"""Columns that are empty for a library."""


class _Product:
    """Times and errors of one size: its operands, exact outputs, and what kernels share."""

    def __init__(self, context: Any, n: int) -> None:
        from gemmrepro import timing
        from gemmrepro.operands import Operands, random
        from gemmrepro.operations import Problem, Shape

        self._context = context
        self._timer = timing.Timer(context.session)
        self.n, self.flops = n, 2.0 * n**3
        self.shape, problem = Shape.cube(n), Problem("gemm", "fp64", "fp64", "row,row,row")
        inputs, output = random(problem, self.shape, seed_of("products", n))
        self.operands = Operands(problem, self.shape, tuple(inputs), output)
        self.a, self.b, self.c = (array.reshape(n, n) for array in (*inputs, output))
        self.judge = Judge(self.a, self.b, context.parameters.get("sampled", 2), n)
        self._least_d: dict[Any, dict[str, int]] = {}

    def time(self, call: Any) -> float:
        """The median of some launches, in microseconds."""
        first = self._timer.once(call)
        times = [self._timer.once(call) for _ in range(1 if first > 1e5 else self._context.settings["repeats"])]
        return sorted(times)[len(times) // 2]

    def sample(self, call: Any) -> list[float]:
        """Times of one round in microseconds; the first launch only counts where it takes longer than 20 ms."""
        first = self._timer.once(call)
        times = [first] if first > STEADY_US else []
        wanted = min(SAMPLES, max(1, int(1e6 * SECONDS / first)))
        return times + [self._timer.once(call) for _ in range(wanted - len(times))]

    def takes(self, subject: Any) -> bool:
        """Whether a kernel can run this size, and is timed at it; a library always."""
        if subject.toolkit == "library":
            return True
        kernel = self._context.kernel(subject)
        return not (0 < kernel.timing.timed_to < self.n) and bool(kernel.takes(self.shape))

    def counts(self, subject: Any) -> dict[str, Any]:
        """C by one subject, not timed; returns how many slices and pairs it took."""
        cells: dict[str, Any] = dict.fromkeys(_OWN)
        if subject.toolkit == "library":
            self._context.bind(subject, self.operands)()
            return cells
        loaded = self._context.loaded(subject)
        kernel = loaded.kernel
        cells["d"] = kernel.compute.d
        if "slices_a" not in kernel.run.workspace:
            loaded.bind(self.operands)()
            return cells
        if kernel.run.program is None:
            loaded.bind(self.operands)()
            slices = (_split(kernel)["s"],) * 2
            cells |= self._bounded(kernel, slices)
        else:
            from gemmrepro.ozaki import programs

            launches = loaded.launches(self.operands)
            slices = programs.split(launches, programs.FORMATS[kernel.run.workspace["slices_a"].dtype])
            programs.multiply(launches, *slices)
        return {**cells, **_counts(kernel, slices)}

    def dtype(self, subject: Any) -> str:
        """The type of a kernel's slices."""
        return str(self._context.kernel(subject).run.workspace["slices_a"].dtype)

    def fp64(self) -> list[float]:
        """Times of cuBLAS in FP64 in one round, in microseconds."""
        return self.sample(self._context.bind_library(DGEMM, self.operands))

    def low(self, dtype: str) -> list[float]:
        """The same in a low type, both operands K-major."""
        from gemmrepro.gpu import baselines
        from gemmrepro.operands import Operands, random
        from gemmrepro.operations import Problem

        problem = Problem("gemm", dtype, "bf16" if dtype.startswith("fp8") else dtype, "row,col,row")
        inputs, output = random(problem, self.shape, self.n)
        operands = Operands(problem, self.shape, tuple(inputs), output)
        return self.sample(baselines.baseline("cublas.gemm_k_major").bind(self._context.session, operands))

    def round(self, subject: Any, cells: Mapping[str, Any]) -> dict[str, list[float]]:
        """Times of a subject in one round, in microseconds, by column; `cells` are those of `counts`."""
        if cells["pairs"] is None:
            return {"total_us": self.sample(self._context.bind(subject, self.operands))}
        loaded = self._context.loaded(subject)
        split, multiply = map(self.sample, self._parts(loaded, (cells["slices_a"], cells["slices_b"])))
        before = statistics.median(split)
        if before + statistics.median(multiply) < LONG_US:
            total = self.sample(loaded.bind(self.operands))
        else:
            total = [before + each for each in multiply]
        return {"split_us": split, "kernel_us": multiply, "total_us": total}

    def _parts(self, loaded: Any, slices: tuple[int, int]) -> tuple[Any, Any]:
        """Calls that split the operands, and that multiply their slices."""
        from gemmrepro.ozaki import programs

        kernel, launches = loaded.kernel, loaded.launches(self.operands)
        if kernel.run.program is not None:
            fmt = programs.FORMATS[kernel.run.workspace["slices_a"].dtype]
            return (lambda: programs.split(launches, fmt)), (lambda: programs.multiply(launches, *slices))
        entries = list(dict.fromkeys(step.entry for step in kernel.run.steps))
        main = entries.index(kernel.code.entry)
        return launches.bind(*entries[:main]), launches.bind(*entries[main:])

    def _bounded(self, kernel: Any, slices: tuple[int, int]) -> dict[str, int]:
        scheme = kernel.run.workspace["slices_a"].dtype, slices, _split(kernel)["vector"]
        if scheme not in self._least_d:
            self._least_d[scheme] = _by_the_bound(kernel, self.a, self.b, self.judge)
        return self._least_d[scheme]


class _Rounds:
    """Times of all subjects in microseconds, round by round.

    Attributes:
        own: by subject and column.
        fp64: of cuBLAS in FP64.
        low: of cuBLAS by the type of slices.
    """

    def __init__(self, product: _Product, counted: Mapping[Any, Mapping[str, Any]]) -> None:
        self._product, self._counted = product, counted
        self.own: dict[Any, dict[str, Rounds]] = {subject: {name: [] for name in _PARTS} for subject in counted}
        self.fp64: Rounds = []
        self.low: dict[str, Rounds] = {
            product.dtype(subject): [] for subject, cells in counted.items() if cells["pairs"] is not None
        }

    def take(self, settings: Mapping[str, Any]) -> None:
        """Take `rounds` rounds, and more of them, `most` in all, as long as they took less than `seconds`."""
        start = time.monotonic()
        while len(self.fp64) < settings["rounds"] or (
            len(self.fp64) < settings["most"] and time.monotonic() - start < settings["seconds"]
        ):
            self.fp64.append(self._product.fp64())
            for dtype, rounds in self.low.items():
                rounds.append(self._product.low(dtype))
            for subject, cells in self._counted.items():
                for name, taken in self._product.round(subject, cells).items():
                    self.own[subject][name].append(taken)

    def cells(self, subject: Any) -> dict[str, Any]:
        """The cells of a row that are numbers of the clock."""
        from gemmrepro import stats

        own, flops = self.own[subject], self._product.flops
        cells: dict[str, Any] = {"rounds": len(self.fp64), "samples": sum(map(len, own["total_us"]))}
        for name in _PARTS:
            if own[name]:
                cells |= _level(name, own[name], stats.REPEATABILITY)
        pairs = self._counted[subject]["pairs"]
        if pairs is not None:
            cells |= _level("share", _quotients(self.low[self._product.dtype(subject)], own["kernel_us"], pairs))
        rates = [[1e-6 * flops / each for each in taken] for taken in own["total_us"]]
        cells |= _level("tflops", rates, stats.REPEATABILITY)
        return cells | _level("ratio", _quotients(self.fp64, own["total_us"]))


def _products(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.ozaki import exact

    # How long the library's algorithms are tried, of which `share` takes the fastest.
    context.session.trials.limit(context.settings["trial_seconds"])
    product = _Product(context, point["n"])
    context.bind_library(DGEMM, product.operands)()
    reference = product.c.copy()
    counted, errors = {}, {}
    for subject in filter(product.takes, context.subjects):
        product.c[...] = cupy.nan
        counted[subject] = product.counts(subject)
        errors[subject] = {**product.judge.cells(product.c), "err_article": exact.articles(product.c, reference)}
    rounds = _Rounds(product, counted)
    rounds.take(context.settings)
    for subject, cells in counted.items():
        row = {**cells, **rounds.cells(subject), **errors[subject]}
        yield context.row(subject, law="normal", n=product.n, **row)


PRODUCTS = Experiment(
    name="products",
    title="The article's tables",
    question="How many slices and pairs are there, how long do split and multiplication take, how large is the error?",
    kernels=(*SWEPT, *OTHERS, *NAIVE, *GUESTS),
    libraries=(DGEMM, EMULATED),
    parameters={"ns": [1024, 2048, 4096, 8192, 16384], "sampled": 48},
    settings={"rounds": 5, "most": 15, "seconds": 6.0, "trial_seconds": 0.2},
    columns=(
        Column("law", "distribution of the operands", kind="text"),
        Column("n", "M = N = K", kind="integer"),
        Column("d", "only pairs with p + q < d are multiplied; empty: all", kind="integer"),
        Column(
            "d_worst",
            "smallest d with an error within 2 sqrt(k) u |A||B|, by a worst-case bound on what is dropped",
            kind="integer",
        ),
        Column("d_random", "the same if the dropped terms add up randomly", kind="integer"),
        Column("slices_a", "slices of A", kind="integer"),
        Column("slices_b", "slices of B", kind="integer"),
        Column("pairs", "slice pairs that are multiplied", kind="integer"),
        *_known_within(
            "split_us", "time of all launches before the multiplication, host time between them included", "µs"
        ),
        *_known_within("kernel_us", "time of the multiplication", "µs"),
        *_known_within("total_us", "time of the whole product", "µs"),
        Column("rounds", "rounds in which all kernels were timed", kind="integer"),
        Column("samples", "samples of the whole product", kind="integer"),
        *_known_within("tflops", "2 n^3 divided by that time", "TFLOP/s"),
        *_known_within("ratio", "speed relative to cuBLAS in FP64"),
        *_known_within(
            "share",
            "rate of the multiplication, pairs times 2 n^3 over its time, relative to cuBLAS in the slices' type",
        ),
        *_ERRORS,
        Column("err_article", "Frobenius norm of C - C64 over that of C64, cuBLAS's FP64 product"),
    ),
    points=_product_points,
    measure=_products,
    figures=(
        Lines(
            name="growth",
            title="Error by size",
            x="n",
            x_label="n",
            y="err_scaled",
            y_label="largest error, in 2⁻⁵³ |A||B|",
            panel="law",
            panels={"normal": "N(0, 1), m = n = k"},
            series=LINES,
            reference=LINES[DGEMM],
            says=partial(_grows, "n"),
            caption="The largest error at sampled outputs.",
        ),
    ),
)

# Hard inputs ----------------------------------------------------------------------------------------------------------

ACCURATE = (SWEPT[0], SWEPT[2], "ozaki.rows_bf16_d9", "ozaki.fused_e4m3_d16", NAIVE[0])
"""What `accuracy` runs of this family."""
HARD = ("graded, 40 bits", "rows and columns scaled, 30 bits", "cancelling", "complementary")


def _accuracy_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    size = parameters["n"]
    points = [{"law": "spread", "phi": phi, "m": size, "n": size, "k": size} for phi in parameters["phis"]]
    points += [{"law": law, "phi": None, "m": size, "n": size, "k": size} for law in parameters["laws"]]
    narrow = parameters["narrow"]
    return points + [{"law": "normal", "phi": None, "m": narrow, "n": narrow, "k": k} for k in parameters["ks"]]


def _accuracy(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy
    import numpy as np

    from gemmrepro.errors import UserError
    from gemmrepro.operands import Operands
    from gemmrepro.operations import Problem, Shape
    from gemmrepro.ozaki import inputs

    m, n, k, law, phi = (point[name] for name in ("m", "n", "k", "law", "phi"))
    draw = inputs.spread(phi) if law == "spread" else inputs.INPUTS[law]
    drawn = draw(np.random.default_rng(seed_of("accuracy", law, phi, m, n, k)), m, n, k)
    a, b = (cupy.asarray(np.ascontiguousarray(matrix)) for matrix in drawn)
    judge = Judge(a, b, context.parameters["sampled"], k)
    c = cupy.empty((m, n))
    operands = Operands(Problem("gemm", "fp64", "fp64", "row,row,row"), Shape(m, n, k), (a, b), c)
    for subject in context.subjects:
        c[...] = cupy.nan
        try:
            context.bind(subject, operands)()
            context.session.sync()
            cells: dict[str, Any] = judge.cells(c)
        except UserError as error:  # exponents outside the scheme's range
            cells = {**dict.fromkeys(column.name for column in _ERRORS), "refused": str(error).split(";")[0]}
        else:
            cells["refused"] = None
        yield context.row(subject, law=law, phi=phi, m=m, n=n, k=k, **cells)


ACCURACY = Experiment(
    name="accuracy",
    title="Hard operands",
    question="How does the error grow with the range of the exponents, and with K?",
    kernels=(*ACCURATE, *MODULI),
    libraries=(DGEMM, EMULATED),
    parameters={
        "n": 1024,
        "phis": [0, 0.5, 1, 1.5, 2, 3, 4],
        "laws": list(HARD),
        "narrow": 256,
        "ks": [256, 1024, 4096, 16384, 65536],
        "sampled": 32,
    },
    columns=(
        Column("law", "distribution of the operands (gemmrepro.ozaki.inputs)", kind="text"),
        Column("phi", "spread of the exponents: (u - 1/2) exp(phi g), u uniform and g normal"),
        *(Column(axis, f"the problem's {axis.upper()}", kind="integer") for axis in "mnk"),
        *_ERRORS,
        Column("refused", "why there is no product", kind="text"),
    ),
    points=_accuracy_points,
    measure=_accuracy,
    figures=(
        Lines(
            name="spread",
            title="Error by spread of the exponents",
            x="phi",
            x_label="φ",
            y="err_scaled",
            y_label="largest error, in 2⁻⁵³ |A||B|",
            panel="law",
            panels={"spread": "(u - ½) exp(φ g), n = 1024"},
            series=LINES,
            reference=LINES[DGEMM],
            says=_spreads,
            caption=(
                "The largest error at sampled outputs. With one scale per matrix, slices hold ever less of small "
                "elements as the exponents spread; “by row” has one scale per row of A and per column of B."
            ),
            x_scale="linear",
        ),
        Lines(
            name="depth",
            title="Error by inner dimension",
            x="k",
            x_label="K",
            y="err_scaled",
            y_label="largest error, in 2⁻⁵³ |A||B|",
            panel="law",
            panels={"normal": "N(0, 1), 256 by 256 outputs"},
            series=LINES,
            reference=LINES[DGEMM],
            says=partial(_grows, "K"),
            caption="The largest error at sampled outputs.",
        ),
        Dots(
            name="hard",
            title="Error on hard operands",
            x="err_scaled",
            x_label="largest error, in 2⁻⁵³ |A||B|",
            panel="law",
            panels={
                "complementary": "large elements meet small ones",
                "graded, 40 bits": "A D and D⁻¹ B, D to 2⁻⁴⁰",
                "rows and columns scaled, 30 bits": "rows, columns times 2⁻³⁰ to 1",
                "cancelling": "sums cancel to within 2⁻⁴⁰",
            },
            category="kernel",
            categories=CURVES,
            fair=(0, 100),
            says=_survives,
            caption=(
                "The largest error at sampled outputs of a product of 1024, over the sum of the products' magnitudes, "
                "in 2⁻⁵³; red: above 100. The error is componentwise: powers of two along K change neither AB nor "
                "|A||B|, and no scheme that scales rows and columns can remove them."
            ),
        ),
    ),
)

# What the article tried without effect ------------------------------------------------------------------------------

BASE, PRINTED, DISTRIBUTED = "ozaki.fused_bf16_d9", "ozaki.printed_bf16_d9", "ozaki.distributed_bf16_d9"
TILES = tuple(f"ozaki.tile_{tile}" for tile in ("128x128x128", "128x64x64", "64x64x64", "256x128x64"))
OVER: Mapping[str, str] = {**dict.fromkeys((*TILES, PRINTED), BASE), DISTRIBUTED: PRINTED}
"""Each variant, and the kernel from which it differs in one thing."""


def _variants(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The multiplication of every variant, in alternation with that of the kernel that it varies."""
    import cupy

    from gemmrepro import stats

    shared = _Product(context, point["n"])
    loaded = {subject.kernel: (subject, context.loaded(subject)) for subject in context.subjects}
    for name, over in OVER.items():
        if name not in loaded or over not in loaded:
            continue
        products, results = [], []
        for _, kernel in (loaded[name], loaded[over]):
            launches = kernel.launches(shared.operands)
            entries = list(dict.fromkeys(step.entry for step in kernel.kernel.run.steps))
            main = entries.index(kernel.kernel.code.entry)
            shared.c[...] = cupy.nan
            launches.bind(*entries)()
            results.append(shared.c.copy())
            products.append(launches.bind(*entries[main:]))
        context.session.sync()
        times = [[shared.time(product) for product in products] for _ in range(context.settings["pairs"])]
        ratio = stats.median_interval([theirs / ours for ours, theirs in times])
        largest = float(cupy.abs(results[1]).max())
        yield context.row(
            loaded[name][0],
            n=shared.n,
            over=over,
            kernel_us=min(ours for ours, _ in times),
            ratio=ratio.value,
            low=ratio.low,
            high=ratio.high,
            difference=float(cupy.abs(results[0] - results[1]).max()) / largest,
        )


VARIANTS = Experiment(
    name="variants",
    title="Other tiles, and the split loop over blocks",
    question="Does another tile, or a block of its own for each slice of A, make the multiplication faster?",
    kernels=(BASE, *OVER),
    libraries=(),
    parameters={"ns": [1024, 4096]},
    settings={"repeats": 1, "pairs": 7},
    columns=(
        Column("n", "M = N = K", kind="integer"),
        Column("over", "the kernel that it varies", kind="text"),
        Column("kernel_us", "time of the multiplication, sums of several blocks added", "µs"),
        *with_interval(
            Column("ratio", "speed of the multiplication relative to that kernel's", low="low", high="high")
        ),
        Column("difference", "largest difference between the two results, over the largest element"),
    ),
    points=_product_points,
    measure=_variants,
)

DIRECT = "cutile.published_fp64"


def _direct(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Whole products of one size, in TFLOP/s."""
    product = _Product(context, point["n"])
    fp64 = product.time(context.bind_library(DGEMM, product.operands))
    for subject in context.subjects:
        taken = product.time(context.bind(subject, product.operands))
        yield context.row(subject, n=product.n, tflops=product.flops / taken * 1e-6, ratio=fp64 / taken)


FIRST = Experiment(
    name="direct",
    title="The first program against FP64 without slices",
    question="Is the first program faster than the article's FP64 product in cuTile, and how far behind cuBLAS is it?",
    kernels=(*NAIVE, DIRECT),
    libraries=(),
    parameters={"ns": [1024, 2048, 4096]},
    settings={"repeats": 7},
    columns=(
        Column("n", "M = N = K", kind="integer"),
        Column("tflops", "2 n^3 divided by the time of the whole product", "TFLOP/s"),
        Column("ratio", "speed relative to cuBLAS in FP64"),
    ),
    points=_product_points,
    measure=_direct,
)

EXPERIMENTS = (ACCUMULATOR, PRODUCTS, ACCURACY, VARIANTS, FIRST)

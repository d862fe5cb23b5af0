"""What the article says about tensor cores and their operands without a figure.

`layouts` asks which layouts of its operands in shared memory wgmma reads right: tiles of A and B are written in four
layouts, the instruction of the article's sketch reads them through every descriptor of a list, and wrong elements of C
are counted. Operands are small integers, so that C is exact in fp16.

`epilogue` times GELU(alpha A B + beta C + bias) in one launch in alternation with other ways to compute it.

`forms` times each form of level H14 alone, hot and from rest, with its power: the model by which the host chooses among
them is fitted to that.

`shapes` times the last rungs in alternation with the library at shapes that nobody chose: drawn ones, of language
models, and extreme ones. The distribution of the ratios answers its question: geometric mean, worst, share from 0.95
on.

`cores` times kernels of level 8 in alternation with something else, so that both run at the same clock: with an fp32
product of the same size on CUDA cores, the article's level 7 or cuBLAS's, and with the ceiling of wgmma.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from gemmrepro.experiments import Column, Experiment, with_interval

KERNEL = "hopper.layouts"
LAYOUTS = ("128-byte swizzle", "row-major", "column-major", "8 x 8 blocks")
"""By the number that the kernel takes for each."""
MODES = {"none": 0, "128 bytes": 1, "64 bytes": 2, "32 bytes": 3}
"""Swizzles that a descriptor can name (bits 62-63)."""
LARGEST = 2
"""Operands are integers from -LARGEST to LARGEST."""


def operands(size: int, seed: int, xp: Any) -> tuple[Any, Any, Any]:
    """A stored [k, m], B stored [k, n] and the exact C[m, n], fp16, of cubes of `size`; `xp` is NumPy or CuPy."""
    rng = xp.random.default_rng(seed)
    a, b = (rng.integers(-LARGEST, LARGEST + 1, (size, size)).astype(xp.float32) for _ in "ab")
    return a.astype(xp.float16), b.astype(xp.float16), (a.T @ b).astype(xp.float16)


def _measure(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.operands import Operands
    from gemmrepro.operations import Shape

    size, distances = context.parameters["size"], context.parameters["distances"]
    a, b, exact = operands(size, context.parameters["seed"], cupy)
    norm = float(cupy.linalg.norm(exact.astype(cupy.float64)))
    for subject in context.subjects:
        kernel, loaded = context.kernel(subject), context.loaded(subject)
        c = cupy.empty((size, size), cupy.float16)
        launched = Operands(kernel.problem, Shape.cube(size), (a, b), c)
        for mode, bits in MODES.items():
            tried = []
            for leading, stride in product(distances, distances):
                c[...] = cupy.nan  # shows outputs that are not written
                described = (LAYOUTS.index(point["layout"]), bits, leading, stride)
                plain = tuple(name for name in kernel.call.arguments if isinstance(name, str))
                loaded.bind(launched, kernel.with_call(arguments=(*plain, *described)))()
                wrong = float((c != exact).mean())
                error = float(cupy.linalg.norm((c - exact).astype(cupy.float64))) / norm
                tried.append((wrong, error, leading, stride))
            wrong, error, leading, stride = min(tried)
            yield context.row(
                subject,
                layout=point["layout"],
                mode=mode,
                tried=len(tried),
                right=sum(not found[0] for found in tried),
                leading=leading,
                stride=stride,
                wrong=wrong,
                error=error,
            )


CEILING = "ceilings.wgmma"
"""wgmma alone, on operands in shared memory."""
PAIRS = (
    ("hopper.sketch", "ladder.warptile"),  # the article's level 8 beside its level 7
    ("hopper.by_size", "cublas.sgemm"),  # the fastest here on either kind of core
    ("hopper.by_size", CEILING),
)
"""What alternates with what."""


def _other(context: Any, subject: Any, shape: Any) -> tuple[Any, float]:
    """A launch of what a kernel alternates with, and its FLOP."""
    from gemmrepro.operands import Operands, random, work
    from gemmrepro.operations import Problem, Shape

    if subject.kernel == CEILING:
        kernel, once = context.kernel(subject), Shape(1, 1, 1)
        launched = Operands.of(kernel, once, *random(kernel.problem, once, 1))
        return context.bind(subject, launched), work(kernel, once)[0] or 0.0
    inputs, output = random(Problem(), shape, 1)
    return context.bind(subject, Operands(Problem(), shape, tuple(inputs), output)), 2.0 * shape.n**3


def _times(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    from gemmrepro import stats, timing
    from gemmrepro.operands import Operands, random
    from gemmrepro.operations import Shape

    shape = Shape.cube(point["n"])
    timer, plan = timing.Timer(context.session), timing.Plan(**context.settings)
    for subject in context.subjects:
        partners = [over for name, over in context.parameters["pairs"] if name == subject.kernel]
        if not partners:
            continue
        kernel = context.kernel(subject)
        call = context.bind(subject, Operands.of(kernel, shape, *random(kernel.problem, shape, 1)))
        for other in context.subjects:
            if other.kernel not in partners or other.toolkit not in (subject.toolkit, "library"):
                continue
            beside, flop = _other(context, other, shape)
            estimates = timer.estimate(call, timer.once(call)), timer.estimate(beside, timer.once(beside))
            burst = timer.burst([call], [beside], "warm", plan, estimates, timing.wants_graphs(*estimates))
            ratio, own = stats.ratio_interval([burst.baseline], [burst.times]), 2.0 * shape.n**3
            yield context.row(
                subject,
                n=shape.n,
                over=other.kernel,
                tflops=1e-6 * own / stats.median_interval(burst.times).value,
                over_tflops=1e-6 * flop / stats.median_interval(burst.baseline).value,
                times=ratio.value * own / flop,
                times_low=ratio.low * own / flop,
                times_high=ratio.high * own / flop,
            )


LIBRARY = "cublas.gemm"
"""Beside the forms: the fastest of cublasGemmEx and cublasLt's candidates."""
FORMS = "hopper.by_energy"
BURST = 6
"""Launches from rest."""
SIZES_OF_FORMS = [1024, 1536, 2048, 3072, 4096, 5120, 8192, 16384]
"""Those of the model's fit. A run may time fewer of them (the setting `sizes`)."""


def _alone(context: Any, call: Any, flop: float) -> dict[str, float | None]:
    """What a row of `forms` says of launches of `call` alone: hot, and from rest."""
    import time

    from gemmrepro import stats, timing

    timer, settings = timing.Timer(context.session), context.settings
    estimate = timer.estimate(call, timer.once(call))
    graphs = timing.wants_graphs(estimate, None)

    def hot(seconds: float) -> Any:
        plan = timing.Plan(interval=0.0, seconds=seconds, least=6, most=1 << 20)
        return timer.burst([call], None, "warm", plan, (estimate, None), graphs)

    hot(settings["heat"])
    burst = hot(settings["seconds"])
    queue = timer.capture([call] * BURST)
    time.sleep(settings["rest"])
    rested = timer.once(lambda: queue.launch(context.session.stream)) / BURST
    sensors, median = timing.summarize_sensors(burst.sensors), stats.median_interval(burst.times).value
    power = sensors["power_w"]
    return {
        "time_us": median,
        "tflops": 1e-6 * flop / median,
        "burst_tflops": 1e-6 * flop / rested,
        "clock_mhz": sensors["clock_mhz"],
        "power_w": power,
        "joules": None if power is None else 1e-6 * power * median,
    }


def _forms(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    from gemmrepro import registry
    from gemmrepro.gpu import baselines
    from gemmrepro.operands import Operands, random
    from gemmrepro.operations import Shape

    if point["n"] not in context.settings["sizes"]:
        return
    shape, kernel = Shape.cube(point["n"]), registry.kernel(FORMS)
    flop, chosen = 2.0 * shape.n**3, kernel.at(shape).code.entry
    launched = Operands.of(kernel, shape, *random(kernel.problem, shape, 1))
    for subject in context.subjects:
        if subject.kernel == LIBRARY:
            call = baselines.baseline(LIBRARY).bind(context.session, launched)
            yield context.row(subject, n=shape.n, form="", chosen=0, **_alone(context, call, flop))
            continue
        for part in kernel.parts:
            entry = part.code.entry
            call = context.loaded(subject).bind(launched, part)
            cells = _alone(context, call, flop)
            yield context.row(subject, n=shape.n, form=entry, chosen=int(entry == chosen), **cells)


ANY_SHAPE = "hopper.any_shape"
DRAWN, SHORTEST, LONGEST = 200, 64, 16384
"""Shapes that are drawn, and the bounds between which the logarithms of their lengths are uniform."""
WEIGHTS = (
    *((768, 768), (3072, 768), (768, 3072), (2304, 768), (4096, 1024), (2048, 2048), (8192, 2048), (2048, 8192)),
    *((3584, 3584), (18944, 3584), (3584, 18944), (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336)),
    *((5120, 5120), (13824, 5120), (5120, 13824), (8192, 8192), (10240, 8192), (28672, 8192), (8192, 28672)),
)
"""n and k of language models' weights."""
TOKENS = (1, 16, 64, 100, 333, 1024, 4096, 8192)
"""Their m; each weight is timed with two of them."""
EXTREME = (
    *((512, 512, 65536), (256, 512, 65536), (512, 1024, 65536), (128, 128, 65536), (8, 8192, 8192)),
    *((8, 28672, 4096), (8, 4096, 28672), (8, 768, 768), (16384, 64, 512), (64, 16384, 512)),
)


def shapes(seed: int) -> list[dict[str, Any]]:
    """Kind, m, n and k of the shapes of `shapes`, in a shuffled order, so that its first ones stand for all.

    Lengths are multiples of 8. Of every second drawn shape they are odd multiples, so that rows begin anywhere.
    """
    import math
    import random

    rng = random.Random(seed)

    def length(odd: bool) -> int:
        eighths = round(math.exp(rng.uniform(math.log(SHORTEST), math.log(LONGEST))) / 8)
        return 8 * (eighths - 1 + eighths % 2 if odd else eighths)

    drawn = [("drawn", *(length(i % 2 == 1) for _ in "mnk")) for i in range(DRAWN)]
    models = [("model", TOKENS[(3 * i + j) % len(TOKENS)], n, k) for i, (n, k) in enumerate(WEIGHTS) for j in (0, 4)]
    listed = [*drawn, *models, *(("extreme", *lengths) for lengths in EXTREME)]
    rng.shuffle(listed)
    return [dict(zip(("kind", "m", "n", "k"), shape, strict=True)) for shape in listed]


def _shapes(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    from gemmrepro import registry, stats, timing
    from gemmrepro.gpu import baselines
    from gemmrepro.operands import Operands, random
    from gemmrepro.operations import Shape

    if point["index"] >= context.settings["first"]:
        return
    settings = {name: value for name, value in context.settings.items() if name != "first"}
    shape, kernel = Shape(point["m"], point["n"], point["k"]), registry.kernel(ANY_SHAPE)
    launched = Operands.of(kernel, shape, *random(kernel.problem, shape, 1))
    library = baselines.baseline(LIBRARY).bind(context.session, launched)
    timer, plan = timing.Timer(context.session), timing.Plan(**settings)
    for subject in context.subjects:
        if subject.kernel == LIBRARY:
            continue
        call = context.bind(subject, launched)
        estimates = timer.estimate(call, timer.once(call)), timer.estimate(library, timer.once(library))
        burst = timer.burst([call], [library], "warm", plan, estimates, timing.wants_graphs(*estimates))
        ratio = stats.ratio_interval([burst.baseline], [burst.times])
        own, beside = (stats.median_interval(times).value for times in (burst.times, burst.baseline))
        yield context.row(
            subject,
            **{name: point[name] for name in ("kind", "m", "n", "k")},
            form=registry.kernel(subject.kernel).at(shape).code.entry,
            time_us=own,
            library_us=beside,
            times=ratio.value,
            times_low=ratio.low,
            times_high=ratio.high,
        )


FUSED, APART = "hopper.epilogue", "hopper.epilogue_apart"
FUSED_LIBRARY = "cublas.gemm_gelu_bias"
BESIDE = "cublas.gemm and bias_gelu"
"""The library's product, and the pointwise kernel of hopper.epilogue_apart."""
ALPHA, BETA = 1 / 64, 0.5
"""Scalars of `epilogue`: arguments of GELU of about one."""


def _both(first: Any, second: Any) -> None:
    first()
    second()


def _other_ways(context: Any, toolkit: str, launched: Any) -> Iterator[tuple[str, Any, float]]:
    """Ways to compute what hopper.epilogue does: name, call, and bytes of matrices of C's shape that it moves."""
    from dataclasses import replace

    from gemmrepro.gpu import baselines
    from gemmrepro.operations import Problem

    matrix = float(launched.output.nbytes)
    for subject in context.subjects:
        if subject.kernel == APART and subject.toolkit == toolkit:
            loaded = context.loaded(subject)
            yield APART, loaded.bind(launched), 4 * matrix
            # The library's product adds to z in place; a bound launch of the pointwise kernel reads the same z.
            z = launched.inputs[2].copy()
            problem = Problem("gemm", launched.problem.dtype_in, launched.problem.dtype_out, launched.problem.layout)
            plain = replace(launched, problem=problem, inputs=launched.inputs[:2], output=z)
            multiply = baselines.baseline(LIBRARY).bind(context.session, plain)
            yield BESIDE, partial(_both, multiply, loaded.launches(launched).bind("bias_gelu", z=z)), 4 * matrix
        elif subject.kernel == FUSED_LIBRARY:
            yield FUSED_LIBRARY, baselines.baseline(FUSED_LIBRARY).bind(context.session, launched), 2 * matrix


def _epilogues(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    from gemmrepro import registry, stats, timing
    from gemmrepro.operands import Operands, random
    from gemmrepro.operations import Shape

    shape, kernel = Shape.cube(point["n"]), registry.kernel(FUSED)
    inputs, output = random(kernel.problem, shape, 1)
    launched = Operands(kernel.problem, shape, tuple(inputs), output, ALPHA, BETA)
    timer, plan = timing.Timer(context.session), timing.Plan(**context.settings)
    for subject in context.subjects:
        if subject.kernel != FUSED:
            continue
        call = context.bind(subject, launched)
        for over, other, moved in _other_ways(context, subject.toolkit, launched):
            estimates = timer.estimate(call, timer.once(call)), timer.estimate(other, timer.once(other))
            burst = timer.burst([call], [other], "warm", plan, estimates, timing.wants_graphs(*estimates))
            ratio = stats.ratio_interval([burst.baseline], [burst.times])
            own, beside = (stats.median_interval(times).value for times in (burst.times, burst.baseline))
            yield context.row(
                subject,
                n=shape.n,
                over=over,
                time_us=own,
                over_us=beside,
                saved_us=beside - own,
                saved_bytes=moved - 2.0 * output.nbytes,
                times=ratio.value,
                times_low=ratio.low,
                times_high=ratio.high,
            )


EXPERIMENTS = (
    Experiment(
        name="epilogue",
        title="A fused epilogue",
        question="What does GELU(alpha A B + beta C + bias) save in one launch, of time and of bytes?",
        kernels=(FUSED, APART),
        libraries=(FUSED_LIBRARY,),
        parameters={"ns": [2048, 4096, 8192], "alpha": ALPHA, "beta": BETA},
        settings={"interval": 0.01, "seconds": 0.3, "least": 6, "most": 100},
        columns=(
            Column("n", "M = N = K", kind="integer"),
            Column("over", "what it alternates with", kind="text"),
            Column("time_us", "its time", "µs"),
            Column("over_us", "that of the other", "µs"),
            Column("saved_us", "time saved", "µs"),
            Column("saved_bytes", "bytes of C, z and D that it does not move", "B"),
            *with_interval(Column("times", "time of the other over its own", low="times_low", high="times_high")),
        ),
        points=lambda parameters: [{"n": n} for n in parameters["ns"]],
        measure=_epilogues,
    ),
    Experiment(
        name="forms",
        title="Forms of level H14 alone",
        question="What time and energy does each form take in under a second alone, before clock and power are steady, "
        "and from rest? Does the host choose the best?",
        kernels=(FORMS,),
        libraries=(LIBRARY,),
        parameters={"ns": SIZES_OF_FORMS},
        settings={"sizes": SIZES_OF_FORMS, "heat": 0.4, "seconds": 0.4, "rest": 0.6},
        columns=(
            Column("n", "M = N = K", kind="integer"),
            Column("form", "entry point; empty for the library", kind="text"),
            Column("chosen", "1 for the form that the host chooses, else 0", kind="integer"),
            Column("time_us", "median time of a launch, hot", "µs"),
            Column("tflops", "throughput, hot", "TFLOP/s"),
            Column("burst_tflops", "throughput of six launches from rest", "TFLOP/s"),
            Column("clock_mhz", "SM clock as NVML reports it, hot", "MHz"),
            Column("power_w", "power, hot", "W"),
            Column("joules", "power_w times time_us, hot; not the energy of the sustained regime", "J"),
        ),
        points=lambda parameters: [{"n": n} for n in parameters["ns"]],
        measure=_forms,
        follows={"tflops": lambda row: 2e-6 * row["n"] ** 3 / row["time_us"]},
    ),
    Experiment(
        name="shapes",
        title="Shapes that nobody chose",
        question="How does the library's time compare with that of the last rungs at any shape?",
        kernels=(ANY_SHAPE, FORMS),
        libraries=(LIBRARY,),
        parameters={"seed": 19},
        settings={"first": 20, "interval": 0.001, "seconds": 0.05, "least": 6, "most": 40},
        columns=(
            Column("kind", "drawn, model or extreme", kind="text"),
            *(Column(axis, axis.upper(), kind="integer") for axis in "mnk"),
            Column("form", "the entry point that the host chooses", kind="text"),
            Column("time_us", "its time", "µs"),
            Column("library_us", "that of the library", "µs"),
            *with_interval(Column("times", "time of the library over its own", low="times_low", high="times_high")),
        ),
        points=lambda parameters: [{"index": index, **shape} for index, shape in enumerate(shapes(parameters["seed"]))],
        measure=_shapes,
    ),
    Experiment(
        name="cores",
        title="Tensor cores beside CUDA cores",
        question=(
            "How many times the throughput of CUDA cores, in fp32, do tensor cores reach in 16 bits, and what share of "
            "wgmma's own?"
        ),
        kernels=("hopper.sketch", "hopper.by_size", "ladder.warptile", CEILING),
        libraries=("cublas.sgemm",),
        parameters={"ns": [4096, 8192], "pairs": [list(pair) for pair in PAIRS]},
        settings={"interval": 0.01, "seconds": 0.3, "least": 6, "most": 100},
        columns=(
            Column("n", "M = N = K", kind="integer"),
            Column("over", "what it alternates with", kind="text"),
            Column("tflops", "its throughput", "TFLOP/s"),
            Column("over_tflops", "that of the other", "TFLOP/s"),
            *with_interval(
                Column("times", "its throughput over that of the other", low="times_low", high="times_high")
            ),
        ),
        points=lambda parameters: [{"n": n} for n in parameters["ns"]],
        measure=_times,
    ),
    Experiment(
        name="layouts",
        title="Layouts that wgmma reads",
        question="Does wgmma need a swizzled layout in shared memory, and what comes of a plain one?",
        kernels=(KERNEL,),
        parameters={
            "size": 128,
            "seed": 1,
            "layouts": list(LAYOUTS),
            "distances": [16, 32, 64, 128, 256, 512, 1024, 2048],
        },
        columns=(
            Column("layout", "how the tiles of A and B lie in shared memory", kind="text"),
            Column("mode", "the swizzle that the descriptors name", kind="text"),
            Column("tried", "pairs of distances (leading, stride) that were tried", kind="integer"),
            Column("right", "pairs with which every element of C is exact", kind="integer"),
            Column("leading", "the best pair's leading distance", "B", kind="integer"),
            Column("stride", "the best pair's stride", "B", kind="integer"),
            Column("wrong", "share of C's elements that are wrong with the best pair"),
            Column("error", "Frobenius norm of C - C* over that of C* with the best pair"),
        ),
        points=lambda parameters: [{"layout": layout} for layout in parameters["layouts"]],
        measure=_measure,
    ),
)

"""Memory throughput: copies by length, histograms by distribution, bins and L2 window, sums by length.

All are timed warm: each launch follows one on the same arrays, in CUDA graphs where a launch takes under 50 µs (see
gemmrepro.timing). Arrays that fit the L2 cache are therefore read from it: rates above DRAM's are the cache's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from gemmrepro.core.dtypes import DTYPES
from gemmrepro.experiments import Column, Experiment, Lines, with_interval
from gemmrepro.operands import LAWS

WIDTHS = {
    "scalar": "scalar",
    "32": "32 bits",
    "64": "64 bits",
    "128": "128 bits",
    "once": "no loop",
}
COPIES = [f"memory.copy_{name}_{element}" for element in ("half", "float") for name in WIDTHS]
HISTOGRAMS = (
    "memory.histogram_global",
    "memory.histogram_shared",
    "memory.histogram_merged",
    "memory.histogram_shared_waves",
    "memory.histogram_merged_waves",
    "memory.histogram_lanes",
)
"""The article's three, and the project's."""
ARTICLE_BINS = 5 * (1 << 20)
"""The author's "5M", 20 MiB of counts."""
MANY_BINS = "memory.histogram_ranges"
"""The kernel for millions of bins."""
SUMS = tuple(
    f"memory.reduce_{name}"
    for name in ("divergent", "strided", "sequential", "first_add", "last_warp", "unrolled", "many", "wide")
)
MEMCPY, CUB_HISTOGRAM, CUB_SUM = "cuda.memcpy", "cub.histogram", "cub.reduce"
BINCOUNT, HISTC, TORCH_SUM = "torch.bincount", "torch.histc", "torch.sum"

INTERVAL, SECONDS, LEAST, MOST = 0.01, 0.05, 5, 100
"""When a point has enough samples (see timing.Plan). The interval of fewer than six is their whole range."""

TIMES = (
    *with_interval(Column("time_us", "median time per launch", "µs", low="time_low_us", high="time_high_us")),
    *with_interval(
        Column("gbps", "bytes that must be moved, divided by the time", "GB/s", low="gbps_low", high="gbps_high")
    ),
)


def _follows(moved: Callable[[Mapping[str, Any]], float]) -> dict[str, Callable[[Mapping[str, Any]], float]]:
    """The columns of TIMES and of the copy beside them that follow from others, of calls that must move `moved`."""
    return {
        "gbps": lambda row: moved(row) / row["time_us"] * 1e-3,
        "gbps_low": lambda row: moved(row) / row["time_high_us"] * 1e-3,
        "gbps_high": lambda row: moved(row) / row["time_low_us"] * 1e-3,
    }


def _of_copy(row: Mapping[str, Any]) -> float:
    return float(row["gbps"] / row["copy_gbps"])


class Stopwatch:
    """Times calls on one session as the sweep does."""

    def __init__(self, session: Any) -> None:
        from gemmrepro import timing

        self._timer = timing.Timer(session)
        self._plan = timing.Plan(INTERVAL, SECONDS, LEAST, MOST)

    def cells(self, call: Callable[[], None], moved: float, graphs: bool = True) -> dict[str, float]:
        """The cells of TIMES for `call`, which must move `moved` bytes; without graphs if it waits for the GPU."""
        from gemmrepro import stats, timing

        estimate = min(self._timer.once(call) for _ in range(2))  # the first may load code
        burst = self._timer.burst(
            [call], None, "warm", self._plan, (estimate, None), graphs and timing.wants_graphs(estimate, None)
        )
        time = stats.median_interval(burst.times)
        return {
            "time_us": time.value,
            "time_low_us": time.low,
            "time_high_us": time.high,
            "gbps": moved / time.value * 1e-3,
            "gbps_low": moved / time.high * 1e-3,
            "gbps_high": moved / time.low * 1e-3,
        }


def _torch_call(session: Any, name: str, array: Any, bins: int) -> Callable[[], None]:
    """PyTorch's call of that name on a CuPy array, on the session's stream."""
    import torch

    stream = torch.cuda.ExternalStream(session.stream.ptr)
    tensor = torch.as_tensor(array, device="cuda")

    def call() -> None:
        with torch.cuda.stream(stream):
            if name == BINCOUNT:
                torch.bincount(tensor, minlength=bins)
            elif name == HISTC:
                torch.histc(tensor, bins, 0, bins - 1)
            else:
                torch.sum(tensor)

    return call


# Copies ---------------------------------------------------------------------------------------------------------------


def _copy_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"dtype": dtype, "n": n} for dtype in parameters["dtypes"] for n in parameters["lengths"]]


def _measure_copy(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    from gemmrepro.operands import Operands, random
    from gemmrepro.operations import Problem, Shape

    dtype, n = point["dtype"], point["n"]
    problem, shape = Problem("vector_copy", dtype, dtype, "vector"), Shape(1, n, 1)
    inputs, output = random(problem, shape, n)
    watch, moved = Stopwatch(context.session), 2.0 * output.nbytes
    for subject in context.subjects:
        if subject.kernel != MEMCPY and context.kernel(subject).compute.dtype_in != dtype:
            continue
        call = context.bind(subject, Operands(problem, shape, tuple(inputs), output))
        yield context.row(subject, dtype=dtype, n=n, **watch.cells(call, moved))


def _copied(rates: Any) -> str:
    """How near a copy of 16 bytes at once comes to the driver's on the longest arrays, and one of single elements."""
    last = rates.iloc[-1]
    wide, single = (last[words] / last["memcpy"] for words in (WIDTHS["128"], WIDTHS["scalar"]))
    element, _ = last.name
    said = f"On the longest arrays of {element} 16 bytes an access reach {wide:.0%} of memcpy"
    return f"{said}, single elements {single:.0%}"


LENGTHS = [2**power for power in range(10, 31)]
"""The article's 1K to 1G, each twice the one before."""

COPY = Experiment(
    name="copy",
    title="Copies by access width",
    question="From what length on do wider accesses copy faster, and how close do they get to the driver's copy?",
    kernels=tuple(COPIES),
    libraries=(MEMCPY,),
    parameters={"dtypes": ["fp16", "fp32"], "lengths": LENGTHS},
    columns=(
        Column("dtype", "type of the elements", kind="text"),
        Column("n", "elements", kind="integer"),
        *TIMES,
    ),
    points=_copy_points,
    measure=_measure_copy,
    follows=_follows(lambda row: 2 * DTYPES[row["dtype"]] * row["n"]),
    figures=tuple(
        Lines(
            name=f"copy_{element}",
            title=f"Copies of {element} by length",
            x="n",
            x_label="elements",
            y="gbps",
            y_label="GB/s read and written",
            panel="dtype",
            panels={dtype: element},
            series={
                **{f"memory.copy_{name}_{element}": words for name, words in WIDTHS.items()},
                MEMCPY: "memcpy",
            },
            low=2**20,
            is_linear=True,
            says=_copied,
            caption=(
                "Bytes read and written per second from 2²⁰ elements on, warm: what fits in L2 is copied there. memcpy "
                "is the driver's device-to-device copy. The article's chart of them is an image, without numbers."
            ),
        )
        for element, dtype in (("half", "fp16"), ("float", "fp32"))
    ),
)

# Histograms -----------------------------------------------------------------------------------------------------------


def _histogram_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"bins": bins, "law": law} for bins, laws in parameters["laws"] for law in laws]


def _measure_histogram(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every version with the L2 window off, then on, relative to a copy of the ids."""
    import cupy

    from gemmrepro.gpu import baselines, l2_window
    from gemmrepro.operands import Operands, draw_ids
    from gemmrepro.operations import Problem, Shape

    session, n, bins, law = context.session, context.parameters["n"], point["bins"], point["law"]
    cupy.get_default_memory_pool().free_all_blocks()
    shape, watch = Shape(1, n, bins), Stopwatch(session)
    ids, copied = draw_ids(law, n, bins, 1, cupy), cupy.empty(n, cupy.int32)
    copying = Operands(Problem("vector_copy", "int32", "int32", "vector"), Shape(1, n, 1), (ids,), copied)
    rate = watch.cells(baselines.baseline(MEMCPY).bind(session, copying), 8.0 * n)["gbps"]
    del copied, copying
    counts = cupy.empty(bins + 1, cupy.int32)
    problem = Problem("histogram", "int32", "int32", "vector")
    allowed = l2_window.limits(session)
    windows = ("off", "on") if allowed.set_aside and allowed.window else ("off",)
    l2 = session.gpu.l2_bytes  # 0 where the driver does not tell
    most = {"most_kept_mb": allowed.set_aside / 2**20, "most_kept": allowed.set_aside / l2 if l2 else None}
    for subject in context.subjects:
        own = subject.kernel in (*HISTOGRAMS, MANY_BINS)
        if own and not context.kernel(subject).takes(shape):
            continue
        if subject.kernel in (BINCOUNT, HISTC):
            call = _torch_call(session, subject.kernel, ids, bins)
        else:
            call = context.bind(subject, Operands(problem, shape, (ids,), counts))
        for window in windows if own else ("off",):
            with l2_window.window(session, counts) if window == "on" else nullcontext(0) as kept:
                cells = watch.cells(call, 4.0 * (n + bins + 1), graphs=own)
            more = {"of_copy": cells["gbps"] / rate, "copy_gbps": rate, "kept_bytes": kept, **most}
            yield context.row(subject, bins=bins, law=law, window=window, n=n, **cells, **more)


HISTOGRAM = Experiment(
    name="histogram",
    title="Histograms by distribution of the ids, number of bins and L2 window",
    question="Which histogram is fast whatever the ids, and does it help to set aside part of L2 for the counts?",
    kernels=(*HISTOGRAMS, MANY_BINS),
    libraries=(CUB_HISTOGRAM, BINCOUNT, HISTC),
    # Ids that are all equal hit one address, whatever the number of bins.
    parameters={"n": 1 << 28, "laws": [[256, list(LAWS)], [ARTICLE_BINS, ["uniform", "skewed"]]]},
    columns=(
        Column("bins", "bins, not counting the one for ids out of range", kind="integer"),
        Column("law", "distribution of the ids", kind="text"),
        Column("window", "whether the counts are in an L2 persisting window", kind="text"),
        Column("n", "ids", kind="integer"),
        *TIMES,
        Column("of_copy", "gbps relative to cudaMemcpy of the ids, reads and writes counted"),
        Column("copy_gbps", "throughput of that copy", "GB/s"),
        Column("kept_bytes", "bytes of L2 set aside", kind="integer"),
        Column("most_kept_mb", "how much of L2 can be set aside (persistingL2CacheMaxSize), units of 2^20 bytes", "MB"),
        Column("most_kept", "share of L2 that can be set aside"),
    ),
    points=_histogram_points,
    measure=_measure_histogram,
    follows=_follows(lambda row: 4 * (row["n"] + row["bins"] + 1)) | {"of_copy": _of_copy},
)


def _ladder_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"law": law, "n": n} for law in parameters["laws"] for n in parameters["lengths"]]


def _measure_ladder(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.operands import Operands, draw_ids
    from gemmrepro.operations import Problem, Shape

    n, law, bins = point["n"], point["law"], context.parameters["bins"]
    ids, counts = draw_ids(law, n, bins, 1, cupy), cupy.empty(bins + 1, cupy.int32)
    problem, watch = Problem("histogram", "int32", "int32", "vector"), Stopwatch(context.session)
    for subject in context.subjects:
        call = context.bind(subject, Operands(problem, Shape(1, n, bins), (ids,), counts))
        yield context.row(subject, law=law, n=n, **watch.cells(call, 4.0 * (n + bins + 1)))


def _counted(rates: Any) -> str:
    """What skewed ids do to the first version and to the last."""
    last = {law: rates.loc[law].iloc[-1] for law in ("uniform", "constant")}
    falls = [last["constant"][name] / last["uniform"][name] for name in ("v1, global atomics", "v4, one bank per lane")]
    plain = falls[0] < 0.5 and falls[1] > 0.8
    return "Equal ids slow global atomics but not counts with one bank per lane" if plain else ""


HISTOGRAM_LENGTHS = Experiment(
    name="histogram_lengths",
    title="Histograms of 256 bins by length",
    question="How do the versions compare by number of ids, uniform and skewed?",
    kernels=HISTOGRAMS,
    libraries=(CUB_HISTOGRAM,),
    parameters={"bins": 256, "laws": list(LAWS), "lengths": [2**power for power in (12, 16, 20, 24, 28)]},
    columns=(
        Column("law", "distribution of the ids", kind="text"),
        Column("n", "ids", kind="integer"),
        *TIMES,
    ),
    points=_ladder_points,
    measure=_measure_ladder,
    follows=_follows(lambda row: 4 * (row["n"] + 257)),
    figures=(
        Lines(
            name="histogram",
            title="Histograms of 256 bins",
            x="n",
            x_label="ids",
            y="gbps",
            y_label="GB/s of ids",
            panel="law",
            panels={law: law for law in LAWS},
            series={
                HISTOGRAMS[0]: "v1, global atomics",
                HISTOGRAMS[1]: "v2, shared atomics",
                HISTOGRAMS[2]: "v3, merged",
                HISTOGRAMS[3]: "v2.1, one wave",
                HISTOGRAMS[5]: "v4, one bank per lane",
                CUB_HISTOGRAM: "CUB",
            },
            says=_counted,
            caption="Bytes of ids read per second, warm. Clearing the counts is included in the time.",
        ),
    ),
)

# Sums -----------------------------------------------------------------------------------------------------------------


def _sum_points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"dtype": "fp32", "n": n} for n in parameters["lengths"]]


def _measure_sum(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.gpu import baselines
    from gemmrepro.operands import Operands, random
    from gemmrepro.operations import Problem, Shape

    session, n = context.session, point["n"]
    cupy.get_default_memory_pool().free_all_blocks()
    problem, shape, watch = Problem("reduce", "fp32", "fp32", "vector"), Shape(1, n, 1), Stopwatch(session)
    inputs, output = random(problem, shape, n)
    copied = cupy.empty_like(inputs[0])
    copying = Operands(Problem("vector_copy", "fp32", "fp32", "vector"), shape, tuple(inputs), copied)
    rate = watch.cells(baselines.baseline(MEMCPY).bind(session, copying), 8.0 * n)["gbps"]
    del copied, copying
    for subject in context.subjects:
        if subject.kernel == TORCH_SUM:
            call = _torch_call(session, TORCH_SUM, inputs[0], 0)
        else:
            call = context.bind(subject, Operands(problem, shape, tuple(inputs), output))
        cells = watch.cells(call, 4.0 * n, graphs=subject.kernel != TORCH_SUM)
        more = {"of_copy": cells["gbps"] / rate, "copy_gbps": rate}
        yield context.row(subject, **point, **cells, **more)


_UNDRAWN = ("memory.reduce_last_warp", "memory.reduce_unrolled")
"""Steps whose curves would coincide with their neighbours'."""


def _summed(rates: Any) -> str:
    """What single elements and wide loads read of the longest array, beside CUB."""
    last = rates.iloc[-1]
    first, wide = last["divergent"] / last["CUB"], last["wide"] / last["CUB"]
    return f"Of the longest array the first tree reads {first:.0%} of what CUB reads, wide loads {wide:.0%}"


REDUCTION = Experiment(
    name="reduction",
    title="Sums by length",
    question="What does each step of the tree reduction gain, and when does memory become the limit?",
    kernels=SUMS,
    libraries=(CUB_SUM, TORCH_SUM),
    parameters={"lengths": [2**power for power in (12, 18, 24, 28)]},
    columns=(
        Column("dtype", "type of the elements", kind="text"),
        Column("n", "elements", kind="integer"),
        *TIMES,
        Column("of_copy", "gbps relative to cudaMemcpy of the elements, reads and writes counted"),
        Column("copy_gbps", "throughput of that copy", "GB/s"),
    ),
    points=_sum_points,
    measure=_measure_sum,
    follows=_follows(lambda row: DTYPES[row["dtype"]] * row["n"]) | {"of_copy": _of_copy},
    figures=(
        Lines(
            name="reduction",
            title="Tree reductions",
            x="n",
            x_label="elements",
            y="gbps",
            y_label="GB/s read",
            panel="dtype",
            panels={"fp32": "float"},
            series={
                **{kernel: kernel.split("_", 1)[1].replace("_", " ") for kernel in SUMS if kernel not in _UNDRAWN},
                CUB_SUM: "CUB",
            },
            low=2**18,
            is_linear=True,
            says=_summed,
            caption="Bytes read per second from 2¹⁸ elements on, warm: what fits in L2 is read from there.",
        ),
    ),
)

# The article's own programs -------------------------------------------------------------------------------------------

PRINTED = tuple(
    f"memory.printed_{name}_{element}" for element in ("half", "float") for name in ("scalar", "32", "64", "128")
)


def _measure_printed(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    from gemmrepro.operands import Operands, random
    from gemmrepro.operations import Problem, Shape

    dtype, n = point["dtype"], point["n"]
    shape, watch = Shape(1, n, 1), Stopwatch(context.session)
    inputs, output = random(Problem("whole_copy", dtype, dtype, "vector"), shape, n)
    for subject in context.subjects:
        kernel = context.kernel(subject)
        if kernel.compute.dtype_in == dtype:
            call = context.bind(subject, Operands(kernel.problem, shape, tuple(inputs), output))
            yield context.row(subject, dtype=dtype, n=n, **watch.cells(call, 2.0 * output.nbytes))


COPY_PRINTED = Experiment(
    name="copy_printed",
    title="The article's copy kernels by length",
    question="From what length on do the printed kernels with wider accesses copy faster, and what does the cast cost?",
    kernels=PRINTED,
    parameters={"dtypes": ["fp16", "fp32"], "lengths": LENGTHS},
    columns=COPY.columns,
    points=_copy_points,
    measure=_measure_printed,
    follows=COPY.follows,
)

GRIDS = {
    "memory.histogram_shared": ("clear_counts", "histogram_shared"),
    "memory.histogram_shared_few": ("clear_counts", "histogram_shared"),
    "memory.histogram_merged": ("clear_counts", "histogram_merged"),
    "memory.histogram_merged_many": ("clear_counts", "histogram_merged"),
}
"""Versions 2 and 3 on either grid, and their launches but for the merge."""


def _measure_grids(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.operands import Operands, draw_ids
    from gemmrepro.operations import Problem, Shape

    n, law, bins = context.parameters["n"], point["law"], context.parameters["bins"]
    ids, counts = draw_ids(law, n, bins, 1, cupy), cupy.empty(bins + 1, cupy.int32)
    shape, watch = Shape(1, n, bins), Stopwatch(context.session)
    given = Operands(Problem("histogram", "int32", "int32", "vector"), shape, (ids,), counts)
    for subject in context.subjects:
        steps = context.kernel(subject).steps_at(shape)
        counting = {"whole": context.bind(subject, given)}
        counting["without merge"] = context.loaded(subject).launches(given).bind(*GRIDS[subject.kernel])
        blocks = steps[1].launch(shape).grid[0]
        added = blocks * (bins + 1) if len(steps) == 2 else 0
        for part, call in counting.items():
            cells = watch.cells(call, 4.0 * (n + bins + 1))
            yield context.row(subject, law=law, part=part, n=n, bins=bins, blocks=blocks, added=added, **cells)


HISTOGRAM_GRIDS = Experiment(
    name="histogram_grids",
    title="Versions 2 and 3 of the histogram, each on the other's grid",
    question="Do the additions to global memory take the time, or the number of blocks?",
    kernels=tuple(GRIDS),
    parameters={"n": 1 << 28, "bins": 256, "laws": ["uniform"]},
    columns=(
        Column("law", "distribution of the ids", kind="text"),
        Column("part", "all launches, or all but version 3's merge", kind="text"),
        Column("n", "ids", kind="integer"),
        Column("bins", "bins, not counting the one for ids out of range", kind="integer"),
        Column("blocks", "blocks that count", kind="integer"),
        Column("added", "additions to global memory", kind="integer"),
        *TIMES,
    ),
    points=lambda parameters: [{"law": law} for law in parameters["laws"]],
    measure=_measure_grids,
    follows=_follows(lambda row: 4 * (row["n"] + row["bins"] + 1)),
)

EXPERIMENTS = (COPY, HISTOGRAM, HISTOGRAM_LENGTHS, REDUCTION, COPY_PRINTED, HISTOGRAM_GRIDS)

"""How to time a GPU, one formula as five kernels or as one, a training step compiled or not, and stale caches.

Each is measured by a file in this folder. Those whose name ends in ``_cpu``, and the caches, need no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemmrepro.experiments import Column, Dots, Experiment, Lines, beside, with_interval

ARTICLE = 128 * 3 * 224 * 224
"""The numbers of the article's GELU, from its notebook."""
EAGER, SCRIPT, COMPILE, OWN = "torch.eager", "torch.jit.script", "torch.compile", "pytorch.gelu"


def _one_per(key: str, values: str) -> Callable[[Mapping[str, Any]], list[dict[str, Any]]]:
    """One point per value of the parameter `values`, under `key`."""
    return lambda parameters: [{key: value} for value in parameters[values]]


def _measure(file: str, function: str) -> Callable[[Any, Mapping[str, Any]], Iterator[dict[str, Any]]]:
    """`function` of `file`, loaded only when called, since it imports PyTorch."""
    return lambda context, point: getattr(beside("pytorch", file), function)(context, point)


_TIME = (
    *with_interval(Column("median_us", "median time of a call", "µs", low="ci_low_us", high="ci_high_us")),
    Column("samples", "samples behind it", kind="integer"),
)
_RATIO = (
    *with_interval(
        Column("ratio", "time by this method relative to the correct one", low="ratio_low", high="ratio_high")
    ),
)

# How to time a GPU ----------------------------------------------------------------------------------------------------

WORKS = {
    "torch.mm": "a GEMM, bf16, 8192",
    "torch.add": "adding 2¹⁸ numbers",
    "torchvision.resnet50": "ResNet50, batch 128, forward",
}
METHODS = {
    "unsynchronised": "host, not synchronised",
    "first": "host, first call of the process",
    "synchronised": "host, synchronised",
    "many": "host, synchronised once for many calls",
    "rested": "events, after a rest",
    "events": "events, call by call",
    "queued": "events, queued calls",
    "graph": "graph of many calls",
    "suite": "the suite, warm",
    "cold": "the suite, cold L2",
    "zeros": "the suite, zeros",
    "cpu": "the CPU instead",
    "blocks": "itself, block after block",
    "turns": "itself, interleaved",
}


def _short_work(ratios: Any) -> str:
    """Whether a graph alone times a short kernel right."""
    short = ratios["adding 2¹⁸ numbers"]
    far = [short[METHODS[method]] for method in ("synchronised", "events", "queued")]
    right = abs(short[METHODS["graph"]] - 1) < 0.1 and min(far) > 2
    return "A short kernel is timed right by a graph of many calls, and by neither events nor the host" if right else ""


TIMING = Experiment(
    name="timing",
    title="How to time a GPU",
    question=(
        "What do the usual timing methods report for the same work, and how far is each from samples of a warm, "
        "settled GPU on random data?"
    ),
    kernels=(),
    libraries=tuple(WORKS),
    packages=("torch", "torchvision"),
    parameters={"gemm": 8192, "elements": 1 << 18, "batch": 128, "works": list(WORKS)},
    settings={
        "rounds": 5,
        "samples": 20,
        "cpu_calls": 3,
        "warm_up": 10,
        "heat_seconds": 0.5,
        "seconds": 0.15,
        "block_seconds": 0.3,
        "rest_seconds": 1.0,
    },
    sources=("timing.py",),
    columns=(
        Column("method", "how it was timed", kind="text"),
        *_TIME,
        *_RATIO,
        Column("mean_us", "mean of the samples", "µs"),
        Column("clock_mhz", "SM clock while it ran", "MHz"),
        Column("power_w", "power while it ran", "W"),
    ),
    points=_one_per("work", "works"),
    measure=_measure("timing.py", "on_gpu"),
    figures=(
        Dots(
            name="timing",
            title="What timing methods report for the same work",
            x="ratio",
            x_label="time by this method relative to the suite's; last two: first half relative to second",
            category="method",
            categories=METHODS,
            panels=WORKS,
            fair=(0.9, 1.1),
            says=_short_work,
            caption=(
                "Time reported by each method for the same work, divided by the suite's warm time: 0.1 means ten times "
                "too fast. In the last two lines a workload is compared with itself, and 1 is correct."
            ),
        ),
    ),
)

CPU_WORKS = {"torch.mm.small": "matrices of 32 by 32", "torch.mm.large": "matrices of 512 by 512"}
CPU_METHODS = {
    "first": "first call of the process",
    "mean": "mean, no warm-up",
    "single": "median of single calls",
    "least": "minimum of single calls",
    "coarse": "one call by time.time",
    "batches": "median of batches",
    "cores": "median of batches, every core",
    "thread": "CPU time of the thread",
}


def _unwarmed(ratios: Any) -> str:
    """Whether what has not been warmed up takes several times as long."""
    far = ratios.loc[[CPU_METHODS["first"], CPU_METHODS["mean"]]].min(axis=None)
    return "Without a warm-up the host's clock reports several times the work, by the mean too" if far > 2 else ""


CLOCKS = Experiment(
    name="timing_cpu",
    title="The host's clock, without a GPU",
    question="Which timing errors come from the host's clock alone?",
    kernels=(),
    libraries=tuple(CPU_WORKS),
    packages=("torch",),
    device="cpu",
    parameters={"small": 32, "large": 512, "works": list(CPU_WORKS)},
    settings={"first": 10, "warm_up": 20, "samples": 200, "batch_seconds": 0.005, "seconds": 0.5, "least": 7},
    sources=("clocks.py", "gelu_cpu.py"),
    columns=(
        Column("method", "how it was timed", kind="text"),
        *_TIME,
        *_RATIO,
        Column("tick_us", "smallest step of the clock", "µs"),
        Column("threads", "threads in use", kind="integer"),
    ),
    points=_one_per("work", "works"),
    measure=_measure("clocks.py", "on_cpu"),
    figures=(
        Dots(
            name="timing_cpu",
            title="What ways of reading the host's clock report for the same work",
            x="ratio",
            x_label="time by this method relative to the thread's CPU time",
            category="method",
            categories=CPU_METHODS,
            panels=CPU_WORKS,
            fair=(0.9, 1.1),
            says=_unwarmed,
            caption=(
                "fp32 matrix products by PyTorch on the CPU, with one thread except in one line, timed by the host's "
                "clock and compared with the thread's CPU time, which stops while it is preempted."
            ),
        ),
    ),
)

# GELU -----------------------------------------------------------------------------------------------------------------

_GELU = (
    Column("elements", "fp32 numbers", kind="integer"),
    *_TIME,
    *with_interval(
        Column("gain", "speed relative to the eager formula, samples interleaved", low="gain_low", high="gain_high")
    ),
    Column("moved_bytes", "bytes that its kernels must move: 44 per element in five kernels, 8 in one", "B"),
    Column("moved_gbps", "those bytes over its time", "GB/s"),
)
_IMPLEMENTATIONS = {
    OWN: "one hand-written kernel",
    COMPILE: "torch.compile",
    SCRIPT: "torch.jit.script",
    EAGER: "eager",
}
_ERROR = Column("error_u", "largest error over |x|, in units of 2^-24", "u")


TRAFFIC = 44 / 8
"""How many times the bytes of one kernel five must move."""


def _as_traffic(gains: Any) -> str:
    """Whether one kernel gains on the longest array what its traffic allows."""
    near = abs(gains.iloc[-1][_IMPLEMENTATIONS[OWN]] / TRAFFIC - 1) < 0.1
    return "On long arrays one hand-written kernel is as much faster than five as its traffic allows" if near else ""


def _on_cpu(gains: Any) -> str:
    """Whether scripting gains on the CPU and compiling does not."""
    gained, lost = gains[_IMPLEMENTATIONS[SCRIPT]].min() > 1, gains[_IMPLEMENTATIONS[COMPILE]].max() < 1
    return "On the CPU torch.jit.script gains at every length, torch.compile at none" if gained and lost else ""


def _gelu_figures(name: str, where: str, implementations: tuple[str, ...], says: Any) -> tuple[Lines, ...]:
    return (
        Lines(
            name=name,
            title=f"GELU {where}, one kernel against five",
            x="elements",
            x_label="elements",
            y="gain",
            y_label="speed relative to the eager formula",
            panel="what",
            panels={"gelu": f"fp32, {where}"},
            series={key: _IMPLEMENTATIONS[key] for key in implementations},
            says=says,
            caption=(
                "Time of the formula as five PyTorch operations divided by that of each alternative, samples "
                "interleaved. Five kernels move 44 bytes per element and one moves 8, so traffic alone allows 5.5."
            ),
        ),
    )


GELU = Experiment(
    name="gelu",
    title="Pointwise fusion: GELU as five kernels or one",
    question="What does computing the formula in one kernel gain, and does memory traffic explain it?",
    kernels=(OWN,),
    libraries=(EAGER, SCRIPT, COMPILE),
    packages=("torch",),
    parameters={"sizes": [1 << 12, 1 << 16, 1 << 20, 1 << 24, ARTICLE, 1 << 26, 1 << 28]},
    settings={"rounds": 3, "seconds_per_round": 0.06},
    sources=("gelu.py", "formula.py"),
    columns=(
        Column("what", "what is computed", kind="text"),
        *_GELU,
        Column("launches", "kernels and copies launched per call", kind="integer"),
        _ERROR,
        Column("mode", "how samples were taken", kind="text"),
    ),
    points=_one_per("elements", "sizes"),
    measure=_measure("gelu.py", "on_gpu"),
    follows={"moved_gbps": lambda row: row["moved_bytes"] / row["median_us"] * 1e-3},
    figures=_gelu_figures("gelu", "on the GPU", (OWN, COMPILE, SCRIPT), _as_traffic),
)

LOADS = (OWN, "pytorch.gelu_two", "pytorch.gelu_four")

GELU_LOADS = Experiment(
    name="gelu_loads",
    title="GELU by loads per thread",
    question="How many 16-byte loads should a thread of the fused kernel have in flight?",
    kernels=LOADS,
    libraries=(COMPILE,),
    packages=("torch",),
    parameters={"sizes": [1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28]},
    settings={"rounds": 3, "seconds_per_round": 0.06},
    sources=("gelu_loads.py", "gelu.py", "formula.py"),
    columns=(
        Column("elements", "elements of the array", kind="integer"),
        Column("loads", "16-byte loads per thread in flight", kind="integer"),
        *_TIME,
        *with_interval(
            Column(
                "of_compile",
                "speed relative to torch.compile's kernel, samples interleaved",
                low="of_compile_low",
                high="of_compile_high",
            )
        ),
        Column("moved_gbps", "8 bytes per element over its time", "GB/s"),
        _ERROR,
    ),
    points=_one_per("elements", "sizes"),
    measure=_measure("gelu_loads.py", "on_gpu"),
    follows={"moved_gbps": lambda row: 8 * row["elements"] / row["median_us"] * 1e-3},
)

GELU_CPU = Experiment(
    name="gelu_cpu",
    title="Pointwise fusion on the CPU",
    question="Does fusing the formula gain anything on the CPU?",
    kernels=(),
    libraries=(EAGER, SCRIPT, COMPILE),
    packages=("torch",),
    device="cpu",
    parameters={"sizes": [1 << 12, 1 << 16, 1 << 20, ARTICLE]},
    settings={"batch_seconds": 0.01, "seconds": 0.7, "least": 9},
    sources=("gelu.py", "gelu_cpu.py", "formula.py"),
    columns=(
        Column("what", "what is computed", kind="text"),
        *_GELU,
        Column("threads", "threads in use", kind="integer"),
        _ERROR,
    ),
    points=_one_per("elements", "sizes"),
    measure=_measure("gelu_cpu.py", "on_cpu"),
    follows={"moved_gbps": lambda row: row["moved_bytes"] / row["median_us"] * 1e-3},
    figures=_gelu_figures("gelu_cpu", "on the CPU", (COMPILE, SCRIPT), _on_cpu),
)

ORDERS = {
    "gpu": "the GPU at once",
    "cpu": "the CPU before",
    "cpu, cleared": "the CPU before, caches cleared",
    "cpu, new object": "the CPU before, another function of the same text",
    "shape": "another shape before",
}


def _over_functions(name: str, meaning: str, unit: str = "") -> tuple[Column, Column, Column]:
    """A median over functions, and the ends of its interval."""
    suffix = "_us" if unit else ""
    value, low, high = (f"{name}{end}{suffix}" for end in ("", "_low", "_high"))
    return with_interval(Column(value, f"{meaning} (median over the functions)", unit, low=low, high=high))


GELU_ORDER = Experiment(
    name="gelu_order",
    title="torch.jit.script on the GPU after the CPU",
    question="Does a function that was scripted and called on the CPU, or with another shape, stay slow on the GPU?",
    kernels=(),
    libraries=(SCRIPT,),
    packages=("torch",),
    parameters={"orders": list(ORDERS)},
    settings={"rounds": 7, "samples": 100},
    sources=("gelu_order.py", "formula.py"),
    columns=(
        Column("order", "what was called before", kind="text"),
        Column("elements", "fp32 numbers", kind="integer"),
        Column("rounds", "functions that nothing knew, one a round", kind="integer"),
        *_over_functions("first", "first call on the GPU; where it profiles, the second compiles", "µs"),
        *_over_functions("second", "second call", "µs"),
        *_over_functions("third", "third call", "µs"),
        *_over_functions("first_of_median", "first call relative to the median of later ones"),
        *_over_functions("second_of_median", "second call relative to the median of later ones"),
        *with_interval(
            Column(
                "slow_calls",
                "of the first five calls, those that took ten times the median or longer",
                kind="integer",
                low="slow_calls_low",
                high="slow_calls_high",
            )
        ),
        *_TIME[:3],
        *with_interval(
            Column("gain", "speed relative to the eager formula, samples alternating", low="gain_low", high="gain_high")
        ),
        Column("profiled_first", "1: the graph of every first call holds prim::profile; 0: not", kind="integer"),
        Column("profiled_later", "1: that of some fifth call does; 0: none", kind="integer"),
    ),
    points=_one_per("order", "orders"),
    measure=_measure("gelu_order.py", "on_gpu"),
)

# torch.compile --------------------------------------------------------------------------------------------------------

MODES = ["eager", "default", "reduce-overhead", "max-autotune"]
_COMPILED = (EAGER, f"{COMPILE}.default", f"{COMPILE}.reduce-overhead", f"{COMPILE}.max-autotune")


def _first_step(seconds: Any) -> str:
    """What compiling costs the first step, if the later ones gain."""
    forward, last = seconds.loc["forward"].iloc[0], seconds.groupby(level=0).last()
    first = forward.drop("eager").max()
    if first < 100 * forward["eager"] or (last.drop(columns="eager").max(axis=1) > last["eager"]).any():
        return ""
    return f"Compiling takes up to {first:.0f} s of the first forward pass; in the last step every mode beats eager"


TRAINING = Experiment(
    name="training",
    title="A training step of ResNet18, compiled or not",
    question=(
        "How much faster does torch.compile make a training step in each of its modes, and what does the first step "
        "cost? SGD on the sum of the outputs, as in the article; fp32 with PyTorch's defaults, which let convolutions "
        "use TF32."
    ),
    kernels=(),
    libraries=_COMPILED,
    packages=("torch", "torchvision"),
    parameters={"batch": 64, "warm_up": 10},
    settings={"modes": MODES, "iterations": 100, "rounds": 5, "limit_s": 300, "together": False},
    sources=("training.py",),
    columns=(
        Column("part", "steady: the timed steps; otherwise a part of a step of the warm-up", kind="text"),
        Column("batch", "images per step", kind="integer"),
        Column("iteration", "number of the step of the warm-up", kind="integer"),
        Column("seconds", "what that part took, by the host's clock", "s"),
        Column("iterations", "timed steps, the modes interleaved", kind="integer"),
        *with_interval(Column("step_ms", "median time of a step", "ms", low="ci_low_ms", high="ci_high_ms")),
        Column("mean_ms", "mean time of a step", "ms"),
        Column("total_s", "500 steps by the host's clock, from the mean of all timed steps", "s"),
        Column("first_s", "the first step, compilation included", "s"),
        Column("warm_s", "the warm-up, ten steps", "s"),
        Column("slow_steps", "steps of the warm-up that took twice as long as the quickest, or longer", kind="integer"),
        Column("warned", "1: PyTorch warned that the GPU is too small or too old for the mode", kind="integer"),
        Column("beside", "other modes compiled at the same time", kind="integer"),
        Column("launches", "calls per step by which the host submits work to the GPU", kind="integer"),
        Column("graphs", "graphs compiled", kind="integer"),
        Column("graph_breaks", "graph breaks", kind="integer"),
        Column("recompiles", "graphs recompiled", kind="integer"),
        Column("peak_gb", "peak memory", "GB"),
        Column("first_loss", "sum of the outputs at the first step"),
        Column("last_loss", "sum of the outputs at the tenth step"),
    ),
    points=lambda parameters: [{"batch": parameters["batch"]}],
    measure=_measure("training.py", "on_gpu"),
    figures=(
        Lines(
            name="training_first_steps",
            title="The first steps of a training, forward and backward",
            x="iteration",
            x_label="step",
            y="seconds",
            y_label="seconds, synchronised",
            panel="part",
            panels={"forward": "forward", "backward": "backward"},
            series=dict(zip(_COMPILED, ("eager", *MODES[1:]), strict=True)),
            says=_first_step,
            caption=(
                "The first ten training steps of ResNet18 in a process with empty caches, forward and backward "
                "synchronised apart, by the host's clock."
            ),
            x_scale="linear",
        ),
    ),
)

MONITORING = Experiment(
    name="monitoring",
    title="Timing every step of a training",
    question="What does it cost to time every training step, by synchronising and by CUDA events?",
    kernels=(),
    libraries=(EAGER,),
    packages=("torch", "torchvision"),
    parameters={"batches": [64]},
    settings={"warm_up": 10, "rounds": 9, "steps": 30},
    sources=("monitoring.py",),
    columns=(
        Column("way", "how every step is timed", kind="text"),
        Column("batch", "images per step", kind="integer"),
        *with_interval(
            Column("step_ms", "time of all steps divided by their number", "ms", low="ci_low_ms", high="ci_high_ms")
        ),
        *with_interval(
            Column("cost", "that time relative to steps that are not timed", low="cost_low", high="cost_high")
        ),
    ),
    points=_one_per("batch", "batches"),
    measure=_measure("monitoring.py", "on_gpu"),
)

CACHES = Experiment(
    name="caches",
    title="What caches keep",
    question="Which caches return code compiled before an edit, a change of mode, or the start of the process?",
    kernels=(),
    libraries=(SCRIPT, COMPILE),
    packages=("torch",),
    device="cpu",
    parameters={"probes": ["backend", "mode", "interrupted", "scripted again", "redefined", "edited", "disk"]},
    sources=("caches.py", "formula.py"),
    columns=(
        Column("probe", "what changed", kind="text"),
        Column("stale", "1: earlier code was reused; 0: not", kind="integer"),
        Column("found", "what was observed", kind="text"),
        Column("first_s", "first call with empty caches", "s"),
        Column("second_s", "first call of the next process", "s"),
    ),
    points=_one_per("probe", "probes"),
    measure=_measure("caches.py", "on_cpu"),
)

EXPERIMENTS = (TIMING, CLOCKS, GELU, GELU_LOADS, GELU_CPU, GELU_ORDER, TRAINING, MONITORING, CACHES)

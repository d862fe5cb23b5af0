"""How to time a GPU, one formula as five kernels or as one, a training step compiled or not, and what caches remember.

Each is a file beside this one. Those whose name ends in ``_cpu``, and the caches, need no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gemmrepro.experiments import Column, Dots, Experiment, Lines, beside

EAGER, SCRIPT, COMPILE, OWN = "torch.eager", "torch.jit.script", "torch.compile", "pytorch.gelu"


def _each(key: str, values: str) -> Callable[[Mapping[str, Any]], list[dict[str, Any]]]:
    """Points that differ in `key`, whose values are the parameter `values`."""
    return lambda parameters: [{key: value} for value in parameters[values]]


def _measure(file: str, function: str) -> Callable[[Any, Mapping[str, Any]], Iterator[dict[str, Any]]]:
    """`function` of `file`, loaded when it is called: it imports PyTorch."""
    return lambda context, point: getattr(beside("pytorch", file), function)(context, point)


_TIME = (
    Column("median_us", "median time of a call", "µs", low="ci_low_us", high="ci_high_us"),
    Column("ci_low_us", "low end of its 95% interval", "µs"),
    Column("ci_high_us", "high end of its 95% interval", "µs"),
    Column("samples", "samples behind it", kind="integer"),
)
_RATIO = (
    Column("ratio", "what the method says over what is right", low="ratio_low", high="ratio_high"),
    Column("ratio_low", "low end of its 95% interval"),
    Column("ratio_high", "high end of its 95% interval"),
)

# How to time a GPU ----------------------------------------------------------------------------------------------------

WORKS = {
    "torch.mm": "a GEMM, bf16, 8192",
    "torch.add": "an addition of 2¹⁸ numbers",
    "torchvision.resnet50": "ResNet50, batch 128, forward",
}
METHODS = {
    "unsynchronised": "host, not synchronised",
    "first": "host, first call of all",
    "synchronised": "host, synchronised",
    "many": "host, once for many calls",
    "rested": "events, after a rest",
    "events": "events, call by call",
    "queued": "events, calls queued",
    "graph": "graph of many calls",
    "suite": "the suite, warm",
    "cold": "the suite, cold L2",
    "zeros": "the suite, zeros",
    "blocks": "itself, block after block",
    "turns": "itself, in turn",
}

TIMING = Experiment(
    name="timing",
    title="How to time a GPU",
    question=(
        "What do the usual ways of timing say of the same work, and how far is each from the samples of a warm, "
        "settled GPU on random data?"
    ),
    kernels=(),
    libraries=tuple(WORKS),
    packages=("torch", "torchvision"),
    parameters={"gemm": 8192, "elements": 1 << 18, "batch": 128, "works": list(WORKS)},
    settings={
        "rounds": 5,
        "samples": 20,
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
    points=_each("work", "works"),
    measure=_measure("timing.py", "on_gpu"),
    figures=(
        Dots(
            name="timing",
            title="What methods of timing say of the same work",
            x="ratio",
            x_label="time by this method over the suite's; of the last two, first half over second",
            category="method",
            categories=METHODS,
            panels=WORKS,
            line_label="right",
            caption=(
                "What each method says of the same work, divided by what the suite says of it warm: 0.1 reads ten "
                "times too fast. In the last two lines a work is compared with itself, and 1 is right."
            ),
        ),
    ),
)

CPU_WORKS = {"torch.mm.small": "matrices of 32 by 32", "torch.mm.large": "matrices of 512 by 512"}
CPU_METHODS = {
    "first": "first call of all",
    "mean": "mean, no warm-up",
    "single": "median of single calls",
    "least": "least of single calls",
    "coarse": "one call by time.time",
    "batches": "median of batches",
    "cores": "median of batches, every core",
    "thread": "CPU time of the thread",
}

CLOCKS = Experiment(
    name="timing_cpu",
    title="The host's clock, without a GPU",
    question="What of timing goes wrong by the host's clock alone?",
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
        Column("threads", "threads that worked", kind="integer"),
    ),
    points=_each("work", "works"),
    measure=_measure("clocks.py", "on_cpu"),
    figures=(
        Dots(
            name="timing_cpu",
            title="What ways of reading the host's clock say of the same work",
            x="ratio",
            x_label="time by this method over the thread's own",
            category="method",
            categories=CPU_METHODS,
            panels=CPU_WORKS,
            line_label="right",
            caption=(
                "Products of fp32 matrices through PyTorch on the CPU, one thread but in one line, timed by the host's "
                "clock and held against the CPU time of the thread, which stands still while it is interrupted."
            ),
        ),
    ),
)

# GELU -----------------------------------------------------------------------------------------------------------------

_GELU = (
    Column("elements", "numbers of fp32", kind="integer"),
    *_TIME,
    Column("gain", "time of the eager formula over it, sampled in turn", low="gain_low", high="gain_high"),
    Column("gain_low", "low end of its 95% interval"),
    Column("gain_high", "high end of its 95% interval"),
    Column("moved_bytes", "bytes that its kernels must move: 44 an element in five kernels, 8 in one", "B"),
    Column("moved_gbps", "those over its time", "GB/s"),
)
_WAYS = {OWN: "one kernel by hand", COMPILE: "torch.compile", SCRIPT: "torch.jit.script", EAGER: "eager"}
_ERROR = Column("error_u", "largest error over |x|, in units of 2^-24", "u")


def _gelu_figures(name: str, where: str, ways: Mapping[str, str]) -> tuple[Lines, ...]:
    return (
        Lines(
            name=name,
            title=f"GELU {where}, one kernel against five",
            x="elements",
            x_label="elements",
            y="gain",
            y_label="times as fast as the eager formula",
            panel="what",
            panels={"gelu": f"fp32, {where}"},
            series=ways,
            caption=(
                "Time of the formula as five PyTorch operations over that of each other way, sampled in turn. Five "
                "kernels move 44 bytes an element and one moves 8, so memory alone allows 5.5."
            ),
        ),
    )


GELU = Experiment(
    name="gelu",
    title="Pointwise fusion: GELU as five kernels or one",
    question="What does it bring to compute the formula in one kernel, and do the bytes explain it?",
    kernels=(OWN,),
    libraries=(EAGER, SCRIPT, COMPILE),
    packages=("torch",),
    parameters={"sizes": [1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26, 1 << 28]},
    settings={"rounds": 3, "seconds_per_round": 0.06},
    sources=("gelu.py", "formula.py"),
    columns=(
        Column("what", "what is computed", kind="text"),
        *_GELU,
        Column("launches", "kernels and copies that a call launches", kind="integer"),
        _ERROR,
        Column("mode", "how samples were taken", kind="text"),
    ),
    points=_each("elements", "sizes"),
    measure=_measure("gelu.py", "on_gpu"),
    figures=_gelu_figures("gelu", "on the GPU", {key: _WAYS[key] for key in (OWN, COMPILE, SCRIPT)}),
)

LOADS = (OWN, "pytorch.gelu_two", "pytorch.gelu_four")

GELU_LOADS = Experiment(
    name="gelu_loads",
    title="GELU by loads a thread",
    question="How many loads of 16 bytes should a thread of the fused kernel have in flight?",
    kernels=LOADS,
    libraries=(COMPILE,),
    packages=("torch",),
    parameters={"sizes": [1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28]},
    settings={"rounds": 3, "seconds_per_round": 0.06},
    sources=("gelu_loads.py", "gelu.py", "formula.py"),
    columns=(
        Column("elements", "elements of the array", kind="integer"),
        Column("loads", "loads of 16 bytes a thread has in flight", kind="integer"),
        *_TIME,
        Column(
            "of_compile",
            "times as fast as torch.compile's kernel, in turn",
            low="of_compile_low",
            high="of_compile_high",
        ),
        Column("of_compile_low", "low end of its 95% interval"),
        Column("of_compile_high", "high end of its 95% interval"),
        Column("moved_gbps", "8 bytes an element over its time", "GB/s"),
        _ERROR,
    ),
    points=_each("elements", "sizes"),
    measure=_measure("gelu_loads.py", "on_gpu"),
)

GELU_CPU = Experiment(
    name="gelu_cpu",
    title="Pointwise fusion on the CPU",
    question="Does fusing the formula bring anything on the CPU?",
    kernels=(),
    libraries=(EAGER, SCRIPT, COMPILE),
    packages=("torch",),
    device="cpu",
    parameters={"sizes": [1 << 12, 1 << 16, 1 << 20, 1 << 24]},
    settings={"batch_seconds": 0.01, "seconds": 0.7, "least": 9},
    sources=("gelu.py", "gelu_cpu.py", "formula.py"),
    columns=(
        Column("what", "what is computed", kind="text"),
        *_GELU,
        Column("threads", "threads that worked", kind="integer"),
        _ERROR,
    ),
    points=_each("elements", "sizes"),
    measure=_measure("gelu_cpu.py", "on_cpu"),
    figures=_gelu_figures("gelu_cpu", "on the CPU", {key: _WAYS[key] for key in (COMPILE, SCRIPT)}),
)

# torch.compile --------------------------------------------------------------------------------------------------------

MODES = ["eager", "default", "reduce-overhead", "max-autotune"]
_COMPILED = (EAGER, f"{COMPILE}.default", f"{COMPILE}.reduce-overhead", f"{COMPILE}.max-autotune")

TRAINING = Experiment(
    name="training",
    title="A training step of ResNet18, compiled or not",
    question=(
        "What does torch.compile bring to a training step in each of its modes, and what does the first step cost? "
        "SGD, fp32 as PyTorch takes it by default, which lets convolutions use TF32."
    ),
    kernels=(),
    libraries=_COMPILED,
    packages=("torch", "torchvision"),
    parameters={"batch": 64, "warm_up": 10},
    settings={"modes": MODES, "iterations": 100, "rounds": 5, "limit_s": 300, "together": False},
    sources=("training.py",),
    columns=(
        Column("batch", "images a step", kind="integer"),
        Column("iterations", "steps that were timed, the modes in turn", kind="integer"),
        Column("step_ms", "median time of a step", "ms", low="ci_low_ms", high="ci_high_ms"),
        Column("ci_low_ms", "low end of its 95% interval", "ms"),
        Column("ci_high_ms", "high end of its 95% interval", "ms"),
        Column("mean_ms", "mean time of a step", "ms"),
        Column("total_s", "all timed steps, by the host's clock", "s"),
        Column("first_s", "the first step, compilation included", "s"),
        Column("warm_s", "the warm-up, ten steps", "s"),
        Column("beside", "other modes that were compiled at the same time", kind="integer"),
        Column("launches", "calls by which the host puts work on the GPU in a step", kind="integer"),
        Column("graphs", "graphs that were compiled", kind="integer"),
        Column("graph_breaks", "breaks between graphs", kind="integer"),
        Column("recompiles", "graphs that were compiled again", kind="integer"),
        Column("peak_gb", "memory at its highest", "GB"),
        Column("first_loss", "loss of the first step"),
        Column("last_loss", "loss of the tenth step"),
    ),
    points=lambda parameters: [{"batch": parameters["batch"]}],
    measure=_measure("training.py", "on_gpu"),
)

CACHES = Experiment(
    name="caches",
    title="What caches remember",
    question="Which caches hand back what was compiled before an edit, a change of mode, or the start of the process?",
    kernels=(),
    libraries=(SCRIPT, COMPILE),
    packages=("torch",),
    device="cpu",
    parameters={"probes": ["backend", "mode", "redefined", "edited", "disk"]},
    sources=("caches.py", "formula.py"),
    columns=(
        Column("probe", "what changed", kind="text"),
        Column("stale", "1: what was compiled before was used; 0: not", kind="integer"),
        Column("found", "what was seen", kind="text"),
        Column("first_s", "first call with empty caches", "s"),
        Column("second_s", "first call of the next process", "s"),
    ),
    points=_each("probe", "probes"),
    measure=_measure("caches.py", "on_cpu"),
)

EXPERIMENTS = (TIMING, CLOCKS, GELU, GELU_LOADS, GELU_CPU, TRAINING, CACHES)

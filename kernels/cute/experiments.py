"""How long the article's kernel takes to compile, in C++ and in the Python DSL. Needs both compilers, and no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gemmrepro.experiments import Column, Experiment, with_interval

NVCC, DSL = "nvidia-cutlass.nvcc", "nvidia-cutlass-dsl.jit"
SOURCES = {NVCC: "cute.article_three_stages", DSL: "cute.dsl_article"}


def _measure_compile(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Compile each kernel in turn in new processes, by the compilers of the build stage; CPU time is the children's."""
    import resource
    import tempfile
    import time
    from pathlib import Path

    from gemmrepro import registry, stats
    from gemmrepro.build.key import compiler
    from gemmrepro.build.toolkit import find_toolkit

    toolkit = find_toolkit("cuda13")
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in SOURCES}
    for _ in range(1 + context.settings["rounds"]):  # the first fills the file system's cache
        for name, times in taken.items():
            kernel = registry.kernel(SOURCES[name]).with_code(ptx="")
            with tempfile.TemporaryDirectory() as folder:
                before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
                compiler(kernel).compile(kernel, toolkit, [point["arch"]], 1, Path(folder) / "kernel.fatbin")
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                times.append((spent, time.monotonic() - start))
    for subject in context.subjects:
        times = taken[subject.kernel][1:]
        spent = stats.median_interval([each for each, _ in times])
        cells = {"cpu_s": spent.value, "cpu_low_s": spent.low, "cpu_high_s": spent.high}
        wall = stats.median_interval([each for _, each in times]).value
        yield context.row(subject, arch=point["arch"], rounds=len(times), **cells, wall_s=wall)


COMPILE = Experiment(
    name="compile",
    title="Compiling the article's kernel",
    question="How much faster does the Python kernel compile than the C++ one?",
    kernels=(),
    libraries=(NVCC, DSL),
    device="cpu",
    parameters={"archs": ["90"], "kernels": list(SOURCES.values())},
    settings={"rounds": 5},
    columns=(
        Column("arch", "the architecture compiled for", kind="text"),
        Column("rounds", "compilations, alternating", kind="integer"),
        *with_interval(
            Column("cpu_s", "median CPU time, processes and imports included", "s", low="cpu_low_s", high="cpu_high_s")
        ),
        Column("wall_s", "median time by the clock, with whatever else the machine does", "s"),
    ),
    points=lambda parameters: [{"arch": arch} for arch in parameters["archs"]],
    measure=_measure_compile,
)

EXPERIMENTS = (COMPILE,)

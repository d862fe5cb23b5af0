"""One cuTile kernel compiled twice: ahead of time, as its binary holds it, and just in time for arrays on the GPU."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import stats, timing
from gemmrepro.build.cutile import specification
from gemmrepro.build.cutile_export import tile_kernel
from gemmrepro.core.dtypes import bits
from gemmrepro.gates.guarded import POISON_BITS
from gemmrepro.gpu import device, dlpack
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Step

AHEAD_OF_TIME = "ahead of time"
JUST_IN_TIME = "just in time"

PLAN = timing.Plan(interval=0.005, seconds=0.1, least=5, most=100)

Run = Callable[[], None]
"""Makes all launches of one run, asynchronously."""


def shapes_for(kernel: Kernel) -> tuple[Shape, ...]:
    """A shape of several tiles with tails, and those that `Promises.gate_shapes` names."""
    tails, step = kernel.problem.operation.tails, {axis: kernel.accepts.multiple_of.get(axis, 1) for axis in "nk"}
    return (Shape(tails.m, tails.n * step["n"], tails.k * step["k"]), *kernel.promises.gate_shapes)


def launches_at(kernel: Kernel, shape: Shape) -> list[Kernel]:
    """The records of the launches that make a run on `shape`, in their order."""
    return [kernel.part(step) for step in kernel.steps_at(shape) if isinstance(step, Step)] or [kernel]


def passed_to(launch: Kernel, operands: Operands, workspace: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of ``cuda.tile.launch``: arrays with their lengths and types, integers, constants."""
    inputs = {name: array.reshape(operands.lengths(name)) for name, array in operands.arrays().items()}
    arrays = {**inputs, **workspace}
    dtypes = {name: launch.problem.dtype_of(name) for name in inputs}
    dtypes |= {name: buffer.dtype for name, buffer in launch.run.workspace.items()}

    def value(argument: str | int) -> Any:
        if isinstance(argument, int):
            return argument
        name = argument.removeprefix("array:")
        return dlpack.typed(arrays[name], dtypes[name])

    return (*map(value, launch.call.arguments), *specification(launch)["constants"].values())


def difference(runs: Mapping[str, Run], sync: Callable[[], None], output: Any, workspace: Mapping[str, Any]) -> str:
    """Do two runs, each on poisoned memory; returns how their outputs differ in bits, or '' if they do not."""
    results = {}
    for name, run in runs.items():
        for array in (output, *workspace.values()):
            bits(array)[...] = POISON_BITS[array.dtype.itemsize]
        run()
        sync()
        results[name] = bits(output).copy()
    (first, expected), (second, actual) = results.items()
    if wrong := int((expected != actual).sum()):
        return f"{wrong} of {expected.size} elements differ between {first} and {second}"
    return ""


@dataclass(frozen=True)
class Speed:
    """Time of the binary over time of the code compiled just in time, at M = N = K = `n`, with its 95% interval."""

    n: int
    ratio: float
    low: float
    high: float


def relative_speed(timer: timing.Timer, runs: Mapping[str, Run], n: int) -> Speed:
    """How fast the code compiled just in time is; both run alternately, with a warm cache."""
    ahead, just = runs[AHEAD_OF_TIME], runs[JUST_IN_TIME]
    estimates = (timer.estimate(ahead, timer.once(ahead)), timer.estimate(just, timer.once(just)))
    burst = timer.burst([ahead], [just], "warm", PLAN, estimates, False)
    ratio = stats.ratio_interval([burst.times], [burst.baseline])
    return Speed(n, ratio.value, ratio.low, ratio.high)


class TwoCompilations:
    """A kernel loaded from its binary, and its source for just-in-time compilation."""

    def __init__(self, session: device.Session, kernel: Kernel, build: Path, toolkit: str) -> None:
        """Raises UserError if the binary cannot be loaded, or the source does not fit the record."""
        self.session, self.kernel = session, kernel
        self.loaded = Loaded.built(session, kernel, build, toolkit)
        self._tiles = {code.code.entry: tile_kernel(specification(code)) for code in kernel.codes}

    def bind(self, operands: Operands) -> dict[str, Run]:
        """The run on `operands` of each compilation, AHEAD_OF_TIME and JUST_IN_TIME."""
        import cuda.tile as ct

        launches = [
            (launch.launch(operands.shape).grid, self._tiles[launch.code.entry], passed)
            for launch, passed in self._launches(operands)
        ]

        def just_in_time() -> None:
            for grid, tile, passed in launches:
                ct.launch(self.session.stream, grid, tile, passed)

        return {AHEAD_OF_TIME: self.loaded.bind(operands), JUST_IN_TIME: just_in_time}

    def codes(self, operands: Operands) -> dict[str, bytes]:
        """The cubins compiled just in time for `operands`, by entry point."""
        from cuda.tile import compilation

        codes = {}
        for launch, passed in self._launches(operands):
            tile, convention = self._tiles[launch.code.entry], compilation.CallingConvention.cutile_python_v1()
            signature = compilation.KernelSignature.from_kernel_args(tile, passed, convention, symbol=launch.code.entry)
            cubin = io.BytesIO()
            arch = self.session.gpu.arch
            compilation.export_kernel(tile, [signature], cubin, gpu_code=arch, output_format="cubin")
            codes[launch.code.entry] = cubin.getvalue()
        return codes

    def _launches(self, operands: Operands) -> list[tuple[Kernel, tuple[Any, ...]]]:
        """The launches of a run on `operands`: (record, arguments)."""
        workspace = self.loaded.workspace(operands.shape)
        return [(launch, passed_to(launch, operands, workspace)) for launch in launches_at(self.kernel, operands.shape)]

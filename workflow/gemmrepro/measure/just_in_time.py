"""Compile kernels in cuTile just in time on the GPU at hand, and check that they do what their binaries do.

Whoever follows the article calls ``cuda.tile.launch``, which compiles for the arrays it is given. This suite runs what
was compiled ahead of time (`gemmrepro.build_cutile`), where no array is. Both run here on the same operands, and must
write the same bits. Whether the machine code is the same too is noted, and how fast it is beside the binary's: of the
arrays that it is given the compiler knows other things than the record promises.

    python -m gemmrepro.measure.just_in_time --family cutile --build results/build \\
        --out results/just_in_time/cutile.json

It needs a GPU, CuPy, cuda-core, nvidia-ml-py, and cuda-tile with its compiler, as the CUDA 13 image has them. Where one
is missing the check is skipped, with the reason.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro import registry, stats, timing
from gemmrepro.build import cutile, cutile_export
from gemmrepro.build.record import build_record
from gemmrepro.core.dtypes import bits
from gemmrepro.core.files import write_json
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gates.guarded import POISON_BITS
from gemmrepro.gpu import device, dlpack, loaded, lock
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

TOOLKIT = "cuda13"

Verdict = dict[str, Any]
"""status (passed, failed, skipped), reason; where it passed `same_code`, whether both ways made the same machine code,
and `speed`, that of what was compiled just in time relative to the binary (`Both.speed`), where it was timed."""

PLAN = timing.Plan(interval=0.005, seconds=0.1, least=5, most=100)


def needed() -> None:
    """Raises UserError where cuTile or its compiler is not installed."""
    for name in cutile.PACKAGES:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise UserError(f"{name} is not installed (the CUDA 13 image has it)") from None


def shapes_for(kernel: Kernel) -> tuple[Shape, ...]:
    """Several tiles of any kernel, and tails; and the shapes on which alone it does all that it does."""
    tails, step = kernel.problem.operation.tails, {axis: kernel.multiple_of.get(axis, 1) for axis in "nk"}
    return (Shape(tails.m, tails.n * step["n"], tails.k * step["k"]), *kernel.gate_shapes)


def parts(kernel: Kernel, shape: Shape) -> list[Kernel]:
    """The records of the launches that make a run on `shape`, in their order."""
    return [kernel.part(step) for step in kernel.steps_at(shape)] or [kernel]


def given(part: Kernel, operands: Operands, workspace: Mapping[str, Any]) -> tuple[Any, ...]:
    """What ``cuda.tile.launch`` passes to `part`: arrays of their lengths and types, integers, constants."""
    arrays = {name: array.reshape(operands.lengths(name)) for name, array in operands.arrays().items()} | workspace
    dtypes = {"a": part.dtype_in, "b": part.dtype_in, "c": part.dtype_out}
    dtypes |= {name: buffer.dtype for name, buffer in part.workspace.items()}

    def one(argument: str | int) -> Any:
        if isinstance(argument, int):
            return argument
        name = argument.removeprefix("array:")
        return dlpack.typed(arrays[name], dtypes[name])

    return (*map(one, part.arguments), *cutile.specification(part)["constants"].values())


def compare(
    run: Mapping[str, Callable[[], None]], sync: Callable[[], None], output: Any, workspace: Mapping[str, Any]
) -> str:
    """Run a kernel both ways, `run` by name, into poisoned memory; returns how what it writes to `output` differs."""
    results = {}
    for name, launch in run.items():
        for array in (output, *workspace.values()):
            bits(array)[...] = POISON_BITS[array.dtype.itemsize]
        launch()
        sync()
        results[name] = bits(output).copy()
    (first, one), (second, other) = results.items()
    if wrong := int((one != other).sum()):
        return f"{wrong} of {one.size} elements differ between {first} and {second}"
    return ""


class Both:
    """A kernel, loaded from its binary and written to be compiled just in time."""

    def __init__(self, session: device.Session, kernel: Kernel, build: Path) -> None:
        self.session, self.kernel = session, kernel
        self.loaded = loaded.Loaded.built(session, kernel, build, TOOLKIT)
        self.tiles = {part.entry: cutile_export.tile_kernel(cutile.specification(part)) for part in kernel.codes}

    def launches(self, operands: Operands) -> list[tuple[Kernel, tuple[Any, ...]]]:
        """The launches that make a run on `operands`: the record of each, and what it is passed."""
        workspace = self.loaded.workspace(operands.shape)
        return [(part, given(part, operands, workspace)) for part in parts(self.kernel, operands.shape)]

    def bind(self, operands: Operands) -> dict[str, Callable[[], None]]:
        """A function for each way of compiling, which makes one run on `operands`."""
        import cuda.tile as ct

        launches = [
            (part.launch(operands.shape).grid, self.tiles[part.entry], passed)
            for part, passed in self.launches(operands)
        ]

        def just_in_time() -> None:
            for launch in launches:
                ct.launch(self.session.stream, *launch)

        return {"ahead of time": self.loaded.bind(operands), "just in time": just_in_time}

    def codes(self, operands: Operands) -> dict[str, bytes]:
        """The machine code that is compiled just in time for `operands`, by entry."""
        from cuda.tile import compilation

        found = {}
        for part, passed in self.launches(operands):
            tile, convention = self.tiles[part.entry], compilation.CallingConvention.cutile_python_v1()
            signature = compilation.KernelSignature.from_kernel_args(tile, passed, convention, symbol=part.entry)
            code = io.BytesIO()
            arch = self.session.gpu.arch
            compilation.export_kernel(tile, [signature], code, gpu_code=arch, output_format="cubin")
            found[part.entry] = code.getvalue()
        return found

    def speed(self, operands: Operands) -> dict[str, float]:
        """How fast what is compiled just in time is, relative to the binary: both in turn, warm, and 95% interval."""
        ways, timer = list(self.bind(operands).values()), timing.Timer(self.session)
        estimates = [timer.estimate(call, timer.once(call)) for call in ways]
        burst = timer.burst([ways[0]], [ways[1]], "warm", PLAN, tuple(estimates), False)
        ratio = stats.ratio_interval([burst.times], [burst.baseline])
        return {"n": operands.shape.n, "ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def check(session: device.Session, kernel: Kernel, build: Path, size: int) -> Verdict:
    """Both ways of compiling `kernel`, on this GPU; a matrix product timed at M = N = K = `size`, if not 0."""
    if kernel.program is not None:
        return {"status": "skipped", "reason": "the host chooses between its launches as it goes"}
    record = build_record(kernel, build, TOOLKIT)
    if device.pick_arch(list(record["archs"]), session.gpu.compute_capability) is None:
        return {"status": "skipped", "reason": f"the binary has no code for {session.gpu.arch}"}
    both, codes = Both(session, kernel, build), {}
    for shape in shapes_for(kernel):
        operands = Operands.of(kernel, shape, *random(kernel.problem, shape, 7))
        workspace = both.loaded.workspace(shape)
        if reason := compare(both.bind(operands), session.sync, operands.output, workspace):
            return {"status": "failed", "reason": f"at {shape} {reason}"}
        codes |= both.codes(operands)
    binary = (build / TOOLKIT / f"{kernel.id}.fatbin").read_bytes()
    verdict = {"status": "passed", "reason": "", "same_code": all(code in binary for code in codes.values())}
    if size and kernel.problem.operation.matrix_product:
        shape = Shape.cube(size)
        verdict["speed"] = both.speed(Operands.of(kernel, shape, *random(kernel.problem, shape, 7)))
    return verdict


def check_all(kernels: Sequence[Kernel], build: Path, size: int = 0) -> dict[str, Verdict]:
    """A verdict a kernel; an error of one is its verdict, and the others go on."""
    try:
        needed()
        session = device.open_gpu()
    except UserError as error:
        return {kernel.id: {"status": "skipped", "reason": str(error)} for kernel in kernels}
    for name in cutile.TOOLKIT_VARIABLES:
        os.environ.pop(name, None)
    found = {}
    with lock.exclusive(session) if size else lock.shared(session):
        for kernel in kernels:
            try:
                found[kernel.id] = check(session, kernel, build, size)
            except UserError:
                raise
            except Exception as error:  # whatever the compiler or the driver has to say
                found[kernel.id] = {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:500]}
    return found


def main() -> int:
    """Command line; writes the verdicts and exits with 1 if the two ways differ."""
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.measure.just_in_time", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--family", required=True, help="its kernels in cuTile are checked")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--size", type=int, default=0, help="time matrix products both ways at this size; 0: do not")
    parser.add_argument("--out", type=Path, required=True, help="the verdicts, as JSON")
    arguments = parser.parse_args()
    registry.family(arguments.family)
    kernels = [kernel for kernel in registry.kernels(arguments.family) if kernel.compiler_traits.just_in_time]
    if not kernels:
        raise UserError(f"family {arguments.family} has no kernels in cuTile; nothing is compiled just in time there.")
    build = arguments.build.resolve()
    out = arguments.out.resolve()
    os.chdir(ROOT)  # sources are named relative to it, in machine code too
    verdicts = check_all(kernels, build, arguments.size)
    write_json(out, verdicts)
    for name, verdict in verdicts.items():
        said = verdict["reason"] or ("the same machine code" if verdict["same_code"] else "other machine code")
        if speed := verdict.get("speed"):
            said += ", {ratio:.3f} [{low:.3f}, {high:.3f}] times as fast at {n}".format(**speed)
        print(f"{name:32} {verdict['status']:8} {said}", file=sys.stderr)
    return int(any(verdict["status"] == "failed" for verdict in verdicts.values()))


if __name__ == "__main__":
    run_stage(main)

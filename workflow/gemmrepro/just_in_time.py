"""Compile kernels in cuTile just in time on the GPU at hand, and check that they do what their binaries do.

Whoever follows the article calls ``cuda.tile.launch``, which compiles for the arrays it is given. This suite runs what
was compiled ahead of time (`gemmrepro.build_cutile`), where no array is. Both run here on the same operands, and must
write the same bits. Whether the machine code is the same too is noted: knowing the arrays, the compiler may promise
itself more of them than the record does.

    python -m gemmrepro.just_in_time --family cutile --build results/build --out results/just_in_time/cutile.json

It needs a GPU, CuPy, cuda-core, and cuda-tile with its compiler, as the CUDA 13 image has them. Where one is missing,
and for element types of which CuPy has no arrays, the check is skipped, with the reason.
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

from gemmrepro import build_cutile, registry
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import ROOT, read_json, write_json
from gemmrepro.guarded import POISON_BITS
from gemmrepro.operands import Operands, bits, random
from gemmrepro.registry import Kernel, Shape

TOOLKIT = "cuda13"
ARRAYS = ("fp16", "fp32", "tf32", "fp64", "int8", "int32")
"""Element types that a CuPy array can say of itself; the others are held as unsigned integers here."""

Verdict = dict[str, Any]
"""status (passed, failed, skipped), reason; where it ran: `same_code`, whether both ways made the same machine code."""


def unable() -> str:
    """Why nothing can be compiled just in time here; empty if it can."""
    for name in build_cutile.PACKAGES:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return f"{name} is not installed (the CUDA 13 image has it)"
    try:
        import cuda.core  # noqa: F401
        import cupy
    except ImportError as error:
        return f"{error.name} cannot be imported"
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"there is no usable NVIDIA GPU ({error})"
    return "" if found else "there is no visible NVIDIA GPU"


def shape_for(kernel: Kernel) -> Shape:
    """Several tiles of any kernel, and tails."""
    if kernel.op == "vector_add":
        return Shape(1, 100_003, 1)
    step = {axis: kernel.multiple_of.get(axis, 1) for axis in "mnk"}
    return Shape(300, 51 * step["n"], 65 * step["k"])


def compare(
    kernel: Kernel, run: Mapping[str, Callable[[Operands], None]], sync: Callable[[], None], operands: Operands
) -> str:
    """Run `kernel` both ways on `operands`, `run` by name, into poisoned memory; returns how results differ, if so."""
    results = {}
    for name, launch in run.items():
        bits(operands.output)[...] = POISON_BITS[operands.output.dtype.itemsize]
        launch(operands)
        sync()
        results[name] = bits(operands.output).copy()
    (first, one), (second, other) = results.items()
    if wrong := int((one != other).sum()):
        return f"{wrong} of {one.size} elements at {operands.shape} differ between {first} and {second}"
    return ""


def check(kernel: Kernel, build: Path) -> Verdict:
    """Both ways of compiling `kernel`, on this GPU."""
    if kernel.steps:
        return {"status": "skipped", "reason": "a run of it is several launches"}
    missing = {kernel.dtype_in, kernel.dtype_out} - set(ARRAYS)
    if missing:
        return {"status": "skipped", "reason": f"CuPy has no arrays of {', '.join(sorted(missing))}"}
    import cuda.core as core
    import cuda.tile as ct
    import cupy
    from cuda.tile import compilation

    capability = "".join(map(str, core.Device(0).compute_capability))
    record = read_json(build / TOOLKIT / f"{kernel.id}.json", "the build record", "run the build stage")
    if f"sm_{capability}" not in record["archs"]:
        return {"status": "skipped", "reason": f"the binary has no code for sm_{capability}"}

    core.Device(0).set_current()
    stream = cupy.cuda.Stream(non_blocking=True)
    spec, shape = build_cutile.specification(kernel), shape_for(kernel)
    tile, launch = build_cutile.tile_kernel(spec), kernel.launch(shape)
    binary = core.ObjectCode.from_fatbin((build / TOOLKIT / f"{kernel.id}.fatbin").read_bytes(), name=kernel.id)
    function = binary.get_kernel(kernel.entry)

    def ahead(operands: Operands) -> None:
        config = core.LaunchConfig(grid=launch.grid, block=launch.block, shmem_size=launch.shared_bytes)
        core.launch(core.Stream.from_handle(stream.ptr), config, function, *operands.arguments(kernel))

    def given(operands: Operands) -> tuple[Any, ...]:
        arrays = zip((*operands.inputs, operands.output), "abc", strict=True)
        shaped = [array.reshape(operands.lengths(name)) for array, name in arrays]
        return (*shaped, *spec["constants"].values())

    def just_in_time(operands: Operands) -> None:
        ct.launch(stream, launch.grid, tile, given(operands))

    with stream:
        inputs, output = random(kernel.problem, shape, 7)
        operands = Operands.of(kernel, shape, inputs, output)
        ways = {"ahead of time": ahead, "just in time": just_in_time}
        reason = compare(kernel, ways, stream.synchronize, operands)
        signature = compilation.KernelSignature.from_kernel_args(
            tile, given(operands), compilation.CallingConvention.cutile_python_v1(), symbol=kernel.entry
        )
    code = io.BytesIO()
    compilation.export_kernel(tile, [signature], code, gpu_code=f"sm_{capability}", output_format="cubin")
    same = code.getvalue() in (build / TOOLKIT / f"{kernel.id}.fatbin").read_bytes()
    return {"status": "failed" if reason else "passed", "reason": reason, "same_code": same}


def check_all(kernels: Sequence[Kernel], build: Path) -> dict[str, Verdict]:
    """A verdict a kernel; an error of one is its verdict, and the others go on."""
    if reason := unable():
        return {kernel.id: {"status": "skipped", "reason": reason} for kernel in kernels}
    for name in build_cutile.TOOLKITS:
        os.environ.pop(name, None)
    found = {}
    for kernel in kernels:
        try:
            found[kernel.id] = check(kernel, build)
        except UserError:
            raise
        except Exception as error:  # whatever the compiler or the driver has to say
            found[kernel.id] = {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:500]}
    return found


def main() -> int:
    """Command line; writes the verdicts and exits with 1 if the two ways differ."""
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.just_in_time", description=__doc__.split("\n")[0])
    parser.add_argument("--family", required=True, help="its kernels in cuTile are checked")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--out", type=Path, required=True, help="the verdicts, as JSON")
    arguments = parser.parse_args()
    registry.family(arguments.family)
    kernels = [kernel for kernel in registry.kernels(arguments.family) if kernel.compiler == "cutile"]
    if not kernels:
        raise UserError(f"family {arguments.family} has no kernels in cuTile; nothing is compiled just in time there.")
    build = arguments.build.resolve()
    out = arguments.out.resolve()
    os.chdir(ROOT)  # sources are named relative to it, in machine code too
    verdicts = check_all(kernels, build)
    write_json(out, verdicts)
    for name, verdict in verdicts.items():
        said = verdict["reason"] or ("the same machine code" if verdict["same_code"] else "other machine code")
        print(f"{name:32} {verdict['status']:8} {said}", file=sys.stderr)
    return int(any(verdict["status"] == "failed" for verdict in verdicts.values()))


if __name__ == "__main__":
    run_stage(main)

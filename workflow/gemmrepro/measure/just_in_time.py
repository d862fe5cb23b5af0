"""Compile kernels in cuTile just in time on this machine's GPU, and check that they do what their binaries do.

The article calls ``cuda.tile.launch``, which compiles for the arrays that it is passed. This suite runs binaries that
were compiled ahead of time (`gemmrepro.build.cutile`), for no particular array. This stage runs both on the same
operands; they must write the same bits. The verdict also states whether the machine code is the same, and how fast it
is relative to the binary's, because arrays tell the compiler more than the record promises.

    python -m gemmrepro.measure.just_in_time --family cutile --build results/build \\
        --out results/just_in_time/cutile.json

It needs a GPU, CuPy, cuda-core, nvidia-ml-py, and cuda-tile with its compiler, all of which the CUDA 13 image has. If
one is missing, the check is skipped and the verdict gives the reason.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gemmrepro import registry
from gemmrepro.core.files import write_json
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError, run_stage
from gemmrepro.measure import compilation_check


def main() -> int:
    """Command line; writes the verdicts and exits with 1 if two compilations of a kernel differ."""
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.measure.just_in_time", description=str(__doc__).split("\n")[0]
    )
    parser.add_argument("--family", required=True, help="the family whose cuTile kernels are checked")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--size", type=int, default=0, help="time matrix products at this size (default 0: not at all)")
    parser.add_argument("--out", type=Path, required=True, help="the verdicts, as JSON")
    arguments = parser.parse_args()
    registry.family(arguments.family)
    kernels = [kernel for kernel in registry.kernels(arguments.family) if kernel.compiler_traits.just_in_time]
    if not kernels:
        raise UserError(f"family {arguments.family} has no kernels in cuTile; nothing is compiled just in time there.")
    build = arguments.build.resolve()
    out = arguments.out.resolve()
    os.chdir(ROOT)  # sources are named relative to it, in machine code too
    verdicts = compilation_check.check_all(kernels, build, arguments.size)
    write_json(out, {name: verdict.to_json() for name, verdict in verdicts.items()})
    for name, verdict in verdicts.items():
        print(f"{name:32} {verdict}", file=sys.stderr)
    return int(any(verdict.status == "failed" for verdict in verdicts.values()))


if __name__ == "__main__":
    run_stage(main)

"""Hardware counters of a family's runs.

    python -m gemmrepro.measure.counters --family ladder --toolkits cuda12,cuda13 --sizes 4096 --build results/build \\
        --out counters.csv

If no counter can be read, the table holds only its header, and a line on stderr says why.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from gemmrepro import registry
from gemmrepro.core.files import write_atomic
from gemmrepro.core.tables import csv_text
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gpu import device
from gemmrepro.measure.columns import COUNTER_COLUMNS
from gemmrepro.measure.profiler import collect
from gemmrepro.operations import shape_of


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.measure.counters", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--family", required=True)
    parser.add_argument("--toolkits", default="cuda12,cuda13")
    parser.add_argument("--sizes", default="4096")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        sizes = [int(size) for size in arguments.sizes.split(",")]
    except ValueError:
        raise UserError(f"--sizes '{arguments.sizes}' is not a list of numbers such as 1024,4096.") from None
    targets = dict.fromkeys(
        (kernel.id, toolkit, shape_of(kernel.compute.op, size))
        for kernel in registry.kernels(arguments.family)
        for toolkit in arguments.toolkits.split(",")
        for size in sizes
        if toolkit in kernel.platform.toolkits and kernel.takes(shape_of(kernel.compute.op, size))
    )
    rows, reason = collect(device.open_gpu(), list(targets), arguments.build)
    if reason:
        print(f"gemmrepro: no hardware counters: {reason}", file=sys.stderr)
    write_atomic(arguments.out, csv_text(map(asdict, rows), COUNTER_COLUMNS))
    return 0


if __name__ == "__main__":
    run_stage(main)

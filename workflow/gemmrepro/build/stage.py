"""Build one kernel with one toolkit: a fat binary, its disassembly, and a build record.

    python -m gemmrepro.build.stage --kernel ladder.naive --toolkit cuda13 --archs 80,86,90 --out results/build/cuda13

nvcc, cuobjdump and nvdisasm come from PATH; for other compilers, so do ptxas and fatbinary, which assemble and pack.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from gemmrepro import registry
from gemmrepro.build.compile import build
from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.errors import run_stage


def main() -> int:
    """Command line; writes OUT/<kernel id>.{fatbin,sass,json}, the JSON last."""
    parser = argparse.ArgumentParser(prog="gemmrepro.build", description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--kernel", required=True, help="kernel id, such as ladder.naive")
    parser.add_argument("--toolkit", required=True, help="cuda12 or cuda13; must be the one on PATH")
    parser.add_argument("--archs", required=True, help="architectures, comma-separated: 80,86,90")
    parser.add_argument("--threads", type=int, default=1, help="architectures compiled at a time (default 1)")
    parser.add_argument("--out", required=True, type=Path, help="folder of the results")
    args = parser.parse_args()

    kernel = registry.kernel(args.kernel)
    started = time.monotonic()
    archs = [arch.strip() for arch in args.archs.split(",") if arch.strip()]
    compiled = build(kernel, args.toolkit, archs, max(1, args.threads))
    record = compiled.record
    write_atomic(args.out / f"{kernel.id}.fatbin", compiled.fatbin)
    write_atomic(args.out / f"{kernel.id}.sass", compiled.sass)
    write_json(args.out / f"{kernel.id}.json", record.to_json())
    registers = "/".join(str(code.registers) for code in record.archs.values())
    print(
        f"{kernel.id:24} {record.toolkit} {record.toolkit_version:10} {record.build_key}  "
        f"registers {registers:28} {time.monotonic() - started:.1f} s"
    )
    return 0


if __name__ == "__main__":
    run_stage(main)

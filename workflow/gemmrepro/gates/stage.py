"""Judge kernels before they may be measured: their machine code here, their numbers as measured or recorded.

    python -m gemmrepro.gates.stage --kernels ladder.naive=cuda12,cuda13 ladder.smem=cuda13 --build results/build \\
        (--numeric results/gates/numeric | --recorded reports/recorded/h200) --out results/gates
    python -m gemmrepro.gates.stage --check results/gates/*.json

The static gate reads the build records and needs no GPU: what the article says of the machine code is there, nothing
spills, and a block's registers and shared memory fit the architecture. It counts opcodes, so it can show *that* loads
are 128 bits wide or that barriers exist, and not whether addresses coalesce or barriers are in the right place;
coalescing shows in counters and times, the rest in the numerical gate, whose verdict is taken over by gate key.

A failed gate is a verdict, not an error: it is written, and the exit code is 0. Only ``--check`` exits with 1.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gemmrepro import registry
from gemmrepro.core import names
from gemmrepro.core.architectures import parsed
from gemmrepro.core.files import read_json, write_json
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gates.combined import UNUSED, gate, summary_line
from gemmrepro.registry.requirements import requirement


def check(paths: list[Path]) -> int:
    """Print one line per gate, in order; return 1 if any failed, else 0.

    Raises:
        UserError: a file is missing, corrupt or no gate.
    """
    failed = 0
    for path in paths:
        result = read_json(path, "the gate", "run the target 'gates' again")
        try:
            print(summary_line(result))
            failed += not result["passed"]
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"the gate {path} is corrupt (no {error}); run the target 'gates' again.") from None
    if failed:
        print(f"{failed} of {len(paths)} kernels failed their gate and will not be measured.")
    return 1 if failed else 0


def main() -> int:
    """Command line; writes gates, or checks them."""
    parser = argparse.ArgumentParser(prog="gemmrepro.gates", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", nargs="+", type=Path, metavar="GATE", help="print these gates; exit 1 if any failed")
    parser.add_argument("--kernels", nargs="+", metavar="ID=TOOLKITS", help="kernels, with toolkits (default all)")
    parser.add_argument("--build", type=Path, help="folder of the builds, results/build")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--numeric", type=Path, help="folder of the numerical gates measured here")
    which.add_argument("--recorded", type=Path, help="folder of a GPU's recordings")
    parser.add_argument("--gpu", metavar="CAPABILITY", help="compute capability of the GPU that measures, such as 9.0")
    parser.add_argument("--out", type=Path, help="folder of the gates")
    args = parser.parse_args()
    if args.check:
        return check(args.check)
    if not (args.kernels and args.build and args.out):
        parser.error("--kernels, --build and --out go together (or give --check)")
    capability = parsed(args.gpu) if args.gpu else None
    for each in args.kernels:
        name, _, listed = each.partition("=")
        toolkits = [toolkit.strip() for toolkit in listed.split(",") if toolkit.strip()] or list(names.TOOLKITS)
        kernel = registry.kernel(name)
        needs = requirement(kernel, capability) if capability else ""
        numeric = args.numeric / f"{name}.json" if args.numeric and not needs else None
        unjudged = (f"needs {needs}" if needs else UNUSED) if capability and numeric is None else ""
        result = gate(kernel, args.build, toolkits, numeric, args.recorded, unjudged)
        write_json(args.out / f"{name}.json", result)
        print(summary_line(result))
    return 0


if __name__ == "__main__":
    run_stage(main)

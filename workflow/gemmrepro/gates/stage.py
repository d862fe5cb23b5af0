"""Judge a kernel before it may be measured: its machine code here, its numbers as measured or recorded.

    python -m gemmrepro.gates.stage --kernel ladder.naive --build results/build --toolkits cuda12,cuda13 \\
        (--numeric results/gates/numeric/ladder.naive.json | --recorded reports/recorded/h200) \\
        --out results/gates/ladder.naive.json
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
from gemmrepro.core.files import read_json, write_json
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gates.combined import gate, summary_line


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
    """Command line; writes one gate, or checks many."""
    parser = argparse.ArgumentParser(prog="gemmrepro.gates", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", nargs="+", type=Path, metavar="GATE", help="print these gates; exit 1 if any failed")
    parser.add_argument("--kernel", help="kernel id, such as ladder.naive")
    parser.add_argument("--build", type=Path, help="folder of the builds, results/build")
    parser.add_argument("--toolkits", default=",".join(names.TOOLKITS), help="comma-separated (default all)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--numeric", type=Path, help="the numerical gate measured here")
    which.add_argument("--recorded", type=Path, help="folder of a GPU's recordings")
    parser.add_argument("--out", type=Path, help="where to write the gate")
    args = parser.parse_args()
    if args.check:
        return check(args.check)
    if not (args.kernel and args.build and args.out):
        parser.error("--kernel, --build and --out go together (or give --check)")
    toolkits = [toolkit.strip() for toolkit in args.toolkits.split(",") if toolkit.strip()]
    result = gate(registry.kernel(args.kernel), args.build, toolkits, args.numeric, args.recorded)
    write_json(args.out, result)
    print(summary_line(result))
    return 0


if __name__ == "__main__":
    run_stage(main)

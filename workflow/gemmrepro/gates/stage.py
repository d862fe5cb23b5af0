"""Judge kernels before they may be measured: their machine code here, their numbers as measured or recorded.

    python -m gemmrepro gates --kernels ladder.naive=cuda12,cuda13 ladder.smem=cuda13 --build results/build \\
        (--numeric results/gates/numeric | --recorded reports/recorded/h200) --out results/gates
    python -m gemmrepro gates --check results/gates/*.json

The static gate reads build records, without a GPU: the machine code is as the article says, nothing spills, and a
block's resources fit the architecture. It shows *that* loads are 128 bits wide or barriers exist, not whether addresses
coalesce (counters and times do) or barriers are in the right place (the numerical gate, taken over by gate key).

A failed gate is a verdict, not an error: it is written, and the exit code is 0. Only ``--check`` exits with 1.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from gemmrepro import registry
from gemmrepro.core import names
from gemmrepro.core.architectures import parsed
from gemmrepro.core.files import read_json, write_json
from gemmrepro.errors import UserError
from gemmrepro.gates.combined import UNUSED, gate, summary_line
from gemmrepro.registry.requirements import requirement


def check(paths: list[Path]) -> int:
    """Print one line per gate, in order; return 1 if any failed, else 0. Raises UserError for a corrupt file."""
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


def main(options: Namespace) -> int:
    if options.check:
        return check(options.check)
    if not (options.kernels and options.out):
        raise UserError("--kernels and --out go together; or give --check.")
    capability = parsed(options.gpu) if options.gpu else None
    for each in options.kernels:
        name, _, listed = each.partition("=")
        toolkits = [toolkit.strip() for toolkit in listed.split(",") if toolkit.strip()] or list(names.TOOLKITS)
        kernel = registry.kernel(name)
        needs = requirement(kernel, capability) if capability else ""
        numeric = options.numeric / f"{name}.json" if options.numeric and not needs else None
        unjudged = (f"needs {needs}" if needs else UNUSED) if capability and numeric is None else ""
        result = gate(kernel, options.build, toolkits, numeric, options.recorded, unjudged)
        write_json(options.out / f"{name}.json", result)
        print(summary_line(result))
    return 0

"""Bring committed recordings into results/measure, and mark what no longer belongs to today's binaries.

    python -m gemmrepro.measure.recorded --families ladder,hopper --recorded reports/recorded/h200 \\
        --build results/build --out results/measure

A row is "current" if its build key and its run key are those of today's build of the same kernel with the same toolkit,
and "stale" otherwise, also if that toolkit was not built. Rows of libraries have no build. Nothing in a recording is
believed that can be computed: what does not follow from its samples, or cannot be on its GPU, is refused
(gemmrepro.measure.checks).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.errors import UserError, run_stage
from gemmrepro.measure.checks.gates import GATES, check_gates
from gemmrepro.measure.checks.manifest import check_manifest
from gemmrepro.measure.checks.sanitizers import SANITIZERS
from gemmrepro.measure.checks.whole import read_whole
from gemmrepro.measure.columns import COUNTER_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.recording import COUNTERS, FILES, RUN, SAMPLES, SUMMARY, rows_text, stale, write_nothing


def bring(family: str, recorded: Path, build: Path, out: Path, synthetic: bool = False) -> tuple[int, int]:
    """Check a family's recording and copy it to `out` with its statuses set.

    A family without a recording on a GPU that has others gets no rows: its claims are "not measured".

    Args:
        synthetic: whether it may have been made for tests.

    Returns:
        (rows, stale rows).

    Raises:
        UserError: there is no recording of that GPU at all, or this one is incomplete, corrupt, or contradicts itself.
    """
    folder, out = Path(recorded) / family, Path(out)
    # Gates and experiments may have been recorded without any times.
    timed = any((folder / name).exists() for name in FILES)
    if not timed and Path(recorded).is_dir():
        check_manifest(folder, GATES, SANITIZERS)
        check_gates(family, folder / GATES)
        write_nothing(out)
        return 0, 0
    if not folder.is_dir():
        raise _unrecorded(family, Path(recorded))
    found = read_whole(family, folder, build, synthetic)
    write_atomic(out / SUMMARY, rows_text(found.rows, SUMMARY_COLUMNS))
    write_atomic(out / COUNTERS, rows_text(found.counters, COUNTER_COLUMNS))
    write_atomic(out / SAMPLES, found.samples)
    write_json(out / RUN, {**found.run, "source": "recorded"})
    return len(found.rows), stale(found.rows)


def _unrecorded(family: str, recorded: Path) -> UserError:
    gpus = sorted(path.name for path in recorded.parent.glob("*") if (path / family).is_dir())
    known = f"family {family} is recorded for {', '.join(gpus)}" if gpus else f"family {family} never was recorded"
    return UserError(
        f"there is no recording {recorded / family}; {known}. Set recorded_gpu, or record with workflow/scripts/record."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.measure.recorded", description=__doc__.split("\n")[0])
    parser.add_argument("--families", required=True, help="comma-separated")
    parser.add_argument("--recorded", type=Path, required=True, help="a GPU's folder under reports/recorded")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--out", type=Path, required=True, help="a folder for each family is made in it")
    arguments = parser.parse_args()
    for family in arguments.families.split(","):
        count, outdated = bring(family, arguments.recorded, arguments.build, arguments.out / family)
        if not count:
            print(
                f"recorded: {family} was never recorded there; record it with workflow/scripts/record.", file=sys.stderr
            )
        note = f", {outdated} of them stale: today's build differs from the one that was measured" if outdated else ""
        print(f"recorded: {family}: {count} rows{note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_stage(main)

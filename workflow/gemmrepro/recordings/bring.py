"""Bring committed recordings into the results, and mark what no longer belongs to today's binaries.

    python -m gemmrepro.recordings.bring --families ladder,hopper --recorded reports/recorded/h200 \\
        --build results/build --out results/measure

A row is "current" if its build key and its run key are those of today's build of the same kernel with the same toolkit,
and "stale" otherwise, also if that toolkit was not built. Rows of libraries have no build. Nothing in a recording is
believed that can be computed: what does not follow from its samples, or cannot be on its GPU, is refused.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gemmrepro.core.files import csv_text, write_atomic, write_json
from gemmrepro.errors import UserError, run_stage
from gemmrepro.measure.columns import COUNTER_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.recording import (
    COUNTERS,
    FILES,
    GATES,
    RUN,
    SAMPLES,
    SANITIZERS,
    SUMMARY,
    check_manifest,
    stale,
    write_nothing,
)
from gemmrepro.recordings.gates import check_gates
from gemmrepro.recordings.sweeps import read_whole


def bring_sweep(family: str, recorded: Path, build: Path, out: Path, synthetic: bool = False) -> tuple[int, int]:
    """Check a family's recording and copy it to `out` with its statuses set.

    A family without a recording on a GPU that has others gets no rows: its claims are "not measured".

    Args:
        synthetic: whether it may have been made for tests.

    Returns:
        (rows, stale rows).

    Raises:
        UserError: there is no recording of that GPU at all, or this one is incomplete, corrupt, or contradicts itself.
    """
    folder = recorded / family
    # Gates and experiments may have been recorded without any times.
    timed = any((folder / name).exists() for name in FILES)
    if not timed and recorded.is_dir():
        check_manifest(folder, GATES, SANITIZERS)
        check_gates(family, folder / GATES)
        write_nothing(out)
        return 0, 0
    if not folder.is_dir():
        gpus = ", ".join(sorted(path.name for path in recorded.parent.glob("*") if (path / family).is_dir()))
        known = f"family {family} is recorded for {gpus}" if gpus else f"family {family} never was recorded"
        remedy = "Set recorded_gpu, or record with workflow/scripts/record."
        raise UserError(f"there is no recording {folder}; {known}. {remedy}")
    recording = read_whole(family, folder, build, synthetic)
    write_atomic(out / SUMMARY, csv_text(recording.rows, SUMMARY_COLUMNS))
    write_atomic(out / COUNTERS, csv_text(recording.counters, COUNTER_COLUMNS))
    write_atomic(out / SAMPLES, recording.samples)
    write_json(out / RUN, {**recording.run, "source": "recorded"})
    return len(recording.rows), stale(recording.rows)


def main() -> int:
    """Bring the families that the command line names."""
    summary_line = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.recordings.bring", description=summary_line)
    parser.add_argument("--families", required=True, help="comma-separated")
    parser.add_argument("--recorded", type=Path, required=True, help="a GPU's folder under reports/recorded")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--out", type=Path, required=True, help="a folder for each family is made in it")
    arguments = parser.parse_args()
    for family in arguments.families.split(","):
        count, outdated = bring_sweep(family, arguments.recorded, arguments.build, arguments.out / family)
        if not count:
            remedy = "record it with workflow/scripts/record"
            print(f"recorded: {family} was never recorded there; {remedy}.", file=sys.stderr)
        note = f", {outdated} of them stale: today's build differs from the one that was measured" if outdated else ""
        print(f"recorded: {family}: {count} rows{note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_stage(main)

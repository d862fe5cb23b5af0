"""Bring the recorded regimes of families into results/regimes, checked, each row marked current or stale.

    python -m gemmrepro.measure.regimes.recorded --families hopper,crt --recorded reports/recorded/h200 \\
        --build results/build --out results/regimes

Every take is checked; the rows of a family's first one are brought. A family without any gets no rows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.errors import run_stage
from gemmrepro.measure.checks.regimes import read_take
from gemmrepro.measure.recording import rows_text, stale
from gemmrepro.measure.regimes import files, places
from gemmrepro.measure.regimes.columns import ROW_COLUMNS
from gemmrepro.measure.regimes.spread import Take, by_card, summary


def bring(family: str, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check the takes of `family` and copy the first one to `out` with its statuses set; returns (rows, stale rows).

    Raises:
        UserError: a take is incomplete, corrupt, or contradicts itself.
    """
    found = [read_take(family, folder, build) for folder in places.takes(recorded, family)]
    if not found:
        files.write_nothing(out)
        return 0, 0
    takes = [Take.of(take.run, take.rows) for take in found]
    first, cards = found[0], summary(takes) | {"by_card": by_card(takes)}
    write_atomic(out / places.SUMMARY, rows_text(first.rows, ROW_COLUMNS))
    write_atomic(out / places.SAMPLES, first.samples)
    write_atomic(out / places.READINGS, first.readings)
    write_json(out / places.RUN, {**first.run, "source": "recorded", **cards})
    return len(first.rows), stale(first.rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gemmrepro.measure.regimes.recorded", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--families", required=True, help="comma-separated")
    parser.add_argument("--recorded", type=Path, required=True, help="a GPU's folder under reports/recorded")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--out", type=Path, required=True, help="a folder for each family is made in it")
    arguments = parser.parse_args()
    for family in arguments.families.split(","):
        count, outdated = bring(family, arguments.recorded, arguments.build, arguments.out / family)
        note = f", {outdated} of them stale" if outdated else ""
        print(f"regimes: {family}: {count} rows{note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_stage(main)

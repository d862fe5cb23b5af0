"""Bring the recorded regimes of families into results/regimes, checked, each row marked current or stale.

    python -m gemmrepro.measure.regimes.recorded --families hopper,crt --recorded reports/recorded/h200 \\
        --build results/build --out results/regimes

Every take is checked. Each row is of the last take that has it, a current row before a stale one, and its ratio is
to the baseline of that take. A family without any gets no rows.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.core.tables import parquet
from gemmrepro.errors import run_stage
from gemmrepro.measure.checks.regimes import RegimeRecording, chosen, point_of, read_take
from gemmrepro.measure.recording import rows_text, stale
from gemmrepro.measure.regimes import files, places
from gemmrepro.measure.regimes.columns import POINT, ROW_COLUMNS
from gemmrepro.measure.regimes.spread import Take, by_card, summary


def _table(found: Sequence[RegimeRecording], takes: Mapping[files.Point, int], name: str) -> bytes:
    """The samples or readings (`name`) of the rows that are brought."""
    if len(set(takes.values())) == 1:
        return bytes(getattr(found[next(iter(takes.values()))], name))
    frames = []
    for number in sorted(set(takes.values())):
        frame = pd.read_parquet(io.BytesIO(getattr(found[number], name)))
        points = zip(*(frame[column].astype(str) for column in POINT), strict=True)
        frames.append(frame[[takes.get(point) == number for point in points]])
    return parquet(pd.concat(frames, ignore_index=True))


def _earlier(found: Sequence[RegimeRecording], takes: Mapping[files.Point, int]) -> list[dict[str, Any]]:
    """Of each take before the last that rows are brought from: its date, its card, and the kernels."""
    return [
        {
            "date": take.run["date"],
            "card": take.run["gpu"].get("card", ""),
            "kernels": sorted({point[POINT.index("kernel")] for point, of in takes.items() if of == number}),
        }
        for number, take in enumerate(found[:-1])
        if number in takes.values()
    ]


def bring(family: str, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check the takes of `family` and bring their rows to `out` with statuses set; returns (rows, stale rows).

    Raises:
        UserError: a take is incomplete, corrupt, or contradicts itself.
    """
    found = [read_take(family, folder, build) for folder in places.takes(recorded, family)]
    if not found:
        files.write_nothing(out)
        return 0, 0
    takes = [Take.of(take.run, take.rows) for take in found]
    cards, taken = summary(takes) | {"by_card": by_card(takes)}, chosen(found)
    rows = [row for number, take in enumerate(found) for row in take.rows if taken[point_of(row)] == number]
    write_atomic(out / places.SUMMARY, rows_text(rows, ROW_COLUMNS))
    write_atomic(out / places.SAMPLES, _table(found, taken, "samples"))
    write_atomic(out / places.READINGS, _table(found, taken, "readings"))
    write_json(out / places.RUN, {**found[-1].run, "source": "recorded", "earlier": _earlier(found, taken), **cards})
    return len(rows), stale(rows)


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

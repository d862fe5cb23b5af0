"""Bring committed recordings into the results, checked, and mark what no longer belongs to today's binaries.

    python -m gemmrepro recorded-rows --families ladder,hopper --recorded reports/recorded/h200 \\
        --build results/build --out results/measure --regimes results/regimes

A row is "current" if its build key and its run key are those of today's build of the same kernel with the same toolkit,
and "stale" otherwise, also if that toolkit was not built. Rows of libraries have no build. Nothing in a recording is
believed that can be computed: what does not follow from its samples, or cannot be on its GPU, is refused.

Of the regimes every take is checked. Each row is of the last take that has it, a current row before a stale one, and
its ratio is to the baseline of that take. run.json also says how far takes agree.
"""

from __future__ import annotations

import io
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro.core.files import csv_text, parquet, write_atomic, write_json
from gemmrepro.errors import UserError
from gemmrepro.measure import regimes as taken
from gemmrepro.measure.columns import COUNTER_COLUMNS, REGIME_COLUMNS, SUMMARY_COLUMNS
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
from gemmrepro.measure.rows import RegimePoint, write_no_regimes
from gemmrepro.recordings.limits import check_gates
from gemmrepro.recordings.regimes import POINT, RegimeRecording, agreement, read_takes
from gemmrepro.recordings.sweeps import read_whole


def bring_sweep(family: str, recorded: Path, build: Path, out: Path, synthetic: bool = False) -> tuple[int, int]:
    """Check a family's recording and copy it to `out` with its statuses set; returns (rows, stale rows).

    A family without a recording on a GPU that has others gets no rows: its claims are "not measured".

    Args:
        synthetic: whether it may have been made for tests.

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


def bring_regimes(family: str, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check the takes of `family` and bring their rows to `out` with statuses set; returns (rows, stale rows).

    A family without any gets no rows.

    Raises:
        UserError: a take is incomplete, corrupt, or contradicts itself.
    """
    found, take_of, rows = read_takes(family, recorded, build)
    if not found:
        write_no_regimes(out)
        return 0, 0
    agrees = agreement([(take.run, take.rows) for take in found])
    write_atomic(out / taken.SUMMARY, csv_text(rows, REGIME_COLUMNS))
    write_atomic(out / taken.SAMPLES, _table([take.samples for take in found], take_of))
    write_atomic(out / taken.READINGS, _table([take.readings for take in found], take_of))
    write_json(out / taken.RUN, {**found[-1].run, "source": "recorded", "earlier": _earlier(found, take_of), **agrees})
    return len(rows), stale(rows)


def _table(tables: Sequence[bytes], take_of: Mapping[RegimePoint, int]) -> bytes:
    """The samples or readings of the rows that are brought, from those of each take."""
    numbers = sorted(set(take_of.values()))
    if len(numbers) == 1:
        return tables[numbers[0]]
    frames = []
    for number in numbers:
        frame = pd.read_parquet(io.BytesIO(tables[number]))
        points = zip(*(frame[column].astype(str) for column in POINT), strict=True)
        frames.append(frame[[take_of.get(point) == number for point in points]])
    return parquet(pd.concat(frames, ignore_index=True))


def _earlier(found: Sequence[RegimeRecording], take_of: Mapping[RegimePoint, int]) -> list[dict[str, Any]]:
    """Of each take before the last that rows are brought from: its date, its card, and the kernels."""
    return [
        {
            "date": take.run["date"],
            "card": take.run["gpu"].get("card", ""),
            "kernels": sorted({point[POINT.index("kernel")] for point, other in take_of.items() if other == number}),
        }
        for number, take in enumerate(found[:-1])
        if number in take_of.values()
    ]


def main(options: Namespace) -> int:
    """Bring the recorded rows of families."""
    for family in options.families.split(","):
        for what, bring, out in (("recorded", bring_sweep, options.out), ("regimes", bring_regimes, options.regimes)):
            if out is None:
                continue
            count, outdated = bring(family, options.recorded, options.build, out / family)
            if not count and bring is bring_sweep:
                remedy = "record it with workflow/scripts/record"
                print(f"recorded: {family} was never recorded there; {remedy}.", file=sys.stderr)
            differs = ": today's build differs from the one that was measured" if bring is bring_sweep else ""
            note = f", {outdated} of them stale{differs}" if outdated else ""
            print(f"{what}: {family}: {count} rows{note}", file=sys.stderr)
    return 0

"""Bring the recorded regimes of families into results/regimes, checked, each row marked current or stale.

    python -m gemmrepro.recordings.takes --families hopper,crt --recorded reports/recorded/h200 \\
        --build results/build --out results/regimes

A take is a family's measurement in the regimes, of all its rows or of some; `gpu.card` in its run.json tells cards
apart. Every take is checked. Each row is of the last take that has it, a current row before a stale one, and its ratio
is to the baseline of that take. A family without any gets no rows.

run.json also says how far takes agree: two on the same card, and two cards of a model. What is compared is the median
of a row, where a take ran the same binary as the last take with this row: others would tell binaries apart, not cards.
Between cards, a card's value is the mean of its takes.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro.core.files import csv_text, parquet, write_atomic, write_json
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import run_stage
from gemmrepro.measure.columns import REGIME_COLUMNS, REGIME_POINT
from gemmrepro.measure.recording import stale
from gemmrepro.measure.regimes import READINGS, REGIMES, RUN, SAMPLES, SUMMARY, takes
from gemmrepro.measure.rows import RegimePoint, write_no_regimes
from gemmrepro.recordings.regimes import RegimeRecording, chosen, point_of, read_take

POINT = list(REGIME_POINT)


@dataclass(frozen=True)
class Spread:
    """Relative differences of medians in one regime.

    Attributes:
        rows: how many rows were compared.
        middle, largest: the median of their differences, and the largest.
        at: the row with the largest.
    """

    rows: int
    middle: float
    largest: float
    at: str


TakeRows = tuple[Mapping[str, Any], Sequence[Mapping[str, str]]]
"""A take: its run.json, and the rows of its summary as text."""


def rows_of(found: Iterable[TakeRows]) -> pd.DataFrame:
    """The rows of takes.

    Columns: those of REGIME_POINT, `card`, `us` (the median), `ratio`, and whether the row is `alike`: of the binary
    that the last take with this row ran.
    """
    cells = [
        {
            **{name: row[name] for name in POINT},
            "card": run["gpu"].get("card", ""),
            "us": float(row["median_us"]),
            "ratio": float(row["ratio"] or "nan"),
            "build_key": row["build_key"],
        }
        for run, rows in found
        for row in rows
    ]
    table = pd.DataFrame(cells, columns=[*POINT, "card", "us", "ratio", "build_key"])
    table["alike"] = table["build_key"] == table.groupby(POINT)["build_key"].transform("last")
    return table.drop(columns="build_key")


def repeated(rows: pd.DataFrame, regime: str) -> Spread | None:
    """How far takes on the same card are apart, a row's two most distant ones; None where no card has two.

    Args:
        rows: as `rows_of` gives them.
    """
    times = rows[rows["alike"] & (rows["regime"] == regime)].groupby([*POINT, "card"])["us"]
    return _spread(_differences(times).groupby(POINT).max())


def between_cards(rows: pd.DataFrame, regime: str) -> Spread | None:
    """How far cards are apart, a row's two most distant ones; None with takes of one card.

    Of kernels alone: a library chooses its algorithm anew in each take, and where candidates are close its rows differ
    on one card, too (cuBLAS at 1024 by 11%).
    """
    kernels = rows[rows["alike"] & (rows["regime"] == regime) & (rows["toolkit"] != LIBRARY)]
    return _spread(_differences(kernels.groupby([*POINT, "card"])["us"].agg(statistics.fmean).groupby(POINT)))


def _differences(times: Any) -> pd.Series:
    """How far the times of each group are apart that has at least two."""
    return (times.max() / times.min() - 1)[times.count() > 1]


def _spread(apart: pd.Series) -> Spread | None:
    if apart.empty:
        return None
    return Spread(len(apart), statistics.median(apart), float(apart.max()), " ".join(apart.idxmax()))


def by_card(rows: pd.DataFrame) -> dict[str, Any]:
    """Every row that several cards have, with the mean time and ratio of each card's takes, None where a card has none.

    {} where no two cards have a row in common.
    """
    cards, shared = list(rows["card"].unique()), []

    def means(parts: Mapping[str, pd.DataFrame], column: str) -> list[float | None]:
        values = [list(parts[card][column].dropna()) if card in parts else [] for card in cards]
        return [statistics.fmean(own) if own else None for own in values]

    for point, group in rows[rows["alike"]].groupby(POINT, sort=False):
        parts: dict[str, pd.DataFrame] = {str(card): part for card, part in group.groupby("card")}
        if len(parts) > 1:
            cells = dict(zip(POINT, point, strict=True))
            shared.append({"point": cells, "times_us": means(parts, "us"), "ratios": means(parts, "ratio")})
    return {"cards": cards, "rows": shared} if shared else {}


def agreement(found: Sequence[TakeRows]) -> dict[str, Any]:
    """How far takes agree, as run.json has it: their number, that of cards, spreads by regime, and `by_card`."""
    rows = rows_of(found)
    spreads = {
        regime: {
            name: None if spread is None else asdict(spread)
            for name, spread in (("repeated", repeated(rows, regime)), ("between_cards", between_cards(rows, regime)))
        }
        for regime in REGIMES
    }
    cards = {run["gpu"].get("card", "") for run, _ in found}
    return {"takes": len(found), "cards": len(cards), "spread": spreads, "by_card": by_card(rows)}


def _table(found: Sequence[RegimeRecording], take_of: Mapping[RegimePoint, int], name: str) -> bytes:
    """The samples or readings (`name`) of the rows that are brought."""
    numbers = sorted(set(take_of.values()))
    if len(numbers) == 1:
        return bytes(getattr(found[numbers[0]], name))
    frames = []
    for number in numbers:
        frame = pd.read_parquet(io.BytesIO(getattr(found[number], name)))
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


def bring(family: str, recorded: Path, build: Path, out: Path) -> tuple[int, int]:
    """Check the takes of `family` and bring their rows to `out` with statuses set; returns (rows, stale rows).

    Raises:
        UserError: a take is incomplete, corrupt, or contradicts itself.
    """
    found = [read_take(family, folder, build) for folder in takes(recorded, family)]
    if not found:
        write_no_regimes(out)
        return 0, 0
    agrees, take_of = agreement([(take.run, take.rows) for take in found]), chosen(found)
    rows = [row for number, take in enumerate(found) for row in take.rows if take_of[point_of(row)] == number]
    write_atomic(out / SUMMARY, csv_text(rows, REGIME_COLUMNS))
    write_atomic(out / SAMPLES, _table(found, take_of, "samples"))
    write_atomic(out / READINGS, _table(found, take_of, "readings"))
    write_json(out / RUN, {**found[-1].run, "source": "recorded", "earlier": _earlier(found, take_of), **agrees})
    return len(rows), stale(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.recordings.takes", description=__doc__.split("\n")[0])
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

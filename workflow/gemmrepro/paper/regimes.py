"""The best kernel of each family in each regime, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gemmrepro.core.text import listed
from gemmrepro.measure.regimes import BURST, IN_TURN, SUSTAINED
from gemmrepro.measure.rows import Measurements, Regimes, cubes, is_current
from gemmrepro.paper.rows import row_anchor

SHOWN = (IN_TURN, SUSTAINED, BURST)
SAME_TAKE = 1e-4
"""How far a baseline's median may be from the one in a row of its own take, which is written with fewer digits."""


@dataclass(frozen=True)
class Winner:
    """The kernel with the best ratio to its baseline in one regime; `anchor` is the id of its row.

    `joules` is the energy of a product in J, `library_joules` the baseline's; None where they were not counted.
    """

    kernel: str
    rung: str
    anchor: str
    ratio: float
    clock_mhz: float | None
    joules: float | None = None
    library_joules: float | None = None


@dataclass(frozen=True)
class RegimeLine:
    """One family at one type and size; `winners` by regime, None where it has no rows."""

    family: str
    dtype: str
    n: int
    kernels: int
    winners: Mapping[str, Winner | None]

    @property
    def flips(self) -> bool:
        """Whether another kernel wins in another regime."""
        return len({winner.kernel for winner in self.winners.values() if winner}) > 1


def regime_lines(measured: Mapping[str, Measurements], regimes: Mapping[str, Regimes]) -> list[RegimeLine]:
    """A line for each family, type and size with current rows in the regimes.

    Only kernels that were measured in the regimes compete in turn, too, with the same toolkit's binary.
    """
    lines = []
    for family, found in regimes.items():
        rows = cubes(found.summary[is_current(found.summary)])
        alike = rows[rows["toolkit"] != "library"].groupby(["dtype", "dtype_out", "layout", "n"], sort=False)
        for (dtype, _, _, n), part in alike:
            own = set(zip(part["kernel"], part["toolkit"], strict=True))
            summary, cache = measured[family].summary, measured[family].cache
            turned = summary[(summary["n"] == n) & (summary["cache"] == cache) & is_current(summary)]
            # A size of the regimes alone has no rows in turn: an empty list would select columns.
            competes = [pair in own for pair in zip(turned["kernel"], turned["toolkit"], strict=True)]
            in_turn = cubes(turned[np.array(competes, dtype=bool)])
            winners = {IN_TURN: _best(in_turn, rows)}
            for regime in (SUSTAINED, BURST):
                winners[regime] = _best(part[part["regime"] == regime], rows)
            kernels = len({kernel for kernel, _ in own})
            lines.append(RegimeLine(family, str(dtype), int(n), kernels, winners))
    return lines


def _best(rows: pd.DataFrame, every: pd.DataFrame) -> Winner | None:
    rows = rows[rows["ratio"].notna()]
    if rows.empty:
        return None
    best = rows.loc[rows["ratio"].idxmax()]
    library = None
    if "regime" in best:
        same = every["kernel"] == best["baseline"]
        for column in ("dtype", "dtype_out", "layout", "n", "regime"):
            same &= every[column] == best[column]
        # Of another take than the kernel's, the baseline's energy is another card's.
        same &= (every["median_us"] / best["baseline_median_us"] - 1).abs() < SAME_TAKE
        library = every[same]["joules"].dropna()
    return Winner(
        kernel=best["kernel"],
        rung=best["rung"],
        anchor=row_anchor(best),
        ratio=float(best["ratio"]),
        clock_mhz=_number(best["clock_mhz"]),
        joules=_number(best.get("joules")),
        library_joules=None if library is None or library.empty else float(library.iloc[0]),
    )


def _number(cell: Any) -> float | None:
    return None if cell is None or pd.isna(cell) else float(cell)


def takes_sentence(found: Regimes) -> str:
    """Which kernels' rows are of an earlier take than the others; '' if none are."""
    parts = [
        f"Rows of {', '.join(take['kernels'])}, sustained and in bursts, are in part of an earlier take "
        f"({take['date'][:10]}); their ratios are to that take's baseline."
        for take in found.run.get("earlier") or ()
    ]
    return " ".join(parts)


def cards_sentence(found: Regimes) -> str:
    """How far takes on one card, and cards, are apart, as sentences; '' where there is one take of one card."""
    spreads = found.run.get("spread") or {}
    sentences = []
    for where, name in (("Two takes on one card", "repeated"), ("Cards of one model", "between_cards")):
        parts = [
            f"{spread['middle']:.1%} {words} (median of {spread['rows']} rows; at most {spread['largest']:.1%})"
            for regime, words in ((SUSTAINED, "sustained"), (BURST, "in bursts"))
            if (spread := (spreads.get(regime) or {}).get(name))
        ]
        if parts:
            sentences.append(f"{where} ({found.family}): times of the same row differ by {listed(parts)}.")
    return " ".join(sentences)

"""Reads what ``results/regimes/<family>`` holds, for the stages after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro.core.files import read_json
from gemmrepro.measure.regimes import places
from gemmrepro.measure.regimes.columns import RegimeRow
from gemmrepro.measure.regimes.rules import REGIMES
from gemmrepro.measure.rows import read_table


@dataclass(frozen=True)
class Regimes:
    """One family's rows in the regimes, with the columns of `RegimeRow`; `run` is run.json or empty."""

    family: str
    summary: pd.DataFrame
    run: dict[str, Any] = field(default_factory=dict)

    def of(self, regime: str) -> pd.DataFrame:
        """The rows of one regime."""
        return self.summary[self.summary["regime"] == regime].reset_index(drop=True)

    def by_regime(self) -> dict[str, pd.DataFrame]:
        """The rows of every regime that has some."""
        return {regime: rows for regime in REGIMES if len(rows := self.of(regime))}


def load(folder: Path | str | None, family: str) -> Regimes:
    """Read ``<folder>/<family>``; a family that is not there, or no folder, has no rows.

    Raises:
        UserError: a file is there but is not what it should be.
    """
    place = Path(folder or "/nonexistent") / family
    run = {}
    if (place / places.RUN).is_file():
        run = read_json(place / places.RUN, "the run manifest", "remeasure, or restore the recorded file")
    return Regimes(family, read_table(place / places.SUMMARY, RegimeRow), run)

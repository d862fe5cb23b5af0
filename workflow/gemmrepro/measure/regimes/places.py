"""Where the files of the regimes are."""

from __future__ import annotations

from pathlib import Path

SUMMARY, SAMPLES, READINGS, RUN = FILES = ("summary.csv", "samples.parquet", "readings.parquet", "run.json")
"""The files that are written for a family, and that a take holds."""

FOLDER = "regimes"
"""The folder of takes within a family's recording: regimes/1, regimes/2, … `recorded` says whose rows are judged."""


def takes(recordings: Path, family: str) -> list[Path]:
    """The folders of a family's takes among a GPU's recordings, the first one first."""
    found = (path for path in (recordings / family / FOLDER).glob("*") if path.name.isdigit())
    return sorted(found, key=lambda path: int(path.name))

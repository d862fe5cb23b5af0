"""Says of what a GPU can run none of the kernels of that nothing was measured, without starting anything there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gemmrepro import experiments
from gemmrepro.core.files import csv_text, write_atomic, write_json
from gemmrepro.measure import recording, rows


def write_nothing(
    results: Path, sweeps: Iterable[str], regimes: Iterable[str], of_experiments: Mapping[str, Iterable[str]]
) -> None:
    """Write the files of these families' sweeps and regimes, and of experiments by family, without rows."""
    for family in sweeps:
        recording.write_nothing(results / "measure" / family)
    for family in regimes:
        rows.write_no_regimes(results / "regimes" / family)
    for family, names in of_experiments.items():
        for name in names:
            place = results / "experiments" / family / name
            header = experiments.experiment(family, name).header
            write_atomic(place.with_suffix(".csv"), csv_text([], header))
            write_json(place.with_suffix(".json"), {"source": "none"})

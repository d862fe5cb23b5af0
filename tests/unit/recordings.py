"""Writes recordings whose rows follow from their samples, by the same functions as a sweep."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gemmrepro import operands, registry
from gemmrepro.core.files import csv_text
from gemmrepro.measure.columns import COUNTER_COLUMNS, SAMPLE_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.recording import COUNTERS, RUN, SAMPLES, SUMMARY, write_manifest
from gemmrepro.measure.rows import rate_cells, ratio_cells, time_cells
from gemmrepro.operations import Shape
from gemmrepro.registry.keys import run_key

GPU = {
    **{"name": "Synthetic GPU", "compute_capability": "9.0", "sm_count": 100, "l2_bytes": 50_000_000},
    **{"memory_bytes": 100_000_000_000, "driver": "1", "clock_max_mhz": 1980, "memory_clock_mhz": None},
    "power_cap_w": 700,
}
RUN_JSON: dict[str, Any] = {
    "source": "live",
    "gpu": GPU,
    "libraries": {},
    "toolkits": {"cuda13": "13.0.88"},
    "baseline_kernels": {},
    "git_commit": None,
    "date": "2026-01-01T00:00:00Z",
    "config": {"rounds": 3, "interval": 0.01, "seconds_per_round": 1, "samples_per_round": [12, 12], "sizes": {}}
    | {"toolkits": ["cuda13"], "caches": ["warm"]},
}


def drawn(median_us: float, seed: int, rounds: int = 3) -> list[list[float]]:
    """Times around a median, in rounds, with the digits of a journal."""
    rng = np.random.default_rng(seed)
    return [
        [round(float(time), 4) for time in median_us * (1 + 0.003 * rng.standard_normal(12))] for _ in range(rounds)
    ]


@dataclass
class Recorded:
    """A point of a recording: `build_key` is a binary's, or a library's version."""

    kernel: str
    size: int
    times: list[list[float]]
    baseline: list[list[float]]
    build_key: str = "aaaa"
    toolkit: str = "cuda13"
    cache: str = "warm"
    cells: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _kernel(self) -> registry.Kernel:
        """Its kernel, or the one of the ladder that is compared with it."""
        return registry.kernel("ladder.naive" if self.toolkit == "library" else self.kernel)

    def row(self) -> dict[str, Any]:
        kernel, shape, times = self._kernel, Shape.cube(self.size), time_cells(self.times)
        library = self.toolkit == "library"
        cells = {
            "kernel": self.kernel,
            "family": kernel.family,
            "rung": kernel.rung,
            "dtype": kernel.compute.dtype_in,
            **asdict(shape),
            "cache": self.cache,
            "toolkit": self.toolkit,
            "arch": "sm_90",
            "baseline": kernel.timing.baseline,
            "err_scaled_max": None if library else 2.5,
            **{"clock_mhz": 1980.0, "power_w": 200.0, "temp_c": 40.0, "throttle": "none"},
            "build_key": self.build_key,
            "run_key": None if library else run_key(kernel, self.build_key, shape),
            "status": "current",
            **times,
            **ratio_cells(self.times, self.baseline),
            **rate_cells(times["median_us"], *operands.work(kernel, shape)),
        }
        return {**dict.fromkeys(SUMMARY_COLUMNS), **cells, **self.cells}

    def samples(self) -> pd.DataFrame:
        row, frames = self.row(), []
        for number, (times, baseline) in enumerate(zip(self.times, self.baseline, strict=True)):
            point = {name: row[name] for name in SAMPLE_COLUMNS if name in row}
            taken = {"round": number, "index": range(len(times)), "time_us": times, "baseline_us": baseline}
            frames.append(pd.DataFrame(point | {"d": pd.array([pd.NA] * len(times), dtype="Int64")} | taken))
        return pd.concat(frames, ignore_index=True)[SAMPLE_COLUMNS]


def pair() -> list[Recorded]:
    """ladder.naive and its baseline at 256."""
    return [
        Recorded("ladder.naive", 256, drawn(140.0, 1), drawn(6.3, 2)),
        Recorded("cublas.sgemm", 256, drawn(6.3, 3), drawn(6.3, 4), "cuBLAS 13.1.0", "library"),
    ]


def write(folder: Path, points: Sequence[Recorded], counters: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write the four files of a family's recording."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).write_text(csv_text([point.row() for point in points], SUMMARY_COLUMNS))
    pd.concat([point.samples() for point in points], ignore_index=True).to_parquet(folder / SAMPLES, index=False)
    (folder / COUNTERS).write_text(csv_text(map(dict, counters), COUNTER_COLUMNS))
    (folder / RUN).write_text(json.dumps(RUN_JSON))
    write_manifest(folder)


def reword(folder: Path, line: int, **cells: Any) -> None:
    """Change cells of a summary's row, counted from 0."""
    rows = pd.read_csv(folder / SUMMARY, dtype=str, keep_default_na=False)
    for column, cell in cells.items():
        rows.loc[line, column] = str(cell)
    rows.to_csv(folder / SUMMARY, index=False)
    write_manifest(folder)

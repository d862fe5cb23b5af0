"""Summary rows, samples and counters as text, for the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from gemmrepro.errors import UserError
from gemmrepro.measure.regimes import BURST
from gemmrepro.measure.rows import BEYOND, Measurements, counted, counter_key, row_key
from gemmrepro.paper.machine import ceiling_of
from gemmrepro.paper.text import NONE, anchor, histogram, interval, number, size_text, time_text

SAMPLE_KEYS = ("kernel", "toolkit", "dtype", "m", "n", "k", "cache")
"""What identifies a row's samples."""

Samples = Mapping[tuple[str, ...], np.ndarray]
"""Samples in µs by SAMPLE_KEYS."""


@dataclass(frozen=True)
class RowView:
    """A summary row as text; `ratio_value` is the ratio as a number, `anchor` the id of its row of samples.

    Intervals are empty where they come from too few samples, or end above what the GPU can do. `paired` is the rate of
    the baseline that was timed in alternation with this row, in `rate_unit`.
    """

    anchor: str
    kernel: str
    dtype: str
    size: str
    cache: str
    toolkit: str
    time: str
    time_interval: str
    tflops: str
    tflops_interval: str
    gbps: str
    ratio: str
    ratio_value: float | None
    ratio_interval: str
    paired: float | None
    samples: str
    rounds: str
    error: str
    clock: str
    power: str
    temperature: str
    throttle: str
    stale: bool
    histogram: Markup

    @property
    def rate(self) -> str:
        """TFLOP/s, or GB/s for kernels without arithmetic."""
        return self.gbps if self.tflops == NONE else self.tflops

    @property
    def rate_unit(self) -> str:
        """The unit of `rate`."""
        return "GB/s" if self.tflops == NONE else "TFLOP/s"


@dataclass(frozen=True)
class RegimeRowView:
    """A row of the regimes as text: a kernel alone, sustained or in bursts.

    `row` is what it has in common with a sweep's; `joules` are those of a launch; `blocks` says how many there are, and
    how many of them began steady or rested.
    """

    row: RowView
    regime: str
    joules: str
    blocks: str


def row_anchor(row: Mapping[str, Any]) -> str:
    """The id of a summary row: of a baseline, which several families time, with the family's name."""
    family = "" if str(row["kernel"]).startswith(f"{row['family']}.") else f"{row['family']}/"
    return anchor(f"row {family}{row_key(row)}")


def counter_anchor(row: Mapping[str, Any]) -> str:
    """The id of a row of counters.csv."""
    return anchor(f"row counters:{counter_key(row)}")


def row_view(
    row: Mapping[str, Any], times: np.ndarray | None = None, ceilings: Mapping[str, float] | None = None
) -> RowView:
    """A summary row.

    Args:
        times: its samples in µs.
        ceilings: TFLOP/s of the GPU's fastest loops by type (`ceilings.highest`).
    """
    tflops_low, tflops_high = _tflops_interval(row)
    possible = tflops_high is None or tflops_high <= BEYOND * ceiling_of(ceilings, row["dtype"])
    shown = counted(row) and possible
    rate = row["gbps"] if pd.isna(row["tflops"]) else row["tflops"]
    return RowView(
        anchor=row_anchor(row),
        kernel=row["kernel"],
        dtype=row["dtype"],
        size=size_text(row),
        cache=row["cache"],
        toolkit=row["toolkit"],
        time=time_text(row["median_us"]),
        time_interval=f"[{time_text(row['ci_low_us'])}, {time_text(row['ci_high_us'])}]" if shown else "",
        tflops=number(row["tflops"]),
        tflops_interval=interval(tflops_low, tflops_high, 4) if shown else "",
        gbps=number(row["gbps"]),
        ratio=number(row["ratio"]),
        ratio_value=None if pd.isna(row["ratio"]) else float(row["ratio"]),
        ratio_interval=interval(row["ratio_ci_low"], row["ratio_ci_high"], 4) if counted(row) else "",
        paired=float(rate / row["ratio"]) if pd.notna(rate) and pd.notna(row["ratio"]) and row["ratio"] else None,
        rounds=NONE if pd.isna(row["rounds"]) else str(int(row["rounds"])),
        samples=NONE if pd.isna(row["samples"]) else str(int(row["samples"])),
        error=number(row["err_scaled_max"]),
        clock=number(row["clock_mhz"], 4),
        power=number(row["power_w"]),
        temperature=number(row["temp_c"]),
        throttle=row["throttle"] or "none",
        stale=row["status"] == "stale",
        histogram=histogram(times, row["median_us"]) if times is not None else Markup(""),
    )


def regime_row_view(row: Mapping[str, Any], ceilings: Mapping[str, float] | None = None) -> RegimeRowView:
    """A row of a regime's summary; `ceilings` as in `row_view`."""
    blocks, ready = int(row["rounds"]), int(row["ready"])
    began = "rested" if row["regime"] == BURST else "steady"
    return RegimeRowView(
        row=row_view(row, ceilings=ceilings),
        regime=row["regime"],
        joules=number(row["joules"]),
        blocks=f"{blocks} blocks, {'all' if ready == blocks else ready} {began}",
    )


def _tflops_interval(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """The interval of the median time as throughput: a longer time is its lower end."""
    if pd.isna(row["tflops"]) or pd.isna(row["ci_low_us"]) or not row["ci_low_us"] or pd.isna(row["ci_high_us"]):
        return None, None
    work = row["tflops"] * row["median_us"]
    return work / row["ci_high_us"], work / row["ci_low_us"]


def samples_by_row(measured: Measurements) -> Samples:
    """Every sample of a family, in µs. Raises UserError if samples.parquet lacks a column."""
    samples = measured.samples()
    if samples.empty:
        return {}
    missing = [column for column in [*SAMPLE_KEYS, "time_us"] if column not in samples.columns]
    if missing:
        raise UserError(f"{measured.samples_path} has no column {', '.join(missing)}; remeasure, or restore the file.")
    return {
        tuple(str(part) for part in key): group["time_us"].to_numpy(dtype=float)
        for key, group in samples.groupby(list(SAMPLE_KEYS), observed=True)
    }


def times_of(samples: Samples, row: Mapping[str, Any]) -> np.ndarray | None:
    """The samples behind a summary row in µs, or None if they were not kept."""
    return samples.get(tuple(str(row[column]) for column in SAMPLE_KEYS))

"""The search for the best candidate of a tunable on a GPU, by successive halving.

Candidates that spill or do not fit the GPU are left out. The rest are timed: all of them briefly at the first size, the
best third at every size, the best five in rounds on fresh data. The score is the geometric mean over the sizes of
baseline time over kernel time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro import operands
from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.core.tables import csv_text
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.tune.bench import Bench
from gemmrepro.tune.candidates import Limits, Listing
from gemmrepro.tune.halving import STAGES, Stage, Standing, successive_halving
from gemmrepro.tune.progress import say

FOOTPRINT = ("registers", "spill_bytes", "shared_bytes")
"""Columns of the table of candidates that `candidates.Footprint` fills."""


def search(bench: Bench, sizes: Sequence[int], out: Path, table: Path, stages: Sequence[Stage] = STAGES) -> None:
    """Find the best candidate; writes the table of all of them as CSV, and then the result as JSON.

    Raises:
        UserError: no candidate could be timed.
    """
    listing, shapes, limits = bench.listing, [Shape.cube(size) for size in sizes], Limits.here()
    tunable = listing.tunable
    left_out = {name: reason for name in listing.candidates if (reason := listing.unfit(name, shapes, limits))}
    fitting = [name for name in listing.candidates if name not in left_out]
    say(f"{tunable.id}: {len(fitting)} of {len(listing.candidates)} candidates compile without spills and fit the GPU")
    standings = successive_halving(fitting, sizes, bench.measure, stages)
    left_out |= {name: message for name in fitting if (message := bench.findings.verdict(name))}
    write_atomic(table, table_text(listing, standings, left_out))
    if not standings:
        raise UserError(f"no candidate of {tunable.id} could be timed; {table} says why for each.")
    finalists = [name for name, standing in standings.items() if standing.stage == stages[-1].name]
    ranking = [finalist(listing, name, standings[name]) for name in finalists]
    counts = {
        "candidates": len(listing.candidates),
        "compiled": sum(compiled.error is None for compiled in listing.compiled.values()),
        "fitting": len(fitting),
        "right": sum(bench.findings.verdict(name) == "" for name in fitting),
        "timed": len(standings),
    }
    write_json(out, {**_circumstances(bench), "count": counts, "winner": ranking[0], "others": ranking[1:]})
    ratios = ", ".join(f"{point['ratio']} at {size}" for size, point in ranking[0]["sizes"].items())
    say(f"{tunable.id}: the best is {listing.candidates[finalists[0]]}: {ratios} of {bench.baseline_version}")


def table_text(listing: Listing, standings: Mapping[str, Standing], left_out: Mapping[str, str]) -> str:
    """One row per candidate as CSV: the best first, then those left out."""
    sizes = sorted({size for standing in standings.values() for size in standing.points})
    order = [*standings, *(name for name in listing.candidates if name not in standings)]
    rows = [_row(listing, name, standings.get(name)) | {"left_out": left_out.get(name)} for name in order]
    measured = [column for size in sizes for column in (f"us_{size}", f"ratio_{size}")]
    columns = [*listing.tunable.space, *FOOTPRINT, "stage", "score", *measured, "left_out", "build_key"]
    return csv_text(rows, columns)


def finalist(listing: Listing, name: str, standing: Standing) -> dict[str, Any]:
    """A finalist's entry in the result file; times in µs."""
    kernel = listing.candidates[name].kernel
    sizes = {}
    for size, point in standing.points.items():
        flops, _ = operands.work(kernel, Shape.cube(size))
        sizes[str(size)] = {
            "tflops": round((flops or 0.0) / point.time_us * 1e-6, 2),
            "time_us": round(point.time_us, 2),
            "baseline_us": round(point.baseline_us, 2),
            "ratio": round(point.ratio.value, 4),
            "ratio_low": round(point.ratio.low, 4),
            "ratio_high": round(point.ratio.high, 4),
            **{key: point.sensors.get(key) for key in ("clock_mhz", "power_w")},
        }
    return {"params": dict(listing.candidates[name].params), "score": round(standing.score, 4), "sizes": sizes}


def _row(listing: Listing, name: str, standing: Standing | None) -> dict[str, Any]:
    compiled = listing.compiled[name]
    cells: dict[str, Any] = {**listing.candidates[name].params, "build_key": compiled.build_key}
    if compiled.footprint:
        cells |= vars(compiled.footprint)
    if standing:
        cells |= {"stage": standing.stage, "score": standing.score}
        for size, point in standing.points.items():
            cells |= {f"us_{size}": point.time_us, f"ratio_{size}": point.ratio.value}
    return cells


def _circumstances(bench: Bench) -> dict[str, Any]:
    listing, gpu = bench.listing, bench.session.gpu
    return {
        "kernel": listing.tunable.id,
        "gpu": {"name": gpu.name, "slug": gpu.slug},
        "driver": gpu.driver,
        "toolkit": listing.toolkit,
        "toolkit_version": listing.toolkit_version,
        "target": listing.target,
        "baseline": {"id": bench.baseline.id, "version": bench.baseline_version},
    }

"""Writes what the passes of a family measured, all from the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import operands
from gemmrepro.core.names import LIBRARY
from gemmrepro.gpu import baselines
from gemmrepro.measure import derived as rates
from gemmrepro.measure.plan import Point, Skipped
from gemmrepro.measure.prepare import Sweep
from gemmrepro.measure.records import Check
from gemmrepro.measure.regimes import derived, files
from gemmrepro.measure.regimes.columns import READING_COLUMNS, SAMPLE_COLUMNS, RegimeRow
from gemmrepro.measure.regimes.passes import Passes, Visit
from gemmrepro.measure.regimes.plan import Set
from gemmrepro.measure.results import baseline_kernels, circumstances, compared_with, wrong

LEFT_OUT = "the time limit ended before all its passes"


def write(sweep: Sweep, passes: Passes, skipped: Sequence[Skipped], out: Path) -> int:
    """Write the files of the regimes into `out`; returns the number of rows."""
    samples, readings, counts = [], [], dict[tuple[Set, str], int]()
    left: list[str] = []
    for pair in passes.wanted:
        visits = passes.visits(pair)
        if visits is None:
            left.append(f"{pair.members} {pair.regime}, pair {pair.number + 1}")
            continue
        key = pair.members, pair.regime
        # Those that were judged wrong, before or after they were timed, have no rows.
        for visit in (each for each in visits if sweep.records.passed(pair.members.subjects[each.subject])):
            number = counts.get(key, 0)
            counts[key] = number + 1
            subject = _subject(pair.members, pair.regime, visit, number)
            build_key = sweep.records.build_key(pair.members.subjects[visit.subject])
            samples += _samples(subject, visit, build_key)
            readings += _readings(subject, visit)
    frames = pd.DataFrame(samples, columns=SAMPLE_COLUMNS), pd.DataFrame(readings, columns=READING_COLUMNS)
    frames[1]["throttle"] = frames[1]["throttle"].astype("Int64")
    found = files.by_point(*frames)
    rows = [
        asdict(_row(sweep, members, regime, point, found))
        for (members, regime) in counts
        for point in members.subjects
        if _point(members, regime, point) in found
    ]
    limits = [Skipped(sweep.family, "", f"{LEFT_OUT}: {place}") for place in left]
    files.write(out, rows, *frames, _run(sweep, passes, [*skipped, *wrong(sweep), *limits]))
    return len(rows)


def _place(members: Set, regime: str, point: Point) -> dict[str, Any]:
    problem, shape = members.problem, members.shape
    return {
        "kernel": point.kernel,
        "toolkit": point.toolkit,
        "dtype": problem.dtype_in,
        "dtype_out": problem.dtype_out,
        "layout": problem.layout,
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "regime": regime,
    }


def _point(members: Set, regime: str, point: Point) -> files.Point:
    return tuple(str(cell) for cell in _place(members, regime, point).values())


def _subject(members: Set, regime: str, visit: Visit, number: int) -> dict[str, Any]:
    return {**_place(members, regime, members.subjects[visit.subject]), "block": number}


def _samples(subject: dict[str, Any], visit: Visit, build_key: str) -> list[dict[str, Any]]:
    return [
        {
            **subject,
            "ready": int(visit.block.ready),
            "index": index,
            "launches": chunk.launches,
            "time_us": chunk.time_us,
            "build_key": build_key,
        }
        for index, chunk in enumerate(visit.block.chunks)
    ]


def _readings(subject: dict[str, Any], visit: Visit) -> list[dict[str, Any]]:
    first = visit.block.readings[0]
    return [
        {
            **subject,
            "index": index,
            "at_s": round(each.at_s - first.at_s, 6),
            "clock_mhz": files.rounded(each.clock_mhz, 3),
            "power_w": files.rounded(each.power_w, 3),
            "temp_c": files.rounded(each.temp_c, 3),
            "throttle": each.throttle,
            "energy_j": files.rounded(None if each.energy_j is None else each.energy_j - (first.energy_j or 0.0), 3),
        }
        for index, each in enumerate(visit.block.readings)
    ]


def _row(sweep: Sweep, members: Set, regime: str, point: Point, found: dict[files.Point, files.Subject]) -> RegimeRow:
    kernel = sweep.kernels.get(point.kernel)
    blocks, baseline = found[_point(members, regime, point)].blocks, None
    if kernel is not None and kernel.timing.baseline:
        other = next(each for each in members.subjects if each.kernel == kernel.timing.baseline)
        compared = found.get(_point(members, regime, other))
        baseline = compared.blocks if compared else None
    cells = derived.cells(regime, blocks, baseline)
    flops, moved = operands.work(kernel or compared_with(sweep, point), point.shape)
    check = sweep.records.check(point) or Check(passed=True)
    return RegimeRow(
        **_place(members, regime, point),
        family=sweep.family,
        rung=kernel.rung if kernel else baselines.baseline(point.kernel).rung,
        d=kernel.compute.d if kernel else None,
        cache="warm",
        arch=sweep.loaded[kernel.id, point.toolkit].arch if kernel else sweep.session.gpu.arch,
        baseline=kernel.timing.baseline if kernel and baseline is not None else None,
        err_scaled_max=check.err_scaled_max,
        err_fro=check.err_fro,
        build_key=sweep.records.build_key(point),
        run_key=sweep.records.run_key(point),
        **rates.rate_cells(cells["median_us"], flops, moved),
        **cells,
    )


def _run(sweep: Sweep, passes: Passes, skipped: Sequence[Skipped]) -> dict[str, Any]:
    """run.json, as of a sweep."""
    used = {point[:2] for members in passes.members for point in (each.subject for each in members.subjects)}
    binaries = sorted(name for name in used if name[1] != LIBRARY)
    return {
        **circumstances(sweep, binaries, dict(passes.settings.document), skipped),
        "baseline_kernels": baseline_kernels(sweep),
    }

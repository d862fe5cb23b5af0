"""How often `gemmrepro compare` raises a false alarm, how often it finds a slowdown, and how many rounds that takes.

    PYTHONPATH=workflow python tests/campaigns/comparing.py --out tests/campaigns/recorded/comparing.json

Pairs of runs are resampled from the recorded samples, family by family: rounds are drawn with replacement, and samples
within them. A draw of few rounds scatters less than they do, by (n - 1) / n, so rounds' distances from their mean are
widened by as much. In a pair of a run against itself nothing differs; a planted slowdown makes every time of the second
run longer. Each row of a pair counts as one comparison. `docs/comparing.md` has the outcome.

With `--sessions FAMILY=COMMIT,...`, instead: how far two recordings of the same binaries differ, by the ratio, the time
and the cycles, beside what their rounds' scatter predicts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow")]

from gemmrepro.host.compare import read_side, rounds_of, side_of  # noqa: E402
from gemmrepro.measure.checks.samples import PointSamples, read_samples  # noqa: E402
from gemmrepro.measure.comparison import (  # noqa: E402
    BAND,
    CONFIDENCE,
    POWER,
    VERDICTS,
    Change,
    Rounds,
    Run,
    compared,
)
from gemmrepro.measure.scatter import Prior, pooled, shift  # noqa: E402

RECORDED = ROOT / "reports/recorded/h200"

ROUNDS = (None, 5, 10, 20)
"""Rounds of each side of a pair; None: as recorded."""

SLOWER = (1.0, 1.02, 1.05)

MOST_ROUNDS = (3, 5, 10, 20, 40, 80)
"""The numbers of rounds for which it is computed how many rows resolve a slowdown of BAND."""

Points = Mapping[tuple[str, ...], PointSamples]


def rerun(point: PointSamples, rounds: int | None, slower: float, rng: np.random.Generator) -> Rounds:
    """Another run of the point; `rounds` in number, by default as many as were recorded."""
    assert point.baseline is not None
    ratios = [other / own for own, other in zip(point.times, point.baseline, strict=True)]
    wider = math.sqrt(len(point.times) / (len(point.times) - 1)) - 1
    sides: list[list[float]] = [[], []]
    places = rng.integers(0, len(point.times), rounds or len(point.times))
    draws = [rng.integers(0, len(point.times[place]), len(point.times[place])) for place in places]
    for side, parts in zip(sides, (point.times, ratios), strict=True):
        levels = np.log([float(np.median(part)) for part in parts])
        for place, drawn in zip(places, draws, strict=True):
            level = math.log(float(np.median(parts[place][drawn])))
            side.append(level + wider * float(levels[place] - levels.mean()))
    return Rounds([time + math.log(slower) for time in sides[0]], [ratio - math.log(slower) for ratio in sides[1]])


def run_of(points: Points, rounds: int | None, slower: float, paired: bool, rng: np.random.Generator) -> Run:
    """Another run of all points of a family, at the same clock; `paired` if rows have a baseline."""
    found = {name: rerun(point, rounds, slower, rng) for name, point in points.items()}
    rows = {
        name: {
            "kernel": name[0],
            "toolkit": name[1],
            "build_key": "",
            "baseline": "a library" if paired else "",
            "clock_mhz": "1980",
            "median_us": repr(math.exp(float(np.mean(each.times)))),
        }
        for name, each in found.items()
    }
    return Run(rows, found)


def pairs(
    families: Sequence[Points], rows: int, rounds: int | None, slower: float, paired: bool, seed: int
) -> list[Change]:
    """At least so many compared rows, of whole pairs of runs."""
    rng, changes = np.random.default_rng(seed), list[Change]()
    while len(changes) < rows:
        for points in families:
            before, after = (run_of(points, rounds, factor, paired, rng) for factor in (1.0, slower))
            changes += compared(before, after, same_gpu=True)
    return changes


def shares(changes: Sequence[Change]) -> dict[str, float]:
    """The share of each verdict, in %, with their number."""
    found = {verdict: 100 * sum(one.verdict == verdict for one in changes) / len(changes) for verdict in VERDICTS}
    return {"rows": len(changes), **{name: round(share, 2) for name, share in found.items()}}


def resolving(points: Sequence[PointSamples], rounds: int, paired: bool) -> float:
    """The share of points, in %, that would find a slowdown of BAND with so many rounds a side.

    Their rounds' scatter is taken as it was recorded, with the prior of all of them.
    """
    levels = [rounds_of(point) for point in points]
    sides = [each.ratios if paired else each.times for each in levels]
    scatter = [pooled(side, [side[0]]) for side in sides if side]
    prior = Prior.of(*zip(*scatter, strict=True))
    able = 0
    for variance, freedom in scatter:
        level = (freedom * variance + prior.freedom * prior.variance) / (freedom + prior.freedom)
        # A side of so many rounds with that variance.
        side = math.sqrt(level * (rounds - 1) / rounds) * np.resize([-1.0, 1.0], rounds)
        side = side - side.mean()
        able += math.expm1(shift(side, side, prior).least(CONFIDENCE, POWER)) <= BAND
    return round(100 * able / len(scatter), 1)


def benchmark(families: Mapping[str, Points], rows: int, seed: int) -> dict[str, Any]:
    """Every line of the table: what decides, rounds, slowdown, verdicts, and those of rows that resolve BAND."""
    lines = []
    for paired in (True, False):
        for rounds in ROUNDS:
            for slower in SLOWER:
                changes = pairs(list(families.values()), rows, rounds, slower, paired, seed)
                able = [one for one in changes if one.least is not None and one.least <= BAND]
                by, count = ("ratio" if paired else "time"), (rounds or "as recorded")
                line = {"by": by, "rounds": count, "slower": slower, "all": shares(changes), "resolving": shares(able)}
                lines.append(line)
                print(json.dumps(line), flush=True)
    needed = {
        "ratio" if paired else "time": {
            name: {rounds: resolving(list(points.values()), rounds, paired) for rounds in MOST_ROUNDS}
            for name, points in families.items()
        }
        for paired in (True, False)
    }
    return {"points": sum(map(len, families.values())), "lines": lines, "points that resolve 2 %, in %": needed}


def sessions(family: str, commit: str) -> dict[str, float]:
    """How far the rows of an earlier recording of a family differ from today's, in %: robust standard deviations.

    Only rows of the same binary that were measured again count.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = side_of(f"{commit}:reports/recorded/h200/{family}", Path(scratch))
        old, new = (read_side(path)[family] for path in (folder, RECORDED / family))
    sides = Run.of(old.rows, old.rounds), Run.of(new.rows, new.rounds)
    binaries = [{point: row["build_key"] for point, row in side.rows.items()} for side in sides]
    again = [
        change
        for change in compared(*sides, same_gpu=True)
        if binaries[0][change.point] == binaries[1][change.point] and change.by == "ratio" and change.time.value != 1
    ]
    medians = [{point: float(row["median_us"]) for point, row in side.rows.items()} for side in sides]
    found = {
        "ratio": [math.log(change.time.value) for change in again],
        "time": [math.log(medians[1][change.point] / medians[0][change.point]) for change in again],
        "cycles": [math.log(change.cycles) for change in again if change.cycles],
    }
    robust = {name: round(148.26 * float(np.median(np.abs(values))), 2) for name, values in found.items()}
    ends = {f"{name}, 19 of 20": round(100 * float(np.quantile(np.abs(v), 0.95)), 1) for name, v in found.items()}
    return {"rows": len(again), **robust, **ends, **{f"as {v}": n for v, n in shares(again).items() if v in VERDICTS}}


def read(path: Path) -> Points:
    """The points of a family that are compared with a baseline, in at least two rounds."""
    found = read_samples(path)[1]
    return {
        name: each
        for name, each in found.items()
        if each.baseline is not None and name[1] != "library" and len(each.times) > 1
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1000, help="the fewest rows that are compared for a line")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the outcome as JSON")
    parser.add_argument("--sessions", help="FAMILY=COMMIT,...: compare earlier recordings with today's instead")
    options = parser.parse_args()
    if options.sessions:
        for pair in options.sessions.split(","):
            family, _, commit = pair.partition("=")
            print(json.dumps({"family": family, **sessions(family, commit)}))
        return 0
    families = {
        path.parent.name: points for path in sorted(RECORDED.glob("*/samples.parquet")) if (points := read(path))
    }
    outcome = benchmark(families, options.rows, options.seed)
    print(json.dumps(outcome["points that resolve 2 %, in %"], indent=1))
    if options.out:
        options.out.write_text(json.dumps(outcome, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

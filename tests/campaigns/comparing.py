"""How often `gemmrepro compare` raises a false alarm, how often it finds a slowdown, and how many rounds that takes.

    PYTHONPATH=workflow python tests/campaigns/comparing.py --out tests/campaigns/recorded/comparing.json

Pairs of runs are resampled from the recorded samples, family by family: rounds are drawn with replacement, and samples
within them. A draw of few rounds scatters less than they do, by (n - 1) / n, so rounds' distances from their mean are
widened by as much. In a pair of a run against itself nothing differs; a planted slowdown makes every time of the second
run longer. Each row of a pair counts as one comparison. `docs/comparing.md` has the outcome.

With `--sessions FAMILY=OLD[..NEW],...`, instead: how far two recordings of the same binaries differ, beside the
baseline, by the ratio, the time and the cycles; how often they are told apart, and how often with a slowdown planted in
the later one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow")]

from gemmrepro.host.compare import on_two_cards, read_side, rounds_of, side_of  # noqa: E402
from gemmrepro.measure.checks.samples import PointSamples, read_samples  # noqa: E402
from gemmrepro.measure.comparison import (  # noqa: E402
    BAND,
    BASELINE,
    CONFIDENCE,
    POWER,
    TIME,
    VERDICTS,
    Change,
    Rounds,
    Run,
    compared,
)
from gemmrepro.measure.covariate import Paired, slopes  # noqa: E402
from gemmrepro.measure.scatter import Prior, Shift, pooled  # noqa: E402

RECORDED = ROOT / "reports/recorded/h200"

ROUNDS = (None, 5, 10, 20, 40)
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
    return slowed(Rounds(*sides), slower)


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


def resolving(points: Points, rounds: int, paired: bool) -> float:
    """The share of points, in %, that would find a slowdown of BAND with so many rounds a side.

    Their rounds' scatter is taken as it was recorded, with the prior of all of them.
    """
    scatter = scatters(points, paired)
    prior = Prior.of(*zip(*scatter, strict=True))
    able = 0
    for variance, freedom in scatter:
        level = (freedom * variance + prior.freedom * prior.variance) / (freedom + prior.freedom)
        # What the slope takes of the rounds' degrees of freedom is one at most.
        moved = Shift(0.0, math.sqrt(2 * level / rounds), 2 * rounds - 2 - paired + prior.freedom)
        able += math.expm1(moved.least(CONFIDENCE[BASELINE if paired else TIME], POWER)) <= BAND
    return round(100 * able / len(scatter), 1)


def scatters(points: Points, paired: bool) -> list[tuple[float, float]]:
    """The variance of each point's recorded rounds, adjusted for its baseline or not, with its degrees of freedom."""
    levels = {name: rounds_of(point) for name, point in points.items()}
    if not paired:
        return [pooled(each.times, each.times[:1]) for each in levels.values()]
    alike = defaultdict[tuple[str, ...], list[Paired]](list)
    for name, each in levels.items():
        alike[name[2:]].append(Paired((each.times, each.times[:1]), (each.baseline, each.baseline[:1])))
    return [
        pooled(*row.adjusted(slope.value), slope.spent)
        for rows in alike.values()
        for row, slope in zip(rows, slopes(rows), strict=True)
    ]


def benchmark(families: Mapping[str, Points], rows: int, seed: int) -> dict[str, Any]:
    """Every line of the table: what decides, rounds, slowdown, verdicts, and those of rows that resolve BAND."""
    lines = []
    for paired in (True, False):
        for rounds in ROUNDS:
            for slower in SLOWER:
                changes = pairs(list(families.values()), rows, rounds, slower, paired, seed)
                able = [one for one in changes if one.least is not None and one.least <= BAND]
                by, count = (BASELINE if paired else TIME), (rounds or "as recorded")
                line = {"by": by, "rounds": count, "slower": slower, "all": shares(changes), "resolving": shares(able)}
                lines.append(line)
                print(json.dumps(line), flush=True)
    needed = {
        BASELINE if paired else TIME: {
            name: {rounds: resolving(points, rounds, paired) for rounds in MOST_ROUNDS}
            for name, points in families.items()
        }
        for paired in (True, False)
    }
    return {"points": sum(map(len, families.values())), "lines": lines, "points that resolve 2 %, in %": needed}


def sessions(family: str, commits: str) -> dict[str, Any]:
    """How far the rows of two recordings of a family differ, in %: robust standard deviations.

    Only rows of the same binary that were measured again count.

    Args:
        commits: ``OLD..NEW``; without ``..NEW``, the recording that is in the tree.
    """
    old_commit, _, new_commit = commits.partition("..")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [
            side_of(f"{commit}:reports/recorded/h200/{family}", Path(scratch) / str(place))
            if commit
            else RECORDED / family
            for place, commit in enumerate((old_commit, new_commit))
        ]
        old, new = (read_side(path)[family] for path in folders)
    sides = [Run.of(side.rows, side.rounds, algorithms=side.algorithms) for side in (old, new)]
    two_cards = on_two_cards(old, new)
    alike = partial(compared, same_gpu=True, two_cards=two_cards)
    binaries = [{point: row["build_key"] for point, row in side.rows.items()} for side in sides]
    again = [
        change
        for change in alike(*sides)
        if binaries[0][change.point] == binaries[1][change.point] and change.by == BASELINE and change.time.value != 1
    ]
    if not again:
        raise SystemExit(f"{family}: the two recordings share no row that was measured again with the same binary.")
    levels = [
        {point: (np.mean(each.times), np.mean(each.ratios or [0.0])) for point, each in side.rounds.items()}
        for side in sides
    ]
    found = {
        "adjusted time": [math.log(change.time.value) for change in again],
        "ratio": [levels[0][change.point][1] - levels[1][change.point][1] for change in again],
        "time": [levels[1][change.point][0] - levels[0][change.point][0] for change in again],
        "cycles": [math.log(change.cycles) for change in again if change.cycles],
    }
    robust = {name: round(148.26 * float(np.median(np.abs(values))), 2) for name, values in found.items()}
    ends = {f"{name}, 19 of 20": round(100 * float(np.quantile(np.abs(v), 0.95)), 1) for name, v in found.items()}
    names = {change.point for change in again}
    planted = Run(
        sides[1].rows, {point: slowed(each, 1 + BAND) for point, each in sides[1].rounds.items()}, sides[1].algorithms
    )
    slower = [change for change in alike(sides[0], planted) if change.point in names]
    return {
        **{"family": family, "sessions": f"{old_commit}..{new_commit}", "two cards": two_cards},
        **{"rows": len(again), **robust, **ends},
        "unchanged": shares(again),
        "2 % slower": shares(slower),
    }


def slowed(rounds: Rounds, factor: float) -> Rounds:
    """The rounds of a kernel that takes `factor` times as long, beside the same baseline."""
    by = math.log(factor)
    return Rounds([time + by for time in rounds.times], [ratio - by for ratio in rounds.ratios or ()] or None)


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
    parser.add_argument("--sessions", help="FAMILY=OLD[..NEW],...: compare recordings of these commits instead")
    options = parser.parse_args()
    if options.sessions:
        found = [
            sessions(family, commits)
            for pair in options.sessions.split(",")
            for family, _, commits in [pair.partition("=")]
        ]
        print(json.dumps(found, indent=1))
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n")
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

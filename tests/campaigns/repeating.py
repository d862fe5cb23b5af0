"""What makes two takes of the regimes differ, and how far takes at other settings would be apart.

    PYTHONPATH=workflow python tests/campaigns/repeating.py --out tests/campaigns/recorded/repeating.json

Takes of a family on one card at the same settings are compared block by block. The logarithm of a block's time is its
row's, plus a deviation of the take, plus one of the block. The variances of both are estimated from the mean squares of
a nested design (rows, takes, blocks): that of blocks row by row, that of takes for all rows of a kind together
(`kind`), since two takes of a row say next to nothing of it. A block's deviation has a part that a longer block would
average away: the scatter of its chunks, which follow one another with some correlation.

The value of a row is the median of its blocks, whose variance for normal blocks is pi / 2 times that of their mean.
What is predicted follows from the takes of the first card; takes at other settings (`measured`) are held against it.
`docs/regimes.md` has the outcome.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow")]

from gemmrepro.core.files import read_json  # noqa: E402
from gemmrepro.measure.regimes import files, places  # noqa: E402
from gemmrepro.measure.regimes.rules import BURST, REGIMES, SUSTAINED  # noqa: E402

RECORDED = ROOT / "reports/recorded/h200"

GOALS = {SUSTAINED: 0.010, BURST: 0.025}
"""How far two takes of a row may be apart."""

SETTINGS = ((0.4, 1), (0.5, 1), (0.5, 2), (1.0, 2), (1.0, 4), (1.0, 6), (1.0, 8), (2.0, 6))
"""Seconds of a sustained block, and pairs of passes, for which takes are predicted."""

POWER_CAP = 0x4
"""NVML's throttle reason that says that the power cap limits the clock."""


@dataclass(frozen=True)
class Block:
    """A block of one take: median time in µs, mean clock and power, the times of its chunks, and their seconds."""

    time: float
    clock: float
    power: float
    capped: bool
    chunks: Sequence[float]
    seconds: float


Row = Mapping[str, Sequence[Block]]
"""The blocks of a row by take."""


Setting = tuple[str, float, int, int]
"""A card, and with what its takes were recorded: seconds, pairs of passes sustained, and of bursts."""


def read(families: Iterable[str], recorded: Path = RECORDED) -> dict[Setting, dict[files.Point, Row]]:
    """The rows that were taken more than once at the same settings on the same card; the first take's come first."""
    import pandas as pd

    found: dict[Setting, dict[files.Point, dict[str, list[Block]]]] = {}
    for family in families:
        for take in places.takes(recorded, family):
            run = read_json(take / places.RUN, "a take", "record it")
            pairs = run["config"]["pairs"]
            setting = run["gpu"].get("card", ""), run["config"]["seconds"], pairs[SUSTAINED], pairs[BURST]
            tables = (pd.read_parquet(take / name) for name in (places.SAMPLES, places.READINGS))
            for point, subject in files.by_point(*tables).items():
                blocks = [_block(each) for each in subject.blocks]
                found.setdefault(setting, {}).setdefault(point, {})[f"{family} {take.name}"] = blocks
    repeated = {s: {p: takes for p, takes in rows.items() if len(takes) > 1} for s, rows in found.items()}
    return {setting: rows for setting, rows in repeated.items() if rows}


def _block(taken: Any) -> Block:
    known = [each for each in taken.readings if each.clock_mhz and each.power_w]
    return Block(
        time=statistics.median(taken.times),
        clock=statistics.fmean(each.clock_mhz for each in known) if known else math.nan,
        power=statistics.fmean(each.power_w for each in known) if known else math.nan,
        capped=any((each.throttle or 0) & POWER_CAP for each in taken.readings),
        chunks=taken.times,
        seconds=taken.readings[-1].at_s - taken.readings[0].at_s if taken.readings else 0.0,
    )


def squares(row: Row) -> tuple[float, float]:
    """The variances of a block's logarithmic time and, unbiased and hence perhaps negative, of a take's."""
    logs = [[math.log(block.time) for block in blocks] for blocks in row.values()]
    within = statistics.fmean(statistics.variance(take) for take in logs)
    between = statistics.variance([statistics.fmean(take) for take in logs])
    return within, between - within / statistics.fmean(map(len, logs))


def kind(point: files.Point, row: Row) -> str:
    """What a row's takes may differ by: the cap's clock; the library's algorithm, which a trial chooses; or little."""
    if any(block.capped for blocks in row.values() for block in blocks):
        return "at the power cap"
    return "below it, libraries" if point[1] == "library" else "below it, kernels"


def of_takes(rows: Iterable[Row]) -> float:
    """The variance of takes besides their blocks', over rows of a kind."""
    return max(0.0, statistics.fmean(squares(row)[1] for row in rows))


def averaging(row: Row) -> float:
    """The part of a block's variance that comes from its chunks, and falls as its length grows."""
    parts = []
    for blocks in row.values():
        for block in blocks:
            logs = np.log(block.chunks)
            deviations = logs - logs.mean()
            variance = float((deviations**2).mean())
            if not variance:
                parts.append(0.0)
                continue
            near = float((deviations[1:] * deviations[:-1]).mean()) / variance
            alike = max(0.0, min(near, 0.8))
            parts.append(variance * (1 + alike) / (1 - alike) / len(logs))
    return statistics.fmean(parts)


def predicted(row: Row, between: float, regime: str, seconds: float, pairs: int) -> float:
    """The standard deviation of the difference of two takes of so many pairs of passes."""
    within, _ = squares(row)
    if regime == SUSTAINED:
        measured = statistics.fmean(block.seconds for blocks in row.values() for block in blocks)
        short = min(averaging(row), within)
        within = within - short + short * measured / seconds
    blocks = 2 * pairs
    of_median = within / blocks * (math.pi / 2 if blocks > 2 else 1.0)
    return math.sqrt(2 * (of_median + between))


def chance(deviation: float, goal: float) -> float:
    """The probability that two takes with that deviation are within `goal`."""
    return math.erf(math.log1p(goal) / deviation / math.sqrt(2)) if deviation else 1.0


def difference(row: Row) -> float:
    """How far the values of a row's takes are apart."""
    values = [statistics.median(block.time for block in blocks) for blocks in row.values()]
    return max(values) / min(values) - 1


def drivers(rows: Iterable[Row]) -> dict[str, float | None]:
    """How blocks of the same take differ: in time, in cycles (time x clock), and how closely time follows the clock."""
    times, clocks = [], []
    for row in rows:
        for blocks in row.values():
            for first, second in pairwise(blocks):
                if first.clock and second.clock:
                    times.append(math.log(second.time / first.time))
                    clocks.append(math.log(second.clock / first.clock))
    cycles = np.array(times) + np.array(clocks)
    correlation = round(float(np.corrcoef(times, clocks)[0, 1]), 2) if np.ptp(clocks) else None
    return {
        "blocks of a take: time, %": _percent(float(np.sqrt(np.mean(np.square(times))))),
        "blocks of a take: cycles, %": _percent(float(np.sqrt(np.mean(np.square(cycles))))),
        "correlation of time and clock": correlation,
    }


def _percent(share: float) -> float:
    return round(100 * share, 2)


def of_regime(rows: Mapping[files.Point, Row], regime: str) -> dict[str, Any]:
    """What is known of one regime's rows, and what other settings would give."""
    own = {point: row for point, row in rows.items() if point[-1] == regime}
    kinds: dict[str, list[Row]] = {}
    for point, row in own.items():
        kinds.setdefault(kind(point, row), []).append(row)
    between = {name: of_takes(part) for name, part in kinds.items()}
    goal = GOALS[regime]

    def setting(seconds: float, pairs: int) -> dict[str, Any]:
        deviations = {p: predicted(row, between[kind(p, row)], regime, seconds, pairs) for p, row in own.items()}
        chances = {point: chance(deviation, goal) for point, deviation in deviations.items()}
        return {
            "seconds": seconds,
            "pairs": pairs,
            "rows expected within the goal": round(sum(chances.values()), 1),
            "of them libraries below the cap": round(
                sum(each for point, each in chances.items() if kind(point, own[point]) == "below it, libraries"), 1
            ),
            "median standard deviation of a difference, %": _percent(statistics.median(deviations.values())),
        }

    return {
        "rows": len(own),
        "goal, %": 100 * goal,
        "within the goal as recorded": sum(difference(row) <= goal for row in own.values()),
        "settings": [setting(*each) for each in SETTINGS],
        "kinds": {
            name: {
                "rows": len(part),
                "block, %": _percent(math.sqrt(statistics.fmean(squares(row)[0] for row in part))),
                "take, %": _percent(math.sqrt(between[name])),
                **drivers(part),
            }
            for name, part in kinds.items()
        },
        "rows by themselves": [
            {
                "row": " ".join(point[:-1]),
                "kind": kind(point, row),
                "difference, %": _percent(difference(row)),
                "block, %": _percent(math.sqrt(squares(row)[0])),
            }
            for point, row in own.items()
        ],
    }


def measured(setting: Setting, rows: Mapping[files.Point, Row], regime: str) -> dict[str, Any]:
    """How far takes at another setting, perhaps on another card, are apart, row by row."""
    own = {point: row for point, row in rows.items() if point[-1] == regime}
    card, seconds, sustained, burst = setting
    return {
        "card": card,
        "seconds": seconds,
        "pairs asked for": {SUSTAINED: sustained, BURST: burst}[regime],
        "within the goal": f"{sum(difference(row) <= GOALS[regime] for row in own.values())} of {len(own)}",
        "rows by themselves": [
            {
                "row": " ".join(point[:-1]),
                "kind": kind(point, row),
                "blocks": [len(blocks) for blocks in row.values()],
                "difference, %": _percent(difference(row)),
                "block, %": _percent(math.sqrt(squares(row)[0])),
                "standard deviation of a difference, %": _percent(
                    math.sqrt(sum(math.pi / 2 * squares(row)[0] / len(blocks) for blocks in row.values()))
                ),
            }
            for point, row in own.items()
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--families", default="hopper,crt", help="comma-separated")
    parser.add_argument("--out", type=Path, help="write the outcome as JSON")
    options = parser.parse_args()
    (_, rows), *others = read(options.families.split(",")).items()
    outcome = {
        regime: of_regime(rows, regime) | {"measured": [measured(*each, regime) for each in others]}
        for regime in REGIMES
    }
    text = json.dumps(outcome, indent=1) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

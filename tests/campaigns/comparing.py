"""How often `gemmrepro compare` raises a false alarm, and how often it finds a slowdown of 2 %.

    PYTHONPATH=workflow python tests/campaigns/comparing.py --pairs 1000

Each pair is two runs of one point, resampled from the point's recorded samples: rounds are drawn with replacement, so
that drift between rounds is in both, and samples within them. In a pair of a run against itself nothing differs; a
planted slowdown makes every time of the second kernel 2 % longer. `docs/comparing.md` has the outcome.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow")]

from gemmrepro.measure import derived  # noqa: E402
from gemmrepro.measure.checks.samples import PointSamples, read_samples  # noqa: E402
from gemmrepro.measure.comparison import VERDICTS, change  # noqa: E402

RECORDED = ROOT / "reports/recorded/h200"


def rerun(point: PointSamples, rounds: int | None, slower: float, rng: np.random.Generator) -> dict[str, str]:
    """The cells of a row of another run of the point; `rounds` in number, by default as many as were recorded."""
    times, baseline = [], []
    assert point.baseline is not None
    for place in rng.integers(0, len(point.times), rounds or len(point.times)):
        drawn = rng.integers(0, len(point.times[place]), len(point.times[place]))
        times.append(slower * point.times[place][drawn])
        baseline.append(point.baseline[place][drawn])
    cells = derived.time_cells(times) | derived.ratio_cells(times, baseline)
    return {name: f"{value:.6g}" for name, value in cells.items()} | {"clock_mhz": "1980"}


def rates(
    points: list[PointSamples], pairs: int, rounds: int | None, slower: float, paired: bool, seed: int
) -> Counter[str]:
    """Verdicts on so many pairs of runs."""
    rng, verdicts = np.random.default_rng(seed), Counter[str]()
    for place in rng.integers(0, len(points), pairs):
        before, after = (rerun(points[place], rounds, factor, rng) for factor in (1.0, slower))
        verdicts[change((), before, after, paired).verdict] += 1
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    read = [read_samples(path)[1] for path in sorted(RECORDED.glob("*/samples.parquet"))]
    points = [p for found in read for name, p in found.items() if p.baseline is not None and name[1] != "library"]
    quiet = [p for p in points if _width(p) <= 0.01]
    print(
        f"{len(points)} points, {len(quiet)} with an interval of the ratio of at most 1 %; {options.pairs} pairs each"
    )
    print("| points | decided by | rounds | slower by | " + " | ".join(VERDICTS) + " |")
    for label, chosen in (("all", points), ("quiet", quiet)):
        for paired in (True, False):
            for rounds in (None, 10):
                for slower in (1.0, 1.02, 1.05):
                    counts = rates(chosen, options.pairs, rounds, slower, paired, options.seed)
                    shares = " | ".join(f"{100 * counts[verdict] / options.pairs:.1f} %" for verdict in VERDICTS)
                    how = "ratio" if paired else "time"
                    print(f"| {label} | {how} | {rounds or 'as recorded'} | {100 * (slower - 1):.0f} % | {shares} |")
    return 0


def _width(point: PointSamples) -> float:
    cells = derived.ratio_cells(point.times, point.baseline or [])
    return (cells["ratio_ci_high"] - cells["ratio_ci_low"]) / cells["ratio"]


if __name__ == "__main__":
    sys.exit(main())

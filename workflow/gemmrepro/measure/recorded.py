"""Bring committed recordings into results/measure, and mark what no longer belongs to today's binaries.

    python -m gemmrepro.measure.recorded --families ladder,hopper --recorded reports/recorded/h200 \\
        --build results/build --out results/measure
    python -m gemmrepro.measure.recorded --compare FOLDER FOLDER      (do two recordings of a family agree?)

A row is "current" if its build key and its run key are those of today's build of the same kernel with the same toolkit,
and "stale" otherwise, also if that toolkit was not built. Rows of libraries have no build. Nothing in a recording is
believed that can be computed: what does not follow from its samples, or cannot be on its GPU, is refused
(gemmrepro.measure.checks).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from gemmrepro.core.files import write_atomic, write_json
from gemmrepro.errors import UserError, run_stage
from gemmrepro.measure.checks.gates import GATES, check_gates
from gemmrepro.measure.checks.manifest import check_manifest
from gemmrepro.measure.checks.sanitizers import SANITIZERS
from gemmrepro.measure.checks.whole import read_summary, read_whole
from gemmrepro.measure.columns import COUNTER_COLUMNS, SUMMARY_COLUMNS, Row, typed
from gemmrepro.measure.recording import COUNTERS, FILES, RUN, SAMPLES, SUMMARY, rows_text, stale, write_nothing
from gemmrepro.stats import Interval


def bring(family: str, recorded: Path, build: Path, out: Path, synthetic: bool = False) -> tuple[int, int]:
    """Check a family's recording and copy it to `out` with its statuses set.

    A family without a recording on a GPU that has others gets no rows: its claims are "not measured".

    Args:
        synthetic: whether it may have been made for tests.

    Returns:
        (rows, stale rows).

    Raises:
        UserError: there is no recording of that GPU at all, or this one is incomplete, corrupt, or contradicts itself.
    """
    folder, out = Path(recorded) / family, Path(out)
    # Gates and experiments may have been recorded without any times.
    timed = any((folder / name).exists() for name in FILES)
    if not timed and Path(recorded).is_dir():
        check_manifest(folder, GATES, SANITIZERS)
        check_gates(family, folder / GATES)
        write_nothing(out)
        return 0, 0
    if not folder.is_dir():
        raise _unrecorded(family, Path(recorded))
    found = read_whole(family, folder, build, synthetic)
    write_atomic(out / SUMMARY, rows_text(found.rows, SUMMARY_COLUMNS))
    write_atomic(out / COUNTERS, rows_text(found.counters, COUNTER_COLUMNS))
    write_atomic(out / SAMPLES, found.samples)
    write_json(out / RUN, {**found.run, "source": "recorded"})
    return len(found.rows), stale(found.rows)


def _unrecorded(family: str, recorded: Path) -> UserError:
    gpus = sorted(path.name for path in recorded.parent.glob("*") if (path / family).is_dir())
    known = f"family {family} is recorded for {', '.join(gpus)}" if gpus else f"family {family} never was recorded"
    return UserError(
        f"there is no recording {recorded / family}; {known}. Set recorded_gpu, or record with workflow/scripts/record."
    )


@dataclass(frozen=True)
class Agreement:
    """How far two recordings agree.

    Attributes:
        points: how many points both have.
        times_agree, ratios_agree: (values whose intervals overlap, all values).
        apart: a line for each value whose intervals do not overlap.
        largest_time_difference, largest_ratio_difference: relative.
    """

    points: int
    times_agree: tuple[int, int]
    ratios_agree: tuple[int, int]
    apart: tuple[str, ...]
    largest_time_difference: float
    largest_ratio_difference: float


@dataclass(frozen=True)
class _Difference:
    """The difference in one value at one point; `place` is the point's rank, to sort by."""

    place: int
    relative: float
    agrees: bool
    text: str


def _differences(
    quantity: str, interval: Callable[[Row], Interval | None], first: dict[str, Row], second: dict[str, Row]
) -> list[_Difference]:
    """The differences in `quantity` at the points where both recordings have it."""
    differences = []
    for place, point in enumerate(first):
        before, after = interval(first[point]), interval(second[point]) if point in second else None
        if before is None or after is None:
            continue
        relative = after.value / before.value - 1
        text = (
            f"{point}: {quantity} {before.value:.6g} [{before.low:.6g}, {before.high:.6g}] and "
            f"{after.value:.6g} [{after.low:.6g}, {after.high:.6g}], {100 * relative:+.2f}%"
        )
        differences.append(_Difference(place, relative, before.overlaps(after), text))
    return differences


def _time(row: Row) -> Interval:
    return Interval(row.median_us, row.ci_low_us, row.ci_high_us)


def _ratio(row: Row) -> Interval | None:
    if row.ratio is None or row.ratio_ci_low is None or row.ratio_ci_high is None:
        return None
    return Interval(row.ratio, row.ratio_ci_low, row.ratio_ci_high)


def _by_point(folder: Path) -> dict[str, Row]:
    rows = (Row(**typed(Row, row)) for row in read_summary(folder))
    return {f"{row.kernel} {row.toolkit} {row.m} {row.n} {row.k} {row.cache}": row for row in rows}


def compare(first: Path, second: Path) -> Agreement:
    """Whether two recordings of a family agree within their intervals, point by point.

    Raises:
        UserError: one of them is incomplete, or they share no point.
    """
    before, after = _by_point(Path(first)), _by_point(Path(second))
    shared = before.keys() & after.keys()
    if not shared:
        raise UserError(f"{first} and {second} share no point; compare recordings of the same family.")
    times = _differences("time", _time, before, after)
    ratios = _differences("ratio", _ratio, before, after)
    return Agreement(
        points=len(shared),
        times_agree=(sum(difference.agrees for difference in times), len(times)),
        ratios_agree=(sum(difference.agrees for difference in ratios), len(ratios)),
        apart=tuple(
            difference.text
            for difference in sorted((*times, *ratios), key=lambda difference: difference.place)
            if not difference.agrees
        ),
        largest_time_difference=max((abs(difference.relative) for difference in times), default=0.0),
        largest_ratio_difference=max((abs(difference.relative) for difference in ratios), default=0.0),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.measure.recorded", description=__doc__.split("\n")[0])
    parser.add_argument("--families", help="comma-separated")
    parser.add_argument("--recorded", type=Path, help="a GPU's folder under reports/recorded")
    parser.add_argument("--build", type=Path, default=Path("results/build"))
    parser.add_argument("--out", type=Path, help="a folder for each family is made in it")
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FOLDER", help="report whether two recordings agree")
    arguments = parser.parse_args()
    if arguments.compare:
        print(json.dumps(asdict(compare(*arguments.compare)), indent=2))
        return 0
    if not (arguments.families and arguments.recorded and arguments.out):
        raise UserError("give --families, --recorded and --out, or --compare.")
    for family in arguments.families.split(","):
        count, outdated = bring(family, arguments.recorded, arguments.build, arguments.out / family)
        if not count:
            print(
                f"recorded: {family} was never recorded there; record it with workflow/scripts/record.", file=sys.stderr
            )
        note = f", {outdated} of them stale: today's build differs from the one that was measured" if outdated else ""
        print(f"recorded: {family}: {count} rows{note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_stage(main)

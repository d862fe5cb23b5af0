"""A family's recorded sweep, read and checked: cells, points, samples, what follows from them, limits, verdicts.

Every median, interval, ratio, count and rate is computed again. The samples of a point stand together, in order, in
rounds, finite, and in pairs with those of its baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import operands, registry
from gemmrepro.core.names import LIBRARY, RESTORE
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import COUNTER_COLUMNS, COUNTER_ROW, SAMPLE, SUMMARY_COLUMNS, Table, kinds
from gemmrepro.measure.plan import Point, Settings, plan_points
from gemmrepro.measure.recording import (
    CEILINGS,
    COUNTERS,
    FILES,
    GATES,
    POINT,
    RATES,
    RUN,
    SAMPLES,
    SANITIZERS,
    SUMMARY,
    check_cells,
    check_manifest,
    check_measured,
    check_rows,
    close,
    kernels_behind,
    mark,
    named,
    read_document,
    read_rows,
    refused,
)
from gemmrepro.measure.rows import NOT_COMPARED, rate_cells, ratio_cells, time_cells
from gemmrepro.operations import Shape
from gemmrepro.recordings.limits import Ceilings, check_gates, check_limits
from gemmrepro.registry import Kernel, card

Rows = Sequence[Mapping[str, str]]

UNITS = {
    "dram__bytes.sum": "byte",
    "dram__bytes_read.sum": "byte",
    "dram__bytes.sum.per_second": "byte/s",
    "gpu__time_duration.sum": "ns",
    "lts__t_bytes.sum": "byte",
    "sm__cycles_elapsed.max": "cycle",
}
"""Units of the counters from which something is computed."""


@dataclass(frozen=True)
class Recording:
    """A recording that passed every check: its rows and counters with the status that they have today, and its files.
    A sweep's has no `readings`, a take of the regimes has no `counters`."""

    run: Mapping[str, Any]
    rows: list[dict[str, str]]
    samples: bytes
    counters: Sequence[dict[str, str]] = ()
    readings: bytes = b""


def read_whole(family: str, folder: Path, build: Path) -> Recording:
    """Read and check the recording of `family` in `folder`, whose neighbours are the same GPU's other families."""
    check_manifest(folder, *FILES, GATES, SANITIZERS)
    path = folder / SUMMARY
    rows = read_summary(folder)
    counted = read_rows(folder / COUNTERS, COUNTER_COLUMNS)
    check_cells(COUNTER_ROW, counted, folder / COUNTERS)
    run = read_run(folder)
    raw, samples = read_samples(folder / SAMPLES)
    check_samples_of(family, rows, samples, path)
    with card.of(run["gpu"]):
        rows, counted = mark(rows, build), mark(counted, build)
        _check_points(family, rows, run, path)
        check_rates(family, rows, path)
    check_limits(family, rows, run, ceilings_of(folder.parent, run), path)
    check_counters(counted, rows, folder / COUNTERS)
    check_gates(family, folder / GATES, run["gpu"]["name"])
    return Recording(run, rows, raw, counted)


def read_summary(folder: Path) -> list[dict[str, str]]:
    """The rows of a recording's summary as text. Raises UserError if it is missing or any cell is invalid."""
    rows = read_rows(folder / SUMMARY, SUMMARY_COLUMNS)
    check_rows(rows, folder / SUMMARY)
    return rows


def read_run(folder: Path) -> dict[str, Any]:
    """The circumstances of a recording. Raises UserError if the file is missing or corrupt, or rows are synthetic."""
    run: dict[str, Any] = read_document(folder / RUN, "run.schema.yaml")
    check_measured(run, folder / RUN)
    return run


def ceilings_of(recordings: Path, run: Mapping[str, Any]) -> Ceilings:
    """The ceilings among a GPU's recordings; none if they were measured on another GPU than `run`, or never."""
    ceilings = recordings / CEILINGS
    if not (ceilings / SUMMARY).is_file() or not (ceilings / RUN).is_file():
        return Ceilings()
    of = read_run(ceilings)
    return Ceilings.of(read_summary(ceilings), of) if of["gpu"]["name"] == run["gpu"]["name"] else Ceilings()


def check_samples_of(family: str, rows: Rows, samples: Mapping[tuple[str, ...], PointSamples], path: Path) -> None:
    """Check that rows and samples are of the same points, and that every row says of its samples what they are."""

    def cells(row: Mapping[str, str], point: tuple[str, ...], place: str) -> dict[str, float | str | None]:
        own = samples[point]
        if bool(row["baseline"]) != (own.baseline is not None):
            other = "a baseline, and its samples have none" if row["baseline"] else "none of its samples' baseline"
            raise refused(path, place, f"{named(row)} has {other}")
        compared = NOT_COMPARED if own.baseline is None else ratio_cells(own.times, own.baseline)
        return {**time_cells(own.times), **compared}

    keys = {point: {taken.build_key} for point, taken in samples.items()}
    check_follow(family, rows, POINT, keys, cells, path)


def check_follow(
    family: str,
    rows: Rows,
    names: Sequence[str],
    keys: Mapping[tuple[str, ...], Set[str]],
    cells: Callable[[Mapping[str, str], tuple[str, ...], str], Mapping[str, float | str | None]],
    path: Path,
) -> None:
    """Check that rows are the family's and those of the samples, each once, and hold what `cells` computes from these.
    `names`: the columns that name a point; `keys`: build keys of the samples by point; `cells`: what a row's samples
    give, of the row, its point and its place."""
    seen: set[tuple[str, ...]] = set()
    for number, row in enumerate(rows, 2):
        place, point = f"line {number}", tuple(row[name] for name in names)
        said = " ".join(filter(None, point))
        if row["family"] != family:
            raise refused(path, place, f"it is a row of family {row['family']}, and this is {family}")
        if point in seen:
            raise refused(path, place, f"it repeats {said}")
        if point not in keys:
            raise refused(path, place, f"{said} has no samples")
        seen.add(point)
        if keys[point] != {row["build_key"]}:
            own = ", ".join(sorted(keys[point]))
            raise refused(path, place, f"its build key is {row['build_key']}, and that of its samples {own}")
        for column, value in cells(row, point, place).items():
            if not (row[column] == value if isinstance(value, str) else close(row[column], value)):
                raise refused(path, place, f"{column} of {said} {mismatch(row[column], value)}")
    if lost := keys.keys() - seen:
        first = " ".join(filter(None, min(lost)))
        raise refused(path, "", f"it has no row of {first}, of which there are samples")


def mismatch(cell: str, value: float | str | None, source: str = "its samples give") -> str:
    """The fault of a cell where `source` gives `value`."""
    given = "none" if value is None else f"{value:.6g}" if isinstance(value, float) else value
    return f"is {cell or 'empty'}, and {source} {given}"


def check_rates(family: str, rows: Iterable[Mapping[str, str]], path: Path) -> None:
    """Check the rates of all current rows: the work of a launch over its median.
    The work of what a stale row ran need not be that of what is declared today."""
    for number, row in enumerate(rows, 2):
        if row["status"] == "stale":
            continue
        shape, median = Shape(int(row["m"]), int(row["n"]), int(row["k"])), float(row["median_us"])
        possible = [rate_cells(median, *operands.work(kernel, shape)) for kernel in kernels_behind(family, row)]
        wrong = [[name for name in cells if not close(row[name], cells[name], RATES)] for cells in possible]
        if all(wrong):
            column = wrong[0][0]
            why = mismatch(row[column], possible[0][column], f"the work in {row['median_us']} µs gives")
            raise refused(path, f"line {number}", f"{column} of {named(row)} {why}")


def _check_points(family: str, rows: Rows, run: Mapping[str, Any], path: Path) -> None:
    """Current rows have as many rounds as a sweep of run.json, and those of a kernel are all that it planned."""
    try:
        rounds = {str(sweep["config"]["rounds"]) for sweep in (run, *run.get("earlier", []))}
        settings = Settings.of(run["config"], family)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise refused(path.with_name(RUN), "", "its config is no sweep section of a configuration") from None
    for number, row in enumerate(rows, 2):
        if row["status"] == "current" and row["rounds"] not in rounds:
            why = f"{named(row)} has {row['rounds']} rounds, and {RUN} {' or '.join(sorted(rounds))}"
            raise refused(path, f"line {number}", why)
    whole = {(row["kernel"], row["toolkit"]) for row in rows if row["status"] == "current"}
    whole -= {(entry["kernel"], entry["toolkit"]) for entry in run.get("skipped", [])}
    there = {place_of(row) for row in rows}
    for place, point in planned([each for each in registry.kernels(family) if each.timing.timed], settings).items():
        if point.toolkit != LIBRARY and (point.kernel, point.toolkit) in whole and place not in there:
            raise refused(path, "", f"it has no row of {point}, and {RUN} does not say that it was skipped")


def place_of(row: Mapping[str, str]) -> tuple[str, ...]:
    """The cells of a row that `planned` names a point by."""
    return tuple(row[name] for name in ("kernel", "toolkit", "m", "n", "k", "cache"))


def planned(kernels: Sequence[Kernel], settings: Settings) -> dict[tuple[str, ...], Point]:
    """The points of a sweep of `kernels`, by `place_of` their rows."""
    points, _ = plan_points(
        kernels, settings.sizes, settings.toolkits, settings.caches, lambda *_: None, settings.is_timed_at
    )
    return {(at.kernel, at.toolkit, *map(str, astuple(at.shape)), at.cache): at for at in points}


def check_counters(counted: Rows, rows: Rows, path: Path) -> None:
    """Check the rows of counters.csv by their units, and that the current ones are of the same binaries as the rows."""
    seen: set[tuple[str, ...]] = set()
    keys = {(row["kernel"], row["toolkit"]): row["build_key"] for row in rows}
    for number, row in enumerate(counted, 2):
        place, metric = f"line {number}", row["metric"]
        launch = tuple(row[column] for column in ("kernel", "toolkit", "m", "n", "k"))
        if metric in UNITS and row["unit"] != UNITS[metric]:
            raise refused(path, place, f"{metric} is in '{row['unit']}' instead of '{UNITS[metric]}'")
        if row["toolkit"] == LIBRARY:
            raise refused(path, place, "counters are of kernels, never of libraries")
        if (*launch, metric) in seen:
            raise refused(path, place, f"it repeats {metric} of {' '.join(launch)}")
        seen.add((*launch, metric))
        key = keys.get((row["kernel"], row["toolkit"]), row["build_key"])
        if row["status"] != "stale" and row["build_key"] != key:
            raise refused(path, place, f"its build key is {row['build_key']}, and that of the times {key}")


MOST_BYTES = 1 << 30
"""The most memory that a file of samples may unfold into; the largest recorded one takes 8 MB."""


@dataclass(frozen=True)
class PointSamples:
    """One point's samples in µs, one array a round; `baseline` has those paired with `times`, or None."""

    build_key: str
    times: list[np.ndarray]
    baseline: list[np.ndarray] | None


def read_samples(path: Path) -> tuple[bytes, dict[tuple[str, ...], PointSamples]]:
    """The bytes of a file of samples, and its samples by point (the cells of POINT as text)."""
    raw, table = read_table(path)
    frame = table.to_pandas()
    for name in frame.columns[frame.isna().any()]:
        if name not in ("d", "baseline_us"):
            raise refused(path, "", f"samples have no {name}")
    points = frame[[*POINT, "build_key"]].assign(d=frame["d"].map(lambda d: "" if d != d or d is None else str(int(d))))
    points = points.astype(str)
    starts: Sequence[int] = np.flatnonzero((points != points.shift()).any(axis=1)).tolist() if len(frame) else []
    numbers = [frame[name].to_numpy() for name in ("round", "index", "time_us", "baseline_us")]
    found: dict[tuple[str, ...], PointSamples] = {}
    for start, end in zip(starts, [*starts[1:], len(frame)], strict=False):
        *cells, key = points.iloc[start]
        said = " ".join(filter(None, cells))
        if tuple(cells) in found:
            raise refused(path, "", f"the samples of {said} are in several places")
        try:
            found[tuple(cells)] = PointSamples(key, *_split(*(each[start:end] for each in numbers)))
        except ValueError as error:
            raise refused(path, "", f"of {said} {error}") from None
    return raw, found


def read_table(path: Path, table: Table = SAMPLE, empty: Sequence[str] = ("d", "baseline_us")) -> tuple[bytes, Any]:
    """The bytes of a file of samples, and its table. Raises UserError as `read_samples` does of the file as a whole.
    `table`: declares the columns; `empty`: columns that may have no value at all, and hence no type of their own."""
    import pyarrow
    import pyarrow.parquet

    try:
        raw = path.read_bytes()
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw))
        meta = file.metadata
        unfolded = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        if max(unfolded, 8 * len(table) * meta.num_rows) > MOST_BYTES:
            raise refused(path, "", f"it would unfold into more than {MOST_BYTES >> 20} MB")
        if file.schema_arrow.names != list(table):
            names = ", ".join(file.schema_arrow.names)
            raise UserError(f"the recording {path} has the columns {names}; {RESTORE}.")
        found = file.read()
    except FileNotFoundError:
        raise UserError(f"the recording {path} is missing; {RESTORE}.") from None
    except (pyarrow.ArrowInvalid, pyarrow.ArrowException, OSError) as error:
        raise UserError(f"the recording {path} is corrupt ({error}); {RESTORE}.") from None
    return raw, _cast(path, found, table, empty) if found.num_rows else found


def _cast(path: Path, found: Any, table: Table, empty: Sequence[str]) -> Any:
    """The table with its columns' exact types. Raises UserError where a column holds something else."""
    import pyarrow
    from pyarrow import types

    exact = {
        "text": (pyarrow.string(), lambda kind: types.is_string(kind) or types.is_large_string(kind)),
        "integer": (pyarrow.int64(), types.is_integer),
        "number": (pyarrow.float64(), types.is_floating),
    }
    fields = []
    for (name, declared), kind in zip(kinds(table).items(), found.schema.types, strict=True):
        target, fits = exact[declared]
        if not fits(kind) and not (name in empty and found.column(name).null_count == found.num_rows):
            raise refused(path, "", f"{name} holds {kind}")
        fields.append(pyarrow.field(name, target))
    return found.cast(pyarrow.schema(fields))


def _split(
    rounds: np.ndarray, index: np.ndarray, times: np.ndarray, baseline: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """A point's times and its baseline's by round. Raises ValueError, saying what is wrong with them."""
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("a time is not positive and finite")
    alone = np.isnan(baseline)
    if alone.any() and not alone.all():
        raise ValueError("some samples have no partner of the baseline's")
    if not alone.any() and not (np.isfinite(baseline).all() and (baseline > 0).all()):
        raise ValueError("a baseline's time is not positive and finite")
    cuts = np.flatnonzero(np.r_[True, rounds[1:] != rounds[:-1]])
    if (rounds < 0).any() or (np.diff(rounds[cuts]) <= 0).any():
        raise ValueError("the rounds are not in order")
    ends = np.r_[cuts[1:], len(rounds)]
    if any((index[start:end] != np.arange(end - start)).any() for start, end in zip(cuts, ends, strict=True)):
        raise ValueError("the samples of a round are not counted from 0, each once")
    return np.split(times, cuts[1:]), None if alone.any() else np.split(baseline, cuts[1:])

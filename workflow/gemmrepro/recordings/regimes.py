"""A family's recordings of the regimes, read and checked: every cell that can be is computed again from its blocks.

A take is one measurement of all the family's rows or some; `gpu.card` in its run.json tells cards apart. How far two
takes agree, on one card or two of a model, is told by medians of rows of the same binary as the last take's: others
would tell binaries apart. Between cards, a card's value is the mean of its takes.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.names import LIBRARY
from gemmrepro.measure.columns import REGIME_COLUMNS, REGIME_POINT, REGIME_READING, REGIME_ROW, REGIME_SAMPLE, SET
from gemmrepro.measure.recording import CEILINGS, check_cells, check_manifest, mark, read_rows, refused
from gemmrepro.measure.regimes import FILES, READINGS, REGIMES, RUN, SAMPLES, SUMMARY, takes
from gemmrepro.measure.rows import RegimePoint, Subject, by_point, regime_cells
from gemmrepro.recordings.limits import check_limits
from gemmrepro.recordings.sweeps import Recording, ceilings_of, check_follow, check_rates, read_run, read_table
from gemmrepro.registry import card

Rows = Sequence[Mapping[str, str]]
POINT = list(REGIME_POINT)
_SENSORS = ("clock_mhz", "power_w", "temp_c", "throttle", "energy_j")


def read_take(family: str, folder: Path, build: Path) -> Recording:
    """Read and check one take of `family`: a folder that `takes` lists."""
    recorded = folder.parent.parent
    check_manifest(recorded, *((folder / name).relative_to(recorded).as_posix() for name in FILES))
    run = read_run(folder)
    _check_gpu(run, recorded, folder / RUN)
    ceilings = ceilings_of(recorded.parent, run)
    path = folder / SUMMARY
    rows = read_rows(path, REGIME_COLUMNS)
    check_cells(REGIME_ROW, rows, path)
    raw_samples, samples = read_table(folder / SAMPLES, REGIME_SAMPLE, ())
    raw_readings, readings = read_table(folder / READINGS, REGIME_READING, _SENSORS)
    _check_readings(readings.to_pandas(), folder / READINGS)
    try:
        found = by_point(samples.to_pandas(), readings.to_pandas())
    except ValueError as error:
        raise refused(folder / SAMPLES, "", str(error)) from None
    _check_rows(family, rows, found, path)
    with card.of(run["gpu"]):
        rows = mark(rows, build)
        # A point of one regime is none of the other's.
        apart = [{**row, "cache": row["regime"]} for row in rows]
        check_rates(family, apart, path)
    check_limits(family, apart, run, ceilings, path)
    return Recording(run, rows, raw_samples, readings=raw_readings)


def point_of(row: Mapping[str, str]) -> RegimePoint:
    return tuple(row[name] for name in REGIME_POINT)


def read_takes(
    family: str, recorded: Path, build: Path
) -> tuple[list[Recording], dict[RegimePoint, int], list[dict[str, str]]]:
    """All takes of `family` among a GPU's recordings, which of them counts for each point, and the rows that count."""
    found = [read_take(family, folder, build) for folder in takes(recorded, family)]
    take_of = chosen(found)
    return found, take_of, [row for i, take in enumerate(found) for row in take.rows if take_of[point_of(row)] == i]


def chosen(found: Sequence[Recording]) -> dict[RegimePoint, int]:
    """The number of the take in `found` whose row of a point counts: the last one with a current row.
    The rows of that point in other takes are superseded."""
    rows = ((point_of(row), row["status"], number) for number, take in enumerate(found) for row in take.rows)
    last: dict[RegimePoint, tuple[str, int]] = {}
    for point, status, number in rows:
        if (last.get(point, ("",))[0], status) != ("current", "stale"):
            last[point] = status, number
    return {point: number for point, (_, number) in last.items()}


def _check_gpu(run: Mapping[str, Any], recorded: Path, path: Path) -> None:
    """A take is of the model of its neighbours: without their ceilings no rate of it would be limited."""
    gpu = run["gpu"]["name"]
    for folder in (recorded, recorded.parent / CEILINGS):
        if (folder / RUN).is_file() and (other := read_run(folder)["gpu"]["name"]) != gpu:
            raise refused(path, "", f"it was taken on {gpu}, and {folder.name} was recorded on {other}")


def _check_readings(readings: pd.DataFrame, path: Path) -> None:
    """Within a block, time advances and the energy counter never goes back."""
    block = [*REGIME_POINT, "block"]
    for column, strict in (("at_s", True), ("energy_j", False)):
        steps = readings.dropna(subset=column).astype({column: float}).groupby(block, sort=False)[column].diff()
        if (back := (steps <= 0 if strict else steps < 0)).any():
            where = " ".join(map(str, readings.loc[back.idxmax(), block]))
            raise refused(path, "", f"{column} goes back in block {where}")


def _check_rows(family: str, rows: Rows, found: Mapping[RegimePoint, Subject], path: Path) -> None:
    """Rows and blocks are of the same points, in balanced passes, and every cell is what the blocks give."""

    def cells(row: Mapping[str, str], point: RegimePoint, place: str) -> Mapping[str, float | str | None]:
        if not row["baseline"]:
            return regime_cells(row["regime"], found[point].blocks, None)
        other = found.get((row["baseline"], LIBRARY, *(row[name] for name in SET)))
        if other is None or len(other.blocks) != len(found[point].blocks):
            raise refused(path, place, f"{row['baseline']} was not measured in the same passes")
        return regime_cells(row["regime"], found[point].blocks, other.blocks)

    check_follow(family, rows, REGIME_POINT, {point: each.build_keys for point, each in found.items()}, cells, path)
    _check_order(found, _operations(family, rows), path)


def _operations(family: str, rows: Rows) -> dict[RegimePoint, str]:
    """The operation of each point, a library's by the kernels that it is compared with; "" if none is declared."""
    declared = {kernel.id: kernel.compute.op for kernel in registry.kernels(family)}
    found: dict[RegimePoint, str] = {}
    for row in rows:
        if row["toolkit"] != LIBRARY:
            members, operation = tuple(row[name] for name in SET), declared.get(row["kernel"], "")
            found[row["kernel"], row["toolkit"], *members] = operation
            found[row["baseline"], LIBRARY, *members] = operation
    return found


def _check_order(found: Mapping[RegimePoint, Subject], operations: Mapping[RegimePoint, str], path: Path) -> None:
    """Every pass over a set visits each subject once, and every second pass the other way round.
    A set is of one operation: products with and without scales may have the same types and sizes."""
    orders: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for point, subject in found.items():
        blocks = orders.setdefault((operations.get(point, ""), *point[2:]), [])
        blocks.extend((number, " ".join(point[:2])) for number in subject.numbers)
    for members, blocks in orders.items():
        order = [name for _, name in sorted(blocks)]
        count = len(set(order))
        passes = [order[start : start + count] for start in range(0, len(order), count)]
        whole = sorted(number for number, _ in blocks) == list(range(len(order))) and len(passes) % 2 == 0
        if not whole or any(each != passes[0][:: -1 if number % 2 else 1] for number, each in enumerate(passes)):
            raise refused(path, "", f"the blocks of {' '.join(members[1:])} are not in a balanced order")


Spread = Mapping[str, Any]
"""Relative differences of medians in one regime: how many `rows`, the `middle` and `largest` one, and where (`at`)."""

TakeRows = tuple[Mapping[str, Any], Sequence[Mapping[str, str]]]
"""A take: its run.json, and the rows of its summary as text."""


def rows_of(found: Iterable[TakeRows]) -> pd.DataFrame:
    """The rows of takes.
    Columns: those of REGIME_POINT, `card`, `us` (the median), `ratio`, and whether the row is `alike`: of the binary
    that the last take with this row ran."""
    cells = [
        {
            **{name: row[name] for name in POINT},
            "card": run["gpu"].get("card", ""),
            "us": float(row["median_us"]),
            "ratio": float(row["ratio"] or "nan"),
            "build_key": row["build_key"],
        }
        for run, rows in found
        for row in rows
    ]
    table = pd.DataFrame(cells, columns=[*POINT, "card", "us", "ratio", "build_key"])
    table["alike"] = table["build_key"] == table.groupby(POINT)["build_key"].transform("last")
    return table.drop(columns="build_key")


def repeated(rows: pd.DataFrame, regime: str) -> Spread | None:
    """Distance of takes on one card, by the two most distant ones of each of `rows`; None where no card has two."""
    times = rows[rows["alike"] & (rows["regime"] == regime)].groupby([*POINT, "card"])["us"]
    return _spread(_differences(times).groupby(POINT).max())


def between_cards(rows: pd.DataFrame, regime: str) -> Spread | None:
    """Distance of cards, by a row's two most distant ones; None with takes of one card.
    Of kernels alone: where candidates are close a library's choice differs between takes (cuBLAS at 1024 by 11%)."""
    kernels = rows[rows["alike"] & (rows["regime"] == regime) & (rows["toolkit"] != LIBRARY)]
    return _spread(_differences(kernels.groupby([*POINT, "card"])["us"].mean().groupby(POINT)))


def _differences(times: Any) -> pd.Series:
    """Distance of the times in each group that has at least two."""
    return (times.max() / times.min() - 1)[times.count() > 1]


def _spread(apart: pd.Series) -> Spread | None:
    if apart.empty:
        return None
    largest = {"largest": float(apart.max()), "at": " ".join(apart.idxmax())}
    return {"rows": len(apart), "middle": float(apart.median()), **largest}


def by_take(rows: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Distance of the times and of the ratios, by column, of every kernel's row that several takes have of one build.
    Ratios hold the library's scatter too."""
    found = rows[rows["alike"] & rows["ratio"].notna()].groupby(POINT)
    apart = {column: _differences(found[column]) for column in ("us", "ratio")}
    return {column: {" ".join(point): float(far) for point, far in of.items()} for column, of in apart.items()}


def agreement(found: Sequence[TakeRows]) -> dict[str, Any]:
    """Agreement of takes, as run.json has it: their number, that of cards, spreads by regime, and `by_take`."""
    rows = rows_of(found)
    spreads = {
        regime: {"repeated": repeated(rows, regime), "between_cards": between_cards(rows, regime)} for regime in REGIMES
    }
    cards = {run["gpu"].get("card", "") for run, _ in found}
    return {"takes": len(found), "cards": len(cards), "spread": spreads, "by_take": by_take(rows)}

"""Ways of altering rows, takes and circumstances of a recording, whose manifest the forger rewrites.

What is altered in samples, verdicts, counters and experiments has tests of its own (`test_recording_checks`).

Each takes the folder of a copy. "refused" must be refused; "harmless" changes nothing that is believed; "believed" is
what cannot be found without a signature or a new measurement, kept so that the count stays honest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro.core.names import LIBRARY
from gemmrepro.measure import derived
from gemmrepro.measure.columns import REGIME_POINT, SET
from gemmrepro.measure.recording import POINT
from gemmrepro.measure.rows import by_point
from gemmrepro.recordings.sweeps import read_samples

Edit = Callable[[Path], None]


@dataclass(frozen=True)
class Alteration:
    """One way of altering a recording, or a take of it; `why` is the reason where it is not refused."""

    name: str
    edit: Edit
    outcome: str = "refused"
    why: str = ""

    @property
    def of_take(self) -> bool:
        return self.name.startswith("take")


def table(name: str, change: Callable[[pd.DataFrame], Any]) -> Edit:
    """An edit of a CSV as text; `change` edits the frame or returns another."""

    def edit(folder: Path) -> None:
        rows = pd.read_csv(folder / name, dtype=str, keep_default_na=False)
        changed = change(rows)
        (rows if changed is None else changed).to_csv(folder / name, index=False)

    return edit


def samples(change: Callable[[pd.DataFrame], pd.DataFrame], name: str = "samples.parquet") -> Edit:
    def edit(folder: Path) -> None:
        change(pd.read_parquet(folder / name)).to_parquet(folder / name, index=False)

    return edit


def document(name: str, change: Callable[[Any], None]) -> Edit:
    def edit(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        change(value)
        (folder / name).write_text(json.dumps(value))

    return edit


def raw(name: str, change: Callable[[bytes], bytes]) -> Edit:
    def edit(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return edit


def _one(rows: pd.DataFrame) -> int:
    """The first row of a kernel that has a baseline."""
    return int(rows.index[(rows["toolkit"] != "library") & (rows["baseline"] != "")][0])


def scaled(factor: float, *columns: str, all_rows: bool = False) -> Edit:
    def change(rows: pd.DataFrame) -> None:
        lines = rows.index if all_rows else [_one(rows)]
        for column in columns:
            for line in lines:
                if rows.loc[line, column]:
                    rows.loc[line, column] = f"{factor * float(rows.loc[line, column]):.6g}"

    return table("summary.csv", change)


def cell(value: str, column: str) -> Edit:
    return table("summary.csv", lambda rows: rows.loc.__setitem__((_one(rows), column), value))


TIMES = ("median_us", "ci_low_us", "ci_high_us")
RATIO = ("ratio", "ratio_ci_low", "ratio_ci_high")


def _exchange(*columns: str) -> Edit:
    """An edit that exchanges cells of two rows of one kernel and toolkit."""

    def edit(rows: pd.DataFrame) -> None:
        first = rows.loc[_one(rows)]
        line, other = rows.index[(rows["kernel"] == first["kernel"]) & (rows["toolkit"] == first["toolkit"])][:2]
        rows.loc[[line, other], list(columns)] = rows.loc[[other, line], list(columns)].to_numpy()

    return table("summary.csv", edit)


def _again(**cells: str) -> Edit:
    """A row once more, with other cells."""

    def change(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([rows, rows.loc[[_one(rows)]].assign(**cells)], ignore_index=True)

    return table("summary.csv", change)


SUMMARY = (
    Alteration(
        "all times halved, all rates doubled",
        lambda f: (scaled(0.5, *TIMES, all_rows=True)(f), scaled(2, "tflops", "gbps", all_rows=True)(f))[0],
    ),
    Alteration(
        "whole measurements of two sizes exchanged", _exchange(*TIMES, *RATIO, "tflops", "gbps", "baseline_median_us")
    ),
    Alteration("one row dropped", table("summary.csv", lambda rows: rows.drop(index=_one(rows)))),
    Alteration("cut in a line", raw("summary.csv", lambda data: data[: len(data) // 2])),
    Alteration("a row twice, n with a leading zero", _again(n="04096")),
    Alteration("another column", table("summary.csv", lambda rows: rows.assign(more=1))),
    Alteration("no UTF-8", raw("summary.csv", lambda data: data[:400] + b"\xff" + data[400:])),
    Alteration(
        "reordered rows",
        table("summary.csv", lambda rows: rows.iloc[::-1]),
        "harmless",
        "rows are found by their point",
    ),
    Alteration(
        "status stale instead of current", cell("stale", "status"), "harmless", "the status is computed from the keys"
    ),
    Alteration("run key of another launch", cell("0123456789abcdef", "run_key"), "harmless", "the row is stale"),
    Alteration("err_fro x 1e-3", scaled(1e-3, "err_fro"), "believed", "there is one number and no samples behind it"),
)


MANIFESTS = (
    Alteration("GPU renamed", document("run.json", lambda run: run["gpu"].update(name="NVIDIA B200"))),
    Alteration("highest clock halved", document("run.json", lambda run: run["gpu"].update(clock_max_mhz=900))),
    Alteration(
        "another compute capability",
        document("run.json", lambda run: run["gpu"].update(compute_capability="12.0")),
    ),
    Alteration("no GPU", document("run.json", lambda run: run.pop("gpu"))),
)


def _consistent(factor: float, everything: bool) -> Edit:
    """Samples and rows altered together by the project's own arithmetic: what remains possible."""

    def edit(folder: Path) -> None:
        frame = pd.read_parquet(folder / "samples.parquet")
        rows = pd.read_csv(folder / "summary.csv", dtype=str, keep_default_na=False)
        first = rows.loc[_one(rows)]
        hit = frame["time_us"] > 0 if everything else frame["kernel"] == first["kernel"]
        frame.loc[hit, "time_us"] *= factor
        if everything:
            frame["baseline_us"] *= factor
        frame.to_parquet(folder / "samples.parquet", index=False)
        points = read_samples(folder / "samples.parquet")[1]

        def computed(row: Any) -> dict[str, Any]:
            point = points[tuple(row[column] for column in POINT)]
            ratio = {} if point.baseline is None else derived.ratio_cells(point.times, point.baseline)
            return derived.time_cells(point.times) | ratio

        _rewrite(folder, rows, computed)

    return edit


def _rewrite(folder: Path, rows: pd.DataFrame, computed: Callable[[Any], dict[str, Any]]) -> None:
    """Every row as it is computed anew, its rates scaled with its time."""
    for line, row in rows.iterrows():
        cells = computed(row)
        faster = float(row["median_us"]) / cells["median_us"]
        cells |= {column: faster * float(row[column]) for column in ("tflops", "gbps") if row[column]}
        for column, value in cells.items():
            text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
            rows.loc[line, column] = text
    rows.to_csv(folder / "summary.csv", index=False)


CONSISTENT = (
    Alteration("samples and rows of a kernel in ms", _consistent(1e-3, False)),
    Alteration("samples and rows of everything a hundred times as fast", _consistent(0.01, True)),
    Alteration(
        "samples and rows of a kernel 20 % faster",
        _consistent(1 / 1.2, False),
        "believed",
        "consistent, and within the limits of the GPU",
    ),
)


TAKE = "regimes/1"
"""The take that is altered."""


def _take(name: str, change: Callable[[pd.DataFrame], Any], *outcome: str) -> Alteration:
    """An alteration of a take's rows; `outcome` and its reason where it is not refused."""
    return Alteration(f"take: {name}", table(f"{TAKE}/summary.csv", change), *outcome)


def _taken(name: str, file: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Alteration:
    """An alteration of a take's samples or readings, its rows left as they are."""
    return Alteration(f"take: {name}", samples(change, f"{TAKE}/{file}.parquet"))


def _times(factor: float, *columns: str) -> Callable[[pd.DataFrame], None]:
    """The first row of a kernel, sustained, with some cells scaled."""

    def change(rows: pd.DataFrame) -> None:
        for column in columns:
            rows.loc[_first(rows), column] = f"{factor * float(rows.loc[_first(rows), column]):.6g}"

    return change


def _first(rows: pd.DataFrame) -> int:
    return int(rows.index[(rows["baseline"] != "") & (rows["regime"] == "sustained")][0])


MEASURED = (*TIMES, *RATIO, "tflops", "gbps", "baseline_median_us", "joules", "clock_mhz", "power_w", "temp_c")


def _exchanged(rows: pd.DataFrame) -> None:
    """What was measured of the first row and of the next one of its regime."""
    one, other = rows.index[(rows["regime"] == "sustained") & (rows["baseline"] != "")][:2]
    rows.loc[[one, other], list(MEASURED)] = rows.loc[[other, one], list(MEASURED)].to_numpy()


def _set(**cells: str) -> Callable[[pd.DataFrame], None]:
    def change(rows: pd.DataFrame) -> None:
        for column, value in cells.items():
            rows.loc[_first(rows), column] = value

    return change


def _consistent_take(time: float, energy: float) -> Edit:
    """Times and energies of a take altered with its rows, by the project's own arithmetic."""

    def edit(folder: Path) -> None:
        take = folder / TAKE
        rows = pd.read_csv(take / "summary.csv", dtype=str, keep_default_na=False)
        kernel = rows.loc[_first(rows), "kernel"]
        for name, column, factor in (("samples", "time_us", time), ("readings", "energy_j", energy)):
            frame = pd.read_parquet(take / f"{name}.parquet")
            frame.loc[frame["kernel"] == kernel, column] *= factor
            frame.to_parquet(take / f"{name}.parquet", index=False)
        found = by_point(*(pd.read_parquet(take / f"{name}.parquet") for name in ("samples", "readings")))

        def computed(row: Any) -> dict[str, Any]:
            library = (row["baseline"], LIBRARY, *(row[name] for name in SET))
            own = found[tuple(row[name] for name in REGIME_POINT)].blocks
            return derived.regime_cells(row["regime"], own, found[library].blocks if row["baseline"] else None)

        _rewrite(take, rows, computed)

    return edit


def _of_kernel(frame: pd.DataFrame) -> pd.Series:
    """The rows of the first kernel that is no library's."""
    return frame["kernel"] == frame.loc[frame["toolkit"] != "library", "kernel"].iloc[0]


REGIMES = (
    _take("a time and its interval in ns", _times(1000, *TIMES)),
    _take("a time and its interval x 1.0001", _times(1.0001, *TIMES)),
    _take("joules x 1.24", _times(1.24, "joules")),
    _take("more blocks that began ready", _set(ready="99")),
    _take("another layout", _set(layout="col,row,row")),
    _take("all rows dropped", lambda rows: rows.iloc[:0]),
    _take("a row twice", lambda rows: pd.concat([rows, rows.loc[[_first(rows)]]])),
    _take("measurements of two rows exchanged", _exchanged),
    _take("reordered rows", lambda rows: rows.iloc[::-1], "harmless", "rows are found by their point"),
    _taken("the samples of a kernel dropped", "samples", lambda s: s[~_of_kernel(s)]),
    _taken("samples in another block", "samples", lambda s: s.assign(block=s["block"] + _of_kernel(s))),
    _taken("energies of a kernel x 0.8", "readings", lambda r: r.assign(energy_j=r["energy_j"] * _share(r, 0.8))),
    _taken("clocks x 1.1", "readings", lambda r: r.assign(clock_mhz=1.1 * r["clock_mhz"])),
    Alteration(
        "take: samples and rows of a kernel a hundred times as fast",
        _consistent_take(0.01, 1.0),
    ),
    Alteration(
        "take: GPU renamed",
        document(f"{TAKE}/run.json", lambda run: run["gpu"].update(name="NVIDIA B200")),
    ),
    Alteration(
        "take removed",
        lambda folder: shutil.rmtree(folder / TAKE),
        "believed",
        "nothing says how many takes there were",
    ),
)


def _share(frame: pd.DataFrame, factor: float) -> pd.Series:
    """`factor` in the rows of the first kernel, and 1 in the others."""
    return 1.0 - (1.0 - factor) * _of_kernel(frame)


ALTERATIONS = (*SUMMARY, *MANIFESTS, *CONSISTENT, *REGIMES)


def copy(family: Path, to: Path) -> Path:
    """A copy of a family's recording beside the ceilings of its GPU; returns the family's folder."""
    for name in {family.name, "ceilings"}:
        shutil.copytree(family.parent / name, to / name)
    return to / family.name

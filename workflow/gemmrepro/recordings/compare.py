"""Compare two runs row by row: two recordings, commits, toolkits or GPUs.

    python -m gemmrepro compare reports/recorded/h200 results/measure
    python -m gemmrepro compare v1.0:reports/recorded/h200 reports/recorded/h200 --families ladder
    python -m gemmrepro compare results/measure results/measure --toolkits cuda12,cuda13
    python -m gemmrepro compare A B --csv changes.csv --figure changes.svg

A side is a folder of families, each with its summary.csv, samples.parquet and run.json, or COMMIT:FOLDER of this
repository. Where samples are missing, the rows' intervals decide. The exit code is 0 if no row is SLOWER, and 3
otherwise.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gemmrepro.core import schemas
from gemmrepro.core.files import csv_text, read_json, write_atomic
from gemmrepro.core.machine import git
from gemmrepro.core.names import RESTORE
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import SUMMARY_COLUMNS
from gemmrepro.measure.recording import RUN, SAMPLES, SUMMARY, check_rows, read_rows
from gemmrepro.recordings.comparison import (
    BAND,
    CARDS,
    FASTER,
    SLOWER,
    UNCLEAR,
    VERDICTS,
    Change,
    Point,
    Rounds,
    Run,
    compared,
)
from gemmrepro.recordings.sweeps import PointSamples, read_samples

SLOWER_CODE = 3
"""The exit code if a row is slower."""

COLUMNS = ("family", "point", "verdict", "by", "time", "time_low", "time_high", "cycles", "least")

NEEDED = {
    "type": "object",
    "required": ["gpu"],
    "properties": {
        "gpu": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "card": {"type": "string"}},
        },
        "baseline_algorithms": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
"""What must stand in a run.json; the rest may be of another version."""

DRAWN = (".svg", ".pdf", ".png")
"""Formats of a figure."""

MOST_DRAWN = 120
"""Rows of a figure: those that changed most."""


@dataclass(frozen=True)
class Side:
    """One family of one run: its rows, their rounds where it has samples, the GPU, and the baselines' algorithms.

    `gpu` is its model; `card` names the GPU itself, and is empty where the recording does not.
    """

    rows: Sequence[Mapping[str, str]]
    rounds: Mapping[Point, Rounds]
    gpu: str
    algorithms: Mapping[str, str]
    card: str = ""


def read_side(folder: Path) -> dict[str, Side]:
    """The families of a run that have rows, by name. Raises UserError if there is none, or a file is corrupt."""
    if (folder / SUMMARY).is_file():
        folders = [folder]
    else:
        folders = sorted(path.parent for path in folder.glob(f"*/{SUMMARY}"))
    sides = {}
    for path in folders:
        if rows := _rows(path / SUMMARY):
            run = read_json(path / RUN, "the recording", RESTORE)
            schemas.check(run, NEEDED, f"the recording {path / RUN}")
            gpu, algorithms = run["gpu"], run.get("baseline_algorithms", {})
            sides[path.name] = Side(rows, _rounds(path / SAMPLES), gpu["name"], algorithms, gpu.get("card", ""))
    if not sides:
        raise UserError(f"{folder} holds no run: no folder of a family with rows in its {SUMMARY}.")
    return sides


def rounds_of(samples: PointSamples) -> Rounds:
    """The rounds of a point as they are compared."""
    times = [math.log(float(np.median(part))) for part in samples.times]
    if samples.baseline is None:
        return Rounds(times)
    pairs = zip(samples.baseline, samples.times, strict=True)
    return Rounds(times, [math.log(float(np.median(other / own))) for other, own in pairs])


def _rounds(path: Path) -> dict[Point, Rounds]:
    """The rounds behind a summary, none where its samples are missing or of another version of the project."""
    if not path.is_file():
        return {}
    try:
        return {point: rounds_of(samples) for point, samples in read_samples(path)[1].items()}
    except UserError as error:
        print(f"gemmrepro: {error} The intervals of the rows decide.", file=sys.stderr)
        return {}


def _rows(path: Path) -> list[dict[str, str]]:
    """A summary's rows; columns that its version of the project did not have are empty."""
    try:
        header = path.read_text(encoding="utf-8").partition("\n")[0].split(",")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}); {RESTORE}.") from None
    known = [name for name in header if name in SUMMARY_COLUMNS]
    rows = [{**dict.fromkeys(SUMMARY_COLUMNS, ""), **row} for row in read_rows(path, known)]
    check_rows(rows, path)
    return rows


def side_of(text: str, scratch: Path) -> Path:
    """The folder that an argument names; of a commit, a copy of its rows in `scratch`.

    Raises:
        UserError: it names neither a folder nor one of a commit.
    """
    commit, colon, path = text.partition(":")
    if not colon or Path(text).exists():
        return Path(text)
    listed = _git(text, "ls-tree", "-r", "--name-only", "--full-tree", "--end-of-options", commit, path)
    for name in listed.decode().splitlines():
        if name.endswith((f"/{SUMMARY}", f"/{SAMPLES}", f"/{RUN}")):
            write_atomic(scratch / name, _git(text, "show", "--end-of-options", f"{commit}:{name}"))
    return scratch / path


def _git(text: str, *arguments: str) -> bytes:
    done = git(*arguments)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(f"'{text}' is neither a folder nor COMMIT:FOLDER ({why[0] if why else 'git gives no reason'}).")
    return done.stdout


def on_two_cards(before: Side, after: Side) -> bool:
    """Whether both sides name the card that they ran on, and it is not the same one."""
    return bool(before.card and after.card) and before.card != after.card


def changes(
    before: Mapping[str, Side], after: Mapping[str, Side], toolkits: tuple[str, str] | None
) -> dict[str, list[Change]]:
    """What became of the rows that both runs have, by family. Raises UserError if they share none."""
    found = {}
    for family, old in before.items():
        if family in after:
            new = after[family]
            first, second = toolkits or (None, None)
            sides = (
                Run.of(old.rows, old.rounds, first, old.algorithms),
                Run.of(new.rows, new.rounds, second, new.algorithms),
            )
            if these := compared(*sides, same_gpu=old.gpu == new.gpu, two_cards=on_two_cards(old, new)):
                found[family] = these
    if not found:
        raise UserError("the two runs share no row; compare the same families, and name --toolkits where they differ.")
    return found


def lines(found: Mapping[str, Sequence[Change]], every: bool, two_cards: Container[str] = ()) -> list[str]:
    """The table as text: what is faster or slower, or every row, and the counts.

    Args:
        two_cards: the families whose two sides ran on two cards.
    """
    out = []
    for family, these in found.items():
        for change in sorted(these, key=lambda one: one.time.value):
            if every or change.verdict in (FASTER, SLOWER):
                out.append(_line(change))
        counts = Counter(change.verdict for change in these)
        told = f"{family}: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
        found_by = [change.least for change in these if change.verdict == UNCLEAR and change.least is not None]
        if found_by:
            told += f"; unclear rows would show a slowdown of {100 * statistics.median(found_by):.1f} % (median)"
        if family in two_cards:
            told += f"; on two cards, whose times may differ by {100 * CARDS:.1f} % (standard deviation)"
        out.append(told)
    return out


def _line(change: Change) -> str:
    cycles = "" if change.cycles is None else f"  cycles {100 * (change.cycles - 1):+.2f} %"
    ends = f"[{100 * (change.time.low - 1):+.2f}, {100 * (change.time.high - 1):+.2f}]"
    shift = f"time {100 * (change.time.value - 1):+.2f} % {ends}"
    least = "" if change.least is None else f"  would find {100 * change.least:.2f} %"
    return f"{change.verdict:7} {_name(change):64} {shift} by {change.by}{cycles}{least}"


def _name(change: Change) -> str:
    return " ".join(filter(None, change.point))


def _table(found: Mapping[str, Sequence[Change]]) -> str:
    rows = [
        {
            **{"family": family, "point": _name(change), "verdict": change.verdict, "by": change.by},
            **{"time": change.time.value, "time_low": change.time.low, "time_high": change.time.high},
            "cycles": change.cycles,
            "least": change.least,
        }
        for family, these in found.items()
        for change in these
    ]
    return csv_text(rows, COLUMNS)


def draw(found: Mapping[str, Sequence[Change]], path: Path) -> None:
    """Draw the rows that changed most: the relative time with its interval, coloured by verdict."""
    from matplotlib.figure import Figure

    every = [change for these in found.values() for change in these]
    shown = sorted(every, key=lambda one: -abs(one.time.value - 1))[:MOST_DRAWN]
    shown.sort(key=lambda one: -one.time.value)
    figure = Figure(figsize=(9, 1.2 + 0.16 * len(shown)))
    axes = figure.subplots()
    colours = dict(zip(VERDICTS, ("0.6", "tab:green", "tab:red", "tab:orange"), strict=True))
    for verdict in VERDICTS:
        places = [place for place, one in enumerate(shown) if one.verdict == verdict]
        times = [shown[place].time for place in places]
        ends = [[t.value - t.low for t in times], [min(t.high, 10 * t.value) - t.value for t in times]]
        axes.errorbar([t.value for t in times], places, xerr=ends, fmt="o", ms=3, color=colours[verdict], label=verdict)
    axes.axvspan(1 / (1 + BAND), 1 + BAND, color="0.93", zorder=0)
    axes.set(yticks=range(len(shown)), yticklabels=[_name(one) for one in shown], xlabel="time, after over before")
    axes.tick_params(axis="y", labelsize=5)
    axes.legend(fontsize=6)
    figure.savefig(path, bbox_inches="tight")


def main(options: Namespace) -> int:
    """Compare two runs; 3 if a row is slower."""
    pair = tuple(options.toolkits.split(",")) if options.toolkits else None
    if pair is not None and len(pair) != 2:
        raise UserError(f"--toolkits '{options.toolkits}' is not of the form before,after; for instance cuda12,cuda13.")
    if options.figure and options.figure.suffix not in DRAWN:
        raise UserError(f"--figure {options.figure} is of no known format; choose a name in {', '.join(DRAWN)}.")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [side_of(text, Path(scratch) / str(i)) for i, text in enumerate((options.before, options.after))]
        before, after = (read_side(folder) for folder in folders)
    wanted = options.families.split(",") if options.families else list(before)
    if options.families and (unknown := [name for name in wanted if name not in before or name not in after]):
        both = ", ".join(sorted(set(before) & set(after))) or "none"
        raise UserError(f"--families: the two runs do not both have {', '.join(unknown)}; both have {both}.")
    found = changes({family: before[family] for family in wanted if family in before}, after, pair)
    two_cards = {family for family in found if on_two_cards(before[family], after[family])}
    print("\n".join(lines(found, options.all, two_cards)))
    if options.csv:
        write_atomic(options.csv, _table(found))
    if options.figure:
        draw(found, options.figure)
    return SLOWER_CODE if any(one.verdict == SLOWER for these in found.values() for one in these) else 0

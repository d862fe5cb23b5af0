"""Compare two runs row by row: two recordings, commits, toolkits or GPUs.

    python -m gemmrepro compare reports/recorded/h200 results/measure
    python -m gemmrepro compare v1.0:reports/recorded/h200 reports/recorded/h200 --families ladder
    python -m gemmrepro compare results/measure results/measure --toolkits cuda12,cuda13
    python -m gemmrepro compare A B --csv changes.csv --figure changes.svg

A side is a folder of families, each with its summary.csv and run.json, or COMMIT:FOLDER of this repository. The exit
code is 0 if no row is SLOWER, and 3 otherwise.

On one model of GPU, and where both sides timed a row in turn with the same version and algorithm of a library, the
relative time follows from the ratios to that baseline, in which shared drift cancels; elsewhere from the times. A row
is FASTER or SLOWER if the 95 % intervals of its two measurements do not overlap; between normal estimates of equal
width they do so by chance in 0.6 % of rows. A second quantity must agree: beside ratios the times, since a baseline
that changed is no change of the kernel; elsewhere the cycles, time x clock, where clocks are known, since a lower clock
is no slower kernel. A row is SAME if the interval of its relative time lies within `BAND`, and UNCLEAR otherwise.
"""

import math
import statistics
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmrepro.core import schemas
from gemmrepro.core.files import csv_text, read_json, write_atomic
from gemmrepro.core.machine import git
from gemmrepro.core.names import LIBRARY, RESTORE, baseline_at
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import SUMMARY_COLUMNS
from gemmrepro.measure.recording import POINT, RUN, SUMMARY, check_rows, read_rows
from gemmrepro.stats import Interval

SLOWER_CODE = 3
"""The exit code if a row is slower."""

SAME, FASTER, SLOWER, UNCLEAR = VERDICTS = ("SAME", "FASTER", "SLOWER", "UNCLEAR")

BAND = 0.02
"""The largest relative change of time that still counts as none."""

CARDS = 0.003
"""The standard deviation of the relative difference of two cards of one model (docs/recordings-and-comparing.md)."""

_TEXT = {"type": "string"}
NEEDED = {
    "type": "object",
    "required": ["gpu"],
    "properties": {
        "gpu": {"type": "object", "required": ["name"], "properties": {"name": _TEXT, "card": _TEXT}},
        "baseline_algorithms": {"type": "object", "additionalProperties": _TEXT},
    },
}
"""Keys that a run.json must have; the rest may be of another version."""

COLUMNS = ("family", "point", "verdict", "by", "time", "low", "high", "cycles")
"""A change as --csv writes it: the time with its interval and the cycles are relative, after over before."""

DRAWN = (".svg", ".pdf", ".png")
"""Formats of a figure."""

MOST_DRAWN = 120
"""Rows of a figure: those that changed most."""

TIME = ("median_us", "ci_low_us", "ci_high_us")
RATIO = ("ratio", "ratio_ci_low", "ratio_ci_high")
"""The cells of a row whose intervals decide."""

Row = Mapping[str, str]
Change = Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """One family of one run: its rows, the model of GPU, the baselines' algorithms, and the card if it is named."""

    rows: Sequence[Row]
    gpu: str = ""
    algorithms: Mapping[str, str] = field(default_factory=dict)
    card: str = ""

    def by_point(self, toolkit: str | None) -> dict[tuple[str, ...], Row]:
        """Rows by their points; of one toolkit alone without it."""
        names = [name for name in POINT if toolkit is None or name != "toolkit"]
        return {tuple(row[name] for name in names): row for row in self.rows if toolkit in (None, row["toolkit"])}

    def baseline(self, row: Row) -> tuple[str, str | None, str | None]:
        """The baseline that a row was timed in turn with: library, version, and algorithm where the run says it."""
        library = row["baseline"] if row["toolkit"] != LIBRARY else ""
        versions = (each["build_key"] for each in self.rows if (each["kernel"], each["toolkit"]) == (library, LIBRARY))
        return library, next(versions, None), self.algorithms.get(baseline_at(library, row["dtype"], row["n"]))


def on_two_cards(before: Side, after: Side) -> bool:
    """Whether both sides name the card that they ran on, and it is not the same one."""
    return bool(before.card and after.card) and before.card != after.card


def compared(before: Side, after: Side, toolkits: tuple[str, str] | None = None) -> list[Change]:
    """The changes of rows that both sides have, as COLUMNS say, without the family.
    `toolkits`: those whose rows are compared, before and after; by default each with its own."""
    pair = toolkits or (None, None)
    old, new = before.by_point(pair[0]), after.by_point(pair[1])
    same_gpu, apart = before.gpu == after.gpu, 1 + 2 * CARDS * on_two_cards(before, after)
    # Where one run does not name algorithms, versions decide.
    shown = 3 if before.algorithms and after.algorithms else 2
    changes: list[Change] = []
    for point in (point for point in old if point in new):
        row, later = old[point], new[point]
        time, cycles = _quotient(later, row, TIME, apart), None
        by, relative, beside = "time", time, None
        if same_gpu and row["clock_mhz"] and later["clock_mhz"]:
            clock = float(later["clock_mhz"]) / float(row["clock_mhz"])
            cycles, beside = time.value * clock, Interval(time.value * clock, time.low * clock, time.high * clock)
        baseline = before.baseline(row)[:shown]
        if same_gpu and baseline[0] and baseline == after.baseline(later)[:shown] and row["ratio"] and later["ratio"]:
            by, relative, beside = "ratio", _quotient(row, later, RATIO, apart), time
        what = {"point": " ".join(filter(None, point)), "verdict": verdict(relative, beside), "by": by}
        changes.append({**what, "time": relative.value, "low": relative.low, "high": relative.high, "cycles": cycles})
    return changes


def _quotient(above: Row, below: Row, cells: Sequence[str], apart: float) -> Interval:
    """One row's quantity over another's. The interval excludes 1 exactly if theirs do not overlap, but for `apart`."""
    value, low, high = (float(above[name]) for name in cells)
    other, other_low, other_high = (float(below[name]) for name in cells)
    return Interval(value / other, low / other_high / apart, high / other_low * apart if other_low else math.inf)


def verdict(relative: Interval, second: Interval | None = None) -> str:
    """The verdict on a relative time and on what must agree with it."""
    parts = [relative] if second is None else [relative, second]
    if all(part.low > 1 for part in parts):
        return SLOWER
    if all(part.high < 1 for part in parts):
        return FASTER
    return SAME if 1 / (1 + BAND) <= relative.low <= 1 <= relative.high <= 1 + BAND else UNCLEAR


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
            gpu = run["gpu"]
            sides[path.name] = Side(rows, gpu["name"], run.get("baseline_algorithms", {}), gpu.get("card", ""))
    if not sides:
        raise UserError(f"{folder} holds no run: no folder of a family with rows in its {SUMMARY}.")
    return sides


def _rows(path: Path) -> list[dict[str, str]]:
    """A summary's rows; columns that its version of the project did not have are empty."""
    try:
        header = path.read_text(encoding="utf-8").partition("\n")[0].split(",")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}); {RESTORE}.") from None
    rows = read_rows(path, [name for name in header if name in SUMMARY_COLUMNS])
    rows = [{**dict.fromkeys(SUMMARY_COLUMNS, ""), **row} for row in rows]
    check_rows(rows, path)
    return rows


def side_of(text: str, scratch: Path) -> Path:
    """The folder that an argument names; of a commit, a copy of its rows in `scratch`."""
    commit, colon, path = text.partition(":")
    if not colon or Path(text).exists():
        return Path(text)
    listed = _git(text, "ls-tree", "-r", "--name-only", "--full-tree", "--end-of-options", commit, path)
    for name in listed.decode().splitlines():
        if name.endswith((f"/{SUMMARY}", f"/{RUN}")):
            write_atomic(scratch / name, _git(text, "show", "--end-of-options", f"{commit}:{name}"))
    return scratch / path


def _git(text: str, *arguments: str) -> bytes:
    done = git(*arguments)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(f"'{text}' is neither a folder nor COMMIT:FOLDER ({why[0] if why else 'git gives no reason'}).")
    return done.stdout


def lines(family: str, changes: Sequence[Change], every: bool, two_cards: bool) -> list[str]:
    """A family's table as text: what is faster or slower, or every row, and the counts."""
    out = []
    for change in sorted(changes, key=lambda change: change["time"]):
        if every or change["verdict"] in (FASTER, SLOWER):
            value, low, high = (100 * (change[name] - 1) for name in ("time", "low", "high"))
            cycles = "" if change["cycles"] is None else f"  cycles {100 * (change['cycles'] - 1):+.2f} %"
            time = f"time {value:+.2f} % [{low:+.2f}, {high:+.2f}] by {change['by']}"
            out.append(f"{change['verdict']:7} {change['point']:64} {time}{cycles}")
    counts = Counter(change["verdict"] for change in changes)
    told = f"{family}: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    width = statistics.median((change["high"] - change["low"]) / 2 for change in changes)
    told += f"; intervals of ±{100 * width:.1f} % (median)"
    cards = f"; on two cards, whose times may differ by {100 * CARDS:.1f} % (standard deviation)"
    return [*out, told + cards * two_cards]


def draw(changes: Sequence[Change], path: Path) -> None:
    """Draw the rows that changed most: the relative time with its interval, coloured by verdict."""
    from matplotlib.figure import Figure

    shown = sorted(changes, key=lambda change: -abs(change["time"] - 1))[:MOST_DRAWN]
    shown.sort(key=lambda change: -change["time"])
    figure = Figure(figsize=(9, 1.2 + 0.16 * len(shown)))
    axes = figure.subplots()
    colours = dict(zip(VERDICTS, ("0.6", "tab:green", "tab:red", "tab:orange"), strict=True))
    for verdict, colour in colours.items():
        places = [place for place, change in enumerate(shown) if change["verdict"] == verdict]
        times = [(shown[place]["time"], shown[place]["low"], shown[place]["high"]) for place in places]
        ends = [[time - low for time, low, _ in times], [min(high, 10 * time) - time for time, _, high in times]]
        axes.errorbar([time for time, *_ in times], places, xerr=ends, fmt="o", ms=3, color=colour, label=verdict)
    axes.axvspan(1 / (1 + BAND), 1 + BAND, color="0.93", zorder=0)
    axes.set(yticks=range(len(shown)), yticklabels=[change["point"] for change in shown])
    axes.set_xlabel("time, after over before")
    axes.tick_params(axis="y", labelsize=5)
    axes.legend(fontsize=6)
    figure.savefig(path, bbox_inches="tight")


def main(options: Namespace) -> int:
    pair = tuple(options.toolkits.split(",")) if options.toolkits else None
    if pair is not None and len(pair) != 2:
        raise UserError(f"--toolkits '{options.toolkits}' is not of the form before,after; for instance cuda12,cuda13.")
    if options.figure and options.figure.suffix not in DRAWN:
        raise UserError(f"--figure {options.figure} is of no known format; choose a name in {', '.join(DRAWN)}.")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [side_of(text, Path(scratch) / str(i)) for i, text in enumerate((options.before, options.after))]
        before, after = (read_side(folder) for folder in folders)
    both = [family for family in before if family in after]
    wanted = options.families.split(",") if options.families else both
    if unknown := [name for name in wanted if name not in both]:
        shared = ", ".join(sorted(both)) or "none"
        raise UserError(f"--families: the two runs do not both have {', '.join(unknown)}; both have {shared}.")
    changes: list[Change] = []
    for family in wanted:
        if rows := compared(before[family], after[family], pair):
            print("\n".join(lines(family, rows, options.all, on_two_cards(before[family], after[family]))))
            changes += [{"family": family, **row} for row in rows]
    if not changes:
        raise UserError("the two runs share no row; compare the same families, and name --toolkits where they differ.")
    if options.csv:
        write_atomic(options.csv, csv_text(map(dict, changes), COLUMNS))
    if options.figure:
        draw(changes, options.figure)
    return SLOWER_CODE if any(change["verdict"] == SLOWER for change in changes) else 0

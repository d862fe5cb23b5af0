"""The best kernels of each family in each regime and size, and what to use, for the report.

Kernels are compared with their baselines as equals if they add in its types, or err about as much as it does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from gemmrepro import registry
from gemmrepro.core.dtypes import DTYPES, INTEGERS
from gemmrepro.core.names import LIBRARY
from gemmrepro.experiments.results import Results
from gemmrepro.measure.columns import REGIME_POINT
from gemmrepro.measure.regimes import IN_TURN, REGIMES, SUSTAINED
from gemmrepro.measure.rows import Measurements, Regimes, counted, cubes, is_current, select
from gemmrepro.ozaki.inputs import complementary
from gemmrepro.paper.text import View, experiment_row_anchor, row_anchor
from gemmrepro.recordings.limits import is_scheme
from gemmrepro.registry import ladders

FAMILY, EXPERIMENT, DGEMM = "ozaki", "products", "cublas.gemm"
"""The experiment that compares schemes of FP64 and DGEMM with a product in higher precision."""

LAW, COLUMN = "normal", "err_fro"
"""The operands and the error that are compared: N(0, 1), and ‖C - C*‖ / ‖C*‖ in the Frobenius norm."""

TYPE = "fp64"
"""The input type of such schemes."""

ALLOWED = 1.5
"""Largest error of a kernel as a multiple of its baseline's, if their types of products or sums differ."""


def in_class(kernel: registry.Kernel) -> bool:
    """Whether its operands, products and sums have the types of an ordinary product.
    Sums of 8-bit floats are cut in the tensor core, so their type does not tell their error."""
    return not is_scheme(kernel) and DTYPES[kernel.compute.dtype_acc] >= 4 and DTYPES[kernel.compute.dtype_in] > 1


def bounds_elements(kernel: registry.Kernel) -> bool:
    """Whether each element has a digit where large elements meet only small ones; a bound by norms leaves none."""
    if kernel.promises.error is None:
        return True
    a, b = complementary(np.random.default_rng(0), 64, 64, 64)
    return bool(np.all(kernel.promises.error(a, b, np) < np.abs(a) @ np.abs(b)))


@dataclass(frozen=True)
class ErrorView:
    """A kernel's relative Frobenius error and its baseline's on the same operands, N(0, 1); `anchor` is a row's id.
    `is_bound`: the value is an upper bound."""

    value: float
    baseline: float
    anchor: str
    is_bound: bool = False


@dataclass(frozen=True)
class Accuracies:
    """The errors of schemes of FP64, from the experiment's results, which may be missing."""

    results: Results | None

    @classmethod
    def of(cls, experiments: Mapping[str, Mapping[str, Results]]) -> Accuracies:
        """From every family's experiments."""
        return cls(experiments.get(FAMILY, {}).get(EXPERIMENT))

    def __call__(self, kernel: str, size: int) -> ErrorView | None:
        """A scheme's error at a size; None where it, or DGEMM's, was not measured there by today's build."""
        if self.results is None:
            return None
        rows = select(self.results.rows, n=size, law=LAW, status="current")
        rows = rows[rows[COLUMN].notna()]
        own, reference = select(rows, kernel=kernel), select(rows, kernel=DGEMM)
        if own.empty or reference.empty:
            return None
        row = own.iloc[0]
        place = experiment_row_anchor(FAMILY, EXPERIMENT, row.name)
        return ErrorView(float(row[COLUMN]), float(reference.iloc[0][COLUMN]), place)

    def of_row(self, row: Mapping[str, Any], baseline: float | None, anchor: str) -> ErrorView | None:
        """The error of a measured row whose baseline errs by `baseline`; None where either is unknown.
        A sweep in FP64 has its baseline as reference, which then errs by 0. There the row has its difference from the
        baseline, which is no less than its error as long as the two err independently."""
        if row["dtype"] == TYPE:
            if exact := self(row["kernel"], row["n"]):
                return exact
            dgemm = self(DGEMM, row["n"])
            baseline = dgemm.value if dgemm else None
        return None if baseline is None else ErrorView(float(row[COLUMN]), baseline, anchor, row["dtype"] == TYPE)


PRECISE = 0.05
"""The widest interval, relative to its ratio, that is drawn, or shown of a burst; half that of a row that has none."""


@dataclass(frozen=True)
class Entry:
    """A kernel's ratio to its baseline in one regime, with its interval; `anchor` is the id of its row.
    `spread`, `ratio_spread`: the relative distance of times and ratios in takes of its build; `joules` of a product,
    `library_joules` the baseline's; `us`: its time and the interval's ends; `sample` names the sample of the baseline
    that it shares with others, "" if none."""

    kernel: str
    name: str
    anchor: str
    ratio: float
    low: float
    high: float
    spread: float = 0.0
    error: ErrorView | None = None
    clock_mhz: float | None = None
    joules: float | None = None
    library_joules: float | None = None
    us: tuple[float, float, float] = (math.nan,) * 3
    sample: str = ""
    ratio_spread: float = 0.0

    def ties(self, best: Entry) -> bool:
        """Whether its interval overlaps that of `best`, or what `best` is ahead by is no more than takes differ by.
        Ratios to one sample of the baseline share its interval, so times are compared there."""
        beside = self.kernel and best.kernel  # else one is the library
        spread = max(self.spread, best.spread) if beside else max(self.ratio_spread, best.ratio_spread)
        if self.sample and self.sample == best.sample and not math.isnan(self.us[1] + best.us[2]):
            return self.us[1] <= best.us[2] or self.us[0] / best.us[0] - 1 <= spread
        high = self.ratio * (1 + PRECISE) if math.isnan(self.high) else self.high
        return high >= best.low or best.ratio / self.ratio - 1 <= spread


THE_LIBRARY = Entry("", "cuBLAS", "", 1.0, 1.0, 1.0)


def leaders(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The best of the entries that have an interval, however wide, and those that tie with it."""
    ranked = sorted(entries, key=lambda entry: (math.isnan(entry.low), -entry.ratio))
    if not ranked or math.isnan(ranked[0].low):
        return ()
    return tuple(entry for entry in ranked if entry is ranked[0] or entry.ties(ranked[0]))


@dataclass(frozen=True)
class RegimeLine:
    """Competitors in one family and size, by regime: kernels with one baseline, types of operands and of C, and kind of
    bound. `is_bounded` says whether every element's error is bounded on any operands."""

    family: str
    dtype: str
    dtype_out: str
    baseline: str
    is_bounded: bool
    n: int
    entries: Mapping[str, tuple[Entry, ...]]

    @property
    def leaders(self) -> dict[str, tuple[Entry, ...]]:
        return {regime: leaders(entries) for regime, entries in self.entries.items()}

    @property
    def flips(self) -> bool:
        """Whether of the kernels with an interval in every regime that has one none is the best, or ties, in all."""
        known = [own for all_ in self.entries.values() if (own := [each for each in all_ if not math.isnan(each.low)])]
        shared = set.intersection(*({each.kernel for each in entries} for entries in known)) if known else set()
        best = [{each.kernel for each in leaders(each for each in own if each.kernel in shared)} for own in known]
        return bool(shared) and not set.intersection(*best)

    @property
    def missing(self) -> dict[str, list[Entry]]:
        """By regime, of the kernels that lead elsewhere those that were not measured in it."""
        elsewhere = {best[0].kernel: best[0] for best in self.leaders.values() if best}
        return {
            regime: [best for name, best in elsewhere.items() if name not in {each.kernel for each in entries}]
            for regime, entries in self.entries.items()
        }

    @property
    def library(self) -> str:
        """The baseline, with C's type where it is not that of A and B: ``cublas.gemm, C in FP32``."""
        return self.baseline + (f", C in {type_name(self.dtype_out)}" if self.dtype_out != self.dtype else "")

    @property
    def is_alone(self) -> bool:
        """Whether any kernel was measured sustained or in bursts."""
        return any(self.entries[regime] for regime in REGIMES)


def regime_lines(
    measured: Mapping[str, Measurements], regimes: Mapping[str, Regimes], accuracies: Accuracies
) -> list[RegimeLine]:
    """A line for each size and contest of each family's current rows.
    In turn only kernels compete that were measured in the regimes, with the same toolkit; all, where none was."""
    lines = []
    for family, of in measured.items():
        found: dict[tuple[str, str, str, bool, int], dict[str, list[Entry]]] = {}
        kernels = {kernel.id: kernel for kernel in ladders.compared(family)}
        bounded = {name: bounds_elements(kernel) for name, kernel in kernels.items()}
        rows = _rows(of, regimes.get(family))
        for row in rows[rows["ratio"].notna() & rows["kernel"].isin(kernels)].to_dict("records"):
            kernel = kernels[row["kernel"]]
            of_regime = {column: row[column] for column in ("dtype", "dtype_out", "n", "regime")}
            entry = _entry(kernel, row, select(rows, kernel=row["baseline"], **of_regime), accuracies)
            if in_class(kernel) or (entry.error and entry.error.value <= ALLOWED * entry.error.baseline):
                key = (row["dtype"], kernel.compute.dtype_out, row["baseline"], bounded[kernel.id], int(row["n"]))
                found.setdefault(key, {regime: [] for regime in (IN_TURN, *REGIMES)})[row["regime"]].append(entry)
        order = ladders.dtypes(family)
        for key in sorted(found, key=lambda key: (order.index(key[0]), *key[1:3], not key[3], key[4])):
            lines.append(RegimeLine(family, *key, {name: tuple(entries) for name, entries in found[key].items()}))
    return lines


def _rows(measured: Measurements, regimes: Regimes | None) -> pd.DataFrame:
    """The current rows of cubes in all regimes, in turn with the cache state that represents the family."""
    parts = [select(measured.summary, cache=measured.cache), *([regimes.summary] if regimes else [])]
    parts = [cubes(part[is_current(part)]) for part in parts]
    parts = [part.assign(anchor=[row_anchor(row) for row in part.to_dict("records")]) for part in parts]
    # In turn each kernel has a sample of its baseline to itself; else those of a take and layout share one.
    turned = parts[0].assign(regime=IN_TURN, joules=math.nan, spread=0.0, ratio_spread=0.0, sample="", dtype_out="")
    if regimes and len(parts[1]):
        points = parts[1][list(REGIME_POINT)].astype(str).agg(" ".join, axis=1)
        apart = [points.map(regimes.run.get("by_take", {}).get(of, {})).fillna(0.0) for of in ("us", "ratio")]
        takes = points.map(regimes.run.get("take_of", {})).fillna(0).astype(int).astype(str)
        sample = f"{measured.family} " + takes + " " + parts[1]["layout"]
        parts[1] = parts[1].assign(spread=apart[0], ratio_spread=apart[1], sample=sample)
        alone = {(row["kernel"], row["toolkit"], row["n"]) for row in parts[1].to_dict("records")}
        kept = [(row["kernel"], row["toolkit"], row["n"]) in alone for row in turned.to_dict("records")]
        return pd.concat([turned[pd.Series(kept, turned.index, dtype=bool)], parts[1]], ignore_index=True)
    return turned[turned["toolkit"].isin((measured.toolkit, LIBRARY))]


def _entry(kernel: registry.Kernel, row: Mapping[str, Any], library: pd.DataFrame, accuracies: Accuracies) -> Entry:
    """The entry of a row; `library` holds the rows of its baseline in the same regime."""
    # Of another take than the kernel's, the baseline's energy is another card's.
    beside = select(library, sample=row["sample"])
    ends = (row[end] if counted(pd.Series(row)) else math.nan for end in ("ratio_ci_low", "ratio_ci_high"))
    low, high = (float(end) for end in ends)
    least, most = (_number(row[end]) if counted(pd.Series(row)) else None for end in ("ci_low_us", "ci_high_us"))
    errors, joules = (of[name].dropna().to_list() or [None] for of, name in ((library, "err_fro"), (beside, "joules")))
    return Entry(
        kernel=kernel.id,
        name=ladders.heading(kernel),
        anchor=row["anchor"],
        ratio=float(row["ratio"]),
        low=low,
        high=high,
        spread=float(row["spread"]),
        error=accuracies.of_row(row, errors[0], row["anchor"]),
        clock_mhz=_number(row["clock_mhz"]),
        joules=_number(row["joules"]),
        library_joules=joules[0],
        us=(float(row["median_us"]), least or math.nan, most or math.nan),
        sample=row["sample"],
        ratio_spread=float(row["ratio_spread"]),
    )


def _number(cell: Any) -> float | None:
    return None if cell is None or pd.isna(cell) else float(cell)


def recommendations(lines: Sequence[RegimeLine]) -> list[View]:
    """The kernel to use in each contest: sustained, or in turn where nothing was sustained; the library competes.
    A `kernel`, empty for the library, is named for as many neighbouring sizes as it is the best at, or ties. `lines`
    are those of its sizes, `entries` the kernel's, or the best one's beside the library; `ties` are with sizes.
    `last` is the entry of the largest size at which the library does not tie, of the largest if it ties at each;
    `library` is the fastest at the largest beside which the library's energy was counted, if any."""
    found = []
    for _, group in groupby(lines, key=lambda line: (line.family, line.library, line.dtype, line.is_bounded)):
        contest = list(group)
        regime = SUSTAINED if any(line.entries[SUSTAINED] for line in contest) else IN_TURN
        sizes: list[tuple[RegimeLine, dict[str, Entry]]] = []
        for line in contest:
            entries = line.entries[regime]
            best = {entry.kernel: entry for entry in leaders([*entries, *[THE_LIBRARY][: len(entries)]])}
            if sizes and not set(best).intersection(*(earlier for _, earlier in sizes)):
                found.append(_recommendation(regime, sizes))
                sizes = []
            if best:
                sizes.append((line, best))
        if sizes:
            found.append(_recommendation(regime, sizes))
    return found


def contests(lines: Iterable[RegimeLine]) -> list[RegimeLine]:
    """The lines of all families together, so that their kernels compete; the family is ''."""
    merged: dict[tuple[str, str, str, bool, int], dict[str, tuple[Entry, ...]]] = {}
    for line in lines:
        entries = merged.setdefault((line.dtype, line.dtype_out, line.baseline, not line.is_bounded, line.n), {})
        for regime, own in line.entries.items():
            entries[regime] = (*entries.get(regime, ()), *own)
    types = list(DTYPES)
    keys = sorted(merged, key=lambda key: (types.index(key[0]), *key[1:]))
    return [RegimeLine("", *key[:3], not key[3], key[4], merged[key]) for key in keys]


def use_cases(lines: Sequence[RegimeLine], measured: Mapping[str, Measurements]) -> list[View]:
    """The best of all families' kernels that compete, by kind of floating-point product, its `name`; `what` to use.
    `slower`: of what is used first, its row in turn at the largest smaller size at which the library is faster."""
    uses = recommendations(found := contests(line for line in lines if line.dtype not in INTEGERS))
    names = [_use(each.lines[0], found) for each in uses]
    slower = [_slower(use, measured) if use.kernel and names.index(names[i]) == i else [] for i, use in enumerate(uses)]
    return [View(name=name, what=what, slower=row) for name, what, row in zip(names, uses, slower, strict=True)]


def _slower(use: View, measured: Mapping[str, Measurements]) -> list[View]:
    of = measured[use.kernel.partition(".")[0]]
    rows = cubes(select(of.summary, kernel=use.kernel, toolkit=of.toolkit, cache=of.cache))
    rows = rows[is_current(rows) & (rows["n"] < use.lines[0].n) & (rows["ratio_ci_high"] < 1)].sort_values("n")
    return [View(anchor=row_anchor(row), n=row["n"], ratio=row["ratio"]) for row in rows[-1:].to_dict("records")]


_SUMS = {"gemm_fast": "sums in the tensor core", "gemm_block_scaled": "block scales", "gemm_half_sums": "fp16 sums"}
"""Words that set a library's call apart from an ordinary product of its types."""


def type_name(dtype: str) -> str:
    """The type as text has it: ``FP8 E4M3``, ``bf16``; other words stay as they are."""
    return dtype.upper().replace("_", " ") if dtype in DTYPES and dtype != "bf16" else dtype


def _use(line: RegimeLine, lines: Iterable[RegimeLine]) -> str:
    """The name of a contest: its type, how it adds, and its bound and C's type where there are two kinds."""
    others = [each for each in lines if each.dtype == line.dtype]
    bound = ("certified" if line.is_bounded else "fast") if not all(each.is_bounded for each in others) else ""
    output = f"C in {type_name(line.dtype_out)}" if len({each.dtype_out for each in others}) > 1 else ""
    return ", ".join(filter(None, [type_name(line.dtype), _SUMS.get(line.baseline.rpartition(".")[2]), output, bound]))


def _recommendation(regime: str, sizes: Sequence[tuple[RegimeLine, Mapping[str, Entry]]]) -> View:
    lines, leading = zip(*sizes, strict=True)
    shared = sorted(set.intersection(*map(set, leading)))
    kernel = max(shared, key=lambda name: sum(best[name].ratio for best in leading))
    tied: dict[str, list[tuple[Entry, int]]] = {}
    for line, best in sizes:
        for name in (name for name in best if name != kernel):
            tied.setdefault(name, []).append((best[name], line.n))
    ties = [(pairs[-1][0], tuple(n for _, n in pairs)) for pairs in tied.values()]
    # The library's ratio is 1, so the fastest kernel beside it is shown.
    fastest = [max(line.entries[regime], key=lambda entry: entry.ratio) for line in lines]
    entries = [best[kernel] for best in leading] if kernel else fastest
    ahead = [entry for entry, best in zip(entries, leading, strict=True) if "" not in best]
    library = max(lines[-1].entries[regime], key=lambda entry: (entry.library_joules is not None, entry.ratio))
    shown = {"last": (ahead or entries)[-1], "library": library}
    return View(regime=regime, kernel=kernel, lines=lines, entries=tuple(entries), ties=ties, **shown)

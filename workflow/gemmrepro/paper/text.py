"""Numbers, listings, rows and ids as the report prints them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import yaml
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.core.paths import ROOT
from gemmrepro.core.text import format_number
from gemmrepro.experiments.results import Results
from gemmrepro.measure.regimes import BURST
from gemmrepro.measure.rows import BEYOND, Measurements, counted, counter_key, row_key

NONE = "\N{EN DASH}"
"""Marks an empty cell."""

BY = "\N{MULTIPLICATION SIGN}"

MARKS = {
    "reproduced": "✓",
    "partly": "◐",
    "undecided": "≈",
    "not reproduced": "✗",
    "not comparable here": "∥",
    "build fact": "⚙",
    "consistent": "=",
    "contradictory": "≠",
    "covered": "⊂",
    "not testable here": NONE,
    "not measured": "○",
    "passed": "✓",
    "failed": "✗",
    "stale": "○",
    "not run": "○",
}
"""A symbol for each verdict, so that colour is not its only mark."""

BINS = 32

_COLOURED = "k|kc|kd|kn|kr|kt|ow|nb|nc|m|mb|mf|mh|mi|mo|c|c1|cm|ch|s|s1|s2|sc|cp|cpf|gi|gd|gu"
"""The classes of code that paper.css gives a colour, without their prefix."""

_PLAIN = re.compile(rf'<span class="t-(?!(?:{_COLOURED})")[a-z0-9]+">([^<]*)</span>')


class View(SimpleNamespace):
    """A template's view of something, by name; a name that is missing is an error there."""


def anchor(text: str) -> str:
    """An id for `text` that needs no escaping in a fragment."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def number(value: Any, digits: int = 3) -> str:
    """A number for reading; an en dash where there is none."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)) or value is pd.NA:
        return NONE
    return format_number(float(value), digits)


def time_text(microseconds: Any) -> str:
    """A time in the unit that reads best."""
    if microseconds is None or pd.isna(microseconds):
        return NONE
    value = float(microseconds)
    if value >= 1e4:
        return f"{number(value / 1e3, 4)} ms"
    return f"{number(value, 4)} µs"


def interval(value: Any, low: Any, high: Any) -> str:
    """``[0.32, 0.34]``, rounded outwards to the decimals of `value` as printed, so that it holds the printed one too.
    Nothing where there is no interval."""
    if any(each is None or pd.isna(each) for each in (value, low, high)):
        return ""
    printed = Decimal(number(value).replace(",", ""))
    least, most = Decimal(str(float(low))), Decimal(str(float(high)))
    return f"[{least.quantize(printed, ROUND_FLOOR):,f}, {most.quantize(printed, ROUND_CEILING):,f}]"


def size_text(row: Mapping[str, Any]) -> str:
    """4096 for a cube, the length for a vector, else all three."""
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    if m == n == k or (m == 1 and k == 1):
        return f"{n}" if n < 100_000 else f"{n:,}"
    return f"{m}{BY}{n}{BY}{k}"


@cache
def highlighted(code: str, language: str = "cuda") -> Markup:
    """Source code as HTML; what has a colour is in a span whose class begins with ``t-``."""
    formatter = HtmlFormatter(nowrap=True, classprefix="t-")
    spans = highlight(code, get_lexer_by_name(language), formatter).rstrip("\n")
    return Markup(_PLAIN.sub(r"\1", spans))


def code_spans(text: str) -> Markup:
    """Text as HTML; what is between backticks becomes code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


_UNTOUCHED = re.compile(r"<(svg|a|abbr|code|pre|h[1-6]|cite|caption|thead|script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
"""Elements in which no term is explained, and tags."""


@cache
def glossary() -> Sequence[Mapping[str, Any]]:
    """The terms of the report in alphabetical order: `term`, `also` (other words for it), and what it `means`."""
    entries = yaml.safe_load((ROOT / "reports" / "template" / "glossary.yaml").read_text())
    return sorted(entries, key=lambda entry: entry["term"].lower())


def terms(page: str) -> Markup:
    """Part of a page with a tooltip at the first use of each term of the glossary."""
    meanings = {word: entry["means"] for entry in glossary() for word in (entry["term"], *entry.get("also", ()))}
    longest = sorted(meanings, key=len, reverse=True)
    word = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, longest))})(?![\w-])")
    told: set[str] = set()

    def explained(match: re.Match[str]) -> str:
        means = meanings[match[1]]
        if means in told:
            return match[0]
        told.add(means)
        return f'<abbr title="{escape(means)}">{match[0]}</abbr>'

    parts, end = [], 0
    for skipped in _UNTOUCHED.finditer(page):
        parts += [word.sub(explained, page[end : skipped.start()]), skipped[0]]
        end = skipped.end()
    return Markup("".join([*parts, word.sub(explained, page[end:])]))


def histogram(times: np.ndarray, median: float | None = None) -> Markup:
    """A small histogram of samples (µs) as SVG, the slowest 1% in its last bar; `median` is marked."""
    times = np.sort(times[np.isfinite(times)])
    if not len(times):
        return Markup("")
    low, high = float(times[0]), float(np.quantile(times, 0.99))
    if high <= low:
        low, high = low * 0.999, low * 1.001 or 1.0
    counts, _ = np.histogram(np.clip(times, low, high), bins=BINS, range=(low, high))
    heights = np.ceil(18 * counts / counts.max()).astype(int)
    path = "M0 20" + "".join(f"V{20 - height}h3" for height in heights) + "V20z"
    mark = ""
    if median is not None and np.isfinite(median):
        x = min(max((median - low) / (high - low), 0), 1) * 3 * BINS
        mark = f'<path class="mid" d="M{x:.0f} 0V20"/>'
    label = f"{len(times)} samples from {time_text(times[0])} to {time_text(times[-1])}"
    return Markup(
        f'<svg class="spark" viewBox="0 0 {3 * BINS} 20" role="img" aria-label="{label}"><path d="{path}"/>{mark}</svg>'
    )


def experiment_anchor(family: str, name: str) -> str:
    """The id of an experiment's section."""
    return f"experiment-{anchor(f'{family}.{name}')}"


def experiment_row_anchor(family: str, name: str, place: object) -> str:
    """The id of an experiment's row, which is the `place`-th of its file, from 0."""
    return f"row-{anchor(f'{family}.{name}')}-{place}"


def experiment_command(family: str, results: Results) -> str:
    live = " --config measure=live" if results.experiment.device == "gpu" else ""
    return f"{SNAKEMAKE}{live} --force results/experiments/{family}/{results.experiment.name}.csv"


SAMPLE_KEYS = ("kernel", "toolkit", "dtype", "m", "n", "k", "cache")
"""Columns that identify a row's samples."""

Samples = Mapping[tuple[str, ...], np.ndarray]
"""Samples in µs by SAMPLE_KEYS."""


def row_anchor(row: Mapping[str, Any]) -> str:
    """The id of a summary row: of a baseline, which several families time, with the family's name."""
    family = "" if str(row["kernel"]).startswith(f"{row['family']}.") else f"{row['family']}/"
    return anchor(f"row {family}{row_key(row)}")


def counter_anchor(row: Mapping[str, Any]) -> str:
    """The id of a row of counters.csv."""
    return anchor(f"row counters:{counter_key(row)}")


def row_view(
    row: Mapping[str, Any], times: np.ndarray | None = None, ceilings: Mapping[str, float] | None = None
) -> View:
    """A summary row as text, with its samples, `times` in µs; `anchor` is the id of its row.
    Intervals are empty where they come from too few samples, or end above the `ceilings` of `gpus.highest`. `rate` is
    in TFLOP/s, or in GB/s of kernels without arithmetic; `paired` that of the baseline timed in alternation with it."""
    low, high = row["ci_low_us"], row["ci_high_us"]
    known = pd.notna(row["tflops"]) and pd.notna(low) and low and pd.notna(high)
    # A longer time is the lower end of a throughput.
    tflops_low, tflops_high = (row["tflops"] * row["median_us"] / end if known else None for end in (high, low))
    possible = tflops_high is None or tflops_high <= BEYOND * (ceilings or {}).get(row["dtype"], math.inf)
    shown = counted(row) and possible
    moves = pd.isna(row["tflops"])
    rate = row["gbps"] if moves else row["tflops"]
    counts = {name: NONE if pd.isna(row[name]) else str(int(row[name])) for name in ("rounds", "samples")}
    return View(
        **{name: row[name] for name in ("kernel", "dtype", "cache", "toolkit")},
        **counts,
        anchor=row_anchor(row),
        size=size_text(row),
        time=time_text(row["median_us"]),
        time_interval=f"[{time_text(row['ci_low_us'])}, {time_text(row['ci_high_us'])}]" if shown else "",
        rate=number(rate),
        rate_unit="GB/s" if moves else "TFLOP/s",
        tflops=number(row["tflops"]),
        tflops_interval=interval(row["tflops"], tflops_low, tflops_high) if shown else "",
        gbps=number(row["gbps"]),
        ratio=number(row["ratio"]),
        ratio_interval=interval(row["ratio"], row["ratio_ci_low"], row["ratio_ci_high"]) if counted(row) else "",
        paired=float(rate / row["ratio"]) if pd.notna(rate) and pd.notna(row["ratio"]) and row["ratio"] else None,
        error=number(row["err_scaled_max"]),
        norm_error=number(row["err_fro"], 4),
        clock=number(row["clock_mhz"], 4),
        power=number(row["power_w"]),
        temperature=number(row["temp_c"]),
        throttle=row["throttle"] or "none",
        stale=row["status"] == "stale",
        histogram=histogram(times, row["median_us"]) if times is not None else Markup(""),
    )


def regime_row_view(row: Mapping[str, Any], ceilings: Mapping[str, float] | None = None) -> View:
    """A row of the regimes as text: what it has in common with a sweep's, joules of a launch, and how blocks began."""
    blocks, ready = int(row["rounds"]), int(row["ready"])
    began = "rested" if row["regime"] == BURST else "steady"
    return View(
        row=row_view(row, ceilings=ceilings),
        regime=row["regime"],
        joules=number(row["joules"]),
        blocks=f"{blocks} blocks, {'all' if ready == blocks else ready} {began}",
    )


def samples_by_row(measured: Measurements) -> Samples:
    """Every sample of a family, in µs."""
    samples = measured.samples()
    return {
        tuple(str(part) for part in key): group["time_us"].to_numpy(dtype=float)
        for key, group in samples.groupby(list(SAMPLE_KEYS), observed=True)
    }


def times_of(samples: Samples, row: Mapping[str, Any]) -> np.ndarray | None:
    """The samples behind a summary row in µs, or None if they were not kept."""
    return samples.get(tuple(str(row[column]) for column in SAMPLE_KEYS))

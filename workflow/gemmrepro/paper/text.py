"""Numbers, intervals and listings as the report prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from gemmrepro.core.text import format_number

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

TRANSFER_WORDS = {
    "as is": "carries over to any GPU unchanged",
    "ratio": "carries over as a ratio",
    "order": "carries over as an order",
    "share": "carries over as a share of the chip",
    "model": "carries over by the rates of the chips",
    "none": "does not carry over",
}

BINS = 32

_COLOURED = "k|kc|kd|kn|kr|kt|ow|nb|nc|m|mb|mf|mh|mi|mo|c|c1|cm|ch|s|s1|s2|sc|cp|cpf"
"""The classes of code that paper.css gives a colour, without their prefix."""

_PLAIN = re.compile(rf'<span class="t-(?!(?:{_COLOURED})")[a-z0-9]+">([^<]*)</span>')


@dataclass(frozen=True)
class LinkView:
    """A link to an element of the report."""

    name: str
    anchor: str


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


def interval(low: Any, high: Any, digits: int = 3) -> str:
    """``[0.32, 0.34]``, or nothing where there is no interval."""
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return ""
    return f"[{number(low, digits)}, {number(high, digits)}]"


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

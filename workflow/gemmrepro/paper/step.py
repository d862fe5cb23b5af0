"""A kernel beside the one before it: what was expected of it, its gain, the counters that explain it, its diff."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.names import METRICS, SIZE
from gemmrepro.core.text import in_words
from gemmrepro.measure.rows import Measurements, cubes, is_current, select
from gemmrepro.paper.text import BY, NONE, View, anchor, counter_anchor, number, row_anchor
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import level_name

CONTEXT = 3
"""Unchanged lines shown around each change."""

MOST_LINES = 1200
"""The longest comparison that is shown; beyond it the two have little in common."""

_LABEL = re.compile(r"^[A-Z][a-z]+(?: [a-z]+)?:(?:\s|$)")
_EXPECTED = re.compile(r"^(?:Expected|Predicted):\s*(.*)$")
_QUOTES = '"""'


def _line(name: str, meaning: str, here: View | None, before: View | None) -> View:
    """One quantity of a kernel (`here`) and of the one before it; `name` is the profiler's, empty for a speed.

    `change` is the factor between the two, a dash unless both are current; `formula` the quotient behind a factor.
    """
    change, formula = NONE, ""
    if here and before and not here.stale and not before.stale and before.value:
        factor = number(here.value / before.value)
        same = float(factor.replace(",", "")) == 1
        change = "the same" if same else f"{BY} {factor}"
        formula = "" if same else f"{here.text} \N{DIVISION SIGN} {before.text}"
    return View(name=name, meaning=meaning, here=here, before=before, change=change, formula=formula)


def evidence_view(kernel: registry.Kernel, measured: Measurements) -> View | None:
    """A kernel's speed and the counters that explain its gain, beside the kernel before; None if it names no counter.

    The size is the article's if both kernels were counted there, else the largest at which both were.
    """
    if not kernel.story.evidence:
        return None
    before = ladders.before(kernel)
    sides = (kernel, before)
    toolkit = measured.toolkit
    counters = select(measured.counters, toolkit=toolkit)
    counters = counters[counters["metric"].isin(kernel.story.evidence) & counters["value"].notna()]
    size = _size(counters, kernel, before)
    rows = select(cubes(measured.summary), toolkit=toolkit, n=size, cache=measured.cache)

    speed, earlier_speed = (_speed(rows, side, "tflops", " TFLOP/s") for side in sides)
    paired = kernel.timing.baseline and (
        before is None or (before.problem, before.timing.baseline) == (kernel.problem, kernel.timing.baseline)
    )
    lines = [_line("", f"speed, {measured.cache}", speed, None if paired else earlier_speed)]
    if paired:
        # Both were timed in alternation with the same baseline, so a clock that changes cancels: it is their gain.
        meaning = "speed relative to the baseline, timed in alternation"
        lines.append(_line("", meaning, *(_speed(rows, side, "ratio") for side in sides)))
    scope = ", over all launches of a run" if kernel.run.steps else ""
    for metric in kernel.story.evidence:
        counted = select(cubes(counters), metric=metric, n=size)
        lines.append(_line(metric, METRICS.get(metric, "") + scope, *(_counter(counted, side) for side in sides)))
    return View(
        before=_link(before) if before else None,
        size=size,
        toolkit=toolkit,
        lines=lines,
        gain=next((line for line in lines if before and not line.name and line.before), None),
        counter=next((line for line in lines if line.name and line.here), None),
    )


def _link(kernel: registry.Kernel) -> View:
    return View(name=level_name(kernel), anchor=anchor(kernel.id))


def _size(counters: pd.DataFrame, kernel: registry.Kernel, before: registry.Kernel | None) -> int:
    counted = set(select(counters, kernel=kernel.id)["n"])
    common = counted & set(select(counters, kernel=before.id)["n"]) if before else counted
    sizes = sorted(int(n) for n in (common or counted))
    return SIZE if SIZE in sizes or not sizes else sizes[-1]


def _speed(rows: pd.DataFrame, kernel: registry.Kernel | None, column: str, unit: str = "") -> View | None:
    own = select(rows, kernel=kernel.id, dtype=kernel.compute.dtype_in) if kernel else rows[:0]
    return _cell(own, column, lambda row: number(row[column]) + unit)


def _counter(rows: pd.DataFrame, kernel: registry.Kernel | None) -> View | None:
    own = select(rows, kernel=kernel.id) if kernel else rows[:0]
    return _cell(own, "value", lambda row: in_words(float(row["value"]), row["unit"]))


def _cell(rows: pd.DataFrame, column: str, text: Callable[[pd.Series], str]) -> View | None:
    """The number in the last row that is current, else in the last; None without one."""
    current = rows[is_current(rows)]
    rows = current if len(current) else rows
    if rows.empty or pd.isna(rows.iloc[-1][column]):
        return None
    row = rows.iloc[-1]
    place = counter_anchor(row) if column == "value" else row_anchor(row)
    return View(text=text(row), value=float(row[column]), stale=row["status"] == "stale", anchor=place)


class DiffLine(NamedTuple):
    """A pair of lines: `kind` is ``same``, ``changed`` or ``gap``; None where a side has no line."""

    kind: str
    left: str | None = None
    right: str | None = None


def diff_view(kernel: registry.Kernel) -> View | None:
    """The comparison with the kernel before; None without one, and where both are made from one source."""
    before = ladders.before(kernel)
    if before is None or before.source_path == kernel.source_path:
        return None
    if not (before.source_path.is_file() and kernel.source_path.is_file()):
        return None
    sources = (each.source_path.read_text().splitlines() for each in (before, kernel))
    lines = tuple(side_by_side(*sources))
    if len(lines) > MOST_LINES:
        return None
    changed = [line for line in lines if line.kind == "changed"]
    return View(
        before=_link(before),
        lines=lines,
        added=sum(line.right is not None for line in changed),
        removed=sum(line.left is not None for line in changed),
    )


def side_by_side(left: Sequence[str], right: Sequence[str]) -> Iterator[DiffLine]:
    """The changed lines of two texts with CONTEXT around them; a ``gap`` stands for what is left out."""
    end = 0
    for group in SequenceMatcher(None, left, right, autojunk=False).get_grouped_opcodes(CONTEXT):
        if group[0][1] > end:
            yield DiffLine("gap")
        for tag, left_start, left_end, right_start, right_end in group:
            kind = "same" if tag == "equal" else "changed"
            for pair in zip_longest(left[left_start:left_end], right[right_start:right_end]):
                yield DiffLine(kind, *pair)
        end = group[-1][2]
    if 0 < end < len(left):
        yield DiffLine("gap")


def prediction(source: str) -> str:
    """The paragraph ``Expected:`` at the head of a CUDA or Python source, on one line; empty without one.

    The paragraph ends with the next label, such as ``Takes:``, with an empty line, or with the comment.
    """
    paragraph: list[str] = []
    begun = False
    for text in _head(source):
        if start := _EXPECTED.match(text):
            begun = True
            paragraph.append(start[1])
        elif begun and (not text or _LABEL.match(text)):
            break
        elif begun:
            paragraph.append(text)
    return " ".join(filter(None, paragraph))


def _head(source: str) -> Iterator[str]:
    """The lines of the comment, or of the docstring, that a source begins with."""
    if source.startswith(_QUOTES):
        yield from map(str.strip, source.split(_QUOTES)[1].splitlines())
        return
    for line in source.splitlines():
        if not line.startswith("//"):
            return
        yield line.removeprefix("//").strip()

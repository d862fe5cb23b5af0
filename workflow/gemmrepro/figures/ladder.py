"""The figure of a family's rungs: speed over the baseline as published, as measured, and as tuned here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from gemmrepro import registry
from gemmrepro.core.names import SIZE
from gemmrepro.core.text import as_published, format_number, listed
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs, interval
from gemmrepro.figures.kit import Look, dots, marks, pair
from gemmrepro.figures.style import (
    INK,
    LAST,
    MARKERS,
    SERIES,
    TUNED,
    Drawing,
    Page,
    finding,
    origin,
    stale_note,
)
from gemmrepro.judge.ceilings import measured_ceiling
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, cubes, row_key, select
from gemmrepro.recordings.limits import is_scheme
from gemmrepro.registry import Kernel, ladders

SIZES = (4096, 8192, 16384)
"""The sizes of the panel of what is near the baseline."""

FAR = 3.0
"""With a rung that is faster than this the axis is logarithmic."""

COLUMNS = ["label", "kernel", "kind", "published", "ratio", "low", "high", "limit", "error", "tflops", "stale", "key"]


def made_here(kernels: Sequence[Kernel], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The measured rows of kernels, in the order of both: size, throughput, and the ratio with its interval."""
    found = []
    for kernel in kernels:
        for _, row in rows[rows["kernel"] == kernel.id].iterrows():
            low, high = interval(row, "ratio_ci_low", "ratio_ci_high")
            cells = {name: row[name] for name in ("n", "toolkit", "tflops", "ratio")}
            cells |= {"low": low, "high": high, "stale": row["status"] == "stale", "key": row_key(row)}
            found.append({"kernel": kernel.id, "level": ladders.level_name(kernel), **cells, "error": row["err_fro"]})
    return found


def published_ratios(family: str) -> dict[str, Mapping[str, Any]]:
    """The ratios that a family's article prints of its rungs, by system: at SIZE, or else at its largest size."""
    article = registry.family(family).article
    systems = {kernel.story.published_system for kernel in ladders.compared(family)}
    rows = [
        row
        for row in published_rows()
        if row["article"] == article and row["metric"] == "ratio_to_cublas" and row["system"] in systems
    ]
    sizes = {row["n"] for row in rows}
    wanted = SIZE if SIZE in sizes or not sizes else max(sizes)
    return {row["system"]: row for row in rows if row["n"] == wanted}


def rungs(measured: Measurements, roof: float = math.nan) -> tuple[int, pd.DataFrame]:
    """A size, and a row for each rung and each of its tuned twins: `kind` is "here" or "tuned".

    The size is that of the published ratios, else SIZE or the largest that was measured. `limit` is `roof`, in TFLOP/s,
    over the same baseline.
    """
    family = measured.family
    there, main = published_ratios(family), ladders.steps(family)
    timed = cubes(select(measured.summary, cache=measured.cache, toolkit=measured.toolkit or ""))
    timed = timed[timed["ratio"].notna()]
    sizes = {int(n) for n in timed["n"]}
    wanted = next((int(row["n"]) for row in there.values()), SIZE)
    size = wanted if wanted in sizes or not sizes else max(sizes)
    rows, found = select(timed, n=size), []
    for rung in [*ladders.apart(family), *main]:
        printed = there.get(rung.story.published_system or "", {}).get("value", math.nan)
        about = {"label": ladders.label(rung), "kernel": rung.id, "kind": "here", "published": printed, "stale": False}
        same_type = [twin for twin in ladders.twins(rung) if twin.compute.dtype_in == rung.compute.dtype_in]
        for kernel in [rung, *same_type]:
            kind = "here" if kernel is rung else "tuned"
            for one in made_here([kernel], rows)[-1:] or ([about] if kernel is rung else []):
                limit = roof * one["ratio"] / one["tflops"] if "tflops" in one else math.nan
                error = one.get("error") if is_scheme(rung) else math.nan
                found.append({**about, **one, "kind": kind, "limit": limit, "error": error})
                if kind == "tuned":
                    found[-1]["published"] = math.nan
    return size, pd.DataFrame(found, columns=COLUMNS)


def ratio(inputs: Inputs) -> Drawing:
    """The rungs of the family whose figures are drawn."""
    return draw(inputs, inputs.family)


def draw(
    inputs: Inputs,
    family: str,
    *,
    ceiling: str = "",
    near: float = math.inf,
    says: Callable[[pd.DataFrame, str], str] | None = None,
) -> Drawing:
    """The rungs of a family.

    Args:
        ceiling: the micro-kernel of nothing but the rungs' multiplications.
        near: rungs that reach this ratio somewhere have a second panel, which begins there, with three sizes.
        says: the title, from the current rungs by label and the GPU; by default `_says`.
    """
    measured = inputs.measured[family]
    roof = measured_ceiling(inputs.ceilings, ceiling) if inputs.ceilings is not None and ceiling else None
    size, shown = rungs(measured, roof.value if roof else math.nan)
    own = shown[(shown["kind"] == "here") & shown["ratio"].notna()].set_index("label")
    current, chips = (
        own[~own["stale"].astype(bool)],
        sorted({row["hardware"] for row in published_ratios(family).values()}),
    )
    printed_size = next((int(row["n"]) for row in published_ratios(family).values()), size)
    subject = f"The rungs of {registry.family(family).title} over their baseline at {size}"
    title = subject + (": not measured" if own.empty else "")
    if len(current):
        title = (says or _says)(current, inputs.gpu) or subject
    sentences = (
        f"Speed over the library's in the same type, timed in turn, {ladders.dtypes(family)[0]}, "
        f"M = N = K = {size}, {measured.cache} cache, with 95% intervals"
        f"{f', built by {measured.toolkit}' if measured.toolkit else ''}.",
        f"Hollow grey: as published for {listed(chips)}" + (f", at {printed_size}." if printed_size != size else ".")
        if chips
        else "",
        "Triangles: the same source, with constants tuned here." if (shown["kind"] == "tuned").any() else "",
        "Strokes: such multiplications alone." if shown["limit"].notna().any() else "",
        "Error: of the timed product, relative in the Frobenius norm." if shown["error"].notna().any() else "",
        origin(measured),
    )
    caption = " ".join(filter(None, sentences)) + stale_note(bool(shown["stale"].astype(bool).any()))
    table = [
        {"rung": f"{row.label}{', tuned' if row.kind == 'tuned' else ''}", "published": row.published}
        | {"measured": row.ratio, "95% interval": [row.low, row.high] if pd.notna(row.low) else None}
        | {"all multiplications": row.limit, "error": row.error, "stale": bool(row.stale)}
        for row in shown.itertuples()
    ]
    kept = [name for name in table[0] if any(pd.notna(line[name]) is not False for line in table)] if table else []
    table = [{name: None if _is_nan(line[name]) else line[name] for name in kept} for line in table]
    keys, stale = list(shown["key"].dropna()), bool(shown["stale"].astype(bool).any())
    zoom = _near(measured, near)
    paint = lambda page: _paint(inputs, shown, zoom, near, page)  # noqa: E731
    return Drawing(title, caption, _alt(current), table, paint, [*keys, *zoom["key"].dropna()], stale)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _near(measured: Measurements, near: float) -> pd.DataFrame:
    """The rungs that reach `near` at any of SIZES, there."""
    rows = cubes(select(measured.summary, cache=measured.cache, toolkit=measured.toolkit or ""))
    rows = rows[rows["ratio"].notna() & rows["n"].isin(SIZES)].sort_values("n")
    steps = ladders.steps(measured.family)
    labels = {kernel.id: ladders.label(kernel) for kernel in steps}
    found = pd.DataFrame(made_here(steps, rows), columns=["kernel", "n", "ratio", "low", "high", "stale", "key"])
    best = found.groupby("kernel")["ratio"].transform("max")
    return found.assign(name=found["kernel"].map(labels))[best >= near]


def _paint(inputs: Inputs, shown: pd.DataFrame, zoom: pd.DataFrame, near: float, page: Page) -> Figure:
    lines, texts = [], []
    for label, group in shown.groupby("label", sort=False):
        first = group.iloc[0]
        text = {"panel": "all", "name": label, "print": "", "error": "", "here": ""}
        if pd.notna(first["published"]):
            lines.append({"name": label, "kind": "print", "x": first["published"]})
            text["print"] = as_published(first["published"])
        if pd.notna(first["limit"]):
            lines.append({"name": label, "kind": "limit", "x": first["limit"]})
        kinds = {"here": "here" if pd.notna(first["published"]) or not shown["published"].notna().any() else "past"}
        for row in group[group["ratio"].notna()].to_dict("records"):
            ends = {"low": row["low"], "high": row["high"]} if row["kind"] == "here" else {}
            lines.append(
                {
                    "name": label,
                    "kind": kinds.get(row["kind"], "tuned"),
                    "x": row["ratio"],
                    "stale": row["stale"],
                    **ends,
                }
            )
        if pd.notna(first["ratio"]):
            text["here"] = format_number(first["ratio"]) + (" stale" if first["stale"] else "")
            text["error"] = f"{first['error']:.1e}" if pd.notna(first["error"]) else ""
        texts.append(text)
    looks = pair("", inputs.gpu) | {
        "past": Look("past the article", LAST),
        "tuned": Look("tuned here", TUNED, "^", size=6),
        "limit": Look("nothing but multiplications", INK, "|", size=10),
    }
    frame = marks([{"panel": "all", **line} for line in lines])
    label = "speed relative to the library"
    panels = {"all": Panel("", label, line=1.0, log=bool((shown["ratio"] > FAR).any()))}
    if len(zoom):
        panels["near"] = Panel(f"those that reach {near:g}, by size", label, line=1.0, low=near)
        looks |= {str(n): Look(str(n), SERIES[i + 1], MARKERS[i + 1], size=5) for i, n in enumerate(SIZES)}
        kept = zoom[zoom["ratio"] >= near]
        near_marks = kept.assign(panel="near", kind=kept["n"].astype(int).astype(str), x=kept["ratio"])
        near_marks["shift"] = 0.22 * (kept["n"].map(SIZES.index) - 1)
        near_marks["low"] = kept["low"].clip(lower=near)
        frame = pd.concat([frame, marks(near_marks.drop(columns=["key"]).to_dict("records"))], ignore_index=True)
    columns = pd.DataFrame(texts, columns=["panel", "name", "print", "error", "here"])
    used = [name for name in columns if name in ("panel", "name", "here") or columns[name].any()]
    return dots(frame, looks, panels, page, texts=columns[used], joined=not len(zoom))


def _says(current: pd.DataFrame, gpu: str) -> str:
    """The last published rung in print and here; of a ladder without any, its two ends."""
    both, names = current[current["published"].notna()], list(current.index)
    if len(both):
        there, here = both["published"].iloc[-1], both["ratio"].iloc[-1]
        return f"{both.index[-1]}: {as_published(there)} of the library in print, {format_number(here)} on {gpu}"
    first, last = current["ratio"].iloc[0], current["ratio"].iloc[-1]
    if current["error"].notna().any() or last < 1.1 * first:
        return ""  # schemes differ in their error, and what is faster may be no better
    return f"From {format_number(first)} of the library ({names[0]}) to {format_number(last)} ({names[-1]})"


def _alt(current: pd.DataFrame) -> str:
    if current.empty:
        return "Dots of speed relative to the library by rung, without data: nothing was measured."
    both, ends = current[current["published"].notna()], current["ratio"].iloc[[0, -1]]
    first, last = (f"{name} runs at {format_number(value)} of the library" for name, value in ends.items())
    return finding(
        f"Of {len(current)} rungs the first, {first}, and the last, {last}.",
        f"Of the {len(both)} with a published ratio {(both['ratio'] < both['published']).sum()} fall short of it here."
        if len(both)
        else "",
    )

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
from gemmrepro.figures.style import INK, TUNED, Drawing, Page, finding, origin, stale_note
from gemmrepro.judge.carrying import measured_ceiling
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import Measurements, cubes, row_key, select
from gemmrepro.paper.regimes import type_name
from gemmrepro.recordings.limits import is_scheme
from gemmrepro.registry import Kernel, ladders

FAR = 3.0
"""With a rung that is faster than this the axis is logarithmic."""

COLUMNS = ["label", "kernel", "n", "kind", "published", "ratio", "low", "high", "limit", "error", "stale", "keys"]


def made_here(kernels: Sequence[Kernel], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The measured rows of kernels, in the order of both: size, throughput, and the ratio with its interval."""
    found = []
    for kernel in kernels:
        for _, row in rows[rows["kernel"] == kernel.id].iterrows():
            low, high = interval(row, "ratio_ci_low", "ratio_ci_high")
            cells = {name: row[name] for name in ("n", "toolkit", "tflops", "ratio")}
            cells |= {"low": low, "high": high, "stale": row["status"] == "stale", "keys": (row_key(row),)}
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
    The size is that of the published ratios, else SIZE or the largest; `limit`: `roof` (TFLOP/s) over the library."""
    family = measured.family
    there, main = published_ratios(family), ladders.steps(family)
    timed = cubes(select(measured.summary, cache=measured.cache, toolkit=measured.toolkit or ""))
    timed = timed[timed["ratio"].notna()]
    sizes = {int(n) for n in timed["n"]}
    wanted = next((int(row["n"]) for row in there.values()), SIZE)
    size = wanted if wanted in sizes or not sizes else max(sizes)
    rows, found = select(timed, n=size), []
    libraries = select(cubes(select(measured.summary, cache=measured.cache)), n=size)
    for rung in [*ladders.apart(family), *main]:
        printed = there.get(rung.story.published_system or "", {}).get("value", math.nan)
        about = {"label": ladders.label(rung), "kernel": rung.id, "published": printed, "stale": False, "keys": ()}
        same_type = [twin for twin in ladders.twins(rung) if twin.compute.dtype_in == rung.compute.dtype_in]
        for kernel in [rung, *same_type]:
            is_rung = kernel is rung
            for row in made_here([kernel], rows)[-1:] or ([{}] if is_rung else []):
                # Not what the library does beside this kernel, whose heat and power slow it: one limit, one value.
                by_itself = select(libraries, kernel=kernel.timing.baseline, dtype=kernel.compute.dtype_in)["tflops"]
                limit = roof / by_itself.max() if row and len(by_itself) else math.nan
                error = row.get("error") if is_scheme(rung) else math.nan
                own = {"kind": "here"} if is_rung else {"kind": "tuned", "published": math.nan}
                found.append({**about, **row, **own, "limit": limit, "error": error})
    frame = pd.DataFrame(found, columns=COLUMNS)
    # Beside rungs with values those without any are left out: an empty line says nothing.
    valued = frame["ratio"].notna() | frame["published"].notna()
    return size, frame[valued] if frame["ratio"].notna().any() else frame


def ratio(inputs: Inputs) -> Drawing:
    """The rungs of the family whose figures are drawn."""
    return draw(inputs, inputs.family)


def draw(
    inputs: Inputs, family: str, *, ceiling: str = "", says: Callable[[pd.DataFrame, str], str] | None = None
) -> Drawing:
    """The rungs of a family.
    `ceiling`: the micro-kernel of nothing but the rungs' multiplications. `says`: the title, from the current rungs by
    label and the GPU; by default `_says`."""
    measured = inputs.measured[family]
    roof = measured_ceiling(inputs.ceilings, ceiling) if inputs.ceilings is not None and ceiling else None
    size, shown = rungs(measured, roof.value if roof else math.nan)
    own = shown[(shown["kind"] == "here") & shown["ratio"].notna()].set_index("label")
    current, printed = own[~own["stale"].astype(bool)], list(published_ratios(family).values())
    at = "" if not printed or printed[0]["n"] == size else f", at {int(printed[0]['n'])}"
    title = f"The rungs of {registry.family(family).title} over their baseline at {size}"
    main = current[current["kernel"].isin([kernel.id for kernel in ladders.steps(family)])]
    title = (len(main) and (says or _says)(main, inputs.gpu)) or title + (": not measured" if own.empty else "")
    stale = bool(shown["stale"].astype(bool).any())
    sentences = (
        f"Speed over the library's in the same type and mode, timed in turn, {ladders.dtypes(family)[0]}, "
        f"M = N = K = {size}, {measured.cache} cache, with 95% intervals"
        f"{f', built by {measured.toolkit}' if measured.toolkit else ''}.",
        f"Hollow grey: as published for {listed(sorted({row['hardware'] for row in printed}))}{at}." if printed else "",
        "Triangles: the same source, with constants tuned here." if (shown["kind"] == "tuned").any() else "",
        "Ticks: a loop of that instruction alone, over the library by itself." if shown["limit"].notna().any() else "",
        "Error: of the timed product, relative in the Frobenius norm." if shown["error"].notna().any() else "",
        origin(measured),
    )
    caption = " ".join(filter(None, sentences)) + stale_note(stale)
    table = [
        {"rung": f"{row.label}{', tuned' if row.kind == 'tuned' else ''}", "published": row.published}
        | {"measured": row.ratio, "95% interval": [row.low, row.high] if pd.notna(row.low) else None}
        | {"all multiplications": row.limit, "error": row.error, "stale": bool(row.stale)}
        | {"keys": dict.fromkeys(("measured", "error"), row.keys)}
        for row in shown.itertuples()
    ]
    known = [{name: cell for name, cell in line.items() if isinstance(cell, list) or pd.notna(cell)} for line in table]
    kept = [name for name in table[0] if any(name in line for line in known)] if table else []
    table = [{name: line.get(name) for name in kept} for line in known]
    return Drawing(title, caption, _alt(current), table, lambda page: _paint(inputs, shown, page), stale)


def _paint(inputs: Inputs, shown: pd.DataFrame, page: Page) -> Figure:
    first = shown.drop_duplicates("label")
    measured = shown.assign(x=shown["ratio"], low=shown["low"].where(shown["kind"] == "here"))
    parts = (first.assign(kind="print", x=first["published"]), first.assign(kind="limit", x=first["limit"]), measured)
    frame = pd.concat([part.assign(panel="", name=part["label"]) for part in parts])
    texts = [
        {
            "panel": "",
            "name": row.label,
            "print": as_published(row.published) if pd.notna(row.published) else "",
            "error": f"{row.error:.1e}" if pd.notna(row.error) else "",
            "here": format_number(row.ratio) + " stale" * bool(row.stale) if pd.notna(row.ratio) else "",
        }
        for row in first.itertuples()
    ]
    looks = pair(inputs.gpu) | {"tuned": Look("tuned here", TUNED, "^"), "limit": Look("", INK, "|", size=10)}
    panel = Panel("", "speed relative to the library", line=1.0, log=bool((shown["ratio"] > FAR).any()))
    columns = pd.DataFrame(texts, columns=["panel", "name", "print", "error", "here"])
    return dots(marks(frame[frame["x"].notna()].to_dict("records")), looks, {"": panel}, page, texts=columns)


def _says(current: pd.DataFrame, gpu: str) -> str:
    """The last published rung in print and here; of a ladder without any, its fastest rung."""
    both = current[current["published"].notna()]
    if len(both):
        there, here = both["published"].iloc[-1], both["ratio"].iloc[-1]
        return f"{both.index[-1]}: {as_published(there)} of the library in print, {format_number(here)} on {gpu}"
    best, least, most = current["ratio"].idxmax(), current["ratio"].min(), current["ratio"].max()
    kernel = registry.kernel(current["kernel"].iloc[0])
    if current["error"].notna().any():  # schemes differ in their error, and what is faster may be no better
        at, schemes = f" at {int(current['n'].iloc[0])}", f"scheme of {registry.family(kernel.family).title}"
        ahead = f"Every {schemes} is faster than the library{at}" if least > 1 else ""
        return f"No {schemes} is as fast as the library{at}" if most < 1 else ahead
    rung = f"{type_name(kernel.compute.dtype_in)} rung"
    behind = f"No {rung} reaches the library" if most < 1 else f"The fastest {rung} passes the library"
    return f"{behind}: {best} runs at {format_number(most)} of it"


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

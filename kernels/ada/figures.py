"""Kernels of mma.sync against all that it can do, and the error of a sum by where it is kept."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.experiments.results import row_key
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, dots, marks, pair
from gemmrepro.figures.ladder import ratios
from gemmrepro.figures.style import BAD, MARKERS, SERIES, Drawing, finding, origin, size
from gemmrepro.judge.ceilings import measured_ceiling

PAPER = {"mma_sync": ("cute",), "accumulation": ()}


def mma_sync(inputs: Inputs) -> Drawing:
    """A row per published kernel of mma.sync: its ratio, and that of a loop of nothing but mma.sync."""
    families = ("ada", *PAPER["mma_sync"])
    ceilings = inputs.ceilings
    ceiling = measured_ceiling(ceilings, "ceilings.mma_f16") if ceilings is not None and len(ceilings.summary) else None
    parts = [ratios(inputs.measured[family]).steps.reset_index().assign(family=family) for family in families]
    shown = pd.concat(parts)
    shown = shown[shown["published"].notna()].reset_index(drop=True)
    shown["name"] = [f"{each.family} {each.label.removeprefix('cute_')}" for each in shown.itertuples()]
    shown["limit"] = [ceiling.value / (each.tflops / each.ratio) if ceiling else None for each in shown.itertuples()]
    caches = {family: inputs.measured[family].cache for family in families}
    same = len(set(caches.values())) == 1
    how = caches["ada"] if same else " and ".join(f"{family} {cache}" for family, cache in caches.items())
    caption = (
        f"Speed of the articles' kernels relative to cuBLAS timed in turn, {how}, at the articles' sizes. Strokes: the "
        "measured rate of a loop of nothing but mma.sync over that cuBLAS. "
        f"{origin(inputs.measured['ada'])}"
    )
    columns = {"name": "kernel", "published": "published", "ratio": "measured", "limit": "mma.sync loop over cuBLAS"}
    table = shown[list(columns)].rename(columns=columns).to_dict("records")
    long = shown.rename(columns={"published": "print", "ratio": "here"})
    lines = long.melt("name", ["print", "here", "limit"], "kind", "x")
    frame = marks(lines.dropna().to_dict("records"))
    looks = pair("", inputs.gpu) | {"limit": Look("all that mma.sync can do", BAD, "|", size=10)}
    panel = Panel("", "speed relative to cuBLAS", line=1.0)
    paint = lambda page: dots(frame, looks, {"": panel}, page)  # noqa: E731
    title, alt = _mma_words(shown)
    return Drawing(title, caption, alt, table, paint, list(shown["key"]), bool(shown["stale"].any()))


def _mma_words(shown: pd.DataFrame) -> tuple[str, str]:
    if shown.empty:
        alt = "Ratios to cuBLAS of the articles' mma.sync kernels, of which nothing was measured."
        return "mma.sync kernels against cuBLAS: not measured", alt
    limits, best = shown["limit"].dropna(), shown.loc[shown["ratio"].astype(float).idxmax()]
    title = f"The articles' mma.sync kernels reach {format_number(best['ratio'])} of cuBLAS at most"
    if len(limits) and limits.max() < 1:
        title = f"mma.sync itself stays below cuBLAS; its kernels reach {format_number(best['ratio'])} at most"
    loop = ""
    if len(limits):
        loop = f"A loop of nothing but mma.sync reaches {format_number(limits.min())} to {format_number(limits.max())} "
        loop += "of that cuBLAS."
    alt = finding(
        f"{(shown['ratio'] < shown['published']).sum()} of {len(shown)} mma.sync kernels fall short of their published "
        f"ratio; the best, {best['name']}, reaches {format_number(best['ratio'])}.",
        loop,
    )
    return title, alt


LAWS = {"normal": "N(0, 1)", "uniform": "uniform in [0, 1)"}
INSIDE, LIBRARY, OUTSIDE = "inside mma", "cuBLAS", "after each mma"
KEPT = {
    "ada.accumulate_inside": INSIDE,
    "cublas.gemm": LIBRARY,
    "ada.accumulate_ffma": "fp32 FMA",
    "ada.accumulate_outside": OUTSIDE,
    "ada.accumulate_outside4": "after four mma",
    "ada.accumulate_compensated": "compensated",
}
"""Where the sum is kept, by kernel: in the tensor core, or in fp32 registers outside of it."""


def accumulation(inputs: Inputs) -> Drawing:
    """A panel per kind of operands: the error of a dot product by where its sum is kept."""
    results = inputs.experiment("ada", "accumulation")
    panels = {law: merged(_errors(inputs, law)) for law in LAWS}
    frame = pd.concat([panel.assign(panel=LAWS[law]) for law, panel in panels.items()])
    caption = (
        "Root mean square of an output's error over the sum of its products' magnitudes, in units of fp32's 2⁻²⁴; "
        "2048 by 2048 outputs, fp16 operands, against float64. Outside: each mma.sync begins at zero, and fp32 "
        f"additions collect its results. {origin(results)}"
    )
    table = [
        {"operands": one["panel"], "sum kept": one["series"], "K": int(one["x"]), "RMS error in 2^-24": one["y"]}
        for one in frame.to_dict("records")
    ]
    keys = [key for keys in frame["keys"] for key in keys] if len(frame) else []
    names = [f"{INSIDE}, {LIBRARY}", *KEPT.values()]
    used = [name for name in names if (frame["series"] == name).any()]
    looks = {
        name: Look(name.replace("inside mma, ", "mma = "), SERIES[place], MARKERS[place], size=4.4, dash="-")
        for place, name in enumerate(used)
    }
    shapes = {title: Panel(title, "RMS error in 2⁻²⁴", log=True) for title in LAWS.values()}
    paint = lambda page: curves(frame, looks, shapes, page, x_label="K")  # noqa: E731
    title, alt = _sums({LAWS[law]: panel for law, panel in panels.items()})
    return Drawing(title, caption, alt, table, paint, keys, bool(frame["stale"].any()))


def _errors(inputs: Inputs, law: str) -> pd.DataFrame:
    """The errors with one kind of operands, by where the sum is kept and K."""
    results, found = inputs.experiment("ada", "accumulation"), []
    for kernel, name in KEPT.items() if results else ():
        assert results is not None
        rows = results.of(kernel, results.toolkit, law=law)
        for _, row in rows[rows["rms_u"].notna() & (rows["rms_u"] > 0)].sort_values("k").iterrows():
            keys = (row_key("ada", "accumulation", row, "law", "k"),)
            stale = row["status"] == "stale"
            found.append({"series": name, "x": row["k"], "y": row["rms_u"], "stale": stale, "keys": keys})
    return marks(found) if found else marks([]).assign(keys=[])


def merged(errors: pd.DataFrame) -> pd.DataFrame:
    """The errors, where cuBLAS's and those of sums inside mma are one line if they agree within 1% everywhere."""
    inside, library = (errors[errors["series"] == name].set_index("x") for name in (INSIDE, LIBRARY))
    if inside.empty or set(inside.index) != set(library.index):
        return errors
    if ((library["y"] / inside["y"] - 1).abs() > 0.01).any():
        return errors
    both = inside.assign(series=f"{INSIDE}, {LIBRARY}", keys=inside["keys"] + library["keys"])
    return pd.concat([both.reset_index(), errors[~errors["series"].isin((INSIDE, LIBRARY))]], ignore_index=True)


def _sums(panels: Mapping[str, pd.DataFrame]) -> tuple[str, str]:
    """Title and alternative text: how much more sums err inside the tensor core than outside, at the largest K."""
    factors, parts = [], []
    for law, panel in panels.items():
        inside = panel[panel["series"].str.startswith(INSIDE)].set_index("x")["y"]
        outside = panel[panel["series"] == OUTSIDE].set_index("x")["y"]
        if len(common := inside.index.intersection(outside.index)):
            k = common.max()
            factors.append(inside[k] / outside[k])
            pair_of = f"{format_number(inside[k])} inside the tensor core, {format_number(outside[k])} outside"
            parts.append(f"{law}, K = {size(k)}: {pair_of}")
    if not parts:
        alt = "Lines of the error of a dot product by where its sum is kept, of which nothing was measured."
        return "The error of a dot product by where its sum is kept: not measured", alt
    ends = " to ".join(format_number(factor, 2) for factor in dict.fromkeys((min(factors), max(factors))))
    alike = any(panel["series"].str.contains(", ").any() for panel in panels.values())
    alt = finding(
        f"RMS error in 2⁻²⁴ of a dot product. {'; '.join(parts)}.", "cuBLAS errs as sums inside do." if alike else ""
    )
    return f"Sums kept inside the tensor core err {ends} times as much as sums kept outside", alt

"""The SGEMM ladder, published and measured; its shares of the chip; what its levels issue."""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gemmrepro.experiments.tables import Panel
from gemmrepro.figures import ladder as rungs_of
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, empty, finished, marks, percent
from gemmrepro.figures.style import FIRST, GRID, INK, SERIES, Drawing, Page, finding, origin
from gemmrepro.measure.rows import select
from gemmrepro.registry import ladders

PAPER = {"ladder": (), "shares": (), "issuing": ()}

SIZE, WARP = 4096, 32
ISSUING = "smsp__issue_active.avg.pct_of_peak_sustained_active"
INSTRUCTIONS = "smsp__inst_executed.sum"
MULTIPLY_ADDS = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


def ladder(inputs: Inputs) -> Drawing:
    """A line per rung: its ratio to cuBLAS published, measured, tuned, and past the article."""
    return rungs_of.draw(inputs, "ladder", ceiling="ceilings.ffma")


def shares(inputs: Inputs) -> Drawing:
    """Two slopes: the share of the chip that the last level and cuBLAS take, there and here."""
    steps = rungs_of.rungs(inputs.measured["ladder"])[1]
    steps = steps[steps["published"].notna() & steps["ratio"].notna()].set_index("label")
    roadmap = [mark for mark in inputs.marks("ladder", "roadmap") if mark.printed]
    chip = next((mark.printed[0].hardware.removeprefix("NVIDIA ") for mark in roadmap), "the article's GPU")
    found: dict[str, tuple[float, float]] = {}
    keys, stale = tuple[str, ...](), False
    rungs = {label.partition(" ")[0]: label for label in steps.index}
    for mark in roadmap:
        label = rungs.get(str(mark.x).partition(" ")[0])
        if mark.panel == "share" and mark.measured and label:
            there, here, own = mark.printed[0].value, mark.measured.value, steps.loc[label]
            found = {label: (there, here), "cuBLAS": (there / own["published"], here / own["ratio"])}
            keys = tuple(dict.fromkeys(mark.measured.keys + own["keys"]))
            stale = mark.measured.stale or bool(own["stale"])
    caption = (
        f"Throughput at 4096 as a share of the chip's fp32 rate: by the data sheet as published for {chip}, by the "
        f"suite's loop of multiply-adds as measured. cuBLAS's share is that of {next(iter(found), 'the kernel')} over "
        f"its ratio. {origin(inputs.measured['ladder'])}"
    )
    heads = f"share, {chip}", f"share, {inputs.gpu}"
    table = [{"of": name, heads[0]: a, heads[1]: b, "keys": {heads[1]: keys}} for name, (a, b) in found.items()]
    looks = {
        name: Look(f"{here:.0%} {name}", colour, size=6, dash="-")
        for (name, (_, here)), colour in zip(found.items(), (FIRST, INK), strict=False)
    }
    frame = marks([{"series": name, "x": x, "y": y} for name, ends in found.items() for x, y in enumerate(ends)])
    low = min([1.0, *frame["y"]]) - 0.08

    def finish(axes: Axes, _key: str) -> None:
        axes.set_xticks([0, 1], [chip, inputs.gpu])
        axes.set_xlim(-0.5, 1.06)
        percent(axes, "y")
        for name, (there, _) in found.items():
            where: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center"}
            axes.annotate(f"{there:.0%}", (0, there), (-8, 0), color=looks[name].colour, **where)

    panel = {"": Panel("", "share of the chip's fp32 rate", low=low)}
    options: dict[str, Any] = {"x_label": "", "x_scale": "linear", "columns": 1, "finish": finish}
    takes = [f"{name} takes {a:.0%} of the {chip} and {b:.0%} of the {inputs.gpu}" for name, (a, b) in found.items()]
    alt = "Slopes of the shares of the chip that kernel and cuBLAS take, of which nothing was measured."
    alt = finding(f"{'; '.join(takes)}.") if found else alt
    title = _gained(found)
    return Drawing(title, caption, alt, table, lambda page: curves(frame, looks, panel, page, **options), stale)


def _gained(found: dict[str, tuple[float, float]]) -> str:
    if not found:
        return "Shares of the chip, there and here: not measured"
    kernel, library = (here - there for there, here in found.values())
    if library <= kernel + 0.02:
        return "The kernel kept up with cuBLAS in its share of the chip"
    if kernel >= 0:
        return "cuBLAS gained more of the chip than the kernel"
    gained = library > -kernel
    return "cuBLAS gained more of the chip than the kernel lost" if gained else "The kernel lost a share of the chip"


def issued(inputs: Inputs) -> pd.DataFrame:
    """Of each level the shares of a scheduler's cycles that issue a multiply-add (`useful`), and anything else."""
    measured = inputs.measured["ladder"]
    rows = select(measured.counters, n=SIZE, toolkit=measured.toolkit)
    found = []
    for kernel in ladders.steps("ladder"):
        own = select(rows, kernel=kernel.id).drop_duplicates("metric").set_index("metric")
        if {ISSUING, INSTRUCTIONS, MULTIPLY_ADDS} <= set(own.index):
            values = own["value"].astype(float)
            issuing = values[ISSUING] / 100
            useful = issuing * values[MULTIPLY_ADDS] / WARP / values[INSTRUCTIONS]
            stale = bool((own["status"] == "stale").any())
            found.append({"name": ladders.label(kernel), "useful": useful, "other": issuing - useful, "stale": stale})
    return pd.DataFrame(found, columns=["name", "useful", "other", "stale"])


def issuing(inputs: Inputs) -> Drawing:
    """A stacked bar per level: the cycles that issue a multiply-add, another instruction, or none."""
    shown = issued(inputs)
    shown["none"] = 1 - (shown["useful"] + shown["other"])
    caption = (
        f"Cycles of a warp scheduler at {SIZE}, by hardware counters: those that issue a multiply-add (FFMA), another "
        "instruction, or none. An SM can issue an FFMA per scheduler and cycle, so the first part is the share of its "
        f"fp32 rate. {origin(inputs.measured['ladder'])}"
    )
    title = "What a scheduler issues, level by level: not measured"
    alt = "Stacked bars of what a scheduler issues by level, without data: no counters were read."
    if len(shown):
        first, (best, idle, wordy) = shown.iloc[0], (shown.loc[shown[c].idxmax()] for c in ("useful", "none", "other"))
        title = (
            f"Schedulers of {idle['name']} idle in {idle['none']:.0%} of cycles; those of {best['name']} multiply in "
        )
        title += f"{best['useful']:.0%}"
        alt = finding(
            f"{first['name']} issues a multiply-add in {first['useful']:.0%} of the cycles, {best['name']} in "
            f"{best['useful']:.0%}.",
            f"{idle['name']} idles most ({idle['none']:.0%}); {wordy['name']} spends most on other instructions "
            f"({wordy['other']:.0%}).",
        )
    names = {"name": "level", "useful": "FFMA", "other": "other instructions", "none": "none", "stale": "stale"}
    table = shown[list(names)].rename(columns=names).to_dict("records")
    return Drawing(
        title, caption, alt, table, lambda page: _paint_issuing(shown, page), stale=bool(shown["stale"].any())
    )


def _paint_issuing(shown: pd.DataFrame, page: Page) -> Figure:
    kinds = {"useful": ("issue an FFMA", FIRST), "other": ("issue another", SERIES[5]), "none": ("issue none", GRID)}
    figure, axes = plt.subplots(figsize=(page.width, 0.29 * max(3, len(shown)) + 0.7))
    handles = [Patch(facecolor=colour, label=label) for label, colour in kinds.values()]
    if shown.empty:
        empty(axes)
        return finished(figure, page, handles)
    names = [textwrap.shorten(name, page.pick(60, 24), placeholder="…") for name in shown["name"]]
    colours = [colour for _, colour in kinds.values()]
    shown[list(kinds)].plot.barh(stacked=True, ax=axes, color=colours, width=0.75, legend=False)
    axes.set_yticks(
        range(len(names)), [f"{name}  {share:.0%}" for name, share in zip(names, shown["useful"], strict=True)]
    )
    axes.set(xlim=(0, 1), ylim=(len(names) - 0.4, -0.6), xlabel="cycles; numbers: FFMA", ylabel="")
    axes.grid(axis="y", visible=False)
    percent(axes)
    return finished(figure, page, handles)

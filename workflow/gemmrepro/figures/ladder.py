"""The figures of a ladder: `ratio`, its steps over the baseline, and `climb`, its way up to the GPU's ceilings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro import registry
from gemmrepro.core.names import SIZE, TOOLKITS
from gemmrepro.core.text import as_published, format_number, listed
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs, interval
from gemmrepro.figures.kit import Look, dots, finished, marks, printed
from gemmrepro.figures.style import (
    DASHES,
    FIRST,
    INK,
    LAST,
    OTHER_TYPE,
    TUNED,
    Drawing,
    Page,
    finding,
    origin,
    stale_note,
    written,
)
from gemmrepro.judge.ceilings import Ceiling, computed_peak, of_operation
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.rows import BEYOND, Measurements, cubes, row_key, select
from gemmrepro.registry import Kernel, ladders

SIZES = (4096, 8192, 16384)
"""The sizes of `climb`."""

SCHEMES = "fp64"
"""The type whose kernels are schemes that differ in their error."""


def made_here(kernels: Sequence[Kernel], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The measured rows of kernels, in the order of both: names, throughput and ratio with their intervals."""
    found = []
    for kernel in kernels:
        names = {"kernel": kernel.id, "level": ladders.level_name(kernel), "how": ladders.how_made(kernel)}
        for _, row in rows[rows["kernel"] == kernel.id].iterrows():
            work = float(row["tflops"]) * float(row["median_us"])
            low, high = interval(row, "ratio_ci_low", "ratio_ci_high")
            time_low, time_high = interval(row, "ci_low_us", "ci_high_us")
            cells = {name: row[name] for name in ("n", "toolkit", "tflops", "ratio", "clock_mhz", "power_w")}
            cells |= {"low": low, "high": high, "stale": row["status"] == "stale", "key": row_key(row)}
            # The interval of a throughput is that of the median time, so a longer time is a lower end.
            cells |= {"tflops_low": work / time_high if time_high else math.nan}
            cells |= {"tflops_high": work / time_low if time_low else math.nan}
            found.append({**names, **cells, "error": row["err_fro"]})
    return found


@dataclass(frozen=True)
class Ratios:
    """A ladder over its baseline at one size: `bars` has a row for each measured ratio of a step or its twin.

    A step without any has a row of NaN. `published_size` is that of the published ratios.
    """

    measured: Measurements
    size: int
    published_size: int
    hardware: tuple[str, ...]
    bars: pd.DataFrame

    @property
    def drawn(self) -> pd.DataFrame:
        """The rows of the toolkit that the bars show."""
        bars = self.bars[self.bars["ratio"].notna()]
        return bars[bars["toolkit"] == self.measured.toolkit]

    @property
    def current(self) -> pd.DataFrame:
        return self.drawn[~self.drawn["stale"].astype(bool)]

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The highest current ratio."""
        return None if self.current.empty else self.current.loc[self.current["ratio"].astype(float).idxmax()].to_dict()

    @property
    def steps(self) -> pd.DataFrame:
        """The current ratio of each step's own kernel, by its label."""
        own = self.drawn[self.drawn["place"] == 0]
        return own.drop_duplicates("label", keep="last").set_index("label")


def ratios(measured: Measurements) -> Ratios:
    """The ratios of every step and its twins at one size: SIZE, unless the article has its ratios at another."""
    main = ladders.steps(measured.family)
    steps = [*ladders.apart(measured.family), *main]
    systems, article = {kernel.story.published_system for kernel in steps}, registry.family(measured.family).article
    of_article = [
        row
        for row in published_rows()
        if row["article"] == article and row["metric"] == "ratio_to_cublas" and row["system"] in systems
    ]
    timed = cubes(select(measured.summary, cache=measured.cache))
    sizes, printed_sizes = {int(n) for n in timed["n"]}, {row["n"] for row in of_article}
    wanted = SIZE if SIZE in printed_sizes or not printed_sizes else max(printed_sizes)
    size = wanted if wanted in sizes or not sizes else max(sizes)
    there = {row["system"]: row for row in of_article if row["n"] == wanted}
    rows = select(timed, n=size)
    rows = rows[rows["ratio"].notna()]
    found = []
    for step in steps:
        kernels = [step, *(twin for twin in ladders.twins(step) if (rows["kernel"] == twin.id).any())]
        for place, kernel in enumerate(kernels):
            own_type = "" if step in main else step.compute.dtype_in
            row = there.get(step.story.published_system or "") if place == 0 else None
            about = {"label": ladders.label(step), "place": place, "published": row["value"] if row else None}
            nothing = {"kernel": kernel.id, "level": ladders.level_name(kernel), "how": ladders.how_made(kernel)}
            for each in made_here([kernel], rows) or [nothing]:
                scheme = kernel.compute.dtype_in == SCHEMES
                error = each["error"] if scheme and pd.notna(each.get("error")) else None
                found.append({**about, **each, "how": each["how"] or own_type, "error": error})
    columns = ["label", "place", "published", "kernel", "level", "how", "toolkit", "ratio", "low", "high", "stale"]
    bars = pd.DataFrame(found, columns=[*columns, "error", "tflops", "key"])
    return Ratios(measured, size, wanted, tuple(sorted({row["hardware"] for row in there.values()})), bars)


def ratio(inputs: Inputs) -> Drawing:
    """A line per level and twin: its bar, the published ratio, and that of the other toolkit."""
    shown = ratios(inputs.own)
    words = _ratio_title(shown), _ratio_caption(shown), _ratio_alt(shown)
    keys = shown.bars["key"].dropna()
    stale = bool(shown.drawn["stale"].astype(bool).any())
    return Drawing(*words, ratio_table(shown), lambda page: _paint_ratio(shown, page), list(keys), stale)


def _other(shown: Ratios) -> str | None:
    """The other toolkit with current rows, None where there is none."""
    bars = shown.bars[shown.bars["ratio"].notna()]
    others = bars[(bars["toolkit"] != shown.measured.toolkit) & (bars["stale"] == False)]  # noqa: E712
    return None if others.empty else next(name for name in TOOLKITS if name != shown.measured.toolkit)


def _paint_ratio(shown: Ratios, page: Page) -> Figure:
    looks = {how: Look(how, TUNED if how == "tuned" else OTHER_TYPE, "bar") for how in shown.bars["how"].unique()}
    looks[""] = Look(f"measured, {shown.measured.gpu or 'no GPU'}, {shown.measured.toolkit}", FIRST, "bar")
    looks |= {"print": printed(f"published, {', '.join(shown.hardware)}")}
    other = _other(shown)
    looks |= {"other": Look(other or "", INK, "d", hollow=True, size=5)}
    lines, texts = [], []
    for (level, _), bars in shown.bars.groupby(["level", "kernel"], sort=False):
        first, own = bars.iloc[0], shown.drawn[shown.drawn["kernel"] == bars["kernel"].iloc[0]]
        lines += [{"name": level, "kind": "print", "x": first["published"]}] if pd.notna(first["published"]) else []
        for _, bar in bars[bars["ratio"].notna()].iterrows():
            same = bar["toolkit"] == shown.measured.toolkit
            if same or not bar["stale"]:
                ends = {"low": bar["low"], "high": bar["high"], "stale": bar["stale"]} if same else {}
                lines.append({"name": level, "kind": bar["how"] if same else "other", "x": bar["ratio"], **ends})
        text = {"panel": "", "name": level, "print": "", "error": "", "here": ""}
        if pd.notna(first["published"]):
            text["print"] = as_published(first["published"])
        for _, bar in own.iterrows():
            text["here"] = format_number(bar["ratio"]) + (" stale" if bar["stale"] else "")
            text["error"] = f"{bar['error']:.1e}" if bar["error"] is not None and pd.notna(bar["error"]) else ""
        texts.append(text)
    columns = pd.DataFrame(texts, columns=["panel", "name", "print", "error", "here"])
    kept = [name for name in columns if name in ("panel", "name", "here") or columns[name].any()]
    panel = Panel("", "speed relative to cuBLAS" + page.pick(" (1 = equal; higher is better)", ""), line=1.0)
    return dots(marks(lines), looks, {"": panel}, page, texts=columns[kept])


def _ratio_caption(shown: Ratios) -> str:
    own, types = shown.measured, ladders.dtypes(shown.measured.family)
    elsewhere = shown.size != shown.published_size
    at = f", at {shown.published_size}" if elsewhere else ""
    made = sorted(shown.bars["how"].unique(), key=bool) or [""]
    names = {
        "": f"Bars: measured, built by {own.toolkit}, with 95% intervals" if own.toolkit else "Nothing was measured"
    }
    names |= {"tuned": "green: the same source, tuned on this GPU"}
    other, errors = _other(shown), shown.bars["error"].notna().any()
    sentences = (
        f"Speed of each level relative to cuBLAS, {listed(types)}, M = N = K = {shown.size}, {own.cache} cache.",
        f"Hollow grey: as published for {shown.hardware[0]}{at}." if shown.hardware else "",
        "; ".join(names.get(how, f"pink: in {how}") for how in made)
        + (f"; small diamonds: built by {other}" if other else "")
        + ".",
        "Error: the timed product against one in FP64, relative in the Frobenius norm. The latter errs by about "
        "2.1e-15 itself, so what lies near that may be more accurate."
        if errors
        else "",
        "Each type is compared with cuBLAS in the same type." if len(types) > 1 else "",
        origin(own) + (f" The size {shown.published_size} was not measured." if elsewhere else ""),
    )
    return " ".join(filter(None, sentences)) + stale_note(bool(shown.drawn["stale"].astype(bool).any()))


def _ratio_title(shown: Ratios) -> str:
    if not (best := shown.best):
        types = listed(ladders.dtypes(shown.measured.family))
        return f"Ratio to cuBLAS at {shown.size}, {types}: not measured"
    told = f", with an error of {written(best['error'])}" if pd.notna(best["error"]) else ""
    return f"{best['level']} is the fastest level, at {format_number(best['ratio'])} of cuBLAS ({shown.size}){told}"


def _ratio_alt(shown: Ratios) -> str:
    if not (best := shown.best):
        return "Bar chart of speed relative to cuBLAS by level, without data: nothing was measured."
    both = shown.steps[shown.steps["published"].notna() & (shown.steps["stale"] == False)]  # noqa: E712
    last = ""
    if len(both):
        end = both.iloc[-1]
        last = f" its last, {both.index[-1]}, published at {as_published(end['published'])}, reaches"
        last += f" {format_number(end['ratio'])}"
    return finding(
        f"The fastest of {shown.bars['kernel'].nunique()} kernels at {shown.size}, {best['level']}, reaches "
        f"{format_number(best['ratio'])} of cuBLAS.",
        f"Of the {len(both)} levels with a published ratio {(both['ratio'] < both['published']).sum()} fall short of "
        f"it here;{last}."
        if len(both)
        else "",
    )


def ratio_table(shown: Ratios) -> list[dict[str, Any]]:
    """A line per kernel; the published value is in that of the step itself."""
    lines = []
    for _, bars in shown.bars.groupby("kernel", sort=False):
        first = bars.iloc[0]
        line: dict[str, Any] = {"level": first["level"]}
        line |= {"published": first["published"]} if pd.notna(first["published"]) else {}
        for _, bar in bars[bars["ratio"].notna()].iterrows():
            line[f"measured, {bar['toolkit']}"] = float(bar["ratio"])
            if bar["toolkit"] == shown.measured.toolkit:
                line |= {"error": bar["error"]} if pd.notna(bar["error"]) else {}
                line["95% interval"] = [bar["low"], bar["high"]] if pd.notna(bar["low"]) else None
                line["stale"] = bool(bar["stale"])
        lines.append(line)
    return lines


@dataclass(frozen=True)
class Climb:
    """A ladder's throughput: `levels` has a row for each measured level and size, in the order of the table.

    `peak` is the computed one: TFLOP/s, the formula in words, and the clock.
    """

    measured: Measurements
    dtype: str
    sizes: tuple[int, ...]
    labels: tuple[str, ...]
    levels: pd.DataFrame
    ceilings: tuple[Ceiling, ...]
    peak: tuple[float, str, float | None] | None

    @property
    def stale(self) -> bool:
        return bool(self.levels["stale"].any())

    def lines(self) -> list[tuple[float, Any, str]]:
        """Lines across every panel: TFLOP/s, dash and legend."""
        lines = [
            (each.value, DASHES[(2, 4)[place % 2]], f"{each.label} loop, measured: {format_number(each.value)}")
            for place, each in enumerate(self.ceilings)
        ]
        return lines + (
            [(self.peak[0], DASHES[3], f"computed peak: {format_number(self.peak[0])}")] if self.peak else []
        )


def climbed(measured: Measurements, ceilings: Measurements | None) -> Climb:
    """The rows of the family's first type at those of SIZES that were measured, else at the largest size."""
    steps, dtype = ladders.steps(measured.family), next(iter(ladders.dtypes(measured.family)), "fp32")
    rows = cubes(select(measured.summary, cache=measured.cache, dtype=dtype))
    rows = rows[rows["tflops"].notna()]
    known = sorted({int(n) for n in rows["n"]})
    sizes = [size for size in SIZES if size in known] or known[-1:] or [SIZES[0]]
    roofs = tuple(of_operation(ceilings, "ceiling_flops", dtype)) if ceilings else ()
    highest = max((roof.value for roof in roofs), default=math.inf)
    gpu = measured.run.get("gpu") or {}
    peak = computed_peak(gpu, dtype)
    found = []
    for size in sizes:
        at = select(rows, n=size, toolkit=measured.toolkit or "").drop_duplicates("kernel", keep="last")
        for place, step in enumerate(steps):
            twins = [twin for twin in ladders.twins(step) if twin.compute.dtype_in == step.compute.dtype_in]
            for each in made_here([step, *twins], at):
                # An interval above every ceiling is noise.
                bare = {"tflops_low": math.nan, "tflops_high": math.nan}
                beyond = each["tflops_high"] > BEYOND * highest
                about = {"size": size, "label": ladders.label(step), "last": place == len(steps) - 1}
                found.append({**about, **each, **(bare if beyond else {}), "twin": each["kernel"] != step.id})
    columns = ["size", "label", "last", "level", "twin", "tflops", "tflops_low", "tflops_high", "ratio", "stale", "key"]
    levels = pd.DataFrame(found, columns=[*columns, "clock_mhz", "power_w"])
    levels["baseline"] = levels["tflops"].astype(float) / levels["ratio"].astype(float)
    labels = tuple(ladders.label(kernel) for kernel in steps)
    end = (*peak, gpu.get("clock_max_mhz")) if peak else None
    return Climb(measured, dtype, tuple(sizes), labels, levels, roofs, end)


def climb(inputs: Inputs) -> Drawing:
    """A panel per size with a bar per level and the cuBLAS timed in turn with it; lines across it are ceilings."""
    shown = climbed(inputs.own, inputs.ceilings)
    keys = [*(ceiling.key for ceiling in shown.ceilings), *shown.levels["key"]]
    words = _climb_title(shown), _climb_caption(shown), _climb_alt(shown)
    return Drawing(*words, _climb_table(shown), lambda page: _paint_climb(shown, page), keys, shown.stale)


def _paint_climb(shown: Climb, page: Page) -> Figure:
    looks = {
        "step": Look("level", FIRST, "bar"),
        "last": Look("last level", LAST, "bar"),
        "tuned": Look("tuned", TUNED, "d", size=6),
        "baseline": Look("cuBLAS, timed in turn with it", INK, "|", size=10),
    }
    lines, texts = [], []
    for level in shown.levels.to_dict("records"):
        place = {"panel": str(level["size"]), "name": level["label"]}
        kind = "tuned" if level["twin"] else "last" if level["last"] else "step"
        ends = {} if level["twin"] else {"low": level["tflops_low"], "high": level["tflops_high"]}
        lines.append({**place, "kind": kind, "x": level["tflops"], "stale": level["stale"], **ends})
        if not level["twin"]:
            lines.append({**place, "kind": "baseline", "x": level["baseline"]})
            texts.append({**place, "": format_number(level["tflops"])})
    panels = {str(size): Panel(str(size), "TFLOP/s") for size in shown.sizes}
    reach = max([1.0, *(value for value, *_ in shown.lines()), *shown.levels["tflops"], *shown.levels["tflops_high"]])

    def ceilings(axes: Axes, _key: str) -> None:
        for value, dash, _ in shown.lines():
            axes.axvline(value, color=INK, linewidth=1.2, linestyle=dash, zorder=3)
        axes.set_xlim(0, 1.04 * reach)

    frame, columns = marks(lines), pd.DataFrame(texts, columns=["panel", "name", ""])
    options = {"names": shown.labels, "texts": columns, "across": True, "beside": True, "finish": ceilings}
    figure = dots(frame, looks, panels, page, **options)
    handles = [*figure.legends[0].legend_handles] if figure.legends else []
    for legend in figure.legends:
        legend.remove()
    roofs = [Line2D([], [], color=INK, linewidth=1.2, linestyle=dash, label=label) for _, dash, label in shown.lines()]
    return finished(figure, page, [*handles, *roofs])


def _climb_caption(shown: Climb) -> str:
    lines = []
    for ceiling in shown.ceilings:
        at = f" at {ceiling.conditions}" if ceiling.conditions else ""
        lines.append(f"a loop of nothing but {ceiling.label} reaches {format_number(ceiling.value)} TFLOP/s{at}")
    if shown.peak:
        lines.append(f"the computed peak is {format_number(shown.peak[0])} TFLOP/s, {shown.peak[1]}")
    sizes = listed([f"M = N = K = {shown.sizes[0]}", *(str(size) for size in shown.sizes[1:])])
    toolkit = shown.measured.toolkit
    sentences = (
        f"Throughput of each level, {shown.dtype}, {shown.measured.cache} cache, at {sizes}"
        f"{f', built by {toolkit}' if toolkit else ''}, and (strokes) of cuBLAS as timed in turn with that level: the "
        "clock moves between levels, so cuBLAS has a stroke at each.",
        "Diamonds: the same source, tuned on this GPU." if shown.levels["twin"].any() else "",
        f"Lines across the panels: {'; '.join(lines)}." if lines else "",
        "" if shown.ceilings else f"No {shown.dtype} ceiling was measured.",
        "The table below adds clock and power.",
        origin(shown.measured),
    )
    return " ".join(filter(None, sentences)) + stale_note(shown.stale)


def _fastest(shown: Climb) -> Mapping[str, Any] | None:
    """The level with the best ratio at the first size that has any."""
    known = shown.levels[shown.levels["ratio"].notna() & ~shown.levels["stale"].astype(bool)]
    if known.empty:
        return None
    first = known[known["size"] == known["size"].iloc[0]]
    return first.loc[first["ratio"].astype(float).idxmax()].to_dict()


def _climb_title(shown: Climb) -> str:
    if not (best := _fastest(shown)):
        return f"Throughput by level, {shown.dtype}: not measured"
    share = f", {best['tflops'] / shown.ceilings[0].value:.0%} of the ceiling" if shown.ceilings else ""
    return f"{best['level']} reaches {format_number(best['ratio'])} of cuBLAS at {best['size']}{share}"


def _climb_alt(shown: Climb) -> str:
    if not (best := _fastest(shown)):
        return "Bar chart of throughput by level, without data: nothing was measured."
    at = shown.levels[(shown.levels["size"] == best["size"]) & ~shown.levels["stale"].astype(bool)]
    first = at.iloc[0]
    return finding(
        f"At {best['size']} the levels climb from {format_number(first['tflops'])} TFLOP/s ({first['level']}) to "
        f"{format_number(best['tflops'])} ({best['level']}), {format_number(best['tflops'] / first['tflops'])} times "
        f"as much and {format_number(best['ratio'])} of the cuBLAS timed in turn with it.",
        f"The ceiling is {format_number(shown.ceilings[0].value)} TFLOP/s." if shown.ceilings else "",
    )


def _climb_table(shown: Climb) -> list[dict[str, Any]]:
    """A line per level and size, and one per ceiling."""
    lines: list[dict[str, Any]] = []
    for level in shown.levels.to_dict("records"):
        cells = {"level": level["level"], "size": level["size"], "TFLOP/s": level["tflops"]}
        cells |= {"cuBLAS in turn, TFLOP/s": level["baseline"], "ratio to cuBLAS": level["ratio"]}
        if shown.ceilings:
            cells["share of the highest loop"] = level["tflops"] / shown.ceilings[0].value
        lines.append({**cells, "clock, MHz": level["clock_mhz"], "power, W": level["power_w"], "stale": level["stale"]})
    for each in shown.ceilings:
        cells = {"level": f"{each.label} loop, measured", "TFLOP/s": each.value}
        lines.append({**cells, "clock, MHz": each.clock_mhz, "power, W": each.power_w})
    if shown.peak:
        lines.append({"level": "computed peak", "TFLOP/s": shown.peak[0], "clock, MHz": shown.peak[2]})
    return lines

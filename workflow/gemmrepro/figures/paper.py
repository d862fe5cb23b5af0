"""The figures of the whole paper, and those of statements and regimes that every family may have."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from gemmrepro import registry
from gemmrepro.core.names import SIZE
from gemmrepro.core.text import format_number, listed
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, dots, finished, marks, printed
from gemmrepro.figures.style import (
    BAD,
    DASHES,
    FAIR,
    FIRST,
    GOOD,
    INK,
    MARKERS,
    NONE,
    PUBLISHED,
    SERIES,
    Drawing,
    Page,
    finding,
    origin,
)
from gemmrepro.judge.claim import ARTICLE
from gemmrepro.judge.rules import NOT_COMPARABLE
from gemmrepro.measure.regimes import BURST, IN_TURN, SUSTAINED
from gemmrepro.measure.rows import cubes, row_key, select
from gemmrepro.paper.claims import ClaimView
from gemmrepro.paper.claims import headlines as known_for
from gemmrepro.paper.regimes import PRECISE, THE_LIBRARY, Accuracies, RegimeLine, leaders, regime_lines, type_name
from gemmrepro.paper.text import View
from gemmrepro.registry import articles, ladders

HOLDS = {
    "reproduced": Look("reproduced", GOOD, "o"),
    "partly": Look("partly", FAIR, "D", size=5),
    "undecided": Look("undecided", INK, "s"),
    "not reproduced": Look("not reproduced", BAD, "X", size=6),
}
"""The verdicts on what was judged here."""


def compared(inputs: Inputs) -> list[tuple[ClaimView, float]]:
    """The articles' statements that one value judged within a tolerance, each with measured over what is expected."""
    found = []
    for claim in inputs.verdicts.claims:
        wanted = inputs.published.get(claim.id) if claim.expected is None else claim.expected
        alone = claim.register == ARTICLE and claim.tolerance is not None and len(claim.judged) == 1
        if alone and claim.verdict in HOLDS and wanted and 0 < (over := claim.judged[0].value / wanted) < math.inf:
            found.append((claim, over))
    return found


VERDICTS = {**HOLDS, NOT_COMPARABLE: Look(NOT_COMPARABLE, NONE, "P", size=6)}
"""The looks of measured values that have a verdict."""

GAIN = 3.0
"""Published factors above this are drawn on an axis of their own."""


def headlines(inputs: Inputs) -> Drawing:
    """A dumbbell per headline claim of the articles: published and measured, as a multiple of its baseline."""
    shown = known_for(inputs.verdicts.claims, inputs.published)
    title, alt = "Headline claims: not measured", "Dumbbells of headline claims, without data: nothing was judged."
    if shown:
        counts = Counter(each.claim.verdict for each in shown)
        title = f"Of {len(shown)} headline claims {counts['reproduced']} hold on {inputs.gpu}"
        far = max(shown, key=lambda each: abs(math.log(each.measured / each.published)))
        alt = finding(
            f"{title}, {counts['partly']} in part.",
            f"Farthest: {far.article}, {far.name}: {far.texts[0]} in print, {far.texts[1]} here.",
        )
    caption = (
        "What each article is known for, as a multiple of what it is compared with. What scales with the chip is drawn "
        "over what the published value makes expect here, which follows “so”."
    )
    table = [
        {"article": each.article, "claim": each.claim.id, "verdict": each.claim.verdict, "program": each.claim.program}
        | {"what": each.name, "published": each.published, "measured": each.measured}
        for each in shown
    ]
    return Drawing(title, caption, alt, table, lambda page: _paint_headlines(shown, page))


def _paint_headlines(shown: Sequence[View], page: Page) -> Figure:
    lines, texts = [], []
    for each in shown:
        text, here = each.texts
        name = (each.name if page.narrow else f"{each.article}\n{each.name}") + each.mark
        cells = {"panel": "gain" if each.published > GAIN else "", "name": name}
        lines.append({**cells, "kind": "print", "x": each.published})
        lines.append({**cells, "kind": each.claim.verdict, "x": each.measured})
        article = textwrap.shorten(each.article, 16 if " " in here else 24, placeholder="…")
        both = {"": f"{article}: {text} → {here}"} if page.narrow else {"print": text, "here": here}
        texts.append({**cells, **both})
    panels = {
        "": Panel("", "times the speed of what it is compared with", line=1.0),
        "gain": Panel("", "times as fast as before", log=True),
    }
    panels = {key: panel for key, panel in panels.items() if any(line["panel"] == key for line in lines)} or panels
    looks, columns = {"print": printed(), **VERDICTS}, pd.DataFrame(texts, columns=None if texts else ["panel", "name"])
    return dots(marks(lines), looks, panels, page, texts=columns)


GROUPS = {"ratio": "ratios", "FLOP/s": "rates", "B/s": "rates", "s": "times", "cycles": "times"}
"""Kinds of a statement's number, by the end of its unit."""

MOST = 12
"""So many statements outside their tolerance have a line of their own, the farthest."""


def stated(inputs: Inputs, family: str) -> Drawing:
    """The statements of a family's article that compare one number, and each that lies outside its tolerance."""
    shown = [(claim, over) for claim, over in compared(inputs) if claim.family == family]
    stated_by, counts = _stated_by(family), Counter(claim.verdict for claim, _ in shown)
    far = sorted(shown, key=lambda pair: -abs(math.log2(pair[1])))
    outside = [pair for pair in far if pair[0].verdict != "reproduced"]
    title = f"{_short(family)}, stated in numbers: not measured"
    alt = "Dots of measured over published by statement, without data: nothing was judged."
    if shown:
        off = pd.DataFrame([(_group(claim), over) for claim, over in outside], columns=["group", "over"])
        ends = off.groupby("group")["over"].agg(["min", "max"])
        sides = {"below": ends["max"] < 1, "above": ends["min"] >= 1}
        sides["on either side"] = ~(sides["below"] | sides["above"])
        said = [f"{listed(list(ends.index[groups]))} {side}" for side, groups in sides.items() if groups.any()]
        carried = any(claim.expected is not None for claim, _ in outside)
        differs = (
            f"{inputs.gpu} against {'what the article implies here' if carried else 'the article'}: {', '.join(said)}"
        )
        title = f"{_short(family)}, {differs if said else 'stated in numbers: all holds'}"
        kinds = [(counts[verdict], one if counts[verdict] == 1 else more) for verdict, (one, more) in _SAID.items()]
        alt = finding(
            f"Of {len(shown)} statements of {stated_by} with one number "
            f"{listed([f'{count} {verb}' for count, verb in kinds if count])}.",
            *(f"Farthest: {_printed(claim, inputs)} in print, {_here(claim)} here." for claim, _ in outside[:1]),
        )
    caption = (
        f"Statements of {stated_by} with one number: measured over published, or over what is expected "
        "here from the published share of the peak. Those within their tolerance share a line; of the others, on "
        f"which the title rests, the {MOST} farthest have one each."
    )
    table = [
        {"claim": claim.id, "published": inputs.published.get(claim.id), "expected here": claim.expected}
        | {"measured": claim.judged[0].value, "unit": _unit(claim)}
        | {"tolerance": claim.tolerance, "verdict": claim.verdict}
        for claim, _ in shown
    ]
    return Drawing(title, caption, alt, table, lambda page: _paint_stated(inputs, shown, outside[:MOST], page))


def _paint_stated(
    inputs: Inputs, shown: Sequence[tuple[ClaimView, float]], outside: Sequence[tuple[ClaimView, float]], page: Page
) -> Figure:
    lines, texts = list[dict[str, Any]](), list[dict[str, Any]]()
    near = Counter(_group(claim) for claim, _ in shown if claim.verdict == "reproduced")
    for claim, over in (*(pair for pair in shown if pair[0].verdict == "reproduced"), *outside):
        group = _group(claim)
        at = {"panel": group, "name": f"{near[group]} within tolerance"}
        if claim.verdict != "reproduced":
            said = textwrap.fill(claim.statement, page.pick(38, 40), max_lines=2, placeholder="…")
            alike = sum(text["name"].startswith(said) for text in texts)
            at["name"] = f"{said} ({alike + 1})" if alike else said
            texts.append({**at, "print": _printed(claim, inputs), "here": _here(claim)})
        lines.append({**at, "kind": claim.verdict, "x": over})
    groups = sorted({line["panel"] for line in lines}) or [""]
    panels = {group: Panel(group, "measured over published", log=True, line=1) for group in groups}
    columns = pd.DataFrame(texts, columns=["panel", "name", "print", "here"])
    return dots(marks(lines), HOLDS, panels, page, texts=columns, joined=False)


_SAID = {"reproduced": ("holds", "hold"), "partly": ("holds in part", "hold in part")}
_SAID |= {"not reproduced": ("does not hold", "do not hold"), "undecided": ("is undecided", "are undecided")}


def _stated_by(family: str) -> str:
    """The title of its article."""
    return f"“{articles.article(name).short or name}”" if (name := registry.family(family).article) else family


def _short(family: str) -> str:
    return registry.family(family).title.partition(":")[0]


def _unit(claim: ClaimView) -> str:
    """The unit of a measured number; a quotient may be of the published one's."""
    unit = claim.judged[0].unit
    return claim.published[0].unit if unit == "ratio" and len(claim.published) == 1 else unit


def _group(claim: ClaimView) -> str:
    return next((group for end, group in GROUPS.items() if _unit(claim).endswith(end)), "counts and sizes")


def _printed(claim: ClaimView, inputs: Inputs) -> str:
    """The published figure with its unit, rounded where it is long; a quotient of two where the claim compares that."""
    if len(claim.published) == 1:
        only = claim.published[0]
        long = len(only.text.partition(" ")[0]) > 8
        return f"{format_number(only.value, 4)} {only.unit}" if long else only.text
    value = inputs.published.get(claim.id)
    return "" if value is None else format_number(value)


def _here(claim: ClaimView) -> str:
    value = claim.judged[0]
    return f"{value.text}{f' {value.unit}' if value.unit not in ('', 'ratio', 'count') else ''}"


def row(inputs: Inputs) -> Drawing:
    """One row's life: the quotients of its samples by round, and the interval that tables give."""
    if (found := _life(inputs)) is None:
        alt = "Ratios of the samples of one row, of which nothing was measured."
        empty = partial(curves, marks([]), {}, {"": Panel("", "ratio")}, x_label="round")
        return Drawing("One row's life: not measured", "No samples are known.", alt, [], empty)
    name, line, samples, whence = found
    medians = samples.groupby("round")["ratio"].median()
    value, low, high = (format_number(float(line[end])) for end in ("ratio", "ratio_ci_low", "ratio_ci_high"))
    caption = (
        f"{name} at {SIZE}, warm: cuBLAS's time over that of the kernel beside it, a dot a sample, a stroke a round's "
        "median. Right, enlarged, what tables give: the median of the rounds' medians, in the hull of a Student t "
        f"interval over rounds and of the samples' order statistics. {whence}"
    )
    alt = finding(
        f"{len(samples)} samples in {len(medians)} rounds become one row: ratio {value}, 95% interval {low} to {high}.",
        f"Its rounds' medians are {', '.join(format_number(float(each)) for each in medians)}.",
    )
    title = f"Outliers do not move a row: {len(samples)} samples in {len(medians)} rounds give {value} [{low}, {high}]"
    cells, keys = ["round", "kernel ms", "cuBLAS ms", "ratio"], {"ratio": (row_key(line),)}
    table = [sample | {"keys": keys} for sample in samples[cells].to_dict("records")]
    stale = line["status"] == "stale"
    return Drawing(title, caption, alt, table, lambda page: _paint_row(line, samples, page), stale)


def _life(inputs: Inputs) -> tuple[str, pd.Series, pd.DataFrame, str] | None:
    """Of the article with most levels, the last level at SIZE with samples: its name, row and samples."""
    levels = {
        family: [kernel for kernel in ladders.steps(family) if kernel.story.published_system]
        for family in inputs.measured
    }
    family = max(levels, key=lambda name: len(levels[name]), default="")
    for kernel in reversed(levels.get(family, [])):
        measured = inputs.measured[family]
        cells = {"kernel": kernel.id, "n": SIZE, "cache": "warm", "toolkit": measured.toolkit}
        rows = cubes(select(measured.summary, **cells))
        rows = rows[rows["ratio"].notna()]
        if len(rows) and len(samples := cubes(select(measured.samples(), **cells))):
            samples = samples.sort_values(["round", "index"], kind="stable")
            times = {"kernel ms": samples["time_us"] / 1e3, "cuBLAS ms": samples["baseline_us"] / 1e3}
            samples = samples.assign(**times, ratio=samples["baseline_us"] / samples["time_us"])
            samples["round"] = samples.groupby("round").ngroup() + 1
            return ladders.label(kernel), rows.iloc[0], samples, origin(measured)
    return None


def _paint_row(line: pd.Series, samples: pd.DataFrame, page: Page) -> Figure:
    shape: dict[str, Any] = page.pick({"ncols": 2, "width_ratios": (2, 1)}, {"nrows": 2})
    figure, (every, result) = plt.subplots(figsize=(page.width, page.pick(2.9, 4.6)), **shape)
    sns.stripplot(samples, x="round", y="ratio", ax=every, color=FIRST, size=4, jitter=0.25)
    medians = samples.groupby("round")["ratio"].median()
    every.hlines(medians, medians.index - 1.4, medians.index - 0.6, color=INK, linewidth=1.4, zorder=4)
    value, low, high = (float(line[end]) for end in ("ratio", "ratio_ci_low", "ratio_ci_high"))
    result.hlines(medians, -0.15, 0.15, color=INK, linewidth=2)
    result.vlines(1, low, high, color=FIRST, linewidth=2.2)
    sns.scatterplot(x=[1], y=[value], color=FIRST, s=49, ax=result, zorder=3)
    for end, side in ((value, "center"), (low, "top"), (high, "bottom")):
        result.annotate(format_number(end), (1, end), (7, 0), textcoords="offset points", va=side, color=FIRST)
    margin = 0.25 * (high - low) or 0.01
    result.set(xlim=(-0.5, 2.1), ylim=(min(low, *medians) - margin, max(high, *medians) + margin), ylabel="")
    result.set_xticks([0, 1], ["rounds", "row"])
    every.set_ylabel("cuBLAS's time over the kernel's")
    return finished(figure, page)


REGIMES = {IN_TURN: "in turn", SUSTAINED: "sustained", BURST: "in bursts"}
CONTESTS, NEAR = 3, 0.75
"""So many contests of a family are drawn, those of most kernels, and of each what reaches this share of its best."""


def regimes(inputs: Inputs, family: str) -> Drawing:
    """Speed over the library's by size, a line for each kernel, in turn, sustained and in bursts."""
    every: list[RegimeLine] = []
    if family in inputs.measured and family in inputs.regimes:
        measured, alone = {family: inputs.measured[family]}, {family: inputs.regimes[family]}
        every = regime_lines(measured, alone, Accuracies.of(inputs.results))
    lines = [line for line in every if line.is_alone and any(line.leaders.values())]
    frame = _entries(lines)
    room = frame.loc[frame["leads"] != "no", "kernel"].nunique() <= len(SERIES)
    coloured = frame["leads"].isin(["alone", "tied"] if room else ["alone"])
    leading = "the fastest kernel, or tied with it" if room else "alone the fastest kernel"
    caption = (
        "Speed over the library's, used in the same way: in turn, alone on a hot GPU, in bursts from rest; 95% "
        f"intervals. Coloured: {leading}; grey: {'slower' if room else 'slower, or tied'}. Left out: intervals "
        "wider than 5%, and what is slower than three quarters of the best."
    )
    table = [
        {"n": int(one.x), "contest": one.contest, "regime": REGIMES[one.regime], "kernel": one.kernel}
        | {"ratio": one.y, "low": one.low, "high": one.high, "leads": one.leads}
        | {"keys": dict.fromkeys(("ratio", "low", "high"), (one.row,))}
        for one in frame.itertuples()
    ]
    title, alt = f"{_short(family)}: {_regimes_title(lines, every)}", _regimes_alt(lines)
    others = "slower" if room else "tied, or slower"
    return Drawing(title, caption, alt, table, lambda page: _paint_regimes(frame, coloured, others, page))


def _entries(lines: Sequence[RegimeLine]) -> pd.DataFrame:
    """A row for each kernel, size and regime of the contests with most kernels that can be drawn.
    `leads`: "alone"; "tied", with another kernel or the library; or "no"."""
    found = []
    for line in lines:
        where = _where(line, lines)
        for regime, entries in line.entries.items():
            best = max((entry.ratio for entry in entries), default=0.0)
            ahead = [each.kernel for each in line.leaders[regime]]
            tied = len(ahead) > 1 or len(leaders([*line.leaders[regime][:1], THE_LIBRARY])) > 1
            precise = [each for each in entries if each.high - each.low <= PRECISE * each.ratio]
            for entry in (each for each in precise if each.ratio >= NEAR * best):
                about = {"contest": where, "regime": regime, "kernel": entry.kernel, "rung": _name(entry.kernel)}
                about["row"] = entry.anchor
                ends = {"x": line.n, "y": entry.ratio, "low": entry.low, "high": entry.high}
                found.append({**about, **ends, "leads": "no" if entry.kernel not in ahead else ("alone", "tied")[tied]})
    columns = ["contest", "regime", "kernel", "rung", "row", "x", "y", "low", "high", "leads"]
    frame = pd.DataFrame(found, columns=columns)
    most = frame.groupby("contest", sort=False)["kernel"].nunique().sort_values(ascending=False, kind="stable")
    return frame[frame["contest"].isin(most.index[:CONTESTS])].sort_values("x", kind="stable")


def _name(kernel: str) -> str:
    return ladders.label(registry.kernel(kernel))


def own(found: Sequence[Mapping[str, Any]]) -> Drawing:
    """Kernels of one's own over their baselines, by size: in turn, warm, and in the regimes; `found` are results."""
    titles = {each["kernel"]: each["title"] for each in found}
    rows = [row for each in found for row in (*each["rows"], *each["regimes"])]
    table = [
        {"kernel": row["kernel"], "regime": REGIMES[row.get("regime", IN_TURN)]}
        | {name: row[name] for name in ("n", "dtype", "ratio", "ratio_ci_low", "ratio_ci_high")}
        for row in rows
        if row["kernel"] in titles and row["cache"] == "warm" and row["ratio"] is not None
    ]
    columns = {"panel": "kernel", "series": "regime", "x": "n", "y": "ratio", "low": "ratio_ci_low"}
    columns |= {"high": "ratio_ci_high"}
    frame = marks([{name: row[column] for name, column in columns.items()} for row in table])
    looks = {words: Look(words, SERIES[i], MARKERS[i], dash=DASHES[i]) for i, words in enumerate(REGIMES.values())}
    panels = {name: Panel(title, "speed over the baseline's", line=1.0) for name, title in titles.items()}
    ahead = sorted({titles[row["kernel"]] for row in table if (row["ratio_ci_low"] or 0) > 1})
    said = f"Faster at some size: {listed(ahead)}." if ahead else "None is faster than its baseline at any size."
    return Drawing(
        "Your kernels over their baselines, by size",
        "Speed over the baseline's, used in the same way: in turn with it, warm; sustained; in bursts. Above 1 the "
        "kernel is faster.",
        finding(f"{len(titles)} kernels of one's own beside their baselines, by size and regime.", said),
        table,
        lambda page: curves(frame, looks, panels, page, x_label="M = N = K", shared=True),
    )


def _where(line: RegimeLine, lines: Sequence[RegimeLine]) -> str:
    """The name of a contest: its type, with its library's kind where there are several, and its bound."""
    several = len({each.library for each in lines if each.dtype == line.dtype}) > 1
    kind = line.library.partition(".gemm")[2].replace("_", " ").strip(", ") if several else ""
    return ", ".join(filter(None, [type_name(line.dtype), kind, "" if line.is_bounded else "by norms"]))


def _paint_regimes(frame: pd.DataFrame, coloured: pd.Series, others: str, page: Page) -> Figure:
    frame = frame.assign(panel=frame["contest"] + "/" + frame["regime"])
    best = frame[coloured]
    colours = dict(zip(best["rung"].unique(), zip(SERIES, MARKERS, strict=True), strict=False))
    shown = {rung: page.pick(rung, textwrap.shorten(rung, 40, placeholder="…")) for rung in colours}
    looks = {rung: Look(shown[rung], colour, marker) for rung, (colour, marker) in colours.items()}
    for place, kernel in enumerate(frame["kernel"].unique()):
        looks[f"{kernel} "] = Look("" if place else others, PUBLISHED, ".", size=4, dash="-")
    lines = pd.concat([best.assign(series=best["rung"]), frame.assign(series=frame["kernel"] + " ")])
    low = max(0.0, math.floor(10 * min([0.95, *frame["y"]]) - 0.2) / 10)
    contests = list(frame["contest"].unique()) or [""]
    panels = {
        f"{contest}/{regime}": Panel(", ".join(filter(None, [contest, words])), "", line=1.0, low=low)
        for contest in contests
        for regime, words in REGIMES.items()
    }
    options: dict[str, Any] = {"x_label": "M = N = K", "columns": 3, "shared": True, "nothing": "no narrow interval"}
    return curves(marks(lines.to_dict("records")), looks, panels, page, **options)


def _regimes_title(lines: Sequence[RegimeLine], every: Sequence[RegimeLine]) -> str:
    if not lines:
        return "the best kernel by size and regime: not measured"
    if flips := [f"{_where(line, lines)} at {line.n}" for line in lines if line.flips]:
        return f"the fastest kernel changes with its use in {listed(flips[:4])}"
    slow = max((line.n for line in every for best in line.leaders.values() if best and best[0].low <= 1), default=0)
    if ahead := [line.n for line in lines if line.n > slow]:
        return f"from {min(ahead)} on the best kernel is faster than the library in every row drawn"
    return "the same kernels lead, or tie, in turn, sustained and in bursts"


def _regimes_alt(lines: Sequence[RegimeLine]) -> str:
    if not lines:
        return "Lines of speed over the library's by size in each regime, without data: not measured."
    sentences = []
    for line in sorted(lines, key=lambda line: (not line.flips, -line.n)):
        each = [
            f"{_name(best[0].kernel)} {format_number(best[0].ratio)} {REGIMES[regime]}"
            + (f" (tied with {listed([registry.kernel(tied.kernel).rung for tied in best[1:]])})" if best[1:] else "")
            for regime, best in line.leaders.items()
            if best
        ]
        sentences.append(f"At {line.n}, {_where(line, lines)}, the best are {listed(each)}.")
    return finding(*sentences)

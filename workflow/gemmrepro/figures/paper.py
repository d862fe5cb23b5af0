"""The figures of the whole paper, and those of statements and regimes that every family may have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gemmrepro import registry
from gemmrepro.core.names import SIZE
from gemmrepro.core.text import format_number, listed
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, dots, empty, finished, marks, stacked
from gemmrepro.figures.style import (
    BAD,
    FAIR,
    FIRST,
    GOOD,
    GRID,
    INK,
    LAST,
    PAPER,
    PUBLISHED,
    SERIES,
    Drawing,
    Page,
    finding,
    origin,
)
from gemmrepro.judge.claim import ARTICLE
from gemmrepro.judge.rules import DECIDED
from gemmrepro.measure.regimes import BURST, IN_TURN, SUSTAINED
from gemmrepro.measure.rows import cubes, row_key, select
from gemmrepro.paper.claims import ClaimView
from gemmrepro.paper.regimes import Accuracies, Entry, RegimeLine, regime_lines
from gemmrepro.registry import ladders

HOLDS = {
    "reproduced": Look("reproduced", GOOD, "o"),
    "partly": Look("partly", FAIR, "D", size=5),
    "undecided": Look("undecided", FIRST, "s"),
    "not reproduced": Look("not reproduced", BAD, "X", size=6),
}
"""The verdicts on what was judged here."""

REACH, BAND = 4.0, 0.1
"""The axis of quotients ends at two to this power; the band, as a share of the published value."""


def judged(inputs: Inputs) -> list[ClaimView]:
    """The articles' statements that were judged by a measurement."""
    return [claim for claim in inputs.verdicts.claims if claim.register == ARTICLE and claim.verdict in HOLDS]


def compared(inputs: Inputs) -> list[tuple[ClaimView, float]]:
    """Those with one judged value, one published figure and a tolerance, each with measured over what is expected."""
    found = []
    for claim in judged(inputs):
        wanted = inputs.published.get(claim.id) if claim.expected is None else claim.expected
        if claim.tolerance is not None and len(claim.judged) == 1 and wanted:
            over = claim.judged[0].value / wanted
            if over > 0 and math.isfinite(over):
                found.append((claim, over))
    return found


def _quotients(axes: Axes, reach: float, page: Page) -> None:
    """An axis of powers of two."""
    ticks = [tick for tick in range(-4, 5) if abs(tick) <= reach and (tick % 2 == 0 or not page.narrow)]
    axes.set_xticks(ticks, [f"{2**tick}" if tick >= 0 else f"1/{2**-tick}" for tick in ticks])
    axes.set_xlim(-reach - 0.3, reach + 0.3)


def _held(verdict: str, log: float, reach: float) -> dict[str, Any]:
    """A mark within the axis: a triangle at its end for what lies beyond."""
    end = ">" if log > reach else "<" if log < -reach else ""
    return {"kind": verdict + end, "x": max(-reach, min(reach, log))}


def _with_ends(looks: Mapping[str, Look]) -> dict[str, Look]:
    """The looks with those of the triangles."""
    ends = {f"{kind}{end}": Look("", look.colour, end) for kind, look in looks.items() for end in "<>"}
    return {**looks, **ends}


def statements(inputs: Inputs) -> Drawing:
    """A strip of dots per article: every statement judged by a number, measured over published."""
    shown, counts = compared(inputs), Counter(claim.verdict for claim in judged(inputs))
    total = sum(counts[kind] for kind in DECIDED)
    title, alt = "Measured over published: nothing was judged", "Dot strip of measured over published values by article"
    alt += ", without data: nothing was judged."
    if total:
        title = f"Of {total} decided statements {counts['reproduced']} hold on {inputs.gpu}"
    if shown:
        middle = sorted(over for _, over in shown)[len(shown) // 2]
        alt = finding(
            f"Of {total} decided statements {counts['reproduced']} hold on {inputs.gpu}, {counts['partly']} hold in "
            f"part and {counts['not reproduced']} do not.",
            f"Of the {len(shown)} that compare one number the middle one measures {format_number(middle)} times the "
            "published value.",
        )
    caption = (
        f"The {len(shown)} of {sum(counts.values())} judged statements that compare one number: measured over "
        "published, or over what the published share of the chip makes expect here. Grey: within 10%; tolerances "
        "differ. Triangles lie beyond the axis. The other statements are orders, signs or several numbers."
    )
    table = [
        {
            "article": claim.article,
            "claim": claim.id,
            "verdict": claim.verdict,
            "measured": claim.judged[0].value,
            "unit": claim.judged[0].unit,
            "measured over published": round(over, 4),
        }
        for claim, over in shown
    ]
    return Drawing(title, caption, alt, table, lambda page: _paint_statements(shown, page))


def _paint_statements(shown: Sequence[tuple[ClaimView, float]], page: Page) -> Figure:
    apart = 1.15 * 5.2 * 2 * REACH / (page.width * 0.82 * 72)  # of a dot
    lines, last = [], dict[tuple[str, int], float]()
    for claim, over in sorted(shown, key=lambda pair: pair[1]):
        mark = _held(claim.verdict, math.log2(over), REACH)
        free = (level for level in (0, 1, -1, 2, -2) if mark["x"] - last.get((claim.article, level), -9) >= apart)
        level = next(free, 3)
        last[claim.article, level] = mark["x"]
        lines.append({"name": claim.article, "shift": 0.16 * level, **mark})

    def band(axes: Axes, _key: str) -> None:
        axes.axvspan(math.log2(1 - BAND), math.log2(1 + BAND), color=GRID, zorder=0.5)
        _quotients(axes, REACH, page)

    names = list(dict.fromkeys(claim.article for claim, _ in shown))
    options: dict[str, Any] = {"names": names, "beside": True, "finish": band, "joined": False, "height": 0.55}
    return dots(marks(lines), _with_ends(HOLDS), {"": Panel("", "measured over published", line=0)}, page, **options)


def stated(inputs: Inputs, family: str) -> Drawing:
    """A row per statement of a family's article that compares one number."""
    shown = [(claim, over) for claim, over in compared(inputs) if claim.family == family]
    article, counts = registry.family(family).article or family, Counter(claim.verdict for claim, _ in shown)
    title = f"Statements of {article} with one number: not measured"
    alt = "Dots of measured over published by statement, without data: nothing was judged."
    if shown:
        title = f"{counts['reproduced']} of {len(shown)} statements with one number hold"
        far, undecided = max(shown, key=lambda pair: abs(math.log2(pair[1])))[0], counts["undecided"]
        alt = finding(
            f"Of {len(shown)} statements of {article} with one number {counts['reproduced']} hold, {counts['partly']} "
            f"hold in part and {counts['not reproduced']} do not"
            + (f"; {undecided} {'is' if undecided == 1 else 'are'} undecided." if undecided else "."),
            f"Farthest: {_called(far)}, {_printed(far, inputs)} in print, {_here(far)} here.",
        )
    caption = (
        f"The judged statements of {article} that compare one number with a tolerance: measured over published, or "
        "over what the published share of the chip makes expect here. Grey: the tolerance. Triangles lie beyond the "
        "axis. Names are those of the claims."
    )
    table = [
        {
            "claim": claim.id,
            "published": inputs.published.get(claim.id),
            "expected here": claim.expected,
            "measured": claim.judged[0].value,
            "unit": claim.judged[0].unit,
            "tolerance": claim.tolerance,
            "verdict": claim.verdict,
        }
        for claim, _ in shown
    ]
    return Drawing(title, caption, alt, table, lambda page: _paint_stated(inputs, shown, page))


def _paint_stated(inputs: Inputs, shown: Sequence[tuple[ClaimView, float]], page: Page) -> Figure:
    reach = REACH - 1
    lines = [{"name": _called(claim), **_held(claim.verdict, math.log2(over), reach)} for claim, over in shown]
    texts = [{"name": _called(claim), "print": _printed(claim, inputs), "here": _here(claim)} for claim, _ in shown]

    def tolerances(axes: Axes, _key: str) -> None:
        for place, (claim, _) in enumerate(shown):
            tolerance = min(claim.tolerance or 0.0, 0.99)
            low, high = max(-reach, math.log2(1 - tolerance)), math.log2(1 + tolerance)
            axes.barh(place, high - low, 0.8, low, color=GRID, zorder=0.5)
        _quotients(axes, reach, page)

    columns = pd.DataFrame(texts, columns=["name", "print", "here"]).assign(panel="")
    panel = Panel("", "measured over published", line=0)
    return dots(marks(lines), _with_ends(HOLDS), {"": panel}, page, texts=columns, finish=tolerances, height=0.22)


def _called(claim: ClaimView) -> str:
    """What a statement is called: its claim's id in words, without the family."""
    return claim.id.removeprefix(f"{claim.family}.").replace(".", " ").replace("_", " ")


def _printed(claim: ClaimView, inputs: Inputs) -> str:
    """The published figure with its unit, rounded where it is long; a quotient of two where the claim compares that."""
    if len(claim.published) == 1:
        only = claim.published[0]
        long = len(only.text.partition(" ")[0]) > 8
        return f"{format_number(only.value, 4)} {only.unit}" if long else only.text
    value = inputs.published.get(claim.id)
    return "" if value is None else format_number(value)


def _here(claim: ClaimView) -> str:
    """The measured value with its unit."""
    value = claim.judged[0]
    return f"{value.text}{f' {value.unit}' if value.unit not in ('', 'ratio', 'count') else ''}"


KINDS = {
    **HOLDS,
    "consistent": Look("consistent", SERIES[7]),
    "contradictory": Look("contradictory", SERIES[3]),
    "not measured": Look("not measured", PUBLISHED),
}
"""Verdicts, from the left; what another statement covers or no run can test is left out."""


def articles(inputs: Inputs) -> Drawing:
    """A stacked bar per article: how many of its statements hold."""
    counts: dict[str, Counter[str]] = {}
    for claim in inputs.verdicts.claims:
        if claim.register == ARTICLE and claim.verdict in KINDS:
            counts.setdefault(claim.article, Counter())[claim.verdict] += 1
    decided = {article: sum(found[kind] for kind in DECIDED) for article, found in counts.items()}
    shares = {article: counts[article]["reproduced"] / total for article, total in decided.items() if total >= 5}
    title = "Verdicts by article: nothing was judged"
    alt = "Stacked bars of verdicts by article, without data: nothing was judged."
    if shares:
        order = sorted(shares, key=lambda name: -shares[name])
        best, worst = max(shares, key=lambda name: shares[name]), min(shares, key=lambda name: shares[name])
        title = (
            f"{best} fares best, {worst} worst: {shares[best]:.0%} and {shares[worst]:.0%} of decided statements hold"
        )
        each = listed([f"{name} {shares[name]:.0%}" for name in order])
        alt = finding(f"Share of the decided statements that hold, by article: {each}.")
    caption = (
        "Statements of each article by verdict. Consistent and contradictory are judged by the article's own numbers "
        "alone. Left out: statements that another one covers, and those that no run here can test."
    )
    table = [{"article": article, **{kind: found[kind] for kind in KINDS}} for article, found in counts.items()]
    parts = [{"name": name, "kind": kind, "x": found[kind]} for name, found in counts.items() for kind in found]
    paint = lambda page: stacked(marks(parts), KINDS, page, x_label="statements", counts=True)  # noqa: E731
    return Drawing(title, caption, alt, table, paint)


def stages(inputs: Inputs) -> Drawing:
    """The pipeline: a row per stage with what it proves and how many leave it."""
    kernels = sum(len(registry.kernels(family)) for family in inputs.measured)
    rows = sum(len(measured.summary) for measured in inputs.measured.values())
    samples = sum(int(measured.summary["samples"].fillna(0).sum()) for measured in inputs.measured.values())
    experiments = sum(len(one.rows) for each in inputs.results.values() for one in each.values())
    count_judged = sum(claim.register == ARTICLE for claim in inputs.verdicts.claims)
    numeric = "Results stay within a stated bound of a", "higher-precision reference, on hard inputs"
    tolerance = "Each statement is held to a tolerance", "that was declared with it"
    shown = (
        ("build", "The binary belongs to its source:", "its key hashes all that determines it", kernels, "kernels"),
        ("static gate", "The machine code has the article's", "instructions, and spills nothing", 0, ""),
        ("numerical gate", *numeric, 0, ""),
        ("sweep", "Kernel and baseline alternate, so that", "drift cancels in their ratio", rows, "rows"),
        ("experiments", "What times cannot show: errors, latencies,", "allocations, clocks", experiments, "rows"),
        ("verdicts", *tolerance, count_judged, "statements"),
        ("report", "Each number leads to its samples, source,", "machine code and command", 0, ""),
    )
    title = "No kernel is timed before it passes two gates"
    title += f"; {samples:,} samples stand behind the {rows:,} rows" if samples else ""
    caption = (
        "The stages in order. A kernel that fails a gate is not timed, and a row of another build than today's "
        "supports no statement. Counts are this run's; a row is a kernel at a size, with a toolkit and a cache."
    )
    alt = finding(
        f"Seven stages from source to page: {listed([name for name, *_ in shown])}.",
        f"{kernels} kernels give {rows:,} rows, on which {count_judged} statements are judged." if rows else "",
    )
    table = [
        {"stage": name, "proves": f"{first} {second}", "count": count or None, "of": unit}
        for name, first, second, count, unit in shown
    ]
    return Drawing(title, caption, alt, table, lambda page: _paint_stages(shown, page))


def _paint_stages(shown: Sequence[tuple[str, str, str, int, str]], page: Page) -> Figure:
    high, right = page.pick(0.44, 0.66), page.width - 0.12
    figure = plt.figure(figsize=(page.width, high * len(shown) + 0.08))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, page.width), ylim=(high * len(shown), -0.08))
    axes.axis("off")
    for place, (name, first, second, count, unit) in enumerate(shown):
        top, box = place * high, high - 0.14
        for width, face, edge in ((page.width - 0.08, PAPER, GRID), (0.06, FIRST, "none")):
            axes.add_patch(Rectangle((0.04, top), width, box, facecolor=face, edgecolor=edge))
        if place + 1 < len(shown):
            axes.plot([0.44] * 2, [top + box, top + high], color=PUBLISHED, linewidth=1.4)
        line = top + box * page.pick(0.5, 0.2)
        axes.text(0.18, line, name, va="center", fontweight="bold")
        counted = f"{count:,} {unit}" if unit else ""
        axes.text(right, line, counted, va="center", ha="right", color=FIRST, fontweight="bold")
        proves = [(0.18, 0.5, first), (0.18, 0.78, second)] if page.narrow else [(1.55, 0.5, f"{first} {second}")]
        for left, down, text in proves:
            axes.text(left, top + box * down, text, va="center", fontsize=page.letters - page.pick(0.5, 0))
    return figure


def row(inputs: Inputs) -> Drawing:
    """One row's life: its samples by round, the quotients of neighbours, and the interval that tables give."""
    if (found := _life(inputs)) is None:
        alt = "Times and ratios of the samples of one row, of which nothing was measured."
        return Drawing(
            "One row's life: not measured", "No samples are known.", alt, [], lambda page: _paint_row(None, page)
        )
    name, line, samples, whence = found
    medians = samples.groupby("round")["ratio"].median()
    value, low, high = (format_number(float(line[end])) for end in ("ratio", "ratio_ci_low", "ratio_ci_high"))
    caption = (
        f"{name} at {SIZE}, warm. First the times of kernel and cuBLAS, which alternate; strokes are the rounds' "
        "medians. Then cuBLAS's time over that of the kernel beside it. Last what tables give: the median of the "
        "rounds' medians, in the hull of a Student t interval over rounds and of the samples' order statistics. "
        f"{whence}"
    )
    alt = finding(
        f"{len(samples)} samples in {len(medians)} rounds become one row: ratio {value}, 95% interval {low} to {high}.",
        f"Its rounds' medians are {', '.join(format_number(float(each)) for each in medians)}.",
    )
    title = f"{len(samples)} samples in {len(medians)} rounds make one row: {value} [{low}, {high}]"
    table = samples[["round", "kernel ms", "cuBLAS ms", "ratio"]].to_dict("records")
    return Drawing(
        title, caption, alt, table, lambda page: _paint_row(found, page), [row_key(line)], line["status"] == "stale"
    )


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
            rounds = samples.groupby("round")
            spread = rounds.cumcount() / rounds["round"].transform("size") * 0.64 - 0.3
            samples = samples.assign(round=rounds.ngroup() + 1, place=rounds.ngroup() + spread)
            times = {"kernel ms": samples["time_us"] / 1e3, "cuBLAS ms": samples["baseline_us"] / 1e3}
            samples = samples.assign(**times, ratio=samples["baseline_us"] / samples["time_us"])
            return ladders.label(kernel), rows.iloc[0], samples, origin(measured)
    return None


def _paint_row(found: tuple[str, pd.Series, pd.DataFrame, str] | None, page: Page) -> Figure:
    shape, inches = page.pick(((1, 3), 2.9), ((3, 1), 5.9))
    figure, grid = plt.subplots(*shape, figsize=(page.width, inches), squeeze=False)
    times, quotients, result = grid.flat
    for axes, title in zip(grid.flat, ("samples, ms", "cuBLAS over kernel", "the row's ratio"), strict=True):
        axes.set_title(title)
        if found is None:
            empty(axes)
    if found is None:
        return figure
    _, line, samples, _ = found
    looks = {"kernel ms": Look("kernel", size=4), "cuBLAS ms": Look("cuBLAS", INK, "s", size=4)}
    for axes, columns in ((times, looks), (quotients, {"ratio": Look("", PUBLISHED)})):
        for column, look in columns.items():
            place = samples["place"]

            style = {"color": look.colour, "marker": look.marker, "s": 9, "linewidth": 0, "legend": False}
            sns.scatterplot(x=place, y=samples[column], ax=axes, **style)
            medians = samples.groupby("round")[column].median()
            axes.hlines(medians, medians.index - 1.4, medians.index - 0.6, color=LAST, linewidth=1.4, zorder=1.5)
        axes.set(
            xlabel="round", ylabel="", xticks=range(len(medians)), xticklabels=[str(each) for each in medians.index]
        )
        axes.grid(axis="x", visible=False)
    times.set_ylim(0)
    value, low, high = (float(line[end]) for end in ("ratio", "ratio_ci_low", "ratio_ci_high"))
    result.hlines(medians, -0.15, 0.15, color=LAST, linewidth=2)
    result.vlines(1, low, high, color=FIRST, linewidth=2.2)
    sns.scatterplot(x=[1], y=[value], color=FIRST, s=49, ax=result, zorder=3)
    for end, side in ((value, "center"), (low, "top"), (high, "bottom")):
        where = {"textcoords": "offset points", "va": side, "color": FIRST}
        result.annotate(format_number(end), (1, end), (7, 0), **where)
    margin = 0.25 * (high - low) or 0.01
    result.set(xlim=(-0.5, 2.1), ylim=(min(low, *medians) - margin, max(high, *medians) + margin))
    result.set_xticks([0, 1], ["rounds", "row"])
    result.grid(axis="x", visible=False)
    return finished(
        figure,
        page,
        [*(look.handle(True) for look in looks.values()), Look("median of a round", LAST, "", dash="-").handle(True)],
    )


REGIMES = {
    IN_TURN: Look("in turn", SERIES[0], "o"),
    SUSTAINED: Look("sustained", SERIES[1], "D"),
    BURST: Look("in bursts", SERIES[2], "^"),
}


def regimes(inputs: Inputs, family: str) -> Drawing:
    """A row per type and size: the best kernel in turn, sustained and in bursts, and the energy of a product."""
    lines: list[RegimeLine] = []
    if family in inputs.measured and family in inputs.regimes:
        measured, alone = {family: inputs.measured[family]}, {family: inputs.regimes[family]}
        every = regime_lines(measured, alone, Accuracies.of(inputs.results))
        lines = [line for line in every if line.is_alone and any(line.winners.values())]
    caption = (
        "Speed over the library's, used in the same way: in turn with it; sustained, alone on a hot GPU; in bursts "
        "from rest. At each size the best of the kernels that compete, the first of those that tie, and the energy of "
        "a product sustained, of the kernel and of the library. Nothing is drawn where the best one's interval is "
        "wider than 5%. Kernels whose bounds are by norms compete apart."
    )
    table = []
    for line in lines:
        cells: dict[str, Any] = {"n": line.n, "type": line.dtype, "kernels": line.kernels}
        for regime, look in REGIMES.items():
            best = line.winners[regime]
            cells |= {f"best {look.label}": best and best.kernel, f"ratio {look.label}": best and best.ratio}
        hot = line.winners[SUSTAINED]
        table.append({**cells, "joules": hot and hot.joules, "library's joules": hot and hot.library_joules})
    title, alt = _regimes_title(lines), _regimes_alt(lines)
    return Drawing(title, caption, alt, table, lambda page: _paint_regimes(lines, page))


def _where(line: RegimeLine, lines: Sequence[RegimeLine]) -> str:
    """What a line is called: its size, with its type and its baseline's kind where there are several, and its bound."""
    several = len({each.baseline for each in lines if each.dtype == line.dtype}) > 1
    kind = line.baseline.partition(".gemm")[2].replace("_", " ").strip() if several else ""
    named = ", ".join(filter(None, [str(line.n), kind, "" if line.is_bounded else "by norms"]))
    return f"{line.dtype}, {named}" if len({each.dtype for each in lines}) > 1 else f"n = {named}"


def _paint_regimes(lines: Sequence[RegimeLine], page: Page) -> Figure:
    found, texts = [], []
    for line in lines:
        name, hot = {"name": _where(line, lines)}, line.winners[SUSTAINED]
        found += [{**name, "kind": regime, "x": best.ratio} for regime, best in line.winners.items() if best]
        winners = {look.label: line.winners[regime] for regime, look in REGIMES.items()}
        rungs = {label: best.rung if best else "\N{EN DASH}" for label, best in winners.items()}
        if page.narrow:
            rungs = {"": ", ".join(dict.fromkeys(rungs.values()))}
        texts.append({**name, **rungs, "library's J": _joules(hot, library=True), "J": _joules(hot)})
    panel = Panel("", "speed over the library's", line=1.0, low=_floor([mark["x"] for mark in found]))
    texts_of = pd.DataFrame(texts).assign(panel="") if texts else None
    return dots(marks(found), REGIMES, {"": panel}, page, texts=texts_of)


def _floor(values: Sequence[Any]) -> float:
    """Where an axis of ratios begins: a little below the least, at most 0.9."""
    return max(0.0, math.floor(10 * min([0.95, *values]) - 0.2) / 10)


def _joules(winner: Entry | None, library: bool = False) -> str:
    value = None if winner is None else winner.library_joules if library else winner.joules
    return "" if value is None else format_number(value, 3)


def _regimes_title(lines: Sequence[RegimeLine]) -> str:
    if not lines:
        return "The best kernel by size and regime: not measured"
    if flips := [_where(line, lines).removeprefix("n = ") for line in lines if line.flips]:
        return f"Which kernel is best at {listed(flips)} depends on how it is used"
    hot = [line.winners[SUSTAINED] for line in lines]
    saved = [1 - each.joules / each.library_joules for each in hot if each and each.joules and each.library_joules]
    ahead = all(winner.ratio > 1 for line in lines for winner in line.winners.values() if winner)
    if saved and min(saved) > 0.05 and ahead:
        return f"Faster than the library however it is used, on at least {min(saved):.0%} less energy"
    return "The same kernel is best in turn, sustained and in bursts"


def _regimes_alt(lines: Sequence[RegimeLine]) -> str:
    if not lines:
        return "Dots of the speed of the best kernel over the library's in each regime, without data: not measured."
    sentences = []
    for line in sorted(lines, key=lambda line: (not line.flips, -line.n)):
        each = [
            f"{winner.rung} {format_number(winner.ratio)} {REGIMES[regime].label}"
            for regime, winner in line.winners.items()
            if winner
        ]
        sentences.append(f"At {_where(line, lines).removeprefix('n = ')} the best are {listed(each)}.")
    return finding(*sentences)

"""F7, `issuing`: of each level of the ladder the cycles that issue a multiply-add, another instruction, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from gemmrepro.figures.findings.parts import Inputs, column, legend_above, names_down
from gemmrepro.figures.style import FIRST, GRID, INK, PAPER, SERIES, Drawing, despine, empty, finding, origin
from gemmrepro.figures.widths import Page, both
from gemmrepro.measure.rows import select
from gemmrepro.registry import ladders

FAMILY, SIZE, WARP = "ladder", 4096, 32
ISSUING = "smsp__issue_active.avg.pct_of_peak_sustained_active"
INSTRUCTIONS = "smsp__inst_executed.sum"
MULTIPLY_ADDS = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
OTHER = SERIES[5]


@dataclass(frozen=True)
class Level:
    """A level: shares of the cycles of a scheduler in which it issues a multiply-add, and anything else."""

    name: str
    useful: float
    other: float
    stale: bool

    @property
    def issuing(self) -> float:
        return self.useful + self.other


def draw(inputs: Inputs) -> Drawing:
    """A stacked bar per level."""
    shown = levels(inputs)
    wide, narrow = both(lambda page: _paint(shown, page))
    caption = (
        f"Cycles of a warp scheduler at {SIZE}, by hardware counters: those that issue a multiply-add (FFMA), another "
        "instruction, or none. An SM can issue an FFMA per scheduler and cycle, so the first part is the share of its "
        f"fp32 rate. {origin(inputs.measured[FAMILY])}"
    )
    table: list[dict[str, object]] = [
        {
            "level": one.name,
            "FFMA": one.useful,
            "other instructions": one.other,
            "none": 1 - one.issuing,
            "stale": one.stale,
        }
        for one in shown
    ]
    return Drawing(wide, _title(shown), caption, _alt(shown), [], table, any(one.stale for one in shown), narrow)


def levels(inputs: Inputs) -> list[Level]:
    """The levels whose counters were read."""
    measured = inputs.measured[FAMILY]
    rows = select(measured.counters, n=SIZE, toolkit=measured.toolkit)
    found = []
    for kernel in ladders.steps(FAMILY):
        own = select(rows, kernel=kernel.id).drop_duplicates("metric").set_index("metric")
        if not {ISSUING, INSTRUCTIONS, MULTIPLY_ADDS} <= set(own.index):
            continue
        values = own["value"].astype(float)
        issuing = values[ISSUING] / 100
        useful = issuing * values[MULTIPLY_ADDS] / WARP / values[INSTRUCTIONS]
        found.append(Level(ladders.label(kernel), useful, issuing - useful, bool((own["status"] == "stale").any())))
    return found


def _paint(shown: Sequence[Level], page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, 0.245 * max(3, len(shown)) + 1.1))
    for place, one in enumerate(shown):
        left = 0.0
        for share, colour in ((one.useful, FIRST), (one.other, OTHER), (1 - one.issuing, GRID)):
            axes.barh(
                place, share, 0.74, left, color=colour, edgecolor=PAPER, linewidth=0.6, alpha=0.4 if one.stale else 1
            )
            left += share
    names_down(axes, [one.name for one in shown])
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("cycles of a scheduler")
    if not shown:
        empty(axes, "no counters were read")
    despine(figure.axes, "left")
    handles = [
        Line2D([], [], linestyle="", marker="s", markersize=7, color=colour, label=label)
        for colour, label in ((FIRST, "issue an FFMA"), (OTHER, "issue another"), (GRID, "issue none"))
    ]
    figure.tight_layout(rect=(0, 0, page.pick(0.92, 0.86), legend_above(figure, handles, int(page.pick(3, 2)))))
    column(axes, page.pick(1.1, 1.24), "FFMA", {i: f"{one.useful:.0%}" for i, one in enumerate(shown)}, page, FIRST)
    axes.tick_params(colors=INK)
    return figure


def _ends(shown: Sequence[Level]) -> tuple[Level, Level]:
    return shown[0], max(shown, key=lambda one: one.useful)


def _title(shown: Sequence[Level]) -> str:
    if not shown:
        return "What a scheduler issues, level by level: not measured"
    first, best = _ends(shown)
    return (
        f"Of a scheduler's cycles {first.useful:.0%} issue a multiply-add at {first.name}, "
        f"{best.useful:.0%} at {best.name}"
    )


def _alt(shown: Sequence[Level]) -> str:
    if not shown:
        return "Stacked bars of what a scheduler issues by level, without data: no counters were read."
    first, best = _ends(shown)
    idle = max(shown, key=lambda one: 1 - one.issuing)
    wordy = max(shown, key=lambda one: one.other)
    return finding(
        f"{first.name} issues a multiply-add in {first.useful:.0%} of the cycles, {best.name} in {best.useful:.0%}.",
        f"{idle.name} idles most ({1 - idle.issuing:.0%}); {wordy.name} spends most on other instructions "
        f"({wordy.other:.0%}).",
    )

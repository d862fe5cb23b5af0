"""F3, `stages`: the pipeline, and what each of its stages proves of what passes through it."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gemmrepro import registry
from gemmrepro.core.text import listed
from gemmrepro.figures.findings.parts import Inputs
from gemmrepro.figures.style import FIRST, GRID, INK, PAPER, PUBLISHED, Drawing, finding
from gemmrepro.figures.widths import Page, both
from gemmrepro.judge.claim import ARTICLE


@dataclass(frozen=True)
class Stage:
    """A stage: its name, what it proves in two lines at most, and how many of what leave it."""

    name: str
    proves: tuple[str, str]
    count: int
    unit: str

    @property
    def counted(self) -> str:
        return f"{self.count:,} {self.unit}" if self.unit else ""


def draw(inputs: Inputs) -> Drawing:
    """A row per stage."""
    shown = stages(inputs)
    wide, narrow = both(lambda page: _paint(shown, page))
    kernels, rows, samples = shown[0].count, shown[3].count, _samples(inputs)
    title = "No kernel is timed before it passes two gates"
    if samples:
        title += f"; {samples:,} samples stand behind the {rows:,} rows"
    caption = (
        "The stages in order. A kernel that fails a gate is not timed, and a row of another build than today's "
        "supports no statement. Counts are this run's; a row is a kernel at a size, with a toolkit and a cache."
    )
    names = listed([stage.name for stage in shown])
    alt = finding(
        f"Seven stages from source to page: {names}.",
        f"{kernels} kernels give {rows:,} rows, on which {shown[5].count} statements are judged." if rows else "",
    )
    table: list[dict[str, object]] = [
        {"stage": stage.name, "proves": " ".join(stage.proves), "count": stage.count or None, "of": stage.unit}
        for stage in shown
    ]
    return Drawing(wide, title, caption, alt, [], table, False, narrow)


def stages(inputs: Inputs) -> list[Stage]:
    """The stages, with the counts of this run."""
    kernels = sum(len(registry.kernels(family)) for family in inputs.measured)
    rows = sum(len(measured.summary) for measured in inputs.measured.values())
    experiments = sum(len(one.rows) for each in inputs.results.values() for one in each.values())
    statements = sum(claim.register == ARTICLE for claim in inputs.verdicts.claims)
    return [
        Stage(
            "build", ("The binary belongs to its source:", "its key hashes all that determines it"), kernels, "kernels"
        ),
        Stage("static gate", ("The machine code has the article's", "instructions, and spills nothing"), 0, ""),
        Stage(
            "numerical gate",
            ("Results stay within a stated bound of a", "higher-precision reference, on hard inputs"),
            0,
            "",
        ),
        Stage("sweep", ("Kernel and baseline alternate, so that", "drift cancels in their ratio"), rows, "rows"),
        Stage(
            "experiments", ("What times cannot show: errors, latencies,", "allocations, clocks"), experiments, "rows"
        ),
        Stage(
            "verdicts", ("Each statement is held to a tolerance", "that was declared with it"), statements, "statements"
        ),
        Stage("report", ("Each number leads to its samples, source,", "machine code and command"), 0, ""),
    ]


def _samples(inputs: Inputs) -> int:
    return sum(int(measured.summary["samples"].fillna(0).sum()) for measured in inputs.measured.values())


def _paint(shown: list[Stage], page: Page) -> Figure:
    high = page.pick(0.44, 0.66)
    figure = plt.figure(figsize=(page.width, high * len(shown) + 0.08))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, page.width), ylim=(high * len(shown), -0.08))
    axes.axis("off")
    left, right = 0.04, page.width - 0.04
    for place, stage in enumerate(shown):
        top = place * high
        box = Rectangle((left, top), right - left, high - 0.14, facecolor=PAPER, edgecolor=GRID, linewidth=1.0)
        axes.add_patch(box)
        axes.add_patch(Rectangle((left, top), 0.06, high - 0.14, facecolor=FIRST, edgecolor="none"))
        if place + 1 < len(shown):
            axes.plot([left + 0.4] * 2, [top + high - 0.14, top + high], color=PUBLISHED, linewidth=1.4)
        _write(axes, stage, top, high - 0.14, page)
    return figure


def _write(axes: Axes, stage: Stage, top: float, high: float, page: Page) -> None:
    """A stage's texts: side by side in the wide figure, what it proves below its name in the narrow one."""
    right, small = page.width - 0.12, page.letters - page.pick(0.5, 0)
    first = top + high * page.pick(0.5, 0.2)
    axes.text(0.18, first, stage.name, va="center", color=INK, fontweight="bold")
    axes.text(right, first, stage.counted, va="center", ha="right", color=FIRST, fontweight="bold")
    if page.narrow:
        for line, text in enumerate(stage.proves):
            axes.text(0.18, top + high * (0.5 + 0.28 * line), text, va="center", color=INK, fontsize=small)
    else:
        axes.text(1.55, first, " ".join(stage.proves), va="center", color=INK, fontsize=small)

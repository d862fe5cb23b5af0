"""`regimes_<family>`: the best kernel by size in turn, sustained and in bursts, and the energy of a product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemmrepro.core.text import format_number, listed
from gemmrepro.figures.findings.parts import Inputs, column, names_down
from gemmrepro.figures.style import INK, PUBLISHED, SERIES, Drawing, despine, empty, finding
from gemmrepro.figures.widths import Page, both, legend, names_above
from gemmrepro.measure.regimes.rules import BURST, IN_TURN, SUSTAINED
from gemmrepro.paper.regimes import RegimeLine, Winner, regime_lines

LOOKS = {IN_TURN: (SERIES[0], "o"), SUSTAINED: (SERIES[1], "D"), BURST: (SERIES[2], "^")}
WORDS = {IN_TURN: "in turn", SUSTAINED: "sustained", BURST: "in bursts"}


def draw(inputs: Inputs, family: str) -> Drawing:
    """A row per size."""
    lines: list[RegimeLine] = []
    if family in inputs.measured and family in inputs.regimes:
        lines = regime_lines({family: inputs.measured[family]}, {family: inputs.regimes[family]})
    wide, narrow = both(lambda page: _paint(lines, page))
    caption = (
        "Speed over the library's, used in the same way: in turn with it; sustained, alone on a hot GPU; in bursts "
        "from rest. At each size the best of the kernels that were measured in all three, and the energy of a product "
        "sustained, of the kernel and of the library. Two takes differ by about 1%, so smaller leads decide nothing."
    )
    return Drawing(wide, _title(lines), caption, _alt(lines), [], _table(lines), False, narrow)


def _paint(lines: Sequence[RegimeLine], page: Page) -> Figure:
    figure, axes = plt.subplots(figsize=(page.width, page.pick(0.36, 0.6) * max(2, len(lines)) + 1.15))
    for place, line in enumerate(lines):
        found = {regime: winner for regime, winner in line.winners.items() if winner}
        ratios = [winner.ratio for winner in found.values()]
        axes.plot([min(ratios), max(ratios)], [place, place], color=PUBLISHED, linewidth=1.0, zorder=2)
        for regime, winner in found.items():
            colour, marker = LOOKS[regime]
            axes.plot(winner.ratio, place, marker, color=colour, markersize=6, zorder=3)
    names = [str(line.n) for line in lines]
    names_down(axes, names)
    axes.axvline(1, color=INK, linewidth=0.9, zorder=1)
    axes.set_xlabel("speed over the library's")
    axes.margins(x=0.12)
    despine(figure.axes, "left")
    if not lines:
        empty(axes, "not measured")
    elif page.narrow:
        names_above(axes, [f"n = {line.n}: {_winners(line)}" for line in lines], [_energy(line) for line in lines])
    else:
        axes.set_ylabel("n")
    handles = [
        Line2D([], [], linestyle="", color=colour, marker=marker, markersize=6, label=WORDS[regime])
        for regime, (colour, marker) in LOOKS.items()
    ]
    figure.tight_layout(rect=(0, 0, page.pick(0.51, 1), legend(figure, handles, page)))
    if lines and not page.narrow:
        _columns(lines, page, figure)
    return figure


def _columns(lines: Sequence[RegimeLine], page: Page, figure: Figure) -> None:
    """The winners by regime, and the joules of a product, right of the panel."""
    (axes,) = figure.axes
    shown = {WORDS[regime]: {i: _rung(line.winners[regime]) for i, line in enumerate(lines)} for regime in LOOKS}
    for place, (head, cells) in zip((1.22, 1.46, 1.7), shown.items(), strict=True):
        column(axes, place, head, cells, page)
    column(axes, 1.92, "J", {i: _joules(line.winners[SUSTAINED]) for i, line in enumerate(lines)}, page)
    libraries = {i: _joules(line.winners[SUSTAINED], library=True) for i, line in enumerate(lines)}
    column(axes, 2.2, "library's J", libraries, page, PUBLISHED)


def _rung(winner: Winner | None) -> str:
    return winner.rung if winner else "\N{EN DASH}"


def _joules(winner: Winner | None, library: bool = False) -> str:
    value = None if winner is None else winner.library_joules if library else winner.joules
    return "" if value is None else format_number(value, 3)


def _winners(line: RegimeLine) -> str:
    """``H13`` if one kernel wins in all regimes, else each regime's, in their order."""
    rungs = [_rung(line.winners[regime]) for regime in LOOKS]
    return rungs[0] if len(set(rungs)) == 1 else ", ".join(rungs)


def _energy(line: RegimeLine) -> str:
    """The joules of a product, sustained; empty where they were not counted."""
    own, library = (_joules(line.winners[SUSTAINED], library=of) for of in (False, True))
    return f"{own} J, library {library} J" if own and library else ""


def _title(lines: Sequence[RegimeLine]) -> str:
    if not lines:
        return "The best kernel by size and regime: not measured"
    if flips := [str(line.n) for line in lines if line.flips]:
        return f"Which kernel is best at {listed(flips)} depends on how it is used"
    hot = [line.winners[SUSTAINED] for line in lines]
    saved = [
        1 - winner.joules / winner.library_joules
        for winner in hot
        if winner and winner.joules and winner.library_joules
    ]
    if (
        saved
        and min(saved) > 0.05
        and all(winner.ratio > 1 for line in lines for winner in line.winners.values() if winner)
    ):
        return f"Faster than the library however it is used, on at least {min(saved):.0%} less energy"
    return "The same kernel is best in turn, sustained and in bursts"


def _alt(lines: Sequence[RegimeLine]) -> str:
    if not lines:
        return "Dots of the speed of the best kernel over the library's in each regime, without data: not measured."
    sentences = []
    for line in sorted(lines, key=lambda line: (not line.flips, -line.n)):
        each = [
            f"{winner.rung} {format_number(winner.ratio)} {WORDS[regime]}"
            for regime, winner in line.winners.items()
            if winner
        ]
        sentences.append(f"At {line.n} the best are {listed(each)}.")
    return finding(*sentences)


def _table(lines: Sequence[RegimeLine]) -> list[dict[str, object]]:
    return [_line(line) for line in lines]


def _line(line: RegimeLine) -> dict[str, object]:
    cells: dict[str, object] = {"n": line.n, "type": line.dtype, "kernels": line.kernels}
    winners: Mapping[str, Winner | None] = line.winners
    for regime, words in WORDS.items():
        winner = winners[regime]
        cells |= {f"best {words}": winner and winner.kernel, f"ratio {words}": winner and winner.ratio}
    hot = winners[SUSTAINED]
    return cells | {"joules": hot and hot.joules, "library's joules": hot and hot.library_joules}

"""The bf16 ladder against cuBLAS at three sizes."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gemmrepro.core.text import format_number, listed
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, dots, marks
from gemmrepro.figures.ladder import SIZES, made_here
from gemmrepro.figures.style import MARKERS, SERIES, Drawing, finding, origin
from gemmrepro.measure.rows import cubes, select
from gemmrepro.registry import ladders

PAPER = {"hopper": ()}
LOW = 0.8
"""The axis begins here; what is slower is written at its edge."""


def hopper(inputs: Inputs) -> Drawing:
    """A row per step, a mark per size: the ratios to cuBLAS near 1."""
    measured = inputs.measured["hopper"]
    rows = cubes(select(measured.summary, cache="warm", toolkit=measured.toolkit))
    rows = rows[rows["ratio"].notna() & rows["n"].isin(SIZES)].sort_values("n")
    labels = {kernel.id: ladders.label(kernel) for kernel in ladders.steps("hopper")}
    steps = [{"name": labels[each["kernel"]], **each} for each in made_here(ladders.steps("hopper"), rows)]
    words = _words(pd.DataFrame(steps, columns=["name", "n", "ratio"]), list(labels.values()))
    caption = (
        "Speed relative to cuBLAS timed in turn with the step, bf16, warm, with 95% intervals. The axis begins at "
        f"{LOW}; steps below it are written at its edge. {origin(measured)}"
    )
    table = [
        {"level": one["name"], "size": one["n"], "ratio": one["ratio"], "low": one["low"], "high": one["high"]}
        | {"stale": one["stale"]}
        for one in steps
    ]
    near = [one for one in steps if one["ratio"] >= LOW]
    frame = marks(
        [
            {key: one[key] for key in ("name", "high", "stale")}
            | {"kind": str(one["n"]), "x": one["ratio"], "low": max(LOW, one["low"])}
            | {"shift": 0.22 * (SIZES.index(one["n"]) - 1)}
            for one in near
        ]
    )
    looks = {str(size): Look(str(size), SERIES[i], MARKERS[i], size=5) for i, size in enumerate(SIZES)}
    below = {one["name"]: "" for one in steps}
    for one in steps:
        if one["ratio"] < LOW:
            below[one["name"]] += f"{', ' if below[one['name']] else ''}{format_number(one['ratio'])}"
    texts = pd.DataFrame({"panel": "", "name": below.keys(), f"below {LOW}": below.values()})
    panel = Panel("", "speed relative to cuBLAS", line=1.0, low=LOW)
    options: dict[str, object] = {"names": list(labels.values()), "texts": texts, "joined": False, "height": 0.33}
    paint = lambda page: dots(frame, looks, {"": panel}, page, **options)  # noqa: E731
    return Drawing(words[0], caption, words[1], table, paint, [one["key"] for one in steps], any(frame["stale"]))


def _words(steps: pd.DataFrame, labels: list[str]) -> tuple[str, str]:
    """Title and alternative text: the step whose slowest size is fastest."""
    if steps.empty:
        alt = "Ratios to cuBLAS by step of the bf16 ladder, without data: nothing was measured."
        return "The bf16 ladder against cuBLAS: not measured", alt
    least = steps.groupby("name", sort=False)["ratio"].min()
    best, first = str(least.idxmax()), least.iloc[0]
    own: Mapping[int, float] = steps[steps["name"] == best].set_index("n")["ratio"].to_dict()
    verb = "matches or beats" if min(own.values()) >= 0.995 else "comes within reach of"
    ends = f"{format_number(min(own.values()))} to {format_number(max(own.values()))}"
    at = ", ".join(f"{format_number(ratio)} at {size}" for size, ratio in own.items())
    alt = finding(
        f"The bf16 ladder climbs from {format_number(first)} of cuBLAS to {at} ({best}).",
        f"{(least < LOW).sum()} of {len(labels)} steps stay below {LOW} at some size.",
    )
    return f"{best} {verb} cuBLAS in turn at {listed([*map(str, own)])}: {ends}", alt

"""FP64 from INT8 residues against DGEMM by size and number of moduli, and its error beside DGEMM's."""

from __future__ import annotations

import pandas as pd

from gemmrepro.core.text import format_number
from gemmrepro.experiments.tables import Panel
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.kit import Look, curves, marks
from gemmrepro.figures.ladder import made_here
from gemmrepro.figures.style import DASHES, INK, MARKERS, SERIES, Drawing, finding, origin, written
from gemmrepro.measure.rows import cubes, select
from gemmrepro.paper.regimes import bounds_elements
from gemmrepro.registry import ladders

PAPER = {"residues": ()}
COUNTS = {"_14": "14 moduli", "": "15 moduli", "_16": "16 moduli"}
CERTIFIED = "every element bounded"
PANELS = {
    "speed": Panel("speed relative to DGEMM", "", line=1.0),
    "error": Panel("largest error over DGEMM's", "", log=True, line=1.0),
}


def residues(inputs: Inputs) -> Drawing:
    """Of each number of moduli the fastest kernel by size, and the largest error by the operands' exponents."""
    measured = inputs.measured["crt"]
    frame = pd.concat([_speeds(inputs), _errors(inputs)], ignore_index=True)
    caption = (
        "Left, against DGEMM timed in turn, warm: at each size the fastest kernel of each number of moduli, and of "
        "those whose bound holds for every element. Right: the largest error at 1024 over DGEMM's, for exponents that "
        f"spread with φ. {origin(measured)}"
    )
    columns = {"panel": "quantity", "series": "scheme", "x": "size or φ", "y": "value", "level": "kernel"}
    table = frame.reindex(columns=columns).rename(columns=columns).to_dict("records")
    names = [*COUNTS.values(), CERTIFIED]
    looks = {name: Look(name, SERIES[i], MARKERS[i], size=5, dash=DASHES[i]) for i, name in enumerate(names[:3])}
    looks[CERTIFIED] = Look(CERTIFIED, INK, "D", size=5, dash="-")
    title, alt = _words(frame)
    axes = {"x_label": {"speed": "M = N = K", "error": "φ"}, "x_scale": {"speed": "log2", "error": "linear"}}
    paint = lambda page: curves(frame, looks, PANELS, page, handles=True, **axes)  # noqa: E731
    return Drawing(title, caption, alt, table, paint, list(frame["key"].dropna()), bool(frame["stale"].any()))


def _speeds(inputs: Inputs) -> pd.DataFrame:
    """The fastest kernel of each kind at each size."""
    measured, kernels = inputs.measured["crt"], ladders.compared("crt")
    rows = cubes(select(measured.summary, cache="warm", toolkit=measured.toolkit or ""))
    found = pd.DataFrame(made_here(kernels, rows[rows["ratio"].notna()]))
    if found.empty:
        return marks([])
    bounded = {kernel.id for kernel in kernels if bounds_elements(kernel)}
    ends = {
        name: next((words for end, words in COUNTS.items() if end and name.endswith(end)), COUNTS[""])
        for name in found["kernel"]
    }
    found["series"] = [CERTIFIED if name in bounded else ends[name] for name in found["kernel"]]
    best = found.loc[found.groupby(["series", "n"], sort=False)["ratio"].idxmax()].sort_values("n")
    return marks(best.assign(panel="speed", x=best["n"], y=best["ratio"]).to_dict("records"))


def _errors(inputs: Inputs) -> pd.DataFrame:
    """The largest error over DGEMM's by φ, of each number of moduli."""
    if (results := inputs.experiment("ozaki", "accuracy")) is None:
        return marks([])
    rows = select(results.rows, law="spread", status="current")
    base = select(rows, kernel="cublas.gemm").set_index("phi")["err_scaled"].astype(float)
    found = []
    for end, words in COUNTS.items():
        own = select(rows, kernel=f"crt.fused{end}").drop_duplicates("phi").set_index("phi")["err_scaled"].astype(float)
        over = (own / base).dropna().sort_index()
        found += [{"panel": "error", "series": words, "x": phi, "y": value} for phi, value in over.items()]
    return marks(found)


def _words(frame: pd.DataFrame) -> tuple[str, str]:
    speed = frame[(frame["panel"] == "speed") & ~frame["stale"]]
    if speed.empty:
        alt = "Speed of FP64 from residues relative to DGEMM by size, of which nothing was measured."
        return "FP64 from residues against DGEMM: not measured", alt
    title, last = "FP64 from INT8 residues against DGEMM, by size and moduli", speed[speed["x"] == speed["x"].max()]
    ratios = last.set_index("series")["y"]
    if CERTIFIED in ratios and ratios[CERTIFIED] > 1:
        at = f"{format_number(ratios[CERTIFIED])} of DGEMM at {last['x'].max():.0f}"
        title = f"With every element bounded, residues run at {at}"
    ends = ", ".join(f"{format_number(y)} ({name})" for name, y in ratios.items())
    worst = frame[frame["panel"] == "error"].groupby("series", sort=False)["y"].max()
    errors = ", ".join(f"{name} {written(y)}" for name, y in worst.items())
    return title, finding(
        f"At {last['x'].max():.0f} the speed relative to DGEMM is {ends}.",
        f"The largest error over DGEMM's: {errors}." if errors else "",
    )

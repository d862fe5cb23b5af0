"""Draws a family's figures, or the paper's own: each as SVG in two widths, with its numbers as CSV, and as JSON.

An SVG is the same, byte for byte, for the same rows: ids are salted with a constant and no date is written. Its text is
text, in fonts as wide as the one it was laid out with.
"""

from __future__ import annotations

import io
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gemmrepro import experiments
from gemmrepro.core.files import load_module, read_json, write_atomic, write_json
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.errors import UserError
from gemmrepro.experiments import paper_figures as names_of
from gemmrepro.experiments import results
from gemmrepro.experiments import tables as article
from gemmrepro.figures import declared, ladder, paper
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.style import NARROW, WIDE, Drawing, Page, set_style, slim
from gemmrepro.judge import claims
from gemmrepro.judge.carrying import CEILING_FAMILY
from gemmrepro.measure.rows import Measurements, load, load_regimes
from gemmrepro.paper.claims import read_verdicts

Painter = Callable[[Inputs], Drawing]


def of_family(family: str, name: str) -> Painter | None:
    """The function that draws the figure `name` that the family's figures.py defines; None where it defines none."""
    path = names_of.path_of(family)
    if not path.is_file() or name not in names_of.defined(path):
        return None
    return getattr(_module(path), name, None)


@cache
def _module(path: Path) -> ModuleType:
    return load_module(f"gemmrepro_figures_{path.parent.name}", path)


def painters(family: str) -> dict[str, Painter]:
    """The painters of a family's figures, in order: those its registry names, of its tables, of its experiments.
    Raises UserError if a figure that the registry names is nowhere defined, or two have one name."""
    found: dict[str, Painter] = {}
    printed, of_experiments = article.declared(family), experiments.figures(family)
    for name in experiments.figure_names(family):
        if name in found:
            raise UserError(f"two figures of {family} are called {name}; rename one.")
        if name in printed:
            found[name] = partial(declared.of_table, table=printed[name])
        elif name in of_experiments:
            found[name] = partial(_of_experiment, *of_experiments[name])
        elif painter := of_family(family, name) or (ladder.ratio if name == "ratio" else None):
            found[name] = painter
        else:
            raise UserError(
                f"family {family} names the figure {name}, which is not ratio and not defined in "
                f"{names_of.path_of(family)}."
            )
    return found


def _of_experiment(experiment: Any, figure: Any, inputs: Inputs) -> Drawing:
    found = inputs.results.get(inputs.family, {}).get(experiment.name) or results.nothing(experiment)
    return declared.draw(inputs.family, figure, found)


def of_paper(families: Sequence[str]) -> dict[str, Painter]:
    """The painters of the paper's own figures, of these families."""
    found: dict[str, Painter | None] = {name: getattr(paper, name) for name in names_of.WHOLE}
    for family, names in names_of.of_families(families).items():
        found |= {name: of_family(family, name) for name in names}
    for family in families:
        for name in names_of.on_page_of(family):
            found[name] = partial(paper.stated if name.startswith("stated_") else paper.regimes, family=family)
    return {name: painter for name, painter in found.items() if painter}


def draw(inputs: Inputs, names: Sequence[str] = ()) -> dict[str, Drawing]:
    """The figures of `inputs.family`, or the paper's own; all, or those named. Raises UserError for an unknown one."""
    known = painters(inputs.family) if inputs.family else of_paper(list(inputs.measured))
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"there is no figure {', '.join(unknown)}; known figures: {', '.join(known)}.")
    return {name: known[name](inputs) for name in names or known}


def svg_of(drawing: Drawing, page: Page = WIDE) -> str:
    """A drawing for a page as slim SVG text with the finding as description."""
    set_style(page)
    figure, buffer = drawing.paint(page), io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return slim(buffer.getvalue(), drawing.title, drawing.alt)


def picture_of(drawing: Drawing) -> bytes:
    """A drawing as PNG, 1200 pixels wide, for what shows a link to the report."""
    set_style(WIDE)
    figure, buffer = drawing.paint(WIDE), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=1200 / figure.get_figwidth(), facecolor="white", bbox_inches=None)
    plt.close(figure)
    return buffer.getvalue()


def csv_of(drawing: Drawing) -> str:
    """The numbers that a drawing shows, as CSV with a line of headings."""
    frame = pd.DataFrame(list(drawing.table), dtype=object).drop(columns="keys", errors="ignore")
    return frame.to_csv(index=False, lineterminator="\n")


def write(inputs: Inputs, name: str, drawing: Drawing, out: Path) -> None:
    """Write a figure in both widths, its numbers, and what the report says of it."""
    folder = inputs.family or names_of.FOLDER
    rows = drawing.shown or (inputs.own if inputs.family else inputs.verdicts)
    for page, ending in ((WIDE, "svg"), (NARROW, "narrow.svg")):
        write_atomic(out / f"{name}.{ending}", svg_of(drawing, page))
    write_atomic(out / f"{name}.csv", csv_of(drawing))
    if f"{folder}/{name}" == names_of.PICTURE:
        (out / f"{name}.png").write_bytes(picture_of(drawing))
    about: dict[str, Any] = {
        "figure": name,
        "family": folder,
        "title": drawing.title,
        "caption": drawing.caption,
        "alt": drawing.alt,
    }
    about |= {
        "command": f"{SNAKEMAKE} --force results/figures/{folder}/{name}.svg",
        "columns": list(dict.fromkeys(key for row in drawing.table for key in row if key not in ("stale", "keys"))),
        "table": _json_value(list(drawing.table)),
        "stale": bool(drawing.stale),
        "source": rows.source,
        "gpu": rows.gpu,
    }
    write_json(out / f"{name}.json", about)


def _json_value(value: Any) -> Any:
    """JSON has no NaN: empty cells become null, numpy's numbers Python's."""
    if isinstance(value, dict):
        return {key: _json_value(cell) for key, cell in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(cell) for cell in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def read(arguments: Namespace) -> Inputs:
    """The inputs of a family's figures, or those of the whole paper."""
    family, verdicts = arguments.family or "", arguments.verdicts
    families = arguments.families.split(",") if verdicts else list(dict.fromkeys([family, CEILING_FAMILY]))
    measured = {name: load(arguments.measure, name) for name in families}
    found = {name: results.load(arguments.experiments, name) for name in families}
    if not verdicts:
        return Inputs(measured, found, family=family)
    regimes = {name: load_regimes(arguments.regimes, name) for name in families}
    published = {claim.id: claim.value for claim in claims.load(tuple(families), judged=True)}
    return Inputs(measured, found, regimes, read_verdicts(verdicts), published)


def own_step(options: Namespace) -> int:
    found = [read_json(path, "the result", "run the target 'own' again") for path in options.results]
    measured = pd.DataFrame([row for each in found for row in each["rows"]])
    about: dict[str, Any] = next((each["gpu"] for each in found if "gpu" in each), {})
    drawn = Measurements("own", measured, pd.DataFrame(), {"source": "live", "gpu": about})
    write(Inputs({"own": drawn}, family="own"), "ratio", paper.own(found), options.out)
    return 0


def main(options: Namespace) -> int:
    inputs = read(options)
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.figures.split(",") if options.figures else []
    for name, drawing in draw(inputs, names).items():
        write(inputs, name, drawing, options.out)
    return 0

"""Everything the report is made of, read once."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.files import read_json
from gemmrepro.core.names import SNAKEMAKE
from gemmrepro.core.paths import ROOT
from gemmrepro.experiments import results
from gemmrepro.experiments.results import Results
from gemmrepro.judge.evidence import load_gates
from gemmrepro.measure.rows import Measurements, load
from gemmrepro.paper.figures.catalogue import figure_names
from gemmrepro.paper.inline_svg import Glyphs, inline_svg
from gemmrepro.paper.text import anchor, relative

TEMPLATES = ROOT / "reports" / "template"


@dataclass(frozen=True)
class Inputs:
    """Everything the paper is made of."""

    verdicts: Mapping[str, Any]
    measured: Mapping[str, Measurements]
    gates: Mapping[str, Mapping[str, Any]]
    builds: Mapping[str, Mapping[str, Mapping[str, Any]]]
    figures: Mapping[str, Sequence[dict[str, Any]]]
    glyphs: Glyphs
    locks: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]
    families: Sequence[str]
    out: Path
    measure_dir: Path
    build_dir: Path
    gates_dir: Path
    experiments: Mapping[str, Mapping[str, Results]] = field(default_factory=dict)


def read_figures(folder: Path, family: str, glyphs: Glyphs, out: Path) -> list[dict[str, Any]]:
    """The family's figures as inline SVG with their captions; one that was not drawn has no SVG."""
    found = []
    for name in figure_names(family):
        svg, about = folder / family / f"{name}.svg", folder / family / f"{name}.json"
        entry: dict[str, Any] = {
            "name": name,
            "anchor": f"figure-{anchor(family)}-{name}",
            "title": name,
            "caption": "This figure was not drawn.",
            "command": f"{SNAKEMAKE} --force results/figures/{family}/{name}.svg",
            "svg": None,
            "link": relative(about, out) if about.is_file() else None,
            "columns": [],
            "table": [],
        }
        if svg.is_file() and about.is_file():
            entry |= read_json(about, "the figure's sidecar", "draw the figures again")
            entry["svg"] = inline_svg(
                svg.read_text(), f"{anchor(family)}-{name}", entry["title"], entry.get("alt", ""), glyphs
            )
        found.append(entry)
    return found


def read_inputs(arguments: argparse.Namespace) -> Inputs:
    """Read every input. Raises UserError where a needed one is missing or wrong."""
    verdicts = read_json(arguments.verdicts, "the verdicts", "make them with gemmrepro.verdicts")
    config = read_json(arguments.config, "the configuration", "write it, or let the workflow do so")
    families = [name for name in config.get("families") or registry.family_names()]
    kernels = [kernel for name in families for kernel in registry.kernels(name)]
    builds: dict[str, dict[str, Mapping[str, Any]]] = {}
    for kernel in kernels:
        for toolkit in kernel.toolkits:
            path = arguments.build / toolkit / f"{kernel.id}.json"
            if path.is_file():
                builds.setdefault(kernel.id, {})[toolkit] = read_json(path, "the build record", "build it again")
    locks = [
        read_json(path, "the image's lock file", "build the image again")
        for path in (sorted(arguments.images.glob("*.lock.json")) if arguments.images.is_dir() else [])
    ]
    glyphs = Glyphs()
    return Inputs(
        verdicts=verdicts,
        measured={name: load(arguments.measure, name) for name in families},
        gates=load_gates(arguments.gates, [kernel.id for kernel in kernels]),
        builds=builds,
        figures={name: read_figures(arguments.figures, name, glyphs, arguments.out) for name in families},
        glyphs=glyphs,
        locks=locks,
        config=config,
        families=families,
        out=arguments.out,
        measure_dir=arguments.measure,
        build_dir=arguments.build,
        gates_dir=arguments.gates,
        experiments={name: results.load(arguments.experiments, name) for name in families},
    )

"""The inputs of the report, read once."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build.record import Build, find_build
from gemmrepro.core.files import read_json
from gemmrepro.core.paths import ROOT
from gemmrepro.experiments import results
from gemmrepro.experiments.results import Results
from gemmrepro.judge.evidence import load_gates
from gemmrepro.measure.rows import Measurements, Regimes, load, load_regimes
from gemmrepro.paper.bundle import Files
from gemmrepro.paper.claims import VerdictsView, read_verdicts
from gemmrepro.paper.figure_views import FigureView, read_figures, read_findings
from gemmrepro.paper.gates import load_sanitizers
from gemmrepro.paper.gpus import Gpu, read_others
from gemmrepro.paper.machine import highest
from gemmrepro.paper.provenance import ShownRows

TEMPLATES = ROOT / "reports" / "template"


@dataclass(frozen=True)
class Inputs:
    """The inputs of the report.

    Attributes:
        measured, figures, experiments, regimes: by family; `experiments` then by name.
        gates: gate verdicts by kernel id.
        builds: build records by kernel id and toolkit.
        findings: the paper's own figures by name.
        sanitized: what compute-sanitizer said, by kernel id.
        locks: the lock files of the images, empty without containers.
        others: other GPUs whose recordings were judged by themselves.
        files: what the pages link to.
    """

    verdicts: VerdictsView
    measured: Mapping[str, Measurements]
    gates: Mapping[str, Mapping[str, Any]]
    builds: Mapping[str, Mapping[str, Build]]
    figures: Mapping[str, Sequence[FigureView]]
    findings: Mapping[str, FigureView]
    locks: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]
    families: Sequence[str]
    rows: ShownRows
    files: Files
    measure_dir: Path
    build_dir: Path
    gates_dir: Path
    experiments: Mapping[str, Mapping[str, Results]] = field(default_factory=dict)
    regimes: Mapping[str, Regimes] = field(default_factory=dict)
    regimes_dir: Path | None = None
    sanitized: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    others: Sequence[Gpu] = ()

    @cached_property
    def ceilings(self) -> dict[str, float]:
        """TFLOP/s of the GPU's fastest loops by type, which no row may exceed."""
        return highest(self.measured)


def read_inputs(arguments: argparse.Namespace) -> Inputs:
    """Read every input. Raises UserError if a required one is missing or corrupt."""
    config = read_json(arguments.config, "the configuration", "write it, or let the workflow do so")
    families = [name for name in config.get("families") or registry.family_names()]
    kernels = [kernel for name in families for kernel in registry.kernels(name)]
    builds: dict[str, dict[str, Build]] = {}
    for kernel in kernels:
        for toolkit in kernel.platform.toolkits:
            if record := find_build(kernel.id, arguments.build, toolkit):
                builds.setdefault(kernel.id, {})[toolkit] = record
    measured = {name: load(arguments.measure, name) for name in families}
    found = {name: results.load(arguments.experiments, name) for name in families}
    files = Files()
    files.add(arguments.verdicts, "data/verdicts.json")
    regimes = {name: load_regimes(arguments.regimes, name) for name in families}
    rows = ShownRows.of(measured, found, regimes, {kernel.id for kernel in kernels})
    figures = {name: read_figures(arguments.figures, name, files) for name in families}
    findings = read_findings(arguments.figures, families, files)
    locks = sorted(arguments.images.glob("*.lock.json"))
    return Inputs(
        verdicts=read_verdicts(arguments.verdicts, rows),
        measured=measured,
        gates=load_gates(arguments.gates, [kernel.id for kernel in kernels]),
        builds=builds,
        figures={name: [rows.linked(figure, name) for figure in drawn] for name, drawn in figures.items()},
        findings={name: rows.linked(figure, "") for name, figure in findings.items()},
        locks=[read_json(path, "the image's lock file", "build the image again") for path in locks],
        rows=rows,
        config=config,
        families=families,
        files=files,
        measure_dir=arguments.measure,
        build_dir=arguments.build,
        gates_dir=arguments.gates,
        experiments=found,
        regimes=regimes,
        regimes_dir=arguments.regimes,
        sanitized=load_sanitizers(arguments.recorded, families),
        others=read_others(arguments.gpus, families),
    )

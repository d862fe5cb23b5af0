"""Experiments: measurements of a family that are not sweeps, declared in ``kernels/<family>/experiments.py``."""

from gemmrepro.experiments.declarations import (
    FILE,
    RECORDINGS,
    Column,
    Dots,
    Experiment,
    Lines,
    beside,
    declared,
    experiment,
    figure_names,
    figures,
    fingerprint,
    path_of,
    source_paths,
    with_settings,
)

__all__ = [
    "FILE",
    "RECORDINGS",
    "Column",
    "Dots",
    "Experiment",
    "Lines",
    "beside",
    "declared",
    "experiment",
    "figure_names",
    "figures",
    "fingerprint",
    "path_of",
    "source_paths",
    "with_settings",
]

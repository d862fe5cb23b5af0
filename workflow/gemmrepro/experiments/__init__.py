"""Experiments: measurements of a family that are not sweeps, such as how far sums err.

- `declarations`: what an experiment is, and which ones ``kernels/<family>/experiments.py`` declares. What a family may
  import is handed on from there by this package.
- `clocks`: what is checked of clocks that kernels read themselves.
- `tables`: the article's tables as figures, which ``kernels/<family>/tables.py`` declares.
- `run`: the stage that runs them on the GPU or the CPU at hand.
- `recorded`: the stage that takes them from a recording instead.
- `results`: reads what either left, for verdicts, figures and report.
"""

from gemmrepro.experiments.declarations import (
    FILE,
    RECORDINGS,
    Clocks,
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
from gemmrepro.experiments.tables import Mark, Measured, Numbers, Panel, Printed, Table, mark, quotient

__all__ = [
    "FILE",
    "RECORDINGS",
    "Clocks",
    "Column",
    "Dots",
    "Experiment",
    "Lines",
    "Mark",
    "Measured",
    "Numbers",
    "Panel",
    "Printed",
    "Table",
    "beside",
    "declared",
    "experiment",
    "figure_names",
    "figures",
    "fingerprint",
    "mark",
    "path_of",
    "quotient",
    "source_paths",
    "with_settings",
]

"""Experiments: measurements of a family that are not sweeps, such as how far sums err.

``kernels/<family>/experiments.py`` holds ``EXPERIMENTS``; importing it needs no GPU and no CUDA package. An experiment
is split into points, each measured as a whole, so that an interrupted run resumes. Its rows are one CSV: the columns
``kernel`` and ``toolkit``, those that it declares, ``build_key`` and ``status``. A row belongs to one binary, or to a
library, whose toolkit is "library". An experiment whose `device` is "cpu" needs no GPU.

`run` is the stage, `results` reads what it or a recording left, `tables` has the article's tables as figures.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.core.files import load_module
from gemmrepro.core.text import listed as listed
from gemmrepro.core.trees import source_hash
from gemmrepro.errors import UserError
from gemmrepro.experiments import tables
from gemmrepro.experiments.tables import Mark, Measured, Numbers, Panel, Printed, Table, mark, quotient

FILE = "experiments.py"

RECORDINGS = "experiments"
"""The folder of a family's recordings that holds its experiments."""

BEFORE, AFTER = ("kernel", "toolkit"), ("build_key", "status")
"""Columns of every experiment, on either side of its own."""


@dataclass(frozen=True)
class Column:
    """One column of an experiment's rows; `low` and `high` name the columns that hold the ends of its interval."""

    name: str
    meaning: str
    unit: str = ""
    kind: Literal["text", "integer", "number"] = "number"
    low: str | None = None
    high: str | None = None


def with_interval(column: Column) -> tuple[Column, ...]:
    """The column, and the two that hold the ends of its 95% interval."""
    ends = ((str(column.low), "lower"), (str(column.high), "upper"))
    return column, *(Column(name, f"{end} end of its 95% interval", column.unit, column.kind) for name, end in ends)


Says = Callable[[Any], str]
"""The finding of a figure from its current values, or "" where they do not bear it out: of lines a frame of y by panel
and x, with a column for each series; of dots one of x by name, with a column for each panel; of a table one of marks
with panel, series, x, published and measured. What looks up a value that was not measured finds nothing."""


@dataclass(frozen=True)
class Lines:
    """A figure of an experiment: column `y` against `x`, a panel for each of `panels`, a line for each of `series`.

    Attributes:
        title: the subject, which stands where the rows do not bear out what `says` states.
        panel: the column by which rows are divided into panels; `panels` maps its values to the panels' titles.
        series: kernels (or libraries) with their labels, in order; several ids joined by commas are one line.
        x_scale: "log2", "log" or "linear"; `places` has the x of each value of a column of text.
        low: the least x that is drawn.
        is_linear: values begin at zero, on a linear axis.
        caption: what is drawn, in one or two sentences; where the rows come from is added.
        zero: the text of a panel whose values are all zero, which a logarithmic axis cannot show.
        reference: the label of a series; instead of lines a table of heat has the others over it, red above 1.
    """

    name: str
    title: str
    x: str
    x_label: str
    y: str
    y_label: str
    panel: str
    panels: Mapping[Any, str]
    series: Mapping[str, str]
    caption: str = ""
    zero: str = "no error"
    x_scale: str = "log2"
    places: Mapping[str, float] = field(default_factory=dict)
    low: float = 0.0
    is_linear: bool = False
    says: Says | None = None
    reference: str = ""


@dataclass(frozen=True)
class Dots:
    """A figure of an experiment: a table of heat of column `x`, a line per category, a column per panel.

    Attributes:
        panel: the column by which rows are divided into columns; `panels` maps its values to their titles.
        category: the same for lines, from the top. One of the two is ``kernel``, for kernels or libraries.
        where: the cells that a row must have to be drawn, by column.
        fair: values outside of these two are red.
        caption: what is drawn, in one or two sentences; where the rows come from is added.
    """

    name: str
    title: str
    x: str
    x_label: str
    category: str
    categories: Mapping[str, str]
    panels: Mapping[str, str]
    fair: tuple[float, float]
    panel: str = "kernel"
    where: Mapping[str, Any] = field(default_factory=dict)
    says: Says | None = None
    caption: str = ""


@dataclass(frozen=True)
class Experiment:
    """A declared measurement.

    Attributes:
        kernels: ids of the kernels that it runs, of any family; one that is not built, failed its gate or cannot run on
            this GPU is left out and reported.
        libraries: ids of baselines, or Python packages with the way they are used (``torch.compile``).
        parameters: everything that decides what is measured, as JSON values.
        version: incremented when the same parameters come to mean something else; older rows are then stale.
        sources: files in the same folder that implement the measurement; rows measured with another text are stale.
        settings: how long it measures, as JSON values. The configuration may change them; rows stay comparable.
        packages: required Python packages; if one is missing, nothing is run.
        impossible: why a recorded row cannot be, by the GPU's highest SM clock in MHz (0: unknown); "" if it can.
        follows: columns that a recorded row's other filled cells determine, as functions of those, numbers as numbers.
        folder: where it is declared; filled in when it is read.
        points: the parts that it is split into, each a flat dict; takes `parameters`.
        measure: measures one point; gets a gemmrepro.experiments.run.Context and yields rows made by its `row`.
    """

    name: str
    title: str
    question: str
    kernels: tuple[str, ...]
    columns: tuple[Column, ...]
    points: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
    measure: Callable[[Any, Mapping[str, Any]], Iterable[dict[str, Any]]]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    version: int = 1
    figures: tuple[Lines | Dots, ...] = ()
    sources: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: Literal["gpu", "cpu"] = "gpu"
    packages: tuple[str, ...] = ()
    impossible: Callable[[Mapping[str, str], float], str] | None = None
    follows: Mapping[str, Callable[[Mapping[str, Any]], float]] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def header(self) -> tuple[str, ...]:
        return (*BEFORE, *(column.name for column in self.columns), *AFTER)

    def column(self, name: str) -> Column:
        """Its column called `name`. Raises UserError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(column.name for column in self.columns)
        raise UserError(f"the experiment {self.name} has no column '{name}'; its columns: {known}.")


def path_of(family: str) -> Path:
    """Where a family declares its experiments; the file need not be there."""
    return paths.KERNELS_DIR / family / FILE


@cache
def _declared(path: Path) -> tuple[Experiment, ...]:
    module = load_module(f"gemmrepro_experiments_{path.parent.name}", path)
    names: set[str] = set()
    for experiment in module.EXPERIMENTS:
        where = f"{path}: experiment {experiment.name}"
        if experiment.name in names:
            raise UserError(f"{where} is declared twice; rename one.")
        names.add(experiment.name)
        if len(set(experiment.header)) != len(experiment.header):
            always = ", ".join((*BEFORE, *AFTER))
            raise UserError(f"{where} has a column twice, or one of {always}, which every experiment has.")
        for figure in experiment.figures:
            own = (figure.y,) if isinstance(figure, Lines) else (figure.category, *figure.where)
            for name in {figure.x, figure.panel, *own} - {"kernel"}:
                experiment.column(name)
    return tuple(replace(experiment, folder=path.parent) for experiment in module.EXPERIMENTS)


def beside(family: str, file: str) -> Any:
    """A fresh module from ``kernels/<family>/<file>``, one of an experiment's `sources`."""
    path = paths.KERNELS_DIR / family / file
    return load_module(f"gemmrepro_{family}_{path.stem}", path)


def source_paths(experiment: Experiment) -> tuple[Path, ...]:
    """Where its `sources` are."""
    return tuple(experiment.folder / name for name in experiment.sources) if experiment.folder else ()


_MOST = 1_000_000
"""The largest value of a setting, which is a count or seconds."""


def with_settings(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """`experiment` with some of its settings replaced.
    Raises UserError if it has no such setting, or the value is none that `_of_its_type` allows."""
    if unknown := sorted(set(changes) - set(experiment.settings)):
        known = ", ".join(experiment.settings) or "none"
        raise UserError(f"the experiment {experiment.name} has no setting '{unknown[0]}'; its settings: {known}.")
    for name, value in changes.items():
        if not _of_its_type(value, experiment.settings[name]):
            default = json.dumps(experiment.settings[name])
            what = "some of" if default.startswith("[") else "a value of the type of"
            most = f", and at most {_MOST}" if isinstance(value, int | float) and value > _MOST else ""
            given = json.dumps(value, default=str)
            raise UserError(f"{experiment.name}.{name} cannot be {given}; give {what} its default, {default}{most}.")
    return replace(experiment, settings={**experiment.settings, **changes})


def _of_its_type(value: Any, default: Any) -> bool:
    """Whether `value` is of the default's type, positive and not too large, or a list of items of a default list."""
    if isinstance(default, list | tuple):
        # An item counts by its type, too: True is 1 to Python.
        known = [(type(item), item) for item in default]
        return isinstance(value, list | tuple) and bool(value) and all((type(item), item) in known for item in value)
    if isinstance(default, bool) or isinstance(value, bool) or not isinstance(default, int | float):
        return type(value) is type(default)
    return isinstance(value, int if isinstance(default, int) else int | float) and 0 < value <= _MOST


def declared(family: str) -> tuple[Experiment, ...]:
    """The experiments of a family, in the order of its file; none where it has no such file.
    Raises UserError if a name occurs twice, or a figure names a column that is not there."""
    path = path_of(family)
    return _declared(path) if path.is_file() else ()


def experiment(family: str, name: str) -> Experiment:
    """The experiment of `family` called `name`. Raises UserError if there is none."""
    for experiment in declared(family):
        if experiment.name == name:
            return experiment
    known = ", ".join(experiment.name for experiment in declared(family)) or "none"
    raise UserError(f"family {family} has no experiment '{name}'; its experiments: {known}.")


def figures(family: str) -> dict[str, tuple[Experiment, Lines | Dots]]:
    """The figures of a family's experiments by name."""
    return {figure.name: (experiment, figure) for experiment in declared(family) for figure in experiment.figures}


def figure_names(family: str) -> tuple[str, ...]:
    """Every figure of a family: those its registry names, those of the article's tables, those of its experiments."""
    return (*registry.family(family).figures, *tables.declared(family), *figures(family))


def fingerprint(experiment: Experiment) -> str:
    """16 hex digits over name, version, parameters, columns and sources; rows with another fingerprint are stale."""
    parts: list[Any] = [experiment.name, experiment.version, experiment.parameters, experiment.header]
    # Without the declaring file, which also holds prose.
    parts += [source_hash(path) for path in source_paths(experiment)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

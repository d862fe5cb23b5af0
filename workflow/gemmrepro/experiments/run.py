"""Run a family's experiments on the GPU at hand, with the binaries that the build stage made and the gates passed.

    python -m gemmrepro experiments --family ada --toolkits cuda12,cuda13 --build results/build \\
        --gates results/gates --journal results/sweep/experiments/ada --out results/experiments/ada
    python -m gemmrepro experiments --family ada --name accumulation ...      (only this one)

Writes ``<name>.csv`` and ``<name>.json`` for each experiment (see gemmrepro.experiments) once it is complete. Finished
points are kept in the journal, so that an interrupted experiment resumes where it stopped; a point counts only for the
same GPU, driver, runs and libraries, the same declaration, and the same text of the file that declares it.
"""

import contextlib
import datetime
import hashlib
import importlib
import importlib.metadata
import math
import re
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmrepro import experiments, registry
from gemmrepro.build import record
from gemmrepro.core.files import csv_text, read_json, write_atomic, write_json
from gemmrepro.core.journal import UNFINISHED, Journal, card_of, sayer
from gemmrepro.core.machine import cpu, git_commit, libraries
from gemmrepro.core.names import LIBRARY, TOOLKITS
from gemmrepro.errors import GIB, UserError, shortage
from gemmrepro.experiments import Experiment
from gemmrepro.gpu import baselines, cublas
from gemmrepro.gpu.device import Session, exclusive, open_gpu
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.measure.plan import Skipped
from gemmrepro.measure.prepare import NotTimeable, is_built, load_timeable
from gemmrepro.operands import Operands
from gemmrepro.registry.keys import run_key
from gemmrepro.registry.requirements import requirement

say = sayer("experiment")


@dataclass(frozen=True)
class Subject:
    """A kernel's binary by one toolkit, or a library, whose build key is its version."""

    kernel: str
    toolkit: str
    build_key: str


def run_keys(subjects: Iterable[Subject]) -> dict[str, str]:
    """The run keys of kernels on the usual shapes, by id and toolkit (``crt.fused cuda13``)."""
    return {
        f"{subject.kernel} {subject.toolkit}": run_key(registry.kernel(subject.kernel), subject.build_key)
        for subject in subjects
        if subject.toolkit != LIBRARY
    }


class Context:
    """The context of an experiment's `measure`.

    Attributes:
        session: the open GPU, whose stream is CuPy's current one; None where the experiment runs on the CPU.
        subjects: what can run here: kernels by toolkit in the experiment's order, then libraries.
        left_out: the subjects without a row at the current point, and why.
    """

    def __init__(
        self,
        session: Session | None,
        experiment: Experiment,
        loaded: Mapping[Subject, Loaded],
        versions: Mapping[str, str],
    ) -> None:
        self.session, self.experiment = session, experiment
        self.parameters, self.settings = experiment.parameters, experiment.settings
        self._loaded = dict(loaded)
        self.left_out: list[Skipped] = []
        self.subjects = (*loaded, *(Subject(name, LIBRARY, version) for name, version in versions.items()))

    def kernel(self, subject: Subject) -> registry.Kernel:
        return registry.kernel(subject.kernel)

    def bind(self, subject: Subject, operands: Operands) -> Callable[[], None]:
        """A function that launches `subject` once on `operands`, asynchronously on the session's stream.
        cuBLAS's GEMM is plain cublasGemmEx with the library's own heuristic, not the fastest algorithm, which the sweep
        searches for; of 8-bit floats, which cublasLt alone multiplies, it is the fastest."""
        if subject.toolkit == LIBRARY:
            return self.bind_library(subject.kernel, operands)
        return self._loaded[subject].bind(operands)

    def bind_library(self, name: str, operands: Operands) -> Callable[[], None]:
        """The same for a library, whether or not it is among the subjects."""
        assert self.session is not None, "on the CPU there is no GPU's library"
        if name == "cublas.gemm" and operands.problem.dtype_in not in cublas.LT_ONLY:
            return cublas.opened(self.session).gemm_ex(operands)
        return baselines.baseline(name).bind(self.session, operands)

    def loaded(self, subject: Subject) -> Loaded:
        """The loaded binary of a kernel, to make its launches one at a time."""
        return self._loaded[subject]

    def leave_out(self, subject: Subject, reason: str) -> None:
        self.left_out.append(Skipped(subject.kernel, subject.toolkit, reason))

    def row(self, subject: Subject, **cells: Any) -> dict[str, Any]:
        """A row about `subject`. Raises UserError unless cells and declared columns match and numbers are finite."""
        names = {column.name for column in self.experiment.columns}
        if names != set(cells):
            wrong = ", ".join(sorted(names ^ set(cells)))
            raise UserError(f"experiment {self.experiment.name}: a row and the declared columns differ by {wrong}.")
        bad = [name for name, cell in cells.items() if isinstance(cell, float) and not math.isfinite(cell)]
        if bad:
            raise UserError(
                f"experiment {self.experiment.name}: {subject.kernel} by {subject.toolkit} gave {bad[0]} = "
                f"{cells[bad[0]]} at {cells}; a row holds finite numbers, or None where one does not apply."
            )
        about = {"kernel": subject.kernel, "toolkit": subject.toolkit, "build_key": subject.build_key}
        return {**about, **cells, "status": "current"}


Gathered = tuple[dict[Subject, Loaded], dict[str, str], list[Skipped]]
"""The parts of an experiment that can run here: binaries, versions of libraries; and what is left out."""


def gather(
    session: Session | None, experiment: Experiment, toolkits: Sequence[str], build: Path, gates: Path
) -> Gathered:
    """Load the parts of an experiment that can run here: none if one of its packages is missing."""
    for package in experiment.packages:
        if reason := unimportable(package):
            return {}, {}, [Skipped(package, LIBRARY, reason)]
    skipped: list[Skipped] = []
    loaded: dict[Subject, Loaded] = {}
    for kernel in map(registry.kernel, experiment.kernels):
        for toolkit in (name for name in toolkits if name in kernel.platform.toolkits):
            try:
                binary = _load(session, kernel, toolkit, build, gates)
                loaded[Subject(kernel.id, toolkit, binary.build_key)] = binary
            except NotTimeable as reason:
                skipped.append(Skipped(kernel.id, toolkit, str(reason)))
    versions: dict[str, str] = {}
    for name in experiment.libraries:
        try:
            versions[name] = version_of(session, name)
        except UserError as error:
            skipped.append(Skipped(name, LIBRARY, str(error)))
    return loaded, versions, skipped


def _load(session: Session | None, kernel: registry.Kernel, toolkit: str, build: Path, gates: Path) -> Loaded:
    """Load a binary. Raises NotTimeable where it was not built or judged, or must not or cannot run here."""
    if session is None:
        raise NotTimeable("it needs a GPU")
    if not requirement(kernel, session.gpu.compute_capability):
        if not is_built(kernel, toolkit, build):
            raise NotTimeable("it was not built")
        if not (gates / f"{kernel.id}.json").is_file():
            raise NotTimeable("its gate was not run")
    return load_timeable(session, kernel, toolkit, build, gates)


def unimportable(package: str) -> str:
    """Why a Python package cannot be imported here, as one that is installed may be; empty where it can."""
    try:
        importlib.import_module(package)
    except (ImportError, OSError, RuntimeError) as error:
        return f"the Python package {package} cannot be imported ({error}); install it for {sys.executable}"
    return ""


def version_of(session: Session | None, name: str) -> str:
    """The version of a baseline, or of the Python package that `name` begins with: "torch 2.11.0" for torch.compile."""
    if session is not None and name in baselines.BASELINES:
        return baselines.baseline(name).version(session)
    package = name.split(".", 1)[0]
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"the Python package {package} is not installed; install it, or leave {name} out.") from None


def entry_name(experiment: Experiment, point: Mapping[str, Any]) -> str:
    """The name of a point's journal entry: readable, and unique by a digest."""
    text = ".".join(str(value) for value in point.values())
    digest = hashlib.sha256(repr(sorted(point.items())).encode()).hexdigest()[:8]
    return f"{experiment.name}.{re.sub(r'[^A-Za-z0-9.]+', '-', text)[:60]}.{digest}"


def run(
    session: Session | None,
    family: str,
    experiment: Experiment,
    toolkits: Sequence[str],
    build: Path,
    gates: Path,
    journal: Path,
    out: Path,
    say: Callable[[str], None],
    deadline: float | None = None,
) -> bool:
    """Run one experiment and write its files. Returns False if `deadline` passed before it was complete."""
    loaded, versions, skipped = gather(session, experiment, toolkits, build, gates)
    for entry in skipped:
        say(f"{experiment.name}: not run: {entry.kernel} {entry.toolkit}: {entry.reason}")
    context = Context(session, experiment, loaded, versions)
    machine = session.gpu.machine if session else {"gpu": cpu()["name"], "driver": "no GPU"}
    declared = {"declared": experiments.fingerprint(experiment)}
    source = hashlib.sha256(experiments.path_of(family).read_bytes()).hexdigest()
    identity = {**machine, **declared, "settings": context.settings, "source": source}
    identity["runs"] = run_keys(context.subjects)
    entries, points = Journal(journal, machine, say), list(experiment.points(experiment.parameters))
    documents: list[Mapping[str, Any]] = []
    for number, point in enumerate(points if context.subjects else (), 1):
        name = entry_name(experiment, point)
        document = entries.get(name, identity)
        if document is None:
            if deadline is not None and time.monotonic() > deadline:
                return False
            start = time.monotonic()
            document, lacking = if_it_fits(context, point)
            if not lacking:  # there may be more memory another time
                entries.put(name, identity, document)
            say(f"{experiment.name} [{number}/{len(points)}] {_place(point)}: {time.monotonic() - start:.2f} s")
        documents.append(document)
    left_out = [entry for document in documents for entry in document.get("left_out", ())]
    subjects: dict[str, list[str]] = {}
    for entry in left_out:
        subjects.setdefault(entry["reason"], []).append(f"{entry['kernel']} {entry['toolkit']}")
    for reason, names in subjects.items():
        say(f"{experiment.name}: left out: {', '.join(dict.fromkeys(names))}: {reason}")
    rows = [row for document in documents for row in document["rows"]]
    write_atomic(out / f"{experiment.name}.csv", csv_text(rows, experiment.header))
    about = {
        "source": "live",
        "family": family,
        "experiment": experiment.name,
        **declared,
        "run_keys": run_keys(loaded),
        **{name: getattr(experiment, name) for name in ("version", "parameters", "settings")},
        **circumstances(session, experiment, loaded, versions, build),
        "skipped": [*map(asdict, skipped), *left_out],
    }
    write_json(out / f"{experiment.name}.json", about)
    return True


def circumstances(
    session: Session | None,
    experiment: Experiment,
    loaded: Mapping[Subject, Loaded],
    versions: Mapping[str, str],
    build: Path,
) -> dict[str, Any]:
    """Where an experiment ran, with which versions, and when."""
    present = {name: version_of(None, name) for name in experiment.packages if not unimportable(name)}
    built = {
        subject.toolkit: record.read_build(each.kernel, build, subject.toolkit) for subject, each in loaded.items()
    }
    return {
        "gpu": session.gpu.describe() if session else None,
        "cpu": cpu(),
        "libraries": libraries({**versions, **present}),
        "toolkits": {toolkit: each.toolkit_version for toolkit, each in built.items()},
        "git_commit": git_commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _place(point: Mapping[str, Any]) -> str:
    return " ".join(f"{key} {value}" for key, value in point.items())


def if_it_fits(context: Context, point: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Measure one point as a whole: its journal entry, and whether no subject has a row for lack of memory."""
    context.left_out.clear()
    try:
        rows = list(context.experiment.measure(context, point))
        if context.session is not None:
            context.session.sync()
        return {"rows": rows, "left_out": [asdict(entry) for entry in context.left_out]}, False
    except Exception as error:
        reason = shortage(error)
        if not reason:
            raise
    if context.session is not None:  # what failed is free again
        reason += f", {context.session.free_bytes() / GIB:.1f} GiB are free"
    reason = f"{_place(point)}: {reason}"
    left_out = [asdict(Skipped(subject.kernel, subject.toolkit, reason)) for subject in context.subjects]
    return {"rows": [], "left_out": left_out}, True


def select(arguments: Namespace) -> list[Experiment]:
    """The experiments that are asked for, by default all of the family, with their configured settings."""
    family, changes = arguments.family, arguments.settings
    if arguments.config and not changes:
        config = read_json(arguments.config, "the configuration", "see its schema")
        changes = config.get("experiments", {}).get(family, {})
    chosen = experiments.declared(family)
    if arguments.name is not None:
        chosen = tuple(experiments.experiment(family, name) for name in arguments.name.split(","))
    return [experiments.with_settings(each, changes.get(each.name, {})) for each in chosen]


def main(arguments: Namespace) -> int:
    """Run a family's experiments; 75 where the budget ended first."""
    start = time.monotonic()
    registry.family(arguments.family)
    wanted = select(arguments)
    if not wanted:
        say(f"family {arguments.family} declares no experiment")
        return 0
    toolkits = [name.strip() for name in (arguments.toolkits or ",".join(TOOLKITS)).split(",") if name.strip()]
    deadline = None if arguments.budget is None else start + arguments.budget
    folders = (arguments.build, arguments.gates)
    # A journal belongs to a machine: points of the CPU have their own.
    journals = {"gpu": arguments.journal, "cpu": arguments.journal.with_name(f"{arguments.journal.name}.cpu")}
    for device, journal in journals.items():
        here = [experiment for experiment in wanted if experiment.device == device]
        session = open_gpu(card_of(journal)) if here and device == "gpu" else None
        with exclusive(session) if session else contextlib.nullcontext():
            for experiment in here:
                place = (*folders, journal, arguments.out)
                if not run(session, arguments.family, experiment, toolkits, *place, say, deadline):
                    say(f"stopped after {time.monotonic() - start:.0f} s; run the same command again to continue")
                    return UNFINISHED
    say(f"{arguments.family}: done in {time.monotonic() - start:.0f} s")
    return 0

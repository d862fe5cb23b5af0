"""Measure on this machine's GPU and file the result under reports/recorded/<gpu>/, without Snakemake.

    workflow/scripts/record                              every family of the configuration
    workflow/scripts/record --families ladder --toolkits cuda13 --config mine.yaml
    workflow/scripts/record --missing                    what has no current row; the other rows stay
    workflow/scripts/record --bundle mine.zip            the same, and one file to send (python -m gemmrepro accept)
    workflow/scripts/record --regimes --no-sweep --experiments none      sustained and in bursts, one more take
    workflow/scripts/record --budget 540                 stop in time for a job limit; run again to continue
    workflow/scripts/record --families ada --no-sweep --experiments accumulation      one experiment and no times

For a machine with a GPU and Python with CuPy, cuda-core, nvidia-ml-py, nvmath-python, pandas, pyarrow and tqdm, which
need not have Snakemake, containers or a compiler: it runs the project's own stages (numerical gate, gates, sweep,
counters, experiments) on binaries that the workflow built elsewhere (results/build). Build keys match the two.

Settings are those of config/config.yaml, config/record.yaml and --config, such as
``sweep: {rounds: 2, sizes: {ladder: [256, 1024]}}``. Finished points stay in the journal under --work, and the same
command continues from there; exit code 75 means that the budget ended first. Files appear under --out only when a
family is complete.
"""

import json
import math
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from gemmrepro import experiments, registry
from gemmrepro.build.record import read_build
from gemmrepro.core.files import csv_text, parquet, read_json, write_atomic, write_json
from gemmrepro.core.journal import sayer
from gemmrepro.core.names import LIBRARY, RESTORE
from gemmrepro.core.paths import ROOT
from gemmrepro.core.schemas import merged
from gemmrepro.errors import UserError
from gemmrepro.gates.operations import key_on
from gemmrepro.gates.stage import gate, summary_line
from gemmrepro.gpu import device
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.columns import COUNTER_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.plan import Settings
from gemmrepro.measure.prepare import is_built, timed_kernels
from gemmrepro.measure.recording import (
    COUNTERS,
    FILES,
    GATES,
    POINT,
    RUN,
    SAMPLES,
    SUMMARY,
    check_measured,
    mark,
    read_rows,
    write_manifest,
)
from gemmrepro.recordings.bundles import write_bundle
from gemmrepro.recordings.sweeps import place_of, planned
from gemmrepro.registry import Kernel, card

say = sayer("record")

CONFIGURATIONS = (ROOT / "config/config.yaml", ROOT / "config/record.yaml")
"""Settings of a recording, each over those before it."""


def stage(name: str, *arguments: str) -> int:
    """Run one of the project's stages in its own process, which a kernel that breaks the GPU's context ends alone."""
    path = os.pathsep.join(filter(None, [str(ROOT / "workflow"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    return subprocess.run([sys.executable, "-m", "gemmrepro", name, *arguments], env=environment).returncode


def _succeed(name: str, *arguments: object) -> None:
    """Run a stage; end with its exit code where it fails."""
    if code := stage(name, *map(str, arguments)):
        raise SystemExit(code)


def _copy(source: Path, target: Path, names: Iterable[str]) -> None:
    for name in names:
        write_atomic(target / name, (source / name).read_bytes())


class Family:
    """Records one family: judges, measures and files it.
    `asked`: the command line's options; `config`: the configuration with the command line's changes; `gpu`: name,
    driver and slug of the GPU at hand."""

    def __init__(self, name: str, asked: Namespace, config: dict[str, Any], gpu: Mapping[str, str]) -> None:
        self.name, self.asked, self.gpu, self.config = name, asked, gpu, config
        self.recordings: Path = asked.out / gpu["slug"]
        self._config_path: Path = asked.work / f"config.{name}.json"
        self.gates: Path = asked.work / "gates"
        self.measured: Path = asked.work / "measure" / name
        self.regimes: Path = asked.work / "regimes" / name
        self.experimented: Path = asked.work / "experiments" / name
        declared = [experiment.name for experiment in experiments.declared(name)]
        self.experiments = [each for each in declared if asked.experiments is None or each in asked.experiments]
        self.kernels = registry.kernels(name)
        self.timed = [] if asked.no_sweep else self._missing() if asked.missing else list(timed_kernels(name))
        self.take = self._next_take()

    def record(self) -> None:
        write_json(self._config_path, self.config)
        judged = (*self.kernels, *self._guests())
        self._judge_numerically(judged)
        for kernel in judged:
            verdict = gate(kernel, self.asked.build, self._toolkits(kernel), self._numeric(kernel), None)
            write_json(self.gates / f"{kernel.id}.json", verdict)
            print(summary_line(verdict), flush=True)
        if self.timed:
            chosen = ["--kernels", ",".join(self.timed)] if self.asked.missing else []
            self._measure("sweep", self.name, self.measured, *chosen)
        if self.take:
            # A take is a measurement of its own: nothing of another one's journal counts.
            self._measure("sweep", f"regimes/{self.name}/{self.take}", self.regimes, "--regimes")
        if self.experiments:
            chosen = ["--name", ",".join(self.experiments), "--toolkits", ",".join(self.config["sweep"]["toolkits"])]
            self._measure("experiments", f"experiments/{self.name}", self.experimented, *chosen)
        self._file()

    def _numeric(self, kernel: Kernel) -> Path:
        return self.gates / "numeric" / f"{kernel.id}.json"

    def _toolkits(self, kernel: Kernel) -> list[str]:
        return [toolkit for toolkit in self.config["sweep"]["toolkits"] if toolkit in kernel.platform.toolkits]

    def _missing(self) -> list[str]:
        """Ids of the timed kernels that lack a current row of a point that the configuration asks for."""
        settings = Settings.of(self.config["sweep"], self.name)
        rows = _current(self.recordings / self.name / SUMMARY, SUMMARY_COLUMNS, self.asked.build)
        have = {place_of(row) for row in rows}
        points = planned(list(timed_kernels(self.name).values()), settings)
        lacking = {point.kernel for place, point in points.items() if point.toolkit != LIBRARY and place not in have}
        chosen = [kernel.id for kernel in self.kernels if kernel.id in lacking]
        where = f"{' and '.join(settings.toolkits)}, {' and '.join(settings.caches)} caches"
        say(f"{self.name}: {', '.join(chosen) or 'no kernel'} without current rows ({where})")
        return chosen

    def _next_take(self) -> int | None:
        """The number of the take of the regimes that is recorded now; None where none is."""
        if not self.asked.regimes or not self.config["regimes"]["sizes"].get(self.name):
            return None
        return max((int(path.name) for path in regime_files.takes(self.recordings, self.name)), default=0) + 1

    def _guests(self) -> list[Kernel]:
        """Kernels of other families that the experiments also run, if they are built."""
        run = [experiments.experiment(self.name, experiment).kernels for experiment in self.experiments]
        guests = [registry.kernel(name) for name in dict.fromkeys(name for names in run for name in names)]
        return [
            guest
            for guest in guests
            if guest.family != self.name
            and all(is_built(guest, toolkit, self.asked.build) for toolkit in self._toolkits(guest))
        ]

    def _is_judged(self, kernel: Kernel, verdict: Mapping[str, Any]) -> bool:
        """Whether `verdict` is today's numerical gate's, given on this machine and on today's runs.
        "not run" is no verdict: what was in the way, such as a missing binary, may be gone."""
        if (verdict.get("gpu"), verdict.get("driver")) != (self.gpu["name"], self.gpu["driver"]):
            return False
        for toolkit in self._toolkits(kernel):
            judged = verdict["toolkits"].get(toolkit, {})
            today = key_on(verdict, kernel, read_build(kernel, self.asked.build, toolkit).build_key)
            if judged.get("gate_key") != today or judged.get("status") not in ("passed", "failed"):
                return False
        return True

    def _judge_numerically(self, kernels: Sequence[Kernel]) -> None:
        """Judge the kernels that need a numerical verdict; a recorded one that still holds is copied."""
        filed = {family: _read(self.recordings / family / GATES) for family in {each.family for each in kernels}}
        unjudged = []
        for kernel in kernels:
            recorded, again = filed[kernel.family].get(kernel.id, {}), self.asked.regate and kernel.family == self.name
            if not again and self._is_judged(kernel, _read(self._numeric(kernel))):
                continue
            if not again and self._is_judged(kernel, recorded):
                write_json(self._numeric(kernel), recorded)
            else:
                unjudged.append(kernel.id)
        if unjudged:
            counts = ("--seeds", self.config["gates"]["seeds"], "--processes", self.asked.jobs)
            folders = ("--build", self.asked.build, "--out-dir", self.gates / "numeric")
            _succeed("judge-numbers", *folders, *counts, "--kernels", *unjudged)

    def _measure(self, name: str, journal: str, out: Path, *chosen: str) -> None:
        """Run a measuring stage, which continues from its journal and stops in time for the budget."""
        asked = self.asked
        if asked.budget:
            left = max(0.0, asked.start + asked.budget - time.monotonic())
            chosen = ("--budget", f"{left:.0f}", *chosen)
        folders = ("--build", asked.build, "--gates", self.gates, "--journal", asked.work / "sweep" / journal)
        _succeed(name, "--family", self.name, "--config", self._config_path, *folders, "--out", out, *chosen)

    def _file(self) -> None:
        """File what was measured, beside recorded rows of other points that still hold."""
        target = self.recordings / self.name
        runs = (folder / RUN for folder in (self.measured, self.regimes, target))
        for path in (*self.experimented.glob("*.json"), *runs):
            check_measured(_read(path), path)
        if self.timed and (target / SUMMARY).is_file():
            if kept := merge(self.measured, target, self.asked.build):
                points = "rows of points that were not measured now stay (earlier in run.json)"
                say(f"{self.name}: {kept} recorded {points}")
        elif self.timed:
            _copy(self.measured, target, FILES)
        names = [f"{name}.{suffix}" for name in self.experiments for suffix in ("csv", "json")]
        _copy(self.experimented, target / experiments.RECORDINGS, names)
        if self.take:
            _copy(self.regimes, target / regime_files.FOLDER / str(self.take), regime_files.FILES)
        verdicts = {each.id: read_json(self._numeric(each), "a verdict", "record again") for each in self.kernels}
        write_json(target / GATES, verdicts)
        write_manifest(target)
        say(f"{self.name} is filed under {target}")


def _read(path: Path) -> dict[str, Any]:
    """The content of the JSON file `path`; {} if it is missing or corrupt."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


_EARLIER = ("date", "git_commit", "gpu", "libraries", "toolkits", "config")


def _current(path: Path, columns: Sequence[str], build: Path) -> list[dict[str, str]]:
    """The recorded rows that are current, without those of kernels that are gone; none where nothing is recorded.
    What is not built here, such as another toolkit's binaries, keeps its status."""
    known = {kernel.id: kernel for kernel in registry.kernels()}
    rows = read_rows(path, columns) if path.is_file() else []
    rows = [row for row in rows if row["toolkit"] == LIBRARY or row["kernel"] in known]

    def status(row: Mapping[str, str], marked: Mapping[str, str]) -> str:
        kernel, toolkit = known.get(row["kernel"]), row["toolkit"]
        unknown = kernel and toolkit in kernel.platform.toolkits and not is_built(kernel, toolkit, build)
        return row["status"] if unknown else marked["status"]

    pairs = [(row, marked) for row, marked in zip(rows, mark(rows, build), strict=True)]
    return [{**row, "status": "current"} for row, marked in pairs if status(row, marked) == "current"]


def merge(measured: Path, recorded: Path, build: Path) -> int:
    """Write into `recorded` the rows of `measured`, and those of its own that are not stale and not measured anew.
    run.json is that of `measured`; its `earlier` says how the other rows were taken. Returns how many these are."""
    new, counters = read_rows(measured / SUMMARY, SUMMARY_COLUMNS), read_rows(measured / COUNTERS, COUNTER_COLUMNS)
    run = read_json(measured / RUN, "what was measured", "measure again")
    with card.of(run["gpu"]):
        old = _current(recorded / SUMMARY, SUMMARY_COLUMNS, build)
        old_counters = _current(recorded / COUNTERS, COUNTER_COLUMNS, build)
    point, launch = itemgetter(*POINT), itemgetter("kernel", "toolkit", "m", "n", "k")
    timed, counted = set(map(point, new)), set(map(launch, counters))
    kept = [row for row in old if point(row) not in timed]
    counters = [*(row for row in old_counters if launch(row) not in counted), *counters]
    run = _run(run, read_json(recorded / RUN, "the recording", RESTORE), kept, {row["kernel"] for row in new})
    samples, new_samples = (pd.read_parquet(folder / SAMPLES) for folder in (recorded, measured))
    points = pd.MultiIndex.from_frame(samples[list(POINT)].astype("string").fillna(""))
    frames = [frame for frame in (samples[points.isin(list(map(point, kept)))], new_samples) if len(frame)]
    write_atomic(recorded / SUMMARY, csv_text(_ordered([*kept, *new]), SUMMARY_COLUMNS))
    write_atomic(recorded / SAMPLES, parquet(pd.concat(frames, ignore_index=True) if frames else new_samples))
    write_atomic(recorded / COUNTERS, csv_text(_ordered(counters), COUNTER_COLUMNS))
    write_json(recorded / RUN, run)
    return len(kept)


def _ordered(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows by size, then in the order of KERNELS, libraries last; their order is otherwise kept."""
    places = {kernel.id: place for place, kernel in enumerate(registry.kernels())}
    return sorted(
        rows, key=lambda row: (int(row["m"]) * int(row["n"]) * int(row["k"]), places.get(row["kernel"], len(places)))
    )


def _run(new: Mapping[str, Any], old: Mapping[str, Any], kept: list[dict[str, str]], swept: set[str]) -> dict[str, Any]:
    """run.json `new` of what timed the kernels `swept`, with what still holds of `old`, of which rows are `kept`."""
    kernels = sorted({row["kernel"] for row in kept if row["toolkit"] != LIBRARY})
    earlier = [
        {**sweep, "kernels": still}
        for sweep in old.get("earlier", [])
        if (still := [kernel for kernel in sweep["kernels"] if kernel in kernels])
    ]
    listed = {kernel for sweep in earlier for kernel in sweep["kernels"]}
    if rest := [kernel for kernel in kernels if kernel not in listed]:
        earlier.append({**{name: old[name] for name in _EARLIER}, "kernels": rest})
    modes = {mode: list(points) for mode, points in new.get("timing_modes", {}).items()}
    names = {row["kernel"] for row in kept}
    new_points = {point for points in modes.values() for point in points}
    for mode, points in old.get("timing_modes", {}).items():
        stay = [point for point in points if point.split()[0] in names and point not in new_points]
        if stay:
            modes.setdefault(mode, []).extend(stay)
    skipped = [entry for entry in old.get("skipped", []) if entry["kernel"] in names - swept]
    return {
        **new,
        "baseline_kernels": {**old["baseline_kernels"], **new["baseline_kernels"]},
        "baseline_algorithms": {**old.get("baseline_algorithms", {}), **new.get("baseline_algorithms", {})},
        "toolkits": {**old["toolkits"], **new["toolkits"]},
        "skipped": [*new.get("skipped", []), *skipped],
        "timing_modes": modes,
        "earlier": earlier,
    }


def configured(asked: Namespace) -> dict[str, Any]:
    """The configuration with the command line's changes; makes lists of the options that name several things."""
    asked.jobs = min(4, os.cpu_count() or 1) if asked.jobs is None else asked.jobs
    for name in ("jobs", "budget"):
        given = getattr(asked, name)
        if given is not None and not 0 < given < math.inf:
            raise UserError(f"--{name} must be more than 0, not {given}.")
    config: Any = {}
    for path in filter(None, (*CONFIGURATIONS, asked.config)):
        try:
            config = merged(config, yaml.safe_load(path.read_text()))
            sweep = config["sweep"] | {}
        except FileNotFoundError:
            raise UserError(f"the configuration {path} is missing.") from None
        except (yaml.YAMLError, KeyError, TypeError) as error:
            raise UserError(f"the configuration {path} is not usable ({error}).") from None
    for family, changes in (config.get("experiments") or {}).items():
        for name, settings in changes.items():
            experiments.with_settings(experiments.experiment(family, name), settings)
    os.environ["GEMMREPRO_TUNED"] = config["tuned_gpu"]
    asked.families = asked.families.split(",") if asked.families else config["families"]
    for family in asked.families:
        registry.family(family)
    if asked.toolkits:  # of every family
        sweep |= {"toolkits": asked.toolkits.split(","), "toolkit_of": {}}
    if asked.experiments is not None:
        known = sorted({each.name for family in asked.families for each in experiments.declared(family)})
        asked.experiments = [] if asked.experiments == "none" else asked.experiments.split(",")
        if unknown := [name for name in asked.experiments if name not in known]:
            there = f"there are: {', '.join(known) or 'none'}"
            raise UserError(f"no chosen family has the experiment {', '.join(unknown)}; {there}.")
    return {**config, "sweep": sweep}


def main(asked: Namespace) -> int:
    asked.start = time.monotonic()
    config = configured(asked)
    device.claim_gpu()  # one card for every stage
    gpu = device.described()
    for family in asked.families:
        Family(family, asked, config, gpu).record()
    if asked.bundle:
        write_bundle(asked.out / gpu["slug"], asked.bundle, asked.families)
        say(f"bundled as {asked.bundle}")
    say(f"done in {time.monotonic() - asked.start:.0f} s")
    return 0

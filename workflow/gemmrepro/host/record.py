"""Measure on this machine's GPU and file the result under reports/recorded/<gpu>/, without Snakemake.

    workflow/scripts/record                              every family of the configuration
    workflow/scripts/record --families ladder --sizes ladder=256,1024 --rounds 2 --toolkits cuda13
    workflow/scripts/record --missing                    what has no current row; the other rows stay
    workflow/scripts/record --bundle mine.zip            the same, and one file to send (python -m gemmrepro accept)
    workflow/scripts/record --regimes --no-sweep --experiments none      sustained and in bursts, one more take
    workflow/scripts/record --budget 540                 stop in time for a job limit; run again to continue
    workflow/scripts/record --families ada --no-sweep --experiments accumulation      one experiment and no times

For a machine that has a GPU and Python with CuPy, cuda-core, nvidia-ml-py, nvmath-python, pandas, pyarrow and tqdm, but
need not have Snakemake, containers or a compiler: it takes the binaries that the workflow built elsewhere
(results/build) and runs the project's own stages on them: numerical gate, gates, sweep, hardware counters, experiments.
So it measures exactly the binaries that the workflow builds; recordings are matched to builds by their build keys.

It is resumable: finished points stay in the journal under --work, and the same command continues from there. Exit code
75 means that the budget ended first. Files appear under --out only when a family is complete.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gemmrepro import experiments, registry
from gemmrepro.build.record import read_build
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.core.journal import UNFINISHED, sayer
from gemmrepro.core.paths import ROOT
from gemmrepro.core.settings import merged
from gemmrepro.errors import UserError
from gemmrepro.gates.combined import gate, summary_line
from gemmrepro.gates.keys import key_on
from gemmrepro.gpu import device
from gemmrepro.host.bundles import sign, write_bundle
from gemmrepro.measure import merge
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.checks.gates import GATES
from gemmrepro.measure.checks.manifest import write_manifest
from gemmrepro.measure.checks.whole import check_measured
from gemmrepro.measure.plan import Settings
from gemmrepro.measure.prepare import is_built, timed_kernels
from gemmrepro.measure.recording import FILES, RUN, SUMMARY
from gemmrepro.registry import Kernel

say = sayer("record")

CONFIGURATIONS = (ROOT / "config/config.yaml", ROOT / "config/record.yaml")
"""Settings of a recording, each over those before it."""


def stage(module: str, *arguments: str) -> int:
    """Run one of the project's stages in its own process, which a kernel that breaks the GPU's context ends alone."""
    path = os.pathsep.join(filter(None, [str(ROOT / "workflow"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    return subprocess.run([sys.executable, "-m", f"gemmrepro.{module}", *arguments], env=environment).returncode


@dataclass(frozen=True)
class Request:
    """What to record, and the folders involved.

    Attributes:
        config: the configuration with the command line's changes, as JSON.
        build, work, out: folders of binaries, of journal and verdicts, and of recordings.
        experiments: names of those to run; None for all.
        seeds: number of seeds of the numerical gate.
        jobs: kernels judged at a time.
        regate: whether to judge kernels that already have a verdict.
        sweep: whether to measure times.
        missing: whether to time only kernels without current rows, and to keep the rows of the others.
        stated: settings of the sweep that the command line states; a recording that is continued keeps its others.
        regimes: whether to measure the regimes too, as one more take.
        deadline: on the clock of time.monotonic; None without a budget.
    """

    config: Path
    build: Path
    work: Path
    out: Path
    families: tuple[str, ...]
    toolkits: tuple[str, ...]
    experiments: tuple[str, ...] | None
    seeds: int
    jobs: int
    regate: bool
    sweep: bool
    missing: bool
    stated: frozenset[str]
    regimes: bool
    deadline: float | None

    @property
    def gates(self) -> Path:
        """The folder of the gates' verdicts."""
        return self.work / "gates"

    @property
    def numeric(self) -> Path:
        """The folder of the numerical gate's verdicts."""
        return self.gates / "numeric"

    def budget(self) -> list[str]:
        """The remaining budget, as a stage's arguments."""
        if self.deadline is None:
            return []
        return ["--budget", f"{max(0.0, self.deadline - time.monotonic()):.0f}"]


@dataclass(frozen=True)
class Machine:
    """The GPU at hand: its name, its driver, and the folder of its recordings."""

    gpu: str
    driver: str
    slug: str

    @classmethod
    def here(cls) -> Machine:
        """Raises UserError where no GPU can be used."""
        described = device.described()
        return cls(described["name"], described["driver"], described["slug"])


class Unsuccessful(Exception):
    """A stage ended with this exit code; nothing more is done."""

    def __init__(self, code: int) -> None:
        self.code = code


def _succeed(code: int) -> None:
    if code:
        raise Unsuccessful(code)


class Family:
    """Records one family: judges, measures and files it."""

    def __init__(self, name: str, request: Request, machine: Machine) -> None:
        self.name, self.request, self.machine = name, request, machine
        self.kernels = registry.kernels(name)
        declared = [experiment.name for experiment in experiments.declared(name)]
        wanted = request.experiments
        self.experiments = [name for name in declared if wanted is None or name in wanted]
        self.everyone = (*self.kernels, *self._guests())
        self.config = self._continued() if request.missing and request.sweep else request.config
        self.timed = self._missing() if request.missing and request.sweep else list(timed_kernels(name))
        self.swept = request.sweep and bool(self.timed)
        self.measured = request.work / "measure" / name
        self.experimented = request.work / "experiments" / name
        self.take = self._next_take() if request.regimes else None

    def record(self) -> None:
        """Record the family. Raises Unsuccessful if a stage fails."""
        self._judge_numerically()
        self._gate()
        if self.swept:
            self._sweep()
        if self.take is not None:
            self._measure_regimes(self.take)
        if self.experiments:
            self._experiment()
        self._file()

    def _continued(self) -> Path:
        """The configuration with the toolkits and cache states that the family's recording covers.

        A recording of warm caches alone lacks no cold rows, unless the command line asks for them.
        """
        config = read_json(self.request.config, "the configuration", "record again")
        covered = merge.covered(self._recordings / self.name)
        config["sweep"].update({name: values for name, values in covered.items() if name not in self.request.stated})
        path = self.request.work / f"config.{self.name}.json"
        write_json(path, config)
        return path

    def _missing(self) -> list[str]:
        """Ids of the timed kernels that lack a current row."""
        document = read_json(self.config, "the configuration", "record again")["sweep"]
        settings = Settings.of(document, self.name)
        lacking = merge.missing(self.name, settings, self._recordings / self.name, self.request.build)
        places = f"{' and '.join(settings.toolkits)}, {' and '.join(settings.caches)} caches"
        say(f"{self.name}: {', '.join(lacking) or 'no kernel'} without current rows ({places})")
        return lacking

    def _next_take(self) -> int | None:
        """The number of the take of the regimes that is recorded now; None where the family has no sizes in them."""
        regimes = read_json(self.request.config, "the configuration", "record again")["regimes"]
        there = [int(path.name) for path in regime_files.takes(self._recordings, self.name)]
        return max(there, default=0) + 1 if regimes["sizes"].get(self.name) else None

    def _guests(self) -> list[Kernel]:
        """Kernels of other families that the experiments also run, if they are built."""
        request = self.request
        ids = dict.fromkeys(
            kernel for name in self.experiments for kernel in experiments.experiment(self.name, name).kernels
        )
        return [
            kernel
            for kernel in map(registry.kernel, ids)
            if kernel.family != self.name and all(is_built(kernel, name, request.build) for name in self._of(kernel))
        ]

    def _of(self, kernel: Kernel) -> list[str]:
        """The toolkits with which a kernel is recorded."""
        return [toolkit for toolkit in self.request.toolkits if toolkit in kernel.platform.toolkits]

    @property
    def _recordings(self) -> Path:
        return self.request.out / self.machine.slug

    def _is_judged(self, kernel: Kernel, verdict: Mapping[str, Any]) -> bool:
        """Whether `verdict` is today's numerical gate's, given on this machine and on today's runs.

        "not run" is no verdict: what was in the way, such as a missing binary, may be gone.
        """
        if (verdict.get("gpu"), verdict.get("driver")) != (self.machine.gpu, self.machine.driver):
            return False

        def stands(one: Mapping[str, Any], toolkit: str) -> bool:
            today = key_on(verdict, kernel, read_build(kernel, self.request.build, toolkit).build_key)
            return one.get("gate_key") == today and one.get("status") in ("passed", "failed")

        return all(stands(verdict["toolkits"].get(toolkit, {}), toolkit) for toolkit in self._of(kernel))

    def _unjudged(self) -> list[str]:
        """Ids of the kernels that need a numerical verdict; a recorded one that still holds is copied."""
        families = {kernel.family for kernel in self.everyone}
        filed = {family: _read(self._recordings / family / GATES) for family in families}
        unjudged = []
        for kernel in self.everyone:
            path, verdict = self.request.numeric / f"{kernel.id}.json", filed[kernel.family].get(kernel.id, {})
            if self.request.regate and kernel.family == self.name:
                unjudged.append(kernel.id)
            elif self._is_judged(kernel, _read(path)):
                continue
            elif self._is_judged(kernel, verdict):
                write_json(path, verdict)
            else:
                unjudged.append(kernel.id)
        return unjudged

    def _judge_numerically(self) -> None:
        request, unjudged = self.request, self._unjudged()
        arguments = ["--build", str(request.build), "--seeds", str(request.seeds), "--out-dir", str(request.numeric)]
        if unjudged:
            chosen = [f"--kernel={name}" for name in unjudged]
            _succeed(stage("gates.numeric", *arguments, "--processes", str(request.jobs), *chosen))

    def _gate(self) -> None:
        for kernel in self.everyone:
            numeric = self.request.numeric / f"{kernel.id}.json"
            verdict = gate(kernel, self.request.build, self._of(kernel), numeric, None)
            write_json(self.request.gates / f"{kernel.id}.json", verdict)
            print(summary_line(verdict), flush=True)

    def _common(self) -> list[str]:
        """The arguments common to the measuring stages."""
        request = self.request
        folders = ["--build", str(request.build), "--gates", str(request.gates)]
        return ["--family", self.name, "--config", str(self.config), *folders, *request.budget()]

    def _sweep(self) -> None:
        places = ["--journal", str(self.request.work / "sweep" / self.name), "--out", str(self.measured)]
        chosen = ["--kernels", ",".join(self.timed)] if self.request.missing else []
        _succeed(stage("measure.sweep", *self._common(), *places, *chosen))

    def _measure_regimes(self, take: int) -> None:
        work = self.request.work
        # A take is a measurement of its own: nothing of another one's journal counts.
        places = ["--journal", str(work / "sweep" / "regimes" / self.name / str(take))]
        out = ["--out", str(work / "regimes" / self.name)]
        _succeed(stage("measure.sweep_regimes", *self._common(), *places, *out))

    def _experiment(self) -> None:
        journal = self.request.work / "sweep" / "experiments" / self.name
        chosen = ["--name", ",".join(self.experiments), "--toolkits", ",".join(self.request.toolkits)]
        places = ["--journal", str(journal), "--out", str(self.experimented)]
        _succeed(stage("experiments.run", *self._common(), *chosen, *places))

    def _file(self) -> None:
        target = self._recordings / self.name
        taken = self.request.work / "regimes" / self.name
        for path in (*self.experimented.glob("*.json"), *(folder / RUN for folder in (self.measured, taken, target))):
            check_measured(_read(path), path, synthetic=False)
        if self.swept and (target / SUMMARY).is_file():
            if kept := merge.merge(self.measured, target, self.request.build):
                say(
                    f"{self.name}: {kept} recorded rows of points that were not measured now stay (earlier in run.json)"
                )
        else:
            for file in FILES if self.swept else ():
                write_atomic(target / file, (self.measured / file).read_bytes())
        for name in self.experiments:
            for file in (f"{name}.csv", f"{name}.json"):
                write_atomic(target / experiments.RECORDINGS / file, (self.experimented / file).read_bytes())
        for file in regime_files.FILES if self.take is not None else ():
            write_atomic(target / regime_files.FOLDER / str(self.take) / file, (taken / file).read_bytes())
        verdicts = {
            kernel.id: read_json(self.request.numeric / f"{kernel.id}.json", "a verdict", "record again")
            for kernel in self.kernels
        }
        write_json(target / GATES, verdicts)
        write_manifest(target)
        say(f"{self.name} is filed under {target}")


def _read(path: Path) -> dict[str, Any]:
    """The content of the JSON file `path`; {} if it is missing or corrupt."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def parse_sizes(items: Iterable[str]) -> dict[str, list[int]]:
    """``["ladder=256,512"]`` as {"ladder": [256, 512]}."""
    sizes = {}
    for item in items:
        family, _, numbers = item.partition("=")
        try:
            sizes[family] = [int(number) for number in numbers.split(",")]
        except ValueError:
            raise UserError(
                f"--sizes '{item}' is not of the form family=size,size; for instance ladder=256,1024."
            ) from None
        registry.family(family)
    return sizes


def parse_settings(items: Iterable[str], configured: Mapping[str, Any]) -> dict[str, Any]:
    """``["pytorch.training.iterations=500"]`` added to the configuration's settings of experiments."""
    settings = {
        family: {name: dict(values) for name, values in by_experiment.items()}
        for family, by_experiment in configured.items()
    }
    for item in items:
        try:
            place, value = item.split("=", 1)
            family, name, setting = place.split(".")
            change = {setting: json.loads(value)}
        except ValueError:
            raise UserError(
                f"--setting '{item}' is not of the form family.experiment.setting=value; for instance "
                "pytorch.training.iterations=500."
            ) from None
        experiments.with_settings(experiments.experiment(family, name), change)
        settings.setdefault(family, {}).setdefault(name, {}).update(change)
    return settings


def _read_config(files: Iterable[Path]) -> dict[str, Any]:
    """The settings of `files`, each over those before it. Raises UserError where that is no configuration."""
    config: Any = {}
    for path in files:
        try:
            config = merged(config, yaml.safe_load(path.read_text()))
            if not isinstance(config["sweep"], dict):
                raise TypeError("sweep holds no settings")
        except FileNotFoundError:
            raise UserError(f"the configuration {path} is missing.") from None
        except (yaml.YAMLError, KeyError, TypeError) as error:
            raise UserError(f"the configuration {path} is not usable ({error}).") from None
    return config


def _change(config: dict[str, Any], options: argparse.Namespace) -> None:
    """Apply the command line's options on times and experiments to the configuration. Raises UserError."""
    for name, least in {"rounds": 2, "seconds": 0, "seeds": 1, "jobs": 1, "budget": 0}.items():
        given = getattr(options, name)
        if given is not None and not (given >= least and 0 < given < math.inf):
            raise UserError(f"--{name} must be {f'at least {least}' if least else 'more than 0'}, not {given}.")
    sweep = config["sweep"]
    # What the command line states holds for every family.
    if options.toolkits:
        sweep["toolkits"], sweep["toolkit_of"] = options.toolkits.split(","), {}
    if options.caches:
        sweep["caches"], sweep["cache_of"] = options.caches.split(","), {}
    for family, stated in parse_sizes(options.sizes).items():
        sweep["sizes"][family], sweep["kernels_at"][family] = stated, None
    if unknown := sorted(set(sweep["caches"]) - {"cold", "warm"}):
        raise UserError(f"--caches has '{unknown[0]}'; choose cold, warm or cold,warm.")
    sweep["rounds"] = options.rounds or sweep["rounds"]
    sweep["seconds_per_round"] = options.seconds or sweep["seconds_per_round"]
    config["experiments"] = parse_settings(options.setting, config.get("experiments", {}))
    if options.no_counters:
        sweep["counters"] = {}


def _named_experiments(text: str | None, families: Iterable[str]) -> tuple[str, ...] | None:
    """The experiments that --experiments names; None for all."""
    if text is None:
        return None
    names = () if text == "none" else tuple(text.split(","))
    known = {experiment.name for family in families for experiment in experiments.declared(family)}
    if unknown := [name for name in names if name not in known]:
        raise UserError(
            f"no chosen family has the experiment {', '.join(unknown)}; there are: "
            f"{', '.join(sorted(known)) or 'none'}."
        )
    return names


def requested(options: argparse.Namespace, start: float) -> Request:
    """The command line's request; writes the configuration with its changes into --work.

    Args:
        start: when the budget began, on the clock of time.monotonic.

    Raises:
        UserError: an argument or the configuration is invalid; nothing was run or written.
    """
    config = _read_config([*CONFIGURATIONS, *filter(None, [options.config])])
    os.environ["GEMMREPRO_TUNED"] = config["tuned_gpu"]
    families = tuple(options.families.split(",") if options.families else config["families"])
    for family in families:
        registry.family(family)
    _change(config, options)
    request = Request(
        config=options.work / "config.json",
        build=options.build,
        work=options.work,
        out=options.out,
        families=families,
        toolkits=tuple(config["sweep"]["toolkits"]),
        experiments=_named_experiments(options.experiments, families),
        seeds=options.seeds or config["gates"]["seeds"],
        jobs=options.jobs,
        regate=options.regate,
        sweep=not options.no_sweep,
        missing=options.missing,
        stated=frozenset(name for name in ("toolkits", "caches") if getattr(options, name)),
        regimes=options.regimes,
        deadline=start + options.budget if options.budget else None,
    )
    if options.fresh:
        shutil.rmtree(request.work, ignore_errors=True)
    write_json(request.config, config)
    return request


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="workflow/scripts/record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--config", type=Path, help="settings over those of config/config.yaml and config/record.yaml")
    add("--build", type=Path, default=ROOT / "results/build", help="the workflow's binaries")
    add("--work", type=Path, default=ROOT / "results/record", help="journal and verdicts")
    add("--out", type=Path, default=ROOT / "reports/recorded", help="where recordings are filed")
    add("--families", help="comma-separated; default: the configuration's")
    add("--toolkits", help="comma-separated; default: the configuration's")
    add("--sizes", action="append", default=[], metavar="FAMILY=N,N", help="measure these sizes only")
    add("--rounds", type=int)
    add("--caches", help="cold, warm or both, comma-separated; default: the configuration's")
    add("--seconds", type=float, help="seconds per round of a point, at most")
    add("--seeds", type=int, help="seeds of the numerical gate")
    jobs = min(4, os.cpu_count() or 1)
    add("--jobs", type=int, default=jobs, help="kernels to gate at a time (default %(default)s)")
    add("--no-counters", action="store_true", help="read no hardware counters")
    add("--no-sweep", action="store_true", help="gates and experiments only; file no times")
    add("--regimes", action="store_true", help="also measure kernels sustained and in bursts, as one more take")
    add("--missing", action="store_true", help="time only kernels without current rows; keep the others'")
    add("--experiments", help="run these only, comma-separated; 'none' for none; default: all")
    add(
        "--setting",
        action="append",
        default=[],
        metavar="FAMILY.EXPERIMENT.SETTING=VALUE",
        help="overrides how long an experiment measures; the value as JSON",
    )
    add("--regate", action="store_true", help="run the numerical gate even if its verdict is current")
    add("--fresh", action="store_true", help="delete this script's journal and verdicts first")
    add("--bundle", type=Path, help="also write this GPU's recordings of these families into one zip")
    add("--sign", type=Path, metavar="KEY", help="with --bundle: sign it with this SSH key (ssh-keygen -Y sign)")
    add("--budget", type=float, help=f"seconds after which to stop measuring, with exit code {UNFINISHED}")
    return parser.parse_args()


def main() -> int:
    """Record what the command line asks for; returns the exit code of the first stage that fails."""
    start = time.monotonic()
    options = _options()
    if options.sign and not options.bundle:
        raise UserError("--sign signs a bundle; give --bundle, too.")
    request = requested(options, start)
    device.claim_gpu()  # one card for every stage
    machine = Machine.here()
    try:
        for family in request.families:
            Family(family, request, machine).record()
    except Unsuccessful as ended:
        return ended.code
    if options.bundle:
        write_bundle(request.out / machine.slug, options.bundle, request.families)
        say(
            f"bundled as {options.bundle}"
            + (f", signed by {sign(options.bundle, options.sign)}" if options.sign else "")
        )
    say(f"done in {time.monotonic() - start:.0f} s")
    return 0

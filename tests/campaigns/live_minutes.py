"""How long a live run would take on one GPU, stage by stage, from what recordings say of its parts.

    PYTHONPATH=workflow python tests/campaigns/live_minutes.py [--config config/full.yaml] [--cores 4]

A sum of parts that were timed, no measurement: the live run of 2026-11-23 on one H200 was ended after 19 minutes
(docs/running.md). Sampling is computed point by point: a round lasts until its interval is narrow or its time is spent,
as far as the recorded samples show; a point that was recorded in another state of the cache or by another toolkit
counts like that one. Regimes follow from the dates of two takes that
were recorded one after the other, and from the configured limits; experiments from the dates of their files, each less
that of the file before it in the same session, and from the share of their rows that the configuration measures. Gates,
first checks and starts were timed in that run (GATE_SECONDS, SUBJECT_SECONDS, FIRST_SECONDS, START_SECONDS). What has
no recordings is predicted from its kernels and sizes. Hardware counters are not in the sum.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow")]

from gemmrepro import registry, timing  # noqa: E402
from gemmrepro.core.files import read_json  # noqa: E402
from gemmrepro.core.names import LIBRARY  # noqa: E402
from gemmrepro.core.settings import merged  # noqa: E402
from gemmrepro.host.gpu_probe import HostGpu  # noqa: E402
from gemmrepro.host.plan import Plan  # noqa: E402
from gemmrepro.measure.checks.samples import PointSamples, read_samples  # noqa: E402
from gemmrepro.measure.chosen import is_timed_at  # noqa: E402
from gemmrepro.measure.plan import Settings  # noqa: E402

RECORDED = ROOT / "reports/recorded/h200"

GATE_SECONDS = {
    **{"ladder": 8, "hopper": 117, "fp8": 29, "ada": 14, "cute": 49, "cutile": 32},
    **{"memory": 6, "ozaki": 17, "crt": 5, "sgemm": 5, "ceilings": 3},
}
"""Of a family's gates in eight processes, from the start of the job to its end: the live run of 2026-11-23. Since then
the binaries are spread evenly over the processes, which was not timed: hopper's waited for one kernel."""

PROCESSES = 8
"""In so many processes they were timed. That fewer take proportionally longer is an upper bound: not all eight were
busy to the end."""

SUBJECT_SECONDS = 0.23
"""Operands, first check and trials of a subject, beside its samples: a sweep of 40 subjects in FP8 at 1024 to 16384."""

FIRST_SECONDS, LATER_SECONDS = 16.0, 8.0
"""Of the first sweep of a run and of later ones, beside their rounds: container, build records, names of the baselines'
kernels, results. Of the live run: 16 s, then 8, 8, 8, 9 and 11 s."""

SAMPLING = 1.37
"""Time of a round's samples in the live run over that computed from the recorded ones: 330 s over 241 s, of ladder,
hopper, ada, cutile, ozaki and crt. Trials and the way to a steady state are not in the recorded samples."""

START_SECONDS = 2.0
"""Of a job or a round: from the start of a job in a container until its first kernel was judged (crt)."""

REGIME_SECONDS, REGIMES_START = 84 / 15, 9.0
"""Of a subject's pair of passes in both regimes, blocks of 0.4 s: take 2 of hopper ended 84 s after crt's take 1. And
of a family's start: the live run's 46, 25, 74 and 45 s (crt, ladder, hopper, ada) are 7 to 12 s above their passes."""

EXPERIMENTS = {
    **{"ladder": 5 + 4 + 5 + 15, "ada": 8 + 8 + 8, "hopper": 10 + 10 + 7 + 59, "cutile": 19 + 34 + 27},
    **{"memory": 27 + 16 + 7 + 5, "ozaki": 158 + 7 + 60 + 5 + 2, "crt": 6},
    **{"pytorch": 14 + 16 + 7 + 60 + 18, "sgemm": 4, "fp8": 17},
}
"""Seconds of a family's experiments on the GPU, apart from PyTorch's training. Guessed: hopper's cores (10, by its
settings), ozaki's products (by its rows' times, 142, and 16 for operands and exact outputs) and accumulator (60),
PyTorch's timing (60), gelu_loads (as gelu, whose settings it has). Hopper's forms took 117 s with settings of 1.4 s per
form; the default run's are 0.6 s: 59 s, with another 0.2 s per form."""

ON_CPU_SECONDS = 14 + 44 + 16
"""Of PyTorch's experiments that need no GPU, where they run here."""

BY_SETTING = {("ozaki", "products", "rounds"): 158, ("pytorch", "timing", "rounds"): 60}
"""Seconds of experiments that are proportional to a setting, with the declared one; that they are is assumed."""


def round_seconds(point: PointSamples, place: int, recorded_s: float, wanted_s: float, least: int, most: int) -> float:
    """About how long a round of a point takes with another limit of time."""
    times = point.times[place]
    sides = [float(times.mean())] + ([] if point.baseline is None else [float(point.baseline[place].mean())])
    graphs = timing.wants_graphs(sides[0], sides[1] if len(sides) > 1 else None)
    pair = sum(side * (timing.graph_launches(side) if graphs else 1) + 20 for side in sides) * 1e-6
    spent = pair * len(times)
    limited = spent >= 0.8 * recorded_s and len(times) < most
    if pair > wanted_s:
        return pair
    return max(least * pair, min(wanted_s, spent * wanted_s / recorded_s if limited else spent))


def sampling(config: dict[str, Any], family: str) -> tuple[float, int]:
    """Minutes of a recorded family's sampling, and the number of its subjects."""
    sweep, path = config["sweep"], RECORDED / family / "samples.parquet"
    least, most = sweep["samples_per_round"]
    recorded = read_json(path.parent / "run.json", "the recording", "restore it")["config"]["seconds_per_round"]
    settings = Settings.of(sweep, family)
    sizes = {str(n) for n in settings.sizes}
    found: defaultdict[tuple[str, ...], dict[tuple[str, str], float]] = defaultdict(dict)
    for name, point in read_samples(path)[1].items():
        if name[4] in sizes and is_timed_at(sweep, family, name[0], int(name[4])):
            rounds = [
                round_seconds(point, place, recorded, sweep["seconds_per_round"], least, most)
                for place in range(len(point.times))
            ]
            seconds = sweep["rounds"] * (float(np.mean(rounds)) + timing.SETTLE_SECONDS)
            found[name[0], *name[2:-1]][name[1], name[-1]] = seconds
    total, subjects = 0.0, 0
    for place, recorded_as in found.items():
        library = any(toolkit == LIBRARY for toolkit, _ in recorded_as)
        known = () if library else registry.kernel(place[0]).platform.toolkits
        for toolkit in (LIBRARY,) if library else [name for name in settings.toolkits if name in known]:
            subjects += 1
            other = next(iter(recorded_as.values()))
            total += sum(recorded_as.get((toolkit, cache), other) for cache in settings.caches)
    more, unrecorded = predicted(config, family, {name for name, *_ in found})
    return SAMPLING * total / 60 + more, subjects + unrecorded


def predicted(config: dict[str, Any], family: str, recorded: Collection[str] = ()) -> tuple[float, int]:
    """The same of kernels without recordings: every round of a point takes its whole time."""
    sweep, settings = config["sweep"], Settings.of(config["sweep"], family)
    sizes, caches = len(settings.sizes), len(settings.caches)
    new = [kernel for kernel in registry.kernels(family) if kernel.timing.timed and kernel.id not in recorded]
    binaries = sum(len(set(settings.toolkits) & set(kernel.platform.toolkits)) for kernel in new)
    # A family that was never recorded has a baseline to measure, too.
    subjects = (binaries + (not recorded)) * sizes
    each = sweep["rounds"] * (sweep["seconds_per_round"] + timing.SETTLE_SECONDS)
    return subjects * each * caches / 60, subjects


def regimes(config: dict[str, Any]) -> float:
    """Minutes of the regimes: the subjects' passes, up to each family's limit."""
    section, total = config["regimes"], 0.0
    for family, sizes in section["sizes"].items():
        kernels = section["kernels"].get(family) or [k.id for k in registry.kernels(family) if k.timing.timed]
        longer = 2 * max(0.0, section["seconds"] - 0.4)
        pairs = section["pairs"]
        each = pairs["sustained"] * (REGIME_SECONDS / 2 + longer) + pairs["burst"] * REGIME_SECONDS / 2
        wanted = (len(kernels) + 1) * len(sizes) * each / 60
        total += min(wanted, section["minutes"].get(family, wanted)) + REGIMES_START / 60
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", type=Path, help="settings over those of config/config.yaml")
    parser.add_argument("--cores", type=int, default=1, help="Snakemake's --cores (default %(default)s)")
    options = parser.parse_args()
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    if options.config:
        config = merged(config, yaml.safe_load(options.config.read_text()))
    stages = minutes(config, options.cores)
    for name, spent in stages.items():
        print(f"{name:40} {spent:6.1f} min")
    guessed = sum(spent for name, spent in stages.items() if "predicted" in name)
    print(f"{'together':40} {sum(stages.values()):6.1f} min, {guessed:.1f} of them predicted")
    return 0


def minutes(config: dict[str, Any], cores: int) -> dict[str, float]:
    """Minutes by stage."""
    recorded = [family for family in config["families"] if (RECORDED / family / "samples.parquet").is_file()]
    new = [family for family in config["families"] if family not in recorded and timed(family)]
    swept = {family: sampling(config, family) for family in recorded}
    added = {family: predicted(config, family) for family in new}
    sweeps = FIRST_SECONDS + len(swept | added) * (LATER_SECONDS + config["sweep"]["rounds"] * START_SECONDS)
    jobs = starts(config, cores)
    return {
        "gates, at most" if cores < PROCESSES else "gates": gates(config, cores),
        **{f"sampling, {family}": spent for family, (spent, _) in swept.items()},
        **{f"sampling, {family} (predicted)": spent for family, (spent, _) in added.items()},
        "checks of subjects": sum(n for _, n in (swept | added).values()) * SUBJECT_SECONDS / 60,
        "starts of sweeps and rounds": sweeps / 60,
        "regimes": regimes(config),
        "experiments": experiments_seconds(config) / 60,
        "PyTorch's training, at most": training(config) / 60,
        f"starts of {jobs} jobs": START_SECONDS * jobs / 60,
        "verdicts, figures, report": REPORT_MINUTES if cores == 1 else LAST_MINUTES,
    }


REPORT_MINUTES, LAST_MINUTES = 2.0, 0.9
"""On one core, from the run without a GPU; with more, what is left when the GPU is done: figures are drawn meanwhile.
Verdicts take 5 s, the report 24 to 28 s, the last family's and the paper's figures 3 to 11 s each."""


def timed(family: str) -> bool:
    return any(kernel.timing.timed for kernel in registry.kernels(family))


def plan_of(config: dict[str, Any]) -> Plan:
    return Plan(config, "live", HostGpu("NVIDIA H200", 90))


def gates(config: dict[str, Any], cores: int) -> float:
    """Minutes of the numerical gates."""
    seconds = sum(GATE_SECONDS.get(family, 0) for family in config["families"])
    return seconds * PROCESSES / min(PROCESSES, cores) * max(2, config["gates"]["seeds"]) / 2 / 60


def starts(config: dict[str, Any], cores: int) -> int:
    """How many jobs start one after the other: with one core those of the static gate, too."""
    plan = plan_of(config)
    measured = sum(timed(family) for family in config["families"]) + len(plan.regime_families)
    measured += sum(1 for each in plan.experiments.values() if each)
    return measured + len(config["families"]) * (1 if cores > 1 else 2)


def experiments_seconds(config: dict[str, Any]) -> float:
    """Seconds of the experiments apart from PyTorch's training."""
    plan = plan_of(config)
    seconds = sum(EXPERIMENTS.get(family, 0) * _share(family, plan.timed_with(family)) for family in config["families"])
    for (family, name, setting), whole in BY_SETTING.items():
        for each in plan.experiments.get(family, ()):
            if each.name == name:
                own = config.get("experiments", {}).get(family, {}).get(name, {})
                seconds += whole * (own.get(setting, each.settings[setting]) / each.settings[setting] - 1)
    return seconds + (ON_CPU_SECONDS if config["measure_cpu"] == "live" and "pytorch" in config["families"] else 0)


def _share(family: str, toolkits: tuple[str, ...]) -> float:
    """The share of a family's recorded rows of experiments that these toolkits and libraries have.

    What was recorded with one toolkit is measured with one here, too, whichever it is.
    """
    rows = kept = 0
    for path in (RECORDED / family / "experiments").glob("*.csv"):
        with path.open(newline="") as file:
            found = [row.get("toolkit", LIBRARY) for row in csv.DictReader(file)]
        rows += len(found)
        once = len({*found} - {LIBRARY}) < 2
        kept += sum(once or toolkit in (*toolkits, LIBRARY) for toolkit in found)
    return kept / rows if rows else 1.0


COMPILING = {"eager": 10, "default": 30, "reduce-overhead": 30, "max-autotune": 740}
"""Seconds of a mode of PyTorch's training, as recorded on 32 cores: its first step, its warm-up, 100 steps."""


def training(config: dict[str, Any]) -> float:
    """Seconds of PyTorch's training at most: a mode ends with its limit."""
    if "pytorch" not in config["families"]:
        return 0.0
    own = config.get("experiments", {}).get("pytorch", {}).get("training", {})
    (declared,) = (each for each in plan_of(config).experiments["pytorch"] if each.name == "training")
    settings = {**declared.settings, **own}
    return sum(min(float(settings["limit_s"]), COMPILING[mode]) for mode in settings["modes"])


if __name__ == "__main__":
    sys.exit(main())

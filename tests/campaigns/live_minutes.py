"""How long a live run would take on one GPU, stage by stage, from what recordings say of its parts.

    PYTHONPATH=workflow python tests/campaigns/live_minutes.py [--config config/full.yaml] [--cores 4]

Sampling is computed point by point: a round lasts until its interval is narrow or its time is spent, as far as the
recorded samples show. Regimes follow from the dates of two takes that were recorded one after the other, and from the
configured limits; experiments from the dates of their files, each less that of the file before it in the same session.
Gates, first checks and starts were timed on an H200 on 2026-11-23, on part of the families (GATE_SECONDS,
SUBJECT_SECONDS, FIRST_SECONDS, START_SECONDS); what still is assumed is named, and its share is printed apart. Hardware
counters are not in the sum.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow")]

from gemmrepro import registry, timing  # noqa: E402
from gemmrepro.core.files import read_json  # noqa: E402
from gemmrepro.measure.checks.samples import PointSamples, read_samples  # noqa: E402
from gemmrepro.measure.plan import Settings  # noqa: E402

RECORDED = ROOT / "reports/recorded/h200"

GATE_SECONDS = {"ladder": 0.45, "hopper": 3.4, "memory": 0.42, "cutile": 3.2}
"""Of one binary with two seeds: differences of the times of verdicts that one process wrote, of CUDA 13's binaries (24
of ladder, 20 of hopper, 25 of memory, 24 of cutile)."""

OTHER_GATE_SECONDS = 1.9
"""Assumed of the other families' binaries: the mean of the four."""

PROCESSES = 4
"""Gates judge a family in so many processes, if there are as many cores; that they share the time evenly is assumed."""

SUBJECT_SECONDS = 0.23
"""Operands, first check and trials of a subject, beside its samples: a sweep of 40 subjects in FP8 at 1024 to 16384."""

FIRST_SECONDS, LATER_SECONDS = 12.0, 1.3
"""Of the first subject of the first sweep on a machine, which reads the libraries from disk, and of later sweeps: the
same sweep, and two takes of the regimes in a row."""

START_SECONDS = 2.0
"""Of a job or a round: from the start of a job in a container until its first kernel was judged (crt)."""

REGIME_SECONDS = 84 / 15
"""Of a subject's pair of passes in both regimes, blocks of 0.4 s: take 2 of hopper ended 84 s after crt's take 1."""

EXPERIMENTS = {
    **{"ladder": 5 + 4 + 5 + 15, "ada": 8 + 8 + 8, "hopper": 10 + 10, "cutile": 19 + 34 + 27},
    **{"memory": 27 + 16 + 7 + 5, "ozaki": 66 + 7 + 60 + 5 + 2, "crt": 6},
    "pytorch": 14 + 16 + 7 + 60 + 14 + 44 + 16 + 18,
}
"""Seconds of a family's experiments apart from PyTorch's training. Guessed: hopper's cores (10, by its settings),
ozaki's accumulator (60), PyTorch's timing (60) and gelu_loads (as gelu, whose settings it has)."""


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


def sampling(config: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """Minutes of sampling and the number of subjects, by family."""
    sweep, found = config["sweep"], {}
    least, most = sweep["samples_per_round"]
    for path in sorted(RECORDED.glob("*/samples.parquet")):
        family = path.parent.name
        recorded = read_json(path.parent / "run.json", "the recording", "restore it")["config"]["seconds_per_round"]
        sizes, seconds, subjects = {str(n) for n in sweep["sizes"].get(family, [])}, 0.0, set()
        settings = Settings.of(sweep, family)
        for name, point in read_samples(path)[1].items():
            chosen = name[4] in sizes and (name[1] == "library" or name[1] in settings.toolkits)
            if chosen and name[-1] in (*settings.caches, ""):
                subjects.add(name[:-1])
                rounds = [
                    round_seconds(point, place, recorded, sweep["seconds_per_round"], least, most)
                    for place in range(len(point.times))
                ]
                seconds += sweep["rounds"] * (float(np.mean(rounds)) + timing.SETTLE_SECONDS)
        found[family] = seconds / 60, len(subjects)
    return found


def regimes(config: dict[str, Any]) -> float:
    """Minutes of the regimes: the subjects' passes, up to each family's limit."""
    section, total = config["regimes"], 0.0
    for family, sizes in section["sizes"].items():
        kernels = section["kernels"].get(family) or [k.id for k in registry.kernels(family) if k.timing.timed]
        longer = 2 * max(0.0, section["seconds"] - 0.4)
        pairs = section["pairs"]
        each = pairs["sustained"] * (REGIME_SECONDS / 2 + longer) + pairs["burst"] * REGIME_SECONDS / 2
        wanted = (len(kernels) + 1) * len(sizes) * each / 60
        total += min(wanted, section["minutes"].get(family, wanted))
    return total


def merged(below: Any, above: Any) -> Any:
    """Settings over others, key by key."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{name: merged(below.get(name), value) for name, value in above.items()}}
    return above


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", type=Path, help="settings over those of config/config.yaml")
    parser.add_argument("--cores", type=int, default=1, help="Snakemake's --cores (default %(default)s)")
    options = parser.parse_args()
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    if options.config:
        config = merged(config, yaml.safe_load(options.config.read_text()))
    by_family = {family: found for family, found in sampling(config).items() if family in config["families"]}
    known, assumed = gates(config, options.cores)
    sweeps = FIRST_SECONDS + len(by_family) * (LATER_SECONDS + config["sweep"]["rounds"] * START_SECONDS)
    experiments = {family: EXPERIMENTS.get(family, 0) for family in config["families"]}
    jobs = 4 * len(config["families"]) + sum(map(len, declared(config).values()))
    stages = {
        "gates, four families": known,
        "gates, the others (assumed)": assumed,
        **{f"sampling, {family}": minutes for family, (minutes, _) in by_family.items()},
        "checks of subjects": sum(n for _, n in by_family.values()) * SUBJECT_SECONDS / 60,
        "starts of sweeps and rounds": sweeps / 60,
        "regimes": regimes(config),
        "experiments": sum(experiments.values()) / 60,
        "PyTorch's training, at most": training(config) / 60,
        "starts of jobs": START_SECONDS * jobs / 60,
        "verdicts, figures, report": 2.0,
    }
    for name, minutes in stages.items():
        print(f"{name:32} {minutes:6.1f} min")
    assumed = sum(minutes for name, minutes in stages.items() if "assumed" in name)
    print(f"{'together':32} {sum(stages.values()):6.1f} min, {assumed:.1f} of them assumed")
    return 0


def gates(config: dict[str, Any], cores: int) -> tuple[float, float]:
    """Minutes of the numerical gates: those that follow from timed ones, and those that are assumed."""
    known = assumed = 0.0
    for family in config["families"]:
        binaries = sum(len(kernel.platform.toolkits) for kernel in registry.kernels(family))
        if family in GATE_SECONDS:
            known += binaries * GATE_SECONDS[family]
        else:
            assumed += binaries * OTHER_GATE_SECONDS
    side_by_side = 60 * min(PROCESSES, cores) * 2 / max(2, config["gates"]["seeds"])
    return known / side_by_side, assumed / side_by_side


def declared(config: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    from gemmrepro import experiments

    return {family: experiments.declared(family) for family in config["families"]}


COMPILING = {"eager": 10, "default": 30, "reduce-overhead": 30, "max-autotune": 740}
"""Seconds of a mode of PyTorch's training, as recorded on 32 cores: its first step, its warm-up, 100 steps."""


def training(config: dict[str, Any]) -> float:
    """Seconds of PyTorch's training at most: a mode ends with its limit."""
    if "pytorch" not in config["families"]:
        return 0.0
    own = config.get("experiments", {}).get("pytorch", {}).get("training", {})
    settings = {**{each.name: each for each in declared(config)["pytorch"]}["training"].settings, **own}
    return sum(min(float(settings["limit_s"]), COMPILING[mode]) for mode in settings["modes"])


if __name__ == "__main__":
    sys.exit(main())

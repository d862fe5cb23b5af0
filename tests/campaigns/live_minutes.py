"""How long a live run would take on one GPU, stage by stage, from what recordings say of its parts.

    PYTHONPATH=workflow python tests/campaigns/live_minutes.py [--config config/full.yaml]

Sampling is computed point by point: a round lasts until its interval is narrow or its time is spent, as far as the
recorded samples show. Regimes follow from the dates of two takes that were recorded one after the other, and from the
configured limits; experiments from the dates of their files, each less that of the file before it in the same session.
What no recording says (ASSUMED) is named, and its share is printed apart: gates, operands and first checks of a
subject, starts of containers.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow")]

from gemmrepro import registry, timing  # noqa: E402
from gemmrepro.core.files import read_json  # noqa: E402
from gemmrepro.measure.checks.samples import PointSamples, read_samples  # noqa: E402

RECORDED = ROOT / "reports/recorded/h200"

ASSUMED = {"gate of a kernel and toolkit": 1.5, "operands and check of a subject": 0.5, "start of a job": 4.0}
"""Seconds, from experience and not from a recording."""

REGIME_SECONDS = 84 / 15
"""Of a subject's pair of passes in both regimes, blocks of 0.4 s: take 2 of hopper ended 84 s after crt's take 1."""

EXPERIMENTS = {
    **{"ladder": 5 + 4 + 5 + 15, "ada": 8 + 8 + 8, "hopper": 10 + 60, "cutile": 19 + 34 + 30},
    **{"memory": 27 + 16 + 7 + 5, "ozaki": 66 + 7 + 60 + 30 + 30, "crt": 6, "pytorch": 14 + 16 + 7 + 60 + 60 + 44 + 16},
}
"""Seconds of a family's experiments apart from PyTorch's training, whose limit is a setting."""


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
        for name, point in read_samples(path)[1].items():
            chosen = name[4] in sizes and (name[1] == "library" or name[1] in sweep["toolkits"])
            if chosen and name[-1] in (*sweep["caches"], ""):
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
    options = parser.parse_args()
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    if options.config:
        config = merged(config, yaml.safe_load(options.config.read_text()))
    by_family = sampling(config)
    kernels = Counter(kernel.family for family in config["families"] for kernel in registry.kernels(family))
    gates = sum(len(k.platform.toolkits) for f in config["families"] for k in registry.kernels(f))
    training = registry_limit(config)
    stages = {
        "gates (assumed)": gates * ASSUMED["gate of a kernel and toolkit"] / 60,
        **{f"sampling, {family}": minutes for family, (minutes, _) in by_family.items()},
        "checks of subjects (assumed)": sum(n for _, n in by_family.values())
        * ASSUMED["operands and check of a subject"]
        / 60,
        "regimes": regimes(config),
        "experiments": sum(EXPERIMENTS.get(family, 0) for family in config["families"]) / 60,
        "PyTorch's training, at most": training / 60,
        "starts of jobs (assumed)": ASSUMED["start of a job"] * (4 * len(kernels) + 31) / 60,
        "verdicts, figures, report": 2.0,
    }
    for name, minutes in stages.items():
        print(f"{name:32} {minutes:6.1f} min")
    assumed = sum(minutes for name, minutes in stages.items() if "assumed" in name)
    print(f"{'together':32} {sum(stages.values()):6.1f} min, {assumed:.1f} of them assumed")
    return 0


def registry_limit(config: dict[str, Any]) -> float:
    """The limit of PyTorch's training in seconds."""
    from gemmrepro import experiments

    own = config.get("experiments", {}).get("pytorch", {}).get("training", {})
    declared = {each.name: each for each in experiments.declared("pytorch")}["training"]
    return float({**declared.settings, **own}.get("limit_s", 0)) if "pytorch" in config["families"] else 0.0


if __name__ == "__main__":
    sys.exit(main())

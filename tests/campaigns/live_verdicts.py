"""Do verdicts and figures rest on anything that the default live run does not measure?

    PYTHONPATH=workflow python tests/campaigns/live_verdicts.py [--results results] [--config my.yaml] [--figures]

`--results` is a finished run from recordings. A copy keeps only what a live run on the recordings' GPU would plan: rows
of the toolkits, states of the cache and sizes that the configuration times, counters at its sizes, experiments with a
family's toolkits, its kernels in the regimes, and numerical verdicts on binaries that are measured. The claims are
judged on that copy, and each verdict, and each value behind it, is compared with the one on everything. With
`--figures` every figure is drawn from both, and their numbers are compared.

Prints what differs; the exit code is 1 if a verdict does. `tests/campaigns/recorded/live_verdicts.json` is the outcome.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "workflow")]

from gemmrepro.core.files import read_json, write_json  # noqa: E402
from gemmrepro.core.names import LIBRARY  # noqa: E402
from gemmrepro.host.gpu_probe import HostGpu  # noqa: E402
from gemmrepro.host.plan import Plan  # noqa: E402
from gemmrepro.judge.judging import judge_all  # noqa: E402
from gemmrepro.measure.chosen import is_timed_at, one_of, sizes  # noqa: E402
from gemmrepro.operations import shape_of  # noqa: E402

Row = Mapping[str, str]
GPU = HostGpu("NVIDIA H200", 90)


def keep_rows(path: Path, wanted: Callable[[Row], bool]) -> tuple[int, int]:
    """Keep the rows of a CSV that are wanted; returns how many those are, and of how many."""
    with path.open(newline="") as file:
        lines = csv.DictReader(file)
        names, rows = list(lines.fieldnames or ()), list(lines)
    kept = [row for row in rows if wanted(row)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    return len(kept), len(rows)


class Reduced:
    """A copy of a run's results that holds what a live run would measure."""

    def __init__(self, results: Path, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.kept: dict[str, tuple[int, int]] = {}
        for name in ("measure", "experiments", "regimes", "gates"):
            shutil.copytree(results / name, folder / name)
        for family in plan.families:
            self._sweep(family)
            self._experiments(family)
            self._regimes(family)
        self._gates()

    def _shapes(self, row: Row, timed_at: Sequence[int]) -> bool:
        """Whether a row's shape is that of one of the sizes; a library's row is not told by its operation."""
        shape = tuple(int(float(row[axis])) for axis in "mnk")
        kernel = self.plan.kernels.get(row["kernel"])
        if kernel is None:
            return any(size in shape for size in timed_at)
        found = (shape_of(kernel.compute.op, size) for size in timed_at)
        return any((each.m, each.n, each.k) == shape for each in found)

    def _count(self, what: str, path: Path, wanted: Callable[[Row], bool]) -> None:
        kept, total = keep_rows(path, wanted)
        before = self.kept.get(what, (0, 0))
        self.kept[what] = before[0] + kept, before[1] + total

    def _sweep(self, family: str) -> None:
        sweep = self.plan.config["sweep"]
        timed_at, caches = sizes(sweep, family), one_of(sweep, "cache", family)
        toolkits = (*self.plan.timed_with(family), LIBRARY)

        def at(row: Row) -> list[int]:
            return [size for size in timed_at if is_timed_at(sweep, family, row["kernel"], size)]

        folder = self.folder / "measure" / family
        self._count(
            f"rows, {family}",
            folder / "summary.csv",
            lambda row: row["toolkit"] in toolkits and row["cache"] in ("", *caches) and self._shapes(row, at(row)),
        )
        counted = sweep["counters"].get(family, [])
        self._count(
            "counters",
            folder / "counters.csv",
            lambda row: row["toolkit"] in toolkits and self._shapes(row, counted),
        )

    def _experiments(self, family: str) -> None:
        toolkits = (*self.plan.timed_with(family), LIBRARY, "")
        for path in sorted((self.folder / "experiments" / family).glob("*.csv")):
            with path.open(newline="") as file:
                recorded_with = {row.get("toolkit", "") for row in csv.DictReader(file)} - {LIBRARY, ""}
            # What was recorded with one toolkit alone is measured with the family's.
            if len(recorded_with) > 1:
                self._count("rows of experiments", path, lambda row: row.get("toolkit", "") in toolkits)

    def _regimes(self, family: str) -> None:
        path, regimes = self.folder / "regimes" / family / "summary.csv", self.plan.config["regimes"]
        timed_at, kernels = regimes["sizes"].get(family, ()), regimes["kernels"].get(family)

        def wanted(row: Row) -> bool:
            chosen = row["toolkit"] == LIBRARY or not kernels or row["kernel"] in kernels
            return chosen and self._shapes(row, timed_at)

        if path.is_file():
            self._count("rows of the regimes", path, wanted)

    def _gates(self) -> None:
        for kernel in self.plan.kernels.values():
            path, judged = self.folder / "gates" / f"{kernel.id}.json", self.plan.judged_with(kernel)
            if not path.is_file():  # the run is older than the kernel
                continue
            gate = read_json(path, "the gate", "run the gates again")
            for toolkit, verdict in gate["toolkits"].items():
                before = self.kept.get("numerical gates", (0, 0))
                self.kept["numerical gates"] = before[0] + (toolkit in judged), before[1] + 1
                if toolkit not in judged:
                    verdict["numeric"] |= {"status": "not measured", "cases": [], "worst": None}
            write_json(path, gate)


def verdicts(folder: Path, build: Path, families: tuple[str, ...]) -> dict[str, Any]:
    """By claim: its verdict, and the value that it rests on; after it stand those of other toolkits and sizes."""
    places = folder / "measure", folder / "gates", build
    judged = judge_all(
        *places, families, experiments_dir=folder / "experiments", regimes_dir=folder / "regimes"
    ).as_json()
    return {
        claim["id"]: {
            "verdict": claim["verdict"],
            "value": next((each.get("value") for each in claim["measured"]), None),
        }
        for claim in judged["claims"]
    }


def figures(folder: Path, out: Path, plan: Plan) -> dict[str, str]:
    """The numbers of every figure as text, by family and name."""
    found = {}
    for family in plan.figures():
        drawn = out / family
        command = ["-m", "gemmrepro.paper.figures.stage", "--family", family, "--measure", str(folder / "measure")]
        command += ["--experiments", str(folder / "experiments"), "--out", str(drawn)]
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        found |= {f"{family}/{path.stem}": path.read_text() for path in sorted(drawn.glob("*.csv"))}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--config", type=Path, help="settings over those of config/config.yaml")
    parser.add_argument("--figures", action="store_true", help="compare the figures' numbers, too")
    parser.add_argument("--out", type=Path, help="write the outcome as JSON")
    options = parser.parse_args()
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    if options.config:
        from gemmrepro.core.settings import merged

        config = merged(config, yaml.safe_load(options.config.read_text()))
    plan = Plan(config, "live", GPU)
    families = tuple(family for family in plan.families if (options.results / "measure" / family).is_dir())
    build = options.results / "build"
    with tempfile.TemporaryDirectory() as folder:
        reduced = Reduced(options.results, Path(folder) / "reduced", plan)
        before, after = (verdicts(place, build, families) for place in (options.results, reduced.folder))
        other = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
        drawn = (
            [
                figures(place, Path(folder) / name, plan)
                for name, place in (("a", options.results), ("b", reduced.folder))
            ]
            if options.figures
            else [{}, {}]
        )
    changed = {name: pair for name, pair in other.items() if pair[0]["verdict"] != pair[1]["verdict"]}
    differ = sorted(name for name in drawn[0] if drawn[0][name] != drawn[1].get(name))
    outcome = {
        "kept": {name: list(pair) for name, pair in reduced.kept.items()},
        "claims": len(before),
        "verdicts that differ": {name: [one["verdict"] for one in pair] for name, pair in changed.items()},
        "values that differ": sorted(set(other) - set(changed)),
        "figures": len(drawn[0]),
        "figures that differ": {name: [len(each[name].splitlines()) - 1 for each in drawn] for name in differ},
    }
    print(json.dumps(outcome, indent=1))
    if options.out:
        write_json(options.out, outcome)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())

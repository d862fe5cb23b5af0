"""A machine of `tests/devices` from nvidia-smi's answer to the page, without CUDA: nothing here is measured.

What the GPU would do is made up: the sweep's own code plans the points and writes the rows, from samples that follow
from the machine's rates and from how far a kernel reached its baseline on the H200; an experiment has the H200's rows
of those kernels that run on the machine. All of it is marked as synthetic.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sys
import zlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
import yaml
from support import ROOT
from synthetic import CODE, LEVELS, hot_loop, write_build

from gemmrepro import __main__ as command
from gemmrepro import experiments, operands, registry
from gemmrepro.core.names import LIBRARY
from gemmrepro.errors import UserError
from gemmrepro.figures import stage as figures_stage
from gemmrepro.gpu.cublas import Trials
from gemmrepro.gpu.device import Gpu
from gemmrepro.gpu.loaded import Binary, Loaded
from gemmrepro.host import config as configuration
from gemmrepro.host.places import HostGpu, find_gpus
from gemmrepro.host.plan import Plan
from gemmrepro.judge.judging import judge_all
from gemmrepro.measure import passes, prepare, recording, results
from gemmrepro.measure.passes import RegimeSettings, sets
from gemmrepro.measure.plan import Point, Settings
from gemmrepro.measure.prepare import Check, Round
from gemmrepro.measure.recording import write_nothing
from gemmrepro.measure.regimes import SUSTAINED, Block, Chunk, Reading
from gemmrepro.measure.rows import write_no_regimes
from gemmrepro.recordings import bundles
from gemmrepro.recordings.bundles import accept, read_bundle, write_bundle
from gemmrepro.registry import Kernel, card

DEVICES = {path.stem: path for path in sorted((ROOT / "tests/devices").glob("*.yaml"))}
H200 = ROOT / "reports/recorded/h200"
CONFIG = yaml.safe_load((ROOT / "config/config.yaml").read_text())
UUID, SLICE = "GPU-11111111-2222-3333-4444-555555555555", "MIG-66666666-7777-8888-9999-000000000000"
VERSION = {"cuda12": "12.4.131", "cuda13": "13.4.92"}
"""What a build record says; the driver must run it."""

SMI = """#!{python}
import sys
asked = next((word.partition("=")[2].split(",") for word in sys.argv if word.startswith("--query-gpu=")), None)
for gpu in {gpus!r}:
    print(", ".join(gpu[name] for name in asked) if asked else "GPU 0: " + gpu["name"] + " (UUID: " + gpu["uuid"] + ")")
    if not asked and {mig!r}:
        print("  MIG 1g Device 0: (UUID: " + {mig!r} + ")")
"""

REACHED = 0.85
"""The share of the machine's rates at which libraries run; micro-kernels run at 0.98."""


@dataclass(frozen=True)
class Device:
    """A profile of `tests/devices`; see its README."""

    slug: str
    said: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Device:
        return cls(path.stem, yaml.safe_load(path.read_text()))

    @property
    def name(self) -> str:
        return str(self.said["name"])

    @property
    def capability(self) -> tuple[int, int]:
        major, minor = str(self.said["capability"]).split(".")
        return int(major), int(minor)

    @property
    def gpu(self) -> Gpu:
        """What `open_gpu` would return."""
        return Gpu(
            name=self.name,
            compute_capability=self.capability,
            sm_count=self.said["sms"],
            l2_bytes=int(self.said["l2_mb"] * 2**20),
            memory_bytes=int(self.said["memory_gib"] * 2**30),
            driver=self.said["driver"],
            driver_cuda=(13, 0),
            clock_max_mhz=self.said["clock_mhz"],
            memory_clock_mhz=self.said["memory_clock_mhz"],
            power_cap_w=self.said["power_cap_w"],
            pci_bus="0000:01:00.0",
            card=hashlib.sha256(self.slug.encode()).hexdigest()[:16],
            mig="mig" in self.said,
            watchdog=self.said.get("display", False),
            display=self.said.get("display", False),
        )

    def found(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[HostGpu], str]:
        """What the workflow finds there, given nvidia-smi's answer."""
        first, mig = self.said.get("first"), SLICE if "mig" in self.said else ""
        gpus = [
            {"name": self.said.get("mig", self.name), "compute_cap": "{}.{}".format(*self.capability), "uuid": UUID}
        ]
        if first:
            name, _, capability = first.rpartition(", ")
            gpus.insert(0, {"name": name, "compute_cap": capability, "uuid": UUID.replace("1", "2")})
        for gpu in gpus:
            gpu["driver_version"] = self.said["driver"]
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/nvidia-smi").write_text(SMI.format(python=sys.executable, gpus=gpus, mig=mig))
        (folder / "bin/nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        node = self.said.get("device", "/dev/nvidiactl")
        (folder / "dev").mkdir()
        (folder / "dev" / Path(node).name).touch()
        (folder / "wsl/lib").mkdir(parents=True)
        (folder / "wsl/lib/libdxcore.so").touch()
        machine = self.said.get("machine", "x86_64")
        environ = {"CUDA_VISIBLE_DEVICES": SLICE} if mig else {}
        return find_gpus(environ, containers=True, machine=machine, dev=folder / "dev", wsl=folder / "wsl")


class Journal:
    """`core.journal.Journal` in memory."""

    def __init__(self, *_: object) -> None:
        self.entries: dict[str, Any] = {}

    def get(self, name: str, identity: Mapping[str, Any]) -> Any:
        return self.entries.get(name)

    def put(self, name: str, identity: Mapping[str, Any], payload: Any) -> None:
        self.entries[name] = payload


@cache
def h200_ratios() -> Mapping[tuple[str, int], float]:
    """How far a kernel reached its baseline on the H200, by kernel and size."""
    rows = pd.concat(pd.read_csv(path, usecols=["kernel", "n", "ratio"]) for path in sorted(H200.glob("*/summary.csv")))
    return rows.dropna().groupby(["kernel", "n"])["ratio"].median().to_dict()


@cache
def h200_gates() -> Mapping[str, Any]:
    """The H200's verdicts of the numerical gates by kernel."""
    return {
        name: verdict
        for path in sorted(H200.glob("*/gates.json"))
        for name, verdict in json.loads(path.read_text()).items()
    }


class CardWorld:
    """What a live run of the default configuration would leave on a machine, below `root`."""

    def __init__(self, device: Device, root: Path, monkeypatch: pytest.MonkeyPatch, host: HostGpu) -> None:
        self.device, self.root, self.gpu = device, root, device.gpu
        card.use(card.described(self.gpu.describe()))  # as open_gpu does
        self.config = json.loads(json.dumps(CONFIG))
        self.config["sweep"]["rounds"] = 2
        configuration.check(self.config)
        self.plan = Plan(self.config, "live", host)
        self.build, self.gates = root / "build", root / "gates"
        self.session = SimpleNamespace(
            gpu=self.gpu, free_bytes=lambda: int(device.said["free_gib"] * 2**30), trials=Trials(), libraries={}
        )
        self.points: dict[str, tuple[Point, ...]] = {}
        self.skipped: dict[str, tuple[Any, ...]] = {}
        real = prepare.baselines.baseline
        monkeypatch.setattr(Loaded, "built", classmethod(self._loaded))
        monkeypatch.setattr(prepare, "Journal", Journal)
        version = lambda session: "cuBLAS 13.1.0"  # noqa: E731
        monkeypatch.setattr(
            prepare.baselines, "baseline", lambda name: SimpleNamespace(rung=real(name).rung, version=version)
        )
        self.settings = self.plan.settings
        _json(root / "config.json", self.settings)

    @staticmethod
    def _loaded(_: type, session: Any, kernel: Kernel, build: Path, toolkit: str) -> Any:
        return Binary.built(session.gpu, kernel, build, toolkit)

    @cached_property
    def runs(self) -> dict[str, list[str]]:
        """The toolkits whose binary runs on the GPU, by kernel; kernels without one are left out."""
        found: dict[str, list[str]] = {}
        for kernel in self.plan.kernels.values():
            for toolkit in self.plan.toolkits_of(kernel):
                try:
                    Binary.built(self.gpu, kernel, self.build, toolkit)
                except UserError:
                    continue
                found.setdefault(kernel.id, []).append(toolkit)
        return found

    def write_builds(self) -> None:
        """A build record of each kernel by each toolkit, for the architectures that the plan names."""
        for kernel in self.plan.kernels.values():
            for toolkit in self.plan.toolkits_of(kernel):
                compiled = toolkit in self.plan.compiling(kernel)
                archs = registry.targets(kernel, self.plan.architectures(kernel, toolkit)) if compiled else []
                loads = max(1, round(LEVELS[kernel.id][2] * 512)) if kernel.id in LEVELS else 0
                loop = hot_loop(loads, 512) if loads else hot_loop(1, 4)
                code = CODE | {"instructions": {"FFMA": 512, "EXIT": 1}, "hot_loop": loop}
                key = hashlib.sha256(f"{kernel.id} {toolkit}".encode()).hexdigest()[:16]
                write_build(self.build, kernel.id, toolkit, key, {f"sm_{arch}": code for arch in archs})
                path = self.build / toolkit / f"{kernel.id}.json"
                path.write_text(json.dumps(json.loads(path.read_text()) | {"toolkit_version": VERSION[toolkit]}))
                path.with_suffix(".fatbin").touch()

    def write_gates(self) -> None:
        """A verdict of each kernel: the H200's cases where it runs here."""
        for kernel in self.plan.kernels.values():
            toolkits, judged = {}, {}
            for toolkit in self.plan.toolkits_of(kernel):
                key = json.loads((self.build / toolkit / f"{kernel.id}.json").read_text())["build_key"]
                recorded = h200_gates().get(kernel.id, {"toolkits": {}})["toolkits"]
                known = recorded.get(toolkit) or next(iter(recorded.values()), None)
                runs = known is not None and toolkit in self.runs.get(kernel.id, ())
                numeric = {"status": "not run", "reason": "it does not run on this GPU", "cases": []}
                judged[toolkit] = (known if runs else numeric) | {"build_key": key}
                judged[toolkit].setdefault("gate_key", "0" * 16)
                found = {"source": "live", "gpu": self.gpu.name, "worst": None} | judged[toolkit]
                toolkits[toolkit] = {"build_key": key, "static": {"passed": True, "checks": []}, "numeric": found}
            _json(self.gates / f"{kernel.id}.json", {"kernel": kernel.id, "passed": True, "toolkits": toolkits})
            verdict = {"kernel": kernel.id, "gpu": self.gpu.name, "driver": self.gpu.driver, "toolkits": judged}
            _json(self.gates / "numeric" / kernel.family / f"{kernel.id}.json", verdict)

    def _prepared(self, kernels: Mapping[str, Kernel], settings: Settings) -> prepare.Sweep:
        folders = (self.build, self.gates, self.root / "journal")
        return prepare.prepare(self.session, kernels, settings, *folders, lambda line: None)

    def write_sweep(self, family: str) -> None:
        """The rows of a family: real points, made-up samples."""
        out = self.root / "measure" / family
        out.mkdir(parents=True)
        kernels = prepare.timed_kernels(family)
        if not kernels:
            write_nothing(out)
            return
        sweep = self._prepared(kernels, Settings.of(self.settings["sweep"], family))
        self.points[family], self.skipped[family] = sweep.points, sweep.skipped
        for point in sweep.points:
            sweep.keep_check(point, Check(True, "", 1.0, 1e-3, 100.0, confirmed=True))
            own, baseline = self._times(sweep, point)
            for number in range(sweep.settings.rounds):
                jitter = [1 + 0.001 * (zlib.crc32(f"{point} {number} {i}".encode()) % 9) for i in range(5)]
                times = [round(own * factor, 4) for factor in jitter]
                beside = [round(baseline * factor, 4) for factor in jitter] if point.baseline else []
                reading = {"clock_mhz": 0.9 * self.device.said["clock_mhz"], "temp_c": 50, "throttle": 0}
                power = self.gpu.power_cap_w and 0.8 * self.gpu.power_cap_w
                sweep.keep_round(point, number, Round(times, beside, [reading | {"power_w": power}], "graph"))
        sweep.journal.put("baseline-kernels", {}, {})
        results.write(sweep, out)
        _json(out / results.RUN, json.loads((out / results.RUN).read_text()) | {"synthetic": True})
        (out / results.COUNTERS).write_text(",".join(results.COUNTER_COLUMNS) + "\n")

    def _times(self, sweep: prepare.Sweep, point: Point) -> tuple[float, float]:
        """Microseconds of a launch of a point and of its baseline."""
        baseline = self.baseline_us(sweep.kernels.get(point.kernel) or results.compared_with(sweep, point), point)
        ratio = min(0.95 / REACHED, h200_ratios().get((point.kernel, point.shape.n), 0.8))
        share = 1.0 if point.toolkit == LIBRARY else ratio if point.baseline else 0.98 / REACHED
        return baseline / share, baseline

    def write_regimes(self, family: str) -> None:
        """The rows of a family in the regimes: real sets and rows; made-up blocks, sustained at a lower clock."""
        wanted = RegimeSettings.of(self.settings["regimes"], family)
        out = self.root / "regimes" / family
        out.mkdir(parents=True)
        kernels = prepare.timed_kernels(family, ",".join(wanted.kernels) if wanted.kernels else None)
        if not wanted.sizes or not kernels:
            write_no_regimes(out)
            return
        settings = replace(
            Settings.of(self.settings["sweep"], family), toolkits=wanted.toolkits, caches=("warm",), sizes=wanted.sizes
        )
        sweep = self._prepared(kernels, settings)
        made = passes.Passes(sweep, wanted, sets(sweep.points, wanted.toolkits), None, print)
        for point in sweep.points:
            sweep.keep_check(point, Check(True, "", 1.0, 1e-3, 100.0, confirmed=True))
        for pair in made.wanted:
            visits = [astuple(passes.Visit(place, self._block(sweep, pair, place))) for place in pair.order]
            sweep.journal.put(pair.name, {}, {"visits": visits})
        sweep.journal.put("baseline-kernels", {}, {})
        results.write_regimes(sweep, made, out)
        _json(out / results.RUN, json.loads((out / results.RUN).read_text()) | {"synthetic": True})

    def _block(self, sweep: prepare.Sweep, pair: passes.Pair, place: int) -> Block:
        """A block of a tenth of a second, with as many sensors as the machine has."""
        share = 0.9 if pair.regime == SUSTAINED else 1.0
        us = round(self._times(sweep, pair.members.subjects[place])[0] / share, 4)
        clock, cap = self.device.said["clock_mhz"] * share, self.gpu.power_cap_w
        power = None if cap is None or self.gpu.mig else 0.8 * cap
        readings = [
            Reading(at, clock, power, 50.0, 0, None if power is None else round(power * at, 3))
            for at in (0.0, 0.025, 0.05, 0.075, 0.1)
        ]
        return Block(True, 1.0, [Chunk(0.02 * each, 10, us) for each in range(1, 6)], readings)

    def write_experiments(self, family: str) -> None:
        """The H200's rows of kernels that run here, and of libraries."""
        out = self.root / "experiments" / family
        out.mkdir(parents=True)
        for experiment in experiments.declared(family):
            table, run = (H200 / family / "experiments" / f"{experiment.name}.{suffix}" for suffix in ("csv", "json"))
            if not table.is_file():
                continue
            rows = list(csv.DictReader(table.open(newline="")))
            kept = [
                row for row in rows if row["toolkit"] == LIBRARY or row["toolkit"] in self.runs.get(row["kernel"], ())
            ]
            for row in kept:
                if experiment.impossible and row["cycles"]:
                    row["ns"] = f"{float(row['cycles']) / self.device.said['clock_mhz'] * 1e3:.6g}"
                if row["toolkit"] != LIBRARY:
                    path = self.build / row["toolkit"] / f"{row['kernel']}.json"
                    row["build_key"] = json.loads(path.read_text())["build_key"]
            with (out / table.name).open("w", newline="") as file:
                writer = csv.DictWriter(file, experiment.header, lineterminator="\n")
                writer.writeheader()
                writer.writerows(
                    {name: row.get(name, "") for name in experiment.header} | {"status": "current"} for row in kept
                )
            document = json.loads(run.read_text())
            if document.get("gpu"):
                document["gpu"] = self.gpu.describe()
            _json(out / run.name, document | {"source": "live", "synthetic": True})

    def baseline_us(self, kernel: Kernel, point: Point) -> float:
        """Microseconds of a launch at `REACHED` of what the machine's rates allow."""
        rates = self.device.said["rates"]
        work, moved = operands.work(kernel, point.shape)
        tensor = rate_of(kernel, rates)
        seconds = max((work or 0) / (tensor * 1e12), (moved or 0) / (rates["dram"] * 1e9))
        return 3.0 + 1e6 * seconds / REACHED

    def judge(self) -> Mapping[str, Any]:
        """results/verdicts.json, by a process that opens no GPU."""
        card.use(card.REFERENCE)
        folders = (self.root / "measure", self.gates, self.build)
        judged = judge_all(
            *folders,
            tuple(self.plan.families),
            experiments_dir=self.root / "experiments",
            regimes_dir=self.root / "regimes",
        )
        _json(self.root / "verdicts.json", judged)
        return judged

    def report(self, monkeypatch: pytest.MonkeyPatch, drawn: bool) -> Path:
        """The report's folder, with all figures; their pictures are drawn only if `drawn`."""
        if not drawn:
            monkeypatch.setattr(figures_stage, "svg_of", lambda *_: '<svg viewBox="0 0 9 9"><title>-</title></svg>')
        own = {name: str(self.root / name) for name in ("measure", "experiments", "regimes", "figures")}
        for family in self.plan.figures():
            words = ["--family", family, "--measure", own["measure"], "--experiments", own["experiments"]]
            _run("figures", *words, "--out", f"{own['figures']}/{family}")
        words = ["--verdicts", str(self.root / "verdicts.json"), "--families", ",".join(self.plan.families)]
        words += [word for name in ("measure", "experiments", "regimes") for word in (f"--{name}", own[name])]
        _run("figures", *words, "--out", f"{own['figures']}/paper")
        names = ("measure", "experiments", "regimes", "figures", "gates", "build", "images")
        words = [word for name in names for word in (f"--{name}", str(self.root / name))]
        words += ["--verdicts", str(self.root / "verdicts.json"), "--config", str(self.root / "config.json")]
        _run("report", *words, "--recorded", str(H200), "--out", str(self.root / "reports"))
        return self.root / "reports"

    def accepted(self) -> Path:
        """The folder in which the run's own bundle is filed."""
        (self.root / "packed").mkdir()
        write_bundle(bundles.collect(self.root, self.root / "packed"), self.root / "mine.zip")
        with patch.object(recording, "SYNTHETIC", True):
            return accept(read_bundle(self.root / "mine.zip"), self.root / "recorded", self.build)


def _run(*words: str) -> None:
    assert command.run(words) == 0


def rate_of(kernel: Kernel, rates: Mapping[str, float]) -> float:
    """TFLOP/s (TOP/s) of the operands' type with the sums' type, or of FP32 where the machine names none."""
    dtype, sums = kernel.compute.dtype_in, kernel.compute.dtype_acc
    name = {"fp16": f"fp16_acc{'16' if sums == 'fp16' else '32'}", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}.get(
        dtype, dtype
    )
    if dtype == "fp64":
        name = "fp64_tensor" if "fp64_tensor" in rates else "fp64"
    return float(rates.get(name, rates["fp32"]))


def _json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))

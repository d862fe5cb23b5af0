"""Writes made-up inputs for the analysis and the report, in the formats that the stages before them use.

Every number here follows from a formula that no GPU obeys (the GPU is called "Synthetic GPU"), so nothing made of it
can be taken for a measurement.
"""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.measure.columns import COUNTER_COLUMNS, SAMPLE_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.recording import write_manifest
from gemmrepro.registry.ladders import before, compared, is_tuned, steps

LEVELS = {
    # kernel: (rung, share of the baseline's speed, global loads an output / K)
    "ladder.naive": ("L1", 0.0125, 2.0),
    "ladder.coalesced": ("L2", 0.10, 2.0),
    "ladder.smem": ("L3", 0.125, 2 / 32),
    "ladder.blocktile_1d": ("L4", 0.40, 2 / 64),
    "ladder.blocktile_2d": ("L5", 0.50, 2 / 128),
    "ladder.vectorized": ("L6", 0.70, 2 / 512),
    "ladder.warptile": ("L7", 0.90, 2 / 512),
}
SIZES = (256, 512, 1024, 2048, 4096, 8192)
TOOLKITS = ("cuda12", "cuda13")
VERSIONS = {"cuda12": "12.4.131", "cuda13": "13.0.88"}
ARCHS = {"cuda12": ("sm_80", "sm_90"), "cuda13": ("sm_80", "sm_90", "sm_120")}
GPU, SPREAD = "Synthetic GPU", 0.002
PEAK_TFLOPS = {
    **{"fp32": 50.0, "bf16": 700.0, "fp16": 680.0, "tf32": 400.0, "fp64": 60.0},
    **{"fp8_e4m3": 1300.0, "fp8_e5m2": 1300.0, "int8": 1200.0},
}
CEILINGS = {
    # kernel: (size, TFLOP/s, GB/s)
    "ceilings.ffma": (1, 60.0, ""),
    "ceilings.ffma_rrr": (1, 57.0, ""),
    "ceilings.wgmma": (1, 850.0, ""),
    "ceilings.mma_f16": (1, 600.0, ""),
    "ceilings.dram_copy": (1 << 28, "", 3000.0),
}
STAND_INS = Path(__file__).parent / "kernels"
"""Families with everything that a family may hold; see `stand_in`."""


def stand_in(monkeypatch, folder: Path) -> Path:
    """Make the registry read STAND_INS instead of the real families, in this process, until the test ends.

    Returns:
        their copy in `folder`, with the real families' findings and calculations; a test may change it.
    """

    kernels = folder / "kernels"
    shutil.copytree(STAND_INS, kernels, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("findings.md", "calculations.py"):
        for path in paths.KERNELS_DIR.glob(f"*/{name}"):
            if (kernels / path.parent.name).is_dir():
                shutil.copy(path, kernels / path.parent.name)
    for name in ("chips.yaml", "references.yaml"):
        if not (kernels / name).is_file():
            shutil.copy(paths.KERNELS_DIR / name, kernels)
    # The articles' claims are about kernels that the stand-ins lack.
    shutil.copytree(paths.ARTICLES_DIR, folder / "articles", ignore=shutil.ignore_patterns("claims.yaml"))
    for path in (folder / "articles").glob("*/article.yaml"):
        path.write_text(re.sub("^derive:.*\n", "", path.read_text(), flags=re.M))
    monkeypatch.setattr(paths, "ARTICLES_DIR", folder / "articles")
    monkeypatch.setattr(paths, "KERNELS_DIR", kernels)
    return kernels


def share(kernel: registry.Kernel) -> float:
    """A kernel's share of its baseline's speed: LEVELS where it is one, else by its place in its ladder."""
    if kernel.id in LEVELS:
        return LEVELS[kernel.id][1]
    if is_tuned(kernel):
        return 1.1 * share(before(kernel))
    ladder = steps(kernel.family, kernel.compute.dtype_in)
    place = [step.id for step in ladder].index(kernel.id)
    if kernel.family == "ladder":
        return 0.88 + 0.02 * place
    return 0.45 + 0.6 * place / len(ladder) - (0.01 if kernel.compute.dtype_in == "fp16" else 0.0)


def hot_loop(loads: int, multiply_adds: int) -> str:
    """A main loop's machine code with so many global loads and multiply-adds."""
    lines = [".L_x_1:"]
    lines += [f"        /*{16 * i:04x}*/  LDG.E R{i}, desc[UR4][R2.64+{4 * i:#x}] ;" for i in range(loads)]
    lines += [f"        /*{16 * i:04x}*/  FFMA R0, R{i}, R1, R0 ;" for i in range(multiply_adds)]
    return "\n".join([*lines, "        @!P0 BRA `(.L_x_1) ;"])


CODE = {
    **{"registers": 40, "spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0, "shared_bytes": 8192},
    **{"barriers": 1, "constant_bytes": 400, "instructions": {}, "instruction_total": 700, "hot_loop": ""},
}
"""Machine code in a build record."""


def write_build(
    build: Path, kernel: str, toolkit: str, build_key: str, archs: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Write the build record of a kernel, with this code by architecture, or with none."""
    record = {
        **{"kernel": kernel, "toolkit": toolkit, "toolkit_version": VERSIONS[toolkit], "build_key": build_key},
        **{"flags": ["-O3"], "sources": {"kernels/x.cu": "0" * 64}, "entry": kernel.split(".")[1]},
        **{"advisories": [], "archs": archs or {}},
    }
    _json(build / toolkit / f"{kernel}.json", record)


@dataclass
class World:
    """What to write. `ratios` overrides a level's share of the baseline.

    Of the ladder only LEVELS are measured unless `whole`; a tuned twin or a step past the article has builds and gates.
    """

    root: Path
    families: tuple[str, ...] = ("ladder", "ceilings")
    whole: bool = False
    sizes: tuple[int, ...] = SIZES
    gpu: str = GPU
    source: str = "recorded"
    ratios: dict[str, float] = field(default_factory=dict)
    stale: tuple[str, ...] = ()
    counters: bool = True
    ceilings: bool = True
    ladder: bool = True
    samples: bool = True
    locks: bool = True
    numeric: str = "passed"
    failed_gates: tuple[str, ...] = ()
    instructions: dict[str, int] = field(
        default_factory=lambda: {
            **{"LDG.E": 8, "LDG.E.128": 4, "STG.E": 1, "STG.E.128": 2, "FADD": 1, "FFMA": 512},
            **{"BAR.SYNC.DEFER_BLOCKING": 2, "LDS.128": 32, "EXIT": 1},
        }
    )

    def __post_init__(self) -> None:
        """Name the folders; `recorded` only holds what compute-sanitizer said."""
        folders = (self.root / name for name in ("measure", "build", "gates", "images", "recorded"))
        self.measure, self.build, self.gates, self.images, self.recorded = folders
        self.config = self.root / "config.json"

    def write(self) -> World:
        """Write all of it; returns itself."""
        for folder in (self.measure, self.build, self.gates, self.images):
            folder.mkdir(parents=True, exist_ok=True)
        for family in self.families:
            if family == "ceilings" and not self.ceilings:
                continue
            for kernel in registry.kernels(family):
                self._write_build(kernel.id)
                self._write_gate(kernel.id)
        for family in self.families:
            if family != "ceilings" and self.ladder:
                self._write_ladder(family)
        if self.ceilings and "ceilings" in self.families:
            self._write_ceilings()
        if self.locks:
            for env in ("cuda12", "cuda13", "report"):
                lock = {
                    **{"env": env, "base": "debian:12", "builder": "synthetic", "recipe_sha256": "0" * 64},
                    **{"requirements_sha256": "1" * 64, "os": [{"name": "libc6", "version": "2.36"}]},
                    "python": [{"name": "numpy", "version": "2.0"}],
                }
                _json(self.images / f"{env}.lock.json", lock)
        _json(self.config, {"measure": "auto", "families": list(self.families), "sweep": {"interval": 0.01}})
        return self

    def key(self, kernel: str, toolkit: str) -> str:
        return f"{toolkit[-2:]}{sum(kernel.encode()):014x}"

    def write_sanitizers(self, kernel: str, said: Sequence[str], changed: str = "") -> None:
        """What compute-sanitizer said of a kernel: two tools clean, racecheck `said`; an older binary of `changed`."""
        path = self.recorded / kernel.split(".")[0] / "sanitizers.json"
        tools = {"memcheck": "clean", "racecheck": list(said), "synccheck": "clean"}
        toolkits = {
            toolkit: {
                "build_key": "0" * 16 if toolkit == changed else self.key(kernel, toolkit),
                "date": "2000-01-01",
                "shapes": ["1x2x3"],
                "tools": tools,
            }
            for toolkit in TOOLKITS
        }
        before = json.loads(path.read_text()) if path.is_file() else {}
        _json(path, before | {kernel: {"gpu": self.gpu, "toolkits": toolkits}})
        write_manifest(path.parent)

    def _write_build(self, kernel: str) -> None:
        loads = LEVELS.get(kernel, ("", 0, 1.0))[2]
        for toolkit in TOOLKITS:
            archs = {
                arch: {
                    **CODE,
                    "instructions": dict(self.instructions),
                    "hot_loop": hot_loop(max(1, round(loads * 512)), 512),
                }
                for arch in ARCHS[toolkit]
            }
            write_build(self.build, kernel, toolkit, self.key(kernel, toolkit), archs)

    def _write_gate(self, kernel: str) -> None:
        failed = kernel in self.failed_gates
        case = {
            **{"shape": [33, 65, 17], "alpha": 1.5, "beta": -0.5, "inputs": "normal", "seed": 1},
            **{"err_scaled_max": 0.7, "gamma": 19.0, "passed": not failed, "message": ""},
        }
        checks = [
            {"check": check, "why": "the level is about this", "expected": expected, "found": 0 if failed else 8}
            | {"passed": not failed}
            for check, expected in (("LDG.E", ">= 1"), ("spills", "0 bytes"))
        ]
        ran = self.numeric in ("passed", "failed")
        worst = {"err_scaled_max": 0.7, "gamma": 19.0, "case": "33x65x17 normal"}
        toolkits = {}
        for toolkit in TOOLKITS:
            key = self.key(kernel, toolkit)
            static = [{"arch": arch, **check} for arch in ARCHS[toolkit] for check in checks]
            numeric = {"status": self.numeric, "source": "none", "cases": []}
            numeric |= dict.fromkeys(("gpu", "build_key", "worst"))
            judged = {"source": "recorded", "gpu": self.gpu, "build_key": key, "worst": worst, "cases": [case]}
            toolkits[toolkit] = {
                **{"build_key": key, "static": {"passed": not failed, "checks": static}},
                "numeric": numeric | (judged if ran else {}),
            }
        _json(self.gates / f"{kernel}.json", {"kernel": kernel, "passed": not failed, "toolkits": toolkits})

    def _run(self) -> dict:
        gpu = {"name": self.gpu, "compute_capability": "9.0", "sm_count": 100, "l2_bytes": 50_000_000}
        gpu |= {"memory_bytes": 100_000_000_000, "driver": "000.00", "clock_max_mhz": 1000, "memory_clock_mhz": 1000}
        ran = {f"cublas.gemm {dtype} 4096": f"synthetic_{dtype}_128x256" for dtype in ("bf16", "fp16")}
        return {
            **{"source": self.source, "gpu": gpu | {"power_cap_w": 100}, "libraries": {"cublas": "0.0.0"}},
            **{"toolkits": VERSIONS, "baseline_kernels": {"cublas.sgemm 4096": "synthetic_sgemm_128x128"} | ran},
            **{"git_commit": "0" * 40, "date": "2000-01-01T00:00:00Z"},
            "config": {"sizes": {"ladder": list(self.sizes)}},
        }

    def _row(self, family: str, us: float, **cells: Any) -> dict:
        """A row of a table with a time of `us`."""
        usual = {"median_us": us, "ci_low_us": us * (1 - SPREAD), "ci_high_us": us * (1 + SPREAD)}
        usual |= {"family": family, "samples": 60, "rounds": 5, "clock_mhz": 1000, "power_w": 90, "temp_c": 50}
        usual |= {"arch": "sm_90", "status": "current"} | cells
        return {column: usual.get(column, "") for column in SUMMARY_COLUMNS}

    def _gemm_row(self, family, kernel, rung, dtype, baseline, n, cache, toolkit, tflops, base_tflops) -> dict:
        flops = 2 * n**3
        median, base = flops / tflops / 1e6, flops / base_tflops / 1e6
        point = {"kernel": kernel, "rung": rung, "dtype": dtype, **dict.fromkeys("mnk", n), "cache": cache}
        row = self._row(family, median, **point, toolkit=toolkit, tflops=tflops)
        if kernel == baseline:
            return row | {"build_key": "0.0.0", "baseline": baseline, "ratio": 1.0}
        return row | {
            "baseline": baseline,
            "baseline_median_us": base,
            "ratio": base / median,
            "ratio_ci_low": base / median * (1 - SPREAD),
            "ratio_ci_high": base / median * (1 + SPREAD),
            "err_scaled_max": 0.6,
            "err_fro": 1e-7,
            "build_key": self.key(kernel, toolkit),
            "status": "stale" if kernel in self.stale else "current",
        }

    def _write_ladder(self, family: str) -> None:
        rows, samples, counters = [], [], []
        rng = np.random.default_rng(7)
        kernels = [k for k in compared(family) if self.whole or family != "ladder" or k.id in LEVELS]
        for n in self.sizes:
            for cache_state in ("cold", "warm"):
                for dtype, baseline in dict.fromkeys(
                    (kernel.compute.dtype_in, kernel.timing.baseline) for kernel in kernels
                ):
                    # cuBLAS nears its peak as the problem fills the GPU.
                    base = PEAK_TFLOPS[dtype] * n**2 / (n**2 + 600**2) * (1.0 if cache_state == "warm" else 0.9)
                    at = (dtype, baseline, n, cache_state)
                    rows.append(self._gemm_row(family, baseline, "cuBLAS", *at, "library", base, base))
                    for kernel in kernels:
                        if kernel.compute.dtype_in != dtype:
                            continue
                        part = self.ratios.get(kernel.id, share(kernel))
                        for toolkit in TOOLKITS:
                            speed = base * part * (1.0 if toolkit == "cuda12" else 1.02)
                            row = self._gemm_row(family, kernel.id, kernel.rung, *at, toolkit, speed, base)
                            rows.append(row)
                            times = row["median_us"] * (1 + 0.004 * rng.standard_gamma(2.0, 60) - 0.0067)
                            point = (kernel.id, toolkit, dtype, n, n, n, None, cache_state)
                            for index, time in enumerate(times):
                                last = (row["baseline_median_us"], row["build_key"])
                                samples.append((*point, index // 12, index % 12, time, *last))
        n = 4096
        for kernel in kernels:
            loads = LEVELS.get(kernel.id, ("", 0, 2 / 512))[2]
            for toolkit in TOOLKITS:
                status = "stale" if kernel.id in self.stale else "current"
                values = {
                    "smsp__sass_inst_executed_op_global_ld.sum": (loads * n**3 / 32, "inst"),
                    "dram__bytes.sum": (12 * n * n * (1 + 40 * loads), "byte"),
                    "dram__bytes.sum.per_second": (1e9 * (2 + share(kernel) * 1000), "byte/second"),
                    "smsp__issue_active.avg.pct_of_peak_sustained_active": (40 + 50 * share(kernel), "%"),
                    "smsp__inst_executed_pipe_fma.sum": (n**3 / 32, "inst"),
                    "smsp__inst_executed.sum": (n**3 / 32 / min(0.95, share(kernel)), "inst"),
                }
                for metric, (value, unit) in values.items():
                    point = {"kernel": kernel.id, "toolkit": toolkit, "m": n, "n": n, "k": n, "status": status}
                    key = self.key(kernel.id, toolkit)
                    cells = {**point, "metric": metric, "value": value, "unit": unit, "build_key": key}
                    counters.append([cells.get(column, "") for column in COUNTER_COLUMNS])
        folder = self.measure / family
        _csv(folder / "summary.csv", SUMMARY_COLUMNS, [[row[column] for column in SUMMARY_COLUMNS] for row in rows])
        _csv(folder / "counters.csv", COUNTER_COLUMNS, counters if self.counters else [])
        if self.samples:
            pd.DataFrame(samples, columns=SAMPLE_COLUMNS).to_parquet(folder / "samples.parquet")
        _json(folder / "run.json", self._run())

    def _write_ceilings(self) -> None:
        rows = []
        for each in registry.kernels("ceilings"):
            if each.id not in CEILINGS:
                continue
            kernel, (n, tflops, gbps) = each.id, CEILINGS[each.id]
            for toolkit in TOOLKITS:
                point = {"kernel": kernel, "dtype": each.compute.dtype_in, "m": 1, "n": n, "k": 1, "cache": "warm"}
                speed = {"tflops": tflops, "gbps": gbps, "rung": "ceiling", "build_key": self.key(kernel, toolkit)}
                rows.append(self._row("ceilings", 1000.0, **point, **speed, toolkit=toolkit))
        folder = self.measure / "ceilings"
        _csv(folder / "summary.csv", SUMMARY_COLUMNS, [[row[column] for column in SUMMARY_COLUMNS] for row in rows])
        _csv(folder / "counters.csv", COUNTER_COLUMNS, [])
        _json(folder / "run.json", self._run())


def _json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, sort_keys=True))


def _csv(path: Path, columns, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([["" if isinstance(x, float) and math.isnan(x) else x for x in row] for row in rows])

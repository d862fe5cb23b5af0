"""Writes made-up inputs for the analysis and the report, in the formats that the stages before them use.

Every number here follows from a formula that no GPU obeys (the GPU is called "Synthetic GPU"), so nothing made of it
can be taken for a measurement.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from gemmrepro.measurements import COUNTER_COLUMNS, SAMPLE_COLUMNS, SUMMARY_COLUMNS

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
ARCHS = {"cuda12": ("sm_80", "sm_90"), "cuda13": ("sm_80", "sm_90", "sm_120")}
GPU = "Synthetic GPU"
PEAK_TFLOPS = 50.0


def hot_loop(loads: int, multiply_adds: int) -> str:
    """A main loop's machine code with so many global loads and multiply-adds."""
    lines = [".L_x_1:"]
    lines += [f"        /*{16 * i:04x}*/  LDG.E R{i}, desc[UR4][R2.64+{4 * i:#x}] ;" for i in range(loads)]
    lines += [f"        /*{16 * i:04x}*/  FFMA R0, R{i}, R1, R0 ;" for i in range(multiply_adds)]
    return "\n".join([*lines, "        @!P0 BRA `(.L_x_1) ;"])


@dataclass
class World:
    """What to write. `ratios` overrides a level's share of the baseline; `gpu` the GPU's name."""

    root: Path
    sizes: tuple[int, ...] = SIZES
    toolkits: tuple[str, ...] = TOOLKITS
    caches: tuple[str, ...] = ("cold", "warm")
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
    spread: float = 0.002

    @property
    def measure(self) -> Path:
        return self.root / "measure"

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def gates(self) -> Path:
        return self.root / "gates"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    def write(self) -> World:
        """Write all of it; returns itself."""
        for folder in (self.measure, self.build, self.gates, self.images):
            folder.mkdir(parents=True, exist_ok=True)
        for kernel in ("ladder.vector_add", *LEVELS):
            self._write_build(kernel)
            self._write_gate(kernel)
        if self.ladder:
            self._write_ladder()
        if self.ceilings:
            for kernel in ("ceilings.ffma", "ceilings.dram_copy"):
                self._write_build(kernel)
                self._write_gate(kernel)
            self._write_ceilings()
        if self.locks:
            for env in ("cuda12", "cuda13", "report"):
                lock = {
                    "env": env,
                    "base": "debian:12",
                    "builder": "synthetic",
                    "recipe_sha256": "0" * 64,
                    "requirements_sha256": "1" * 64,
                    "os": [{"name": "libc6", "version": "2.36"}],
                    "python": [{"name": "numpy", "version": "2.0"}],
                }
                _json(self.images / f"{env}.lock.json", lock)
        _json(self.config, {"measure": "auto", "families": ["ladder", "ceilings"], "sweep": {"interval": 0.01}})
        return self

    def key(self, kernel: str, toolkit: str) -> str:
        return f"{toolkit[-2:]}{sum(kernel.encode()):014x}"

    def _write_build(self, kernel: str) -> None:
        loads = LEVELS.get(kernel, ("", 0, 1.0))[2]
        for toolkit in TOOLKITS:
            archs = {
                arch: {
                    "registers": 40,
                    "spill_store_bytes": 0,
                    "spill_load_bytes": 0,
                    "stack_bytes": 0,
                    "shared_bytes": 8192,
                    "barriers": 1,
                    "constant_bytes": 400,
                    "instructions": {"LDG.E": 8, "FFMA": 512, "BAR.SYNC.DEFER_BLOCKING": 2, "LDS.128": 32, "EXIT": 1},
                    "instruction_total": 700,
                    "hot_loop": hot_loop(max(1, round(loads * 512)), 512),
                }
                for arch in ARCHS[toolkit]
            }
            record = {
                "kernel": kernel,
                "toolkit": toolkit,
                "toolkit_version": "12.4.131" if toolkit == "cuda12" else "13.0.88",
                "build_key": self.key(kernel, toolkit),
                "flags": ["-O3"],
                "sources": {"kernels/x.cu": "0" * 64},
                "entry": kernel.split(".")[1],
                "archs": archs,
            }
            _json(self.build / toolkit / f"{kernel}.json", record)

    def _write_gate(self, kernel: str) -> None:
        failed = kernel in self.failed_gates
        case = {
            "shape": [33, 65, 17],
            "alpha": 1.5,
            "beta": -0.5,
            "inputs": "normal",
            "seed": 1,
            "err_scaled_max": 0.7,
            "gamma": 19.0,
            "passed": not failed,
            "message": "",
        }
        toolkits = {}
        for toolkit in TOOLKITS:
            ran = self.numeric in ("passed", "failed")
            toolkits[toolkit] = {
                "build_key": self.key(kernel, toolkit),
                "static": {
                    "passed": not failed,
                    "checks": [
                        {
                            "arch": arch,
                            "check": check,
                            "why": "the level is about this",
                            "expected": expected,
                            "found": 0 if failed else 8,
                            "passed": not failed,
                        }
                        for arch in ARCHS[toolkit]
                        for check, expected in (("LDG.E", ">= 1"), ("spills", "0 bytes"))
                    ],
                },
                "numeric": {
                    "status": self.numeric,
                    "source": "recorded" if ran else "none",
                    "gpu": self.gpu if ran else None,
                    "build_key": self.key(kernel, toolkit) if ran else None,
                    "worst": {"err_scaled_max": 0.7, "gamma": 19.0, "case": "33x65x17 normal"} if ran else None,
                    "cases": [case] if ran else [],
                },
            }
        _json(self.gates / f"{kernel}.json", {"kernel": kernel, "passed": not failed, "toolkits": toolkits})

    def _run(self) -> dict:
        return {
            "source": self.source,
            "gpu": {
                "name": self.gpu,
                "compute_capability": "9.0",
                "sm_count": 100,
                "l2_bytes": 50_000_000,
                "memory_bytes": 100_000_000_000,
                "driver": "000.00",
                "clock_max_mhz": 1000,
                "memory_clock_mhz": 1000,
                "power_cap_w": 100,
            },
            "libraries": {"cublas": "0.0.0"},
            "toolkits": {"cuda12": "12.4.131", "cuda13": "13.0.88"},
            "baseline_kernels": {"cublas.sgemm 4096": "synthetic_sgemm_128x128"},
            "git_commit": "0" * 40,
            "date": "2000-01-01T00:00:00Z",
            "config": {"sizes": {"ladder": list(self.sizes)}},
        }

    def _row(self, **cells) -> dict:
        return {column: cells.get(column, "") for column in SUMMARY_COLUMNS}

    def _gemm_row(self, kernel, rung, n, cache, toolkit, tflops, base_tflops) -> dict:
        flops = 2 * n**3
        median, base = flops / tflops / 1e6, flops / base_tflops / 1e6
        row = self._row(
            kernel=kernel,
            family="ladder",
            rung=rung,
            dtype="fp32",
            m=n,
            n=n,
            k=n,
            cache=cache,
            toolkit=toolkit,
            arch="sm_90",
            median_us=median,
            ci_low_us=median * (1 - self.spread),
            ci_high_us=median * (1 + self.spread),
            samples=60,
            rounds=5,
            tflops=tflops,
            clock_mhz=1000,
            power_w=90,
            temp_c=50,
            status="current",
        )
        if kernel == "cublas.sgemm":
            return row | {"build_key": "0.0.0"}
        return row | {
            "baseline": "cublas.sgemm",
            "baseline_median_us": base,
            "ratio": base / median,
            "ratio_ci_low": base / median * (1 - self.spread),
            "ratio_ci_high": base / median * (1 + self.spread),
            "err_scaled_max": 0.6,
            "err_fro": 1e-7,
            "build_key": self.key(kernel, toolkit),
            "status": "stale" if kernel in self.stale else "current",
        }

    def _write_ladder(self) -> None:
        rows, samples, counters = [], [], []
        rng = np.random.default_rng(7)
        for n in self.sizes:
            for cache in self.caches:
                # cuBLAS nears its peak as the problem fills the GPU.
                base = PEAK_TFLOPS * n**2 / (n**2 + 600**2) * (1.0 if cache == "warm" else 0.9)
                rows.append(self._gemm_row("cublas.sgemm", "cuBLAS", n, cache, "library", base, base))
                for kernel, (rung, share, _) in LEVELS.items():
                    share = self.ratios.get(kernel, share)
                    for toolkit in self.toolkits:
                        speed = base * share * (1.0 if toolkit == "cuda12" else 1.02)
                        row = self._gemm_row(kernel, rung, n, cache, toolkit, speed, base)
                        rows.append(row)
                        times = row["median_us"] * (1 + 0.004 * rng.standard_gamma(2.0, 60) - 0.0067)
                        for index, time in enumerate(times):
                            sample = (kernel, toolkit, "fp32", n, n, n, None, cache, index // 12, index % 12, time)
                            samples.append((*sample, row["baseline_median_us"], row["build_key"]))
        n = 4096
        for kernel, (_, _, loads) in LEVELS.items():
            for toolkit in self.toolkits:
                status = "stale" if kernel in self.stale else "current"
                values = {
                    "smsp__sass_inst_executed_op_global_ld.sum": (loads * n**3 / 32, "inst"),
                    "dram__bytes.sum": (12 * n * n * (1 + 40 * loads), "byte"),
                    "dram__bytes.sum.per_second": (1e9 * (2 + LEVELS[kernel][1] * 1000), "byte/second"),
                }
                for metric, (value, unit) in values.items():
                    row = (kernel, toolkit, n, n, n, metric, value, unit, self.key(kernel, toolkit), status)
                    counters.append(row)
        folder = self.measure / "ladder"
        _csv(folder / "summary.csv", SUMMARY_COLUMNS, [[row[column] for column in SUMMARY_COLUMNS] for row in rows])
        _csv(folder / "counters.csv", COUNTER_COLUMNS, counters if self.counters else [])
        if self.samples:
            pd.DataFrame(samples, columns=SAMPLE_COLUMNS).to_parquet(folder / "samples.parquet")
        _json(folder / "run.json", self._run())

    def _write_ceilings(self) -> None:
        rows = []
        for kernel, n, tflops, gbps in (("ceilings.ffma", 1, 60.0, ""), ("ceilings.dram_copy", 1 << 28, "", 3000.0)):
            for toolkit in self.toolkits:
                row = self._row(
                    kernel=kernel,
                    family="ceilings",
                    rung="ceiling",
                    dtype="fp32",
                    m=1,
                    n=n,
                    k=1,
                    cache="warm",
                    toolkit=toolkit,
                    arch="sm_90",
                    median_us=1000.0,
                    ci_low_us=999.0,
                    ci_high_us=1001.0,
                    samples=60,
                    rounds=5,
                    tflops=tflops,
                    gbps=gbps,
                    build_key=self.key(kernel, toolkit),
                    status="current",
                )
                rows.append(row)
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

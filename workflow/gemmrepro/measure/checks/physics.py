"""What no GPU can do: limits on rates, clocks and power that hold whatever the samples say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.core.dtypes import DTYPES
from gemmrepro.core.names import LIBRARY
from gemmrepro.measure.checks.refusal import named, refused
from gemmrepro.measure.subjects import kernels_behind
from gemmrepro.operations import Shape, input_bytes
from gemmrepro.ozaki import decided
from gemmrepro.registry import Kernel

Rows = Sequence[Mapping[str, str]]

CEILINGS = "ceilings"
"""The family whose micro-kernels measure a GPU's highest rates."""

MARGIN = 1.05
"""How far a rate may exceed a ceiling at the GPU's highest clock."""

READING = 1.15
"""How far a byte rate may exceed that of the best copy: reading alone is faster (1.09 on an H200, `memory.reduce`)."""

POWER = 1.5
"""How far a median power may exceed the cap: what NVML reads at one moment does (1.27 on an H200)."""

APART = 2.0
"""How far the paired time of a baseline may be from the baseline's own row, as a factor (0.83 to 1.50 on an H200)."""

HOTTEST = 120.0
"""The highest temperature that a row may hold, in °C."""

OF_HALF = {
    **{"bf16": 1.0, "fp16": 1.0, "tf32": 0.5, "fp8_e4m3": 2.0, "fp8_e5m2": 2.0, "int8": 2.0},
    **{"fp32": 2.0, "fp64": 2.0},
}
"""A type's rate on tensor cores in units of that of 16-bit types; of fp32 and fp64, that of the 8-bit types of whose
products a scheme makes them (`least_products`)."""

WINOGRAD = 7 / 8
"""The share of the products that is left after Winograd's step."""

MOST_PER_CYCLE = {"fp32": 256, "bf16": 8192, "fp16": 8192}
"""Operations per cycle and SM that no GPU up to the B200 exceeds, dense, an FMA counted as two (CUDA C++ Programming
Guide, arithmetic throughput; white papers of A100, H100 and B200)."""


@dataclass(frozen=True)
class Ceilings:
    """The highest rates measured in a recording, None where it has none.

    Attributes:
        fp32, half: TFLOP/s in fp32 and on 16-bit types, carried over to the GPU's highest clock.
        copied: GB/s of a copy, read and written.
    """

    fp32: float | None = None
    half: float | None = None
    copied: float | None = None

    @classmethod
    def of(cls, rows: Rows, run: Mapping[str, Any]) -> Ceilings:
        """From the rows of the family CEILINGS and their run.json."""
        fastest = run["gpu"]["clock_max_mhz"]

        def best(column: str, dtypes: Sequence[str]) -> float | None:
            rates = []
            for row in rows:
                if row[column] and row["dtype"] in dtypes:
                    carried = fastest / float(row["clock_mhz"]) if fastest and row["clock_mhz"] else 1.0
                    rates.append(float(row[column]) * (max(1.0, carried) if column == "tflops" else 1.0))
            return max(rates, default=None)

        return cls(best("tflops", ("fp32",)), best("tflops", ("bf16", "fp16")), best("gbps", tuple(DTYPES)))

    def arithmetic(self, kernel: Kernel) -> float | None:
        """The highest TFLOP/s that a kernel of such types can reach; None where no ceiling says."""
        dtype = kernel.compute.dtype_in
        if dtype == "fp32" and kernel.promises.error is None:  # no scheme that takes tensor cores
            return self.fp32
        if dtype not in OF_HALF or self.half is None:
            return None
        return OF_HALF[dtype] * self.half / least_products(kernel)


def least_products(kernel: Kernel) -> float:
    """The fewest products of small types that `kernel` makes its product from; 1 where it is no scheme of several.

    One per modulus, of which a kernel that decides on the device takes `decided.LEAST` or more, and seven in place of
    eight (Winograd's step). Of slices, those pairs p, q with p + q < d, or of all slices p + q < slices.
    """
    if "moduli" in kernel.params:
        return WINOGRAD * min(int(kernel.params["moduli"]), decided.LEAST)
    slices = kernel.compute.d or int(kernel.params.get("slices", 1))
    return slices * (slices + 1) / 2


def check_limits(family: str, rows: Rows, run: Mapping[str, Any], ceilings: Ceilings, path: Path) -> None:
    """Check every current row against the GPU of `run` and the ceilings measured in the same recording.

    Raises:
        UserError: names the first row beyond a limit, the limit, and what it follows from.
    """
    own = {
        (row["kernel"], *_place(row)): float(row["median_us"])
        for row in rows
        if row["toolkit"] == LIBRARY and row["status"] != "stale"
    }
    for number, row in enumerate(rows, 2):
        if row["status"] == "stale":
            continue
        kernels = kernels_behind(family, row)
        complaints = (*_machine(row, run), *_rates(family, row, kernels, run, ceilings), *_pairing(row, own))
        for complaint in complaints:
            raise refused(path, f"line {number}", f"{named(row)}: {complaint}")


def _place(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[column] for column in ("dtype", "m", "n", "k", "cache"))


def _machine(row: Mapping[str, str], run: Mapping[str, Any]) -> Iterator[str]:
    """What a row claims of the GPU beyond what run.json says it can do."""
    gpu = run["gpu"]
    clock, power, heat = (float(row[name]) if row[name] else None for name in ("clock_mhz", "power_w", "temp_c"))
    if clock is not None and gpu["clock_max_mhz"] and clock > gpu["clock_max_mhz"]:
        yield f"its clock of {clock:g} MHz is above the GPU's highest, {gpu['clock_max_mhz']} MHz"
    if power is not None and gpu["power_cap_w"] and power > POWER * gpu["power_cap_w"]:
        yield f"its power of {power:g} W is above {POWER:g} times the cap of {gpu['power_cap_w']:g} W"
    if heat is not None and not 0 <= heat <= HOTTEST:
        yield f"its temperature of {heat:g} °C is none that a GPU runs at"
    major, minor = gpu["compute_capability"].split(".")
    digits = row["arch"].removeprefix("sm_").rstrip("af")
    if digits[:-1] != major or int(digits[-1]) > int(minor):
        yield f"{row['arch']} does not run on compute capability {gpu['compute_capability']}"


def _rates(
    family: str, row: Mapping[str, str], kernels: Sequence[Kernel], run: Mapping[str, Any], ceilings: Ceilings
) -> Iterator[str]:
    """Rates above what the GPU can do."""
    gpu = run["gpu"]
    if row["tflops"]:
        rate = float(row["tflops"])
        per_cycle = MOST_PER_CYCLE.get(row["dtype"])
        if family == CEILINGS and per_cycle and gpu["clock_max_mhz"]:
            limit = per_cycle * gpu["sm_count"] * gpu["clock_max_mhz"] * 1e-6
            source = f"what {gpu['sm_count']} SMs issue"
        else:
            known = [ceilings.arithmetic(kernel) for kernel in kernels]
            limit = max((value for value in known if value is not None), default=0.0)
            source = "the ceiling measured in the same recording"
        if limit and rate > MARGIN * limit:
            yield f"its {rate:g} TFLOP/s are above {limit:.4g} TFLOP/s, {source}, at the highest clock"
    if ceilings.copied and kernels:
        moved = min(_must_move(row, kernel, gpu["l2_bytes"]) for kernel in kernels)
        rate = moved / float(row["median_us"]) * 1e-3
        if rate > READING * ceilings.copied:
            yield (
                f"{moved / 1e6:.4g} MB must cross DRAM's interface in {row['median_us']} µs, which is {rate:.4g} GB/s, "
                f"and the best copy of the same recording moves {ceilings.copied:.4g} GB/s"
            )


def _must_move(row: Mapping[str, str], kernel: Kernel, l2_bytes: int) -> float:
    """Bytes that a launch must move through DRAM: what does not fit into L2, and all inputs if they are not there."""
    if not row["gbps"]:
        return 0.0
    shape = Shape(int(row["m"]), int(row["n"]), int(row["k"]))
    compulsory = float(row["gbps"]) * float(row["median_us"]) * 1e3
    cold = float(input_bytes(kernel.problem, shape)) if row["cache"] == "cold" else 0.0
    return max(compulsory - l2_bytes, cold)


def _pairing(row: Mapping[str, str], own: Mapping[tuple[str, ...], float]) -> Iterator[str]:
    """A baseline that, paired with this kernel, is not the one that was timed alone."""
    alone = own.get((row["baseline"], *_place(row)))
    if alone is not None and row["baseline_median_us"]:
        paired = float(row["baseline_median_us"])
        if not alone / APART <= paired <= alone * APART:
            yield f"{row['baseline']} takes {paired:g} µs beside it and {alone:g} µs in its own row"

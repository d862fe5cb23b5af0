"""Rates of GPUs by their data sheets (kernels/chips.yaml), and the most that SMs can issue."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro.core import paths, schemas
from gemmrepro.core.architectures import dotted
from gemmrepro.errors import UserError

FILE = "chips.yaml"
SCHEMA = "chips.schema.yaml"

RATES: Mapping[str, str] = {
    **dict.fromkeys(("fp32", "fp64", "fp64_tensor", "tf32", "bf16", "fp16_acc32", "fp16_acc16"), "TFLOP/s"),
    **dict.fromkeys(("fp8", "fp8_acc16", "int8"), "TFLOP/s"),
    "dram": "GB/s",
    "clock": "MHz",
    "sms": "SMs",
    "l2": "MB",
    "cycles": "Gcycle/s",
    "shared": "GB/s",
}
"""Every rate by name, with its unit. Tensor-core rates are dense, with fp32 sums (int8: int32) where the name says no
other; `clock` is the boost clock, `l2` the cache's size.

``cycles`` is `sms` times `clock`; ``shared`` is 128 bytes per cycle and SM, by the CUDA C++ Programming Guide.
"""

SHARED_BYTES_PER_CYCLE = 128

_CORES = {
    **{"8.0": (128, 64, 128, 2048), "8.7": (256, 4, 4, 2048), "9.0": (256, 128, 256, 4096)},
    **{"10.0": (256, 128, 128, 8192), **dict.fromkeys(("8.6", "8.9", "12.0", "12.1"), (256, 4, 4, 1024))},
}
_NAMES = ("fp32", "fp64", "fp64_tensor", "bf16")
_OF_BF16 = {"fp16_acc32": 1, "fp16_acc16": 1, "fp8": 2, "fp8_acc16": 2, "int8": 2}

MOST_PER_CYCLE: Mapping[str, Mapping[str, int]] = {
    capability: (known := dict(zip(_NAMES, cores, strict=True)))
    | {"tf32": known["bf16"] // 2}
    | {name: factor * known["bf16"] for name, factor in _OF_BF16.items()}
    for capability, cores in _CORES.items()
}
"""The most operations per cycle and SM that GPUs of a compute capability issue, dense, an FMA counted as two.

fp32 and fp64 from the CUDA C++ Programming Guide's table of arithmetic throughput; tensor cores from the peaks of the
widest products (A100, RTX A6000, Jetson AGX Orin, L40S, H100, B200, RTX 5090), divided by clock and SMs. Products may
issue less: GeForce halves tensor cores with fp32 sums. Unknown capabilities are left out.
"""


def fp64_per_clock(capability: tuple[int, int]) -> int:
    """Multiply-adds in fp64 of an SM in a clock cycle without tensor cores; of an unknown one, 1/64 of fp32's."""
    return MOST_PER_CYCLE.get(dotted(capability), {}).get("fp64", 4) // 2


@dataclass(frozen=True)
class Rate:
    """One rate of one GPU, and where it comes from: ``38.7 TFLOP/s``, ``data sheet``."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Chip:
    """A GPU: compute capability x 10, its names by the driver, and the value and document of each rate."""

    name: str
    capability: int
    devices: tuple[str, ...]
    figures: Mapping[str, tuple[float, str]]

    def rate(self, name: str) -> Rate | None:
        """A rate of the data sheet, or one that follows from it; None if the document has none."""
        if figure := self.figures.get(name):
            return Rate(name, figure[0], RATES[name], figure[1])
        sms, clock = self.figures.get("sms"), self.figures.get("clock")
        return derived(name, sms[0], clock[0], clock[1]) if name in ("cycles", "shared") and sms and clock else None


def derived(name: str, sms: float, clock_mhz: float, source: str) -> Rate:
    """``cycles`` or ``shared`` from the number of SMs and the clock."""
    cycles = sms * clock_mhz / 1e3
    value = cycles if name == "cycles" else cycles * SHARED_BYTES_PER_CYCLE
    return Rate(name, value, RATES[name], source)


def chips() -> Mapping[str, Chip]:
    """Every GPU of chips.yaml by its name there. Raises UserError if the file is missing or wrong."""
    return _read(paths.KERNELS_DIR / FILE)


@cache
def _read(path: Path) -> Mapping[str, Chip]:
    document = schemas.read_yaml(path, SCHEMA)
    found = {}
    for name, entry in document["chips"].items():
        figures = {}
        for rate, (value, source) in entry["rates"].items():
            if rate not in RATES:
                raise UserError(f"{path}, key 'chips.{name}.rates': there is no rate '{rate}'.")
            if source not in entry["documents"]:
                raise UserError(f"{path}, key 'chips.{name}.rates.{rate}': there is no document '{source}'.")
            figures[rate] = (float(value), str(entry["documents"][source]))
        found[str(name)] = Chip(str(name), entry["capability"], tuple(entry.get("devices") or ()), figures)
    return found


def at_hand(device: str | None) -> Chip | None:
    """The chip that the driver calls `device`: by its exact name, else by the one chip whose name means the same."""
    exact = [chip for chip in chips().values() if device in chip.devices]
    similar = [chip for chip in chips().values() if any(same_gpu(name, device) for name in (chip.name, *chip.devices))]
    found = exact or similar
    return found[0] if len(found) == 1 else None


_BRANDS = frozenset({"NVIDIA", "RTX", "GEFORCE", "QUADRO", "TESLA"})
_FORM = re.compile(r"SXM\d*|PCIE|HBM\d?E?|\d+GB?")


def same_gpu(published: str, present: str | None) -> bool:
    """Whether `present`, a driver's name, is of the GPU that `published` means: ``NVIDIA A100-SXM4-80GB`` of ``A100``.
    Brands aside, it says all that `published` says, and otherwise only form factor and memory: ``V100-PCIE-16GB`` is of
    no ``V100-SXM2-16GB``, and a part of a GPU (MIG) or a laptop's is not the whole one."""

    def words(name: str) -> set[str]:
        return {part for part in re.split(r"[\s/-]+", name.upper()) if part and part not in _BRANDS}

    said, meant = words(present or ""), words(published)
    return bool(meant) and meant <= said and all(_FORM.fullmatch(word) for word in said - meant)


def peak(gpu: Mapping[str, Any], name: str) -> Rate | None:
    """A rate of arithmetic of a GPU (run.json's facts) at its highest clock; None where nothing says it.
    What an SM issues per cycle is a power of two, which the data sheet's rate gives; without one it is the most that
    the compute capability allows (MOST_PER_CYCLE)."""
    chip, sms = at_hand(gpu.get("name")), gpu.get("sm_count")
    sheet = {key: rate.value for key in (name, "clock", "sms") if chip and (rate := chip.rate(key))}
    clock = gpu.get("clock_max_mhz") or sheet.get("clock")
    if not (sms and clock):
        return None
    if name in sheet:
        per_sm = sheet[name] * 1e6 / (sheet.get("sms", sms) * sheet.get("clock", clock))
        per_cycle, source = 2 ** round(math.log2(per_sm)), f"by the data sheet of {chip.name}" if chip else ""
    else:
        capability = str(gpu.get("compute_capability"))
        per_cycle = MOST_PER_CYCLE.get(capability, {}).get(name, 0)
        source = f"the most of compute capability {capability}"
    formula = f"{sms} SMs at {per_cycle:,} operations per cycle and {clock:,.0f} MHz, {source}"
    return Rate(name, sms * per_cycle * clock / 1e6, RATES[name], formula) if per_cycle else None

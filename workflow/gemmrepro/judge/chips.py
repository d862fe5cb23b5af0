"""What data sheets say of a GPU: kernels/chips.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmrepro.core import paths, yaml_files
from gemmrepro.errors import UserError
from gemmrepro.judge.rules import same_gpu

FILE = "chips.yaml"
SCHEMA = "chips.schema.yaml"

RATES: Mapping[str, str] = {
    **dict.fromkeys(("fp32", "fp64", "fp64_tensor", "tf32", "bf16", "fp16_acc32", "fp16_acc16"), "TFLOP/s"),
    **dict.fromkeys(("fp8", "int8"), "TFLOP/s"),
    "dram": "GB/s",
    "clock": "MHz",
    "sms": "SMs",
    "l2": "MB",
    "cycles": "Gcycle/s",
    "shared": "GB/s",
}
"""Every rate by name, with its unit. Tensor-core rates are dense; `clock` is the boost clock, `l2` the cache's size.

``cycles`` is `sms` times `clock`; ``shared`` is 128 bytes per cycle and SM, by the CUDA C++ Programming Guide.
"""

SHARED_BYTES_PER_CYCLE = 128


@dataclass(frozen=True)
class Rate:
    """One rate of one GPU, and where it comes from: ``38.7 TFLOP/s``, ``data sheet``."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Chip:
    """A GPU by its name here. `published` are its names in published.csv, `devices` those that the driver gives.

    `capability` is compute capability x 10. `figures` holds the value and the document of each rate.
    """

    name: str
    capability: int
    published: tuple[str, ...]
    devices: tuple[str, ...]
    figures: Mapping[str, tuple[float, str]]

    def rate(self, name: str) -> Rate | None:
        """A rate of the data sheet, or one that follows from it; None if the document has none."""
        figure = self.figures.get(name)
        if figure is not None:
            return Rate(name, figure[0], RATES[name], figure[1])
        if name not in ("cycles", "shared"):
            return None
        sms, clock = self.figures.get("sms"), self.figures.get("clock")
        return derived(name, sms[0], clock[0], clock[1]) if sms and clock else None


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
    document = yaml_files.read(path, SCHEMA)
    found = {}
    for name, entry in document["chips"].items():
        figures = {}
        for rate, (value, source) in entry["rates"].items():
            if rate not in RATES:
                raise UserError(f"{path}, key 'chips.{name}.rates': there is no rate '{rate}'.")
            if source not in entry["documents"]:
                raise UserError(f"{path}, key 'chips.{name}.rates.{rate}': there is no document '{source}'.")
            figures[rate] = (float(value), str(entry["documents"][source]))
        names = tuple(entry.get("published") or ()), tuple(entry.get("devices") or ())
        found[str(name)] = Chip(str(name), entry["capability"], *names, figures)
    return found


def of_article(hardware: str) -> Chip | None:
    """The chip that published.csv calls `hardware`."""
    return next((chip for chip in chips().values() if hardware in chip.published or hardware == chip.name), None)


def at_hand(device: str | None) -> Chip | None:
    """The chip that the driver calls `device`: by its exact name, else by the one chip whose name means the same."""
    exact = [chip for chip in chips().values() if device in chip.devices]
    similar = [chip for chip in chips().values() if any(same_gpu(name, device) for name in (chip.name, *chip.devices))]
    found = exact or similar
    return found[0] if len(found) == 1 else None

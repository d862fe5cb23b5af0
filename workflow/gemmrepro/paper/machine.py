"""The GPU behind the report and its software: its facts, the kernels that it can run, and its measured ceilings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmrepro import registry
from gemmrepro.judge.ceilings import CEILING_FAMILY, of_operation
from gemmrepro.measure.rows import Measurements, capability_of
from gemmrepro.recordings.limits import bounds
from gemmrepro.registry import chips
from gemmrepro.registry.requirements import tally

Pairs = Sequence[tuple[str, str]]

ONE_RATE = ({"fp16", "bf16"},)
"""Types that a GPU multiplies at one rate, so the fastest loop of any bounds all."""


@dataclass(frozen=True)
class MachineView:
    """The GPU and its software, as the first measured family recorded them; empty if nothing was measured.

    Toolkits are those of every family. `interval` is the relative half-width of a median's 95% interval at which a
    point has enough samples.
    """

    facts: Pairs = ()
    libraries: Pairs = ()
    toolkits: Pairs = ()
    commit: str | None = None
    date: str | None = None
    interval: float | None = None


def machine_view(measured: Mapping[str, Measurements], configured: Mapping[str, Any]) -> MachineView:
    """The machine behind the rows.

    The sweep's settings are those of its recording, or else as `configured`.
    """
    run = next((family.run for family in measured.values() if family.run and len(family.summary)), None)
    if run is None:
        return MachineView(interval=configured.get("interval"))
    return MachineView(
        facts=_facts(run.get("gpu") or {}),
        libraries=sorted((run.get("libraries") or {}).items()),
        toolkits=sorted({pair for family in measured.values() for pair in (family.run.get("toolkits") or {}).items()}),
        commit=run.get("git_commit"),
        date=run.get("date"),
        interval=(run.get("config") or configured).get("interval"),
    )


def _facts(gpu: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The known facts of the GPU, as (name, text)."""
    facts = (
        ("GPU", gpu.get("name"), "{}", 1),
        ("Compute capability", gpu.get("compute_capability"), "{}", 1),
        ("SMs", gpu.get("sm_count"), "{}", 1),
        ("L2 cache", gpu.get("l2_bytes"), "{:.0f} MiB", 1 << 20),
        ("Usable memory", gpu.get("memory_bytes"), "{:.0f} GiB", 1 << 30),
        ("Driver", gpu.get("driver"), "{}", 1),
        ("Highest SM clock", gpu.get("clock_max_mhz"), "{} MHz", 1),
        ("Memory clock", gpu.get("memory_clock_mhz"), "{} MHz", 1),
        ("Power cap", gpu.get("power_cap_w"), "{:g} W", 1),
    )
    return [(name, text.format(value if unit == 1 else value / unit)) for name, value, text, unit in facts if value]


@dataclass(frozen=True)
class Runnable:
    """How many of all kernels the GPU can run, and what the others need, each with its count; none if all run."""

    kernels: int
    run: int
    reasons: Mapping[str, int]

    @property
    def lines(self) -> list[str]:
        """A line for each reason: "63 need Hopper (sm_90a)"."""
        return [f"{count} need{'s' if count == 1 else ''} {needs}" for needs, count in self.reasons.items()]


def runnable(families: Iterable[str], measured: Iterable[Measurements]) -> Runnable:
    """What the GPU behind `measured` can run of the registered kernels of `families`."""
    kernels, capability = [kernel for name in families for kernel in registry.kernels(name)], capability_of(measured)
    counts = dict(tally(kernels, capability)) if capability else {"": len(kernels)}
    return Runnable(len(kernels), counts.pop("", 0), counts)


def highest(measured: Mapping[str, Measurements]) -> dict[str, float]:
    """TFLOP/s of the fastest loop of multiplications alone, by type; a type without one that bounds it is missing."""
    ceilings = measured.get(CEILING_FAMILY)
    if ceilings is None:
        return {}
    rates: dict[str, float] = {}
    gpu = ceilings.run.get("gpu") or {}
    for dtype in sorted(set(ceilings.summary["dtype"]) - {""}):
        known = of_operation(ceilings, "ceiling_flops", dtype)
        if widest := [ceiling.value for ceiling in known if bounds(registry.kernel(ceiling.kernel), gpu)]:
            rates[dtype] = widest[0]
    for types in ONE_RATE:
        if together := [rates[dtype] for dtype in types if dtype in rates]:
            rates |= dict.fromkeys(types, max(together))
    if len({peak.value for name in ("fp16_acc32", "fp16_acc16") if (peak := chips.peak(gpu, name))}) > 1:
        rates.pop("fp16", None)  # it was measured with fp32 sums, and fp16 sums are faster on this GPU
    return rates


def ceiling_of(ceilings: Mapping[str, float] | None, dtype: str) -> float:
    """The ceiling of a type in TFLOP/s; infinite where none was measured."""
    return (ceilings or {}).get(dtype, math.inf)

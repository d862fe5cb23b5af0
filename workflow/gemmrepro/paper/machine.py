"""The hardware and software behind the page, and how each family was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.family import FamilyView

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class MachineView:
    """The GPU and its software, as the first measured family recorded them; empty if nothing was measured.

    Toolkits and the baseline's GPU kernels are those of every family.

    `interval` is the relative half-width of a median's 95% interval at which a point has enough samples.
    """

    facts: Pairs = ()
    libraries: Pairs = ()
    toolkits: Pairs = ()
    baseline_kernels: Pairs = ()
    commit: str | None = None
    date: str | None = None
    interval: float | None = None


@dataclass(frozen=True)
class RecordingView:
    """How and when the rows of a family were taken; `commit` is that of the library, ``+...`` if it had changes."""

    family: FamilyView
    date: str
    commit: str
    driver: str | None
    rounds: int | None
    caches: Sequence[str] = field(default=())
    toolkits: Pairs = ()


def machine_view(measured: Mapping[str, Measurements], configured: Mapping[str, Any]) -> MachineView:
    """The machine behind the rows.

    The sweep's settings are those of its recording, or else as `configured`.
    """
    run = next((family.run for family in measured.values() if family.run and len(family.summary)), None)
    if run is None:
        return MachineView(interval=configured.get("interval"))
    return MachineView(
        facts=_facts(run.get("gpu") or {}),
        libraries=_pairs(run.get("libraries")),
        toolkits=sorted({pair for family in measured.values() for pair in _pairs(family.run.get("toolkits"))}),
        baseline_kernels=sorted(
            pair for family in measured.values() for pair in _pairs(family.run.get("baseline_kernels"))
        ),
        commit=run.get("git_commit"),
        date=run.get("date"),
        interval=(run.get("config") or configured).get("interval"),
    )


def _pairs(values: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    return sorted((str(key), str(value)) for key, value in (values or {}).items())


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


def recordings(families: Sequence[FamilyView], measured: Mapping[str, Measurements]) -> list[RecordingView]:
    """How the rows of each family were taken; several recordings may stand behind one page."""
    return [_recording(family, measured[family.name].run) for family in families if family.rows]


def _recording(family: FamilyView, run: Mapping[str, Any]) -> RecordingView:
    config = run.get("config") or {}
    return RecordingView(
        family=family,
        date=str(run.get("date") or ""),
        commit=str(run.get("git_commit") or ""),
        driver=(run.get("gpu") or {}).get("driver"),
        rounds=config.get("rounds"),
        caches=config.get("caches") or (),
        toolkits=_pairs(run.get("toolkits")),
    )

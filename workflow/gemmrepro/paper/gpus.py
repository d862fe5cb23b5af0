"""The GPU behind the report and its software, and other GPUs side by side.

The first GPU is the one that the report is about; the others' recordings were judged by themselves, in a folder each
that holds what the report's own results hold (`measure`, `verdicts.json`). Cards of one model are told apart by the
takes of the regimes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.names import TOOLKITS
from gemmrepro.core.text import listed
from gemmrepro.judge.ceilings import CEILING_FAMILY, of_operation
from gemmrepro.judge.ways import ON_ANY_GPU
from gemmrepro.measure.regimes import BURST, SUSTAINED
from gemmrepro.measure.rows import Measurements, Regimes, capability_of, cubes, is_current, load
from gemmrepro.paper.claims import ClaimView, VerdictsView, read_verdicts
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


VERDICTS = "verdicts.json"


@dataclass(frozen=True)
class Gpu:
    """One GPU: its name, what was measured on it by family, and how the claims were judged there."""

    name: str
    measured: Mapping[str, Measurements]
    verdicts: VerdictsView


@dataclass(frozen=True)
class ClaimLine:
    """One claim, and its entry on each GPU; None where it was not judged."""

    claim: ClaimView
    on: tuple[ClaimView | None, ...]

    @property
    def differs(self) -> bool:
        """Whether the GPUs that measured it disagree on the verdict."""
        return len({each.verdict for each in self.on if each and each.verdict != "not measured"}) > 1


class Level(NamedTuple):
    """A kernel's speed on one GPU: relative to its baseline there, and as a share of the ceiling measured there."""

    ratio: float
    share: float | None


class KernelLine(NamedTuple):
    """One kernel at the largest size that all GPUs that ran it have in common, on each GPU.

    `cache` is "warm" unless most of these GPUs timed the kernel with a cold cache alone.
    """

    kernel: registry.Kernel
    cache: str
    n: int
    on: tuple[Level | None, ...]


class Cards(NamedTuple):
    """The cards of one model that have taken a family's regimes.

    Attributes:
        spread: how far their times are apart, in sentences.
        rows: of the regimes, as run.json has them: a `point` with its `times_us` and `ratios` on each card, at least
            two of them, None where a card has none. `apart` is how far its times are apart.
    """

    spread: str
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class SideBySide:
    """The contents of the page of GPUs; `cards` by family, numbered, since their hashes tell a reader nothing."""

    names: Sequence[str]
    claims: Sequence[ClaimLine]
    kernels: Sequence[KernelLine]
    cards: Mapping[str, Cards]


def side_by_side(own: Gpu, others: Sequence[Gpu], regimes: Mapping[str, Regimes]) -> SideBySide:
    """The report's own GPU beside the others, and the cards of its takes."""
    gpus = [own, *others]
    return SideBySide(
        names=[gpu.name for gpu in gpus],
        claims=_claims(gpus) if others else (),
        kernels=[*_kernels(gpus)] if others else (),
        cards={family: cards for family, takes in regimes.items() if (cards := _cards(takes)).rows},
    )


def read_others(folders: Sequence[Path], families: Sequence[str]) -> list[Gpu]:
    """The other GPUs, each from its folder. Raises UserError if one is corrupt."""
    gpus = []
    for folder in folders:
        verdicts = read_verdicts(folder / VERDICTS)
        measured = {name: load(folder / "measure", name) for name in families}
        gpus.append(Gpu(verdicts.gpu or folder.name, measured, verdicts))
    return gpus


def _claims(gpus: Sequence[Gpu]) -> list[ClaimLine]:
    """The claims that depend on the GPU: not those that count machine code or compare an article with itself."""
    by_gpu = [{claim.id: claim for claim in gpu.verdicts.claims} for gpu in gpus]
    return [
        ClaimLine(claim, tuple(of_gpu.get(claim.id) for of_gpu in by_gpu))
        for claim in gpus[0].verdicts.claims
        if claim.way not in ON_ANY_GPU
    ]


def _kernels(gpus: Sequence[Gpu]) -> Iterator[KernelLine]:
    """The kernels of the first GPU's families that any GPU ran, but for the ceilings themselves."""
    ceilings = [_ceilings(gpu) for gpu in gpus]
    for family in (name for name in gpus[0].measured if name != CEILING_FAMILY):
        by_cache = {cache: [_rows(gpu.measured.get(family), cache) for gpu in gpus] for cache in ("warm", "cold")}
        for kernel in registry.kernels(family):
            rows = {cache: [of_gpu.get(kernel.id, {}) for of_gpu in by_gpu] for cache, by_gpu in by_cache.items()}
            cache = max(rows, key=lambda name: sum(map(bool, rows[name])))  # the first of equals
            sizes = [set(by_size) for by_size in rows[cache] if by_size]
            if common := set.intersection(*sizes) if sizes else set():
                n = max(common)
                on = tuple(
                    level(by_size[n], limits, kernel.compute.dtype_in) if n in by_size else None
                    for by_size, limits in zip(rows[cache], ceilings, strict=True)
                )
                yield KernelLine(kernel, cache, n, on)


def _rows(measured: Measurements | None, cache: str) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The current rows with `cache` by kernel and size, of the first toolkit that has one."""
    by_kernel: dict[str, dict[int, Mapping[str, Any]]] = {}
    if measured is None or measured.summary.empty:
        return by_kernel
    rows = cubes(measured.summary)
    rows = rows[is_current(rows) & (rows["cache"] == cache) & rows["ratio"].notna()]
    rank = {toolkit: place for place, toolkit in enumerate(TOOLKITS)}
    for row in sorted(rows.to_dict("records"), key=lambda row: rank.get(row["toolkit"], len(rank))):
        by_kernel.setdefault(row["kernel"], {}).setdefault(int(row["n"]), row)
    return by_kernel


def _ceilings(gpu: Gpu) -> dict[str, float]:
    """The ceilings measured on a GPU: TFLOP/s by type, and GB/s under ``bytes``."""
    rates = highest(gpu.measured)
    ceilings = gpu.measured.get(CEILING_FAMILY)
    if ceilings is not None and (copies := of_operation(ceilings, "ceiling_bytes")):
        rates["bytes"] = copies[0].value
    return rates


def level(row: Mapping[str, Any], ceilings: Mapping[str, float], dtype: str) -> Level:
    """A row's ratio, and its share of its type's ceiling; where it only moves bytes, that of the best copy."""
    rate, ceiling = (row["gbps"], "bytes") if pd.isna(row["tflops"]) else (row["tflops"], dtype)
    known = ceiling in ceilings and pd.notna(rate)
    return Level(float(row["ratio"]), float(rate) / ceilings[ceiling] if known else None)


def _cards(regimes: Regimes) -> Cards:
    """The cards of a family's takes; no rows where it was taken on one."""
    rows = (regimes.run.get("by_card") or {}).get("rows") or ()
    return Cards(cards_sentence(regimes), [row | {"apart": _apart(row["times_us"])} for row in rows])


def _apart(times: Sequence[float | None]) -> float:
    timed = [time for time in times if time is not None]
    return max(timed) / min(timed) - 1


def cards_sentence(found: Regimes) -> str:
    """How far takes on one card, and cards, are apart, as sentences; '' where there is one take of one card."""
    spreads = found.run.get("spread") or {}
    sentences = []
    for where, name in (("Two takes on one card", "repeated"), ("Cards of one model", "between_cards")):
        parts = [
            f"{spread['middle']:.1%} {words} (median of {spread['rows']} rows; at most {spread['largest']:.1%})"
            for regime, words in ((SUSTAINED, "sustained"), (BURST, "in bursts"))
            if (spread := (spreads.get(regime) or {}).get(name))
        ]
        if parts:
            sentences.append(f"{where} ({found.family}): times of the same row differ by {listed(parts)}.")
    return " ".join(sentences)

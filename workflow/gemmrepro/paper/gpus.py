"""GPUs side by side: each claim's verdict on each, each kernel's ratio to that GPU's own baseline and ceiling.

The first GPU is the one that the report is about; the others' recordings were judged by themselves, in a folder each
that holds what the report's own results hold (`measure`, `verdicts.json`). Cards of one model are told apart by the
takes of the regimes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.names import TOOLKIT_ORDER
from gemmrepro.core.text import listed
from gemmrepro.judge.ceilings import CEILING_FAMILY, of_operation
from gemmrepro.judge.ways import ON_ANY_GPU
from gemmrepro.measure.regimes import BURST, SUSTAINED
from gemmrepro.measure.rows import Measurements, Regimes, cubes, is_current, load
from gemmrepro.paper.claims import ClaimView, VerdictsView, read_verdicts
from gemmrepro.paper.machine import highest

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


@dataclass(frozen=True)
class Level:
    """How fast a kernel is on one GPU: relative to its baseline there, and as a share of the ceiling measured there."""

    ratio: float | None
    share: float | None


@dataclass(frozen=True)
class KernelLine:
    """One kernel at the largest size that all GPUs that ran it have in common, on each GPU.

    `cache` is "warm" unless most of these GPUs timed the kernel with a cold cache alone.
    """

    family: str
    kernel: str
    rung: str
    dtype: str
    cache: str
    n: int
    on: tuple[Level | None, ...]


@dataclass(frozen=True)
class CardLine:
    """A row of the regimes on each card of a model: medians in µs, ratios, and how far the times are apart.

    None is a card without the row; at least two have it.
    """

    family: str
    kernel: str
    n: str
    regime: str
    times: tuple[float | None, ...]
    ratios: tuple[float | None, ...]

    @property
    def apart(self) -> float:
        known = [time for time in self.times if time is not None]
        return max(known) / min(known) - 1


@dataclass(frozen=True)
class Cards:
    """The cards of one model that have taken a family's regimes.

    Attributes:
        count: how many they are.
        spread: how far their times are apart, in sentences.
    """

    family: str
    count: int
    lines: tuple[CardLine, ...]
    spread: str


@dataclass(frozen=True)
class SideBySide:
    """What the page of GPUs shows; `cards` are numbered, since their hashes tell a reader nothing."""

    names: tuple[str, ...]
    claims: tuple[ClaimLine, ...]
    kernels: tuple[KernelLine, ...]
    cards: tuple[Cards, ...]

    @property
    def several(self) -> bool:
        """Whether there is more than one GPU."""
        return len(self.names) > 1


def read_others(folders: Sequence[Path], families: Sequence[str]) -> list[Gpu]:
    """The other GPUs, each from its folder. Raises UserError if one is corrupt."""
    found = []
    for folder in folders:
        measured = {name: load(folder / "measure", name) for name in families}
        verdicts = read_verdicts(folder / VERDICTS)
        found.append(Gpu(verdicts.gpu or folder.name, measured, verdicts))
    return found


def side_by_side(own: Gpu, others: Sequence[Gpu], regimes: Mapping[str, Regimes]) -> SideBySide:
    """The report's own GPU beside the others, and the cards of its takes."""
    gpus = [own, *others]
    several = len(gpus) > 1
    return SideBySide(
        names=tuple(gpu.name for gpu in gpus),
        claims=tuple(_claims(gpus)) if several else (),
        kernels=tuple(_kernels(gpus)) if several else (),
        cards=tuple(_cards(regimes)),
    )


def _claims(gpus: Sequence[Gpu]) -> list[ClaimLine]:
    """The claims that depend on the GPU: not those that count machine code or compare an article with itself."""
    by_gpu = [{claim.id: claim for claim in gpu.verdicts.claims} for gpu in gpus]
    return [
        ClaimLine(claim, tuple(of_gpu.get(claim.id) for of_gpu in by_gpu))
        for claim in gpus[0].verdicts.claims
        if claim.way not in ON_ANY_GPU
    ]


def _kernels(gpus: Sequence[Gpu]) -> list[KernelLine]:
    lines = []
    limits = [_ceilings(gpu) for gpu in gpus]
    for family in (name for name in gpus[0].measured if name != CEILING_FAMILY):
        by_cache = {cache: [_rows(gpu.measured.get(family), cache) for gpu in gpus] for cache in ("warm", "cold")}
        for kernel in registry.kernels(family):
            rows = {cache: [of_gpu.get(kernel.id, {}) for of_gpu in by_gpu] for cache, by_gpu in by_cache.items()}
            cache = max(rows, key=lambda name: sum(map(bool, rows[name])))  # the first of equals
            sizes = [set(each) for each in rows[cache] if each]
            common = set.intersection(*sizes) if sizes else set()
            if common:
                n = max(common)
                on = tuple(
                    level(each[n], own, kernel.compute.dtype_in) if n in each else None
                    for each, own in zip(rows[cache], limits, strict=True)
                )
                lines.append(KernelLine(family, kernel.id, kernel.rung, kernel.compute.dtype_in, cache, n, on))
    return lines


def _rows(measured: Measurements | None, cache: str) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The current rows with `cache` by kernel and size, of the first toolkit that has one."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    if measured is None or measured.summary.empty:
        return found
    summary = cubes(measured.summary)
    rows = summary[is_current(summary) & (summary["cache"] == cache)].to_dict("records")
    for row in sorted(rows, key=lambda row: _rank(row["toolkit"])):
        if row["ratio"] == row["ratio"] and row["ratio"] is not None:
            found.setdefault(row["kernel"], {}).setdefault(int(row["n"]), row)
    return found


def _rank(toolkit: str) -> int:
    return TOOLKIT_ORDER.index(toolkit) if toolkit in TOOLKIT_ORDER else len(TOOLKIT_ORDER)


def _ceilings(gpu: Gpu) -> dict[str, float]:
    """The ceilings measured on a GPU: TFLOP/s by type, and GB/s under ``bytes``."""
    found = dict(highest(gpu.measured))
    ceilings = gpu.measured.get(CEILING_FAMILY)
    if ceilings is not None and (known := of_operation(ceilings, "ceiling_bytes")):
        found["bytes"] = known[0].value
    return found


def level(row: Mapping[str, Any], ceilings: Mapping[str, float], dtype: str) -> Level:
    """A row's ratio, and its share of its type's ceiling; where it only moves bytes, that of the best copy."""
    computes = row["tflops"] is not None and row["tflops"] == row["tflops"]
    value, ceiling = (row["tflops"], dtype) if computes else (row["gbps"], "bytes")
    known = ceiling in ceilings and value is not None and value == value
    return Level(float(row["ratio"]), float(value) / ceilings[ceiling] if known else None)


def _cards(regimes: Mapping[str, Regimes]) -> list[Cards]:
    """The families of which several cards have takes."""
    found = []
    for family, each in regimes.items():
        rows = (each.run.get("by_card") or {}).get("rows") or ()
        lines = tuple(
            CardLine(
                family,
                row["point"]["kernel"],
                row["point"]["n"],
                row["point"]["regime"],
                tuple(row["times_us"]),
                tuple(row["ratios"]),
            )
            for row in rows
        )
        if lines:
            found.append(Cards(family, len(lines[0].times), lines, cards_sentence(each)))
    return found


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

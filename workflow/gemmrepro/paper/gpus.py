"""The GPU behind the report and its software, and other GPUs side by side.

The first is the one that the report is about; the others' recordings were judged by themselves, in a folder each that
holds `measure` and `verdicts.json` as the results do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.names import TOOLKITS
from gemmrepro.experiments import results
from gemmrepro.judge.carrying import CEILING_FAMILY, of_operation
from gemmrepro.judge.judging import ON_ANY_GPU
from gemmrepro.measure.regimes import SUSTAINED
from gemmrepro.measure.rows import Measurements, capability_of, cubes, is_current, load, load_regimes
from gemmrepro.paper.claims import VerdictsView, read_verdicts
from gemmrepro.paper.regimes import THE_LIBRARY, Accuracies, Entry, RegimeLine, contests, leaders, regime_lines
from gemmrepro.paper.text import View
from gemmrepro.recordings.limits import bounds
from gemmrepro.registry import chips
from gemmrepro.registry.requirements import tally

ONE_RATE = ({"fp16", "bf16"},)
"""Types that a GPU multiplies at one rate, so the fastest loop of any bounds all."""


def machine_view(measured: Mapping[str, Measurements], configured: Mapping[str, Any]) -> View:
    """The GPU and its software, as the first measured family recorded them; empty if nothing was measured.
    Toolkits are those of every family. `interval`: the relative half-width of a median's 95% interval at which a point
    has enough samples, as recorded or else `configured`."""
    run: Mapping[str, Any] = next((of.run for of in measured.values() if of.run and len(of.summary)), {})
    toolkits = {pair for of in measured.values() if run for pair in (of.run.get("toolkits") or {}).items()}
    return View(
        gpu=run.get("gpu") or {},
        libraries=sorted((run.get("libraries") or {}).items()),
        toolkits=sorted(toolkits),
        date=run.get("date"),
        interval=(run.get("config") or configured).get("interval"),
    )


def runnable(families: Iterable[str], measured: Iterable[Measurements]) -> View:
    """Counts of the `kernels` of `families`, of those that `run`, and in `lines` of the others: "63 need Hopper"."""
    kernels, capability = [kernel for name in families for kernel in registry.kernels(name)], capability_of(measured)
    counts = dict(tally(kernels, capability)) if capability else {"": len(kernels)}
    run = counts.pop("", 0)
    lines = [f"{count} need{'s' if count == 1 else ''} {needs}" for needs, count in counts.items()]
    return View(kernels=len(kernels), run=run, lines=lines)


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


@dataclass(frozen=True)
class Gpu:
    """One GPU: its name, what was measured on it by family, how the claims were judged there, and what competes.
    `folder` names its pages in the report; '' for the GPU that the report is about."""

    name: str
    measured: Mapping[str, Measurements]
    verdicts: VerdictsView
    lines: Sequence[RegimeLine] = ()
    folder: str = ""

    @property
    def boards(self) -> list[View]:
        """The kernels that were measured sustained, by type and size, fastest first, and the libraries beside them.
        `entries` and `libraries` pair each entry with its contest, a library's with one that was timed beside it;
        `tied` holds the kernels and libraries that share the lead of a contest."""
        by_size: dict[tuple[int, int], list[tuple[Entry, RegimeLine]]] = {}
        tied: dict[tuple[int, int], set[str]] = {}
        types = list(dict.fromkeys([*BOARDS, *(line.dtype for line in self.lines)]))
        for line in contests(self.lines):
            board, entries = (types.index(line.dtype), line.n), line.entries[SUSTAINED]
            by_size.setdefault(board, []).extend((entry, line) for entry in entries)
            best = leaders([*entries, *[THE_LIBRARY][: len(entries)]])
            tied.setdefault(board, set()).update(each.kernel or line.library for each in best if len(best) > 1)
        boards = []
        for (place, n), found in sorted((board, found) for board, found in by_size.items() if found):
            ranked = sorted(found, key=lambda pair: -pair[0].ratio)
            known = sorted(ranked, key=lambda pair: pair[0].library_joules is None)
            libraries = {line.library: (entry, line) for entry, line in reversed(known)}
            about = {"dtype": types[place], "n": n, "tied": tied[place, n]}
            boards.append(View(**about, entries=ranked, libraries=list(libraries.values())))
        return boards


BOARDS = ("fp32", "bf16", "fp16", "fp8_e4m3", "fp64")
"""The types of the leaderboard, in its order; others follow."""


def side_by_side(own: Gpu, others: Sequence[Gpu]) -> View:
    """The report's own GPU beside the others."""
    gpus = [own, *others]
    return View(
        names=[gpu.name for gpu in gpus],
        claims=_claims(gpus) if others else [],
        kernels=[*_kernels(gpus)] if others else [],
    )


def read_others(folders: Sequence[Path], families: Sequence[str]) -> list[Gpu]:
    """The other GPUs, each from its folder. Raises UserError if one is corrupt."""
    gpus = []
    for folder in folders:
        verdicts = read_verdicts(folder / "verdicts.json")
        measured = {name: load(folder / "measure", name) for name in families}
        regimes = {name: load_regimes(folder / "regimes", name) for name in families}
        accuracies = Accuracies.of({name: results.load(folder / "experiments", name) for name in families})
        lines = regime_lines(measured, regimes, accuracies)
        gpus.append(Gpu(verdicts.gpu or folder.name, measured, verdicts, lines, folder.name))
    return gpus


def _claims(gpus: Sequence[Gpu]) -> list[View]:
    """The claims that depend on the GPU, each with its entry `on` each GPU, None where it was not judged.
    `differs` says whether the GPUs that measured it disagree on the verdict."""
    by_gpu = [{claim.id: claim for claim in gpu.verdicts.claims} for gpu in gpus]
    lines = []
    for claim in gpus[0].verdicts.claims:
        if claim.way not in ON_ANY_GPU:
            on = tuple(of_gpu.get(claim.id) for of_gpu in by_gpu)
            verdicts = {each.verdict for each in on if each and each.verdict != "not measured"}
            lines.append(View(claim=claim, on=on, differs=len(verdicts) > 1))
    return lines


def _kernels(gpus: Sequence[Gpu]) -> Iterator[View]:
    """The kernels of the first GPU's families, but for the ceilings, each with its `level` `on` each GPU that ran it.
    Warm or cold as most GPUs have it, at the largest size `n` that they share."""
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
                yield View(kernel=kernel, cache=cache, n=n, on=on)


def _rows(measured: Measurements | None, cache: str) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The current rows with `cache` by kernel and size, of the first toolkit that has one."""
    by_kernel: dict[str, dict[int, Mapping[str, Any]]] = {}
    if measured is not None and len(measured.summary):
        rows = cubes(measured.summary)
        rows = rows[is_current(rows) & (rows["cache"] == cache) & rows["ratio"].notna()]
        rank = {toolkit: place for place, toolkit in enumerate(TOOLKITS)}
        rows = rows.sort_values("toolkit", key=lambda names: names.map(rank), kind="stable")
        for row in rows.drop_duplicates(["kernel", "n"]).to_dict("records"):
            by_kernel.setdefault(row["kernel"], {})[int(row["n"])] = row
    return by_kernel


def _ceilings(gpu: Gpu) -> dict[str, float]:
    """The ceilings measured on a GPU: TFLOP/s by type, and GB/s under ``bytes``."""
    rates = highest(gpu.measured)
    ceilings = gpu.measured.get(CEILING_FAMILY)
    if ceilings is not None and (copies := of_operation(ceilings, "ceiling_bytes")):
        rates["bytes"] = copies[0].value
    return rates


def level(row: Mapping[str, Any], ceilings: Mapping[str, float], dtype: str) -> View:
    """A row's ratio, and its share of its type's ceiling; where it only moves bytes, that of the best copy."""
    rate, ceiling = (row["gbps"], "bytes") if pd.isna(row["tflops"]) else (row["tflops"], dtype)
    known = ceiling in ceilings and pd.notna(rate)
    return View(ratio=float(row["ratio"]), share=float(rate) / ceilings[ceiling] if known else None)

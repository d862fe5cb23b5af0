"""What this particular run cannot show: each limit is a predicate over the data, and is printed only where it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemmrepro import registry
from gemmrepro.core.names import SIZE
from gemmrepro.core.text import listed
from gemmrepro.measure.recording import CEILINGS
from gemmrepro.measure.rows import Measurements, capability_of, select
from gemmrepro.paper.family import FamilyView
from gemmrepro.paper.gpus import Runnable, runnable
from gemmrepro.paper.inputs import Inputs
from gemmrepro.recordings.limits import Ceilings, limit, sums
from gemmrepro.registry.requirements import requirement

SHOWN = 8
"""How many entries of one kind are printed; the others are counted."""

FULL_CLOCK = 0.98
"""A row at this share of the GPU's highest clock, or above it, ran at full clock."""


GATE_FAILED = "its gate failed"
"""The reason that a sweep gives for a kernel that it did not time because it computes wrong results."""


@dataclass(frozen=True)
class Data:
    """What the limits are predicates over."""

    inputs: Inputs
    families: Sequence[FamilyView]

    @property
    def measured(self) -> list[FamilyView]:
        """The families with rows."""
        return [family for family in self.families if family.source != "none"]

    @cached_property
    def runnable(self) -> Runnable:
        """How many kernels the GPU can run."""
        return runnable([family.name for family in self.families], self.inputs.measured.values())

    @cached_property
    def lacking(self) -> set[str]:
        """The kernels that it cannot."""
        capability = capability_of(self.inputs.measured.values())
        kernels = [kernel for family in self.families for kernel in registry.kernels(family.name)]
        return {kernel.id for kernel in kernels if capability and requirement(kernel, capability)}

    @property
    def products(self) -> list[FamilyView]:
        """The families of GEMMs with rows."""
        return [family for family in self.measured if family.table.levels]

    def of(self, family: FamilyView) -> Measurements:
        """A family's measurements."""
        return self.inputs.measured[family.name]

    def all_of(self, values: Callable[[Measurements], Iterable[Any]]) -> set[Any]:
        """What holds of the measured families, without repetition."""
        return {value for family in self.measured for value in values(self.of(family))}


def limits(inputs: Inputs, families: Sequence[FamilyView]) -> list[str]:
    """The limits that hold of what was run, measured and recorded, the weightiest first."""
    data = Data(inputs, families)
    return [sentence for limit in LIMITS.values() for sentence in limit(data)]


def _told(families: Iterable[FamilyView], sentence: str) -> Iterator[str]:
    """A sentence about some families, if there are any."""
    if names := [family.name for family in families]:
        yield f"{listed(names)}: {sentence}"


def _nothing_measured(data: Data) -> Iterator[str]:
    if data.inputs.verdicts.source == "none":
        yield "Nothing was measured: there was neither a usable GPU nor a recording."


def _not_runnable(data: Data) -> Iterator[str]:
    found = data.runnable
    if found.reasons:
        yield f"Of {found.kernels} kernels {found.run} run on this GPU; {'; '.join(found.lines)}."


def _other_toolkit(data: Data) -> Iterator[str]:
    """Families measured with another toolkit than the configured one, which has no machine code for the GPU."""
    instead = ((data.inputs.config or {}).get("sweep") or {}).get("instead_of") or {}
    for toolkit in sorted(set(instead.values())):
        yield from _told(
            [family for family in data.families if instead.get(family.name) == toolkit],
            f"{toolkit}, with which the configuration measures them, does not compile for this GPU; the next toolkit "
            "that does took its place.",
        )


def _one_gpu_model(data: Data) -> Iterator[str]:
    names = data.all_of(lambda measured: [measured.gpu] if measured.gpu else [])
    if len(names) == 1:
        yield (
            f"All GPU times come from one model, {next(iter(names))}. Intervals cover the noise of one card in one "
            "sweep, not other cards of the model, other drivers or other cooling."
        )


def _cards(data: Data) -> Iterator[str]:
    """How far rows of the regimes that were measured again are apart, on one card and from card to card."""
    runs = {name: regimes.run for name, regimes in data.inputs.regimes.items()}
    spreads = [spread for run in runs.values() for spread in (run.get("spread") or {}).values()]
    for name, where in (("repeated", "the same card"), ("between_cards", "another card of the model")):
        if largest := [of["largest"] for spread in spreads if (of := spread.get(name))]:
            yield f"Measured again on {where}, sustained or in bursts, times changed by {max(largest):.1%} at most."
    yield from _told(
        [family for family in data.families if runs.get(family.name, {}).get("earlier")],
        "some rows, sustained and in bursts, are of an earlier take; ratios are to their own take's baseline.",
    )


def _recorded(data: Data) -> Iterator[str]:
    if data.inputs.verdicts.source in ("recorded", "mixed"):
        yield (
            "This run used no GPU. Times and numerical gates were recorded earlier on "
            f"{data.inputs.verdicts.gpu}; build keys tie each to the binary compiled in this run."
        )


def _not_compiled(data: Data) -> Iterator[str]:
    alone = {
        family.name: len(kernels)
        for family in data.families
        if (kernels := [kernel for kernel in family.kernels if kernel.code.uncompiled])
    }
    if alone:
        every = sum(len(family.kernels) for family in data.families)
        yield (
            f"{sum(alone.values())} of {every} kernels, of {listed(list(alone))}, were not compiled by every toolkit "
            "in this run; their pages say by which. Such a toolkit's rows are tied to what it would compile: source, "
            "flags and compiler."
        )


def _own_kernels(data: Data) -> Iterator[str]:
    if data.products and any(claim.published for claim in data.inputs.verdicts.claims):
        yield (
            "The kernels follow the articles' descriptions, not their code, so a difference in speed may come from our "
            "implementation as well as from the hardware."
        )


def _tuned(data: Data) -> Iterator[str]:
    """Kernels whose choices rest on another card's times, by its number of SMs."""
    tuned = {kernel.id: kernel.platform.tuned_sms for kernel in registry.kernels()}
    for here in data.all_of(lambda measured: [(measured.run.get("gpu") or {}).get("sm_count")]):
        others: dict[int, list[str]] = {}
        for kernel in (kernel.id for family in data.measured for kernel in family.kernels):
            if here and (sms := tuned.get(kernel, 0)) not in (0, here):
                others.setdefault(sms, []).append(kernel)
        for sms, kernels in others.items():
            yield (
                f"{listed(kernels)} {'chooses' if len(kernels) == 1 else 'choose'} a way of computing by times or "
                f"energies measured on {sms} SMs; here are {here}. Results are right, but the choice may not be the "
                "fastest."
            )


def _one_library(data: Data) -> Iterator[str]:
    releases = data.all_of(lambda measured: filter(None, [(measured.run.get("libraries") or {}).get("cuBLAS")]))
    if len(releases) == 1 and data.products:
        several = len({toolkit for family in data.products for toolkit in family.table.toolkits}) > 1
        yield (
            f"Ratios are to cuBLAS {next(iter(releases))}{', whichever toolkit compiled the kernel' if several else ''}"
            ". The articles used older releases, which chose other kernels, so a ratio may move although the kernel's "
            "own speed does not."
        )


def _power(data: Data) -> Iterator[str]:
    slowed = total = 0
    names = []
    for family in data.measured:
        rows, top = data.of(family).summary, (data.of(family).run.get("gpu") or {}).get("clock_max_mhz")
        if top:
            capped = rows["throttle"].str.contains("power") & (rows["clock_mhz"] < FULL_CLOCK * top)
            slowed, total = slowed + int(capped.sum()), total + len(rows)
            names += [family.name] if capped.any() else []
    if slowed:
        yield (
            f"In {slowed} of {total} rows ({listed(names)}) the power cap held the SM clock below its maximum. Their "
            "throughputs depend on cooling and on what ran before; alternating launches keep the ratios comparable."
        )


def _bursts(data: Data) -> Iterator[str]:
    seconds = data.all_of(lambda m: filter(None, [(m.run.get("config") or {}).get("seconds_per_round")]))
    if seconds:
        also = listed([name for name, regimes in data.inputs.regimes.items() if len(regimes.of("sustained"))])
        yield (
            f"A round times a point for at most {max(seconds):g} s. A GPU that runs a kernel for minutes is hotter "
            f"and may clock lower{f'; some kernels of {also} were timed on a hot GPU, too' if also else ''}."
        )


def _regime(data: Data) -> Iterator[str]:
    for cache, other in (("warm", "cold"), ("cold", "warm")):
        alone = [family for family in data.products if set(family.table.caches) == {cache}]
        yield from _told(alone, f"timed with a {cache} cache only; nothing here is about a {other} one.")


def _counters(data: Data) -> Iterator[str]:
    """Families of which no counter was recorded, apart from those whose counters no claim and no kernel asks for."""
    wanting = [family for family in data.products if any(kernel.evidence is not None for kernel in family.kernels)]
    yield from _told(
        [family for family in wanting if not family.has_counters],
        "no hardware counters were recorded, so memory traffic and stalls are unknown, and claims about them are not "
        "measured.",
    )


def _size(data: Data) -> Iterator[str]:
    missing = [family for family in data.products if not family.table.has_size]
    yield from _told(
        missing, f"the article's size, {SIZE}, was not part of this sweep, so claims about it are not measured."
    )


def _stale(data: Data) -> Iterator[str]:
    experiments = [experiment.results for family in data.families for experiment in family.experiments]
    for stale, of, what in (
        (data.families, "", "the kernel, its flags or its toolkit"),
        (experiments, " of experiments", "a kernel, or what the experiment does,"),
    ):
        if rows := sum(each.stale for each in stale):
            yield (
                f"{rows} {_rows(rows)}{of} {'is' if rows == 1 else 'are'} stale: {what} changed since the recording. "
                "They are struck out and support no claim."
            )


def _gates(data: Data) -> Iterator[str]:
    yield from _told(
        [
            family
            for family in data.families
            if not all(each.judged for kernel in family.kernels for each in kernel.gate.toolkits if each.measured)
        ],
        "the numerical gate has not been run for today's binaries of some kernels; the kernels' pages say so.",
    )


def _not_measured(data: Data) -> Iterator[str]:
    by_family = {
        family.name: [
            toolkit for kernel in family.kernels if kernel.id not in data.lacking for toolkit in kernel.gate.toolkits
        ]
        for family in data.families
    }
    left_out = {name: [each for each in every if not each.measured] for name, every in by_family.items()}
    names = [name for name, found in left_out.items() if found]
    if names:
        count, total = (sum(len(of[name]) for name in names) for of in (left_out, by_family))
        toolkits = sorted({each.name for found in left_out.values() for each in found})
        yield (
            f"{listed(names)}: this run measured nothing with {count} of {total} binaries ({listed(toolkits)}). Their "
            "machine code was judged, their numbers were not (gates.binaries in the configuration)."
        )


def _unchecked_rates(data: Data) -> Iterator[str]:
    """Rows whose throughput no ceiling, data sheet or compute capability bounds, by types of operands and sums."""
    ceilings = data.inputs.measured.get(CEILINGS)
    unchecked: dict[str, int] = {}
    for family in data.measured:
        measured = data.of(family)
        gpu = measured.run.get("gpu") or {}
        known = Ceilings()
        if ceilings is not None and gpu and ceilings.gpu == measured.gpu:
            cells = ceilings.summary[["kernel", "tflops", "gbps", "clock_mhz"]].astype(object)
            known = Ceilings.of(cells.where(cells.notna(), "").astype(str).to_dict("records"), ceilings.run)
        for kernel in registry.kernels(family.name):
            rows = select(measured.summary, kernel=kernel.id)
            if (count := int(rows["tflops"].notna().sum())) and limit(kernel, gpu, known) is None:
                unchecked[sums(kernel)] = unchecked.get(sums(kernel), 0) + count
    for types, count in unchecked.items():
        yield (
            f"Rate not checked: {count} {_rows(count)} of {types}. No ceiling of these types was measured on this GPU, "
            "and neither a data sheet nor its compute capability gives one."
        )


def _changed_trees(data: Data) -> Iterator[str]:
    yield from _told(
        [family for family in data.measured if "+" in str(data.of(family).run.get("git_commit") or "")],
        "recorded from a tree with uncommitted changes. Build keys, which hash the sources, still tie each row to "
        "today's binary.",
    )


def _unfounded(data: Data) -> Iterator[str]:
    unfounded = data.inputs.verdicts.unfounded
    if unfounded:
        names = ", ".join(claim.id for claim in unfounded)
        yield (
            f"Marked as wrong, yet found to hold in this run: {names}. Either the correction or the test of it is "
            "mistaken, so they are not listed among what the articles get wrong."
        )


def _skipped(data: Data) -> Iterator[str]:
    """What no sweep timed, kernels of one reason together."""
    entries = [
        entry
        for measured in data.inputs.measured.values()
        for entry in measured.run.get("skipped") or []
        if entry["kernel"] not in data.lacking
    ]
    gates = {kernel.id: kernel.gate for family in data.families for kernel in family.kernels}
    kernels: dict[str, list[str]] = {}
    for entry in entries:
        kernels.setdefault(entry["reason"], []).append(entry["kernel"])
    for reason, repeated in [*kernels.items()][:SHOWN]:
        names = list(dict.fromkeys(repeated))
        is_one = len(names) == 1
        if reason == GATE_FAILED:
            passed = all(name in gates and gates[name].numeric_passed for name in names)
            now = f", and {'passes' if is_one else 'pass'} it now, untimed" if passed else ""
            yield f"{listed(names)} failed {'its gate' if is_one else 'their gates'} when the sweep ran{now}."
        else:
            yield f"{listed(names)} {'was' if is_one else 'were'} not timed at every size: {reason}."
    if len(kernels) > SHOWN:
        yield f"{len(kernels) - SHOWN} more reasons for rows that are missing are in run.json."


def _no_containers(data: Data) -> Iterator[str]:
    if not data.inputs.locks:
        yield "This run used no containers, so only the tool versions listed above are recorded."


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


LIMITS: dict[str, Callable[[Data], Iterator[str]]] = {
    "nothing measured": _nothing_measured,
    "kernels that cannot run": _not_runnable,
    "another toolkit": _other_toolkit,
    "one model of GPU": _one_gpu_model,
    "takes and cards": _cards,
    "recorded earlier": _recorded,
    "not compiled": _not_compiled,
    "kernels of our own": _own_kernels,
    "tuned for another card": _tuned,
    "one release of cuBLAS": _one_library,
    "clock below its maximum": _power,
    "short bursts": _bursts,
    "one cache state": _regime,
    "no counters": _counters,
    "article's size missing": _size,
    "stale rows": _stale,
    "gates not run": _gates,
    "binaries not measured": _not_measured,
    "rates not checked": _unchecked_rates,
    "uncommitted changes": _changed_trees,
    "unfounded corrections": _unfounded,
    "kernels not timed": _skipped,
    "no containers": _no_containers,
}
"""Every limit by its name, the weightiest first: the sentences that it is, none where it does not hold of the data."""

"""What this particular run cannot show: each limit is a predicate over the data, and is printed only where it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from gemmrepro import registry
from gemmrepro.core.names import SIZE
from gemmrepro.core.text import listed
from gemmrepro.judge.judging import unfounded as marked_wrong
from gemmrepro.measure.recording import CEILINGS
from gemmrepro.measure.rows import Measurements, capability_of, select
from gemmrepro.paper.gpus import runnable
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.text import View
from gemmrepro.recordings.limits import Ceilings, limit, sums
from gemmrepro.registry.requirements import requirement

SHOWN = 8
"""How many entries of one kind are printed; the others are counted."""

FULL_CLOCK = 0.98
"""A row at this share of the GPU's highest clock, or above it, ran at full clock."""

GATE_FAILED = "its gate failed"
"""The reason that a sweep gives for a kernel that it did not time because it computes wrong results."""

Limits = Iterator[tuple[str, str]]
"""Limits that hold, each by its name and in a sentence; one may need several."""


class Data:
    """What the limits are predicates over: the inputs and the pages of the families."""

    def __init__(self, inputs: Inputs, families: Sequence[View]) -> None:
        self.inputs, self.families = inputs, families
        self.measured = [family for family in families if family.source != "none"]
        self.products = [family for family in self.measured if family.table.levels]
        self.kernels = [kernel for family in families for kernel in family.kernels]

    @cached_property
    def lacking(self) -> set[str]:
        """The kernels that the GPU cannot run."""
        capability = capability_of(self.inputs.measured.values())
        kernels = [kernel for family in self.families for kernel in registry.kernels(family.name)]
        return {kernel.id for kernel in kernels if capability and requirement(kernel, capability)}

    def of(self, family: View) -> Measurements:
        """A family's measurements."""
        return self.inputs.measured[family.name]

    def all_of(self, value: Callable[[Measurements], Any]) -> set[Any]:
        """What holds of the measured families, without repetition and without what is empty."""
        return {found for family in self.measured if (found := value(self.of(family)))}


def holding(data: Data) -> Limits:
    """Every limit that holds of the data, the weightiest first."""
    for part in (_of_the_gpu, _of_the_kernels, _of_the_sweeps, _of_the_rows, _of_the_run):
        yield from part(data)


def _told(name: str, families: Iterable[View], sentence: str) -> Limits:
    """A sentence about some families, if there are any."""
    if names := [family.name for family in families]:
        yield name, f"{listed(names)}: {sentence}"


def _rows(count: int) -> str:
    return f"{count} {'row' if count == 1 else 'rows'}"


def _of_the_gpu(data: Data) -> Limits:
    verdicts, regimes = data.inputs.verdicts, data.inputs.regimes
    if verdicts.source == "none":
        yield "nothing measured", "Nothing was measured: there was neither a usable GPU nor a recording."

    found = runnable([family.name for family in data.families], data.inputs.measured.values())
    if found.reasons:
        counts = f"Of {found.kernels} kernels {found.run} run on this GPU; {'; '.join(found.lines)}."
        yield "kernels that cannot run", counts

    # Families measured with another toolkit than the configured one, which has no machine code for the GPU.
    instead = ((data.inputs.config or {}).get("sweep") or {}).get("instead_of") or {}
    for toolkit in sorted(set(instead.values())):
        yield from _told(
            "another toolkit",
            [family for family in data.families if instead.get(family.name) == toolkit],
            f"{toolkit}, with which the configuration measures them, does not compile for this GPU; the next toolkit "
            "that does took its place.",
        )

    names = data.all_of(lambda measured: measured.gpu)
    if len(names) == 1:
        yield (
            "one model of GPU",
            f"All GPU times come from one model, {next(iter(names))}. Intervals cover the noise of one card in one "
            "sweep, not other cards of the model, other drivers or other cooling.",
        )

    # How far rows of the regimes that were measured again are apart, on one card and from card to card.
    spreads = [spread for of in regimes.values() for spread in (of.run.get("spread") or {}).values()]
    for name, where in (("repeated", "the same card"), ("between_cards", "another card of the model")):
        if largest := [spread[name]["largest"] for spread in spreads if spread.get(name)]:
            text = f"Measured again on {where}, sustained or in bursts, times changed by {max(largest):.1%} at most."
            yield "takes and cards", text
    yield from _told(
        "takes and cards",
        [family for family in data.families if family.name in regimes and regimes[family.name].run.get("earlier")],
        "some rows, sustained and in bursts, are of an earlier day; ratios are to the library of that day.",
    )

    if verdicts.source in ("recorded", "mixed"):
        yield (
            "recorded earlier",
            f"This run used no GPU. Times and numerical gates were recorded earlier on {verdicts.gpu}; build keys tie "
            "each to the binary compiled in this run.",
        )


def _of_the_kernels(data: Data) -> Limits:
    uncompiled = {
        family.name: count
        for family in data.families
        if (count := sum(bool(kernel.code.uncompiled) for kernel in family.kernels))
    }
    if uncompiled:
        yield (
            "not compiled",
            f"{sum(uncompiled.values())} of {len(data.kernels)} kernels, of {listed(list(uncompiled))}, were not "
            "compiled by every toolkit in this run; their pages say by which. Such a toolkit's rows are tied to what "
            "it would compile: source, flags and compiler.",
        )

    if data.products and any(claim.published for claim in data.inputs.verdicts.claims):
        yield (
            "kernels of our own",
            "The kernels follow the articles' descriptions, not their code, so a difference in speed may come from our "
            "implementation as well as from the hardware.",
        )

    # Kernels whose choices rest on another card's times, by its number of SMs.
    tuned = {kernel.id: kernel.platform.tuned_sms for kernel in registry.kernels()}
    for here in data.all_of(lambda measured: (measured.run.get("gpu") or {}).get("sm_count")):
        others: dict[int, list[str]] = {}
        for kernel in (kernel.id for family in data.measured for kernel in family.kernels):
            if (sms := tuned.get(kernel, 0)) not in (0, here):
                others.setdefault(sms, []).append(kernel)
        for sms, kernels in others.items():
            yield (
                "tuned for another card",
                f"{listed(kernels)} {'chooses' if len(kernels) == 1 else 'choose'} a way of computing by times or "
                f"energies measured on {sms} SMs; here are {here}. Results are right, but the choice may not be the "
                "fastest.",
            )

    releases = data.all_of(lambda measured: (measured.run.get("libraries") or {}).get("cuBLAS"))
    if len(releases) == 1 and data.products:
        several = len({toolkit for family in data.products for toolkit in family.table.toolkits}) > 1
        yield (
            "one release of cuBLAS",
            f"Ratios are to cuBLAS {next(iter(releases))}{', whichever toolkit compiled the kernel' if several else ''}"
            ". The articles used older releases, which chose other kernels, so a ratio may move although the kernel's "
            "own speed does not.",
        )


def _of_the_sweeps(data: Data) -> Limits:
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
            "clock below its maximum",
            f"In {slowed} of {total} rows ({listed(names)}) the power cap held the SM clock below its maximum. Their "
            "throughputs depend on cooling and on what ran before; alternating launches keep the ratios comparable.",
        )

    if seconds := data.all_of(lambda measured: (measured.run.get("config") or {}).get("seconds_per_round")):
        also = listed([name for name, regimes in data.inputs.regimes.items() if len(regimes.of("sustained"))])
        yield (
            "short bursts",
            f"A round times a point for at most {max(seconds):g} s. A GPU that runs a kernel for minutes is hotter "
            f"and may clock lower{f'; some kernels of {also} were timed on a hot GPU, too' if also else ''}.",
        )

    for cache, other in (("warm", "cold"), ("cold", "warm")):
        alone = [family for family in data.products if set(family.table.caches) == {cache}]
        text = f"timed with a {cache} cache only; nothing here is about a {other} one."
        yield from _told("one cache state", alone, text)

    # Apart from families whose counters no claim and no kernel asks for.
    asked = [family for family in data.products if any(kernel.evidence is not None for kernel in family.kernels)]
    yield from _told(
        "no counters",
        [family for family in asked if not family.has_counters],
        "no hardware counters were recorded, so memory traffic and stalls are unknown, and claims about them are not "
        "measured.",
    )
    yield from _told(
        "article's size missing",
        [family for family in data.products if not family.table.has_size],
        f"the article's size, {SIZE}, was not part of this sweep, so claims about it are not measured.",
    )


def _of_the_rows(data: Data) -> Limits:
    experiments = [experiment.results for family in data.families for experiment in family.experiments]
    for stale, of, what in (
        (data.families, "", "the kernel, its flags or its toolkit"),
        (experiments, " of experiments", "a kernel, or what the experiment does,"),
    ):
        if rows := sum(each.stale for each in stale):
            yield (
                "stale rows",
                f"{_rows(rows)}{of} {'is' if rows == 1 else 'are'} stale: {what} changed since the recording. They are "
                "struck out and support no claim.",
            )

    binaries = {
        family.name: [(kernel.id, each) for kernel in family.kernels for each in kernel.gate.toolkits]
        for family in data.families
    }
    yield from _told(
        "gates not run",
        [
            family
            for family in data.families
            if not all(each.judged for _, each in binaries[family.name] if each.measured)
        ],
        "the numerical gate has not been run for today's binaries of some kernels; the kernels' pages say so.",
    )

    able = {name: [each for kernel, each in of if kernel not in data.lacking] for name, of in binaries.items()}
    left_out = {name: found for name, of in able.items() if (found := [each for each in of if not each.measured])}
    if left_out:
        count, total = sum(map(len, left_out.values())), sum(len(able[name]) for name in left_out)
        toolkits = sorted({each.name for found in left_out.values() for each in found})
        yield (
            "binaries not measured",
            f"{listed(list(left_out))}: this run measured nothing with {count} of {total} binaries "
            f"({listed(toolkits)}). Their machine code was judged, their numbers were not (gates.binaries in the "
            "configuration).",
        )

    if unchecked := [f"{_rows(count)} of {types}" for types, count in _unchecked(data).items()]:
        yield (
            "rates not checked",
            f"Rate not checked: {listed(unchecked)}. No ceiling that bounds them was measured on this GPU, and neither "
            "a data sheet nor its compute capability gives one.",
        )


def _unchecked(data: Data) -> dict[str, int]:
    """How many rows have a throughput that nothing bounds, by types of operands and sums."""
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
    return unchecked


def _of_the_run(data: Data) -> Limits:
    yield from _told(
        "uncommitted changes",
        [family for family in data.measured if "+" in str(data.of(family).run.get("git_commit") or "")],
        "recorded from a tree with uncommitted changes. Build keys, which hash the sources, still tie each row to "
        "today's binary.",
    )

    if unfounded := ", ".join(marked_wrong([vars(claim) for claim in data.inputs.verdicts.claims])):
        yield (
            "unfounded corrections",
            f"Marked as wrong, yet found to hold in this run: {unfounded}. Either the correction or the test of it is "
            "mistaken, so they are not listed among what the articles get wrong.",
        )

    # What no sweep timed, kernels of one reason together; with which toolkit, where another timed the kernel.
    kernels: dict[tuple[str, str], dict[str, None]] = {}
    for measured in data.inputs.measured.values():
        entries = [entry for entry in measured.run.get("skipped") or [] if entry["kernel"] not in data.lacking]
        for kernel, reason in dict.fromkeys((entry["kernel"], entry["reason"]) for entry in entries):
            left_out = {entry["toolkit"] for entry in entries if (entry["kernel"], entry["reason"]) == (kernel, reason)}
            others = set(select(measured.summary, kernel=kernel)["toolkit"]) - left_out
            kernels.setdefault((reason, f" with {listed(sorted(left_out))}" if others else ""), {})[kernel] = None
    passed = {kernel.id for kernel in data.kernels if kernel.gate.numeric_passed}
    for (reason, by), of in [*kernels.items()][:SHOWN]:
        names, is_one = listed(list(of)), len(of) == 1
        if reason == GATE_FAILED:
            now = f", and {'passes' if is_one else 'pass'} it now, untimed" if set(of) <= passed else ""
            text = f"{names} failed {'its gate' if is_one else 'their gates'}{by} when the sweep ran{now}."
        else:
            text = f"{names} {'was' if is_one else 'were'} not timed at every size{by}: {reason}."
        yield "kernels not timed", text
    if len(kernels) > SHOWN:
        yield "kernels not timed", f"{len(kernels) - SHOWN} more reasons for rows that are missing are in run.json."

    if not data.inputs.locks:
        yield "no containers", "This run used no containers, so only the tool versions listed above are recorded."

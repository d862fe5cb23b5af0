"""Judges every claim on its evidence, puts the verdicts into sentences, and counts them: ``results/verdicts.json``.

`gemmrepro.judge.rules` defines the verdicts, `gemmrepro.judge.metrics` the vocabulary of claims.yaml.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core import schemas
from gemmrepro.core.files import write_json
from gemmrepro.core.names import COMMAND
from gemmrepro.core.text import format_number
from gemmrepro.experiments import results as experiment_results
from gemmrepro.gpu.baselines import baseline, place
from gemmrepro.judge import carrying, claims
from gemmrepro.judge.carrying import CEILING_FAMILY, MODEL, SHARE, measured_ceiling
from gemmrepro.judge.claim import ANYWHERE, ARTICLE, BUILD, Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value, joined, load_gates
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.metrics.base import OtherToolkitsOnly, Readings, expected, not_judged, published
from gemmrepro.judge.metrics.calculated import counted
from gemmrepro.judge.rules import (
    BUILD_FACT,
    COVERED,
    NOT,
    NOT_COMPARABLE,
    NOT_MEASURED,
    NOT_TESTABLE,
    REPRODUCED,
    RIGHT,
    VERDICTS,
    Verdict,
)
from gemmrepro.judge.wording import in_words, sentence
from gemmrepro.measure.regimes import BURST, IN_TURN, SUSTAINED
from gemmrepro.measure.rows import capability_of, load, load_regimes, row_key
from gemmrepro.operations import shape_of
from gemmrepro.registry.articles import chip_of
from gemmrepro.registry.requirements import requirement

_OLDER, _OLDER_CEILING = "mma.sync", "ceilings.mma_f16"
_RATES = {"bf16": "bf16", "fp16": "fp16_acc32"}


@dataclass(frozen=True)
class _Instruction:
    """A tensor-core instruction: how recorded kernels' names and opcodes show it, and where it exists.
    `capabilities` are compute capabilities x 10; `ceiling` is the micro-kernel that measures its rate, if any."""

    name: str
    kernels: str
    opcodes: str
    capabilities: frozenset[int]
    ceiling: str = ""


_INSTRUCTIONS = (
    _Instruction("wgmma", r"nvjet_sm90|warpgroupsize|gmma", r"[A-Z]GMMA\b.*", frozenset({90}), "ceilings.wgmma"),
    _Instruction("tcgen05.mma", r"nvjet_sm1\d\d|umma|tcgen05", r"UTC\w*MMA\b.*", frozenset({100, 103})),
)


def not_comparable(claim: Claim, readings: Readings, evidence: Evidence) -> str:
    """Why a ratio below the published one compares different instructions, as sentences; '' where it does not."""
    if claim.metric != "ratio" or readings.judged.value.value >= published(claim):
        return ""
    chip = chip_of(claim.article, claim.hardware)
    kernel, row = registry.kernel(claim.compute["kernel"]), _row(readings, evidence)
    key = place(str(row["baseline"]), kernel.problem, shape_of(kernel.compute.op, claim.compute["n"]))
    ran = str((evidence.measured.run.get("baseline_kernels") or {}).get(key, ""))
    build = evidence.build(kernel.id, readings.judged.toolkit or "")
    code = build.archs.get(str(row["arch"])) if build else None
    for instruction in _INSTRUCTIONS:
        lacked = chip is not None and chip.capability not in instruction.capabilities
        foreign = lacked and re.search(instruction.kernels, ran)
        if foreign and code and not any(re.fullmatch(instruction.opcodes, opcode) for opcode in code.instructions):
            library = baseline(str(row["baseline"])).rung
            return (
                f"not comparable, since {library} multiplies with {instruction.name} here, which the {claim.hardware} "
                f"lacks and the kernel does not use. {_parts(claim, readings, evidence, instruction, row)}Its share of "
                "each chip's ceiling is judged in its place"
            )
    return ""


def _row(readings: Readings, evidence: Evidence) -> Mapping[str, Any]:
    """The summary row that a ratio was read from."""
    rows = evidence.measured.summary
    return dict(rows[rows.apply(row_key, axis=1) == readings.judged.value.sources[0]].iloc[-1])


def _parts(
    claim: Claim, readings: Readings, evidence: Evidence, instruction: _Instruction, row: Mapping[str, Any]
) -> str:
    """The published ratio over the measured one as a product: the instruction's part, the kernel's and the library's.
    '' where the kernel's published rate, a ceiling or the data sheet's rate is missing."""
    kernel = registry.kernel(claim.compute["kernel"])
    chip, rate = chip_of(claim.article, claim.hardware), _RATES.get(kernel.compute.dtype_in, "")
    sheet = chip.rate(rate) if chip and rate else None
    if claim.throughput is None or sheet is None or not instruction.ceiling or evidence.ceilings is None:
        return ""
    older, newer = (measured_ceiling(evidence.ceilings, name) for name in (_OLDER_CEILING, instruction.ceiling))
    if older is None or newer is None:
        return ""
    ratio, tflops = readings.judged.value.value, float(row["tflops"])
    own = tflops / older.value
    own_there = float(claim.throughput["value"]) / sheet.value
    library, library_there = tflops / ratio / newer.value, own_there / published(claim)
    shown = [
        format_number(number)
        for number in (
            ratio / published(claim),
            older.value / newer.value,
            own / own_there,
            own,
            own_there,
            library_there / library,
            library,
            library_there,
        )
    ]
    return (
        "The ratio is {0} of the published one: {1} by the instruction (mma.sync over {name} on this GPU), {2} by the "
        "kernel ({3} of the mma.sync ceiling here, {4} there), {5} by the library ({6} of its ceiling here, {7} "
        "there). "
    ).format(*shown, name=instruction.name)


SCHEMA = 5
"""The version of verdicts.json: since 5 a gain's side of 1 is a condition, and linked sources are a register."""

_IN_WORDS = {IN_TURN: "in turn", SUSTAINED: "sustained", BURST: "in bursts"}

_CLAIM_KEYS = (
    *("id", "family", "article", "where", "statement", "register", "covered_by", "correction"),
    *("tolerance", "within_factor", "same_side"),
)
_PUBLISHED_KEYS = ("system", "metric", "value", "unit", "hardware", "n", "dtype", "place")

Entry = dict[str, Any]
"""A claim as it was judged: its entry in verdicts.json."""

REGISTERS, WAYS = (schemas.words("verdicts.schema.yaml", name) for name in ("register", "way"))
"""Registers of claims, and ways of judging them: each word and its rule."""

MEASURED, NONE = "measured", "none"
ON_ANY_GPU = ("count", "consistent", COVERED, NONE)
"""Ways whose verdicts are the same on every GPU."""


def way_of(claim: Claim) -> str:
    """The way in which a claim is judged: a key of WAYS."""
    if claim.covered_by:
        return COVERED
    kind = claim.transfer["kind"]
    if kind in (SHARE, MODEL, NONE):
        return str(kind)
    return MEASURED if counted(claim) else METRICS[claim.metric].way


def tallies(claims: Sequence[Mapping[str, Any]]) -> str:
    """A table of all claims by register and verdict, and one of the articles' statements by way."""
    every = pd.DataFrame(claims, columns=["register", "way", "verdict"])
    tables = [(key, of) for key, of in (("register", every), ("way", every[every["register"] == ARTICLE])) if len(of)]
    return "\n\n".join(
        pd.crosstab(of[key], of["verdict"], margins=True, margins_name="claims").to_string() for key, of in tables
    )


def unfounded(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of the claims that are marked as wrong on any GPU although the statement holds."""
    marked = [claim for claim in claims if claim["correction"] and claim["correction"]["class"] in ANYWHERE]
    return [claim["id"] for claim in marked if claim["verdict"] in RIGHT]


def _entry(
    claim: Claim,
    verdict: str,
    explanation: str,
    exhibits: Sequence[Mapping[str, Any]] = (),
    toolkit: str | None = None,
    *,
    expected: float | None = None,
    regime: str = IN_TURN,
    beside: Mapping[str, Value] | None = None,
) -> Entry:
    """A claim's verdict, explained, with the values behind it (`exhibits`). Its command measures what is missing.
    `toolkit`: which built the kernels; None where nothing was measured, or none was needed. `expected`: the published
    figure carried over by rates, in the measured unit; else None. `beside`: its values in other regimes."""
    others = {name: value.as_json() for name, value in (beside or {}).items()}
    return {
        **{name: getattr(claim, name) for name in _CLAIM_KEYS},
        "way": way_of(claim),
        "kernels": list(claim.kernels),
        "published": [{key: row[key] for key in _PUBLISHED_KEYS} for row in claim.published],
        "transfer": {key: claim.transfer[key] for key in ("kind", "why")},
        "expected": expected,
        "judged_on": toolkit,
        "regime": {"article": claim.regime, "judged": regime, "beside": others},
        "verdict": verdict,
        "measured": list(exhibits),
        "explanation": in_words(explanation),
        "command": COMMAND,
    }


def judge(claim: Claim, evidence: Evidence) -> Entry:
    if claim.covered_by:
        return _judge_covered(claim, evidence)
    metric = METRICS[claim.metric]
    regime, evidence, beside = _in_regimes(claim, evidence)
    try:
        readings = metric.read(claim, evidence)
        machine = metric.machine(claim, evidence)
        readings = replace(readings, carried=carrying.of(claim, evidence, machine))
    except NotMeasured as reason:
        return _judge_unmeasured(claim, evidence, reason)
    untestable = metric.untestable(claim, readings, machine)
    verdict = Verdict(NOT_TESTABLE, untestable) if untestable else metric.judge(claim, readings)
    if verdict.kind == NOT and (foreign := not_comparable(claim, readings, evidence)):
        verdict = Verdict(NOT_COMPARABLE, foreign)
    if verdict.kind == REPRODUCED and claim.register == BUILD:
        verdict = Verdict(BUILD_FACT, verdict.reason)
    explanation = metric.explain(claim, readings, verdict, evidence)
    if beside:
        others = ", ".join(f"{_IN_WORDS[name]} {value.text()}" for name, value in beside.items())
        explanation += f" Judged {_IN_WORDS[regime]}; {others}."
    figure = expected(claim, readings) if readings.carried is not None and claim.tolerance is not None else None
    exhibits, toolkit = metric.exhibits(claim, readings, evidence), readings.judged.toolkit
    return _entry(claim, verdict.kind, explanation, exhibits, toolkit, expected=figure, regime=regime, beside=beside)


def _in_regimes(claim: Claim, evidence: Evidence) -> tuple[str, Evidence, dict[str, Value]]:
    """The regime that a claim is judged in, its evidence, and the claim's value in each of the others.
    That is the article's regime, where there are current rows of all that the claim compares; else in turn."""
    metric = METRICS[claim.metric]
    values = {}
    for regime in (IN_TURN, *evidence.regimes) if metric.of_rows and evidence.regimes else ():
        try:
            values[regime] = metric.read(claim, evidence.within(regime)).judged.value
        except NotMeasured:
            continue
    judged = claim.regime if claim.regime in values else IN_TURN
    return judged, evidence.within(judged), {regime: value for regime, value in values.items() if regime != judged}


def _judge_covered(claim: Claim, evidence: Evidence) -> Entry:
    """The entry of a claim that another one judges in other units, with the values that were measured for it."""
    explanation = "Another statement judges this in other units, so it is not counted again."
    metric = METRICS[claim.metric]
    try:
        readings = metric.read(claim, evidence)
    except NotMeasured:
        return _entry(claim, COVERED, explanation)
    exhibits = metric.exhibits(claim, readings, evidence)
    shown = [value for value in readings.judged.values for each in exhibits if value.as_json().items() <= each.items()]
    if len(shown) == 1:
        explanation += f" Measured: {shown[0].text()}."
    return _entry(claim, COVERED, explanation, exhibits, readings.judged.toolkit)


def _judge_unmeasured(claim: Claim, evidence: Evidence, reason: NotMeasured) -> Entry:
    exhibits = not_judged(reason.others) if isinstance(reason, OtherToolkitsOnly) else []
    untestable = METRICS[claim.metric].untestable(claim, None, evidence.measured.gpu)
    if untestable:
        return _entry(claim, NOT_TESTABLE, untestable, exhibits)
    return _entry(claim, NOT_MEASURED, f"{sentence(str(reason))}.", exhibits)


def judge_all(
    measure_dir: Path,
    gates_dir: Path,
    build_dir: Path,
    families: tuple[str, ...] | None = None,
    load_claims: Callable[[tuple[str, ...] | None], list[Claim]] = claims.load,
    experiments_dir: Path | None = None,
    regimes_dir: Path | None = None,
) -> dict[str, Any]:
    """The content of verdicts.json: every claim's verdict. Raises UserError for a corrupt input file."""
    all_claims = load_claims(families)
    ceilings = load(measure_dir, CEILING_FAMILY)
    evidence: dict[str, Evidence] = {}
    judged = dict.fromkeys((*(families or ()), *(family for claim in all_claims for family in rested_on(claim))))
    measured = {family: load(measure_dir, family) for family in judged}
    capability = capability_of(measured.values())
    for family in judged:
        results = experiment_results.load(experiments_dir, family)
        ids = {kernel.id for kernel in registry.kernels(family)}
        ids |= {kernel for results_of_one in results.values() for kernel in results_of_one.experiment.kernels}
        gates = load_gates(gates_dir, sorted(ids))
        regimes = load_regimes(regimes_dir, family).by_regime()
        needs = {name: requirement(registry.kernel(name), capability) for name in ids if capability}
        lacking = {name: needed for name, needed in needs.items() if needed}
        found = (measured[family], gates, Path(build_dir), results, ceilings, regimes, lacking)
        evidence[family] = Evidence(*found)
    entries = [judge(claim, joined([evidence[family] for family in rested_on(claim)])) for claim in all_claims]
    sources = {family.source for family in measured.values()} - {"none"}
    verdicts = {
        register: [entry["verdict"] for entry in entries if entry["register"] == register] for register in REGISTERS
    }
    return {
        "schema": SCHEMA,
        "claims": entries,
        "gpu": ", ".join(sorted({family.gpu for family in measured.values() if family.gpu})) or None,
        "source": "none" if not sources else sources.pop() if len(sources) == 1 else "mixed",
        "counts": {register: {kind: of.count(kind) for kind in VERDICTS} for register, of in verdicts.items()},
    }


def rested_on(claim: Claim) -> list[str]:
    """The families whose rows a claim rests on, its own first. An experiment has all of its rows in its own family."""
    own = {kernel.id: kernel.family for kernel in registry.kernels()} if METRICS[claim.metric].of_rows else {}
    return list(dict.fromkeys([claim.family, *(own[kernel] for kernel in claim.kernels if kernel in own)]))


def verdicts_step(options: Namespace) -> int:
    families = tuple(options.families.split(",")) if options.families else None
    folders = (options.measure, options.gates, options.build)
    judged = judge_all(*folders, families, experiments_dir=options.experiments, regimes_dir=options.regimes)
    write_json(options.out, judged)
    width = max((len(entry["id"]) for entry in judged["claims"]), default=0)
    for entry in judged["claims"]:
        print(f"{entry['id']:<{width}}  {entry['verdict']}")
    return 0

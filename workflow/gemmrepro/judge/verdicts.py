"""Judges every claim from measurement rows: ``results/verdicts.json``.

The rules, which the report prints as well:

* A value is *reproduced* when its 95% interval overlaps [p(1-t), p(1+t)], with p the published value and t the claim's
  tolerance, and is not itself wider than that band.
* It is *partly* reproduced when it misses the band but holds what the claim's ``partly`` asks for: the interval lies on
  the same side of a number (1: a gain stays a gain), or the value lies within a factor.
* An order is reproduced when every neighbouring pair is in the published order with intervals apart, partly when more
  than half of the pairs are.
* A claim with transfer "none" is judged on the published hardware only; elsewhere it is *not testable here*.
* A share of the peak is taken of a ceiling that this GPU was measured to have, never of a data sheet.
* A statement about machine code is *reproduced* when the instruction stands in it as often as stated, in every build.
* A statement that one kernel is the faster is *reproduced* when the whole interval of the quotient says so.
* A statement about an experiment is *reproduced* when it holds at every point asked for, intervals included, and partly
  when at more than half of them. Of many published values each is held against its own point.
* A statement about the length of sources is *reproduced* when the quotient of their lines of code lies in the stated
  range, and partly when it lies on the same side of 1.
* A figure of an experiment is judged as any other is, within its claim's tolerance.
* Where the article gives no figure, what was measured is shown, and the claim is *not testable here*.
* A level is judged with the article's constants; what tuning makes of it stands beside.
* Rows that are stale, or whose kernel failed its gate, support nothing: without other rows a claim is *not measured*.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.core.files import write_json
from gemmrepro.core.names import COMMAND
from gemmrepro.core.text import format_number
from gemmrepro.errors import run_stage
from gemmrepro.experiments import results as experiments_results
from gemmrepro.experiments.results import Results
from gemmrepro.judge import claims, experiments, source_lines
from gemmrepro.judge.ceilings import FAMILY
from gemmrepro.judge.claims import Claim
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value, load_gates
from gemmrepro.judge.metrics import _measure
from gemmrepro.judge.rules import (
    NOT,
    NOT_MEASURED,
    NOT_TESTABLE,
    PARTLY,
    REPRODUCED,
    VERDICTS,
    _name,
    difference,
    judge_faster,
    judge_opcodes,
    judge_order,
    judge_value,
    same_gpu,
)
from gemmrepro.measure.rows import load
from gemmrepro.registry.ladders import is_tuned, twins

_PUBLISHED_KEYS = ("system", "metric", "value", "unit", "hardware", "n", "dtype")


def _numeric_note(claim: Claim, evidence: Evidence, toolkit: str) -> str:
    """A sentence where a kernel behind a claim has no passed numerical gate for this binary."""
    open_gates = []
    for kernel in claim.kernels:
        numeric = ((evidence.gates.get(kernel) or {}).get("toolkits", {}).get(toolkit) or {}).get("numeric") or {}
        if numeric.get("status") not in ("passed", None):
            open_gates.append(f"{kernel} ({numeric['status']})")
    return f" The numerical gate has not passed for {', '.join(open_gates)}." if open_gates else ""


def _tuned_note(claim: Claim, evidence: Evidence, toolkit: str) -> str:
    """A sentence on what the claim's kernel reaches with constants found on this GPU, where that was measured."""
    if claim.compute["metric"] not in ("ratio", "tflops") or claim.cache != "warm":
        return ""
    kernel = registry.kernel(claim.compute["kernel"])
    said = ""
    for twin in twins(kernel):
        if not is_tuned(twin) or twin.dtype_in != kernel.dtype_in:
            continue
        tuned = replace(claim, compute={**claim.compute, "kernel": twin.id})
        try:
            (value,) = _measure(tuned, evidence, toolkit)
        except NotMeasured:
            continue
        said += f" Tuned for this GPU ({twin.id}), which the verdict leaves out: {value.text()}."
    return said


def judge_experiment(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    """The verdict on a claim that rests on an experiment, as its entry in verdicts.json."""
    compute = claim.compute
    results = evidence.experiments.get(compute["experiment"])
    reason = f"the experiment {compute['experiment']} was not run"
    for toolkit in claim.toolkits if results is not None else ():
        try:
            for kernel in claim.kernels:
                evidence.check_gate(kernel)
            found, exact = experiments.values(results, compute, claim.family, toolkit, claim.published)
        except (experiments.Missing, NotMeasured) as error:
            reason = str(error)
            continue
        if not found:
            reason = f"at all {exact} points neither errs at all"
            continue
        by = toolkit if results.toolkit else None  # libraries have rows by no toolkit
        if claim.tolerance is not None:
            return _judge_figure(claim, results, found[0], by)
        good = sum(experiments.holds(each, compute) for each in found)
        verdict = REPRODUCED if good == len(found) else PARTLY if good > len(found) / 2 else NOT
        if claim.transfer["kind"] == "none" and not same_gpu(str(claim.published[0]["hardware"]), results.gpu):
            verdict = NOT_TESTABLE
        # The point that speaks loudest against the claim stands in the table.
        worst = (max if "most" in compute and not {"above", "least"} & set(compute) else min)(
            found, key=lambda each: each.value
        )
        unit = "ratio" if "over" in compute else results.experiment.column(compute["value"]).unit
        label = ", ".join(filter(None, (worst.point, by)))
        value = Value(label, worst.value, worst.low, worst.high, unit, worst.rows).as_json()
        # JSON has no infinity, which a quotient by zero is.
        value = {key: None if cell in (math.inf, -math.inf) else cell for key, cell in value.items()}
        measured = [{**value, "judged": True, "experiment": compute["experiment"]}]
        said = experiments.tell(found, exact, compute)
        explanation = f"On {results.machine or 'this machine'} {said}.{_numeric_note(claim, evidence, toolkit)}"
        return _entry(claim, verdict, explanation, measured, by)
    return _entry(claim, NOT_MEASURED, reason[0].upper() + reason[1:] + ".", [], None)


def _judge_figure(claim: Claim, results: Results, found: experiments.Found, by: str | None) -> dict[str, Any]:
    """The verdict on an experiment's value that is held against a published figure."""
    compute, first = claim.compute, claim.published[0]
    unit = "" if "over" in compute else results.experiment.column(compute["value"]).unit
    label = ", ".join(filter(None, (found.point, by)))
    value = Value(label, found.value, found.low, found.high, unit or "ratio", found.rows)
    here = results.machine or "this machine"
    published_unit = "" if len(claim.published) > 1 or first["unit"] == "ratio" else f" {first['unit']}"
    said = f"Published {claim.figure}{published_unit} on {first['hardware']}; measured {value.text()} on {here}"
    said += f" ({label})" if label else ""
    if claim.transfer["kind"] == "none" and not same_gpu(str(first["hardware"]), results.machine):
        verdict, explanation = NOT_TESTABLE, f"{said}. Only {first['hardware']} can confirm the figure."
    else:
        verdict, reason = judge_value(value, claim.value, claim.tolerance or 0.0, claim.partly)
        explanation = f"{said}, {difference(value.value, claim.value)}: {reason}."
    entry = {**value.as_json(), "judged": True, "experiment": compute["experiment"]}
    return _entry(claim, verdict, explanation, [entry], by)


def judge_nothing(claim: Claim) -> dict[str, Any]:
    """The entry of a claim that no run here can test."""
    return _entry(claim, NOT_TESTABLE, claim.transfer["why"], [], None)


def judge_lines(claim: Claim) -> dict[str, Any]:
    """The verdict on a claim about lengths of source files, as its entry in verdicts.json. Needs no measurement."""
    compute = claim.compute
    files = [registry.kernel(compute[key]).source_path for key in ("kernel", "over")]
    one, other = (source_lines.of_file(path) for path in files)
    value, least, most = one / other, compute["least"], compute["most"]
    said = f"{files[0].name} has {one} lines of code, {files[1].name} {other}"
    asked = f"{format_number(least)} to {format_number(most)} times as many"
    if least <= value <= most:
        verdict, reason = REPRODUCED, f"{asked}, as stated"
    elif (value < 1) == (most <= 1):
        verdict, reason = PARTLY, f"not {asked}, but {'fewer' if value < 1 else 'more'} all the same"
    else:
        verdict, reason = NOT, f"not {asked}"
    sources = tuple(path.relative_to(paths.KERNELS_DIR.parent).as_posix() for path in files)
    measured = Value(f"{compute['kernel']} over {compute['over']}", value, value, value, "ratio", sources)
    entry = {**measured.as_json(), "judged": True, "static": True}
    return _entry(claim, verdict, f"{said}: {format_number(value)} times as many, {reason}.", [entry], None)


def judge(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    """The verdict on one claim, as its entry in verdicts.json."""
    if claim.compute["metric"] == "experiment":
        return judge_experiment(claim, evidence)
    if claim.compute["metric"] == "lines":
        return judge_lines(claim)
    if claim.compute["metric"] == "none":
        return judge_nothing(claim)
    toolkits = evidence.toolkits(claim.toolkits)
    found: dict[str, list[Value]] = {}
    reasons: dict[str, str] = {}
    for toolkit in toolkits:
        try:
            found[toolkit] = _measure(claim, evidence, toolkit)
        except NotMeasured as error:
            reasons[toolkit] = str(error)
    judged_on = toolkits[0]
    if "counter" in (claim.compute["metric"], claim.compute.get("of")):
        # Counters may have been read for one toolkit only.
        judged_on = judged_on if judged_on in found else next(iter(found), judged_on)
    if claim.compute["metric"] == "opcodes":
        # Machine code needs no measurement: whatever toolkit built the kernel counts.
        judged_on = judged_on if judged_on in found else next(iter(found), judged_on)
    values = found.get(judged_on)
    gpu = evidence.measured.gpu
    hardware = str(claim.published[0]["hardware"]) if claim.published else ""
    home = bool(hardware) and same_gpu(hardware, gpu)
    kind = claim.transfer["kind"]

    metric = claim.compute["metric"]
    published = [row["value"] for row in claim.published]
    if metric != "order" and published:
        published = [claim.value]
    unit = "ratio" if len(claim.published) > 1 else claim.published[0]["unit"] if claim.published else ""
    first = claim.figure + ("" if unit == "ratio" else f" {unit}")
    here = gpu or "this machine"
    if values is None:
        said = ""
    elif claim.compute["metric"] == "order":
        said = f"Measured on {here}: " + ", ".join(f"{_name(value)} {value.text()}" for value in values) + "."
    elif metric == "faster":
        compared = f"{claim.compute['kernel']} is {values[0].text()} times as fast as {claim.compute['over']}"
        said = f"Measured on {here}: {compared} ({values[0].label.split(', ', 1)[1]})"
    elif not published:
        said = f"Measured {values[0].text()} on {here} ({values[0].label.split(', ', 1)[1]})"
    else:
        said = f"Published {first} on {hardware}; measured {values[0].text()} on {here}"
        said += f" ({values[0].label.split(', ', 1)[1]}), {difference(values[0].value, published[0])}"

    others = [toolkit for toolkit in toolkits if toolkit in found and toolkit != judged_on]
    beside = ""
    if values is not None and len(values) == 1:
        beside = "".join(f" With {toolkit}: {found[toolkit][0].text()}." for toolkit in others)
    if claim.compute["metric"] == "opcodes" and values is not None:
        verdict, reason = judge_opcodes(found, claim.compute)
        explanation = f"{reason[0].upper()}{reason[1:]}."
    elif kind == "none" and not home:
        verdict = NOT_TESTABLE
        explanation = f"{said}.{beside}{_tuned_note(claim, evidence, judged_on)} " if values else ""
        explanation += f"Only {hardware} can confirm the figure." if published else claim.transfer["why"]
    elif values is None:
        verdict = NOT_MEASURED
        explanation = reasons[judged_on][0].upper() + reasons[judged_on][1:] + "."
    else:
        if claim.compute["metric"] == "order":
            verdict, reason = judge_order(values, published)
            explanation = f"{said} {reason[0].upper()}{reason[1:]}."
        else:
            if metric == "faster":
                verdict, reason = judge_faster(values[0])
            else:
                verdict, reason = judge_value(values[0], published[0], claim.tolerance or 0.0, claim.partly)
            explanation = f"{said}: {reason}."
        explanation += beside + _tuned_note(claim, evidence, judged_on) + _numeric_note(claim, evidence, judged_on)

    if claim.compute["metric"] == "opcodes" and values:
        # One count stands for all targets: that of the GPU at hand, or else the smallest.
        here_first = [value for value in values if value.label.endswith(str(evidence.measured.arch))]
        values = here_first[:1] or [min(values, key=lambda value: value.value)]
        others = []
    measured = [{**value.as_json(), "judged": True} for value in values or ()]
    measured += [{**value.as_json(), "judged": False} for toolkit in others for value in found[toolkit]]
    return _entry(claim, verdict, explanation, measured, judged_on if values is not None else None)


def _entry(
    claim: Claim, verdict: str, explanation: str, measured: list[dict[str, Any]], judged_on: str | None
) -> dict[str, Any]:
    """A claim's entry in verdicts.json."""
    return {
        "id": claim.id,
        "family": claim.family,
        "article": claim.article,
        "where": claim.where,
        "statement": claim.statement,
        "kernels": list(claim.kernels),
        "published": [{key: row[key] for key in _PUBLISHED_KEYS} for row in claim.published],
        "transfer": dict(claim.transfer),
        "tolerance": claim.tolerance,
        "partly": dict(claim.partly),
        "judged_on": judged_on,
        "verdict": verdict,
        "measured": measured,
        "explanation": explanation,
        "command": COMMAND,
    }


def judge_all(
    measure_dir: Path,
    gates_dir: Path,
    build_dir: Path,
    families: tuple[str, ...] | None = None,
    load_claims: Callable[[tuple[str, ...] | None], list[Claim]] = claims.load,
    experiments_dir: Path | None = None,
) -> dict[str, Any]:
    """Every claim's verdict, and what they rest on."""
    all_claims = load_claims(families)
    evidence: dict[str, Evidence] = {}
    ceilings = load(measure_dir, FAMILY)
    for family in dict.fromkeys((*(families or ()), *(claim.family for claim in all_claims))):
        results = experiments_results.load(experiments_dir, family)
        ids = {kernel.id for kernel in registry.kernels(family)}
        ids |= {kernel for each in results.values() for kernel in each.experiment.kernels}
        gates = load_gates(gates_dir, sorted(ids))
        evidence[family] = Evidence(load(measure_dir, family), gates, Path(build_dir), results, ceilings)
    entries = [judge(claim, evidence[claim.family]) for claim in all_claims]
    sources = {each.measured.source for each in evidence.values()} - {"none"}
    gpus = {each.measured.gpu for each in evidence.values() if each.measured.gpu}
    return {
        "claims": entries,
        "gpu": ", ".join(sorted(gpus)) or None,
        "source": "none" if not sources else sources.pop() if len(sources) == 1 else "mixed",
        "counts": {verdict: sum(entry["verdict"] == verdict for entry in entries) for verdict in VERDICTS},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge every claim from the measurement rows.")
    parser.add_argument("--measure", type=Path, required=True, help="folder with one folder of rows a family")
    parser.add_argument("--gates", type=Path, required=True, help="folder with one gate verdict a kernel")
    parser.add_argument("--build", type=Path, required=True, help="folder with the build records")
    parser.add_argument("--families", help="only these, separated by commas; default: all with a claims.yaml")
    parser.add_argument("--experiments", type=Path, help="folder with one folder of experiments a family")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    families = tuple(arguments.families.split(",")) if arguments.families else None
    folders = (arguments.measure, arguments.gates, arguments.build)
    verdicts = judge_all(*folders, families, experiments_dir=arguments.experiments)
    write_json(arguments.out, verdicts)
    width = max((len(entry["id"]) for entry in verdicts["claims"]), default=0)
    for entry in verdicts["claims"]:
        print(f"{entry['id']:<{width}}  {entry['verdict']}")
    return 0


if __name__ == "__main__":
    run_stage(main)

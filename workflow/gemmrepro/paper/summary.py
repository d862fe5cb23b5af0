"""The report's headline, disagreements, recordings and limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gemmrepro.core.names import SIZE
from gemmrepro.judge.rules import VERDICTS, difference
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.inputs import Inputs
from gemmrepro.paper.text import number


def headline(families: Sequence[Mapping[str, Any]], inputs: Inputs) -> list[dict[str, Any]]:
    """For each family of GEMMs: its fastest level at the article's size, and what was published."""
    found = []
    for family in families:
        cells = [
            (entry, cell)
            for entry in family["table"]
            for cell in entry["cells"]
            if cell
            and cell["cache"] == "warm"
            and not cell["stale"]
            and cell["ratio_value"] is not None
            and entry["dtype"] == family["types"][0]
        ]
        judged = [(entry, cell) for entry, cell in cells if cell["toolkit"] == family["toolkits"][0]] or cells
        if not judged:
            continue
        entry, cell = max(judged, key=lambda pair: pair[1]["ratio_value"])
        # Where a later kernel is ahead, what became of the article's own best stands beside it.
        named = [pair for pair in judged if pair[0]["published_ratio"]]
        own = max(named, key=lambda pair: pair[1]["ratio_value"], default=None)
        found.append({"family": family, "entry": entry, "cell": cell, "own": own if own and own[0] != entry else None})
    return found


def by_article(judged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many claims of each article have each verdict."""
    found = Counter((claim["article"], claim["verdict"]) for claim in judged)
    return [
        {"article": article, "counts": {verdict: found[article, verdict] for verdict in VERDICTS}}
        for article in dict.fromkeys(claim["article"] for claim in judged)
    ]


def disagreements(judged: Sequence[Mapping[str, Any]], published: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Of each family the claim that is not reproduced and whose value lies furthest from `published`, by its id.

    Only claims of one value beside one published figure can be compared so; the furthest of all comes first.
    """
    furthest: dict[str, dict[str, Any]] = {}
    for claim in judged:
        values = [each for each in claim["measured"] if each.get("judged")]
        figure = published.get(claim["id"])
        # Without a tolerance a claim is no figure beside a figure, but an order or a sign.
        if claim["verdict"] != "not reproduced" or not claim["tolerance"] or len(values) != 1 or not figure:
            continue
        value = values[0]["value"]
        if not value / figure > 0:
            continue
        percent = values[0]["unit"] == "ratio" and "%" in claim["statement"]
        found = {
            "claim": claim,
            "text": f"{number(100 * value)}%" if percent else number(value),
            "unit": "" if values[0]["unit"] == "ratio" else values[0]["unit"],
            "times": max(value / figure, figure / value),
            "difference": difference(value, figure),
        }
        if claim["family"] not in furthest or found["times"] > furthest[claim["family"]]["times"]:
            furthest[claim["family"]] = found
    return sorted(furthest.values(), key=lambda found: -math.log(found["times"]))


def recordings(families: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How and when the rows of each family were taken; several recordings may stand behind one page."""
    found = []
    for family in families:
        run = family["measured"].run
        if not family["rows"]:
            continue
        config = run.get("config") or {}
        found.append(
            {
                "family": family,
                "rows": len(family["rows"]),
                "gpu": family["gpu"],
                "source": family["source"],
                "date": str(run.get("date") or ""),
                "commit": str(run.get("git_commit") or ""),
                "toolkits": sorted((run.get("toolkits") or {}).items()),
                "caches": config.get("caches") or [],
                "rounds": config.get("rounds"),
                "interval": config.get("interval"),
                "driver": (run.get("gpu") or {}).get("driver"),
            }
        )
    return found


def baseline_text(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The GPU kernels that the baseline ran, as (what, name)."""
    return sorted((str(key), str(value)) for key, value in (run.get("baseline_kernels") or {}).items())


def machine_view(measured: Mapping[str, Measurements]) -> dict[str, Any]:
    """What is known of the GPU and its software, from the first family that was measured."""
    for each in measured.values():
        if each.run and len(each.summary):
            gpu = each.run.get("gpu") or {}
            size = {"l2_bytes": 1 << 20, "memory_bytes": 1 << 30}
            facts = [
                ("GPU", gpu.get("name")),
                ("Compute capability", gpu.get("compute_capability")),
                ("Multiprocessors", gpu.get("sm_count")),
                ("L2 cache", f"{gpu['l2_bytes'] / size['l2_bytes']:.0f} MiB" if gpu.get("l2_bytes") else None),
                (
                    "Memory",
                    f"{gpu['memory_bytes'] / size['memory_bytes']:.0f} GiB" if gpu.get("memory_bytes") else None,
                ),
                ("Driver", gpu.get("driver")),
                ("Highest SM clock", f"{gpu['clock_max_mhz']} MHz" if gpu.get("clock_max_mhz") else None),
                ("Memory clock", f"{gpu['memory_clock_mhz']} MHz" if gpu.get("memory_clock_mhz") else None),
                ("Power cap", f"{gpu['power_cap_w']:g} W" if gpu.get("power_cap_w") else None),
            ]
            return {
                "facts": [(name, value) for name, value in facts if value not in (None, "")],
                "libraries": sorted((each.run.get("libraries") or {}).items()),
                "toolkits": sorted((each.run.get("toolkits") or {}).items()),
                "baseline_kernels": sorted(pair for one in measured.values() for pair in baseline_text(one.run)),
                "commit": each.run.get("git_commit"),
                "date": each.run.get("date"),
                "config": each.run.get("config") or {},
            }
    empty = {"facts": [], "libraries": [], "toolkits": [], "baseline_kernels": [], "config": {}}
    return empty | {"commit": None, "date": None}


def limits(inputs: Inputs, families: Sequence[Mapping[str, Any]]) -> list[str]:
    """What this run in particular cannot say."""
    said = []
    if inputs.verdicts["source"] in ("recorded", "mixed"):
        said.append(
            "No GPU took part in this run. The times, and the numerical gates, were recorded earlier on "
            f"{inputs.verdicts['gpu']}; each is tied by its build key to the very binary that was compiled in this run."
        )
    on_cpu = {
        each["machine"]
        for family in families
        for each in family["experiments"]
        if each["on_cpu"] and each["source"] == "live"
    }
    if on_cpu:
        said.append(
            f"What needs no GPU was timed in this run on {', '.join(sorted(on_cpu))}, beside whatever else that "
            "machine did."
        )
    if inputs.verdicts["source"] == "none":
        said.append("Nothing was measured: there was neither a usable GPU nor a recording.")
    stale = sum(family["stale"] for family in families)
    if stale:
        said.append(
            f"{stale} rows are stale: the kernel, its flags or its toolkit changed after they were recorded. They are "
            "struck out and support no claim."
        )
    if any(family["table"] and family["source"] != "none" and not family["counters"] for family in families):
        said.append(
            "The profiler could not be used, so there are no hardware counters: counts of loads are read off the "
            "machine code, memory traffic is unknown, and claims about it are not measured."
        )
    stale = sum(each["stale"] for family in families for each in family["experiments"])
    if stale:
        said.append(
            f"{stale} rows of experiments are stale: a kernel, or what the experiment does, changed after they were "
            "recorded. They are struck out and support no claim."
        )
    open_gates = sorted(
        {
            kernel["name"]
            for family in families
            for kernel in family["kernels"]
            for toolkit in kernel["gate"]["toolkits"]
            if toolkit["numeric"] not in ("passed", "failed")
        }
    )
    if open_gates:
        said.append(f"The numerical gate has not been run for today's binaries of {', '.join(open_gates)}.")
    measured = [family for family in families if family["table"] and family["source"] != "none"]
    if any(not family["has_size"] for family in measured):
        said.append(f"The article's size, {SIZE}, was not part of this sweep, so claims about it are not measured.")
    skipped = [entry for each in inputs.measured.values() for entry in each.run.get("skipped") or []]
    for entry in skipped[:8]:
        said.append(f"{entry.get('kernel')}, built by {entry.get('toolkit')}, was not timed: {entry.get('reason')}")
    if len(skipped) > 8:
        said.append(f"{len(skipped) - 8} more were not timed; run.json lists them.")
    if not inputs.locks:
        said.append("This run used no containers, so the versions of its tools are not recorded beyond those listed.")
    return said

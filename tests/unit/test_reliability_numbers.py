"""The numbers of docs/reliability.md are those of the recorded campaigns and of the lists of cases."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import test_bad_configuration
import test_blas
import test_cheats
import test_hostile
from campaigns.alterations import ALTERATIONS, COUNTERS, EXPERIMENTS, MANIFESTS, REGIMES, SAMPLES, SUMMARY, VERDICTS
from campaigns.alterations import SANITIZERS as SANITIZED
from campaigns.environments import CASES
from campaigns.fakes import FAKES
from campaigns.hostile import ATTACKS
from support import ROOT

from gemmrepro.measure.checks.sanitizers import CLEAN, SANITIZERS

TEXT = (ROOT / "docs/reliability.md").read_text()
WORDS = " ".join(TEXT.split())
ROWS = {cells[1]: cells for line in TEXT.splitlines() if len(cells := [part.strip() for part in line.split("|")]) == 7}
"""Rows of tables with five columns, by their first cell."""


def recorded(name: str) -> Any:
    return json.loads((ROOT / f"tests/campaigns/recorded/{name}.json").read_text())


def held(name: str) -> str:
    """What a campaign tried and held, as the table writes it; cases that it lists are as many as it says."""
    found = recorded(name)
    for cases in (value for key, value in found.items() if key in ("cases", "kills", "attacks")):
        assert len(cases) == found["tried"]
    return f"{found['tried']}: {found['held']}"


def tried(row: str) -> str:
    return ROWS[row][3]


def cases(test: Any) -> int:
    """How often pytest runs a test."""
    marks = (mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize")
    return math.prod(len(mark.args[1]) for mark in marks)


def test_what_was_lost() -> None:
    counts = tried("nothing measured or built is lost").split(", ")
    names = ("killed", "killed-image", "killed-measurement", "power-cut", "full-disk", "two-at-once")
    assert counts == [held(name) for name in names]
    lines = [line for line in TEXT.splitlines() if ".py`: " in line and line.endswith(" |")]
    assert [line.split("|")[2:4] for line in lines] == [[f" {part} " for part in count.split(": ")] for count in counts]


def test_what_was_believed() -> None:
    found = recorded("tampering")
    counts: Mapping[str, Mapping[str, int]] = found["counts"]
    for subject, counted in counts.items():
        outcomes = [one["outcome"] for one in found["cases"][subject].values()]
        assert counted["tried"] == len(outcomes)
        assert all(counted[name] == outcomes.count(name) for name in ("refused", "harmless", "believed"))
    recordings = {name: counted for name, counted in counts.items() if name != "bundle"}
    total = {name: sum(counted[name] for counted in recordings.values()) for name in ("tried", "believed")}
    bundle = counts["bundle"]
    assert len(FAKES) == bundle["tried"]
    assert tried("nothing false is believed") == (
        f"{total['tried']}: {total['tried'] - total['believed']}, the {total['believed']} others believed; "
        f"{bundle['tried']}: {bundle['refused']}"
    )
    for name, counted in recordings.items():
        shown = [str(counted[column]) for column in ("tried", "refused", "harmless", "believed")]
        assert ROWS[f"recording of `{name}` ({counted['rows']} rows)"][2:6] == shown
    assert ROWS["bundle of `ceilings` and `ozaki`"][2:4] == [str(bundle["tried"]), str(bundle["refused"])]


def test_what_was_altered() -> None:
    counted = {"`summary.csv`": SUMMARY, "`samples.parquet`": SAMPLES, "`gates.json`": VERDICTS}
    counted |= {"`counters.csv`": COUNTERS, "`run.json`": MANIFESTS, "experiment's rows": EXPERIMENTS}
    counted |= {"`sanitizers.json`": SANITIZED}
    assert all(f"{name} ({len(some)})" in WORDS for name, some in counted.items())
    assert f"a take of the regimes ({len(REGIMES)};" in WORDS
    names = {one.name for one in ALTERATIONS}
    every = recorded("tampering")["cases"]
    assert names == set(every["crt"]) == set(every["hopper"]) == set(every["ladder"])


def test_what_was_refused_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, lines = len(test_bad_configuration.WRONG), len(test_bad_configuration.COMMAND_LINES)
    blas = sum(cases(test) for name, test in vars(test_blas).items() if name.startswith("test_") and "refused" in name)
    shown = f"{held('environments')}; {wrong} configurations, {lines} command lines, {blas} cases of `dgemm`: all"
    assert tried("bad input") == shown
    assert f"Wrong configurations ({wrong}) and command lines ({lines})" in WORDS
    monkeypatch.syspath_prepend(str(ROOT / "tests/workflow"))
    every, quick = len(CASES), cases(importlib.import_module("test_environments").test_an_environment_is_as_expected)
    assert every == recorded("environments")["tried"]
    assert f"{quick} of the {every} environments" in ROWS["bad input"][5]


def test_what_strangers_sent() -> None:
    assert len(ATTACKS) == recorded("hostile")["tried"]
    assert tried("hostile input") == f"{held('hostile')}; {test_hostile.TEXTS} texts with scripts: {test_hostile.TEXTS}"
    quick = sum(not one.name.startswith(test_hostile.LARGE) for one in ATTACKS)
    assert ROWS["hostile input"][5].startswith(f"{quick} of the {len(ATTACKS)},")


def test_what_cheated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests/gpu"))
    # Two of them are also told from an honest kernel in a graph.
    planted, on_gpu = (
        len(test_cheats.CHEATS) + len(test_cheats.SHORT),
        len(importlib.import_module("test_gpu_cheats").CHEATS),
    )
    assert tried("cheats") == f"{planted} in Python, {on_gpu} in CUDA and a stream: all caught"


def test_what_tests_notice() -> None:
    known, branches = recorded("mutants"), recorded("branches")["packages"]
    drawn = known["mutants"].values()
    since = recorded("mutants-since")["mutants"].values()
    counts = [f"{len(some)}: {sum(one['now'] == 'noticed' for one in some)}" for some in (drawn, since)]
    assert tried("tests that notice") == "; ".join(counts)
    first = sum(one["first"] == "noticed" for one in since)
    assert f"{len(since)} other faults were drawn on 2026-11-27 (`mutants-since.json`): {first} were noticed" in WORDS
    for package, name in zip(branches, ("`gates`", "`judge`", "`measure`", "`stats.py`", "`timing.py`"), strict=True):
        of = [
            one
            for fault, one in known["mutants"].items()
            if Path(fault.split(":")[0]).parts[1].split(".")[0] == package
        ]
        first, now = (sum(one[when] == "noticed" for one in of) for when in ("first", "now"))
        taken, every = branches[package]["taken"], branches[package]["branches"]
        assert (
            f"| {name} | {known['possible'][package]:,} | {len(of)} | {first} | {now} ({now / len(of):.0%}) "
            f"| {taken} of {every} ({taken / every:.0%}) |".replace("%", " %")
            in TEXT
        )


def test_what_compute_sanitizer_said() -> None:
    said = [
        outcome
        for path in ROOT.glob(f"reports/recorded/h200/*/{SANITIZERS}")
        for kernel in json.loads(path.read_text()).values()
        for judged in kernel["toolkits"].values()
        for outcome in judged["tools"].values()
    ]
    assert tried("compute-sanitizer") == f"{len(said):,}: {said.count(CLEAN):,} clean"
    assert f"{said.count(CLEAN):,} of {len(said):,} clean" in WORDS

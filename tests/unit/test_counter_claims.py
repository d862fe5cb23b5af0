"""Claims on arithmetic of hardware counters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from synthetic import World

from gemmrepro.judge import claims, judging, rules
from gemmrepro.judge.evidence import NotMeasured
from gemmrepro.judge.metrics import METRICS

CLAIM = next(claim for claim in claims.load(("ada",)) if claim.id == "ada.naive.loads")
FMA = {"fma": ["smsp__inst_executed_pipe_fma.sum", "inst"]}  # n^3 / 32 in the synthetic world
BUSY = {"busy": ["smsp__issue_active.avg.pct_of_peak_sustained_active", "%"]}


@pytest.fixture
def judged(tmp_path: Path):
    made = World(tmp_path, families=("ada", "ceilings"), sizes=(4096,)).write()

    def judge(**compute: Any) -> dict[str, Any]:
        claim = replace(CLAIM, compute={"metric": "counters", "kernel": "ada.scalar", "n": 4096, **compute})
        folders = (made.measure, made.gates, made.build)
        (entry,) = judging.judge_all(*folders, ("ada",), load_claims=lambda families: [claim]).as_json()["claims"]
        return entry

    return judge


def test_what_an_expression_of_counters_gives_is_held_against_its_bounds(judged):
    entry = judged(counters=FMA, value="32 * fma / n**3", unit="of one", least=0.9, most=1.1)
    assert entry["verdict"] == rules.REPRODUCED and entry["measured"][0]["value"] == pytest.approx(1)
    assert "at least 0.9 and at most 1.1, as stated" in entry["explanation"]
    assert judged(counters=FMA, value="32 * fma / n**3", most=0.9)["verdict"] == rules.NOT
    assert judged(counters=FMA, value="32 * fma / n**3", least=1.1)["verdict"] == rules.NOT


def test_several_counters_may_be_part_of_it(judged):
    entry = judged(counters={**FMA, **BUSY}, value="busy / 100 * fma / (n**3 / 32)", least=0.4, most=0.9)
    assert entry["verdict"] == rules.REPRODUCED and len(entry["measured"][0]["from"]) == 2


def test_a_counter_that_was_not_read_supports_nothing(judged):
    unread = {"loads": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector"]}
    assert judged(counters=unread, value="loads", least=1)["verdict"] == rules.NOT_MEASURED
    wrong_unit = {"fma": ["smsp__inst_executed_pipe_fma.sum", "byte"]}
    assert judged(counters=wrong_unit, value="fma", least=1)["verdict"] == rules.NOT_MEASURED


def test_a_quotient_by_nothing_supports_nothing(judged):
    entry = judged(counters=FMA, value="fma / (n - 4096)", least=0)
    assert entry["verdict"] == rules.NOT_MEASURED
    assert "counters of Naive (1.0), 'fma / (n - 4096)' divides by zero" in entry["explanation"]


def quotient(**compute: Any) -> Any:
    """A claim on a counter of two kernels."""
    kernels = {"kernel": "ada.scalar", "over": "ada.vector", "counter": "inst", "n": 4096}
    return replace(CLAIM, published=(), compute={"metric": "counter", **kernels, **compute})


def test_a_quotient_of_counters_needs_both_kernels_and_a_count():
    """Two published rows are of two kernels; what counted nothing divides nothing."""
    metric = METRICS["counter"]
    counted = {"ada.scalar": 8.0, "ada.vector": 2.0}
    read = lambda kernel, *_: rules.Value(kernel, *3 * [counted[kernel]], "inst", (f"{kernel}.csv",))  # noqa: E731
    evidence = SimpleNamespace(counter=read)
    (value,) = metric.values(quotient(), evidence, "cuda13")
    assert (value.value, value.unit, value.sources) == (4, "ratio", ("ada.scalar.csv", "ada.vector.csv"))
    counted["ada.vector"] = 0.0
    with pytest.raises(NotMeasured, match=r"ada\.vector counted none of inst"):
        metric.values(quotient(), evidence, "cuda13")
    rows = ({"unit": "inst", "value": 1.0},) * 2
    alone = replace(quotient(), published=rows)
    del alone.compute["over"]
    (problem,) = [one for one in metric.check(alone) if one.key == "compute.over"]
    assert "a quotient of two rows has two kernels" in problem.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value": "sectors / lines"}, "lines"),
        ({"counters": {"sectors": ["a", ""], "idle": ["b", ""]}, "value": "sectors"}, "does not use 'idle'"),
        ({"value": "__import__('os')"}, "compute.value"),
        ({"kernel": "ada.none"}, "no kernel 'ada.none'"),
    ],
)
def test_what_no_schema_can_tell_is_checked(change: dict[str, Any], words: str):
    metric = METRICS["counters"]
    assert metric.check(CLAIM) == []
    problems = metric.check(replace(CLAIM, compute={**CLAIM.compute, **change}))
    assert words in " ".join(f"{problem.key}: {problem.message}" for problem in problems)

"""Claims that are calculated from hardware counters, and from what the sources and builds of two kernels hold."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from synthetic import World

from gemmrepro.judge import claims, judging, rules
from gemmrepro.judge.judging import way_of
from gemmrepro.judge.metrics import calculated
from gemmrepro.judge.metrics.calculated import Calculated, Inputs

FMA = "smsp__inst_executed_pipe_fma.sum"  # n^3 / 32 in the synthetic world
CLAIM = next(claim for claim in claims.load(("ada",), judged=True) if claim.id == "ada.naive.conflicts")


@pytest.fixture
def judged(tmp_path: Path, monkeypatch):
    made = World(tmp_path, families=("ada", "ceilings"), sizes=(4096,)).write()

    def judge(function: Any, **compute: Any) -> dict[str, Any]:
        monkeypatch.setattr("gemmrepro.judge.metrics.calculated.calculation", lambda family, name: function)
        keys = {"metric": "calculated", "function": "f", "kernels": ["ada.scalar"], "n": 4096}
        claim = replace(CLAIM, compute={**keys, **compute})
        folders = (made.measure, made.gates, made.build)
        (entry,) = judging.judge_all(*folders, ("ada",), load_claims=lambda families: [claim])["claims"]
        return entry

    return judge


def of_one(given: Inputs) -> Calculated:
    return Calculated(32 * given.counter(FMA, "inst") / given.n**3, "of one")


def test_what_a_function_makes_of_counters_is_held_against_its_bounds(judged):
    entry = judged(of_one, unit="per output", least=0.9, most=1.1)
    assert entry["verdict"] == rules.REPRODUCED and entry["measured"][0]["value"] == pytest.approx(1)
    assert entry["way"] == "measured" and [key for key in entry["measured"][0]["from"] if key.startswith("counters:")]
    words = "Measured 1.00 per output on Synthetic GPU, Naive (1.0) (n = 4096"
    assert words in entry["explanation"] and "at least 0.9 and at most 1.1, as stated" in entry["explanation"]
    assert judged(of_one, most=0.9)["verdict"] == judged(of_one, least=1.1)["verdict"] == rules.NOT


@pytest.mark.parametrize(("name", "unit"), [("l1tex__t_sectors.sum", "sector"), (FMA, "byte")])
def test_a_counter_that_was_not_read_supports_nothing(judged, name, unit):
    """Nor does one in another unit."""
    unread = lambda given: Calculated(given.counter(name, unit))  # noqa: E731
    assert judged(unread, least=0)["verdict"] == rules.NOT_MEASURED


@pytest.mark.parametrize(
    ("claim", "values", "result"),
    [
        ("ada.naive.loads", {"sectors": 2.0**30}, 4.0),
        ("ada.naive.conflicts", {"conflicts": 10.0, "wavefronts": 100.0}, 0.1),
        ("ladder.bandwidth.step", {"bytes": 15.0}, 1.0),
        ("ladder.loads.L1", {"global_ld": 2.0 * 4096**3 / 32}, 2.0),  # a warp's instruction counts for 32 threads
        ("ladder.loads.L3", {"global_ld": 2.0 * 4096**3 / 32}, 1.0),
    ],
)
def test_claims_on_counters(claim, values, result):
    declared = next(each for each in claims.load((claim.split(".")[0],), judged=True) if each.id == claim)
    assert way_of(declared) in ("measured", "share")

    def counter(kernel, n, name, toolkit, unit):
        (value,) = {number for word, number in values.items() if word in name.split("__")[1]}
        return rules.Value(kernel, value, value, value, unit, ("row",))

    given = Inputs(
        kernels=tuple(SimpleNamespace(id=name) for name in declared.kernels),
        n=4096,
        options=declared.compute.get("options", {}),
        evidence=SimpleNamespace(counter=counter),
    )
    function = calculated.calculation(declared.family, declared.compute["function"])
    assert function(given).value == pytest.approx(result) and given.sources[0] == "row"


def test_loads_are_counted_in_the_main_loop_where_no_counter_was_read(tmp_path):
    made = World(tmp_path, sizes=(4096,), counters=False).write()
    of = [claim for claim in claims.load(("ladder",)) if claim.id in ("ladder.loads.L1", "ladder.bandwidth.L1")]
    judged = judging.judge_all(made.measure, made.gates, made.build, ("ladder",), lambda families: of)
    by = {entry["id"]: entry for entry in judged["claims"]}
    assert by["ladder.loads.L1"]["measured"]
    assert by["ladder.bandwidth.L1"]["verdict"] == rules.NOT_MEASURED

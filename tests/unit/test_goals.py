"""Goals: what is declared exists, and each outcome follows from rows of its regime."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest
import yaml
from support import ROOT

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.judge import goals as goals_of
from gemmrepro.judge.goals import MET, MISSED, NOT_MEASURED, UNDECIDED, Goal, Judged, Reached, goals, judge
from gemmrepro.measure.regimes.columns import RegimeRow
from gemmrepro.measure.regimes.rows import Regimes
from gemmrepro.measure.rows import Measurements, load, read_table
from gemmrepro.paper.goals import GoalsView, goals_csv

H200 = ROOT / "reports/recorded/h200"
TAKE = H200 / "hopper/regimes/7/summary.csv"

ENTRY = {
    "id": "hopper.one",
    "family": "hopper",
    "title": "One",
    "kernels": ["hopper.by_size", "hopper.lockstep"],
    "sizes": [4096],
    "least": {"sustained": [1.0]},
    "because": "Why not.",
}


@pytest.fixture(scope="module")
def measured() -> dict[str, Measurements]:
    return {name: load(H200, name) for name in ("hopper", "ceilings")}


@pytest.fixture
def rows() -> pd.DataFrame:
    return read_table(TAKE, RegimeRow)


@pytest.fixture
def judged(monkeypatch, tmp_path, measured, rows):
    """Judges one goal, ENTRY with some keys changed, on `rows`."""

    def of(rows: pd.DataFrame = rows, **changed: object) -> list[Judged]:
        path = tmp_path / f"goals{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump({"goals": [ENTRY | changed]}, sort_keys=False))
        found = goals(path)
        monkeypatch.setattr(goals_of, "goals", lambda: found)
        return judge(measured, {"hopper": Regimes("hopper", rows)})

    return of


def row(rows: pd.DataFrame, kernel: str, regime: str = "sustained", n: int = 4096) -> pd.Series:
    return rows[(rows["kernel"] == kernel) & (rows["regime"] == regime) & (rows["n"] == n)].iloc[0]


def test_the_declared_goals_name_kernels_that_their_regimes_measure():
    recorded = yaml.safe_load((ROOT / "config/record.yaml").read_text())["regimes"]
    default = yaml.safe_load((ROOT / "config/config.yaml").read_text())["regimes"]
    for goal in goals():
        sizes, kernels = ({**default[key], **recorded[key]} for key in ("sizes", "kernels"))
        assert set(goal.sizes) <= set(sizes[goal.family]), goal.id
        assert set(goal.kernels) & set(kernels[goal.family]), goal.id
    assert len({goal.id for goal in goals()}) == len(goals()) >= 13


def test_the_best_kernel_counts_in_the_regime_that_the_goal_names(judged, rows):
    (each,) = judged()
    best = row(rows, "hopper.lockstep")
    assert (each.best.kernel, each.best.value) == ("hopper.lockstep", best["ratio"])
    assert (each.best.low, each.best.high, each.outcome) == (best["ratio_ci_low"], best["ratio_ci_high"], MET)
    assert each.best.key.endswith("/sustained") and "hopper.lockstep" in each.best.key
    burst = judged(least={"burst": [9.0]})
    assert burst[0].best.value == row(rows, "hopper.lockstep", "burst")["ratio"] and burst[0].outcome == MISSED


def test_a_goal_inside_the_interval_is_undecided(judged, rows):
    best = row(rows, "hopper.lockstep")
    for least, outcome in (
        (best["ratio_ci_low"], MET),
        (best["ratio"], UNDECIDED),
        (best["ratio_ci_high"], UNDECIDED),
        (best["ratio_ci_high"] + 1e-6, MISSED),
    ):
        assert judged(least={"sustained": [float(least)]})[0].outcome == outcome
    goal = judged()[0].goal
    for value, outcome in ((1.0, MET), (0.999, MISSED)):
        assert Judged(goal, "sustained", 4096, 1.0, Reached("k", value, None, None, "key")).outcome == outcome


def test_stale_rows_and_missing_ones_decide_nothing(judged, rows):
    assert judged(rows.assign(status="stale"))[0].outcome == NOT_MEASURED
    assert judged(sizes=[12288])[0].best is None
    assert judged(rows.iloc[:0])[0].outcome == NOT_MEASURED


def test_in_turn_the_sweep_decides(judged, measured):
    (each,) = judged(least={"in_turn": [1.0]}, kernels=["hopper.by_size"])
    sweep = measured["hopper"].summary
    cells = {"kernel": "hopper.by_size", "n": 4096, "cache": "warm", "toolkit": measured["hopper"].toolkit}
    (expected,) = sweep.loc[(sweep[list(cells)] == pd.Series(cells)).all(axis=1), "ratio"]
    assert each.best.value == expected and not each.best.key.endswith("sustained")


def test_one_kernel_over_another_goes_through_their_baseline(judged, rows):
    (each,) = judged(kernels=["hopper.by_size"], over="hopper.lockstep")
    above, below = (row(rows, name) for name in ("hopper.by_size", "hopper.lockstep"))
    assert each.best.value == pytest.approx(above["ratio"] / below["ratio"])
    assert each.best.low == pytest.approx(above["ratio_ci_low"] / below["ratio_ci_high"])
    assert each.best.low < each.best.value < each.best.high
    assert judged(rows[rows["kernel"] != "hopper.lockstep"], over="hopper.lockstep")[0].best is None


def test_a_share_is_of_the_measured_ceiling(judged, measured, rows):
    (each,) = judged(kernels=["hopper.by_size"], share_of="ceilings.mma_f16", least={"sustained": [0.5]})
    best, ceilings = row(rows, "hopper.by_size"), measured["ceilings"].summary
    ceiling = ceilings.loc[ceilings["kernel"] == "ceilings.mma_f16", "tflops"].max()
    assert each.best.value == pytest.approx(best["tflops"] / ceiling)
    assert each.best.low < each.best.value < each.best.high
    measured = {"hopper": measured["hopper"]}
    assert judge(measured, {"hopper": Regimes("hopper", rows)})[0].best is None, "no ceiling was measured"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kernels": ["hopper.none"]}, "hopper has no kernel hopper.none"),
        ({"over": "ladder.naive"}, "key 'over': hopper has no kernel ladder.naive"),
        ({"over": "cutile.persistent_bf16_tuned"}, "hopper has no kernel cutile.persistent_bf16_tuned"),
        ({"share_of": "hopper.by_size"}, "ceilings has no kernel hopper.by_size"),
        ({"sizes": [1024, 2048]}, "1 values for 2 sizes"),
        ({"least": {"asleep": [1.0]}}, "asleep"),
        ({"because": ""}, "because"),
    ],
)
def test_a_wrong_goal_is_refused_by_its_key(judged, changed, message):
    with pytest.raises(UserError, match=message):
        judged(**changed)


def test_two_goals_of_one_name_are_refused(tmp_path):
    (tmp_path / "goals.yaml").write_text(yaml.safe_dump({"goals": [ENTRY, ENTRY]}))
    with pytest.raises(UserError, match=r"there are two goals hopper\.one"):
        goals(tmp_path / "goals.yaml")


def test_the_report_counts_outcomes_and_lists_every_goal(judged):
    found = judged(sizes=[4096, 12288], least={"sustained": [1.0, 1.0], "burst": [9.0, 1.0]})
    shown = GoalsView.of(found)
    assert shown.counts == {MET: 1, MISSED: 1, NOT_MEASURED: 2}
    assert [(line.regime, list(line.cells)) for line in shown.lines] == [
        ("sustained", [4096, 12288]),
        ("burst", [4096, 12288]),
    ]
    assert shown.sizes == (4096, 12288)
    table = list(csv.DictReader(io.StringIO(goals_csv(found))))
    assert [each["outcome"] for each in table] == [each.outcome for each in found]
    assert table[0]["kernel"] == "hopper.lockstep" and table[1]["value"] == "" and table[0]["because"] == "Why not."


def test_every_family_of_goals_is_registered():
    assert {goal.family for goal in goals()} <= set(registry.family_names())
    assert isinstance(goals(paths.KERNELS_DIR / goals_of.FILE)[0], Goal)


def test_a_kernel_without_speed_is_nothing_to_compare_with(judged, rows):
    """The other kernel's ratio of 0 would divide by it."""
    still = rows.assign(ratio=rows["ratio"].where(rows["kernel"] != "hopper.by_size", 0.0))
    (each,) = judged(still, kernels=["hopper.lockstep"], over="hopper.by_size")
    assert each.best is None and each.outcome == NOT_MEASURED
    (each,) = judged(kernels=["hopper.lockstep"], over="hopper.by_size")
    assert each.best.value == row(rows, "hopper.lockstep")["ratio"] / row(rows, "hopper.by_size")["ratio"]

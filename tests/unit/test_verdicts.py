"""Verdicts follow from rows, by the stated rules, and from nothing else."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from synthetic import World, stand_in

from gemmrepro.judge import claims, evidence, judging, metrics
from gemmrepro.judge.evidence import NotMeasured, Value
from gemmrepro.judge.metrics.base import FigureMetric, OtherToolkitsOnly, Reading
from gemmrepro.judge.rules import (
    CONSISTENT,
    CONTRADICTORY,
    COVERED,
    NOT,
    NOT_COMPARABLE,
    NOT_MEASURED,
    NOT_TESTABLE,
    PARTLY,
    REPRODUCED,
)
from gemmrepro.measure import rows
from gemmrepro.registry import chips


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("plain"), sizes=(4096,), samples=False).write()


@pytest.fixture(scope="module")
def usual(plain) -> dict[str, dict]:
    """Verdicts on an ordinary run."""
    return judged(plain)


def judged(world: World) -> dict[str, dict]:
    result = judging.judge_all(world.measure, world.gates, world.build, ("ladder",))
    assert result["schema"] == judging.SCHEMA
    assert sum(sum(counts.values()) for counts in result["counts"].values()) == len(result["claims"])
    return {entry["id"]: entry for entry in result["claims"]}


def value(x: float, low: float | None = None, high: float | None = None) -> Value:
    return Value("kernel, 4096, warm, cuda12", x, x if low is None else low, x if high is None else high, "ratio", ())


@pytest.mark.parametrize(
    ("published", "present", "same"),
    [
        ("NVIDIA A6000", "NVIDIA RTX A6000", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("NVIDIA A6000", None, False),
        ("Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB", False),
        ("NVIDIA A100", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", False),
    ],
)
def test_same_gpu(published, present, same):
    assert chips.same_gpu(published, present) is same


def test_verdicts_follow_the_rows(usual):
    by = {name: entry["verdict"] for name, entry in usual.items()}
    # The synthetic levels: 0.0125 0.10 0.125 0.40 0.50 0.70 0.90 of the baseline.
    assert [by[f"ladder.ratio.L{level}"] for level in range(1, 8)] == [
        REPRODUCED,  # 0.0125 beside 0.013
        PARTLY,  # 0.100 beside 0.085: 18% above
        REPRODUCED,  # 0.125 beside 0.128
        REPRODUCED,  # 0.40 beside 0.365: 9.6% above
        NOT,  # 0.50 beside 0.687: off by more than 1.25 times
        PARTLY,  # 0.70 beside 0.784: 11% below
        REPRODUCED,  # 0.90 beside 0.937
    ]
    assert by["ladder.speedup.L2"] == PARTLY  # 8.0 beside 6.4: a gain, but a quarter more of it
    assert by["ladder.speedup.L4"] == REPRODUCED  # 3.2 beside 2.8
    assert by["ladder.speedup.L5"] == NOT  # 1.25 beside 1.9: less than half of the gain
    assert by["ladder.order"] == REPRODUCED
    # Shares of the FMA rate: of 60 TFLOP/s here, of 38.7 there. Level 5 has 25.0 of 60 beside 16.0 of 38.7.
    by_level = [by[f"ladder.throughput.L{level}"] for level in range(1, 8)]
    assert by_level == [PARTLY, PARTLY, PARTLY, PARTLY, REPRODUCED, PARTLY, PARTLY]
    assert by["ladder.bandwidth.L1"] == by["ladder.bandwidth.L2"] == NOT  # as shares of 3000 GB/s
    assert by["ladder.bandwidth.step"] == REPRODUCED  # 102 over 14.5 beside 110 over 15
    assert by["ladder.consistent.speedup.all"] == CONSISTENT
    assert by["ladder.consistent.loads.formula"] == by["ladder.consistent.loads.L3"] == CONTRADICTORY
    assert by["ladder.reason.L1"] == by["ladder.transaction.L2"] == NOT
    assert by["ladder.loads.L3"] == by["ladder.loads.L5"] == REPRODUCED


def test_entries_carry_their_evidence(usual):
    entry = usual["ladder.ratio.L4"]
    judged_on, other = entry["measured"]
    assert judged_on["judged"] and not other["judged"]
    assert entry["judged_on"] == "cuda12"
    assert judged_on["from"] == ["ladder.blocktile_1d/cuda12/fp32/4096x4096x4096/warm"]
    assert judged_on["ci_low"] < judged_on["value"] < judged_on["ci_high"]
    assert "0.400" in entry["explanation"] and "With CUDA 13: 0.408" in entry["explanation"]
    assert "Synthetic GPU" in entry["explanation"] and "NVIDIA A6000" in entry["explanation"]
    assert entry["command"].endswith("results/verdicts.json")
    absolute = usual["ladder.throughput.L7"]["measured"][0]
    assert (absolute["unit"], absolute["value"]) == ("GFLOP/s", pytest.approx(45000, rel=0.05))


def test_stale_rows_support_nothing(tmp_path):
    found = judged(World(tmp_path, sizes=(4096,), samples=False, stale=("ladder.smem",)).write())
    for name in ("ladder.ratio.L3", "ladder.speedup.L3", "ladder.speedup.L4", "ladder.order"):
        assert found[name]["verdict"] == NOT_MEASURED, name
        assert "stale" in found[name]["explanation"]
        assert not [each for each in found[name]["measured"] if "ladder.smem" in "".join(each["from"])]
    assert found["ladder.ratio.L4"]["verdict"] == REPRODUCED
    assert found["ladder.throughput.L3"]["verdict"] == NOT_MEASURED
    # The count of loads is then read off today's machine code: 32 LDG to 512 FFMA.
    loads = found["ladder.loads.L3"]
    assert loads["verdict"] == REPRODUCED
    assert "hot_loop" in "".join(loads["measured"][0]["from"])


@pytest.mark.parametrize(
    ("options", "claim", "verdict", "words"),
    [
        ({"failed_gates": ("ladder.warptile",)}, "ladder.ratio.L7", NOT_MEASURED, "failed its gate"),
        ({"numeric": "not run"}, "ladder.ratio.L3", REPRODUCED, "gate has not passed for Shared memory (L3) (not run)"),
    ],
)
def test_a_failed_gate_supports_nothing_and_an_open_one_is_said(tmp_path, options, claim, verdict, words):
    entry = judged(World(tmp_path, sizes=(4096,), samples=False, **options).write())[claim]
    assert (entry["verdict"], words in entry["explanation"]) == (verdict, True)


def test_without_measurements_nothing_is_claimed(tmp_path):
    result = World(tmp_path, ladder=False, ceilings=False).write()
    found = judged(result)
    counted = ("count", "consistent", "covered", "none")
    kinds = {entry["verdict"] for name, entry in found.items() if entry["way"] not in counted and "loads" not in name}
    assert kinds == {NOT_MEASURED}
    whole = judging.judge_all(tmp_path / "nowhere", tmp_path / "nowhere", tmp_path / "nowhere", ("ladder",))
    assert (whole["gpu"], whole["source"]) == (None, "none")
    for counts in whole["counts"].values():
        assert counts[PARTLY] == 0
    ways = {entry["way"] for entry in whole["claims"] if entry["verdict"] in (REPRODUCED, NOT)}
    assert ways == {"count"}, "what is calculated from the article alone"


def test_the_first_toolkit_with_rows_counts_unless_any_does():
    class OfCuda13(FigureMetric):
        def measure(self, claim, evidence, toolkit):
            if toolkit == "cuda12":
                raise NotMeasured("cuda12 has no such row")
            return Reading(toolkit, (value(1.0),))

    class OfAny(OfCuda13):
        any_toolkit = True

    claim = SimpleNamespace(toolkits=("cuda12", "cuda13"))
    both = SimpleNamespace(toolkits=lambda chosen: chosen)
    assert OfAny("word").read(claim, both).judged.toolkit == "cuda13"
    with pytest.raises(OtherToolkitsOnly, match="cuda12 has no such row") as refused:
        OfCuda13("word").read(claim, both)
    assert [reading.toolkit for reading in refused.value.others] == ["cuda13"]


def test_a_change_of_clock_cancels_in_a_quotient_through_the_baseline():
    rest = {"kernel": "x", "toolkit": "cuda13", "dtype": "bf16", "m": 1, "n": 1, "k": 1, "cache": "warm"}
    rest["baseline"] = "cublas.gemm"
    slow = pd.Series({"ratio": 0.5, "ratio_ci_low": 0.49, "ratio_ci_high": 0.51, **rest})
    fast = pd.Series({"ratio": 0.6, "ratio_ci_low": 0.59, "ratio_ci_high": 0.61, **rest})
    found = metrics.rows.speedup_through_baseline(fast, slow, "x")
    assert (found.value, found.ci_low, found.ci_high) == pytest.approx((1.2, 0.59 / 0.51, 0.61 / 0.49))
    with pytest.raises(evidence.NotMeasured, match="different baselines"):
        metrics.rows.speedup_through_baseline(fast, slow.replace("cublas.gemm", "cuda.memcpy"), "x")


def without_figure(tmp_path, **compute) -> claims.Claim:
    """A claim on the stand-in hopper family that the article gives no figure for."""
    kind = "as is" if compute["metric"] in ("opcodes", "lines") else "none"
    rest = {"where": "level 8", "statement": "Level 8.", "transfer": {"kind": kind, "why": "There is no figure."}}
    rest |= {"id": "hopper.x", "family": "hopper", "article": "ladder", "published": (), "tolerance": None}
    rest |= {"within_factor": 2.0, "same_side": False, "toolkits": ("cuda12", "cuda13"), "cache": "warm"}
    return claims.Claim(compute=compute, **rest)


def judged_one(world: World, claim: claims.Claim) -> dict:
    result = judging.judge_all(world.measure, world.gates, world.build, ("hopper",), lambda families: [claim])
    return result["claims"][0]


@pytest.mark.parametrize(
    ("compute", "verdict", "word"),
    [
        ({"pattern": r"HGMMA\.64x64x16\..*", "least": 4}, REPRODUCED, "stands 4 times"),
        ({"pattern": "HGMMA"}, NOT, "at least 1"),  # the whole opcode must match
        ({"pattern": r"LDG(\..*)?", "least": 0, "most": 0}, REPRODUCED, "has an instruction ldg, as it should be"),
        ({"pattern": r"HGMMA\..*", "least": 1, "most": 2}, NOT, "1 to 2"),
    ],
)
def test_machine_code_is_judged_by_its_opcodes(tmp_path, monkeypatch, compute, verdict, word):
    stand_in(monkeypatch, tmp_path)
    code = {"HGMMA.64x64x16.F32.BF16": 4, "UTMALDG.2D": 2, "SYNCS.EXCH.64": 1}
    world = World(tmp_path, families=("hopper",), instructions=code, ladder=False, sizes=(4096,)).write()
    entry = judged_one(world, without_figure(tmp_path, metric="opcodes", kernel="hopper.wgmma", **compute))
    assert entry["verdict"] == verdict
    assert word in entry["explanation"].lower()
    assert entry["published"] == [] and entry["measured"][0]["unit"] == "instructions"
    assert entry["measured"][0]["from"][0].endswith(".instructions")


def test_what_the_gpu_cannot_run_is_not_measured_for_what_it_needs_and_its_machine_code_counts(tmp_path, usual):
    world = World(tmp_path, sizes=(4096,), samples=False).write()
    before, run = usual, world.measure / "ladder/run.json"
    run.write_text(run.read_text().replace('"compute_capability": "9.0"', '"compute_capability": "7.5"'))
    after = judged(world)
    by_count = {name for name, entry in before.items() if entry["way"] == "count"}
    assert by_count and all(after[name]["verdict"] == before[name]["verdict"] for name in by_count)
    by_rows = [
        after[name]["explanation"]
        for name, entry in before.items()
        if entry["verdict"] != COVERED and any(one["from"][0].startswith("ladder.") for one in entry["measured"])
    ]
    assert by_rows and all("which needs compute capability 8.0" in text for text in by_rows)


def test_without_a_figure_the_measured_ratio_stands_beside_the_reason(tmp_path, monkeypatch):
    stand_in(monkeypatch, tmp_path)
    world = World(tmp_path, families=("hopper",), sizes=(4096,)).write()
    entry = judged_one(world, without_figure(tmp_path, metric="ratio", kernel="hopper.wgmma", n=4096))
    assert entry["verdict"] == NOT_TESTABLE
    assert "0.450" in entry["explanation"] and entry["explanation"].endswith("There is no figure.")
    assert entry["measured"][0]["from"] == ["hopper.wgmma/cuda12/bf16/4096x4096x4096/warm"]


def test_a_level_is_judged_with_the_articles_constants_and_the_tuned_value_stands_beside(tmp_path, monkeypatch):
    of_rows = ("tflops", "ratio", "speedup")  # what else is claimed, the stand-in family has no kernels for
    real = [claim for claim in claims.load(("ladder",)) if claim.compute["metric"] in of_rows]
    stand_in(monkeypatch, tmp_path)
    world = World(tmp_path, families=("ladder",), whole=True, sizes=(4096,)).write()
    result = judging.judge_all(world.measure, world.gates, world.build, ("ladder",), lambda families: real)
    found = {entry["id"]: entry for entry in result["claims"]}
    entry = found["ladder.ratio.L7"]
    assert entry["measured"][0]["value"] == pytest.approx(0.9) and entry["verdict"] == REPRODUCED
    assert "Warptile tuned (L7 tuned)), which the verdict leaves out: 0.990" in entry["explanation"]
    assert all("tuned" not in "".join(each["from"]) for each in entry["measured"])
    assert "tuned" not in found["ladder.ratio.L3"]["explanation"]
    (cold,) = [replace(claim, cache="cold") for claim in real if claim.id == "ladder.ratio.L7"]
    result = judging.judge_all(world.measure, world.gates, world.build, ("ladder",), lambda families: [cold])
    assert result["claims"][0]["measured"] and "tuned" not in result["claims"][0]["explanation"], (
        "tuned with a warm one"
    )


def in_regime(table: pd.DataFrame, regime: str, faster: float, kernels: tuple[str, ...]) -> pd.DataFrame:
    """The warm rows of some kernels as they might be in a regime, `faster` times as fast."""
    found = table[table["kernel"].isin(kernels) & (table["cache"] == "warm")].copy()
    for column in ("ratio", "ratio_ci_low", "ratio_ci_high", "tflops"):
        found[column] *= faster
    return found.assign(regime=regime)


@pytest.mark.parametrize(
    ("of_article", "sustained", "judged_in", "beside"),
    [
        ("sustained", "ladder.warptile", "sustained", ["in_turn", "burst"]),
        # An article that does not say, and one whose regime was not measured, are judged in turn.
        ("not stated", "ladder.warptile", "in_turn", ["sustained", "burst"]),
        ("profiled", "ladder.warptile", "in_turn", ["sustained", "burst"]),
        # A regime without its rows hides none that come after it.
        ("burst", "ladder.naive", "burst", ["in_turn"]),
    ],
)
def test_a_claim_is_judged_in_its_articles_regime_where_that_was_measured(
    plain, usual, of_article, sustained, judged_in, beside
):
    measured, kernel = rows.load(plain.measure, "ladder"), "ladder.warptile"
    (claim,) = [each for each in claims.load(("ladder",)) if each.id == "ladder.ratio.L7"]
    regimes = {
        "sustained": in_regime(measured.summary, "sustained", 1.1, (sustained,)),
        "burst": in_regime(measured.summary, "burst", 0.5, (kernel,)),
    }
    found = evidence.Evidence(measured, evidence.load_gates(plain.gates, [kernel]), plain.build, regimes=regimes)
    entry, in_turn = judging.judge(replace(claim, regime=of_article), found), usual["ladder.ratio.L7"]
    assert (entry["regime"]["article"], entry["regime"]["judged"]) == (of_article, judged_in)
    assert list(entry["regime"]["beside"]) == beside
    factor = {"sustained": 1.1, "in_turn": 1.0, "burst": 0.5}
    shown = entry["measured"][0]
    assert shown["value"] == pytest.approx(factor[judged_in] * in_turn["measured"][0]["value"])
    assert shown["from"][0].endswith("/warm" if judged_in == "in_turn" else f"/warm/{judged_in}")
    for regime, other in entry["regime"]["beside"].items():
        assert other["value"] == pytest.approx(factor[regime] * in_turn["measured"][0]["value"])
    words = {"in_turn": "in turn", "sustained": "sustained", "burst": "in bursts"}
    assert f"Judged {words[judged_in]}; {words[beside[0]]} " in entry["explanation"]
    if judged_in == "in_turn":
        assert entry["verdict"] == in_turn["verdict"] and "sustained" not in in_turn["explanation"]


@pytest.mark.parametrize(
    ("ran", "opcode", "verdict"),
    [
        ("Memset (Device) + nvjet_sm90_hss_128x128_64x6_2x1_v_bz_NNT", "HMMA.16816.F32", NOT_COMPARABLE),
        ("sm90_xmma_gemm_f16f16_warpgroupsize1x1x1_execute_kernel__5x_cublas", "HMMA.16816.F32", NOT_COMPARABLE),
        ("nvjet_sm90_hss_128x128_64x6_2x1_v_bz_NNT", "HGMMA.64x64x16.F32", NOT),  # the kernel has the instruction, too
        ("", "HMMA.16816.F32", NOT),  # what ran is not recorded
    ],
)
def test_a_ratio_to_an_instruction_that_the_articles_gpu_lacks_is_not_comparable(tmp_path, ran, opcode, verdict):
    """Decided by the recorded name of the library's kernel and by the machine code of the article's."""
    world = World(tmp_path, families=("ada", "ceilings"), sizes=(4096,), instructions={opcode: 8, "EXIT": 1}).write()
    path = world.measure / "ada" / "run.json"
    run = json.loads(path.read_text())
    path.write_text(json.dumps({**run, "baseline_kernels": {"cublas.gemm fp16 4096": ran}}))
    of = [claim for claim in claims.load(("ada",)) if claim.id == "ada.ratio.3_1"]
    folders = (world.measure, world.gates, world.build)
    (entry,) = judging.judge_all(*folders, ("ada",), lambda families: of)["claims"]
    assert entry["verdict"] == verdict, entry["explanation"]
    if verdict == NOT_COMPARABLE:
        assert "cuBLAS multiplies with wgmma here, which the RTX 4090 lacks" in entry["explanation"]
        said = (
            r"is (\S+) of the published one: (\S+) by the instruction.*?, (\S+) by the kernel.*?, (\S+) by the library"
        )
        parts = re.search(said, entry["explanation"])
        whole, *factors = map(float, parts.groups())
        assert math.prod(factors) == pytest.approx(whole, rel=0.02) and factors[0] == pytest.approx(600 / 850, rel=0.01)

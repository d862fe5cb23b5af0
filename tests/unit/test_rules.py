"""The rules that turn values into verdicts at their edges, and the arithmetic and rates that they rest on."""

from dataclasses import replace
from functools import partial

import pytest

from gemmrepro.judge import rules
from gemmrepro.judge.evidence import Value
from gemmrepro.judge.metrics import experiment
from gemmrepro.judge.metrics.experiment import PointValue
from gemmrepro.judge.rules import NOT, PARTLY, REPRODUCED, UNDECIDED
from gemmrepro.registry import chips


def value(middle: float, low: float | None = None, high: float | None = None, label: str = "k, 4096, cuda12") -> Value:
    return Value(label, middle, middle if low is None else low, middle if high is None else high, "ratio", ())


def said(verdict: rules.Verdict) -> str:
    return f"{verdict.kind}: {verdict.reason}"


@pytest.mark.parametrize(
    ("one", "published", "tolerance", "factor", "says"),
    [
        (value(3), 3, 0, 2, "reproduced: exactly so"),
        (value(3, 2.9, 3), 3, 0, 2, "not reproduced: not exactly so"),
        (value(1.1, 1.1, 1.1), 1.0, 0.1, 1, "reproduced: inside the tolerance of ±10%"),
        (value(1.2, 1.1, 1.3), 1.0, 0.1, 2, "reproduced: its interval reaches the tolerance of ±10%"),
        (value(1.2, 1.1, 1.3), 1.0, 0.1, 1, "undecided: its interval crosses the edge of the tolerance of ±10%"),
        (value(1.0, 0.8, 1.2), 1.0, 0.1, 2, "partly: its interval is wider than the tolerance of ±10%, so it decides"),
        (value(2.0), 4.0, 0.1, 2, "partly: outside the tolerance of ±10%, but within a factor of 2"),
        (value(8.0), 4.0, 0.1, 2, "but within a factor of 2"),
        (value(8.1), 4.0, 0.1, 2, "not reproduced: outside the tolerance of ±10%, and off by more than 2 times"),
        (value(-1.0), -1.0, 0.1, 2, "reproduced: inside"),
    ],
)
def test_a_value_against_its_published_one(one, published, tolerance, factor, says):
    assert says in said(rules.judge_value(one, published, tolerance, factor))


@pytest.mark.parametrize(
    ("low", "high", "published", "says"),
    [
        (1.001, 1.002, 1.05, "reproduced: inside the tolerance"),  # a gain, and as near as the tolerance wants
        (0.99, 1.04, 1.05, "undecided: the interval holds 1, so it may be above 1 or not"),
        (0.97, 0.99, 1.05, "not reproduced: not above 1"),  # within the tolerance, but no gain
        (0.999, 1.001, 1.5, "not reproduced: the interval holds 1, and nothing in it is within a factor of 2"),
        (1.1, 1.2, 1.5, "not reproduced: outside the tolerance of ±10%, and less than 1/2 of the gain"),
        (1.26, 1.3, 1.5, "partly: outside the tolerance of ±10%, but above 1 as published and within a factor of 2"),
        (0.98, 1.01, 0.95, "undecided: the interval holds 1, so it may be below 1 or not"),
        (1.01, 1.02, 0.95, "not reproduced: not below 1"),
    ],
)
def test_a_gain_or_a_loss_lies_on_its_side_of_1(low, high, published, says):
    assert says in said(rules.judge_value(value((low + high) / 2, low, high), published, 0.1, same_side=True))


@pytest.mark.parametrize(
    ("low", "high", "bounds", "kind"),
    [
        (1.01, 1.2, {}, REPRODUCED),
        (1.0, 1.2, {}, UNDECIDED),
        (0.8, 1.0, {}, NOT),
        (1.5, 1.9, {"least": 1.5}, PARTLY),
        (1.6, 2.1, {"least": 1.5, "most": 2.0}, PARTLY),
        (1.0, 1.9, {"most": 2.0}, UNDECIDED),
        (0.9, 1.5, {"least": 1.5}, NOT),
    ],
)
def test_a_gain(low, high, bounds, kind):
    assert rules.judge_faster(value((low + high) / 2, low, high), **bounds).kind == kind


def test_an_order_names_the_pairs_that_break_it():
    a, b, c = (value(x, x - 0.1, x + 0.1, f"{name}, 4096") for name, x in (("a", 1), ("b", 2), ("c", 3)))
    assert said(rules.judge_order([a, b], [1, 2])) == (
        "reproduced: both are in the published order with intervals apart"
    )
    assert "all 2 neighbouring pairs are" in rules.judge_order([a, b, c], [1, 2, 3]).reason
    wrong = rules.judge_order([a, c, b], [1, 2, 3])
    assert said(wrong) == "not reproduced: 1 of 2 neighbouring pairs are in the published order; not so c and b"
    touching = value(1.2, 1.1, 1.3, "d, 4096")
    assert said(rules.judge_order([a, touching], [1, 2])) == (
        "undecided: 0 of 1 neighbouring pairs are in the published order; intervals overlap of a and d"
    ), "intervals that touch are not apart"
    assert rules.judge_order([b, a], [1, 2]).kind == NOT
    kinds = [rules.of_many(*counts) for counts in ((3, 0, 3), (2, 0, 3), (1, 1, 3), (1, 2, 3), (0, 0, 3), (1, 0, 2))]
    assert kinds == [REPRODUCED, PARTLY, NOT, UNDECIDED, NOT, NOT]


def point(middle: float, low: float, high: float, **more) -> PointValue:
    return PointValue("k, cuda12", middle, low, high, "u", (), point="k 64", **more)


@pytest.mark.parametrize(
    ("one", "bounds", "inside"),
    [
        (point(2, 1.9, 2.1), {"above": 1.9}, False),
        (point(2, 1.9, 2.1), {"most": 2.1}, True),
        (point(2, 1.9, 2.1, published=2.1), {"near": 0.05}, False),
        (point(2, 1.0, 4.0, published=2.0), {"factor": 2}, True),
        (point(2, 0.9, 4.0, published=2.0), {"factor": 2}, False),
        (point(2, 1.9, 2.1, published=9.0, expected=2.0), {"near": 0.05}, True),
        (point(2, 1.9, 2.1, published=2.0, expected=9.0), {"near": 0.05}, False),
        (point(2, 2.0, 2.0, published=2.0), {"near": 0}, True),
    ],
)
def test_whether_a_point_lies_within_its_bounds(one, bounds, inside):
    assert bool(experiment.inside(one, bounds)) == inside


def test_points_are_described_with_their_published_values_or_as_a_range():
    near = {"value": "ms", "kernel": "k", "by": ["n"], "near": 0.1}
    said = partial(experiment.describe, meaning="time", machine="a GPU")
    pair = [point(2, 2, 2, published=2.0), point(4, 4, 4, published=8.0)]
    assert said(pair, 0, near) == (
        "Time, for k on a GPU: within 10 % of the published value at 1 of 2 points, smaller than published at every "
        "point that misses: "
        "2.00 (published 2.00) at k 64; 4.00 (published 8.00) at k 64"
    )
    carried = [point(2, 2, 2, published=4.0, expected=2.0)]
    assert "of the expected value at 1 of 1 points: 2.00 (published 4.00, expected here 2.00)" in said(carried, 0, near)
    long = [replace(value, unit="us") for value in (point(9, 9, 9, published=8.0), point(9, 9, 9, published=1.0))]
    assert "at 0 of 2 points, longer than published at every point that misses: " in said(long, 0, near)
    many = [point(float(x), x, x) for x in range(1, 8)]
    text = said(many, 1, {"value": "ms", "kernel": "k", "most": 1})
    assert "at most 1 at 1 of 7 points, from 1.00 (k 64) to 7.00 (k 64); not so at k 64: 2.00" in text
    assert text.count("k 64: ") == 4 and text.endswith(" and 2 more; at 1 more neither errs at all")


def chip(**figures: tuple[float, str]) -> chips.Chip:
    return chips.Chip("C", 90, (), figures)


def test_cycles_and_shared_memory_follow_from_sms_and_clock():
    whole = chip(sms=(100, "sheet"), clock=(1500, "sheet"), fp32=(30.0, "paper"))
    assert whole.rate("fp32") == chips.Rate("fp32", 30.0, "TFLOP/s", "paper")
    assert whole.rate("cycles") == chips.Rate("cycles", 150.0, "Gcycle/s", "sheet")
    assert whole.rate("shared") == chips.Rate("shared", 19_200.0, "GB/s", "sheet")
    assert whole.rate("dram") is None
    for part in (chip(sms=(100, "s")), chip(clock=(1500, "s")), chip()):
        assert part.rate("cycles") is None and part.rate("shared") is None


def test_a_peak_is_computed_from_facts_of_the_gpu_or_not_at_all():
    gpu = {"compute_capability": "9.0", "clock_max_mhz": 2000, "sm_count": 100}
    peak = chips.peak(gpu, "fp32")
    assert peak and peak.value == pytest.approx(100 * 256 * 2000 / 1e6)
    assert peak.source.startswith("100 SMs at 256 operations")
    assert not any(chips.peak(each, "fp32") for each in ({}, *({**gpu, missing: None} for missing in gpu)))

"""Two runs compared row by row."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from recordings import GPU, Recorded, drawn, pair, reword, write

from gemmrepro import __main__ as command
from gemmrepro.errors import UserError
from gemmrepro.measure.recording import POINT, SAMPLES
from gemmrepro.recordings import compare
from gemmrepro.recordings.compare import (
    FASTER,
    SAME,
    SLOWER,
    UNCLEAR,
    Levels,
    Prior,
    Rounds,
    Side,
    compared,
    slopes,
    verdict,
)
from gemmrepro.stats import Interval


@pytest.mark.parametrize(
    ("time", "cycles", "expected"),
    [
        ((1.0, 0.99, 1.01), None, SAME),
        ((1.0, 0.97, 1.03), None, UNCLEAR),
        ((1.015, 0.999, 1.03), None, UNCLEAR),
        ((1.05, 1.03, 1.07), None, SLOWER),
        ((0.95, 0.93, 0.97), None, FASTER),
        ((1.05, 1.03, 1.07), (0.99, 0.99, 0.99), UNCLEAR),
        ((1.05, 1.03, 1.07), (1.02, 1.0, 1.04), UNCLEAR),
        ((1.05, 1.03, 1.07), (1.06, 1.04, 1.08), SLOWER),
    ],
)
def test_a_verdict_needs_time_and_cycles(time, cycles, expected):
    assert verdict(Interval(*time), None if cycles is None else Interval(*cycles)) == expected


def points(factor=1.0, clock=1980.0):
    """The ladder's first kernel at two sizes, at 512 times as slow by `factor`, and the baselines."""
    cells = {"clock_mhz": clock}
    slow = [[factor * time for time in times] for times in drawn(900, 5)]
    return [
        *(replace(point, cells=cells) for point in pair()),
        Recorded("ladder.naive", 512, slow, drawn(20, 6), cells=cells),
        Recorded("cublas.sgemm", 512, drawn(20, 7), drawn(20, 8), "cuBLAS 13.1.0", "library", cells=cells),
    ]


@pytest.fixture
def runs(tmp_path):
    write(tmp_path / "a" / "ladder", points())
    write(tmp_path / "b" / "ladder", points(1.05))
    return tmp_path


def run(folder, *more):
    return command.run(["compare", str(folder / "a"), str(folder / "b"), *more])


def test_a_slower_row_is_named_and_sets_the_exit_code(runs, capsys):
    assert run(runs, "--csv", str(runs / "c.csv"), "--figure", str(runs / "c.svg")) == compare.SLOWER_CODE == 3
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 2 and told[0].startswith("SLOWER  ladder.naive cuda13 fp32 512 512 512 warm")
    assert "by baseline" in told[0] and told[1] == "ladder: 3 SAME, 0 FASTER, 1 SLOWER, 0 UNCLEAR"
    with (runs / "c.csv").open() as file:
        rows = {row["point"].split()[2:4][1]: row for row in csv.DictReader(file) if row["point"].startswith("ladder")}
    assert rows["512"]["verdict"] == SLOWER and float(rows["512"]["time"]) == pytest.approx(1.05, rel=1e-3)
    assert rows["256"]["verdict"] == SAME and (runs / "c.svg").read_text().startswith("<?xml")


def say(runs, side, **changes):
    """Change a side's run.json."""
    path = runs / side / "ladder" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_two_cards_are_named_and_allowed_for(runs, capsys):
    for side, card in (("a", "one"), ("b", "other")):
        say(runs, side, gpu={**GPU, "card": card})
    assert run(runs) == compare.SLOWER_CODE, "5 % are more than cards differ by"
    told = "on two cards, whose times may differ by 0.3 % (standard deviation)"
    assert capsys.readouterr().out.splitlines()[-1].endswith(told)
    assert command.run(["compare", str(runs / "a"), str(runs / "a")]) == 0 and "cards" not in capsys.readouterr().out


def test_a_lower_clock_is_no_slower_library(runs, capsys):
    """Every time is 10 % longer at a clock that is 10 % lower: ratios and cycles are what they were.

    How a kernel's time follows its baseline's over 10 %, rounds of a run at one clock do not say.
    """
    longer = lambda rounds: [[1.1 * time for time in times] for times in rounds]  # noqa: E731
    lower = [replace(p, times=longer(p.times), baseline=longer(p.baseline)) for p in points(clock=1800.0)]
    write(runs / "b" / "ladder", lower)
    assert run(runs) == 0
    assert capsys.readouterr().out.startswith("ladder: 0 SAME, 0 FASTER, 0 SLOWER, 4 UNCLEAR; unclear rows would show ")


def test_two_gpus_are_compared_by_time(runs, capsys):
    say(runs, "b", gpu={**GPU, "name": "Another GPU"})
    assert run(runs, "--all") == 3
    told = capsys.readouterr().out
    assert "by time" in told and "by baseline" not in told and "cycles" not in told


def test_toolkits_of_one_run_are_compared(runs, capsys):
    other = [replace(point, toolkit="cuda12") for point in points(0.9) if point.toolkit != "library"]
    write(runs / "b" / "ladder", [*points(), *other])
    assert command.run(["compare", str(runs / "b"), str(runs / "b"), "--toolkits", "cuda13,cuda12"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ladder: 1 SAME, 1 FASTER, 0 SLOWER, 0 UNCLEAR"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nowhere", "nowhere"), "nowhere holds no run"),
        (("--", "-v:x", "x"), "'-v:x' is neither a folder nor COMMIT:FOLDER"),
        (("a", "a", "--toolkits", "cuda12"), "is not of the form before,after"),
        (("a", "a", "--families", "crt"), "do not both have crt; both have ladder"),
        (("a", "a", "--toolkits", "cuda99,cuda99"), "share no row"),
    ],
)
def test_what_cannot_be_compared_is_said(runs, monkeypatch, arguments, complaint):
    monkeypatch.chdir(runs)
    with pytest.raises(UserError, match=complaint):
        command.run(["compare", *arguments])


def steady(rng, level=0.0, scatter=0.001, rounds=3):
    """The rounds of a row whose times are twice as long as those of its baseline, which stands still."""
    return Rounds(list(math.log(2.0) + level + scatter * rng.standard_normal(rounds)), [0.0] * rounds)


def side(rounds, card="", **cells):
    """A run of rows by their rounds, each compared with a library."""
    alike = {"toolkit": "cuda13", "build_key": "k", "baseline": "cublas.sgemm", "clock_mhz": "1980", **cells}
    rows = [
        {**dict.fromkeys(POINT, ""), "kernel": name, **alike, "median_us": repr(math.exp(float(np.mean(each.times))))}
        for name, each in rounds.items()
    ]
    return Side(rows, {tuple(row[name] for name in POINT): rounds[row["kernel"]] for row in rows}, card=card)


def test_rounds_find_a_slowdown_that_intervals_of_three_rounds_do_not():
    """The intervals of three rounds that scatter by 0.3 % are 1.5 % wide, and overlap."""
    before, after = (
        {str(i): steady(np.random.default_rng(10 * i + late), 0.02 * late, 0.003) for i in range(40)} for late in (0, 1)
    )
    changes = compared(side(before), side(after))
    found = [change.verdict for change in changes]
    assert found.count(SLOWER) >= 36 and FASTER not in found
    assert all(change.by == "baseline" and 0.005 < change.least < 0.03 for change in changes)


def test_what_two_cards_differ_by_is_no_change():
    """Rows of steady kernels that are 0.5 % apart: found on one card, and the same on two; 2 % are found on both."""
    before, other, slower = (
        {str(i): steady(np.random.default_rng(10 * i + late), level, 0.0005) for i in range(40)}
        for late, level in enumerate((0.0, 0.005, 0.02))
    )
    on_one = compared(side(before), side(other))
    on_two = compared(side(before, "one"), side(other, "two"))
    assert {change.verdict for change in on_one} == {SLOWER} and {change.verdict for change in on_two} == {SAME}
    found = compared(side(before, "one"), side(slower, "two"))
    assert {change.verdict for change in found} == {SLOWER}


def test_a_ratio_that_the_kernels_own_cycles_contradict_is_the_baselines():
    before = {str(i): steady(np.random.default_rng(i)) for i in range(20)}
    faster = {name: Rounds(each.times, [value - 0.2 for value in each.baseline]) for name, each in before.items()}
    assert {change.verdict for change in compared(side(before), side(faster))} == {UNCLEAR}
    longer = {name: Rounds([time + 0.2 for time in each.times], each.baseline) for name, each in before.items()}
    assert {change.verdict for change in compared(side(before), side(longer))} == {SLOWER}


def test_variances_of_many_rows_give_back_what_they_were_drawn_from():
    """Variances from a scaled inverse chi-square distribution with 6 degrees of freedom around 4."""
    rng = np.random.default_rng(5)
    variances = 4.0 * 6 / rng.chisquare(6, 20000)
    estimated = variances * rng.chisquare(4, 20000) / 4
    prior = Prior.of([(value, 4.0) for value in estimated])
    assert prior.freedom == pytest.approx(6, rel=0.1) and prior.variance == pytest.approx(4, rel=0.05)
    alike = Prior.of([(value, 4.0) for value in 9.0 * rng.chisquare(4, 4000) / 4])
    assert alike.freedom > 60 and alike.variance == pytest.approx(9, rel=0.05)
    assert Prior.of([(1.0, 4.0)] * 3) == Prior()
    assert compare.shift(Levels(([1.0], [2.0]), 0.0), Prior()) is None, "single rounds do not say how much they scatter"


def drifting(rng, slope, rounds=3, level=0.0):
    """The rounds of a row whose baseline drifts by 2 %, with it `slope` times as much, and by 0.2 % by itself."""
    drift = 0.02 * rng.standard_normal(rounds)
    return Rounds(list(level + slope * drift + 0.002 * rng.standard_normal(rounds)), list(drift))


def test_what_drifts_with_the_baseline_but_less_or_more_hides_no_slowdown():
    """Of 40 kernels that follow their baseline 1.5 times; ratios of rounds scatter more than by the 2 % looked for."""
    rng = np.random.default_rng(7)
    slopes_of = {str(i): 1.5 + 0.1 * rng.standard_normal() for i in range(40)}
    first, second, slower = (
        {name: drifting(rng, slope, level=level) for name, slope in slopes_of.items()}
        for level in (0, 0, math.log(1.02))
    )
    same, found = (
        [change.verdict for change in compared(side(first, clock_mhz=""), side(later, clock_mhz=""))]
        for later in (second, slower)
    )
    assert same.count(SLOWER) + same.count(FASTER) <= 2 and found.count(SLOWER) >= 38 and FASTER not in found


def test_slopes_follow_from_rounds_within_a_run_alone():
    rng = np.random.default_rng(8)

    def row(slope, jump):
        drift = 0.03 * rng.standard_normal((2, 5))
        times = slope * drift + 0.001 * rng.standard_normal((2, 5))
        return (times[0], times[1] + jump), (drift[0], drift[1] + jump)

    values, variances, spent = zip(*slopes([row(slope, jump=0.5) for slope in (0.6, 0.7, 0.8, 0.9)]), strict=True)
    assert values == pytest.approx([0.6, 0.7, 0.8, 0.9], abs=0.05)
    assert min(spent) > 0.8 and max(spent) <= 1 and max(variances) < 0.05
    value, _, spent = slopes([(([0.0], [0.1]), ([0.0], [0.1]))])[0]
    assert (value, spent) == (1.0, 0.0), "single rounds: the ratio"


def test_another_algorithm_of_the_library_leaves_the_time_to_decide(runs, capsys):
    for side, algorithm in (("a", "cublasGemmEx"), ("b", "cublasLt algorithm 66")):
        say(runs, side, baseline_algorithms={"cublas.sgemm 512": algorithm})
    assert run(runs, "--all") == compare.SLOWER_CODE
    by = {line.split()[4]: line for line in capsys.readouterr().out.splitlines() if "ladder.naive" in line}
    assert "by time" in by["512"] and "by baseline" in by["256"]


@pytest.mark.parametrize(("side", "emptied", "by"), [("a", False, "ratio"), ("b", True, "time")])
def test_without_samples_of_the_baseline_rows_decide_and_without_ratio_the_time(runs, capsys, side, emptied, by):
    """Both rows name their baseline all the same, so that they are not compared as rows without one."""
    folder = runs / side / "ladder"
    pd.read_parquet(folder / SAMPLES).assign(baseline_us=np.nan).to_parquet(folder / SAMPLES, index=False)
    if emptied:
        reword(folder, 2, ratio="", ratio_ci_low="", ratio_ci_high="")  # ladder.naive at 512
    assert run(runs, "--all") == compare.SLOWER_CODE
    told = {line.split()[1] + line.split()[4]: line for line in capsys.readouterr().out.splitlines() if "time" in line}
    slower = told["ladder.naive512"]
    assert slower.startswith(SLOWER) and f"by {by}" in slower and "would find" not in slower
    assert "by time" in told["cublas.sgemm512"], "a library is compared by the time of its rounds"

"""Two runs compared row by row."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from campaigns import comparing
from recordings import Recorded, drawn, pair, write

from gemmrepro.errors import UserError
from gemmrepro.host import compare
from gemmrepro.measure.checks.samples import PointSamples
from gemmrepro.measure.comparison import FASTER, SAME, SLOWER, UNCLEAR, verdict
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
    return compare.main([str(folder / "a"), str(folder / "b"), *more])


def test_a_slower_row_is_named_and_sets_the_exit_code(runs, capsys):
    assert run(runs, "--csv", str(runs / "c.csv"), "--figure", str(runs / "c.svg")) == compare.SLOWER_CODE == 3
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 2 and told[0].startswith("SLOWER  ladder.naive cuda13 fp32 512 512 512 warm")
    assert "by ratio" in told[0] and told[1] == "ladder: 3 SAME, 0 FASTER, 1 SLOWER, 0 UNCLEAR"
    with (runs / "c.csv").open() as file:
        rows = {row["point"].split()[2:4][1]: row for row in csv.DictReader(file) if row["point"].startswith("ladder")}
    assert rows["512"]["verdict"] == SLOWER and float(rows["512"]["time"]) == pytest.approx(1.05, rel=1e-3)
    assert rows["256"]["verdict"] == SAME and (runs / "c.svg").read_text().startswith("<?xml")


def test_a_run_against_itself_is_the_same(runs, capsys):
    assert compare.main([str(runs / "a"), str(runs / "a" / "ladder"), "--all"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ladder: 4 SAME, 0 FASTER, 0 SLOWER, 0 UNCLEAR"


def test_a_lower_clock_is_no_slower_library(runs, capsys):
    """Every time is 10 % longer at a clock that is 10 % lower: ratios and cycles are what they were."""
    lower = [
        replace(
            point,
            times=[[1.1 * time for time in times] for times in point.times],
            baseline=[[1.1 * time for time in times] for times in point.baseline],
        )
        for point in points(clock=1800.0)
    ]
    write(runs / "b" / "ladder", lower)
    assert run(runs) == 0
    assert capsys.readouterr().out == "ladder: 2 SAME, 0 FASTER, 0 SLOWER, 2 UNCLEAR\n"


def test_two_gpus_are_compared_by_time(runs, capsys):
    path = runs / "b" / "ladder" / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "gpu": {**document["gpu"], "name": "Another GPU"}}))
    assert run(runs, "--all") == 3
    told = capsys.readouterr().out
    assert "by time" in told and "by ratio" not in told and "cycles" not in told


def test_toolkits_of_one_run_are_compared(runs, capsys):
    other = [replace(point, toolkit="cuda12") for point in points(0.9) if point.toolkit != "library"]
    write(runs / "b" / "ladder", [*points(), *other])
    assert compare.main([str(runs / "b"), str(runs / "b"), "--toolkits", "cuda13,cuda12"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ladder: 1 SAME, 1 FASTER, 0 SLOWER, 0 UNCLEAR"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nowhere", "nowhere"), "nowhere holds no run"),
        (("--", "-v:x", "x"), "'-v:x' is neither a folder nor COMMIT:FOLDER"),
        (("a", "a", "--toolkits", "cuda12"), "is not of the form before,after"),
        (("a", "a", "--families", "crt"), "share no row"),
    ],
)
def test_what_cannot_be_compared_is_said(runs, monkeypatch, arguments, complaint):
    monkeypatch.chdir(runs)
    with pytest.raises(UserError, match=complaint):
        compare.main(arguments)


def test_the_benchmark_resamples_rounds_and_pairs():
    rng = np.random.default_rng(3)
    times = [100 * (1 + 0.001 * rng.standard_normal(30)) for _ in range(3)]
    point = PointSamples("k", times, [2 * part for part in times])
    same = comparing.rates([point], 40, None, 1.0, True, 5)
    slower = comparing.rates([point], 40, None, 1.02, True, 5)
    assert sum(same.values()) == 40 and same[SLOWER] + same[FASTER] == 0 and slower[SLOWER] == 40

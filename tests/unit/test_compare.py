"""Two runs compared row by row."""

import csv
import json
from dataclasses import replace

import pytest
from recordings import GPU, Recorded, drawn, pair, reword, write

from gemmrepro import __main__ as command
from gemmrepro.errors import UserError
from gemmrepro.recordings import compare
from gemmrepro.recordings.compare import FASTER, SAME, SLOWER, UNCLEAR, verdict
from gemmrepro.stats import Interval


@pytest.mark.parametrize(
    ("time", "second", "expected"),
    [
        ((1.0, 0.99, 1.01), None, SAME),
        ((1.0, 0.97, 1.01), None, UNCLEAR),
        ((1.015, 0.999, 1.03), None, UNCLEAR),
        ((1.01, 1.001, 1.02), (1.0, 0.99, 1.01), UNCLEAR),
        ((1.05, 1.03, 1.07), None, SLOWER),
        ((0.95, 0.93, 0.97), None, FASTER),
        ((1.05, 1.03, 1.07), (0.99, 0.98, 0.995), UNCLEAR),
        ((1.05, 1.03, 1.07), (1.06, 1.04, 1.08), SLOWER),
    ],
)
def test_a_verdict_needs_two_quantities_that_agree(time, second, expected):
    assert verdict(Interval(*time), None if second is None else Interval(*second)) == expected


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
    assert "by ratio" in told[0] and "cycles +5.0" in told[0]
    assert told[1].startswith("ladder: 3 SAME, 0 FASTER, 1 SLOWER, 0 UNCLEAR; intervals of ±0.")
    with (runs / "c.csv").open() as file:
        rows = {row["point"].split()[2:4][1]: row for row in csv.DictReader(file) if row["point"].startswith("ladder")}
    assert rows["512"]["verdict"] == SLOWER and float(rows["512"]["time"]) == pytest.approx(1.05, rel=2e-3)
    assert float(rows["512"]["low"]) < 1.05 < float(rows["512"]["high"])
    assert rows["256"]["verdict"] == SAME and (runs / "c.svg").read_text().startswith("<?xml")


def say(runs, side, **changes):
    """Change a side's run.json."""
    path = runs / side / "ladder" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_two_cards_are_named_and_allowed_for(runs, capsys):
    write(runs / "b" / "ladder", points(1.01))
    assert run(runs) == compare.SLOWER_CODE and "cards" not in capsys.readouterr().out
    for side, card in (("a", "one"), ("b", "other")):
        say(runs, side, gpu={**GPU, "card": card})
    assert run(runs) == 0
    told = "on two cards, whose times may differ by 0.3 % (standard deviation)"
    assert capsys.readouterr().out.splitlines()[-1].endswith(told)


def longer(rounds):
    return [[1.1 * time for time in times] for times in rounds]


@pytest.mark.parametrize(
    ("own", "baseline", "clock", "expected"),
    [
        (True, True, 1800.0, "0 SLOWER, 2 UNCLEAR"),
        (False, True, 1980.0, "0 SLOWER, 2 UNCLEAR"),
        (True, False, 1980.0, "2 SLOWER, 0 UNCLEAR"),
    ],
)
def test_a_lower_clock_or_another_baseline_is_no_slower_kernel(runs, capsys, own, baseline, clock, expected):
    """Of libraries the cycles stay as they are."""
    later = []
    for point in points(clock=clock):
        library = point.toolkit == "library"
        times = longer(point.times) if (own if not library else clock < 1980) else point.times
        later.append(replace(point, times=times, baseline=longer(point.baseline) if baseline else point.baseline))
    write(runs / "a" / "ladder", points())
    write(runs / "b" / "ladder", later)
    run(runs)
    assert f"2 SAME, 0 FASTER, {expected}" in capsys.readouterr().out.splitlines()[-1]


def test_two_gpus_are_compared_by_time(runs, capsys):
    say(runs, "b", gpu={**GPU, "name": "Another GPU"})
    assert run(runs, "--all") == 3
    told = capsys.readouterr().out
    assert "by time" in told and "by ratio" not in told and "cycles" not in told


def test_toolkits_of_one_run_are_compared(runs, capsys):
    other = [replace(point, toolkit="cuda12") for point in points(0.9) if point.toolkit != "library"]
    write(runs / "b" / "ladder", [*points(), *other])
    assert command.run(["compare", str(runs / "b"), str(runs / "b"), "--toolkits", "cuda13,cuda12"]) == 0
    assert "ladder: 1 SAME, 1 FASTER, 0 SLOWER, 0 UNCLEAR" in capsys.readouterr().out.splitlines()[-1]


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


def by(told: str) -> dict[str, bool]:
    """Whether rows of ladder.naive were compared by ratio, by size."""
    lines = [line for line in told.splitlines() if "ladder.naive" in line]
    return {line.split()[4]: "by ratio" in line for line in lines}


def test_another_algorithm_or_version_of_the_library_or_no_ratio_leaves_the_time_to_decide(runs, capsys):
    for side, algorithm in (("a", "cublasGemmEx"), ("b", "cublasLt algorithm 66")):
        say(runs, side, baseline_algorithms={"cublas.sgemm 512": algorithm})
    assert run(runs, "--all") == compare.SLOWER_CODE and by(capsys.readouterr().out) == {"256": True, "512": False}
    write(runs / "b" / "ladder", [replace(p, build_key=p.build_key.replace("13.1", "13.2")) for p in points(1.05)])
    assert run(runs, "--all") == compare.SLOWER_CODE and "by ratio" not in capsys.readouterr().out
    write(runs / "a" / "ladder", points())
    write(runs / "b" / "ladder", points(1.05))
    reword(runs / "b" / "ladder", 2, ratio="", ratio_ci_low="", ratio_ci_high="")  # ladder.naive at 512
    assert run(runs, "--all") == compare.SLOWER_CODE and by(capsys.readouterr().out) == {"256": True, "512": False}

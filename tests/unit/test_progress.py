"""What a log shows of a long measurement."""

import re

from gemmrepro.core import journal
from gemmrepro.core.journal import Progress, sayer

LEFT = r"\d\d:\d\d spent, (\d\d:\d\d|\?) left"


def test_a_log_gets_whole_lines(monkeypatch, capsys):
    monkeypatch.setattr(journal, "SECONDS", 0.0)
    with Progress("sweep", total=5, done=2) as told:
        told.step("round 1 of a point")
        sayer("sweep")("not timed: a kernel that is wrong")
        told.step()
        told.step("round 1 of another")
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["sweep: round 1 of a point", "sweep: round 1 of another"]
    assert all(character.isprintable() or character == "\n" for character in shown.err)
    lines = shown.err.splitlines()
    assert [line.split(" points")[0] for line in lines] == [
        *("sweep: 3/5", "sweep: not timed: a kernel that is wrong"),
        *("sweep: 4/5", "sweep: 5/5", "sweep: 5/5"),
    ]
    assert all(re.fullmatch(rf"sweep: \d/5 points, {LEFT}", line) for line in lines if "points" in line)

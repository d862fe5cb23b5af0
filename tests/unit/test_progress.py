"""What a terminal and a log show of a long measurement."""

import os
import re
import sys
import termios

import pytest

from gemmrepro.core import journal
from gemmrepro.core.journal import Progress, sayer

LEFT = r"\d\d:\d\d spent, (\d\d:\d\d|\?) left"


def measure(**settings) -> None:
    """Five points, of which two were finished before, and a notice between them."""
    with Progress("sweep", total=5, done=2, **settings) as told:
        told.step("round 1 of a point")
        sayer("sweep")("not timed: a kernel that is wrong")
        told.step()
        told.step("round 1 of another")


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(journal, "SECONDS", 0.0)


def test_a_log_gets_whole_lines(at_once, capsys):
    measure()
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["sweep: round 1 of a point", "sweep: round 1 of another"]
    assert all(character.isprintable() or character == "\n" for character in shown.err)
    lines = shown.err.splitlines()
    assert [line.split(" points")[0] for line in lines] == [
        *("sweep: 3/5", "sweep: not timed: a kernel that is wrong"),
        *("sweep: 4/5", "sweep: 5/5", "sweep: 5/5"),
    ]
    assert all(re.fullmatch(rf"sweep: \d/5 points, {LEFT}", line) for line in lines if "points" in line)


def test_a_terminal_gets_one_line_that_is_redrawn_below_what_else_is_said(monkeypatch):
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(sys, "stdout", terminal)
        measure()
        terminal.write("end")
        terminal.flush()
        shown = b""
        # A read may return less than was written.
        while not shown.endswith(b"end"):
            shown += os.read(ours, 100_000)
    os.close(ours)
    # What stays on the screen of each line was written behind its last carriage return.
    screen = [line.rsplit("\r", 1)[-1] for line in shown.decode().replace("\r\n", "\n").split("\n")]
    assert screen[:3] == [
        *("sweep: round 1 of a point", "sweep: not timed: a kernel that is wrong", "sweep: round 1 of another")
    ]
    assert re.fullmatch(rf"sweep: 5/5 points \|█+\| {LEFT}", screen[3]) and screen[4:] == ["end"]

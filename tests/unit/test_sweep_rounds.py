"""Rounds of a sweep in processes of their own, and launches of the regimes: what is asked of whom, in which order."""

import io
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmrepro.measure import sweep

FOLDERS = {name: Path(name) for name in ("config", "build", "gates", "journal", "out")}


class Processes:
    """Takes the place of subprocess.Popen: what was started and told, in order, and the exit code of each round."""

    def __init__(self, **codes: int) -> None:
        self.commands: list[list[str]] = []
        self.log: list[str] = []
        self.codes = codes

    def __call__(self, command: list[str], stdin: int, text: bool) -> SimpleNamespace:
        assert stdin == subprocess.PIPE and text
        self.commands.append(command)
        number = command[command.index("--round") + 1]
        self.log.append(f"start {number}")

        def communicate(told: str) -> None:
            self.log.append(f"tell {number} {told!r}")

        return SimpleNamespace(communicate=communicate, returncode=self.codes.get(f"r{number}", 0))


def run(monkeypatch, processes: Processes, todo, total=6, kernels=None, deadline=None) -> int:
    monkeypatch.setattr(subprocess, "Popen", processes)
    one = SimpleNamespace(todo=lambda: todo, total=total, free=1 << 34)
    return sweep.run_rounds(one, Namespace(family="ladder", kernels=kernels, **FOLDERS), deadline)


def test_every_round_with_something_left_runs_once_in_order_and_the_next_one_starts_meanwhile(monkeypatch, capfd):
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    processes = Processes()
    assert run(monkeypatch, processes, [(0, "a"), (0, "b"), (2, "a")], kernels="ladder.naive", deadline=112.5) == 0
    assert processes.log == ["start 0", "start 2", "tell 0 '12.5\\n'", "tell 2 '12.5\\n'"]
    assert "3 of 6 rounds of points are in the journal already" in "".join(capfd.readouterr())
    words = processes.commands[0]
    assert words[words.index("--kernels") + 1] == "ladder.naive" and words[words.index("--free") + 1] == str(1 << 34)
    processes = Processes()
    assert run(monkeypatch, processes, [(0, "a")], deadline=90.0) == 0
    assert processes.log[-1] == "tell 0 '0.0\\n'" and "--kernels" not in processes.commands[0]


def test_after_a_round_that_fails_the_next_one_is_cancelled(monkeypatch, capfd):
    processes = Processes(r1=9)
    assert run(monkeypatch, processes, [(0, "a"), (1, "a"), (2, "a")], total=3) == 9
    assert processes.log[-2:] == ["tell 1 '\\n'", "tell 2 ''"]
    assert "journal already" not in "".join(capfd.readouterr()), "nothing was measured before"


def test_a_round_starts_when_it_is_told_how_long_it_may_take_and_ends_where_it_is_cancelled(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    for line, deadline in (("12.5\n", 112.5), ("0.0\n", 100.0), ("\n", None)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(line))
        assert sweep._told_to_start() == deadline
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(SystemExit) as ended:
        sweep._told_to_start()
    assert ended.value.code == 0

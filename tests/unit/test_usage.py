"""What a command holds on disk is sampled while it runs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from campaigns import usage


def test_the_peak_is_seen_though_it_is_gone_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command goes on when somebody has looked, however long that takes."""
    folder, out, seen, look = tmp_path / "clone", tmp_path / "out", tmp_path / "seen", usage.held

    def held(folders: Sequence[Path]) -> int:
        found = look(folders)
        if found > 8_000_000:
            seen.touch()
        return found

    monkeypatch.setattr(usage, "held", held)
    made = "mkdir $0; head -c 8000000 /dev/urandom >$0/new; mv $0/new $0/a; ln $0/a $0/b"
    command = ["bash", "-c", f"{made}; until [ -e $1 ]; do sleep 0.1; done; rm $0/?; exit 3", str(folder), str(seen)]
    monkeypatch.setattr(sys, "argv", ["usage", "--out", str(out), str(folder), "--", *command])
    assert usage.main() == 3
    result = json.loads((out / "usage.json").read_text())
    assert result["status"] == 3
    assert 8 <= result["peak"]["folders_mb"] < 9  # the hard link is not counted again
    assert result["left"]["folders_mb"] < 0.1
    assert result["samples"] == len(list(csv.DictReader((out / "samples.csv").open(newline=""))))

"""What a command holds on disk is sampled while it runs."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

from support import ROOT

SCRIPT = ROOT / "tests/campaigns/usage.py"


def test_the_peak_is_seen_though_it_is_gone_at_the_end(tmp_path: Path) -> None:
    folder, out = tmp_path / "clone", tmp_path / "out"
    holds = "mkdir $0; head -c 8000000 /dev/urandom >$0/a; ln $0/a $0/b; sleep 2.5; rm $0/?; exit 3"
    command = [sys.executable, str(SCRIPT), "--out", str(out), str(folder), "--", "bash", "-c", holds, str(folder)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 3
    result = json.loads((out / "usage.json").read_text())
    assert result["status"] == 3
    assert 8 <= result["peak"]["folders_mb"] < 9  # the hard link is not counted again
    assert result["left"]["folders_mb"] < 0.1
    assert result["samples"] == len(list(csv.DictReader((out / "samples.csv").open(newline=""))))

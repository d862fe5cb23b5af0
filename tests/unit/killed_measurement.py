"""SIGKILL in the midst of a measurement: every finished piece of it stays as it is, and the rest is measured.

The measurement is that of the regimes, on a synthetic GPU in a process of its own; the journal, the passes, and what is
filed at the end are the real ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CHILD = """
import sys
from pathlib import Path
import pytest
import test_regime_recordings as take

folder, out = Path(sys.argv[1]), Path(sys.argv[2])
with pytest.MonkeyPatch.context() as patch:
    take.replace_gpu(patch)
    print("ready", flush=True)
    complete, _, _ = take.measured(folder, out, document=take.DOCUMENT | {"pairs": {"sustained": 2, "burst": 2}})
assert complete and len(take.rows_of(out)) == 12
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """Begin the measurement, or go on with it; returns once it is under way."""
    path = os.pathsep.join(map(str, (ROOT / "workflow", ROOT / "tests", ROOT / "tests/unit")))
    out = folder / "recorded/gpu/ladder/regimes/1"
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, folder, out],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


def pieces(folder: Path) -> dict[str, bytes]:
    """The journal's finished pieces by name."""
    return {path.name: path.read_bytes() for path in (folder / "journal").glob("*.json")}


def killed(folder: Path) -> tuple[int, list[str]]:
    """Kill the measurement behind its first finished piece, and let it end.

    Returns:
        How many pieces were finished when it was killed, and the names of those that are lost or were made again.
    """
    process = start(folder)
    while not pieces(folder) and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = pieces(folder)
    last = start(folder)
    last.wait()
    assert last.returncode == 0
    after = pieces(folder)
    return len(before), [name for name, piece in before.items() if after.get(name) != piece]

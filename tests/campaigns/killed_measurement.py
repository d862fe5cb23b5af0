"""SIGKILL at random moments of a measurement: every finished piece of it stays as it is, and the rest is measured.

    PYTHONPATH=workflow python tests/campaigns/killed_measurement.py --kills 40

The measurement is that of the regimes, on a synthetic GPU in a process of its own; the journal, the passes, and what is
filed at the end are the real ones. `docs/reliability.md` has the outcome.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
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
    complete, _, _ = take.measured(folder, out, document=take.DOCUMENT | {"pairs": {"sustained": 4, "burst": 4}})
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


def killed(folder: Path, kills: int, seconds: float, dice: random.Random) -> tuple[int, list[str]]:
    """Kill the measurement `kills` times, each time within `seconds` of its first new piece, and let it end.

    Returns:
        How many pieces were finished when it was killed last, and the names of those that are lost or were made again.
    """
    before: dict[str, bytes] = {}
    for _ in range(kills):
        process = start(folder)
        while len(pieces(folder)) <= len(before) and process.poll() is None:
            time.sleep(0.005)
        time.sleep(dice.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = pieces(folder)
        if lost := [name for name, piece in before.items() if now.get(name) != piece]:
            return len(before), lost
        before = now
    last = start(folder)
    last.wait()
    assert last.returncode == 0
    after = pieces(folder)
    return len(before), [name for name, piece in before.items() if after.get(name) != piece]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.2, help="a kill comes so soon after a new piece")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--out", type=Path, help="a JSON file for the outcome")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        finished, lost = killed(Path(scratch), arguments.kills, arguments.seconds, random.Random(arguments.seed))
    print(f"{arguments.kills} kills, {finished} pieces finished before the last one, {len(lost)} lost: {lost}")
    if arguments.out:
        outcome = {"tried": arguments.kills, "held": arguments.kills - len(lost), "pieces": finished, "lost": lost}
        arguments.out.write_text(json.dumps(outcome, indent=1) + "\n")
    return int(bool(lost) or not finished)


if __name__ == "__main__":
    sys.exit(main())

"""SIGKILL at random moments of an image's build: the next build starts over by itself and makes the same image.

    PYTHONPATH=workflow envs/run python tests/campaigns/killed_image.py --folder /tmp/image --kills 6 --out outcome.json

Needs root and a network. It builds `tests/hosts/small.Dockerfile`, kills the build itself or one of its tools, and then
ends what they started, as the guard of a run does (`gemmrepro.host.killed_runs`). docs/reliability.md has the outcome.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from runs import ROOT, below, command_of, need_root

from gemmrepro.host.killed_runs import MARK, end_jobs

TOOLS = ("buildah", "buildah-chroot-exec", "mksquashfs", "apt-get", "dpkg", "tar", "apptainer", "cp")


def start(folder: Path, mark: str) -> subprocess.Popen[bytes]:
    sif, lock = folder / "small.sif", folder / "small.lock.json"
    recipe = ROOT / "tests/hosts/small.Dockerfile"
    made = ["--env", "small", "--recipe", recipe, "--sif", sif, "--lock", lock]
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gemmrepro.host.images", *made],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "workflow"), MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def kill(folder: Path, victim: str, seconds: float) -> str:
    """Kill a build after some seconds; returns what was hit, or "" if it had ended before."""
    mark = secrets.token_hex(8)
    process = start(folder, mark)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return ""
    tools = [one for one in below(process.pid) if Path(command_of(one).split(" ")[0]).name in TOOLS]
    hit = tools[-1] if victim == "tool" and tools else process.pid
    said = command_of(hit).replace(f"{folder}/", "")[:60] if hit != process.pid else "the build"
    with suppress(ProcessLookupError):
        os.kill(hit, signal.SIGKILL)
    time.sleep(1)
    process.kill()
    process.wait()
    end_jobs(mark)
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--folder", type=Path, required=True, help="where the image is built; a base image may be there"
    )
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=60, help="the latest moment of a kill")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--out", type=Path, help="a JSON file for the outcome")
    arguments = parser.parse_args()
    if not need_root("buildah"):
        return 1
    folder, dice = arguments.folder.resolve(), random.Random(arguments.seed)
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / "small.lock.json"
    if not lock.exists():
        assert start(folder, "none").wait() == 0, (folder / "log").read_text()[-2000:]
    undisturbed, cases = json.loads(lock.read_text()), list[dict[str, object]]()
    made = (folder / "small.sif", lock)
    while len(cases) < arguments.kills:
        for path in made:  # of a build that ended; the first one does, or one that was to be killed later
            path.unlink(missing_ok=True)
        after = dice.uniform(0, arguments.seconds)
        hit = kill(folder, ("stage", "tool")[len(cases) % 2], after)
        if not hit:
            continue
        half = [path.name for path in made if path.exists()]
        cases.append({"hit": hit, "after_s": round(after), "half_made": half})
        print(f"{len(cases)} {hit} after {after:.0f} s: {half or 'no half-made image'}", flush=True)
    code = start(folder, "none").wait()
    left = sorted(path.name for path in folder.glob(".build-*"))
    same = code == 0 and json.loads(lock.read_text()) == undisturbed
    print(f"{len(cases)} kills; the last build ended with {code}, the same image: {same}, left behind: {left}")
    wrong = sum(bool(case["half_made"]) for case in cases)
    if arguments.out:
        outcome = {"tried": len(cases), "held": len(cases) - wrong, "same_image": same, "left_behind": left}
        arguments.out.write_text(json.dumps(outcome | {"cases": cases}, indent=1) + "\n")
    return int(bool(wrong) or not same or bool(left))


if __name__ == "__main__":
    sys.exit(main())

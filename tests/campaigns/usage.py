"""Run a command and say how long it took, how much CPU time, and how much disk it held at its peak.

    python3 tests/campaigns/usage.py --out /tmp/usage /tmp/clone /var/lib/containers -- \\
        bash -c 'cd /tmp/clone && envs/run snakemake --use-singularity --cores 1'

Needs only Python, so that it can watch envs/run itself. OUT/usage.json has the result, OUT/samples.csv every sample:

- `folders_mb`: what the folders hold, in blocks on disk. A hard link counts once. Mounts are left out, so that an
  overlay does not count what lies below it again. Name TMPDIR and other caches among the folders.
- `used_mb`: how much more of the clone's file system (the first folder's) is in use than before. Complete, but whatever
  else writes there counts as well: alone on the machine the two agree.

A sample is taken each second, or less often where looking takes longer than a third of the time.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

EVERY_S = 1.0
SHARE = 3
"""Looking may take up to one part in so many of the time."""


@dataclass(frozen=True)
class Sample:
    """Disk in use so many seconds after the start, in MB (10^6 bytes)."""

    seconds: float
    folders_mb: float
    used_mb: float


def held(folders: Sequence[Path]) -> int:
    """Bytes on disk of all files below `folders`, each file once; what is mounted below them is left out."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder in folders:
        waiting = [str(folder)]
        try:
            device = os.lstat(folder).st_dev
        except FileNotFoundError:
            continue  # it may appear later
        while waiting:
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        status = entry.stat(follow_symlinks=False)
                        key = status.st_dev, status.st_ino
                        if status.st_dev != device or key in seen:
                            continue
                        seen.add(key)
                        total += status.st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
            except OSError:
                continue  # it is gone, or was never ours to read
    return total


def used(folder: Path) -> int:
    """Bytes in use on the file system that a folder is on, or will be."""
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def watch(command: Sequence[str], folders: Sequence[Path]) -> tuple[int, list[Sample]]:
    """Run `command` and sample meanwhile; its exit status and the samples."""
    before, started = used(folders[0]), time.monotonic()
    samples = []
    with subprocess.Popen(command) as process:
        while True:
            looked = time.monotonic()
            samples.append(Sample(round(looked - started, 1), held(folders) / 1e6, (used(folders[0]) - before) / 1e6))
            try:
                process.wait(max(EVERY_S, SHARE * (time.monotonic() - looked)))
                break
            except subprocess.TimeoutExpired:
                continue
    samples.append(Sample(round(time.monotonic() - started, 1), held(folders) / 1e6, (used(folders[0]) - before) / 1e6))
    return process.returncode, samples


def main() -> int:
    """Command line; ends with the command's own exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of usage.json and samples.csv")
    parser.add_argument("folders", type=Path, nargs="+", help="folders to add up; first the clone")
    if "--" not in sys.argv:
        parser.error("the command to run comes after --")
    at = sys.argv.index("--")
    arguments, command = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1 :]
    arguments.out.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    status, samples = watch(command, arguments.folders)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = max(samples, key=lambda sample: sample.folders_mb)
    result = {
        "command": command,
        "status": status,
        "seconds": samples[-1].seconds,
        "cpu_seconds": round(spent.ru_utime + spent.ru_stime, 1),
        "load_before": load,
        "peak": asdict(peak),
        "peak_used_mb": max(sample.used_mb for sample in samples),
        "left": asdict(samples[-1]),
        "samples": len(samples),
    }
    (arguments.out / "usage.json").write_text(json.dumps(result, indent=1) + "\n")
    with (arguments.out / "samples.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(peak)))
        writer.writeheader()
        writer.writerows(asdict(sample) for sample in samples)
    print(json.dumps(result, indent=1))
    return status


if __name__ == "__main__":
    sys.exit(main())

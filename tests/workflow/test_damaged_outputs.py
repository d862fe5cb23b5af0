"""The next run finds damaged outputs, and a full disk. Real runs, of a job without a container."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import call, snakemake

from gemmrepro.host.runs import NOTES

TARGET = "results/config.json"


def test_a_run_makes_damaged_outputs_again_and_says_so(folder: Path) -> None:
    assert snakemake(TARGET, folder=folder).returncode == 0
    output, notes = folder / TARGET, folder / NOTES
    while not notes.exists():  # the guard writes them after the run
        time.sleep(0.05)
    text = output.read_text()
    output.write_bytes(bytes(len(text)))
    again = snakemake(TARGET, folder=folder)
    assert again.returncode == 0, again.stdout
    assert f"gemmrepro: {TARGET} was edited or damaged since its job wrote it; it is made again." in again.stdout
    assert output.read_text() == text
    plan = snakemake("--dry-run", TARGET, folder=folder)
    assert "Nothing to be done" in plan.stdout and f"gemmrepro: {TARGET}" not in plan.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_is_one_line_and_the_run_goes_on_once_there_is_space(folder: Path) -> None:
    script = (
        "mkdir .snakemake && mount -t tmpfs -o size=32m tmpfs .snakemake || exit 99\n"
        "head -c 31M /dev/zero >.snakemake/fill\n"
        f"{sys.executable} -m snakemake --cores 1 {TARGET}; echo first $?\n"
        f"rm .snakemake/fill; {sys.executable} -m snakemake --cores 1 {TARGET}; echo second $?\n"
    )
    done = call(["unshare", "--mount", "bash", "-c", script], folder)
    if done.returncode == 99 or "unshare" in done.stdout:
        pytest.skip(f"no mounts here: {done.stdout.strip()}")
    first, _, second = done.stdout.partition("first 1\n")
    said = [line for line in first.splitlines() if line.startswith("gemmrepro: ")]
    assert len(said) == 1 and f"the disk that holds {folder}/.snakemake is full" in said[0]
    assert "Traceback" not in first and first.splitlines()[-1] == said[0]
    assert second.endswith("second 0\n"), second
    assert (folder / TARGET).is_file()
    assert subprocess.run(["mountpoint", "-q", folder / ".snakemake"]).returncode != 0

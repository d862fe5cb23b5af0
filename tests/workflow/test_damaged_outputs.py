"""The next run finds outputs that a power cut damaged, and a full disk. Real runs, of a job without a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import call, copy_sources, snakemake

from gemmrepro.host.finished_outputs import NAME

TARGET = "results/config.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "gemmrepro"
    copy_sources(copy)
    return copy


def test_a_run_makes_damaged_outputs_again_and_says_so(folder: Path) -> None:
    assert snakemake(TARGET, folder=folder).returncode == 0
    output, journal = folder / TARGET, folder / ".snakemake" / NAME
    text, status = output.read_text(), output.stat()
    # As after a power cut: the file has its size and its time, and another content.
    output.write_bytes(bytes(status.st_size))
    os.utime(output, ns=(status.st_atime_ns, status.st_mtime_ns))
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["output"] for line in lines if "output" in line] == [TARGET]
    journal.write_text(
        "".join(json.dumps({**line, "boot": "another"} if "boot" in line else line) + "\n" for line in lines)
    )
    again = snakemake(TARGET, folder=folder)
    assert again.returncode == 0, again.stdout
    assert "gemmrepro: the machine was restarted since the last run here" in again.stdout
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

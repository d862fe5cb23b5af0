"""An ordinary user's private Apptainer: envs/run fetches, checks and unpacks it without root."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import ROOT, copy_sources

pytestmark = pytest.mark.containers

HERE = Path(__file__).parent
SKIPPED = 77


def test_envs_run_installs_apptainer_without_root(folder: Path) -> None:
    checkout = folder / "gemmrepro"
    copy_sources(checkout)
    session = [HERE / "overlay", folder / "overlay", HERE / "user_session", checkout]
    done = subprocess.run(session, capture_output=True, text=True)
    if done.returncode == SKIPPED:
        pytest.skip(f"this cannot be tried here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.startswith("apptainer version ")
    assert (checkout / ".envs/apptainer/bin/apptainer").stat().st_uid != ROOT.stat().st_uid
    locked = {line.split()[2] for line in (ROOT / "envs/requirements/apptainer.txt").open() if not line.startswith("#")}
    fetched = {line.split()[0] for line in (checkout / ".envs/apptainer/packages.sha256").open()}
    assert fetched == locked or "the locked Apptainer is not on this mirror" in done.stderr

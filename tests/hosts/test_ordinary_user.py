"""An ordinary user's private Apptainer: envs/run fetches, checks and unpacks it without root."""

from pathlib import Path

import pytest
from support import ROOT, copy_sources

pytestmark = pytest.mark.containers


def test_envs_run_installs_apptainer_without_root(folder: Path, in_overlay) -> None:
    checkout = folder / "gemmrepro"
    copy_sources(checkout)
    done = in_overlay(folder / "overlay", Path(__file__).with_name("user_session"), checkout)
    assert done.stdout.startswith("apptainer version ")
    assert (checkout / ".envs/apptainer/bin/apptainer").stat().st_uid != ROOT.stat().st_uid
    locked = {line.split()[2] for line in (ROOT / "envs/requirements/apptainer.txt").open() if not line.startswith("#")}
    fetched = {line.split()[0] for line in (checkout / ".envs/apptainer/packages.sha256").open()}
    assert fetched == locked or "the locked Apptainer is not on this mirror" in done.stderr

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support import ROOT, copy_sources, snakemake


@pytest.fixture(scope="session")
def default_run() -> str:
    """The README's main command, for real and in place: containers, binaries, gates, rows, verdicts, report."""
    if shutil.which("apptainer") is None:
        pytest.skip("apptainer is not on PATH; run the tests as `envs/run pytest`")
    run = snakemake("--use-singularity")
    assert run.returncode == 0, run.stdout[-8000:]
    return run.stdout


@pytest.fixture
def finished(default_run: str, tmp_path: Path) -> Path:
    """A finished run that a test may spoil: sources and small results copied, the images linked."""
    copy = tmp_path / "gemmrepro"
    copy_sources(copy)
    for name in ("results", ".snakemake", "reports"):
        subprocess.run(["cp", "-a", f"{ROOT / name}/.", str(copy / name)], check=True)
    (copy / "resources").mkdir()
    subprocess.run(["cp", "-al", str(ROOT / "resources/images"), str(copy / "resources/images")], check=True)
    return copy

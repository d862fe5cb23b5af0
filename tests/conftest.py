from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support import copy_sources, snakemake


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources alone, for tests that only plan."""
    copy = tmp_path_factory.mktemp("tree") / "gemmrepro"
    copy_sources(copy)
    return copy


@pytest.fixture(scope="session")
def default_run() -> str:
    """The README's main command, for real and in place: containers, binaries, gates, rows, verdicts, report."""
    if shutil.which("apptainer") is None:
        pytest.fail(
            "apptainer is not on PATH; run the tests as `envs/run pytest`, or leave these out: -m 'not containers'"
        )
    run = snakemake("--use-singularity")
    assert run.returncode == 0, run.stdout[-8000:]
    return run.stdout

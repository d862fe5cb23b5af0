from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import ROOT, copy_sources


@pytest.fixture
def finished(default_run: str, tmp_path: Path) -> Path:
    """A finished run that a test may spoil: sources and small results copied, the images linked."""
    copy = tmp_path / "gemmrepro"
    copy_sources(copy)
    for name in ("results", ".snakemake", "reports"):
        subprocess.run(["cp", "-a", f"{ROOT / name}/.", str(copy / name)], check=True)
    (copy / "resources/cache").mkdir(parents=True)
    for name in ("resources/images", "resources/cache/build"):
        subprocess.run(["cp", "-al", str(ROOT / name), str(copy / name)], check=True)
    return copy

import subprocess
from pathlib import Path

import pytest
from support import ROOT, alone, copy_sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the sources that a test may spoil."""
    copy_sources(tmp_path / "gemmrepro")
    return tmp_path / "gemmrepro"


@pytest.fixture
def finished(default_run: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that a test may spoil: sources and small results copied, the images linked."""
    with alone("checkout", tmp_path_factory):  # a plan that another worker makes there has a lock in .snakemake
        for name in ("results", ".snakemake", "reports"):
            subprocess.run(["cp", "-a", f"{ROOT / name}/.", str(folder / name)], check=True)
    (folder / "resources/cache").mkdir(parents=True)
    for name in ("resources/images", "resources/cache/build"):
        subprocess.run(["cp", "-al", str(ROOT / name), str(folder / name)], check=True)
    return folder

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Under /tmp, which the overlays share with this machine; skips where there are no overlays."""
    if os.geteuid() or "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("an overlay over this machine needs root and overlayfs")
    path = Path(tempfile.mkdtemp(prefix="gemmrepro-hosts-", dir="/tmp"))
    path.chmod(0o755)
    try:
        trial = subprocess.run([HERE / "overlay", path / "trial", "true"], capture_output=True, text=True)
        if trial.returncode:
            pytest.skip(f"no overlay over this machine: {trial.stderr.strip()}")
        yield path
    finally:
        shutil.rmtree(path)

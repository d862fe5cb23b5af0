import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SKIPPED = 77

InOverlay = Callable[..., subprocess.CompletedProcess[str]]


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


@pytest.fixture(scope="module")
def in_overlay() -> InOverlay:
    """Runs a command in an overlay over this machine, whose changes go to a folder, with further variables.
    Skips where the command says that it cannot be tried here, and fails where it fails."""

    def run(changes: Path, *command: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
        words = [HERE / "overlay", changes, *command]
        done = subprocess.run(words, env=os.environ | environment, capture_output=True, text=True)
        if done.returncode == SKIPPED:
            pytest.skip(f"this cannot be tried here: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done

    return run

"""What all tests share: where the repository is, and how Snakemake is called in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def call(command: list[str], folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in `folder`; its stdout holds both streams."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def snakemake(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return call(["snakemake", "--cores", str(os.cpu_count()), *arguments], folder, **environment)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources alone, for tests that spoil them."""
    copy = tmp_path_factory.mktemp("tree") / "gemmrepro"
    tracked = call(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]).stdout.split("\0")
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy

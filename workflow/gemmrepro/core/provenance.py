"""What a recording says of its origin: the commit and the libraries."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from collections.abc import Mapping

from gemmrepro.core.paths import ROOT


def libraries(versions: Mapping[str, str]) -> dict[str, str]:
    """Versions of what took part: the baselines' libraries and the Python packages."""
    named = {text.rsplit(" ", 1)[0]: text.rsplit(" ", 1)[1] for text in versions.values()}
    names = ("cupy-cuda13x", "cupy-cuda12x", "cuda-core", "cuda-bindings", "numpy", "pandas", "nvidia-ml-py", "torch")
    for name in names:
        try:
            named[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return named


def git_commit() -> str | None:
    """The commit of the working tree, with "+changes" where files differ from it.

    Where git does not know the tree, what the environment variable GEMMREPRO_COMMIT says; else None.
    """
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        state = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("GEMMREPRO_COMMIT") or None
    return head.stdout.strip() + ("+changes" if state.stdout.strip() else "")

"""The origin of a recording: commit and library versions."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from collections.abc import Mapping

from gemmrepro.core.paths import ROOT


def libraries(versions: Mapping[str, str]) -> dict[str, str]:
    """Versions of the baselines' libraries and of Python packages, by name.

    Args:
        versions: versions of baselines, such as "cuBLAS 13.1.0"; only the values are used.
    """
    named = {text.rsplit(" ", 1)[0]: text.rsplit(" ", 1)[1] for text in versions.values()}
    names = ("cupy-cuda13x", "cupy-cuda12x", "cuda-core", "cuda-bindings", "numpy", "pandas", "nvidia-ml-py", "torch")
    for name in names:
        try:
            named[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return named


def git_commit() -> str | None:
    """The commit of the working tree, followed by "+changes" if tracked files differ from it.

    Outside a git repository: the environment variable GEMMREPRO_COMMIT, or None if it is unset.
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

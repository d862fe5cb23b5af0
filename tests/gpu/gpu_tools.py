"""How the tests on a GPU run the project's stages, and what runs on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gemmrepro import gpu, registry

ROOT = Path(__file__).resolve().parents[2]


def stage(module: str, *arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """Run one of the project's stages as the workflow does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", f"gemmrepro.{module}", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


def runs(kernel: registry.Kernel, session: gpu.Session) -> bool:
    """Whether `kernel` has machine code for the GPU at hand."""
    archs = [f"sm_{target}" for target in kernel.targets] or [session.gpu.arch]
    capability = session.gpu.compute_capability
    if any(session.gpu.arch.removeprefix("sm_") in refusal.archs for refusal in kernel.refusals):
        return False
    return capability >= kernel.min_capability and gpu.pick_arch(archs, capability) is not None

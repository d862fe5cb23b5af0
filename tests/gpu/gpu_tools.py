"""How the tests on a GPU run the project's stages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def stage(module: str, *arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """Run one of the project's stages as the workflow does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", f"gemmrepro.{module}", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)

"""Whether the machine that runs the workflow has a usable GPU, and whether to measure on it.

Asks ``nvidia-smi``; nothing here opens the GPU, which `gemmrepro.gpu` does.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from gemmrepro.errors import UserError


@dataclass(frozen=True)
class HostGpu:
    """A GPU as ``nvidia-smi`` names it. `capability` is compute capability x 10 (90 for sm_90)."""

    name: str
    capability: int
    driver: str


def find_gpu() -> tuple[HostGpu | None, str]:
    """The first GPU that ``nvidia-smi`` reports; else None and the reason."""
    if shutil.which("nvidia-smi") is None:
        return None, "nvidia-smi is not on PATH"
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        name, capability, driver = (part.strip() for part in answer.splitlines()[0].rsplit(",", 2))
        return HostGpu(name, round(float(capability) * 10), driver), ""
    except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        detail = (getattr(error, "stdout", None) or str(error)).strip().splitlines()
        return None, f"nvidia-smi failed: {detail[0] if detail else type(error).__name__}"


def resolve_measure(wanted: str, gpu: HostGpu | None, why_not: str) -> str:
    """Turn ``auto | live | recorded`` into ``live`` or ``recorded``.

    Raises:
        UserError: ``live`` was asked for and there is no usable GPU.
    """
    if wanted == "auto":
        return "live" if gpu else "recorded"
    if wanted == "live" and gpu is None:
        raise UserError(
            f"measure: live needs a usable NVIDIA GPU, and {why_not}. "
            "Install the driver, or set measure to auto or recorded."
        )
    return wanted

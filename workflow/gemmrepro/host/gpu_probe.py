"""Which GPUs the machine that runs the workflow has.

Asks ``nvidia-smi``; nothing here opens a GPU, which `gemmrepro.gpu` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from gemmrepro.gpu.slots import VISIBLE, Card, usable


@dataclass(frozen=True)
class HostGpu:
    """A GPU as ``nvidia-smi`` names it. `capability` is compute capability x 10 (90 for sm_90)."""

    name: str
    capability: int
    uuid: str = ""


def find_gpus(environ: Mapping[str, str] | None = None) -> tuple[list[HostGpu], str]:
    """The GPUs that jobs may be spread over; else none and the reason.

    They are those that ``CUDA_VISIBLE_DEVICES`` lists, or all of the first one's model.
    """
    environ = os.environ if environ is None else environ
    if shutil.which("nvidia-smi") is None:
        return [], "nvidia-smi is not on PATH"
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,compute_cap,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        present = [_parsed(line) for line in answer.splitlines() if line.strip()]
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        detail = (getattr(error, "stdout", None) or str(error)).strip().splitlines()
        return [], f"nvidia-smi failed: {detail[0] if detail else type(error).__name__}"
    if not present:
        return [], "nvidia-smi lists no GPU"
    names = usable([Card(gpu.name, gpu.uuid) for gpu in present], environ.get(VISIBLE))
    gpus = [gpu for name in names if (gpu := _named(name, present))]
    return gpus, "" if gpus else f"{VISIBLE}={environ.get(VISIBLE)} leaves no GPU"


def _parsed(line: str) -> HostGpu:
    name, capability, uuid = (part.strip() for part in line.rsplit(",", 2))
    return HostGpu(name, round(float(capability) * 10), uuid)


def _named(name: str, present: list[HostGpu]) -> HostGpu | None:
    """The GPU that an entry of ``CUDA_VISIBLE_DEVICES`` means: a number, a UUID or the beginning of one."""
    if name.isdecimal():
        return present[int(name)] if int(name) < len(present) else None
    if name.startswith("MIG-"):  # nvidia-smi lists the GPU that it is a part of
        return present[0]
    return next((gpu for gpu in present if gpu.uuid.startswith(name)), None)

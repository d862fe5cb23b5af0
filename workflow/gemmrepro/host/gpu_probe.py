"""Which GPUs the machine that runs the workflow has, and whether it can measure on them.

Asks ``nvidia-smi``; nothing here opens a GPU, which `gemmrepro.gpu` does.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gemmrepro.core.names import LEAST_CAPABILITY, LEAST_DRIVER
from gemmrepro.gpu.slots import VISIBLE, HostGpu, listed, usable
from gemmrepro.host.containers import WSL

__all__ = ["HostGpu", "find_gpus"]

QUERY = ("--query-gpu=name,compute_cap,uuid,driver_version", "--format=csv,noheader")

LINE = re.compile(r"(?P<name>.+), *(?P<major>\d+)\.(?P<minor>\d), *(?P<uuid>GPU-\S+), *(?P<driver>\d+)[.\d]*")
"""A GPU in the answer; that of a lost one, and warnings, look otherwise."""

MEASURED_WITH = "cuda13"
"""The toolkit of the libraries that measure: CuPy and the baselines."""


def find_gpus(
    environ: Mapping[str, str] | None = None,
    *,
    containers: bool = False,
    machine: str = "",
    dev: Path = Path("/dev"),
    wsl: Path = WSL,
) -> tuple[list[HostGpu], str]:
    """The GPUs that jobs may be spread over, all of one model; and what else is not used and why, or "".

    Of those that ``CUDA_VISIBLE_DEVICES`` leaves they are the first supported one and all others of its model.

    Args:
        containers: whether jobs run in the images.
        machine: the host's architecture, by default this one's.
        dev, wsl: the folders /dev, and of the driver under WSL2.
    """
    environ = os.environ if environ is None else environ
    if shutil.which("nvidia-smi") is None:
        return [], "nvidia-smi is not on PATH"
    code, lines = _nvidia_smi(*QUERY)
    read = [(line, LINE.fullmatch(line)) for line in lines]
    present = [
        HostGpu(found["name"], 10 * int(found["major"]) + int(found["minor"]), found["uuid"])
        for _, found in read
        if found
    ]
    unread = [line for line, found in read if not found]
    if not present:
        said = f": {unread[0]}" if unread else ""
        return [], f"nvidia-smi failed{said}" if code or unread else "nvidia-smi lists no GPU"
    visible = environ.get(VISIBLE)
    named = listed(present, visible, _parent)
    if not named:
        return [], f"{VISIBLE}={visible} leaves no GPU"
    chosen = list(usable(named).values())
    driver = min(int(found["driver"]) for _, found in read if found)
    problem = _problem(driver, machine or platform.machine(), containers, dev, wsl)
    if chosen and problem:
        return [], problem
    others = [_left_out(gpu, chosen) for gpu in named.values() if gpu not in chosen]
    return chosen, "; ".join([*dict.fromkeys(others), *(f'nvidia-smi says "{line}"' for line in unread)])


def _nvidia_smi(*arguments: str) -> tuple[int, list[str]]:
    """The exit code and the lines, without blank ones, of nvidia-smi; where it does not end or start, the reason."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return 1, [str(error)]
    return done.returncode, [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _parent(slice_uuid: str) -> str | None:
    """The UUID of the GPU that a MIG slice is a part of, by the slice's old kind of name or by nvidia-smi's list."""
    if old := re.match(r"MIG-(GPU-[^/]+)/", slice_uuid):
        return old[1]
    gpu = None
    for line in _nvidia_smi("-L")[1]:
        found = re.search(r"\(UUID: ([^)]+)\)", line)
        if found and found[1].startswith("GPU-"):
            gpu = found[1]
        elif found and found[1].startswith(slice_uuid):
            return gpu
    return None


def _problem(driver: int, machine: str, containers: bool, dev: Path, wsl: Path) -> str:
    """Why no GPU can be used here, whichever it is; else ""."""
    least = LEAST_DRIVER[MEASURED_WITH]
    if driver < least:
        return f"its driver, {driver}, is older than {least}, which CUDA {MEASURED_WITH.removeprefix('cuda')} needs"
    if containers and machine not in ("x86_64", "amd64"):
        return f"the images are for x86-64, and this host is {machine}"
    if (dev / "nvidiactl").exists():
        return ""
    if not (dev / "dxg").exists():
        return f"there is neither {dev}/nvidiactl nor, as under WSL2, {dev}/dxg"
    return "" if (library := wsl / "lib/libdxcore.so").exists() else f"{dev}/dxg needs {library}; update WSL"


def _left_out(gpu: HostGpu, chosen: list[HostGpu]) -> str:
    if gpu.capability < LEAST_CAPABILITY:
        has, needed = (f"{number // 10}.{number % 10}" for number in (gpu.capability, LEAST_CAPABILITY))
        return f"{gpu.name} has compute capability {has}, and kernels need {needed}"
    return f"{gpu.name} is another model than {chosen[0].name}, and one recording holds one model's rows"

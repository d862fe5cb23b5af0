"""Name and cores of this machine's CPU, for experiments that run without a GPU; and the memory beside it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any


def describe(info: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """{name, cores}: the model in /proc/cpuinfo (else the architecture), and the cores that this process may use."""
    try:
        model = re.search(r"^model name\s*:\s*(.+?)\s*$", info.read_text(), re.MULTILINE)
    except OSError:
        model = None
    cores = len(os.sched_getaffinity(0))
    return {"name": model[1] if model else platform.machine(), "cores": cores}


def free_memory(info: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of this machine's memory that programs can have; None where the system does not say."""
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB$", info.read_text(), re.MULTILINE)
    except OSError:
        return None
    return 1024 * int(match[1]) if match else None


def in_words(cpu: dict[str, Any]) -> str:
    """``Intel Xeon, 2 cores``."""
    cores = cpu["cores"]
    return f"{cpu['name']}, {cores} core{'s' if cores != 1 else ''}"

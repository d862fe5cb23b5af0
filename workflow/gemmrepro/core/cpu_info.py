"""What the CPU at hand is called, for what is measured without a GPU."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any


def describe(info: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """{name, cores}: the model as the kernel names it, and how many cores this process may use."""
    try:
        found = re.search(r"^model name\s*:\s*(.+?)\s*$", info.read_text(), re.MULTILINE)
    except OSError:
        found = None
    cores = len(os.sched_getaffinity(0))
    return {"name": found[1] if found else platform.machine(), "cores": cores}


def in_words(cpu: dict[str, Any]) -> str:
    """``Intel Xeon, 2 cores``."""
    cores = cpu["cores"]
    return f"{cpu['name']}, {cores} core{'s' if cores != 1 else ''}"

"""Reads build records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.files import read_json
from gemmrepro.registry import Kernel


def built_of(kernel: registry.Kernel, code: registry.Kernel, record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the build record of `kernel` says of one of its `codes`, by architecture ("sm_90")."""
    return record["variants"][code.entry] if len(kernel.codes) > 1 else record["archs"]


def build_record(kernel: Kernel, build: Path, toolkit: str) -> dict[str, Any]:
    """The build stage's JSON of `kernel`. Raises UserError if it is missing or corrupt."""
    return read_json(
        Path(build) / toolkit / f"{kernel.id}.json",
        "the build record",
        f"run the build stage: python -m gemmrepro.build.stage --kernel {kernel.id} --toolkit {toolkit}",
    )


def today(kernel: str, toolkit: str, build: Path) -> str | None:
    """The build key of today's binary, or None where there is none."""
    path = Path(build) / toolkit / f"{kernel}.json"
    if not path.is_file():
        return None
    return read_json(path, "the build record", "run the build stage again").get("build_key")

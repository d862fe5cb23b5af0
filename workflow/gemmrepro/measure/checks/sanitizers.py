"""What compute-sanitizer said of a family's binaries, as recorded: by kernel and toolkit, with the build key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core import schemas
from gemmrepro.core.files import read_json
from gemmrepro.core.names import RESTORE
from gemmrepro.measure.checks.refusal import refused

SANITIZERS = "sanitizers.json"

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

CLEAN = "clean"
"""What stands for a tool that found nothing; else what it said, line by line."""


def read_sanitizers(family: str, path: Path, gpu: str | None = None) -> dict[str, Any]:
    """Read and check a family's outcomes of compute-sanitizer, by kernel; none where there is no file.

    Args:
        gpu: the name of the GPU of the recording's times; None if it has none.

    Raises:
        UserError: the file is corrupt, or names a kernel, a toolkit or a GPU that is not the recording's.
    """
    if not path.is_file():
        return {}
    outcomes: dict[str, Any] = read_json(path, "the recording", RESTORE)
    schemas.check(outcomes, "sanitizers.schema.yaml", f"the recording {path}")
    known = {kernel.id: kernel for kernel in registry.kernels(family)}
    for kernel_id, outcome in outcomes.items():
        if kernel_id not in known:
            raise refused(path, "", f"{family} has no kernel {kernel_id}")
        if outcome["gpu"] != (gpu or outcome["gpu"]):
            raise refused(path, kernel_id, f"it was run on {outcome['gpu']}, and the recording is of {gpu}")
        for toolkit in outcome["toolkits"]:
            if toolkit not in known[kernel_id].platform.toolkits:
                raise refused(path, kernel_id, f"{toolkit} does not compile it")
    return outcomes

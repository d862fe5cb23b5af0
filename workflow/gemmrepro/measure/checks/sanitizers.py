"""What compute-sanitizer said of a family's binaries, as recorded: by kernel and toolkit, with the build key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemmrepro.measure.checks.refusal import read_document

SANITIZERS = "sanitizers.json"

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

CLEAN = "clean"
"""What stands for a tool that found nothing; else what it said, line by line."""


def read_sanitizers(path: Path) -> dict[str, Any]:
    """The outcomes of compute-sanitizer in a file, by kernel; none where there is no file.

    Nothing in the workflow rests on them, so the file's form alone is checked. Raises UserError if that is wrong.
    """
    return read_document(path, "sanitizers.schema.yaml") if path.is_file() else {}

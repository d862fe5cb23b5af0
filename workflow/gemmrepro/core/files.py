"""Atomic file writes: a file is complete or absent, even if the writing process is killed."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from gemmrepro.errors import UserError


def write_atomic(path: Path | str, data: bytes | str) -> None:
    """Write `data` to a temporary file in the same folder, flush it to disk, and rename it to `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode() if isinstance(data, str) else data
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def json_text(value: Any) -> str:
    """`value` as stable, diffable JSON: sorted keys, two-space indent, a newline at the end."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as `json_text`, atomically."""
    write_atomic(path, json_text(value))


def read_json(path: Path | str, what: str, remedy: str) -> Any:
    """Read JSON from `path`.

    Args:
        what: what the file is ("the build record"), to begin an error message.
        remedy: what to do if it is missing or corrupt, to end the message.

    Raises:
        UserError: the file is missing, cannot be read, or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise UserError(f"{what} {path} is missing; {remedy}.") from None
    except OSError as error:
        raise UserError(f"{what} {path} cannot be read ({error.strerror}); {remedy}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{what} {path} is corrupt ({error}); {remedy}.") from None

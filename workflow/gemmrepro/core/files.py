"""Files: written whole or not at all, even if the process is killed; as JSON, CSV and Parquet; Python by its path."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import importlib.util
import io
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemmrepro.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


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
    """Read JSON from `path`. Raises UserError, which begins with `what` the file is and ends with the `remedy`."""
    try:
        return json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise UserError(f"{what} {path} is missing; {remedy}.") from None
    except OSError as error:
        raise UserError(f"{what} {path} cannot be read ({error.strerror}); {remedy}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{what} {path} is corrupt ({error}); {remedy}.") from None


def load_module(name: str, path: Path) -> ModuleType:
    """Import the file at `path` as a new module. Raises ImportError if it is no Python file, or what that raises."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file", path=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def csv_text(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> str:
    """Rows as CSV text: floats with six significant digits, and an empty cell for None, NaN or a missing value."""

    def cell(value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    return buffer.getvalue()


def parquet(frame: pd.DataFrame) -> bytes:
    """A table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


_said = False


def open_shared(name: str) -> int:
    """The descriptor of the lock file `name`, made if need be, for every user of this host.
    Raises UserError if it cannot be opened, or is a symbolic link."""
    path = Path(f"gemmrepro-{re.sub(r'[^0-9a-zA-Z]+', '-', name)}.lock")
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        path = tempfile.gettempdir() / path
        # Even root may not open another user's file with O_CREAT in a folder such as /tmp (fs.protected_regular).
        try:
            file = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            with contextlib.suppress(OSError):  # where modes are the mount's
                os.fchmod(file, 0o666)  # whatever the umask
            return file
        except FileExistsError:
            pass
        try:
            return os.open(path, flags | os.O_RDWR)
        except PermissionError:
            return os.open(path, flags | os.O_RDONLY)  # which is enough on most file systems
    except OSError as error:
        raise UserError(
            f"the lock file {path} cannot be opened ({error.strerror}); have its owner remove it, or set TMPDIR to a "
            "folder that all who use this GPU may write to."
        ) from None


def lock(file: int, how: int) -> bool:
    """Lock an open file as `fcntl.flock` does; False if `how` says not to wait and another process holds it.
    A file system without locks is worth a warning: it is rare that two processes want the same."""
    global _said
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if not _said:
            name = Path(f"/proc/self/fd/{file}").readlink()
            print(
                f"gemmrepro: {name} cannot be locked ({error.strerror}); start nothing else of this project beside it, "
                "or set TMPDIR to a local folder",
                file=sys.stderr,
                flush=True,
            )
        _said = True
    return True

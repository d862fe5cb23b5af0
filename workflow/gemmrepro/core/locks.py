"""Locks on files: among the processes and users of a host, also where the file system has none."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
import tempfile
from pathlib import Path

from gemmrepro.errors import UserError

_said = False


def open_shared(name: str) -> int:
    """Open the lock file `name`, which is made if need be, for every user of this host; returns its descriptor.

    Raises:
        UserError: it cannot be opened, or is a symbolic link.
    """
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

    A file system without locks is worth a warning: it is rare that two processes want the same.
    """
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

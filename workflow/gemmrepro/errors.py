"""How a stage reports an error to its user."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import sys
from collections.abc import Callable


class UserError(Exception):
    """Bad input or an unsuitable machine. The message says what is wrong and what to do about it.

    Stages raise it where a traceback would not help the user; `run_stage` prints it.
    """


def run_stage(main: Callable[[], int | None], *, collect: bool = True) -> None:
    """Run a stage's ``main``; print a `UserError` as one line on stderr and exit with 1.

    Without `collect`, memory held by objects that refer to each other stays until the stage ends. Looking for it takes
    an eighth of the time of a stage that draws.
    """
    if not collect:
        gc.disable()
    try:
        sys.exit(main() or 0)
    except UserError as error:
        print(f"gemmrepro: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        written = _unwritten(error)
        if not written:
            raise
        print(
            f"gemmrepro: the disk is full while writing {written}; free some space and run the same command again: "
            "what was already measured is kept.",
            file=sys.stderr,
        )
        sys.exit(1)


def _unwritten(error: OSError) -> str:
    """What could not be written since the disk is full; "" if that is not the error. Of a copy, the second file."""
    if isinstance(error, shutil.Error):  # of a folder's copy: (from, to, why) of each file
        said = os.strerror(errno.ENOSPC)
        return next((str(to) for _, to, why in error.args[0] if said in why), "")
    return str(error.filename2 or error.filename or "a result") if error.errno == errno.ENOSPC else ""

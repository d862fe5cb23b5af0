"""The one way a stage tells its user that something is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable


class UserError(Exception):
    """Bad input or a bad machine: one sentence on what is wrong, one on what to do.

    Stages raise it where a traceback would tell the user nothing more; `run_stage` prints it.
    """


def run_stage(main: Callable[[], int | None]) -> None:
    """Run a stage's ``main``; print a `UserError` as one line on stderr and exit with 1."""
    try:
        sys.exit(main() or 0)
    except UserError as error:
        print(f"gemmrepro: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.errno == 28:  # ENOSPC
            print(
                f"gemmrepro: the disk is full while writing {error.filename or 'a result'}; free some "
                "space and run the same command again: what was already measured is kept.",
                file=sys.stderr,
            )
            sys.exit(1)
        raise

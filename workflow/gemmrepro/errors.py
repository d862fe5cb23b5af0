"""How a stage reports an error to its user."""

from __future__ import annotations

import sys
from collections.abc import Callable


class UserError(Exception):
    """Bad input or an unsuitable machine. The message says what is wrong and what to do about it.

    Stages raise it where a traceback would not help the user; `run_stage` prints it.
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

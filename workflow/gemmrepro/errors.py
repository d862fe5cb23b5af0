"""Errors, and their report to a stage's user."""

import errno
import gc
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path


class UserError(Exception):
    """Bad input or an unsuitable machine. The message says what is wrong and what to do about it.
    Stages raise it where a traceback would not help the user; `run_stage` prints it. Several mistakes of one file are
    several `lines`, of which the message has the first few."""

    def __init__(self, *lines: str) -> None:
        more = [f"And {len(lines) - 8} more."] if len(lines) > 8 else []
        super().__init__(" ".join([*lines[:8], *more]))
        self.lines = lines


def at_line(path: Path | str, line: int, why: str) -> UserError:
    """An error at a line of a file of the user's."""
    return UserError(f"{path}, line {line}: {why}")


def line_in(path: Path, error: BaseException) -> int:
    """The line of a Python file at which it failed; 0 if it was not running."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(path)]
    return (error.lineno if isinstance(error, SyntaxError) else None) or (lines or [0])[-1] or 0


GIB = 1 << 30

NEEDS = "needs "
"""Begins a reason that names what a machine lacks."""

_NO_MEMORY = re.compile(r"out.?of.?memory|memory ?allocation|alloc_failed|unable to allocate", re.IGNORECASE)
_ASKED = re.compile(r"allocat\w* ([\d.,]+) (bytes|[KMG]i?B)", re.IGNORECASE)
_HELD = re.compile(r"(?:allocated so far:|this process has) ([\d.,]+) (bytes|[KMG]i?B)", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": GIB}


def too_large(needed: float, free: float, kind: str = "") -> str:
    """The reason for leaving out what needs more bytes of memory than are free; empty where they are enough."""
    return f"{NEEDS}{_gib(needed)} GiB{kind}, {_gib(free)} GiB are free" if needed > free else ""


def shortage(error: BaseException, free: float | None = None) -> str:
    """The reason for leaving out what ended for lack of memory, whichever library says so; empty for other errors.
    `free`: bytes that are free without it, where that is known."""
    text = f"{type(error).__name__}: {error}"
    if not isinstance(error, MemoryError) and not _NO_MEMORY.search(text):
        return ""
    asked, held = _ASKED.search(text), _HELD.search(text)
    free_too = "" if free is None else f", {_gib(free)} GiB are free"
    if asked is None:
        return f"{NEEDS}more memory than there is{free_too}"
    needed = sum(float(found[1].replace(",", "")) * _UNITS[found[2][0].lower()] for found in (asked, held) if found)
    return f"{NEEDS}{_gib(needed)} GiB{free_too}"


def _gib(count: float) -> str:
    return f"{count / GIB:.1f}"


def run_stage(main: Callable[[], int | None], *, collect: bool = True) -> None:
    """Run a stage's ``main``; print a `UserError` as one line on stderr and exit with 1.
    Without `collect`, memory held by objects that refer to each other stays until the stage ends. Looking for it takes
    an eighth of the time of a stage that draws."""
    if not collect:
        gc.disable()
    try:
        sys.exit(main() or 0)
    except UserError as error:
        said = str(error)
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:
        said, kept = "free some {} and run the same command again", "what was already measured is kept."
        if reason := shortage(error):
            said = f"it {reason}; {said.format('memory')}."
        elif written := _unwritten(error) if isinstance(error, OSError) else "":
            said = f"the disk is full while writing {written}; {said.format('space')}: {kept}"
        else:
            raise
    print(f"gemmrepro: {said}", file=sys.stderr)
    sys.exit(1)


def _unwritten(error: OSError) -> str:
    """The file that a full disk did not take; "" if that is not the error. Of a copy, the second file."""
    if isinstance(error, shutil.Error):  # of a folder's copy: (from, to, why) of each file
        said = os.strerror(errno.ENOSPC)
        return next((str(to) for _, to, why in error.args[0] if said in why), "")
    return str(error.filename2 or error.filename or "a result") if error.errno == errno.ENOSPC else ""

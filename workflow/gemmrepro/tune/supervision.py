"""A candidate may break or hang the GPU's context: the measuring process is replaced when that happens.

While a candidate is at work, a marker file names it. Whoever starts next reads there which candidate ended the process
before, and why, and leaves it out.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from gemmrepro.core.files import write_atomic
from gemmrepro.core.journal import UNFINISHED
from gemmrepro.tune.progress import say

HANG_SECONDS = 60.0
"""No single step of a candidate takes this long; one that does will not end."""

REPLACE = 76
"""Exit code of a measuring process whose GPU context a candidate broke."""


class Unfinished(Exception):
    """The time budget ended."""


class Broken(Exception):
    """A candidate left the GPU's context unusable."""


def marker(journal: Path) -> Path:
    """The file that names the candidate at work."""
    return journal / "at-work"


def suspect(journal: Path) -> str:
    """The candidate at work when a process ended, and, where the supervisor knows it, why it ended; else nothing."""
    try:
        return marker(journal).read_text()
    except OSError:
        return ""


def supervise(command: Sequence[str], journal: Path, hang_seconds: float = HANG_SECONDS) -> int:
    """Run `command`, anew as often as a candidate breaks or hangs the process; returns its last exit code."""
    while True:
        if " " not in suspect(journal):
            marker(journal).unlink(missing_ok=True)  # left by a run that somebody ended
        known = suspect(journal)
        code, reason = _run(command, journal, known, hang_seconds)
        name = suspect(journal)
        if code != REPLACE:
            if code in (0, UNFINISHED, -signal.SIGINT, -signal.SIGTERM) or not name or name == known:
                return code
            write_atomic(marker(journal), f"{name} {reason or f'its process ended with code {code}'}")
        say("a candidate made the GPU unusable for its process; going on in a new one")


def _run(command: Sequence[str], journal: Path, known: str, hang_seconds: float) -> tuple[int, str]:
    """Exit code of `command`, and why it was killed if it was.

    Args:
        known: the marker's text when `command` starts: about the process before it.
    """
    process = subprocess.Popen(command)
    reason = ""
    while process.poll() is None:
        time.sleep(0.1)
        try:
            busy = time.time() - marker(journal).stat().st_mtime
        except OSError:
            continue
        if busy > hang_seconds and not reason and suspect(journal) != known:
            reason = f"it did not end within {hang_seconds:.0f} s"
            process.kill()
    return process.returncode, reason

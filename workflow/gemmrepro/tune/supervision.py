"""Replaces the measuring process when a candidate breaks or hangs the GPU's context.

While a candidate is at work, a marker file names it. The next process reads there which candidate ended the previous
one, and why, and leaves it out.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from gemmrepro.core.files import write_atomic
from gemmrepro.core.journal import UNFINISHED, sayer

say = sayer("tune")

HANG_SECONDS = 60.0
"""A step of a candidate that takes longer has hung."""

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
    """Run `command`, again whenever a candidate breaks or hangs the process; returns its last exit code."""
    while True:
        if " " not in suspect(journal):
            marker(journal).unlink(missing_ok=True)  # left by an interrupted run
        earlier = suspect(journal)
        code, reason = _run(command, journal, earlier, hang_seconds)
        name = suspect(journal)
        if code != REPLACE:
            if code in (0, UNFINISHED, -signal.SIGINT, -signal.SIGTERM) or not name or name == earlier:
                return code
            write_atomic(marker(journal), f"{name} {reason or f'its process ended with code {code}'}")
        say("a candidate made the GPU unusable for its process; going on in a new one")


def _run(command: Sequence[str], journal: Path, earlier: str, hang_seconds: float) -> tuple[int, str]:
    """Exit code of `command`, and why it was killed if it was.

    Args:
        earlier: the marker's text when `command` starts, about the process before it.
    """
    process = subprocess.Popen(command)
    reason = ""
    while process.poll() is None:
        time.sleep(0.1)
        try:
            busy = time.time() - marker(journal).stat().st_mtime
        except OSError:
            continue
        if busy > hang_seconds and not reason and suspect(journal) != earlier:
            reason = f"it did not end within {hang_seconds:.0f} s"
            process.kill()
    return process.returncode, reason

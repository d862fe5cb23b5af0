"""What tuning reports while it runs."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """A line of progress, on stderr."""
    print(f"tune: {text}", file=sys.stderr, flush=True)

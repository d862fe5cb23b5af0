"""How far a long measurement is and how long the rest takes: a live line on a terminal, whole lines in a log."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import TracebackType

SECONDS = 10.0
"""From one line in a log to the next, at least."""

_IN_A_LOG = "{desc}: {n_fmt}/{total_fmt} points, {elapsed} spent, {remaining} left"
_LIVE = "{desc}: {n_fmt}/{total_fmt} points |{bar:30}| {elapsed} spent, {remaining} left"


class Progress:
    """Counts pieces of a measurement, some of which were finished before; drawn by tqdm on stderr.

    The rest is taken to last as long a piece as what was finished since the start. Results go to stdout, so that a
    terminal may show the progress alone.
    """

    def __init__(self, stage: str, total: int, done: int = 0) -> None:
        """
        Args:
            stage: begins each line.
            total: pieces in all.
            done: those that were finished before.
        """
        from tqdm import tqdm

        self._stage, self._live = stage, sys.stderr.isatty()
        self._bar = tqdm(
            desc=stage,
            total=total,
            initial=done,
            # A log gets whole lines from `step`, and none of the characters that redraw one.
            file=sys.stderr if self._live else io.StringIO(),
            bar_format=_LIVE if self._live else _IN_A_LOG,
            mininterval=0.1 if self._live else SECONDS,
            miniters=1,
            smoothing=0,
            dynamic_ncols=self._live,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()
        if not self._live:
            print(self._bar, file=sys.stderr, flush=True)

    def step(self, result: str = "") -> None:
        """Count a piece as finished, and print its result on stdout."""
        if result:
            self._bar.write(f"{self._stage}: {result}", file=sys.stdout)
            sys.stdout.flush()
        if self._bar.update() and not self._live:
            print(self._bar, file=sys.stderr, flush=True)


def notices(stage: str) -> Callable[[str], None]:
    """A function that prints a line on stderr, prefixed with the name of the `stage`, above the live line if any."""

    def say(text: str) -> None:
        from tqdm import tqdm

        tqdm.write(f"{stage}: {text}", file=sys.stderr)

    return say

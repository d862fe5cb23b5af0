"""Long measurements: a journal of finished pieces, so that a killed run can continue, and progress in words."""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from gemmrepro.core.files import write_atomic, write_json


def fresh_seeds(count: int) -> list[int]:
    """`count` unpredictable seeds, so that no kernel can be tuned to them; verdicts record them for a rerun."""
    return [secrets.randbits(31) for _ in range(count)]


UNFINISHED = 75
"""Exit code of a sweep that ran out of its time budget (EX_TEMPFAIL of sysexits.h): run it again to continue."""


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _owner(folder: Path) -> dict[str, str]:
    """The machine of the journal in `folder`; {} if there is none, or it does not say."""
    try:
        owner = json.loads((folder / "machine.json").read_text())
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _named(machine: Mapping[str, str]) -> str:
    """A machine in words; a journal from before cards were told apart has none."""
    card = machine.get("card")
    which = f", card {card}," if card else ""
    return f"{machine.get('gpu')}{which} with driver {machine.get('driver')}"


def card_of(folder: Path) -> str:
    """The card that the journal in `folder` belongs to, as `gpu.slots.anonymous` names it; empty if none."""
    return _owner(folder).get("card", "")


class Journal:
    """Finished pieces of a measurement on one machine, one file each."""

    def __init__(self, folder: Path, machine: dict[str, str], say: Callable[[str], None]) -> None:
        """Open or create the journal in `folder`; one of another `machine` (gpu, driver, card) is renamed, and said."""
        self.folder, self._say = Path(folder), say
        meta = self.folder / "machine.json"
        if meta.exists() or (self.folder.is_dir() and any(self.folder.iterdir())):
            owner = _owner(self.folder) or {"gpu": "an unknown GPU", "driver": "unknown"}
            if owner != machine:
                number = 1
                while (aside := self.folder.with_name(f"{self.folder.name}.set-aside-{number}")).exists():
                    number += 1
                self.folder.rename(aside)
                say(
                    f"the journal {self.folder} belongs to {_named(owner)}, and this is {_named(machine)}; it was set "
                    f"aside as {aside.name} and a new one begun"
                )
        if not meta.exists():
            write_json(meta, machine)

    def get(self, name: str, identity: dict[str, Any]) -> dict[str, Any] | None:
        """The payload of entry `name`; None if it is missing, of another `identity`, or corrupt, and then renamed."""
        path = self.folder / f"{name}.json"
        try:
            entry = json.loads(path.read_text())
            if entry["sha256"] != _digest([entry["identity"], entry["payload"]]):
                raise ValueError("its checksum does not fit its content")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._say(f"the journal entry {path.name} is corrupt ({error}); it is measured again")
            path.rename(path.with_suffix(".corrupt"))
            return None
        return entry["payload"] if entry["identity"] == identity else None

    def put(self, name: str, identity: dict[str, Any], payload: dict[str, Any]) -> None:
        """Add an entry; it is complete on disk when this returns."""
        entry = {"identity": identity, "payload": payload, "sha256": _digest([identity, payload])}
        write_atomic(self.folder / f"{name}.json", json.dumps(entry) + "\n")


def end_with_parent() -> None:
    """Have Linux end this process when its parent ends, even by SIGKILL, so that no orphan keeps the GPU."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, linux/prctl.h
    if os.getppid() == 1:
        sys.exit(1)


def sayer(stage: str) -> Callable[[str], None]:
    """A function that prints a line on stderr, prefixed with the name of the `stage`, above the live line if any."""

    def say(text: str) -> None:
        line = f"{stage}: {text}"
        if "tqdm" in sys.modules:
            sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
        else:
            print(line, file=sys.stderr, flush=True)

    return say


SECONDS = 10.0
"""From one line in a log to the next, at least."""

_IN_A_LOG = "{desc}: {n_fmt}/{total_fmt} points, {elapsed} spent, {remaining} left"
_LIVE = "{desc}: {n_fmt}/{total_fmt} points |{bar:30}| {elapsed} spent, {remaining} left"


class Progress:
    """Counts pieces of a measurement on stderr, `done` of them before: a live line in a terminal, lines in a log.
    The rest is taken to last as long a piece as what was finished since the start."""

    def __init__(self, stage: str, total: int, done: int = 0) -> None:
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

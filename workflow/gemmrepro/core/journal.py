"""A journal of finished pieces of a long measurement, one small file each, so that a killed run can continue."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
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
        """Open or create the journal in `folder`.

        A journal of another machine is renamed, and `say` reports it.

        Args:
            machine: {gpu, driver, card}; a CPU has no card.
            say: prints a line of progress.
        """
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
        """The payload of entry `name`, or None if it is missing, corrupt, or of another `identity`.

        A corrupt entry is reported and renamed, so that only this entry is measured again.
        """
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
    """A function that prints a line of progress on stderr, prefixed with the name of the `stage`."""

    def say(text: str) -> None:
        print(f"{stage}: {text}", file=sys.stderr, flush=True)

    return say

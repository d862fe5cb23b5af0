"""Finished pieces of a long measurement, one small file each, so that a killed run continues where it stopped."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmrepro.core.files import write_atomic, write_json


def fresh_seeds(count: int) -> list[int]:
    """`count` seeds nobody could have tuned for; the report records them, so a failure can be run again."""
    return [secrets.randbits(31) for _ in range(count)]


UNFINISHED = 75
"""Exit code of a sweep whose time budget ended before its points (sysexits' EX_TEMPFAIL): run it again."""


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Journal:
    """Finished pieces of a sweep, one file each."""

    def __init__(self, folder: Path, machine: dict[str, str], say: Callable[[str], None]) -> None:
        """Open or begin a journal for `machine` (GPU and driver). One of another machine is set aside, and said so."""
        self.folder, self._say = Path(folder), say
        meta = self.folder / "machine.json"
        if meta.exists() or (self.folder.is_dir() and any(self.folder.iterdir())):
            try:
                owner = json.loads(meta.read_text())
            except (OSError, ValueError):
                owner = {"gpu": "an unknown GPU", "driver": "unknown"}
            if owner != machine:
                number = 1
                while (aside := self.folder.with_name(f"{self.folder.name}.set-aside-{number}")).exists():
                    number += 1
                self.folder.rename(aside)
                say(
                    f"the journal {self.folder} belongs to {owner.get('gpu')} with driver {owner.get('driver')}, and "
                    f"this is {machine['gpu']} with {machine['driver']}; it was set aside as {aside.name} and a new "
                    "one begun"
                )
        if not meta.exists():
            write_json(meta, machine)

    def get(self, name: str, identity: dict[str, Any]) -> dict[str, Any] | None:
        """The payload of entry `name` if it is there, whole, and was made under `identity`; else None.

        A corrupt entry is reported and moved out of the way, so that only it is measured again.
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
        """Add an entry; it is on the disk, whole, when this returns."""
        entry = {"identity": identity, "payload": payload, "sha256": _digest([identity, payload])}
        write_atomic(self.folder / f"{name}.json", json.dumps(entry) + "\n")


def end_with_parent() -> None:
    """Have the kernel end this process when its parent ends, even by SIGKILL: nobody would be left to stop it."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, linux/prctl.h
    if os.getppid() == 1:
        sys.exit(1)


def sayer(stage: str) -> Callable[[str], None]:
    """A function that prints a line of a stage's progress on stderr."""

    def say(text: str) -> None:
        print(f"{stage}: {text}", file=sys.stderr, flush=True)

    return say

"""A GPU of its own for each stage that measures.

The first process of a stage claims a GPU that no other stage has claimed, and makes it the only one that it and its
children see (``CUDA_VISIBLE_DEVICES``). A scheduler that has given the process one GPU is obeyed. A stage that finds
all of them claimed waits, having started and imported its libraries: a GPU idles only while the next stage opens it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmrepro.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"
EXPECTED = "GEMMREPRO_GPU"
"""The environment variable with the model that a run was planned for, where that is not the planning machine's."""

CLAIMED = "GEMMREPRO_CLAIMED"
"""The environment variable with the GPU that a parent has claimed, for its children."""

PAUSE = 0.1
"""Seconds between two looks for a free GPU."""

_held: list[int] = []
"""Locks of this process, open until it ends."""


@dataclass(frozen=True)
class Card:
    """A GPU as the driver lists it: its model and its UUID."""

    name: str
    uuid: str


def usable(cards: Sequence[Card], visible: str | None) -> list[str]:
    """The GPUs that jobs may be spread over, as ``CUDA_VISIBLE_DEVICES`` names them.

    These are the ones that it lists already; where it is not set (`visible` is None), those of the first one's model,
    since one recording holds the rows of one model.
    """
    if visible is None:
        return [card.uuid for card in cards if card.name == cards[0].name]
    listed = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry in ("", "-1", "NoDevFiles"):  # CUDA reads no further either
            break
        listed.append(entry)
    return listed


def claim(cards: Sequence[Card], environ: MutableMapping[str, str] | None = None, preferred: str = "") -> None:
    """Restrict this process and its children to one GPU that no other stage has claimed, until this process ends.

    It waits, with a message, while all are claimed. Of one GPU nothing is restricted, and it is claimed as well.

    Args:
        cards: the host's GPUs.
        environ: the environment to read and change; the process's own by default.
        preferred: the card, as `anonymous` names it, of a measurement to be continued. If the host has it, no other one
            is taken: what its journal holds would be measured again.
    """
    environ = os.environ if environ is None else environ
    if environ.get(CLAIMED):
        return
    # Numbers in CUDA_VISIBLE_DEVICES are then nvidia-smi's.
    environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    names = {name: _uuid(cards, name) for name in usable(cards, environ.get(VISIBLE))}
    own = {name: uuid for name, uuid in names.items() if anonymous(uuid) == preferred}
    if not names:
        return
    name = _first_free(own or names)
    environ[CLAIMED] = names[name]
    if len(names) > 1:
        environ[VISIBLE] = name


def _uuid(cards: Sequence[Card], name: str) -> str:
    """The UUID of a card that ``CUDA_VISIBLE_DEVICES`` names by its number or its UUID."""
    return cards[int(name)].uuid if name.isdecimal() and int(name) < len(cards) else name


def check_expected(name: str) -> None:
    """Raises UserError if the GPU `name` is not the model that the run was planned for."""
    expected = os.environ.get(EXPECTED)
    if expected and expected != name:
        raise UserError(
            f"this job got an {name}, and the configuration says gpu.name: {expected}; have the scheduler give it that "
            "model (resources such as gpu_model), or plan for this one. One recording holds one model's rows."
        )


def anonymous(uuid: str) -> str:
    """A card's name in recordings: 16 hex digits that tell cards apart and cannot be turned back into `uuid`."""
    return hashlib.sha256(f"gemmrepro {uuid}".encode()).hexdigest()[:16]


def _first_free(names: Mapping[str, str]) -> str:
    """The first of `names` whose GPU, by its UUID, is free; waits for one."""
    said = False
    while True:
        for name, uuid in names.items():
            if _take(uuid):
                return name
        if not said:
            which = "the GPU" if len(names) == 1 else "one of the GPUs"
            print(f"gemmrepro: waiting for {which}, which another stage holds", file=sys.stderr, flush=True)
            said = True
        time.sleep(PAUSE)


def _take(uuid: str) -> bool:
    path = Path(tempfile.gettempdir()) / f"gemmrepro-slot-{re.sub(r'[^0-9a-zA-Z]+', '-', uuid)}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return False
    _held.append(handle)
    return True

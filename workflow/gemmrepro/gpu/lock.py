"""Exclusive or shared use of a GPU among processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gemmrepro.gpu.device import Session


@contextlib.contextmanager
def exclusive(session: Session) -> Iterator[None]:
    """Hold the GPU exclusively among stages of this project, since a second job would disturb timings.

    It waits, with a message, while another process holds the GPU.
    """
    with _held(session, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def shared(session: Session) -> Iterator[None]:
    """Share the GPU with other stages that time nothing, and exclude those that need it exclusively."""
    with _held(session, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def _held(session: Session, how: int) -> Iterator[None]:
    path = Path(tempfile.gettempdir()) / f"gemmrepro-{re.sub(r'[^0-9a-zA-Z]+', '-', session.gpu.pci_bus)}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except OSError:
            print("gemmrepro: waiting for another stage that holds the GPU", file=sys.stderr, flush=True)
            fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)

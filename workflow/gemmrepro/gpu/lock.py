"""Exclusive or shared use of a GPU among processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator

from gemmrepro.core import locks
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
    file = locks.open_shared(session.gpu.card)
    try:
        if not locks.lock(file, how | fcntl.LOCK_NB):
            print("gemmrepro: waiting for another stage that holds the GPU", file=sys.stderr, flush=True)
            locks.lock(file, how)
        yield
    finally:
        os.close(file)

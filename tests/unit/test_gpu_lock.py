"""Stages that time hold the GPU alone; stages that check numbers hold it beside each other."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from gemmrepro.gpu import lock

PATIENCE = 120.0
"""Seconds for what is due at once, on a machine that is busy."""


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    return SimpleNamespace(gpu=SimpleNamespace(pci_bus="0000:1b:00.0"))


def started(hold, session) -> threading.Event:
    """Set once another thread has the GPU by `hold`."""
    entered = threading.Event()

    def enter():
        with hold(session):
            entered.set()

    threading.Thread(target=enter, daemon=True).start()
    return entered


def test_checks_run_beside_each_other(session):
    with lock.shared(session):
        assert started(lock.shared, session).wait(PATIENCE)


@pytest.mark.parametrize(
    ("held", "wanted"), [("shared", "exclusive"), ("exclusive", "shared"), ("exclusive", "exclusive")]
)
def test_timing_and_others_wait_for_each_other(held, wanted, session, capfd):
    """What says that it waits has tried the lock; it gets the GPU when the other one lets go."""
    said, end = "", time.monotonic() + PATIENCE
    with getattr(lock, held)(session):
        entered = started(getattr(lock, wanted), session)
        while "waiting for another stage" not in said and time.monotonic() < end:
            time.sleep(0.01)
            said += capfd.readouterr().err
        assert "waiting for another stage" in said and not entered.is_set()
    assert entered.wait(PATIENCE)

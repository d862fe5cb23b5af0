"""Stages that time hold the GPU alone; stages that check numbers hold it beside each other."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from gemmrepro.gpu import lock


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    return SimpleNamespace(gpu=SimpleNamespace(pci_bus="0000:1b:00.0"))


def waits(hold, session) -> bool:
    """Whether `hold` is kept waiting while the calling test holds the GPU."""
    entered = threading.Event()

    def enter():
        with hold(session):
            entered.set()

    waiting = threading.Thread(target=enter, daemon=True)
    waiting.start()
    return not entered.wait(0.5)


def test_checks_run_beside_each_other(session):
    with lock.shared(session):
        assert not waits(lock.shared, session)


def test_timing_waits_for_checks(session, capfd):
    with lock.shared(session):
        assert waits(lock.exclusive, session)
    assert "waiting for another stage" in capfd.readouterr().err


def test_all_wait_for_timing(session):
    with lock.exclusive(session):
        assert waits(lock.shared, session)
        assert waits(lock.exclusive, session)

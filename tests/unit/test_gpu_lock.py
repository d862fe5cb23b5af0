"""Stages that time hold the GPU alone; stages that check numbers hold it beside each other."""

import errno
import fcntl
import os
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmrepro.core import files
from gemmrepro.errors import UserError
from gemmrepro.gpu import device, slots

PATIENCE = 120.0
"""Seconds for what is due at once, on a machine that is busy."""


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return SimpleNamespace(gpu=SimpleNamespace(card="0123456789abcdef"))


def started(hold, session) -> threading.Event:
    """Set once another thread has the GPU by `hold`."""
    entered = threading.Event()

    def enter():
        with hold(session):
            entered.set()

    threading.Thread(target=enter, daemon=True).start()
    return entered


def test_checks_and_slices_of_a_card_do_not_wait_for_each_other(session):
    with device.shared(session):
        assert started(device.shared, session).wait(PATIENCE)
    with device.exclusive(session):
        other = SimpleNamespace(gpu=SimpleNamespace(card="fedcba9876543210"))
        assert started(device.exclusive, other).wait(PATIENCE)


@pytest.mark.parametrize(
    ("held", "wanted"), [("shared", "exclusive"), ("exclusive", "shared"), ("exclusive", "exclusive")]
)
def test_timing_and_others_wait_for_each_other(held, wanted, session, capfd):
    """What says that it waits has tried the lock; it gets the GPU when the other one lets go."""
    said, end = "", time.monotonic() + PATIENCE
    with getattr(device, held)(session):
        entered = started(getattr(device, wanted), session)
        while "waiting for another stage" not in said and time.monotonic() < end:
            time.sleep(0.01)
            said += capfd.readouterr().err
        assert "waiting for another stage" in said and not entered.is_set()
    assert entered.wait(PATIENCE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize("mode", [0o666, 0o644])
def test_the_next_user_of_a_host_waits_for_the_same_lock(mode, monkeypatch):
    """Whatever the first one's umask; files of mode 0644 lie about as well."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gemmrepro-a-b.lock"
        path.parent.chmod(0o1777)
        monkeypatch.setattr("tempfile.tempdir", folder)
        before = os.umask(0o077)
        first = files.open_shared("a:b")
        os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o666 and files.lock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.chmod(mode)
        os.setegid(65534)
        os.seteuid(65534)
        try:
            assert not files.lock(files.open_shared("a:b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.seteuid(0)
            os.setegid(0)


@pytest.mark.parametrize("hold", [device.exclusive, device.shared])
def test_a_link_in_the_locks_place_is_refused(hold, session, tmp_path):
    (tmp_path / "victim").touch()
    (tmp_path / "gemmrepro-0123456789abcdef.lock").symlink_to(tmp_path / "victim")
    with (
        pytest.raises(UserError, match=r"0123456789abcdef\.lock cannot be opened .*; have its owner remove it"),
        hold(session),
    ):
        pass


def test_a_file_system_without_locks_is_worth_one_warning(session, monkeypatch, capsys):
    def unable(file, how):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(files.fcntl, "flock", unable)
    monkeypatch.setattr(files, "_said", False)
    environ: dict[str, str] = {}
    slots.claim([slots.HostGpu("NVIDIA H200", 90, "GPU-1")], environ)
    assert environ[slots.CLAIMED] == "GPU-1"
    with device.exclusive(session), device.shared(session):
        pass
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "slot-GPU-1.lock cannot be locked (Function not implemented)" in said

"""A full disk is said in one sentence that names the folder and the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmrepro.errors import UserError
from gemmrepro.host import places

REAL = os.statvfs


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many blocks of 4 KiB every disk has left."""

    def set_to(blocks: int) -> None:
        def statvfs(folder: Path) -> os.statvfs_result:
            values = list(REAL(folder))
            values[1], values[4] = 4096, blocks
            return os.statvfs_result(values)

        monkeypatch.setattr(os, "statvfs", statvfs)

    return set_to


def test_a_disk_with_space_is_not_mentioned(left, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left(10**6)
    places.check_disks()
    assert list(places.full_disks()) == []


@pytest.mark.parametrize("blocks", [0, 3])
def test_a_full_disk_is_named_once(left, tmp_path, monkeypatch, capsys, blocks):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left(blocks)
    with pytest.raises(UserError, match=f"the disk that holds {tmp_path} is full .* run the same command again"):
        places.check_disks()
    assert len(list(places.full_disks())) == 1
    places.say_what_is_full()
    assert capsys.readouterr().err.startswith(f"gemmrepro: the disk that holds {tmp_path} is full")


def test_a_run_begins_with_more_than_a_failed_one_needs(left, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left(2000)
    assert list(places.full_disks()) == []
    with pytest.raises(UserError):
        places.check_disks()

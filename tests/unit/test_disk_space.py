"""A full disk is said in one sentence that names the folder and the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmrepro.errors import UserError
from gemmrepro.host import disk_space

REAL = os.statvfs


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Sets what every disk has left: blocks, and files."""

    def set_to(blocks: int, files: int) -> None:
        def statvfs(folder: Path) -> os.statvfs_result:
            values = list(REAL(folder))
            values[1], values[4], values[5], values[7] = 4096, blocks, 10**6, files
            return os.statvfs_result(values)

        monkeypatch.setattr(os, "statvfs", statvfs)

    return set_to


def test_a_disk_with_space_is_not_mentioned(left, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left(10**6, 10**6)
    disk_space.check()
    assert list(disk_space.full_disks()) == []


@pytest.mark.parametrize(("blocks", "files"), [(0, 10**6), (3, 10**6), (10**6, 0)])
def test_a_full_disk_is_named_once(left, tmp_path, monkeypatch, blocks, files):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left(blocks, files)
    with pytest.raises(UserError, match=f"the disk that holds {tmp_path} is full .* run the same command again"):
        disk_space.check()
    assert len(list(disk_space.full_disks())) == 1


def test_a_run_begins_with_more_than_a_failed_one_needs(left, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left(2000, 10**6)
    assert list(disk_space.full_disks()) == []
    with pytest.raises(UserError):
        disk_space.check()

"""The forms that a checkout comes in: clones with other line ends, archives within other repositories, other owners."""

import functools
import os
import re
import subprocess
from pathlib import Path

import pytest
from support import ROOT, call

from gemmrepro.core import machine
from gemmrepro.errors import UserError
from gemmrepro.host import places


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone as Git for Windows makes it."""
    place = tmp_path_factory.mktemp("clone") / "gemmrepro"
    done = call(["git", "clone", "-q", "-c", "core.autocrlf=true", str(ROOT), str(place)])
    assert done.returncode == 0, done.stdout
    return place


def _git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@x.x", "-c", "safe.directory=*", "-c", "core.fileMode=false")
    return subprocess.check_output(["git", *identity, *arguments], cwd=folder, text=True).strip()


def test_a_clone_has_the_same_bytes_whatever_autocrlf_says(clone: Path) -> None:
    ends = _git(clone, "ls-files", "--eol").splitlines()
    assert not [line for line in ends if "w/crlf" in line or "w/mixed" in line]
    assert "give a command" in call([str(clone / "envs/run")]).stdout
    _git(clone, "add", "--renormalize", ".")
    assert _git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize("other", ["nothing", "GIT_DIR", "owner", "mode"])
def test_a_clone_knows_its_commit(clone: Path, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "another")
    commit = _git(clone, "rev-parse", "HEAD")
    monkeypatch.setattr(machine, "ROOT", clone)
    if other == "GIT_DIR":
        monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
        monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    elif other == "owner":
        if os.geteuid():
            pytest.skip("only root can give files away")
        for path in (clone, clone / ".git"):
            os.chown(path, 12345, 12345)
    elif other == "mode":
        (clone / "README.md").chmod(0o755)
    assert machine.git_commit() == commit


def test_changes_count(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ROOT", clone)
    with (clone / "README.md").open("a") as file:
        file.write("changed\n")
    assert machine.git_commit() == _git(clone, "rev-parse", "HEAD") + "+changes"
    _git(clone, "checkout", "README.md")


@pytest.mark.parametrize("within", [".", "below"])
@pytest.mark.parametrize("told", ["", "0" * 40])
def test_an_archive_has_no_commit_of_the_repository_around_it(within, told, tmp_path, monkeypatch):
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "another")
    place = tmp_path / within
    place.mkdir(exist_ok=True)
    archive = subprocess.check_output(["git", "archive", "HEAD", "workflow"], cwd=ROOT)
    subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
    if within == "below":
        _git(tmp_path, "add", ".")
        _git(tmp_path, "commit", "-q", "-m", "a copy")
    monkeypatch.setattr(machine, "ROOT", place)
    monkeypatch.setenv("GEMMREPRO_COMMIT", told)
    assert machine.git_commit() == (told or None)


@pytest.mark.parametrize(
    ("folder", "letter"),
    [
        ("/a:b", ":"),
        ("/a\\b", "\\\\"),
        ("/it's $HOME", "$"),
        ("/a,b", ""),
        ("/a$b{c}[d]%#&;*é", ""),
    ],
)
def test_a_path_that_a_container_cannot_be_given_is_refused(folder: str, letter: str) -> None:
    """Each was tried with Apptainer 1.4.5, quoted as Snakemake quotes it."""
    check = functools.partial(places.check_paths, containers=True, folder=Path(folder), root=Path(folder))
    if not letter:
        check()
        check(bound=[Path(folder) / "cache"])
        return
    with pytest.raises(UserError, match=re.escape(f'has a "{letter}"')):
        check()


def test_another_processor_and_another_encoding_are_refused_in_a_line() -> None:
    places.check_machine("x86_64")
    with pytest.raises(UserError, match=r"this one is aarch64: the locks of Apptainer, .* docs/hosts-and-images\.md"):
        places.check_machine("aarch64")
    places.check_encoding("UTF8")
    with pytest.raises(UserError, match=r"reads text as ANSI_X3\.4-1968, .*; run `export LC_ALL=C\.UTF-8`"):
        places.check_encoding("ANSI_X3.4-1968")


@pytest.mark.parametrize(
    ("blocks", "failed", "begins"), [(10**6, 0, True), (2000, 0, False), (3, 1, False), (0, 0, True)]
)
def test_a_full_disk_is_named_once_and_a_run_begins_with_more_than_a_failed_one_needs(
    blocks: int, failed: int, begins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Every disk has `blocks` of 4 KiB, all left; one with none, such as /proc, tells no size."""
    values = list(os.statvfs(tmp_path))
    values[1], values[2], values[4] = 4096, blocks, blocks
    monkeypatch.setattr(os, "statvfs", lambda folder: os.statvfs_result(values))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert len(list(places.full_disks())) == failed
    places.say_what_is_full()
    assert capsys.readouterr().err.count(f"gemmrepro: the disk that holds {tmp_path} is full") == failed
    if begins:
        places.check_disks()
    else:
        with pytest.raises(UserError, match=f"the disk that holds {tmp_path} is full .* run the same command again"):
            places.check_disks()

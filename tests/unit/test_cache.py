"""The cache of finished builds: what it holds, what it does with damage, and how it is bounded."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gemmrepro import registry
from gemmrepro.build import cache
from gemmrepro.build.cache import Cache
from gemmrepro.build.toolkit import Toolkit
from gemmrepro.errors import UserError
from gemmrepro.host import command_line
from gemmrepro.host.containers import build_cache

FILES = {".fatbin": bytes(range(256)) * 40, ".sass": b"code\n", ".json": b"{}\n"}
KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def kept(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 10**6)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: b"0" * 64 + data[64:],
        lambda data: b"",
    ],
    ids=["cut", "a bit", "another head", "emptied"],
)
def test_a_damaged_entry_or_one_of_anothers_name_is_none_and_goes(damage, kept):
    assert kept.get(KEY) is None
    kept.put(KEY, FILES)
    kept.put(OTHER, {"a": b"b"})
    assert (kept.get(KEY), kept.get(OTHER)) == (FILES, {"a": b"b"})
    first, second = sorted(path for path in kept.folder.rglob("*") if path.is_file())
    second.write_bytes(first.read_bytes())
    first.write_bytes(damage(first.read_bytes()))
    assert kept.get(KEY) is None and kept.get(OTHER) is None and not first.exists()


def test_a_folder_that_cannot_be_made_keeps_nothing_and_a_key_is_no_path(tmp_path):
    (tmp_path / "file").touch()
    nowhere = Cache(tmp_path / "file/cache", 100)
    nowhere.put(KEY, FILES)
    assert nowhere.get(KEY) is None
    with pytest.raises(ValueError, match=r"'\.\./x' is no key"):
        nowhere.get("../x")


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    noise = os.urandom(3000)
    kept = Cache(tmp_path, 7000)
    names = [f"{number:016x}" for number in range(3)]
    for age, key in enumerate(names):
        kept.put(key, {"a": noise})
        os.utime(kept.folder / key[:2] / key, (age, age))
    assert kept.get(names[0])  # used now
    kept.trim()
    assert [kept.get(key) is not None for key in names] == [True, False, True]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (["results/gates/ladder.smem.json"], {"ladder.smem"}),
        (["results/build/cuda13/ada.scalar.sass", "results/gates/numeric/crt.fused.json"], {"ada.scalar", "crt.fused"}),
        (["results/gates/ladder.smem.json", "report"], set()),
        (["report"], set()),
    ],
)
def test_a_command_is_about_some_kernels_if_it_names_only_their_files(named, expected):
    assert command_line.only(["--cores", "1", "--config", "measure=recorded", "--", *named], {}, True) == expected


def test_the_jobs_of_a_run_take_over_what_it_is_about():
    handed = {command_line.ONLY: "ladder.smem"}
    assert command_line.only(["--target-jobs", "build_ladder_cuda12:"], handed, False) == {"ladder.smem"}
    assert command_line.only(["report"], handed, True) == set()


def test_containers_see_a_cache_outside_the_checkout(tmp_path):
    outside = build_cache({"folder": str(tmp_path), "megabytes": 100}, {"APPTAINER_BIND": "/data"})
    assert outside["APPTAINER_BIND"] == f"/data,{tmp_path}"
    assert outside[cache.CACHE] == str(tmp_path)
    assert "APPTAINER_BIND" not in build_cache({"folder": str(tmp_path), "megabytes": 1}, outside)


@pytest.mark.parametrize("folder", ["~nouser/x", "a\0b", "/dev/null/x"])
def test_a_folder_that_cannot_be_is_refused_by_its_key(folder):
    with pytest.raises(UserError, match=r"build_cache\.folder: '.*' cannot be made \(.+\); name a folder"):
        build_cache({"folder": folder, "megabytes": 100}, {})


TOOLKIT = Toolkit("cuda13", "13.4.92", frozenset({"80", "86", "90", "100"}))
NAIVE = registry.kernel("ladder.naive")


def test_the_key_of_a_build_holds_all_that_determines_it(monkeypatch, tmp_path):
    def key(kernel=NAIVE, toolkit=TOOLKIT, archs=("90",)):
        return cache.entry_key(kernel, toolkit, archs)

    edited = tmp_path / "edited.cu"
    edited.write_text(NAIVE.source_path.read_text() + "__device__ int edited;\n")
    keys = [
        key(),
        key(archs=("80", "90")),
        key(toolkit=replace(TOOLKIT, version="13.5.0")),
        key(kernel=replace(NAIVE, source=str(edited))),
        key(kernel=replace(NAIVE, code=replace(NAIVE.code, flags=("-G",)))),
        key(kernel=registry.kernel("ladder.coalesced")),
    ]
    monkeypatch.setattr(cache, "code_of", lambda *compilers: "edited")
    keys.append(key())
    assert len(set(keys)) == len(keys)

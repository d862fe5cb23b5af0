"""Bundles: genuine ones are filed whole, fakes leave nothing behind."""

import io
import json
import re
import shutil
import stat
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support import ROOT
from synthetic import write_build

from gemmrepro import __main__ as command
from gemmrepro.errors import UserError
from gemmrepro.measure.recording import check_manifest, digest
from gemmrepro.measure.regimes import takes
from gemmrepro.recordings.bundles import INDEX, accept, members, read_bundle, write_bundle
from gemmrepro.recordings.sweeps import read_summary

H200 = ROOT / "reports/recorded/h200"


def write_builds(folder: Path, *families: str) -> Path:
    """Build records with the keys of what was measured in turn."""
    for row in (row for family in families for row in read_summary(H200 / family)):
        if row["toolkit"] != "library":
            write_build(folder, row["kernel"], row["toolkit"], row["build_key"])
    return folder


@pytest.fixture(scope="module")
def binaries(tmp_path_factory) -> Path:
    return write_builds(tmp_path_factory.mktemp("build"), "ceilings", "crt", "ozaki")


@pytest.fixture
def card(tmp_path) -> Path:
    """The recordings of two families."""
    for family in ("ceilings", "ozaki"):
        shutil.copytree(H200 / family, tmp_path / "made/h200" / family)
    return tmp_path / "made/h200"


@pytest.fixture
def strangers(monkeypatch, tmp_path) -> None:
    """The project holds no recordings of its own."""
    monkeypatch.setattr("gemmrepro.recordings.bundles.RECORDINGS", tmp_path / "none")


def test_a_genuine_bundle_is_filed_whole(card, binaries, tmp_path, capsys):
    write_bundle(card, tmp_path / "b.zip")
    again = tmp_path / "again.zip"
    write_bundle(card, again)
    assert again.read_bytes() == (tmp_path / "b.zip").read_bytes(), "the same recordings give the same bytes"
    out = tmp_path / "recorded"
    asked = [str(tmp_path / "b.zip"), "--build", str(binaries), "--recordings", str(out)]
    assert command.run(["accept", *asked]) == 0
    assert "ceilings, ozaki of NVIDIA H200 filed under" in capsys.readouterr().out
    assert members(out / "h200") == members(card)
    check_manifest(out / "h200" / "ozaki")
    assert [path.name for path in out.iterdir()] == ["h200"], "nothing else is left"
    with pytest.raises(UserError, match=r"ceilings, ozaki is recorded in .* already; give --replace"):
        command.run(["accept", *asked])
    (out / "h200" / "memory").mkdir()
    assert command.run(["accept", *asked, "--replace"]) == 0
    assert (out / "h200" / "memory").is_dir(), "families that are not in the bundle stay"


def test_rows_of_other_builds_are_refused_but_for_the_projects_own(tmp_path, request):
    """Among them takes of the regimes whose rows are of earlier builds."""
    write_bundle(ROOT / "reports/recorded/h100-80gb-hbm3", tmp_path / "b.zip", ["hopper"])
    bundle, build = read_bundle(tmp_path / "b.zip"), tmp_path / "build"
    assert accept(bundle, tmp_path / "own", build).is_dir()
    request.getfixturevalue("strangers")
    with pytest.raises(UserError, match=r"\d+ of \d+ rows of ceilings are of no binary in .*, the first ceilings\."):
        accept(bundle, tmp_path / "recorded", build)
    assert not list((tmp_path / "recorded").iterdir())


def test_foreign_rows_may_be_of_an_earlier_build_where_a_later_take_supersedes_them(tmp_path, strangers):
    build = write_builds(tmp_path / "build", "hopper", "ceilings")
    for family in ("ceilings", "hopper"):
        shutil.copytree(H200 / family, tmp_path / "h200" / family)
    kept = takes(tmp_path / "h200", "hopper")[5::4]
    for take in set(takes(tmp_path / "h200", "hopper")) - set(kept):
        shutil.rmtree(take)
    write_bundle(tmp_path / "h200", tmp_path / "both.zip")
    accept(read_bundle(tmp_path / "both.zip"), tmp_path / "recorded", build)
    shutil.rmtree(kept[1])
    write_bundle(tmp_path / "h200", tmp_path / "earlier.zip")
    with pytest.raises(UserError, match=r"10 of \d+ rows of hopper are of no binary"):
        accept(read_bundle(tmp_path / "earlier.zip"), tmp_path / "other", build)


def test_synthetic_rows_are_filed_by_tests_alone_and_a_bundle_needs_ceilings(card, binaries, tmp_path, monkeypatch):
    run = json.loads((card / "ozaki/run.json").read_text())
    (card / "ozaki/run.json").write_text(json.dumps({**run, "synthetic": True}))
    write_bundle(card, tmp_path / "b.zip")
    bundle = read_bundle(tmp_path / "b.zip")
    with pytest.raises(UserError, match=r"nothing was filed: .*ozaki/run\.json is synthetic"):
        accept(bundle, tmp_path / "recorded", binaries)
    monkeypatch.setattr("gemmrepro.measure.recording.SYNTHETIC", True)
    filed = accept(bundle, tmp_path / "recorded", binaries)
    before, rename = sorted(filed.rglob("*")), Path.rename
    with monkeypatch.context() as patched:  # the new folder cannot take the old one's place
        patched.setattr(Path, "rename", lambda path, to: rename(path, to / "none" if path.name == "new" else to))
        with pytest.raises(OSError, match="none"):
            accept(bundle, tmp_path / "recorded", binaries, replace=True)
    assert sorted(filed.rglob("*")) == before
    shutil.rmtree(card / "ceilings")
    with pytest.raises(UserError, match="has no recorded ceilings"):
        write_bundle(card, tmp_path / "b.zip")


@pytest.fixture
def finished(card, tmp_path) -> Path:
    """What a live run leaves: rows and an experiment of its own, an experiment from recordings, an empty family."""
    results, gpu = tmp_path / "results", {"name": "NVIDIA H200"}
    shutil.copytree(card, results / "measure")
    (results / "measure/memory").mkdir()
    (results / "measure/memory/run.json").write_text('{"source": "none"}')
    (results / "experiments/ozaki").mkdir(parents=True)
    for name, source in (("products", "live"), ("accuracy", "recorded")):
        (results / f"experiments/ozaki/{name}.csv").write_text("a\n1\n")
        (results / f"experiments/ozaki/{name}.json").write_text(json.dumps({"source": source, "gpu": gpu}))
    verdict = {"kernel": "ozaki.x", "gpu": gpu["name"], "driver": "9", "toolkits": {}}
    (results / "gates/numeric/ozaki").mkdir(parents=True)
    (results / "gates/numeric/ozaki/ozaki.x.json").write_text(json.dumps(verdict))
    return results


def test_a_live_run_is_bundled_without_what_it_took_from_recordings(finished, tmp_path, capsys):
    out = tmp_path / "mine.zip"
    assert command.run(["bundle", str(out), "--results", str(finished)]) == 0
    assert "ceilings, ozaki on h200" in capsys.readouterr().out
    bundle = read_bundle(out)
    names = {name.removeprefix("ozaki/") for name in bundle.files if name.startswith("ozaki/")}
    rows = {"summary.csv", "samples.parquet", "run.json", "counters.csv"}
    assert names == {*rows, "gates.json", "experiments/products.csv", "experiments/products.json"}
    assert json.loads(bundle.files["ozaki/gates.json"]).keys() == {"ozaki.x"}


def test_a_run_that_lost_a_file_or_measured_nothing_or_on_two_gpus_is_not_bundled(finished, tmp_path):
    command_line = ["bundle", str(tmp_path / "mine.zip"), "--results", str(finished)]
    other = finished / "experiments/ozaki/products.json"
    told = other.read_text()
    other.write_text(told.replace("H200", "B200"))
    with pytest.raises(UserError, match="was measured on NVIDIA B200 and NVIDIA H200; a bundle is of one kind of GPU"):
        command.run(command_line)
    other.write_text(told)
    (finished / "measure/ozaki/samples.parquet").unlink()
    with pytest.raises(UserError, match=r"ozaki/samples\.parquet is missing; run the workflow again"):
        command.run(command_line)
    for run in finished.glob("measure/*/run.json"):
        run.write_text(run.read_text().replace('"source": "live"', '"source": "recorded"'))
    shutil.rmtree(finished / "experiments")
    with pytest.raises(UserError, match="holds nothing that was measured here; run the workflow on a machine"):
        command.run(command_line)
    assert not (tmp_path / "mine.zip").exists()


@pytest.fixture(scope="module")
def genuine(tmp_path_factory) -> dict[str, bytes]:
    """The members of a genuine bundle."""
    path = tmp_path_factory.mktemp("genuine") / "b.zip"
    write_bundle(H200, path, ["ozaki"])
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


Members = dict[str, bytes]
Fake = Callable[[Members], bytes]


def packed(members: Mapping[str, bytes], **fields: int) -> bytes:
    """A zip of these members; `fields` are set in each entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            for field, value in fields.items():
                setattr(entry, field, value)
            archive.writestr(entry, data)
    return buffer.getvalue()


def listed(members: Members, **index: object) -> Members:
    """The members with an index that fits them, but for the fields of `index`."""
    files = {name: digest(data) for name, data in members.items() if name != INDEX}
    old = json.loads(members[INDEX])
    return {**members, INDEX: json.dumps({**old, "files": files, **index}).encode()}


def added(name: str, data: bytes = b"x") -> Fake:
    return lambda members: packed(listed({**members, name: data}))


def replaced(suffix: str, change: Callable[[bytes], bytes]) -> Fake:
    """The first member with this ending changed, and the index with it."""

    def make(members: Members) -> bytes:
        name = next(name for name in sorted(members) if name.endswith(suffix) and name != INDEX)
        return packed(listed({**members, name: change(members[name])}))

    return make


def _twice(members: Members) -> bytes:
    buffer = io.BytesIO(packed(members))
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("ceilings/run.json", b"{}")
    return buffer.getvalue()


def _encrypted(members: Members) -> bytes:
    """The flag of encryption set in every entry of the directory."""
    return re.sub(rb"(PK\x01\x02.{4})(.)", lambda m: m[1] + bytes([m[2][0] | 1]), packed(members), flags=re.DOTALL)


def _edited_rows(data: bytes) -> bytes:
    lines = data.decode().split("\n")
    cells = lines[1].split(",")
    cells[11:14] = [f"{0.5 * float(cell):.6g}" for cell in cells[11:14]]
    return "\n".join([lines[0], ",".join(cells), *lines[2:]]).encode()


FAKES: dict[str, Fake] = {
    "no zip": lambda members: b"PK nothing",
    "encrypted": _encrypted,
    "path that leaves the folder": added("../../evil.py"),
    "path with a newline": added("ceilings/run.json\n"),
    "a program beside the rows": added("ceilings/family.py", b"print('ran')"),
    "symbolic links": lambda members: packed(members, external_attr=(stat.S_IFLNK | 0o777) << 16),
    "a member twice": _twice,
    "a member that unfolds into 300 MB": lambda members: packed(
        listed({**members, "memory/summary.csv": bytes(300 << 20)})
    ),
    "2,001 members": lambda members: packed(
        listed({**members, **{f"ceilings/experiments/e{i}.csv": b"" for i in range(2001)}})
    ),
    "a member that is not listed": lambda members: packed({**members, "ceilings/experiments/more.csv": b"x"}),
    "no index": lambda members: packed({n: d for n, d in members.items() if n != INDEX}),
    "index of another version": lambda members: packed(listed(members, version=2)),
    "GPU renamed in the index": lambda members: packed(listed(members, gpu="NVIDIA B200")),
    "GPU's name a path": lambda members: packed(listed(members, gpu="../../../etc")),
    "an unknown family": added("nothing/run.json", b"{}"),
    "no ceilings": lambda members: packed(
        listed({name: data for name, data in members.items() if not name.startswith("ceilings/")})
    ),
    "times halved in a row": replaced("summary.csv", _edited_rows),
    "JSON nested 100,000 deep": replaced("run.json", lambda data: b"[" * 100_000),
    "a hidden character in sanitizers' answers": replaced(
        "sanitizers.json", lambda data: data.replace(b'"clean"', b'"cle\xe2\x80\x8ban"', 1)
    ),
    "JSON with NaN": replaced("run.json", lambda data: data.replace(b"700.0", b"NaN")),
    "JSON with a key twice": replaced("run.json", lambda d: d.replace(b"{", b'{"source": "live", ', 1)),
    "a number of a million digits": replaced("run.json", lambda d: d.replace(b"132", b"1" * 1_000_000)),
    "control characters in a CSV": replaced("summary.csv", lambda data: data.replace(b"FFMA", b"\x1b[2J")),
    "rows of an unknown binary": replaced(
        "summary.csv", lambda d: re.sub(rb",[0-9a-f]{16},", b",%s," % (b"0" * 16), d)
    ),
    "an experiment that is not declared": added("ceilings/experiments/nothing.json", b'{"gpu": null}'),
}
"""Ways of faking a bundle: each takes a genuine bundle's members and returns the bytes of a fake."""


@pytest.mark.parametrize("fake", FAKES.values(), ids=FAKES)
def test_a_fake_of_a_bundle_is_refused_and_leaves_nothing(fake, genuine, binaries, tmp_path):
    path = tmp_path / "fake.zip"
    path.write_bytes(fake(dict(genuine)))
    with pytest.raises(UserError) as refusal:
        accept(read_bundle(path), tmp_path / "recorded", binaries)
    assert "\n" not in str(refusal.value)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]

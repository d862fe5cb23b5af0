"""Bundles: genuine ones are filed whole, fakes leave nothing behind."""

import json
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FAKES
from recordings import Recorded, drawn, pair, write
from support import ROOT
from synthetic import write_build

from gemmrepro import __main__ as command
from gemmrepro import operands, registry
from gemmrepro.errors import UserError
from gemmrepro.measure import derived
from gemmrepro.measure.recording import check_manifest
from gemmrepro.measure.regimes import takes
from gemmrepro.operations import shape_of
from gemmrepro.recordings.accept import accept
from gemmrepro.recordings.bundles import check_signature, members, read_bundle, sign, write_bundle
from gemmrepro.recordings.sweeps import read_summary

H200 = ROOT / "reports/recorded/h200"
CARD = {"name": "NVIDIA H100 PCIe", "sm_count": 114, "clock_max_mhz": 1755, "power_cap_w": 350.0, "driver": "9"}


class Ceiling(Recorded):
    """A micro-kernel's point: no baseline, and a rate that follows from its launch."""

    def row(self):
        kernel, times = self._kernel, derived.time_cells(self.times)
        shape = shape_of(kernel.compute.op, 1)
        rates = derived.rate_cells(times["median_us"], *operands.work(kernel, shape))
        naive = replace(pair()[0], times=self.times, baseline=self.times).row()
        none = dict.fromkeys(("baseline", "baseline_median_us", "ratio", "ratio_ci_low", "ratio_ci_high"))
        own = {"kernel": kernel.id, "family": "ceilings", "rung": kernel.rung, "m": shape.m, "n": shape.n, "k": shape.k}
        key = registry.keys.run_key(kernel, self.build_key, shape)
        return naive | own | none | times | rates | {"clock_mhz": 1755.0, "err_scaled_max": None, "run_key": key}


@pytest.fixture
def card(tmp_path) -> Path:
    """Recordings of another card by the project's own writer, and the builds that were measured."""
    folder = tmp_path / "made" / "h100-pcie"
    points = [replace(point, cells={"clock_mhz": 1700.0}) for point in pair()]
    write(folder / "ladder", points, gpu=CARD)
    floor = Ceiling("ceilings.ffma", 1, drawn(6000, 8), [[float("nan")] * 12] * 3)
    write(folder / "ceilings", [floor], gpu=CARD)
    for kernel in ("ladder.naive", "ceilings.ffma"):
        write_build(tmp_path / "build", kernel, "cuda13", "aaaa")
    return folder


def test_a_genuine_bundle_of_another_card_is_filed(card, tmp_path, capsys):
    write_bundle(card, tmp_path / "b.zip")
    again = tmp_path / "again.zip"
    write_bundle(card, again)
    assert again.read_bytes() == (tmp_path / "b.zip").read_bytes(), "the same recordings give the same bytes"
    out = tmp_path / "recorded"
    asked = [str(tmp_path / "b.zip"), "--build", str(tmp_path / "build"), "--recordings", str(out)]
    assert command.run(["accept", *asked]) == 0
    assert "ceilings, ladder of NVIDIA H100 PCIe filed under" in capsys.readouterr().out
    assert members(out / "h100-pcie") == members(card)
    check_manifest(out / "h100-pcie" / "ladder")
    assert [path.name for path in out.iterdir()] == ["h100-pcie"], "nothing else is left"
    with pytest.raises(UserError, match=r"ceilings, ladder is recorded in .* already; give --replace"):
        command.run(["accept", *asked])
    (out / "h100-pcie" / "memory").mkdir()
    assert command.run(["accept", *asked, "--replace"]) == 0
    assert (out / "h100-pcie" / "memory").is_dir(), "families that are not in the bundle stay"


def test_rows_of_other_builds_are_refused_unless_asked_for(card, tmp_path):
    write_bundle(card, tmp_path / "b.zip")
    shutil.rmtree(tmp_path / "build")
    bundle = read_bundle(tmp_path / "b.zip")
    with pytest.raises(UserError, match=r"1 of 1 rows of ceilings are of no binary in .*, the first ceilings\.ffma"):
        accept(bundle, tmp_path / "recorded", tmp_path / "build")
    assert not list((tmp_path / "recorded").iterdir())
    assert accept(bundle, tmp_path / "recorded", tmp_path / "build", stale=True).is_dir()


@pytest.mark.parametrize(("gpu", "family"), [("h200", "fp8"), ("h100-80gb-hbm3", "hopper")])
def test_the_projects_own_recordings_are_accepted_whatever_is_built(gpu, family, tmp_path):
    """Among them takes of the regimes whose rows are of earlier builds."""
    write_bundle(ROOT / "reports/recorded" / gpu, tmp_path / "b.zip", [family])
    assert accept(read_bundle(tmp_path / "b.zip"), tmp_path / "recorded", tmp_path / "build").is_dir()


def test_foreign_rows_may_be_of_an_earlier_build_where_a_later_take_supersedes_them(tmp_path, monkeypatch):
    monkeypatch.setattr("gemmrepro.recordings.accept.RECORDINGS", tmp_path / "none")
    for row in (*read_summary(H200 / "crt"), *read_summary(H200 / "ceilings")):
        if row["toolkit"] != "library":
            write_build(tmp_path / "build", row["kernel"], row["toolkit"], row["build_key"])
    for family in ("ceilings", "crt"):
        shutil.copytree(H200 / family, tmp_path / "h200" / family)
    kept = takes(tmp_path / "h200", "crt")[8:10]
    for take in set(takes(tmp_path / "h200", "crt")) - set(kept):
        shutil.rmtree(take)
    write_bundle(tmp_path / "h200", tmp_path / "both.zip")
    accept(read_bundle(tmp_path / "both.zip"), tmp_path / "recorded", tmp_path / "build")
    shutil.rmtree(kept[1])
    write_bundle(tmp_path / "h200", tmp_path / "earlier.zip")
    with pytest.raises(UserError, match=r"6 of 18 rows of crt are of no binary"):
        accept(read_bundle(tmp_path / "earlier.zip"), tmp_path / "other", tmp_path / "build")


def test_synthetic_rows_are_filed_by_tests_alone_and_a_bundle_needs_ceilings(card, tmp_path):
    run = json.loads((card / "ladder/run.json").read_text())
    (card / "ladder/run.json").write_text(json.dumps({**run, "synthetic": True}))
    write_bundle(card, tmp_path / "b.zip")
    bundle = read_bundle(tmp_path / "b.zip")
    with pytest.raises(UserError, match=r"nothing was filed: .*ladder/run\.json is synthetic"):
        accept(bundle, tmp_path / "recorded", tmp_path / "build")
    assert accept(bundle, tmp_path / "recorded", tmp_path / "build", synthetic=True).is_dir()
    shutil.rmtree(card / "ceilings")
    with pytest.raises(UserError, match="has no recorded ceilings"):
        write_bundle(card, tmp_path / "b.zip")


@pytest.fixture
def finished(card, tmp_path) -> Path:
    """What a live run leaves: rows and an experiment of its own, an experiment from recordings, an empty family."""
    results = tmp_path / "results"
    for family in ("ladder", "ceilings"):
        shutil.copytree(card / family, results / "measure" / family)
    (results / "measure/memory").mkdir()
    (results / "measure/memory/run.json").write_text('{"source": "none"}')
    experiments = results / "experiments/ladder"
    experiments.mkdir(parents=True)
    for name, source in (("waves", "live"), ("peak", "recorded")):
        (experiments / f"{name}.csv").write_text("a\n1\n")
        (experiments / f"{name}.json").write_text(json.dumps({"source": source, "gpu": {"name": CARD["name"]}}))
    verdict = {"kernel": "ladder.naive", "gpu": CARD["name"], "driver": "9", "toolkits": {}}
    (results / "gates/numeric/ladder").mkdir(parents=True)
    (results / "gates/numeric/ladder/ladder.naive.json").write_text(json.dumps(verdict))
    return results


def test_a_live_run_is_bundled_without_what_it_took_from_recordings(finished, tmp_path, capsys):
    out = tmp_path / "mine.zip"
    assert command.run(["bundle", str(out), "--results", str(finished)]) == 0
    assert "ceilings, ladder on h100-pcie" in capsys.readouterr().out
    bundle = read_bundle(out)
    names = {name.removeprefix("ladder/") for name in bundle.files if name.startswith("ladder/")}
    rows = {"summary.csv", "samples.parquet", "run.json", "counters.csv"}
    assert names == {*rows, "gates.json", "experiments/waves.csv", "experiments/waves.json"}
    assert json.loads(bundle.files["ladder/gates.json"]).keys() == {"ladder.naive"}


def test_a_run_that_lost_a_file_or_measured_nothing_is_not_bundled(finished, tmp_path):
    def refused(complaint):
        with pytest.raises(UserError, match=complaint):
            command.run(["bundle", str(tmp_path / "mine.zip"), "--results", str(finished)])
        assert not (tmp_path / "mine.zip").exists()

    (finished / "measure/ladder/samples.parquet").unlink()
    refused(r"ladder/samples\.parquet is missing; run the workflow again")
    for run in finished.glob("measure/*/run.json"):
        run.write_text(run.read_text().replace('"source": "live"', '"source": "recorded"'))
    shutil.rmtree(finished / "experiments")
    refused("holds nothing that was measured here; run the workflow on a machine")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_a_signature_names_who_made_a_bundle(card, tmp_path):
    write_bundle(card, tmp_path / "b.zip")
    for name in ("key", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"a@example.org {(tmp_path / 'key.pub').read_text()}")
    with pytest.raises(UserError, match="has no signature"):
        check_signature(tmp_path / "b.zip", signers, "a@example.org")
    assert sign(tmp_path / "b.zip", tmp_path / "key") == tmp_path / "b.zip.sig"
    signed = check_signature(tmp_path / "b.zip", signers, "a@example.org")
    with pytest.raises(UserError, match="ssh-keygen -Y verify says"):
        check_signature(tmp_path / "b.zip", signers, "b@example.org")
    (tmp_path / "b.zip").write_bytes((tmp_path / "b.zip").read_bytes() + b" ")
    assert read_bundle(tmp_path / "b.zip", signed).gpu == CARD["name"], "what was signed counts, not what came after"
    with pytest.raises(UserError, match="ssh-keygen -Y verify says"):
        check_signature(tmp_path / "b.zip", signers, "a@example.org")


@pytest.fixture(scope="module")
def binaries(tmp_path_factory) -> Path:
    """Build records with the keys of what was measured."""
    folder = tmp_path_factory.mktemp("build")
    for family in ("ceilings", "crt", "ozaki"):
        for row in read_summary(H200 / family):
            if row["toolkit"] != "library":
                write_build(folder, row["kernel"], row["toolkit"], row["build_key"])
    return folder


@pytest.fixture(scope="module")
def genuine(tmp_path_factory, binaries) -> dict[str, bytes]:
    """The members of a genuine bundle, which is accepted."""
    folder = tmp_path_factory.mktemp("genuine")
    write_bundle(H200, folder / "b.zip", ["ozaki"])
    accept(read_bundle(folder / "b.zip"), folder / "recorded", binaries)
    with zipfile.ZipFile(folder / "b.zip") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("fake", FAKES, ids=lambda fake: fake.name)
def test_a_fake_of_a_bundle_is_refused_and_leaves_nothing(fake, genuine, binaries, tmp_path):
    path = tmp_path / "fake.zip"
    path.write_bytes(fake.make(dict(genuine)))
    with pytest.raises(UserError) as refusal:
        accept(read_bundle(path), tmp_path / "recorded", binaries)
    assert "\n" not in str(refusal.value)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]
    assert not Path("/tmp/gemmrepro-was-here").exists(), "nothing in a bundle is run"

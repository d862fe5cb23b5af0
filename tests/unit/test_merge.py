"""A sweep of some kernels joins a recording whose other rows still hold."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support import ROOT

from gemmrepro.core import schemas
from gemmrepro.core.files import csv_text
from gemmrepro.measure.columns import COUNTER_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.recording import COUNTERS, RUN, SAMPLES, SUMMARY, read_rows, with_status
from gemmrepro.recordings import record
from gemmrepro.recordings.sweeps import read_summary

RECORDED = ROOT / "reports/recorded/h200/hopper"
NEW, STALE, KEPT = "hopper.by_size", "hopper.stream_k", "hopper.wgmma"
KEYS = ["kernel", "toolkit", "dtype", "m", "n", "k", "cache"]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A recording, and a sweep of NEW alone whose times are twice as long; STALE is stale and was not measured."""
    recorded, measured = tmp_path / "recorded", tmp_path / "measured"
    shutil.copytree(RECORDED, recorded)
    measured.mkdir()
    rows = [
        {**row, "median_us": str(2 * float(row["median_us"])), "ci_high_us": str(3 * float(row["ci_high_us"]))}
        for row in read_summary(RECORDED)
        if row["kernel"] == NEW
    ]
    (measured / SUMMARY).write_text(csv_text(rows, SUMMARY_COLUMNS))
    (measured / COUNTERS).write_text(csv_text([], COUNTER_COLUMNS))
    samples = pd.read_parquet(RECORDED / SAMPLES)
    samples[samples["kernel"] == NEW].assign(time_us=7.0).to_parquet(measured / SAMPLES, index=False)
    run = json.loads((RECORDED / RUN).read_text())
    (measured / RUN).write_text(json.dumps({**run, "date": "2030-01-01T00:00:00Z", "earlier": []}))
    monkeypatch.setattr(record, "mark", lambda rows, build: with_status(rows, lambda row: row["kernel"] != STALE))
    monkeypatch.setattr(record, "is_built", lambda kernel, toolkit, build: True)
    return recorded, measured


def test_new_rows_replace_old_ones_with_their_samples_and_stale_ones_go(folders) -> None:
    recorded, measured = folders
    record.merge(measured, recorded, recorded)
    old, rows = read_summary(RECORDED), read_summary(recorded)
    assert {row["kernel"] for row in rows} == {row["kernel"] for row in old} - {STALE}
    assert [row for row in rows if row["kernel"] == KEPT] == [row for row in old if row["kernel"] == KEPT]
    new = read_rows(measured / SUMMARY, SUMMARY_COLUMNS)
    assert sorted(row["median_us"] for row in rows if row["kernel"] == NEW) == sorted(row["median_us"] for row in new)
    assert not [row for row in read_rows(recorded / COUNTERS, COUNTER_COLUMNS) if row["kernel"] == STALE]
    samples = pd.read_parquet(recorded / SAMPLES)
    assert (samples.loc[samples["kernel"] == NEW, "time_us"] == 7.0).all()
    counts = samples.astype({name: str for name in ("m", "n", "k")}).groupby(KEYS).size()
    assert counts.to_dict() == {tuple(row[name] for name in KEYS): int(row["samples"]) for row in rows}
    run = json.loads((recorded / RUN).read_text())
    schemas.check(run, "run.schema.yaml", "run.json")
    kernels = {name for sweep in run["earlier"] for name in sweep["kernels"]}
    assert run["date"] == "2030-01-01T00:00:00Z" and KEPT in kernels and not {NEW, STALE} & kernels
    record.merge(measured, recorded, recorded)
    assert json.loads((recorded / RUN).read_text())["earlier"] == run["earlier"], "what was earlier stays so"


def test_rows_of_what_is_not_built_here_stay(folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of two toolkits to which one is added on a machine that has its binaries alone."""
    recorded, measured = folders
    monkeypatch.setattr(record, "is_built", lambda kernel, toolkit, build: kernel.id != STALE)
    record.merge(measured, recorded, recorded)
    assert {row["kernel"] for row in read_summary(recorded)} == {row["kernel"] for row in read_summary(RECORDED)}
    assert set(pd.read_parquet(recorded / SAMPLES)["kernel"]) == set(pd.read_parquet(RECORDED / SAMPLES)["kernel"])
    assert [row for row in read_rows(recorded / COUNTERS, COUNTER_COLUMNS) if row["kernel"] == STALE]


def test_what_was_never_merged_is_noted_with_its_own_circumstances(folders) -> None:
    recorded, measured = folders
    run = json.loads((recorded / RUN).read_text())
    run |= {"earlier": [], "date": "2029-01-01T00:00:00Z", "timing_modes": {"graphs": [f"{KEPT} x", f"{NEW} x"]}}
    (recorded / RUN).write_text(json.dumps(run))
    (measured / RUN).write_text(json.dumps(run | {"date": "2030-01-01T00:00:00Z", "timing_modes": {"single": []}}))
    record.merge(measured, recorded, recorded)
    merged = json.loads((recorded / RUN).read_text())
    (earlier,) = merged["earlier"]
    assert earlier["date"] == "2029-01-01T00:00:00Z" and KEPT in earlier["kernels"] and NEW not in earlier["kernels"]
    assert merged["timing_modes"] == {"single": [], "graphs": [f"{KEPT} x"]}


def test_kernels_without_current_rows_are_missing(folders, tmp_path: Path) -> None:
    recorded, _ = folders
    shutil.copytree(recorded, tmp_path / "gpu/hopper")
    sweep = yaml.safe_load((ROOT / "config/config.yaml").read_text())["sweep"]
    sweep |= {"toolkits": ["cuda13"], "toolkit_of": {}, "caches": ["warm"], "sizes_of": {}}

    def missing(sizes: list[int], slug: str = "gpu", **few: object) -> list[str]:
        config = {"sweep": {**sweep, "sizes": {"hopper": sizes}, "kernels_at": few}}
        options = {"out": tmp_path, "work": tmp_path, "build": recorded, "missing": True, "no_sweep": False}
        asked = Namespace(**options, experiments=[], regimes=False)
        return record.Family("hopper", asked, config, {"slug": slug}).timed

    absent = missing([1024, 4096])
    assert STALE in absent and KEPT not in absent
    assert KEPT in missing([1536])
    assert missing([1536], hopper={"sizes": [1536], "kernels": [STALE]}) == [STALE]
    assert set(absent) < set(missing([1024, 4096], "none"))

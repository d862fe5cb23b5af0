"""Recordings of a sweep: what is copied, what is marked stale, and what is refused, by row, with what would follow."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
import yaml
from recordings import RUN_JSON, Recorded, drawn, pair, reword, write
from support import ROOT
from synthetic import write_build

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import COUNTER_COLUMNS, SAMPLE_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.recording import (
    COUNTERS,
    FILES,
    RUN,
    SAMPLES,
    SUMMARY,
    check_manifest,
    read_rows,
    write_manifest,
)
from gemmrepro.measure.rows import load
from gemmrepro.recordings import sweeps
from gemmrepro.recordings.bring import bring_sweep
from gemmrepro.recordings.limits import Ceilings, check_gates, check_limits, limit
from gemmrepro.recordings.sweeps import ceilings_of, read_samples, read_whole

KERNEL, LIBRARY = pair()
WRONG = yaml.safe_load((Path(__file__).parent / "data/wrong_recordings.yaml").read_text())


COUNTER = dict(kernel="ladder.naive", toolkit="cuda13", m=256, n=256, k=256, build_key="aaaa", status="current")
COUNTER["run_key"] = KERNEL.row()["run_key"]
COUNTED = {
    "gpu__time_duration.sum": (140_000, "ns"),
    "dram__bytes.sum": (1_400_000, "byte"),
    "dram__bytes.sum.per_second": (1e10, "byte/s"),
    "sm__cycles_elapsed.max": (252_000, "cycle"),
    "lts__t_sector_hit_rate.pct": (80, "%"),
}
COUNTERS_OF = {name: COUNTER | dict(metric=name, value=value, unit=unit) for name, (value, unit) in COUNTED.items()}


@pytest.fixture
def folder(tmp_path):
    """A recording of the ladder's first kernel and its baseline; the kernel's binary is today's."""
    folder = tmp_path / "gpu" / "ladder"
    write(folder, [KERNEL, LIBRARY], COUNTERS_OF.values())
    write_build(tmp_path / "build", "ladder.naive", "cuda13", "aaaa")
    return folder


def read(folder):
    """As the recorded stage does, of a recording whose manifest lists what is there."""
    write_manifest(folder)
    return read_whole("ladder", folder, folder.parent.parent / "build")


def bring(folder, family="ladder", gpu="gpu"):
    root = folder.parent.parent
    if folder.is_dir():
        write_manifest(folder)
    return bring_sweep(family, root / gpu, root / "build", root / "out" / family)


def test_a_recording_of_todays_binary_is_current_and_of_another_one_stale(folder):
    """The status in the recording is ignored, not trusted."""
    out = folder.parent.parent / "out" / "ladder"
    for key, outdated in (("aaaa", 0), ("bbbb", 1)):
        write_build(folder.parent.parent / "build", "ladder.naive", "cuda13", key)
        assert bring(folder) == (2, outdated)
        status = "stale" if outdated else "current"
        assert [row["status"] for row in read_rows(out / SUMMARY, SUMMARY_COLUMNS)] == [status, "current"]
        assert {row["status"] for row in read_rows(out / COUNTERS, COUNTER_COLUMNS)} == {status}
    assert json.loads((out / RUN).read_text()) == {**RUN_JSON, "source": "recorded"}
    assert (out / SAMPLES).read_bytes() == (folder / SAMPLES).read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_truncated_file_is_named(folder, name):
    path = folder / name
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=rf"{name}.*(corrupt|cells|begin)"):
        bring(folder)
    path.unlink()
    with pytest.raises(UserError, match=rf"{name} is missing"):
        bring(folder)
    assert not (folder.parent.parent / "out").exists()


def test_a_family_that_was_not_recorded_has_no_rows_and_another_gpu_is_refused(folder):
    assert bring(folder, "ada") == (0, 0)
    out = folder.parent.parent / "out" / "ada"
    assert {path.name for path in out.iterdir()} == set(FILES)
    assert read_rows(out / SUMMARY, SUMMARY_COLUMNS) == read_rows(out / COUNTERS, COUNTER_COLUMNS) == []
    assert list(pd.read_parquet(out / SAMPLES).columns) == SAMPLE_COLUMNS
    assert json.loads((out / RUN).read_text()) == {"source": "none"} and load(out.parent, "ada").source == "none"
    for family, complaint in (("ladder", "recorded for gpu"), ("crt", "never was recorded")):
        with pytest.raises(UserError, match=complaint):
            bring(folder, family, "other")


@pytest.mark.parametrize(("line", "change", "complaint"), WRONG["row"])
def test_a_row_that_does_not_follow_is_refused(folder, line, change, complaint):
    reword(folder, line, **change)
    with pytest.raises(UserError, match=rf"line {line + 2} .*{complaint}"):
        read(folder)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lines: lines[:2], "it has no row of cublas.sgemm library fp32 256 256 256 warm, of which there are"),
        (lambda lines: [*lines, lines[1]], "line 4 of the recording .* it repeats ladder.naive"),
        (lambda lines: [*lines, lines[1].replace(",256,", ",0256,", 1)], "line 4 .*: '0256' is not of type 'integer'"),
        (lambda lines: [f"{lines[0]},more", *(f"{line},1" for line in lines[1:])], "does not begin with the columns"),
    ],
)
def test_a_table_of_other_rows_or_columns_is_refused(folder, change, complaint):
    path = folder / SUMMARY
    path.write_text("\n".join([*change(path.read_text().splitlines()), ""]))
    with pytest.raises(UserError, match=complaint):
        read(folder)


def test_rows_that_are_no_declared_kernels_are_stale(folder):
    """Declarations change after a recording: such a row supports nothing, and stops nothing."""
    other = replace(LIBRARY, kernel="cublas.gemm")
    write(folder, [KERNEL, other, Recorded("ladder.naive", 512, drawn(900, 5), drawn(20, 6), "gone")])
    assert [row["status"] for row in read(folder).rows] == ["current", "stale", "stale"]


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda s: s.assign(time_us=10 * s["time_us"]), "line 2 .* and its samples give"),
        (lambda s: s.assign(time_us=np.nan), "samples have no time_us|not positive and finite"),
        (lambda s: s.assign(time_us=-s["time_us"]), "not positive and finite"),
        (lambda s: s.assign(baseline_us=np.where(s["index"] == 3, np.nan, s["baseline_us"])), "have no partner"),
        (lambda s: s.assign(time_us=s["time_us"].astype(str)), "time_us holds"),
        (lambda s: pd.concat([s, s.head(12)]), "in several places"),
    ],
)
def test_samples_that_are_none_are_refused(folder, edit, complaint):
    path = folder / "samples.parquet"
    edit(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(UserError, match=complaint):
        read(folder)


def test_a_file_that_would_fill_the_memory_is_not_unfolded(folder, monkeypatch):
    """A million equal numbers take a few kilobytes of Parquet."""
    monkeypatch.setattr(sweeps, "MOST_BYTES", 64 << 20)
    table = pyarrow.table([pyarrow.array(np.zeros(1 << 20))] * len(SAMPLE_COLUMNS), names=SAMPLE_COLUMNS)
    pyarrow.parquet.write_table(table, folder / SAMPLES, compression="zstd")
    with pytest.raises(UserError, match="unfold into more than 64 MB"):
        read_samples(folder / SAMPLES)


@pytest.mark.parametrize(("change", "complaint"), WRONG["counter"])
def test_counters_that_cannot_be_are_refused(folder, change, complaint):
    assert len(read(folder).counters) == 5
    one = {"dram__bytes.sum": COUNTERS_OF["dram__bytes.sum"] | change}
    write(folder, [KERNEL, LIBRARY], (COUNTERS_OF | one).values())
    with pytest.raises(UserError, match=complaint):
        read(folder)


def of(kernel_id, tflops, arch="sm_90", **cells):
    """A current row of a kernel with a rate, as the checks of limits read it."""
    kernel = registry.kernel(kernel_id)
    row = {"kernel": kernel.id, "toolkit": "cuda13", "dtype": kernel.compute.dtype_in, "d": "", "arch": arch}
    row |= {"baseline": kernel.timing.baseline or "", "status": "current", "clock_mhz": "", "gbps": "", "cache": "warm"}
    return row | dict.fromkeys("mnk", "4096") | {"median_us": "100", "tflops": str(tflops)} | cells


def run_of(name, capability, sms, clock):
    gpu = {"name": name, "compute_capability": capability, "sm_count": sms, "clock_max_mhz": clock}
    return {**RUN_JSON, "gpu": {**RUN_JSON["gpu"], **gpu}}


def ceiling(tflops, clock, kernel="ceilings.mma_f16", **cells):
    return of(kernel, tflops, clock_mhz=str(clock), **cells)


RTX_4090 = run_of("NVIDIA GeForce RTX 4090", "8.9", 128, 3105)
HONEST = [
    (RTX_4090, [ceiling(168, 2600)], {"ada.half": 314, "cutile.k_major_int8": 594, "ada.packed_4x": 166}),
    (run_of("NVIDIA GeForce RTX 3060", "8.6", 28, 2115), [], {"ada.half": 48, "cutile.k_major_int8": 92}),
    (run_of("NVIDIA A100-SXM4-80GB", "8.0", 108, 1410), [ceiling(290, 1410)], {"ada.half": 281, "cute.base": 270}),
    (run_of("NVIDIA B200", "10.0", 148, 1965), [ceiling(900, 1965)], {"cutile.matmul_fp16": 1483}),
    (run_of("NVIDIA H200", "9.0", 132, 1980), [ceiling(616, 1890)], {"hopper.wgmma": 700, "ladder.warptile": 45}),
]
"""Cards by run.json, what their mma.sync ceiling measured, and rates that they reach at nine tenths of their peak."""


@pytest.mark.parametrize(("run", "ceilings", "rates"), HONEST, ids=[run["gpu"]["name"] for run, _, _ in HONEST])
def test_an_honest_rate_is_accepted_on_any_card_and_a_wrong_one_refused(run, ceilings, rates):
    known, arch = Ceilings.of(ceilings, run), "sm_" + run["gpu"]["compute_capability"].replace(".", "")
    for kernel, rate in rates.items():
        family = kernel.split(".")[0]
        check_limits(family, [of(kernel, rate, arch)], run, known, Path("summary.csv"))
        for factor in (1.7, 1000):
            with pytest.raises(UserError, match=rf"line 2 .*{kernel}.* exceeds the limit of .* sums: .* TFLOP/s above"):
                check_limits(family, [of(kernel, factor * rate, arch)], run, known, Path("summary.csv"))


def test_a_limit_says_where_it_comes_from_and_there_is_none_of_an_unknown_card():
    """GeForce halves fp16 with fp32 sums, by its data sheet; other Ada do not."""
    four, half = (registry.kernel(name) for name in ("ada.packed_4x", "ada.half"))
    for run, per_cycle in ((RTX_4090, 512), (run_of("NVIDIA L40S", "8.9", 128, 3105), 1024)):
        found = limit(four, run["gpu"], Ceilings())
        assert found.tflops == 128 * per_cycle * 3105 / 1e6 and run["gpu"]["name"] in found.source
    measured = Ceilings.of([ceiling(168, 2600)], RTX_4090)
    assert "ceilings.mma_f16" in limit(four, RTX_4090["gpu"], measured).source
    assert limit(half, RTX_4090["gpu"], measured) == limit(half, RTX_4090["gpu"], Ceilings())
    h200 = run_of("NVIDIA H200", "9.0", 132, 1980)["gpu"]
    for name in ("sgemm.tf32", "crt.fused_14", "ozaki.fused_bf16_d9"):  # by the narrow products that each is made of
        assert limit(registry.kernel(name), h200, Ceilings()).tflops == pytest.approx(132 * 8192 * 1980 / 1e6)
    unknown = {**RTX_4090["gpu"], "name": "Card X", "compute_capability": "13.0"}
    assert limit(half, unknown, Ceilings()) is None, "the rate is not checked"
    assert limit(half, {**RTX_4090["gpu"], "name": "NVIDIA X", "clock_max_mhz": None}, Ceilings()) is None


def test_a_ceiling_bounds_where_no_instruction_of_the_card_is_wider_and_its_clock_is_known():
    for capability, kernel, bounds in (
        *(("9.0", "ceilings.wgmma", True), ("9.0", "ceilings.mma_f16", False)),
        *(("10.0", "ceilings.mma_f16", False), ("10.0", "ceilings.ffma", True)),
    ):
        run = run_of("Card X", capability, 100, 2000)
        rates = Ceilings.of([ceiling(100, 1000, kernel)], run).rates
        assert [found.tflops for found in rates.values()] == [200] * bounds, (capability, kernel)
        assert not Ceilings.of([ceiling(100, "", kernel)], run).rates


def test_code_runs_on_no_earlier_minor_version():
    run, rows = run_of("Card X", "8.6", 100, 2000), [of("ladder.naive", 0.1, "sm_89")]
    with pytest.raises(UserError, match=r"sm_89 does not run on compute capability 8\.6"):
        check_limits("ladder", rows, run, Ceilings(), Path("summary.csv"))


CASE = {
    **{"shape": [128, 128, 8], "alpha": 1.0, "beta": 0.0, "inputs": "normal", "seed": 1},
    **{"err_scaled_max": 2.7, "gamma": 6.557e-07, "passed": True, "message": ""},
}
JUDGED = {"status": "passed", "build_key": "0" * 16, "gate_key": "1" * 16, "reason": "", "cases": [CASE]}


@pytest.mark.parametrize(("judged", "case", "complaint"), WRONG["verdict"])
def test_verdicts_follow_from_their_cases(tmp_path, judged, case, complaint):
    told = {**JUDGED, "cases": [CASE | case], **judged}
    verdict = {"kernel": "ladder.naive", "gpu": "G", "driver": "1", "toolkits": {"cuda13": told}}
    path = tmp_path / "gates.json"
    path.write_text(json.dumps({"ladder.naive": verdict}))
    with pytest.raises(UserError, match=complaint) if complaint else contextlib.nullcontext():
        check_gates("ladder", path, "G")
    with pytest.raises(UserError, match="given on G, and the recording is of H"):
        check_gates("ladder", path, "H")


def test_the_manifest_finds_what_changed_since(folder):
    check_manifest(folder)
    check_manifest(folder.parent / "nothing recorded", "gates.json")
    run, notes = folder / RUN, folder / "notes.txt"
    for change, said in (
        (lambda: notes.write_text("new"), r"notes\.txt is there and not listed"),
        (lambda: run.write_text(f"{run.read_text()}\n"), r"run\.json is corrupt: it is not the file that"),
        (lambda: run.unlink(), r"run\.json is listed and missing"),
        (lambda: (folder / "manifest.json").unlink(), r"manifest\.json is missing; restore it"),
    ):
        change()
        with pytest.raises(UserError, match=said):
            check_manifest(folder)
        if not notes.exists():
            with pytest.raises(UserError, match=said):
                read_whole("ladder", folder, folder.parent.parent / "build")
        notes.unlink(missing_ok=True)


CONFIG = RUN_JSON["config"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"config": {**CONFIG, "rounds": 5}}, r"ladder\.naive .* has 3 rounds, and run\.json 5"),
        ({"config": {**CONFIG, "sizes": {"ladder": [256, 512]}}}, r"no row of ladder\.naive cuda13 fp32 512.* warm"),
        ({"synthetic": True}, r"run\.json is synthetic: its rows were made for tests; measure on a GPU"),
        ({"gpu": {**RUN_JSON["gpu"], "clock_max_mhz": 900}}, "exceeds the limit of the GPU's clock: 1980.* above 900"),
        ({"gpu": {}}, "gpu: 'name' is a required property"),
        ({"gpu": {**RUN_JSON["gpu"], "name": "<b>"}}, "gpu.name: '<b>' does not match"),
    ],
)
def test_a_run_that_its_rows_do_not_follow_is_refused(folder, changes, complaint):
    edit_run(folder, **changes)
    with pytest.raises(UserError, match=complaint):
        read(folder)


def edit_run(folder, **changes):
    path = folder / RUN
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_points_may_be_skipped_for_a_reason_and_synthetic_rows_are_read_by_tests(folder, monkeypatch):
    skipped = [{"kernel": "ladder.naive", "toolkit": "cuda13", "reason": "it needs 12 GiB"}]
    edit_run(folder, config={**CONFIG, "sizes": {"ladder": [256, 512]}}, skipped=skipped)
    read(folder)
    edit_run(folder, synthetic=True)
    monkeypatch.setattr("gemmrepro.measure.recording.SYNTHETIC", True)
    assert read(folder).run["synthetic"]


def test_ceilings_are_those_of_the_same_gpu(tmp_path):
    assert ceilings_of(tmp_path, RUN_JSON) == Ceilings(), "none were recorded"
    shutil.copytree(ROOT / "reports/recorded/h200/ceilings", tmp_path / "ceilings")
    run = json.loads((tmp_path / "ceilings" / "run.json").read_text())
    assert ceilings_of(tmp_path, run).rates
    assert not ceilings_of(tmp_path, {**run, "gpu": {**run["gpu"], "name": "another"}}).rates
    (tmp_path / "ceilings" / "run.json").unlink()
    assert not ceilings_of(tmp_path, run).rates

"""What contradicts itself in a recording is refused, by row, with what would follow."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from recordings import RUN_JSON, Recorded, drawn, pair, reword, write
from synthetic import write_build

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.measure.checks.follows import mismatch
from gemmrepro.measure.checks.gates import check_gates
from gemmrepro.measure.checks.manifest import check_manifest, write_manifest
from gemmrepro.measure.checks.physics import Ceilings, check_limits, least_products
from gemmrepro.measure.checks.samples import read_samples
from gemmrepro.measure.checks.whole import ceilings_of, read_whole
from gemmrepro.measure.columns import COUNTER_COLUMNS, SAMPLE_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.recording import COUNTERS, FILES, RUN, SAMPLES, SUMMARY, read_rows, write_nothing

KERNEL, LIBRARY = pair()


@pytest.fixture
def folder(tmp_path):
    """A recording of the ladder's first kernel and its baseline; the kernel's binary is today's."""
    folder = tmp_path / "gpu" / "ladder"
    write(folder, [KERNEL, LIBRARY])
    write_build(tmp_path / "build", "ladder.naive", "cuda13", "aaaa")
    return folder


def read(folder):
    return read_whole("ladder", folder, folder.parent.parent / "build")


@pytest.mark.parametrize(
    ("line", "change", "complaint"),
    [
        (0, {"median_us": 139.9, "ci_low_us": 139, "ci_high_us": 140.5}, r"ci_low|median_us .*its samples give 1[34]"),
        (0, {"tflops": 0.4}, r"tflops of ladder\.naive .*is 0\.4 TFLOP/s, and the work gives 0\.2"),
        (0, {"gbps": 5.6e9}, r"gbps .*and the work gives 5\.6"),
        (0, {"tflops": ""}, r"tflops .*is empty, and the work gives"),
        (0, {"samples": 35}, r"samples .*is 35, and its samples give 36"),
        (0, {"rounds": 1}, r"rounds .*is 1, and its samples give 3"),
        (0, {"ratio_ci_low": 0.01}, r"ratio_ci_low .*is 0\.01, and its samples give 0\.04"),
        (0, {"baseline_median_us": 12.6}, r"baseline_median_us .*12\.6 µs, and its samples give 6\.3"),
        (0, {"baseline": "", "ratio": ""}, "has none of its samples' baseline"),
        (1, {"baseline": "cublas.sgemm", "ratio_ci_low": ""}, "ratio_ci_low .*is empty, and its samples give"),
        (0, {"build_key": "bbbb"}, "its build key is bbbb, and that of its samples aaaa"),
        (0, {"cache": "cold"}, "has no samples"),
        (0, {"m": 512}, "has no samples"),
        (0, {"family": "ada"}, "a row of family ada"),
        (1, {"clock_mhz": 1990}, "above the GPU's highest, 1980 MHz"),
        (1, {"power_w": 1051}, "above 1.5 times the cap of 700 W"),
        (1, {"temp_c": 400}, "none that a GPU runs at"),
        (1, {"arch": "sm_100a"}, "does not run on compute capability 9.0"),
    ],
)
def test_a_row_that_does_not_follow_is_refused(folder, line, change, complaint):
    reword(folder, line, **change)
    with pytest.raises(UserError, match=rf"line {line + 2} .*{complaint}"):
        read(folder)


def test_a_cell_that_no_sample_gives_is_said_with_its_unit():
    assert mismatch("median_us", "12.5", None) == "is 12.5 µs, and its samples give none"
    assert mismatch("median_us", "", 12.5) == "is empty, and its samples give 12.5 µs"
    assert mismatch("ratio", "2", 1.0) == "is 2, and its samples give 1"


def test_rows_that_are_no_declared_kernels_are_stale(folder):
    """Declarations change after a recording: such a row supports nothing, and stops nothing."""
    other = replace(LIBRARY, kernel="cublas.gemm")
    write(folder, [KERNEL, other, Recorded("ladder.naive", 512, drawn(900, 5), drawn(20, 6), "gone")])
    assert [row["status"] for row in read(folder).rows] == ["current", "stale", "stale"]


def test_rows_and_samples_are_of_the_same_points(folder):
    lines = (folder / "summary.csv").read_text().splitlines(keepends=True)
    (folder / "summary.csv").write_text("".join(lines[:2]))
    with pytest.raises(UserError, match=r"has no row of cublas\.sgemm library .*of which there are samples"):
        read(folder)


def _swap_rounds(samples):
    return samples.iloc[::-1].reset_index(drop=True)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda s: s.assign(time_us=10 * s["time_us"]), "line 2 .* and its samples give"),
        (lambda s: s.assign(time_us=np.nan), "samples have no time_us|not positive and finite"),
        (lambda s: s.assign(time_us=np.inf), "not positive and finite"),
        (lambda s: s.assign(time_us=-s["time_us"]), "not positive and finite"),
        (lambda s: s.assign(baseline_us=np.where(s["index"] == 3, np.nan, s["baseline_us"])), "have no partner"),
        (lambda s: s.assign(baseline_us=np.inf), "a baseline's time is not positive"),
        (lambda s: s.assign(time_us=s["time_us"].astype(str)), "time_us holds"),
        (lambda s: s.assign(time_us=None), "time_us holds null"),
        (lambda s: s.assign(baseline_us=s["baseline_us"].astype(str)), "baseline_us holds"),
        (lambda s: s[s["index"] != 5], "not counted from 0"),
        (lambda s: pd.concat([s, s.tail(1)]), "not counted from 0"),
        (lambda s: pd.concat([s, s.head(12)]), "in several places"),
        (lambda s: s[s["round"] != 1], "line 2 .* and its samples give"),
        (_swap_rounds, "not in order"),
        (lambda s: s.iloc[0:0], "has no samples"),
        (lambda s: s.drop(columns="index"), "has the columns"),
        (lambda s: s.assign(build_key="x"), "that of its samples x"),
    ],
)
def test_samples_that_are_none_are_refused(folder, edit, complaint):
    path = folder / "samples.parquet"
    edit(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(UserError, match=complaint):
        read(folder)


def test_a_file_that_would_fill_the_memory_is_not_unfolded(folder):
    """A billion equal numbers take some kilobytes of Parquet."""
    import pyarrow
    import pyarrow.parquet

    from gemmrepro.measure.columns import SAMPLE_COLUMNS

    column = pyarrow.array(np.zeros(1 << 20))
    table = pyarrow.table([pyarrow.chunked_array([column] * 16)] * len(SAMPLE_COLUMNS), names=SAMPLE_COLUMNS)
    path = folder / "samples.parquet"
    pyarrow.parquet.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(UserError, match="unfold into more than 1024 MB"):
        read_samples(path)


COUNTER = dict(kernel="ladder.naive", toolkit="cuda13", m=256, n=256, k=256, build_key="aaaa", status="current")
COUNTER["run_key"] = KERNEL.row()["run_key"]
COUNTED = {
    "gpu__time_duration.sum": (140_000, "ns"),
    "dram__bytes.sum": (1_400_000, "byte"),
    "dram__bytes.sum.per_second": (1e10, "byte/s"),
    "sm__cycles_elapsed.max": (252_000, "cycle"),
    "lts__t_sector_hit_rate.pct": (80, "%"),
}


@pytest.mark.parametrize(
    ("metric", "change", "complaint"),
    [
        ("dram__bytes.sum", {"value": -1}, "finite and not negative"),
        ("dram__bytes.sum", {"value": 2_800_000}, "are no 1e[+]10 bytes per second"),
        ("dram__bytes.sum", {"unit": "Kbyte"}, "in 'Kbyte' instead of 'byte'"),
        ("dram__bytes.sum", {"metric": "dram__bytes"}, "there is no counter dram__bytes"),
        ("dram__bytes.sum", {"metric": "lts__t_sector_hit_rate.pct", "unit": "%", "value": 80}, "it repeats lts__"),
        ("dram__bytes.sum", {"toolkit": "library"}, "never of libraries"),
        ("sm__cycles_elapsed.max", {"value": 340_000}, "a clock above 1980 MHz"),
        ("sm__cycles_elapsed.max", {"value": 25_200}, "counted 25200 cycles, and its time at its clock is 277"),
        ("lts__t_sector_hit_rate.pct", {"value": 180}, "is 180 %"),
    ],
)
def test_counters_that_cannot_be_are_refused(folder, metric, change, complaint):
    rows = {name: COUNTER | dict(metric=name, value=value, unit=unit) for name, (value, unit) in COUNTED.items()}
    write(folder, [KERNEL, LIBRARY], rows.values())
    assert len(read(folder).counters) == 5
    write(folder, [KERNEL, LIBRARY], (rows | {metric: rows[metric] | change}).values())
    with pytest.raises(UserError, match=complaint):
        read(folder)


def test_cycles_may_be_at_a_clock_a_tenth_above_the_highest_and_not_more(folder):
    """1.1 times 1980 MHz over 140 µs are 304,920 cycles, without a rounding."""
    for cycles, complaint in ((304_920, None), (304_921, "304921 cycles in 140000 ns are a clock above 1980 MHz")):
        counted = COUNTED | {"sm__cycles_elapsed.max": (cycles, "cycle")}
        rows = [COUNTER | dict(metric=name, value=value, unit=unit) for name, (value, unit) in counted.items()]
        write(folder, [KERNEL, LIBRARY], rows)
        if complaint is None:
            assert float(read(folder).counters[3]["value"]) == cycles
        else:
            with pytest.raises(UserError, match=complaint):
                read(folder)


def test_counters_and_times_are_of_one_binary(folder):
    """Counters of today's binary beside times of another one, which are stale."""
    rows = [COUNTER | dict(metric=name, value=value, unit=unit) for name, (value, unit) in COUNTED.items()]
    write(folder, [replace(KERNEL, build_key="bbbb"), LIBRARY], rows)
    with pytest.raises(UserError, match="its build key is aaaa, and that of the times bbbb"):
        read(folder)


def test_no_rate_is_above_what_the_same_recording_measures(folder):
    """Samples and row agree, and are ten times as fast as the multiply-add units."""
    fast = [Recorded("ladder.naive", 4096, drawn(140, 1), drawn(130, 2)), pair(4096, library_us=130)[1]]
    write(folder, fast)
    rows = read(folder).rows
    ceiling = {**rows[0], "kernel": "ceilings.ffma", "tflops": "60", "gbps": "", "clock_mhz": "1980"}
    copied = {**rows[0], "tflops": "", "gbps": "500", "clock_mhz": "1980"}
    path = folder / "summary.csv"
    assert Ceilings.of([ceiling, copied], RUN_JSON) == Ceilings(60, None, 500)
    check_limits("ladder", rows, RUN_JSON, Ceilings(1200, None, None), path)
    with pytest.raises(UserError, match=r"its 9\d\d\.?\d* TFLOP/s are above 60 TFLOP/s, the ceiling"):
        check_limits("ladder", rows, RUN_JSON, Ceilings.of([ceiling], RUN_JSON), path)
    with pytest.raises(UserError, match=r"151.\d MB must cross DRAM's interface in 1\d\d.*, and the best copy"):
        check_limits("ladder", rows, RUN_JSON, Ceilings.of([copied], RUN_JSON), path)


def test_a_ceiling_of_arithmetic_is_carried_over_to_the_highest_clock_and_one_of_copies_is_not(folder):
    half_clock = {**read(folder).rows[0], "tflops": "60", "gbps": "500", "clock_mhz": "990"}
    assert Ceilings.of([half_clock], RUN_JSON) == Ceilings(120, None, 500)
    assert Ceilings.of([{**half_clock, "clock_mhz": ""}], RUN_JSON) == Ceilings(60, None, 500)


def test_a_gpu_may_be_as_hot_as_the_hottest(folder):
    row, path = read(folder).rows[0], folder / "summary.csv"
    check_limits("ladder", [{**row, "temp_c": "120"}], RUN_JSON, Ceilings(), path)
    with pytest.raises(UserError, match=r"its temperature of 120\.5 °C is none that a GPU runs at"):
        check_limits("ladder", [{**row, "temp_c": "120.5"}], RUN_JSON, Ceilings(), path)


def test_fp32_from_tensor_cores_is_held_against_their_ceiling():
    found = Ceilings(fp32=60, half=900)
    assert found.arithmetic(registry.kernel("ladder.naive")) == 60
    limits = {kernel.id: found.arithmetic(kernel) for kernel in registry.kernels("sgemm")}
    assert limits["sgemm.tf32"] == 1800 and limits["sgemm.tf32_x3"] == 600 and limits["sgemm.bf16_x6"] == 300
    assert limits["sgemm.remainders"] == pytest.approx(1800 / 7)


@pytest.mark.parametrize(
    ("kernel", "products"),
    [
        ("ladder.naive", 1),
        ("crt.fused_14", 13 * 7 / 8),
        ("crt.certified", 13 * 7 / 8),
        ("sgemm.remainders_7", 7 * 7 / 8),
        ("ozaki.fused_bf16_d9", 45),
        ("ozaki.naive_bf16", 1),
    ],
)
def test_a_scheme_makes_at_least_so_many_products(kernel, products):
    assert least_products(registry.kernel(kernel)) == products


def test_a_ceiling_is_below_what_the_sms_issue(folder):
    """100 SMs at 1980 MHz: 50.7 TFLOP/s in fp32, with a margin of 5 %."""
    row = {**read(folder).rows[0], "family": "ceilings", "kernel": "ceilings.ffma", "gbps": "", "clock_mhz": "1980"}
    path = folder / "summary.csv"
    for rate in ("50", "53.2"):
        check_limits("ceilings", [{**row, "tflops": rate}], RUN_JSON, Ceilings(), path)
    for rate in ("53.3", "1000"):
        with pytest.raises(UserError, match=r"TFLOP/s are above 50\.69 TFLOP/s, what 100 SMs issue"):
            check_limits("ceilings", [{**row, "tflops": rate}], RUN_JSON, Ceilings(), path)


@pytest.mark.parametrize(
    ("capability", "arch", "runs"),
    [
        ("9.0", "sm_90a", True),
        ("8.9", "sm_86", True),
        ("8.6", "sm_89", False),
        ("10.0", "sm_100a", True),
        ("10.3", "sm_100", True),
        ("10.0", "sm_103", False),
        ("10.0", "sm_90", False),
        ("12.0", "sm_120f", True),
    ],
)
def test_code_runs_on_its_major_version_and_no_earlier_minor(folder, capability, arch, runs):
    row = {**read(folder).rows[1], "arch": arch}
    run = {**RUN_JSON, "gpu": {**RUN_JSON["gpu"], "compute_capability": capability}}
    if runs:
        check_limits("ladder", [row], run, Ceilings(), folder / "summary.csv")
    else:
        with pytest.raises(UserError, match=f"{arch} does not run on compute capability {capability}"):
            check_limits("ladder", [row], run, Ceilings(), folder / "summary.csv")


@pytest.mark.parametrize(("heat", "fine"), [("0", True), ("", True), ("85", True), ("-1", False), ("300", False)])
def test_a_temperature_is_one_that_a_gpu_runs_at(folder, heat, fine):
    row = {**read(folder).rows[1], "temp_c": heat}
    if fine:
        check_limits("ladder", [row], RUN_JSON, Ceilings(), folder / "summary.csv")
    else:
        with pytest.raises(UserError, match=f"its temperature of {heat} °C is none"):
            check_limits("ladder", [row], RUN_JSON, Ceilings(), folder / "summary.csv")


def test_a_kernel_is_paired_with_the_baseline_that_was_timed(folder):
    write(folder, [KERNEL, pair(library_us=20)[1]])
    with pytest.raises(UserError, match=r"cublas\.sgemm takes 6\.\d+ µs beside it and (19|20)\.?\d* µs in its own row"):
        read(folder)


CASE = {
    **{"shape": [128, 128, 8], "alpha": 1.0, "beta": 0.0, "inputs": "normal", "seed": 1},
    **{"err_scaled_max": 2.7, "gamma": 6.557e-07, "passed": True, "message": ""},
}
JUDGED = {"status": "passed", "build_key": "0" * 16, "gate_key": "1" * 16, "reason": "", "cases": [CASE]}


@pytest.mark.parametrize(
    ("judged", "case", "complaint"),
    [
        ({}, {}, None),
        ({}, {"err_scaled_max": 2.7e6}, "passed with an error of 2.7e[+]06 and a bound of 11"),
        ({}, {"err_scaled_max": float("nan")}, "negative or not finite"),
        ({}, {"passed": False, "message": "wrong"}, "it says passed, and 1 of 1 cases failed"),
        ({}, {"passed": "yes"}, "has 'yes' as its passed"),
        ({}, {"message": "wrong"}, "passed, and its message is 'wrong'"),
        ({}, {"extra": 1}, "has the fields"),
        ({"cases": []}, {}, "it says passed, and 0 of 0 cases failed"),
        ({"status": "PASSED!"}, {}, "'PASSED!' is not one of"),
        ({"status": "failed"}, {}, "it says failed, and no case did"),
        ({"status": "not run"}, {}, "it says not run, and has 1 cases"),
    ],
)
def test_verdicts_follow_from_their_cases(tmp_path, judged, case, complaint):
    told = {**JUDGED, "cases": [CASE | case], **judged}
    verdict = {"kernel": "ladder.naive", "gpu": "G", "driver": "1", "toolkits": {"cuda13": told}}
    path = tmp_path / "gates.json"
    path.write_text(json.dumps({"ladder.naive": verdict}))
    if complaint is None:
        check_gates("ladder", path, "G")
        with pytest.raises(UserError, match="given on G, and the recording is of H"):
            check_gates("ladder", path, "H")
        return
    with pytest.raises(UserError, match=complaint):
        check_gates("ladder", path, "G")


def test_a_verdict_is_of_its_kernel(tmp_path):
    verdict = {"kernel": "ladder.smem", "gpu": "G", "driver": "1", "toolkits": {"cuda13": JUDGED}}
    (tmp_path / "gates.json").write_text(json.dumps({"ladder.naive": verdict}))
    with pytest.raises(UserError, match=r"its verdict is of ladder\.smem"):
        check_gates("ladder", tmp_path / "gates.json")


def test_the_manifest_finds_what_changed_since(folder):
    write_manifest(folder)
    read(folder)
    check_manifest(folder)
    (folder / "notes.txt").write_text("new")
    with pytest.raises(UserError, match=r"notes\.txt is there and not listed"):
        check_manifest(folder)
    (folder / "notes.txt").unlink()
    (folder / "run.json").write_text((folder / "run.json").read_text() + "\n")
    with pytest.raises(UserError, match=r"run\.json is corrupt: it is not the file that manifest\.json lists"):
        read(folder)
    (folder / "run.json").unlink()
    with pytest.raises(UserError, match=r"run\.json is listed and missing"):
        read(folder)


def test_ceilings_are_those_of_the_same_gpu(tmp_path):
    assert ceilings_of(tmp_path, RUN_JSON) == Ceilings(), "none were recorded"
    write(tmp_path / "ceilings", [KERNEL, LIBRARY])
    assert (ceilings_of(tmp_path, RUN_JSON).fp32 or 0) > 0
    assert ceilings_of(tmp_path, {**RUN_JSON, "gpu": {**RUN_JSON["gpu"], "name": "another"}}) == Ceilings()
    (tmp_path / "ceilings" / "run.json").unlink()
    assert ceilings_of(tmp_path, RUN_JSON) == Ceilings()


def test_a_family_that_was_not_measured_has_its_four_files_and_no_row(tmp_path):
    write_nothing(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert read_rows(tmp_path / SUMMARY, SUMMARY_COLUMNS) == read_rows(tmp_path / COUNTERS, COUNTER_COLUMNS) == []
    assert list(pd.read_parquet(tmp_path / SAMPLES).columns) == SAMPLE_COLUMNS
    assert json.loads((tmp_path / RUN).read_text()) == {"source": "none"}

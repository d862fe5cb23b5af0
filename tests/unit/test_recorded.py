"""Recordings: what is copied, what is marked stale, and what is refused."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from synthetic import write_build

from gemmrepro import registry
from gemmrepro.core import schemas
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.measure import recorded
from gemmrepro.measure.columns import (
    COUNTER_COLUMNS,
    SAMPLE_COLUMNS,
    SUMMARY_COLUMNS,
    CounterRow,
    Row,
    columns,
    first_wrong,
    schema,
    typed,
)
from gemmrepro.measure.recording import check_cells, check_samples, read_rows
from gemmrepro.operations import Shape
from gemmrepro.registry.keys import run_key

RUN_KEY = run_key(registry.kernel("ladder.naive"), "aaaa", Shape.cube(256))

# A column that no test here speaks of holds some text.
ROW = dict.fromkeys(SUMMARY_COLUMNS, "any") | dict(
    kernel="ladder.naive",
    family="ladder",
    rung="L1",
    dtype="fp32",
    m=256,
    n=256,
    k=256,
    d="",
    cache="warm",
    toolkit="cuda13",
    arch="sm_90",
    median_us=100.0,
    ci_low_us=99.0,
    ci_high_us=101.5,
    samples=40,
    rounds=5,
    tflops=0.335,
    gbps=7.86,
    baseline="cublas.sgemm",
    baseline_median_us=10.0,
    ratio=0.1,
    ratio_ci_low=0.09,
    ratio_ci_high=0.11,
    err_scaled_max=2.5,
    err_fro=1e-7,
    clock_mhz=1980,
    power_w=200.0,
    temp_c=40,
    throttle="none",
    build_key="aaaa",
    run_key=RUN_KEY,
    status="current",
)
LIBRARY = ROW | dict(
    kernel="cublas.sgemm",
    toolkit="library",
    rung="cuBLAS",
    build_key="cuBLAS 13.1.0",
    run_key="",
    ratio=1.0,
    ratio_ci_low=0.99,
    ratio_ci_high=1.01,
)
COUNTER = dict.fromkeys(COUNTER_COLUMNS, "any") | dict(
    kernel="ladder.naive",
    toolkit="cuda13",
    m=256,
    n=256,
    k=256,
    metric="dram__bytes.sum",
    value=12,
    unit="byte",
    build_key="aaaa",
    run_key=RUN_KEY,
    status="current",
)
RUN = {
    "source": "live",
    "gpu": {
        "name": "Synthetic GPU",
        "compute_capability": "9.0",
        "sm_count": 1,
        "l2_bytes": 1,
        "memory_bytes": 1,
        "driver": "1",
        "clock_max_mhz": 1,
        "memory_clock_mhz": None,
        "power_cap_w": None,
    },
    "libraries": {},
    "toolkits": {"cuda13": "13.0.88"},
    "baseline_kernels": {},
    "git_commit": None,
    "date": "2026-01-01T00:00:00Z",
    "config": {"rounds": 5},
}


def write_csv(path: Path, rows, columns):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def world(tmp_path):
    """A recording of one kernel and its baseline, and today's build of that kernel."""
    folder = tmp_path / "recorded" / "gpu" / "ladder"
    folder.mkdir(parents=True)
    write_csv(folder / "summary.csv", [ROW, LIBRARY], SUMMARY_COLUMNS)
    write_csv(folder / "counters.csv", [COUNTER], COUNTER_COLUMNS)
    (folder / "run.json").write_text(json.dumps(RUN))
    pd.DataFrame([dict.fromkeys(SAMPLE_COLUMNS, 1)]).to_parquet(folder / "samples.parquet")
    build(tmp_path, "aaaa")
    return tmp_path


def build(root, key, toolkit="cuda13"):
    write_build(root / "build", "ladder.naive", toolkit, key)


def bring(root):
    return recorded.bring("ladder", root / "recorded" / "gpu", root / "build", root / "out")


def statuses(root, name="summary.csv"):
    with (root / "out" / name).open() as file:
        return [row["status"] for row in csv.DictReader(file)]


def test_a_recording_of_todays_binary_is_current(world):
    assert bring(world) == (2, 0)
    assert statuses(world) == ["current", "current"]
    assert statuses(world, "counters.csv") == ["current"]
    run = json.loads((world / "out" / "run.json").read_text())
    assert run == {**RUN, "source": "recorded"}
    source = world / "recorded" / "gpu" / "ladder" / "samples.parquet"
    assert (world / "out" / "samples.parquet").read_bytes() == source.read_bytes()


def test_another_build_makes_the_kernels_rows_stale_and_leaves_the_librarys(world):
    build(world, "bbbb")
    assert bring(world) == (2, 1)
    assert statuses(world) == ["stale", "current"]
    assert statuses(world, "counters.csv") == ["stale"]


def test_a_toolkit_that_was_not_built_makes_its_rows_stale(world):
    (world / "build" / "cuda13" / "ladder.naive.json").unlink()
    assert bring(world) == (2, 1)


def test_a_recording_cannot_claim_to_be_current(world):
    """The status in the recording is ignored, not trusted."""
    folder = world / "recorded" / "gpu" / "ladder"
    write_csv(folder / "summary.csv", [ROW | {"build_key": "old", "status": "current"}], SUMMARY_COLUMNS)
    assert bring(world) == (1, 1)


@pytest.mark.parametrize("name", ["summary.csv", "counters.csv", "samples.parquet", "run.json"])
def test_a_missing_file_is_named(world, name):
    (world / "recorded" / "gpu" / "ladder" / name).unlink()
    with pytest.raises(UserError, match=rf"{name} is missing"):
        bring(world)
    assert not (world / "out" / "summary.csv").exists()


@pytest.mark.parametrize("name", ["summary.csv", "counters.csv", "samples.parquet", "run.json"])
def test_a_truncated_file_is_named(world, name):
    path = world / "recorded" / "gpu" / "ladder" / name
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=rf"{name}.*(corrupt|cells|begin)"):
        bring(world)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"median_us": "nan?"}, "median_us"),
        ({"median_us": -1}, "median_us"),
        ({"median_us": ""}, "median_us"),
        ({"cache": "tepid"}, "cache"),
        ({"m": "256.5"}, "m"),
        ({"arch": "90"}, "arch"),
        ({"power_w": "nan"}, "no number"),
        ({"ci_low_us": 100.5}, "median_us lies outside its interval"),
        ({"ratio": 0.2}, "ratio lies outside its interval"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(world, change, complaint):
    folder = world / "recorded" / "gpu" / "ladder"
    write_csv(folder / "summary.csv", [LIBRARY, ROW | change], SUMMARY_COLUMNS)
    with pytest.raises(UserError, match=rf"line 3 .*{complaint}"):
        bring(world)


def test_a_point_may_not_occur_twice(world):
    write_csv(world / "recorded" / "gpu" / "ladder" / "summary.csv", [ROW, ROW], SUMMARY_COLUMNS)
    with pytest.raises(UserError, match=r"repeats ladder\.naive"):
        bring(world)


def test_a_manifest_without_its_gpu_is_refused(world):
    path = world / "recorded" / "gpu" / "ladder" / "run.json"
    path.write_text(json.dumps({key: value for key, value in RUN.items() if key != "gpu"}))
    with pytest.raises(UserError, match="'gpu' is a required property"):
        bring(world)


def test_an_unrecorded_gpu_says_what_there_is(world):
    with pytest.raises(UserError, match="recorded for gpu"):
        recorded.bring("ladder", world / "recorded" / "other", world / "build", world / "out")
    with pytest.raises(UserError, match="never was recorded"):
        recorded.bring("ada", world / "recorded" / "other", world / "build", world / "out")


def test_a_family_not_yet_recorded_has_no_rows(world):
    from gemmrepro.measure.rows import load

    assert recorded.bring("ada", world / "recorded" / "gpu", world / "build", world / "out" / "ada") == (0, 0)
    measured = load(world / "out", "ada")
    assert measured.summary.empty
    assert measured.source == "none"


def test_comparison_finds_the_points_that_disagree(world):
    first = world / "recorded" / "gpu" / "ladder"
    second = world / "second"
    second.mkdir()
    apart = LIBRARY | dict(median_us=120.0, ci_low_us=119.0, ci_high_us=121.0)
    write_csv(second / "summary.csv", [ROW | dict(median_us=101.0), apart], SUMMARY_COLUMNS)
    found = recorded.compare(first, second)
    assert found.points == 2 and found.times_agree == (1, 2) and found.ratios_agree == (2, 2)
    assert len(found.apart) == 1 and found.apart[0].startswith("cublas.sgemm library 256 256 256 warm: time")
    assert found.largest_time_difference == pytest.approx(0.2)


TIMED = sorted(path.parent for path in (ROOT / "reports" / "recorded").glob("*/*/run.json"))


@pytest.mark.parametrize("folder", TIMED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_committed_recordings_are_whole(folder):
    rows = recorded.read_summary(folder)
    check_cells(CounterRow, read_rows(folder / "counters.csv", COUNTER_COLUMNS), folder / "counters.csv")
    check_samples(folder / "samples.parquet")
    schemas.check(json.loads((folder / "run.json").read_text()), "run.schema.yaml", "run.json")
    point = ["kernel", "toolkit", "dtype", "m", "n", "k", "cache"]
    samples = pd.read_parquet(folder / "samples.parquet", columns=[*point, "round", "time_us"])
    times = samples.groupby(point)["time_us"].size()
    # The reported median is the median of the rounds' medians, to the digits that are printed.
    medians = samples.groupby([*point, "round"])["time_us"].median().groupby(point).median()
    for row in (Row(**typed(Row, row)) for row in rows):
        place = tuple(getattr(row, column) for column in point)
        assert times[place] == row.samples
        assert medians[place] == pytest.approx(row.median_us, rel=1e-5)


CELLS = ["", "0", "-1", "1", "256", "256.5", "1e-7", "nan", "inf", "text", "ladder.naive", "sm_90a", "cuda13", "warm"]


@pytest.mark.parametrize("table", [Row, CounterRow], ids=lambda table: table.__name__)
def test_the_quick_check_of_cells_and_the_schema_of_a_row_agree(table):
    """NaN alone is a number to JSON schema and none here."""
    whole = {column: str(cell) for column, cell in (ROW if table is Row else COUNTER).items()}
    assert first_wrong(table, [whole]) is None and not [*schemas.errors(typed(table, whole), schema(table))]
    for column in columns(table):
        for cell in CELLS:
            row = {**whole, column.name: cell}
            wrong = bool([*schemas.errors(typed(table, row), schema(table))])
            not_a_number = cell == "nan" and column.kind == "number"
            assert (first_wrong(table, [whole, row]) == 1) is (wrong or not_a_number), (column.name, cell)

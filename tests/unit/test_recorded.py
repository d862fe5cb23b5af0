"""Recordings: what is copied, what is marked stale, and what is refused."""

import csv
import json
from dataclasses import replace

import pytest
from recordings import RUN_JSON, pair, write
from synthetic import write_build

from gemmrepro.core import schemas
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.measure.columns import CounterRow, Row, columns, first_wrong, schema, typed
from gemmrepro.measure.recording import MANIFEST, write_manifest
from gemmrepro.recordings import bring as recorded
from gemmrepro.recordings.sweeps import read_summary, read_whole

TIMED = sorted(path.parent for path in (ROOT / "reports" / "recorded").glob("*/*/run.json"))

KERNEL, LIBRARY = pair()
ROW, LIBRARY_ROW = KERNEL.row(), LIBRARY.row()
COUNTER = dict(
    kernel="ladder.naive",
    toolkit="cuda13",
    m=256,
    n=256,
    k=256,
    metric="dram__bytes.sum",
    value=12,
    unit="byte",
    build_key="aaaa",
    run_key=ROW["run_key"],
    status="current",
)


@pytest.fixture
def world(tmp_path):
    """A recording of one kernel and its baseline, and today's build of that kernel."""
    write(recording(tmp_path), [KERNEL, LIBRARY], [COUNTER])
    build(tmp_path, "aaaa")
    return tmp_path


def recording(root):
    return root / "recorded" / "gpu" / "ladder"


def build(root, key, toolkit="cuda13"):
    write_build(root / "build", "ladder.naive", toolkit, key)


def bring(root):
    """As the stage does, of a recording whose manifest lists what is there."""
    write_manifest(recording(root))
    return recorded.bring_sweep("ladder", root / "recorded" / "gpu", root / "build", root / "out")


def statuses(root, name="summary.csv"):
    with (root / "out" / name).open() as file:
        return [row["status"] for row in csv.DictReader(file)]


def test_a_recording_of_todays_binary_is_current(world):
    assert bring(world) == (2, 0)
    assert statuses(world) == ["current", "current"]
    assert statuses(world, "counters.csv") == ["current"]
    run = json.loads((world / "out" / "run.json").read_text())
    assert run == {**RUN_JSON, "source": "recorded"}
    source = world / "recorded" / "gpu" / "ladder" / "samples.parquet"
    assert (world / "out" / "samples.parquet").read_bytes() == source.read_bytes()


def test_another_build_makes_the_kernels_rows_stale_and_leaves_the_librarys(world):
    build(world, "bbbb")
    assert bring(world) == (2, 1)
    assert statuses(world) == ["stale", "current"]
    assert statuses(world, "counters.csv") == ["stale"]


def test_a_recording_cannot_claim_to_be_current(world):
    """The status in the recording is ignored, not trusted."""
    write(recording(world), [replace(KERNEL, build_key="old")])
    assert bring(world) == (1, 1)


@pytest.mark.parametrize("name", ["summary.csv", "counters.csv", "samples.parquet", "run.json"])
def test_a_missing_or_truncated_file_is_named(world, name):
    path = recording(world) / name
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=rf"{name}.*(corrupt|cells|begin)"):
        bring(world)
    path.unlink()
    with pytest.raises(UserError, match=rf"{name} is missing"):
        bring(world)
    assert not (world / "out" / "summary.csv").exists()


def test_an_unrecorded_gpu_says_what_there_is(world):
    with pytest.raises(UserError, match="recorded for gpu"):
        recorded.bring_sweep("ladder", world / "recorded" / "other", world / "build", world / "out")
    with pytest.raises(UserError, match="never was recorded"):
        recorded.bring_sweep("ada", world / "recorded" / "other", world / "build", world / "out")


def test_a_family_not_yet_recorded_has_no_rows(world):
    from gemmrepro.measure.rows import load

    assert recorded.bring_sweep("ada", world / "recorded" / "gpu", world / "build", world / "out" / "ada") == (0, 0)
    measured = load(world / "out", "ada")
    assert measured.summary.empty
    assert measured.source == "none"


@pytest.mark.parametrize("folder", TIMED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_committed_recordings_pass_every_check(folder, tmp_path):
    """Without a build all rows are stale; with the keys of their own binaries they are current."""
    rows = read_summary(folder)
    for row in rows:
        if row["toolkit"] != "library":
            write_build(tmp_path, row["kernel"], row["toolkit"], row["build_key"])
    found = read_whole(folder.name, folder, tmp_path)
    assert (folder / MANIFEST).is_file()
    assert sum(row["status"] == "current" for row in found.rows) == len(rows) > 0


CELLS = [
    "",
    "0",
    "-1",
    "256",
    "0256",
    "256.5",
    "1_75.5",
    " 175.5 ",
    "\u0661\u0667\u0665",
    "1e-7",
    "1e999",
    "nan",
    "inf",
]
CELLS += ["text", "ladder.naive", "sm_90a", "cuda13", "warm"]


@pytest.mark.parametrize("table", [Row, CounterRow], ids=lambda table: table.__name__)
def test_the_quick_check_of_cells_and_the_schema_of_a_row_agree(table):
    cells = (ROW if table is Row else COUNTER).items()
    whole = {column: "" if cell is None else str(cell) for column, cell in cells}
    assert first_wrong(table, [whole]) is None and not [*schemas.errors(typed(table, whole), schema(table))]
    for column in columns(table):
        for cell in CELLS:
            row = {**whole, column.name: cell}
            wrong = bool([*schemas.errors(typed(table, row), schema(table))])
            assert (first_wrong(table, [whole, row]) == 1) is wrong, (column.name, cell)

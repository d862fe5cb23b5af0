"""The sweep without a GPU: its journal, what it plans, what it refuses, and how it writes numbers."""

import csv
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from records import record

from gemmrepro import registry
from gemmrepro.core import names
from gemmrepro.core.files import csv_text
from gemmrepro.core.journal import Journal
from gemmrepro.errors import UserError
from gemmrepro.gpu import baselines
from gemmrepro.gpu.cublas import Trials
from gemmrepro.measure import plan, prepare, results, rounds
from gemmrepro.measure.columns import ROW, SAMPLE_COLUMNS, SUMMARY_COLUMNS
from gemmrepro.measure.plan import Room
from gemmrepro.measure.recording import check_cells
from gemmrepro.operations import Problem, Shape

MACHINE = {"gpu": "GPU A", "driver": "1.0", "card": "c1"}


def make(name, op="gemm", baseline="cublas.sgemm", **options):
    return record(f"ladder.{name}", op=op, baseline=baseline, **options)


@pytest.fixture
def said():
    return []


@pytest.fixture
def journal(tmp_path, said):
    return Journal(tmp_path / "journal", MACHINE, said.append)


@pytest.mark.parametrize(
    "spoil", [lambda text: text[: len(text) // 2], lambda text: text.replace("1.5", "2.5"), lambda text: "[]"]
)
def test_an_entry_comes_back_whole_under_its_own_identity_or_not_at_all(journal, said, spoil):
    journal.put("a", {"build_key": "1"}, {"times": [1.5]})
    journal.put("b", {}, {"times": [3.5]})
    assert journal.get("a", {"build_key": "2"}) is None and journal.get("c", {}) is None
    again = Journal(journal.folder, MACHINE, said.append)
    assert again.get("a", {"build_key": "1"}) == {"times": [1.5]} and not said
    path = journal.folder / "a.json"
    path.write_text(spoil(path.read_text()))
    assert journal.get("a", {"build_key": "1"}) is None and journal.get("b", {}) == {"times": [3.5]}
    assert len(said) == 1 and "a.json is corrupt" in said[0]


@pytest.mark.parametrize("changed", [{"gpu": "GPU B"}, {"driver": "2.0"}, {"card": "c2"}])
def test_a_journal_of_another_machine_is_set_aside_whole(journal, tmp_path, said, changed):
    other = MACHINE | changed
    journal.put("a", {}, {"x": 1})
    fresh = Journal(tmp_path / "journal", other, said.append)
    assert fresh.get("a", {}) is None
    assert "belongs to GPU A, card c1, with driver 1.0" in said[0] and "set-aside-1" in said[0]
    assert f"this is {other['gpu']}, card {other['card']}, with driver {other['driver']}" in said[0]
    assert json.loads((tmp_path / "journal.set-aside-1" / "a.json").read_text())["payload"] == {"x": 1}


@pytest.mark.parametrize(
    ("options", "sizes", "timed", "reason"),
    [
        ({}, [256], {("cuda12", 256)}, "its gate failed"),  # of the other toolkit's binary
        ({"toolkits": ("cuda12",)}, [256, 512], {("cuda12", 256), ("cuda12", 512)}, ""),
        ({"toolkits": ("cuda12",), "timed_to": 256}, [512, 256], {("cuda12", 256)}, "seconds; it is timed up to 256"),
        ({"toolkits": ("cuda12",), "multiple_of": {"m": 128}}, [100], set(), "ladder.x cannot run 100x100x100"),
    ],
)
def test_what_is_not_timed_is_left_out_with_the_reason_and_the_rest_is_timed(options, sizes, timed, reason):
    refuse = lambda kernel, toolkit: "its gate failed" if (kernel.id, toolkit) == ("ladder.x", "cuda13") else None  # noqa: E731
    kernels = [make("a"), make("x", **options)]
    points, skipped = plan.plan_points(kernels, sizes, ["cuda12", "cuda13"], ["warm"], refuse)
    assert {(point.toolkit, point.shape.n) for point in points if point.kernel == "ladder.x"} == timed
    assert {point.kernel for point in points} >= {"ladder.a", "cublas.sgemm"}
    assert [reason in entry.reason and entry.kernel == "ladder.x" for entry in skipped] == [True] * bool(reason)


def gate(**changes):
    numeric = {"status": "passed", "build_key": "k1", "source": "live"}
    return {"kernel": "ladder.a", "passed": True, "toolkits": {"cuda13": {"numeric": {**numeric, **changes}}}}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gate(), None),
        ({**gate(), "passed": False}, "its gate failed"),
        (gate(status="failed"), "'failed'"),
        (gate(status="not run"), "'not run'"),
        (gate(build_key="k0"), "judged build k0, and this is build k1"),
        ({"passed": True, "toolkits": {}}, "not gated for cuda13"),
    ],
)
def test_only_what_passed_its_gate_as_this_very_binary_is_timed(tmp_path, content, reason):
    verdict = tmp_path / "ladder.a.json"
    for text in ("", "{", '{"passed": true}', '{"passed": true, "toolkits": {"cuda13": {}}}'):
        with pytest.raises(UserError, match="gates stage"):
            plan.not_timeable("ladder.a", "cuda13", "k1", tmp_path)
        verdict.write_text(text)
    verdict.write_text(json.dumps(content))
    found = plan.not_timeable("ladder.a", "cuda13", "k1", tmp_path)
    assert found is None if reason is None else reason in found


def gpu(capability=(8, 9), sms=128, mhz=2520, **facts):
    """What the limits of memory and time read of a GPU; by default of an RTX 4090."""
    facts = {"l2_bytes": 60 << 20, "watched": False} | facts
    return SimpleNamespace(compute_capability=capability, sm_count=sms, clock_max_mhz=mhz, **facts)


def beyond(kernel, free, on=None):
    return Room(on or gpu(), free).beyond(kernel, Shape.cube(8192))


def test_a_size_that_does_not_fit_is_left_out_with_the_bytes_that_it_needs_and_that_are_free():
    needed = plan.needed_bytes(Problem(), Shape.cube(8192), 60 << 20)
    assert needed > 3 * 4 * 8192**2 + 16 * 8192**2
    room = Room(gpu(), needed - 1)
    assert not beyond(make("a"), needed) and Room(gpu(), needed).beyond(make("a"), Shape.cube(256)) == ""
    points, skipped = plan.plan_points(
        [make("a")], [256, 8192], ["cuda13"], ["cold"], lambda *_: None, beyond=room.beyond
    )
    assert {point.shape.n for point in points} == {256} and "cublas.sgemm" in {point.kernel for point in points}
    amount = f"{needed / 2**30:.1f} GiB"
    assert [one.reason for one in skipped] == [f"8192x8192x8192: needs {amount}, {amount} are free"]
    own = registry.kernel("ozaki.fused_bf16_d5")
    needed = plan.needed_bytes(own.problem, Shape.cube(8192), 60 << 20) + plan.own_bytes(own, Shape.cube(8192))
    assert beyond(own, needed - 1).startswith("needs ") and not beyond(own, needed)


@pytest.mark.parametrize(
    ("kernel", "sizes", "free", "timed"),
    [
        ("memory.reduce_wide", [1 << 28], 3.2, [1 << 27]),
        ("memory.histogram_shared", [1 << 28, 1 << 29], 1.5, [1 << 25]),
        ("ceilings.dram_copy", [1], 3.2, [1 << 25]),
        ("ladder.naive", [8192, 16384], 1.2, [4096]),
        ("ladder.vector_add", [256], 1e-3, []),  # one size whatever is listed
    ],
)
def test_where_no_size_fits_a_half_or_a_quarter_is_timed_and_the_skip_says_so(kernel, sizes, free, timed):
    room = Room(gpu(l2_bytes=3 << 20), int(free * 2**30))
    record, none = registry.kernel(kernel), lambda *_: None
    points, skipped = plan.plan_points([record], sizes, ["cuda13"], ["warm"], none, beyond=room.beyond)
    assert [point.shape.n for point in points if point.kernel == kernel] == timed
    instead = bool(timed) and timed[0] not in sizes
    assert [" is timed in its place" in one.reason for one in skipped] == [instead] * len(skipped)
    assert all(" GiB are free" in one.reason for one in skipped) and (skipped or not instead)


DOUBLE = {"dtype_in": "fp64", "dtype_acc": "fp64", "dtype_out": "fp64", "baseline": "cublas.gemm"}


@pytest.mark.parametrize(
    ("on", "n", "dtype", "reason"),
    [
        (gpu(), 8192, DOUBLE, ""),
        (gpu(), 16384, DOUBLE, "a launch takes about 6.8 s in FP64 here; the limit is 5"),
        (gpu(), 16384, {}, ""),  # 27 s of references
        (gpu((8, 6), 28, 1780), 16384, {}, "its reference takes about 176 s in FP64 here; the limit is 30"),
        (gpu((8, 6), 84, 1500, watched=True), 8192, DOUBLE, "2.2 s in FP64 here; the watchdog of this GPU's display"),
    ],
)
def test_a_size_whose_products_in_fp64_take_too_long_here_is_left_out_with_the_seconds(on, n, dtype, reason):
    found = Room(on, 1 << 50).beyond(make("a", **dtype), Shape.cube(n))
    assert reason in found and bool(found) == bool(reason)


DOCUMENT = {"rounds": 3, "interval": 0.01, "seconds_per_round": 0.1, "samples_per_round": [3, 60], "caches": ["warm"]}
DOCUMENT |= {"toolkits": ["cuda13"], "sizes": {"ladder": [256]}, "counters": {"ladder": [256]}}
SETTINGS = plan.Settings.of(DOCUMENT, "ladder")
GPU = SimpleNamespace(
    **{"name": "GPU A", "machine": MACHINE, "arch": "sm_90", "compute_capability": (9, 0), "sm_count": 132},
    **{"clock_max_mhz": 1980, "watched": False, "pci_bus": "0", "l2_bytes": 1 << 20},
)


@pytest.fixture
def sweep(journal):
    """A sweep of one kernel and its baseline, nothing of it measured yet."""
    kernel = make("a")
    points, skipped = plan.plan_points([kernel], [256], ["cuda13"], ["warm"], lambda *_: None)
    versions = {"cublas.sgemm": "cuBLAS 1.0"}
    return prepare.Sweep(
        session=SimpleNamespace(gpu=GPU, trials=Trials(), other_processes=lambda: 0),
        family="ladder",
        settings=SETTINGS,
        build=journal.folder,
        kernels={kernel.id: kernel},
        loaded={(kernel.id, "cuda13"): SimpleNamespace(arch="sm_90", build_key="k1", kernel=kernel, toolkit="cuda13")},
        points=tuple(points),
        skipped=tuple(skipped),
        versions=versions,
        journal=journal,
    )


def timed(times, baseline=(), sensors=()):
    return prepare.Round(list(times), list(baseline), list(sensors), "single launches")


def test_a_later_process_takes_the_algorithm_that_an_earlier_one_chose(sweep, said, monkeypatch):
    """One sweep compares with one and the same algorithm, whatever a trial would say this time."""
    point = next(point for point in sweep.points if point.toolkit == names.LIBRARY)
    trials = sweep.session.trials

    def bind(session, operands):
        trials.take(point.problem, point.shape, 5, point.kernel)  # what the trial finds

    library = baselines.Baseline(point.kernel, "cuBLAS", "gemm", bind, None)
    monkeypatch.setitem(baselines.BASELINES, point.kernel, library)
    check = prepare.Check(True, estimate_us=1.0)
    workspace = SimpleNamespace(check=lambda *_: check, operands=lambda *_: None)
    measuring = rounds.Rounds(sweep, said.append)
    assert measuring.ensure_checked(point, workspace, None).algorithm == 5
    trials.take(point.problem, point.shape, 2, point.kernel)
    assert measuring.ensure_checked(point, workspace, None).algorithm == 5
    assert trials.algorithm(point.problem, point.shape, point.kernel) == 5


@pytest.mark.parametrize("place", ["operands", "check", "samples"])
def test_a_point_that_runs_out_of_memory_is_left_out_with_the_reason_and_the_others_are_measured(
    sweep, said, monkeypatch, place
):
    class OutOfMemoryError(Exception):  # as CuPy's and PyTorch's are called
        pass

    def fail(*_):
        raise OutOfMemoryError("Out of memory allocating 4,294,967,296 bytes (allocated so far: 1,073,741,824 bytes).")

    sweep.session.free_bytes = lambda: 3 << 29
    workspace = SimpleNamespace(check=lambda *_: prepare.Check(True), forget_reference=lambda: None, has_inputs=False)
    if place == "check":
        workspace.check = fail
    monkeypatch.setattr(rounds, "Workspace", fail if place == "operands" else lambda *_: workspace)
    monkeypatch.setattr(rounds.timing, "Timer", lambda session: None)
    run = rounds.Rounds(sweep, said.append)
    monkeypatch.setattr(run, "bind", lambda *_: None)
    monkeypatch.setattr(run, "_measure", fail)
    assert run.run(0, None) and not results.gather(sweep)
    reason = "256x256x256: needs 5.0 GiB, 1.5 GiB are free"
    assert plan.Skipped("ladder.a", "cuda13", reason) in results.wrong(sweep)
    assert any("not timed: ladder.a cuda13 at 256x256x256: needs 5.0 GiB" in line for line in said)
    assert replace(sweep, free=9 << 30).check(sweep.points[0]) is None  # with other memory it is tried again


@pytest.mark.parametrize(
    ("watched", "estimate_us", "left_out"), [(True, 3e5, True), (True, 2e4, False), (False, 3e5, False)]
)
def test_a_launch_that_a_displays_watchdog_would_end_is_not_begun(sweep, said, watched, estimate_us, left_out):
    """Of eight times the work of one that took 0.3 s."""
    kernel = next(iter(sweep.kernels.values()))
    points, _ = plan.plan_points([kernel], [256, 512], ["cuda13"], ["warm"], lambda *_: None)
    sweep = replace(
        sweep,
        points=tuple(points),
        session=SimpleNamespace(gpu=SimpleNamespace(**vars(GPU) | {"watched": watched}), trials=Trials()),
    )
    small, large = (point for point in points if point.kernel == kernel.id)
    sweep.keep_check(small, prepare.Check(True, estimate_us=estimate_us))
    workspace = SimpleNamespace(check=lambda *_: prepare.Check(True))
    measuring = rounds.Rounds(sweep, said.append)
    measuring.bind = lambda *_: None
    check = measuring.ensure_checked(large, workspace, None)
    assert check.passed != left_out and ("needs 2.4 s a launch" in check.message) == left_out
    assert [entry.reason[:22] for entry in results.wrong(sweep)] == ["512x512x512: needs 2.4"] * left_out


def test_rows_and_samples_follow_from_the_rounds(sweep):
    kernel = sweep.points[0]
    sensors = [{"clock_mhz": 1980, "power_w": 300.0, "temp_c": 40, "throttle": 0x4}]
    sweep.keep_check(kernel, prepare.Check(True, "", 2.5, 1e-7, 200.0))
    for number, level in enumerate((200.0, 202.0, 204.0)):
        sweep.keep_round(kernel, number, timed([level, level + 1, level + 2], [100.0] * 3, sensors))
    found = results.gather(sweep)
    assert [one.point for one in found] == [kernel], "what has no round has no row"
    cells = results.summary_row(sweep, found[0])
    row = SimpleNamespace(**cells)
    assert (row.kernel, row.arch, row.build_key, row.samples, row.rounds, row.median_us, row.status) == (
        *("ladder.a", "sm_90", "k1", 9, 3, 203.0, "current"),
    )
    assert row.ci_low_us <= 201.0 and row.ci_high_us >= 205.0
    assert row.tflops == pytest.approx(2 * 256**3 / 203.0 * 1e-6)
    assert (row.baseline, row.baseline_median_us) == ("cublas.sgemm", 100.0)
    assert row.ratio == pytest.approx(100.0 / 203.0, rel=0.01) and row.ratio_ci_low < row.ratio < row.ratio_ci_high
    assert (row.err_scaled_max, row.clock_mhz, row.throttle) == (2.5, 1980, "sw_power_cap")
    check_cells(ROW, list(csv.DictReader(io.StringIO(csv_text([cells], SUMMARY_COLUMNS)))), "summary.csv")
    samples = results.samples_frame(sweep, found)
    assert list(samples.columns) == SAMPLE_COLUMNS and list(samples.index) == list(range(9))
    assert samples["time_us"].tolist()[3:6] == [202.0, 203.0, 204.0] and samples["round"].tolist()[3:6] == [1] * 3
    assert results.samples_frame(sweep, []).empty


def test_counters_are_asked_for_once_and_not_again_for_the_same_binaries(sweep, said, monkeypatch, tmp_path):
    asked = []

    def collect(session, runs):
        ((loaded, shape),) = runs
        asked.append((loaded.kernel.id, loaded.toolkit, shape))
        where = {"kernel": "ladder.a", "toolkit": "cuda13", "m": 256, "n": 256, "k": 256, "build_key": "k1"}
        return [where | {"metric": "dram__bytes.sum", "value": 12, "unit": "byte", "status": "current"}], ""

    monkeypatch.setattr(results, "collect", collect)
    for _ in range(2):
        results.write_counters(sweep, tmp_path, said.append)
    assert asked == [("ladder.a", "cuda13", Shape.cube(256))] and not said
    (row,) = csv.DictReader(io.StringIO((tmp_path / "counters.csv").read_text()))
    assert (row["kernel"], row["value"], row["status"]) == ("ladder.a", "12", "current")
    monkeypatch.setattr(results, "collect", lambda *_: ([], "CUPTI is not installed"))
    sweep.journal.folder.joinpath("counters.json").unlink()
    results.write_counters(sweep, tmp_path, said.append)
    assert said == ["no hardware counters: CUPTI is not installed"]


def test_some_sizes_may_be_left_to_some_kernels_of_a_family():
    """A baseline is timed wherever a kernel is that it stands beside."""
    few = {"ladder": {"sizes": [256, 1024], "kernels": ["ladder.b"]}, "cute": None}
    settings = plan.Settings.of({**SETTINGS.document, "kernels_at": few}, "ladder")
    kernels = [make("a"), make("b")]
    points, skipped = plan.plan_points(kernels, [256, 512], ["cuda13"], ["warm"], lambda *_: None, settings.is_timed_at)
    timed = {(point.kernel, point.shape.m) for point in points}
    assert timed == {("ladder.a", 512), *((name, n) for name in ("ladder.b", "cublas.sgemm") for n in (256, 512))}
    assert not skipped
    halves = [make(name, dtype_in=name, dtype_out=name, baseline="cublas.gemm") for name in ("bf16", "fp16")]
    points, _ = plan.plan_points(halves, [256], ["cuda13"], ["warm"], lambda *_: None)
    assert {point.problem.dtype_in for point in points if point.toolkit == "library"} == {"bf16", "fp16"}


SMALL = {"sizes": {"ladder": [256, 512], "crt": [], "cute": []}}


@pytest.mark.parametrize(
    ("family", "changes", "name", "value"),
    [
        ("ladder", {"toolkits": ["cuda12", "cuda13"], "toolkit_of": {"ladder": "cuda12"}}, "toolkits", ("cuda12",)),
        ("cute", {"toolkits": ["cuda12", "cuda13"], "toolkit_of": {"cute": None}}, "toolkits", ("cuda12", "cuda13")),
        ("ladder", {"caches": ["cold", "warm"], "cache_of": {"ladder": "warm"}}, "caches", ("warm",)),
        ("ladder", {"sizes_of": {"ladder": [512, 1024]}}, "sizes", (512,)),
        ("ladder", {"sizes_of": {"ladder": [1024]}}, "sizes", (256, 512)),
    ],
)
def test_a_family_has_its_own_toolkit_cache_and_sizes_where_they_are_among_the_configured(family, changes, name, value):
    assert getattr(plan.Settings.of({**SETTINGS.document, **SMALL, **changes}, family), name) == value

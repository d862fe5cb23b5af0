"""The regimes from the journal to a checked recording, on a synthetic GPU; and what a reader refuses."""

import json
import shutil
from types import SimpleNamespace

import pandas as pd
import pytest
from recordings import GPU
from synthetic import write_build
from synthetic_gpu import SyntheticGpu

from gemmrepro import registry, timing
from gemmrepro.core.journal import Journal
from gemmrepro.errors import UserError
from gemmrepro.measure import passes, results
from gemmrepro.measure import plan as points
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.columns import REGIME_POINT
from gemmrepro.measure.prepare import Check, Sweep
from gemmrepro.measure.recording import write_manifest
from gemmrepro.measure.regimes import BURST, REGIMES, SUSTAINED
from gemmrepro.recordings import bring
from gemmrepro.recordings import regimes as checks
from gemmrepro.recordings.regimes import agreement

KERNELS = ("ladder.naive", "ladder.smem")
TAKE = f"recorded/gpu/ladder/{regime_files.FOLDER}/1"
TIMES = {"ladder.naive": 400.0, "ladder.smem": 300.0, "cublas.sgemm": 200.0}
DOCUMENT = {"toolkits": ["cuda13"], "seconds": 0.5, "pairs": {"sustained": 1, "burst": 1}}
DOCUMENT |= {"sizes": {"ladder": [256, 512]}, "kernels": {}, "minutes": {}}


class Rounds:
    """The rounds of a sweep, of which a pass asks for checks and for launches."""

    def __init__(self, sweep, say):
        self._sweep = sweep

    def ensure_checked(self, point, workspace, timer):
        check = self._sweep.check(point)
        if check is None:
            check = Check(point.kernel not in self._sweep.wrong, "wrong", 1.0, 1.0, TIMES[point.kernel])
            self._sweep.keep_check(point, check)
        return check

    workspace = staticmethod(lambda subjects: SimpleNamespace(forget_reference=lambda: None))
    if_it_fits = staticmethod(lambda subjects, work: work())
    bind = staticmethod(lambda point, workspace: lambda: None)

    def confirm(self, medians, workspace, timer):
        for point in medians:
            if point.kernel in self._sweep.cheats:
                self._sweep.keep_check(point, Check(False, "it keeps results", estimate_us=100.0))


def sweep_of(folder, kernels=KERNELS, wrong=(), cheats=(), machine=("Synthetic GPU", "1")):
    """A prepared sweep of two rungs of the ladder at two sizes, without a GPU."""
    chosen = {name: registry.kernel(name) for name in kernels}
    planned, skipped = points.plan_points(list(chosen.values()), [256, 512], ["cuda13"], ["warm"], lambda *_: None)
    machine = dict(zip(("gpu", "driver"), machine, strict=True))
    sweep = Sweep(
        session=SimpleNamespace(gpu=SimpleNamespace(arch="sm_90", machine=machine, describe=lambda: GPU)),
        family="ladder",
        settings=SimpleNamespace(sampling={}),
        build=folder / "build",
        kernels=chosen,
        loaded={(name, "cuda13"): SimpleNamespace(arch="sm_90", build_key="aaaa") for name in kernels},
        points=tuple(planned),
        skipped=tuple(skipped),
        versions={"cublas.sgemm": "cuBLAS 13.1.0"},
        journal=Journal(folder / "journal", machine, lambda _: None),
    )
    vars(sweep).update(wrong=wrong, cheats=cheats)
    for name in kernels:
        write_build(folder / "build", name, "cuda13", "aaaa")
    return sweep


def replace_gpu(monkeypatch):
    """Replace the parts of a measurement that need a GPU."""
    monkeypatch.setattr(passes, "Rounds", Rounds)
    monkeypatch.setattr(timing, "Timer", lambda session: SimpleNamespace())
    monkeypatch.setattr(results, "read_build", lambda *_: SimpleNamespace(toolkit_version="13.0.88"))


@pytest.fixture
def synthetic(monkeypatch):
    replace_gpu(monkeypatch)


def watts(load):
    """What a kernel draws depends on the kernel: the slow one least."""
    return {400.0: 600.0, 300.0: 900.0, 200.0: 1000.0}[load.launch_us]


def measured(folder, out, gpu=None, document=DOCUMENT, deadline=None, said=lambda _: None, **options):
    sweep = sweep_of(folder, **options)
    settings = passes.RegimeSettings.of(document, "ladder")
    device = gpu or SyntheticGpu(watts)
    work = passes.Passes(sweep, settings, passes.sets(sweep.points, settings.toolkits), device, said)
    complete = work.run(deadline)
    results.write_regimes(sweep, work, out)
    return complete, work, device


@pytest.fixture(scope="module")
def filed(tmp_path_factory):
    """A whole take of the ladder, filed as a recording, and today's builds."""
    folder = tmp_path_factory.mktemp("filed")
    with pytest.MonkeyPatch.context() as patch:
        replace_gpu(patch)
        measured(folder, folder / TAKE)
    shutil.rmtree(folder / "journal")
    return folder


@pytest.fixture
def take(tmp_path, filed):
    """A take of one's own, to spoil."""
    shutil.copytree(filed, tmp_path, dirs_exist_ok=True)
    return tmp_path / TAKE


def rows_of(folder):
    write_manifest(folder.parents[1])
    return checks.read_take("ladder", folder, folder.parents[4] / "build").rows


def test_a_take_follows_from_its_blocks(take):
    rows = rows_of(take)
    assert len(rows) == 3 * 2 * 2
    assert {row["regime"] for row in rows} == set(REGIMES)
    for row in rows:
        assert (row["rounds"], row["ready"], row["cache"]) == ("2", "2", "warm")
        assert bool(row["joules"]) == (row["regime"] == SUSTAINED)
        assert bool(row["ratio"]) == (row["toolkit"] != "library")
    readings = pd.read_parquet(take / regime_files.READINGS)
    assert set(readings.loc[readings["index"] == 0, "at_s"]) == {0.0}


def test_a_killed_run_continues_behind_its_last_pair(tmp_path, synthetic, capsys):
    class Killed(SyntheticGpu):
        blocks = 0

        def chunk(self, handle):
            if self.now() > 20:
                raise KeyboardInterrupt
            return super().chunk(handle)

    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, tmp_path / "out", Killed(watts))
    before = {path.name: path.read_text() for path in (tmp_path / "journal").glob("*.p0.json")}
    assert 0 < len(before) < 4
    capsys.readouterr()
    complete, work, _ = measured(tmp_path, tmp_path / "out")
    assert complete and all(work.visits(pair) for pair in work.wanted)
    for name, text in before.items():
        assert (tmp_path / "journal" / name).read_text() == text
    printed = capsys.readouterr()
    assert printed.out.count(" µs") == 24 - 6 * len(before)
    assert "regimes: 24/24 points" in printed.err


def test_what_the_time_limit_leaves_out_is_listed(tmp_path, synthetic):
    complete, _, _ = measured(tmp_path, tmp_path / "out", deadline=0.0)
    run = json.loads((tmp_path / "out" / regime_files.RUN).read_text())
    assert not complete and len(run["skipped"]) == 4
    assert all("time limit" in entry["reason"] for entry in run["skipped"])
    assert pd.read_csv(tmp_path / "out" / regime_files.SUMMARY).empty


@pytest.mark.parametrize(("kind", "reason"), [("wrong", "wrong"), ("cheats", "keeps results")])
def test_a_kernel_that_is_wrong_at_first_or_once_it_was_timed_has_no_rows(tmp_path, synthetic, kind, reason):
    measured(tmp_path, tmp_path / TAKE, **{kind: ("ladder.naive",)})
    assert {row["kernel"] for row in rows_of(tmp_path / TAKE)} == {"ladder.smem", "cublas.sgemm"}
    skipped = json.loads((tmp_path / TAKE / regime_files.RUN).read_text())["skipped"]
    assert {entry["kernel"] for entry in skipped} == {"ladder.naive"}
    assert skipped[0]["reason"].startswith("wrong at ") and reason in skipped[0]["reason"]


@pytest.mark.parametrize(
    ("column", "cell", "complaint"),
    [
        ("median_us", "100", "median_us of .* is 100, and its samples give"),
        ("layout", "col,row,row", "has no samples"),
        ("throttle", "hw_slowdown", "throttle of .* is hw_slowdown"),
        ("regime", "warm", "regime: 'warm' is not one of"),
        ("baseline", "cublas.hgemm", "the same passes"),
    ],
)
def test_rows_that_do_not_follow_from_their_samples_are_refused(take, column, cell, complaint):
    """Every baseline, else a cell of the second row, of ladder.naive in turn with its baseline."""
    rows = pd.read_csv(take / regime_files.SUMMARY, dtype=str, keep_default_na=False)
    rows.loc[(rows.baseline == "cublas.sgemm") if column == "baseline" else 1, column] = cell
    rows.to_csv(take / regime_files.SUMMARY, index=False)
    with pytest.raises(UserError, match=complaint):
        rows_of(take)


@pytest.mark.parametrize(
    ("names", "change", "complaint"),
    [
        ("s", lambda frame: frame[frame.block < 3], "are of no sample"),
        ("sr", lambda frame: frame.replace({"block": {0: 1, 1: 0}}), "balanced order"),
        ("r", lambda frame: frame.assign(at_s=-frame.at_s), "at_s goes back in block"),
        ("r", lambda frame: frame.assign(energy_j=2 * frame.energy_j), "joules"),
        ("s", lambda frame: frame.assign(index=frame["index"] + 1), "contradict each other"),
    ],
)
def test_samples_and_readings_that_cannot_be_are_refused(take, names, change, complaint):
    for name in names:
        path = take / {"s": regime_files.SAMPLES, "r": regime_files.READINGS}[name]
        change(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(UserError, match=complaint):
        rows_of(take)


@pytest.mark.parametrize(
    ("gpu", "complaint"),
    [
        ({"clock_max_mhz": 900}, "exceeds the limit of the GPU's clock: .* MHz above 900"),
        ({"name": "NVIDIA B200"}, "it was taken on NVIDIA B200, and ceilings was recorded on Synthetic GPU"),
    ],
)
def test_a_take_is_within_the_limits_of_the_gpu_of_its_neighbours(take, gpu, complaint):
    ceilings = take.parents[2] / "ceilings"
    ceilings.mkdir()
    shutil.copy(take / regime_files.RUN, ceilings)
    run = json.loads((take / regime_files.RUN).read_text())
    (take / regime_files.RUN).write_text(json.dumps({**run, "gpu": {**run["gpu"], **gpu}}))
    with pytest.raises(UserError, match=complaint):
        rows_of(take)


def test_a_take_is_brought_and_a_family_without_one_has_no_rows(take, tmp_path):
    recordings = take.parents[2]
    write_manifest(recordings / "ladder")
    count, outdated = bring.bring_regimes("ladder", recordings, tmp_path / "build", tmp_path / "out")
    assert (count, outdated) == (12, 0)
    bring.bring_regimes("ladder", recordings, tmp_path / "no builds", tmp_path / "out")
    # Libraries have no build.
    assert list(pd.read_csv(tmp_path / "out" / regime_files.SUMMARY).status).count("stale") == 8
    assert bring.bring_regimes("hopper", recordings, tmp_path / "build", tmp_path / "none") == (0, 0)
    assert pd.read_csv(tmp_path / "none" / regime_files.SUMMARY).empty
    assert json.loads((tmp_path / "out" / regime_files.RUN).read_text())["source"] == "recorded"


def test_of_each_row_the_last_take_with_a_current_one_is_brought(tmp_path, synthetic):
    """With its samples and readings."""
    first, second = tmp_path / TAKE, (tmp_path / TAKE).with_name("2")
    measured(tmp_path, first)
    measured(tmp_path / "two", second, kernels=KERNELS[:1])
    write_manifest(first.parents[1])
    assert bring.bring_regimes("ladder", first.parents[2], tmp_path / "build", tmp_path / "out") == (12, 0)
    take_of = {KERNELS[0]: 1, KERNELS[1]: 0, "cublas.sgemm": 1}
    for name in (regime_files.SAMPLES, regime_files.READINGS):
        brought, *filed = (pd.read_parquet(folder / name) for folder in (tmp_path / "out", first, second))
        for kernel, taken in take_of.items():
            rows = [frame[frame.kernel == kernel].reset_index(drop=True) for frame in (brought, *filed)]
            assert [rows[0].equals(of_take) for of_take in rows[1:]] == [taken == 0, taken == 1]
    run = json.loads((tmp_path / "out" / regime_files.RUN).read_text())
    assert len(run["earlier"]) == 1 and {point.split()[0]: take for point, take in run["take_of"].items()} == take_of
    found = [checks.read_take("ladder", folder, tmp_path / "build") for folder in (first, second)]
    for row in found[1].rows:
        row["status"] = "stale" if row["kernel"] == KERNELS[0] else row["status"]
    assert {point[0] for point, number in checks.chosen(found).items() if number == 0} == set(KERNELS)


def takes(*found: tuple[str, str, dict[str, float]]):
    """Takes by card, build key, and the median times of kernels."""
    cells = dict.fromkeys(REGIME_POINT, "") | {"toolkit": "cuda13", "regime": "sustained", "ratio": 9.0}
    return [
        ({"gpu": {"card": card}}, [cells | dict(kernel=k, median_us=t, build_key=key) for k, t in us.items()])
        for card, key, us in found
    ]


A1, A2 = ("a", "0", {"x": 100.0, "y": 10.0}), ("a", "0", {"x": 103.0, "y": 10.1})
B = ("b", "0", {"x": 110.0, "y": 10.05, "z": 1.0})


def test_takes_of_a_card_and_cards_are_held_apart():
    def spread(*found, regime=SUSTAINED):
        return agreement(takes(*found))["spread"][regime]

    again, cards = (spread(A1, A2, B)[name] for name in ("repeated", "between_cards"))
    assert again["rows"] == 2 and again["at"].startswith("x ") and again["at"].endswith(" sustained")
    assert again["largest"] == pytest.approx(0.03) and again["middle"] == pytest.approx(0.02)
    # A card's value is its takes' mean.
    assert cards["rows"] == 2 and cards["largest"] == pytest.approx(110 / 101.5 - 1)
    assert spread(A1, A2, B, regime=BURST)["repeated"] is None and spread(A2, B)["repeated"] is None
    assert spread(A1, A2)["between_cards"] is None
    some = [A1, ("b", "0", {"x": 101.0, "y": 10.3}), ("c", "0", {"x": 104.0})]
    assert spread(*some)["between_cards"]["largest"] == pytest.approx(0.04)
    x, y = (by_take := agreement(takes(*some))["by_take"])["us"].items()
    assert (x[0].split()[0], y[0].split()[0]) == ("x", "y") and (x[1], y[1]) == pytest.approx((0.04, 0.03))
    assert not any(by_take["ratio"].values()), "each ratio is the same"

"""Rows of counters.csv: of which runs there are some, and why there are none."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from synthetic_cupti import SyntheticCupti

from gemmrepro import registry
from gemmrepro.gpu import ranges
from gemmrepro.gpu.loaded import Occupancy
from gemmrepro.gpu.ranges import Cupti, CuptiError, Reading
from gemmrepro.measure import results
from gemmrepro.operations import Shape
from gemmrepro.recordings.sweeps import check_counters

TIME, BYTES, RATE = "gpu__time_duration.sum", "dram__bytes.sum", "dram__bytes.sum.per_second"
SHARE = "lts__t_sector_hit_rate.pct"
SHAPE = Shape.cube(256)
COUNTS = {TIME: ("nanosecond", 5e3), BYTES: ("byte", 7e6), RATE: ("byte/second", 1.4e12)}


class Loaded:
    """In place of a loaded kernel; ladder's are one launch."""

    def __init__(self, name) -> None:
        self.kernel, self.toolkit, self.build_key = registry.kernel(name), "cuda13", f"key of {name}"

    def bind(self, operands):
        return lambda: None

    def occupancy(self, shape):
        return Occupancy(2, 228, 2, 62.0625) if self.kernel.family == "ladder" else None


@pytest.fixture
def gpu(monkeypatch) -> SimpleNamespace:
    made = SimpleNamespace(library=SyntheticCupti(COUNTS), sync=lambda: None)
    monkeypatch.setattr(ranges, "load", lambda: Cupti(made.library))
    monkeypatch.setattr(ranges, "current", lambda: (0, 99))
    monkeypatch.setattr(results, "Timer", lambda given: SimpleNamespace(session=given, flush=lambda: None))
    monkeypatch.setattr(results, "random", lambda *_: ((), None))
    monkeypatch.setattr(results, "Operands", SimpleNamespace(of=lambda *_: None))
    monkeypatch.setattr(results, "run_key", lambda kernel, build_key, shape: "f" * 16)
    return made


def test_each_run_has_rows_by_metric_and_those_of_one_launch_its_own(gpu, tmp_path) -> None:
    rows, reason = results.collect(gpu, [(Loaded("crt.fused"), SHAPE), (Loaded("ladder.naive"), SHAPE)])
    assert reason == ""
    found = {(row["kernel"], row["metric"]): (row["value"], row["unit"]) for row in rows}
    counted = {TIME: (5000, "ns"), BYTES: (7000000, "byte"), RATE: (1400000000000, "byte/s")}
    assert found == {
        **{("crt.fused", metric): value for metric, value in counted.items()},
        **{("ladder.naive", metric): value for metric, value in counted.items()},
        ("ladder.naive", "launch__occupancy_limit_registers"): (2, "block"),
        ("ladder.naive", "launch__occupancy_limit_shared_mem"): (228, "block"),
        ("ladder.naive", "launch__waves_per_multiprocessor"): (62.0625, ""),
    }
    assert {(row["build_key"], row["m"], row["n"], row["k"]) for row in rows} == {
        (f"key of {name}", 256, 256, 256) for name in ("crt.fused", "ladder.naive")
    }
    texts = [{name: str(value) for name, value in row.items()} for row in rows]
    check_counters(texts, [], tmp_path / "counters.csv")


def test_launches_of_a_run_are_told_as_one() -> None:
    """What is counted is added up, what is a share or a rate is a mean by time."""
    split = {TIME: Reading(10.0, "ns"), BYTES: Reading(100.0, "byte"), SHARE: Reading(90.0, "%")}
    product = {TIME: Reading(30.0, "ns"), BYTES: Reading(700.0, "byte"), SHARE: Reading(50.0, "%")}
    found = results.combined([split, product])
    assert found == {TIME: Reading(40.0, "ns"), BYTES: Reading(800.0, "byte"), SHARE: Reading(60.0, "%")}
    assert results.combined([split]) == split
    assert results.combined([split, {TIME: Reading(30.0, "ns")}])[SHARE] == Reading(90.0, "%")


def test_without_cupti_or_permission_there_are_no_rows_and_the_way_out(gpu, monkeypatch) -> None:
    assert results.collect(gpu, []) == ([], "") and gpu.library.asked == []
    gpu.library.fails["cuptiProfilerGetCounterAvailability"] = 35
    rows, reason = results.collect(gpu, [(Loaded("ladder.naive"), SHAPE)])
    assert rows == [] and "NVreg_RestrictProfilingToAdminUsers=0" in reason
    monkeypatch.setattr(ranges, "load", Mock(side_effect=CuptiError("CUPTI is not installed")))
    assert results.collect(gpu, [(Loaded("ladder.naive"), SHAPE)]) == ([], "CUPTI is not installed")

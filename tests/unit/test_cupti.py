"""Reading counters with CUPTI: the order of its calls, its errors, and what the real library says without a GPU."""

import math

import pytest
from synthetic_cupti import SyntheticCupti

from gemmrepro.core.names import METRICS
from gemmrepro.gpu import ranges
from gemmrepro.gpu.ranges import Chip, Cupti, CuptiError, RangeProfiler, Reading
from gemmrepro.measure.results import LAUNCH
from gemmrepro.recordings.sweeps import UNITS

TIME, BYTES, RATE, SHARE = "gpu__time_duration.sum", "dram__bytes.sum", "dram__bytes.sum.per_second", "a__share.pct"
COUNTS = {TIME: ("nanosecond", 5e3), BYTES: ("byte", 7e6), RATE: ("byte/second", 1.4e12), SHARE: ("percent", 50.5)}


@pytest.fixture(autouse=True)
def a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "current", lambda: (0, 99))


def read(library: SyntheticCupti, *metrics: str) -> dict[str, Reading]:
    """What is read of a run's only launch; the library also keeps when it was prepared and run."""
    prepare, run = (lambda: library.asked.append("prepare")), (lambda: library.asked.append("run"))
    with RangeProfiler(Cupti(library), metrics or list(library.metrics)) as profiler:
        (launch,) = profiler.read(prepare, run)
    return launch


def test_values_come_with_the_units_of_counters_csv() -> None:
    more = {"a": ("instruction", 1.0), "b": ("gpc_cycle", 2.0), "c": ("l2_sector", 3.0), "d": ("l1tex_wavefront", 4.0)}
    found = read(SyntheticCupti(COUNTS | more))
    units = ["ns", "byte", "byte/s", "%", "inst", "cycle", "sector", ""]
    assert [(metric, reading.unit) for metric, reading in found.items()] == [*zip([*COUNTS, *more], units, strict=True)]
    assert [reading.value for reading in found.values()] == [5e3, 7e6, 1.4e12, 50.5, 1.0, 2.0, 3.0, 4.0]


def test_a_metric_that_the_chip_lacks_is_left_out_and_one_without_a_value_too() -> None:
    library = SyntheticCupti(COUNTS | {BYTES: ("byte", math.nan)})
    found = read(library, TIME, "sm__of_another_chip.sum", BYTES)
    assert found == {TIME: Reading(5e3, "ns")} and library.counted == [TIME, BYTES]
    with pytest.raises(CuptiError, match="none of the metrics on GX1"):
        read(library, "sm__of_another_chip.sum")
    assert not library.open


@pytest.mark.parametrize(
    ("function", "status", "says"),
    [
        ("cuptiProfilerGetCounterAvailability", 35, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("cuptiRangeProfilerStart", 35, r"CAP_SYS_ADMIN.*\(CUPTI_ERROR_35 from cuptiRangeProfilerStart\)"),
        ("cuptiRangeProfilerEnable", 26, "another program reads the counters"),
        ("cuptiProfilerInitialize", 999, r"^it says why \(CUPTI_ERROR_999 from cuptiProfilerInitialize\)$"),
        ("cuptiProfilerHostGetMetricProperties", 1, "it says why"),
        ("cuptiRangeProfilerStop", 999, "from cuptiRangeProfilerStop"),
    ],
)
def test_a_call_that_fails_says_why_and_what_was_opened_is_closed(function: str, status: int, says: str) -> None:
    library = SyntheticCupti(COUNTS)
    library.fails[function] = status
    with pytest.raises(CuptiError, match=says) as caught:
        read(library)
    assert caught.value.status == status
    assert "host" not in library.open
    assert "profiler" not in library.open or function == "cuptiRangeProfilerStop", "it refuses while a pass is open"


def test_a_gpu_that_cannot_be_profiled_is_named_with_the_reason() -> None:
    library = SyntheticCupti(COUNTS)
    library.supported |= {"supported": 1, "vgpu": 2, "wsl": 1}
    with pytest.raises(CuptiError, match=r"does not profile this GPU \(a virtual GPU, WSL\)"):
        read(library)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [("ranges", 0, "counted 0 launches"), ("dropped", 1, "dropped 1"), ("more", True, "more than the 2 passes")],
)
def test_counters_that_are_not_of_the_whole_run_are_refused(setting: str, value: int, says: str) -> None:
    library = SyntheticCupti(COUNTS)
    setattr(library, setting, value)
    with pytest.raises(CuptiError, match=says):
        read(library)


@pytest.fixture(scope="module")
def installed() -> Cupti:
    try:
        return ranges.load()
    except CuptiError as error:
        pytest.skip(str(error))


LACKS = {
    "GH100": set(),
    "GA100": {"sm__inst_executed_pipe_tensor_op_gmma.sum"},
    "AD102": {"sm__inst_executed_pipe_tensor_op_gmma.sum"},
}
"""Metrics that a chip lacks."""


@pytest.mark.parametrize("name", LACKS)
def test_cupti_has_the_metrics_in_the_units_of_recordings(installed: Cupti, name: str) -> None:
    counted = [metric for metric in METRICS if not metric.startswith(LAUNCH)]
    chip = Chip(installed, name)
    try:
        units = chip.units(counted)
        assert set(counted) - units.keys() == LACKS[name]
        assert {metric: units[metric] for metric in UNITS} == UNITS
        assert {unit for unit in units.values()} == {"byte", "byte/s", "ns", "inst", "sector", "cycle", "%", ""}
        assert 1 <= chip.passes(chip.config(list(units))) <= 8
    finally:
        chip.close()

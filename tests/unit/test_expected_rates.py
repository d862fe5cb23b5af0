"""Which rate of the GPU at hand a published value is carried over by, and experiments read point by point."""

from types import SimpleNamespace

import pandas as pd
import pytest

from gemmrepro.errors import UserError
from gemmrepro.judge import carrying
from gemmrepro.judge.carrying import measured_ceiling, of_operation
from gemmrepro.judge.evidence import Evidence, NotMeasured
from gemmrepro.judge.metrics import rows
from gemmrepro.judge.metrics.base import expected
from gemmrepro.registry.chips import Rate

GPU = {"clock_max_mhz": 1980, "sm_count": 132, "compute_capability": "9.0"}


def evidence(gpu: dict | None = None, ceilings: object = None) -> SimpleNamespace:
    return SimpleNamespace(measured=SimpleNamespace(run={"gpu": gpu}), ceilings=ceilings)


def at_hand(name: str, gpu: dict | None, machine: str | None, **transfer: str) -> Rate:
    return carrying._at_hand(name, transfer, evidence(gpu), machine)


def test_facts_of_the_driver_come_before_the_data_sheet():
    assert at_hand("clock", GPU, "NVIDIA H200") == Rate("clock", 1980.0, "MHz", "as the driver says")
    assert at_hand("sms", GPU, None) == Rate("sms", 132.0, "SMs", "as the driver says")
    assert at_hand("cycles", GPU, None).value == pytest.approx(261.36)
    assert at_hand("shared", GPU, None).value == pytest.approx(261.36 * 128)
    for gpu in (None, {}, {**GPU, "sm_count": None}, {**GPU, "clock_max_mhz": None}):
        assert at_hand("sms", gpu, "NVIDIA H200").source != "as the driver says"


def test_other_rates_are_those_of_the_data_sheet_or_of_nobody():
    assert at_hand("fp32", GPU, "NVIDIA H200").value == 67.0
    with pytest.raises(NotMeasured, match="no rate 'fp32' of Card X, and no ceiling measured it"):
        at_hand("fp32", GPU, "Card X")
    with pytest.raises(NotMeasured, match="no rate 'fp32' of this machine"):
        at_hand("fp32", GPU, None)


def test_the_fastest_ceiling_counts_if_it_was_measured_on_this_gpu(monkeypatch):
    rates = {"ceilings.wgmma": 800.0, "ceilings.mma_f16": 900.0}

    def measured(of: object, kernel: str) -> SimpleNamespace | None:
        return SimpleNamespace(kernel=kernel, value=rates[kernel], unit="TFLOP/s") if kernel in rates else None

    monkeypatch.setattr(carrying, "measured_ceiling", measured)
    here = evidence(GPU, SimpleNamespace(gpu="NVIDIA H200"))
    rate = lambda machine, **transfer: carrying._at_hand("bf16", transfer, here, machine)  # noqa: E731
    assert rate("NVIDIA H200") == Rate("bf16", 800.0, "TFLOP/s", "measured by ceilings.wgmma")
    here.measured.run["gpu"] = GPU | {"compute_capability": "8.0"}
    assert rate("NVIDIA H200").value == 900.0, "mma.sync is the widest instruction of this one"
    here.measured.run["gpu"] = GPU | {"compute_capability": "10.0"}
    assert rate("NVIDIA H200").source != "measured by ceilings.mma_f16", "tcgen05 is wider"
    here.measured.run["gpu"] = GPU
    assert rate("NVIDIA H200", ceiling="ceilings.wgmma").value == 800.0
    assert rate("NVIDIA H200", ceiling="ceilings.ffma").value == 989.5, "it has no row: the data sheet"
    assert rate("NVIDIA H200", here="data sheet").value == 989.5
    assert "measured" not in rate("NVIDIA GeForce RTX 4090").source, "the ceiling is another GPU's"


def test_what_is_expected_is_in_the_measured_unit():
    def readings(unit: str) -> SimpleNamespace:
        return SimpleNamespace(judged=SimpleNamespace(value=SimpleNamespace(unit=unit)), carried=None)

    published = SimpleNamespace(value=2000.0, unit="GFLOP/s", id="f.x")
    assert expected(published, readings("TFLOP/s")) == pytest.approx(2.0)
    assert expected(published, readings("GFLOP/s")) == 2000.0
    carried = readings("TFLOP/s")
    carried.carried = SimpleNamespace(factor=lambda unit: {"GFLOP/s": 1.5}[unit])
    assert expected(published, carried) == pytest.approx(3.0)
    with pytest.raises(ValueError, match=r"f\.x has no published figure"):
        expected(SimpleNamespace(value=None, unit="", id="f.x"), carried)


def counter(metric: str, kernel: str = "k", n: int = 4096, toolkit: str = "cuda13", **more) -> dict:
    place = {"kernel": kernel, "toolkit": toolkit, "m": n, "n": n, "k": n, "metric": metric}
    return place | {"value": 7.0, "unit": "byte", "status": "current", "build_key": "b"} | more


@pytest.mark.parametrize("others", [[], [{"kernel": "ladder.smem", "toolkit": "cuda13", "build_key": "0"}]])
def test_a_row_that_was_left_out_is_missing_for_the_sweep_s_reason(others, tmp_path):
    columns = ["kernel", "toolkit", "cache", "m", "n", "k", "build_key"]
    reason = "8192x8192x8192: needs 4.1 GiB, 3.2 GiB are free"
    run = {"skipped": [{"kernel": "ladder.naive", "toolkit": "cuda13", "reason": reason}]}
    measured = SimpleNamespace(summary=pd.DataFrame(others, columns=columns), run=run, family="ladder")
    given = Evidence(measured=measured, gates={}, build_dir=tmp_path)
    with pytest.raises(NotMeasured, match=f"^the sweep left out ladder.naive: {reason}$"):
        given.row("ladder.naive", 8192, "warm", "cuda13")
    absent = "there is no row of ladder.naive at" if others else "has no measurements"
    for n, toolkit in ((8192, "cuda12"), (4096, "cuda13")):
        with pytest.raises(NotMeasured, match=absent):
            given.row("ladder.naive", n, "warm", toolkit)


def test_a_counter_is_of_its_kernel_toolkit_metric_and_size(tmp_path):
    rows = [counter("m"), counter("o"), counter("m", kernel="j"), counter("m", toolkit="cuda12"), counter("m", n=256)]
    measured = SimpleNamespace(counters=pd.DataFrame(rows), family="f")
    given = Evidence(measured=measured, gates={}, build_dir=tmp_path)
    value = given.counter("k", 4096, "m", "cuda13", "KB")
    assert (value.value, value.unit, value.label) == (pytest.approx(0.007), "KB", "k, 4096, cuda13")
    with pytest.raises(NotMeasured, match="which is not a multiple of inst"):
        given.counter("k", 4096, "m", "cuda13", "inst")
    others = (("k", 256, "o", "cuda13"), ("j", 4096, "o", "cuda13"), ("j", 4096, "m", "cuda12"))
    for kernel, n, metric, toolkit in others:
        with pytest.raises(NotMeasured, match=f"there is no row of counter {metric} for {kernel} at {n}"):
            given.counter(kernel, n, metric, toolkit, "byte")
    failed = Evidence(measured=measured, gates={"k": {"passed": False}}, build_dir=tmp_path)
    with pytest.raises(NotMeasured, match="k failed its gate, so its rows count for nothing"):
        failed.counter("k", 4096, "m", "cuda13", "byte")


def shared(**more: object) -> SimpleNamespace:
    row = {"unit": "GFLOP/s", "value": 1.0}
    usual = {"transfer": {"kind": "share", "of": "fp32"}, "published": (row,), "same_side": False, "of_two": False}
    return SimpleNamespace(**{**usual, "hardware": "NVIDIA A6000", "article": "ladder", "id": "f.x", **more})


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (shared(), []),
        (shared(published=()), [("published", "only a published value carries over by rates")]),
        (shared(of_two=True), [("transfer", "a quotient of two rows has no share of one rate; use the kind model")]),
        (shared(hardware="Card X"), [("transfer", "article.yaml names no chip for the hardware 'Card X'")]),
        (shared(same_side=True), [("same_side_of", "has no meaning for a share")]),
        (shared(transfer={"kind": "ratio"}), []),
    ],
)
def test_what_is_wrong_with_a_share_is_said(one, says):
    assert carrying.problems(one) == says


def test_ceilings_of_an_operation_are_the_highest_first():
    place = {"toolkit": "cuda13", "dtype": "fp32", "m": 1, "n": 1, "k": 1, "cache": "warm", "gbps": None}
    place |= {"clock_mhz": 1980.0, "power_w": None, "status": "current"}
    found = [("ceilings.ffma", 60.0), ("ceilings.ffma", 59.0), ("ceilings.ffma_rrr", 61.0), ("ceilings.mma_f16", 640.0)]
    table = [{**place, "kernel": kernel, "tflops": rate} for kernel, rate in found]
    table.append({**table[0], "tflops": 99.0, "status": "stale"})
    measured = SimpleNamespace(summary=pd.DataFrame(table))
    highest = of_operation(measured, "ceiling_flops", "fp32")
    assert [(one.kernel, one.value, one.unit) for one in highest] == [
        ("ceilings.ffma_rrr", 61.0, "TFLOP/s"),
        ("ceilings.ffma", 60.0, "TFLOP/s"),
    ]
    assert highest[0].kernel in highest[0].key and (highest[0].clock_mhz, highest[0].power_w) == (1980.0, None)
    assert of_operation(measured, "ceiling_bytes") == []
    ceiling = measured_ceiling(measured, "ceilings.ffma")
    assert ceiling is not None and ceiling.value == 60.0 and measured_ceiling(measured, "ceilings.wgmma") is None
    with pytest.raises(UserError, match=r"ceilings\.chain measures no ceiling"):
        measured_ceiling(measured, "ceilings.chain")


def test_cells_that_a_metric_needs_must_be_there():
    place = {"kernel": "k", "toolkit": "cuda13", "dtype": "fp16", "m": 64, "n": 64, "k": 64, "cache": "warm"}
    row = pd.Series({**place, "median_us": 2.0, "ci_low_us": 1.9, "ci_high_us": float("nan")})
    rows.require(row, "median_us")
    with pytest.raises(NotMeasured, match="has no ci_high_us"):
        rows.require(row, "median_us", "ci_high_us")
    with pytest.raises(NotMeasured):
        rows.time(row, None, None, "ms", "k")

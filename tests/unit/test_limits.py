"""What limits the data are counted, and no interval is printed that they do not bear; test_report.py has the pages."""

import numpy as np
import pandas as pd
import pytest

from gemmrepro.measure.rows import Measurements
from gemmrepro.paper import page
from gemmrepro.paper.text import row_view

RUN = {"gpu": {"name": "A GPU", "clock_max_mhz": 2000}}


def rows(**cells) -> pd.DataFrame:
    row = {"kernel": "", "toolkit": "cuda13", "tflops": 30.0, "throttle": "none", "clock_mhz": 2000.0, "rounds": 7.0}
    return pd.DataFrame([row | {"samples": 50.0} | cells])


def measured(name: str, run: dict | None = None, **cells) -> dict[str, Measurements]:
    return {name: Measurements(name, rows(**cells), pd.DataFrame(), RUN | (run or {}))}


def test_rows_that_the_power_cap_slowed_are_counted_by_family():
    capped = {"throttle": "sw_power_cap", "clock_mhz": 1500.0}
    of = measured("ladder") | measured("cute", **capped) | measured("ada", throttle="sw_power_cap", clock_mhz=1970.0)
    assert [vars(view) for view in page._slowed(of)] == [{"name": "cute", "capped": 1, "of": 3}]


def test_what_no_sweep_timed_has_its_reason_and_its_toolkit_but_for_what_the_gpu_cannot_run():
    slow = [{"kernel": "cute.one", "toolkit": "cuda12", "reason": "too slow"}]
    lacking = [{"kernel": "cute.two", "toolkit": "cuda12", "reason": "needs Hopper (sm_90a)"}]
    for timed, by in (("cute.one", " with cuda12"), ("cute.two", "")):
        of = measured("cute", {"skipped": slow + lacking}, kernel=timed)
        assert page._untimed(of, {"cute.two"}) == [("too slow", by, ["cute.one"])]


@pytest.mark.parametrize(
    ("capability", "unchecked"), [("9.0", {}), ("13.0", {"fp32 with fp32 sums": 1, "fp16 with fp16 sums": 1})]
)
def test_rates_that_nothing_bounds_are_counted_by_types(capability, unchecked):
    run = {"gpu": {"name": "Card X", "compute_capability": capability, "sm_count": 10, "clock_max_mhz": 1000}}
    of = measured("ladder", run, kernel="ladder.naive") | measured("hopper", run, kernel="hopper.sketch")
    assert page._unchecked(of, None) == unchecked


def measured_row(**cells) -> dict:
    numbers = {"m": 4096, "n": 4096, "k": 4096, "median_us": 200.0, "ci_low_us": 190.0, "ci_high_us": 210.0}
    numbers |= {"tflops": 687.0, "gbps": np.nan, "ratio": 0.9, "ratio_ci_low": 0.89, "ratio_ci_high": 0.91}
    numbers |= {"samples": 50, "rounds": 3, "err_scaled_max": 1.0, "err_fro": 1e-6, "clock_mhz": 1500.0}
    words = {"throttle": "", "status": "current", "power_w": 690.0, "temp_c": 60}
    words |= {"kernel": "hopper.wgmma", "family": "hopper", "dtype": "bf16", "cache": "warm", "toolkit": "cuda12"}
    return numbers | words | cells


def test_an_interval_from_five_samples_or_above_the_ceiling_is_not_printed():
    shown, few = row_view(measured_row(), ceilings={"bf16": 720.0}), row_view(measured_row(samples=5))
    assert shown.time_interval and shown.tflops_interval and shown.paired == pytest.approx(687.0 / 0.9)
    assert not (few.time_interval or few.tflops_interval or few.ratio_interval)
    above = row_view(measured_row(), ceilings={"bf16": 690.0})
    assert not above.tflops_interval and not above.time_interval
    assert above.ratio_interval == "[0.890, 0.910]"  # a ratio has no ceiling

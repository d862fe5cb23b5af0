"""A limit is printed where it holds of the data, and only there."""

import re
from html import unescape
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from gemmrepro import registry
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper import page
from gemmrepro.paper.claims import VerdictsView
from gemmrepro.paper.gpus import highest, runnable
from gemmrepro.paper.text import row_view

RUN = {
    "gpu": {"name": "A GPU", "clock_max_mhz": 2000},
    "libraries": {"cuBLAS": "13.1"},
    "config": {"seconds_per_round": 0.4},
}


def rows(**cells) -> pd.DataFrame:
    row = {"kernel": "", "toolkit": "cuda13", "tflops": 30.0, "throttle": "none", "clock_mhz": 2000.0, "rounds": 7.0}
    return pd.DataFrame([row | {"samples": 50.0} | cells])


def data(names: dict[str, dict], run: dict | None = None, source: str = "live") -> SimpleNamespace:
    """Families by name, each with what is not usual of its rows and its view."""
    families, measured = [], {}
    for name, own in names.items():
        own = dict(own)
        table = SimpleNamespace(
            levels=["a level"],
            caches=own.pop("caches", ("cold", "warm")),
            toolkits=own.pop("toolkits", ("cuda12", "cuda13")),
            has_size=own.pop("has_size", True),
        )
        gates = [
            SimpleNamespace(name=toolkit, judged=measured_too, measured=measured_too)
            for toolkit, measured_too in (("cuda12", True), ("cuda13", own.pop("measured", True)))
        ]
        kernel = SimpleNamespace(
            id=f"{name}.one",
            name="L1",
            declared=SimpleNamespace(family=name, platform=SimpleNamespace(tuned_sms=0)),
            evidence=own.pop("evidence", "asked for"),
            code=SimpleNamespace(uncompiled=own.pop("uncompiled", ())),
            gate=SimpleNamespace(toolkits=gates, numeric_passed=True),
        )
        skipped = own.pop("skipped", [])
        family = SimpleNamespace(name=name, source=source, table=table, kernels=[kernel], experiments=[])
        family.has_counters, family.stale = own.pop("has_counters", True), own.pop("stale", 0)
        families.append(family)
        measured[name] = Measurements(name, rows(**own), pd.DataFrame(), (run or RUN) | {"skipped": skipped})
    verdicts = VerdictsView((), "A GPU", source, {})
    inputs = SimpleNamespace(verdicts=verdicts, measured=measured, regimes={}, locks=["a lock"], config={})
    return SimpleNamespace(inputs=inputs, families=families)


def said(of: SimpleNamespace) -> dict[str, list[str]]:
    """The sentences that are printed, by the limits that they are about."""
    for family in of.families:
        measured = of.inputs.measured[family.name]
        family.run, family.gpu = measured.run, measured.gpu
    environment = page._environment()
    environment.globals |= {"families": of.families, "verdicts": of.inputs.verdicts, "locks": of.inputs.locks}
    environment.globals["runnable"] = runnable([each.name for each in of.families], of.inputs.measured.values())
    text = environment.get_template("sections/limits.j2").render(**page.facts(of.inputs, of.families))
    found: dict[str, list[str]] = {}
    for name, sentence in re.findall(r'<li data-limit="(.*?)">(.*)</li>', text):
        found.setdefault(unescape(name), []).append(unescape(sentence))
    return found


def test_of_a_full_run_only_what_holds_of_every_run_is_said():
    assert set(said(data({"ladder": {}, "hopper": {}}))) == {
        "one model of GPU",
        "one release of cuBLAS",
        "short bursts",
    }


@pytest.mark.parametrize(
    ("limit", "own"),
    [
        ("clock below its maximum", {"throttle": "sw_power_cap", "clock_mhz": 1500.0}),
        ("no counters", {"has_counters": False}),
        ("article's size missing", {"has_size": False}),
        ("stale rows", {"stale": 2}),
        ("not compiled", {"uncompiled": ("cuda13",)}),
        ("kernels not timed", {"skipped": [{"kernel": "cute.one", "toolkit": "cuda12", "reason": "too slow"}]}),
    ],
)
def test_a_limit_names_the_family_that_it_holds_of(limit, own):
    before, after = (said(data({"ladder": {}, "cute": cells})) for cells in ({}, own))
    assert limit not in before
    assert set(after) == {*before, limit}
    if limit != "stale rows":
        assert all("cute" in sentence and "ladder" not in sentence for sentence in after[limit])


def test_what_the_gpu_cannot_run_is_counted_first_one_line_a_reason_and_told_no_second_time():
    skipped = [{"kernel": "hopper.wgmma", "toolkit": "cuda12", "reason": "needs Hopper (sm_90a)"}]
    run = RUN | {"gpu": RUN["gpu"] | {"compute_capability": "8.9"}}
    of = data({"ladder": {}, "hopper": {"skipped": skipped}}, run)
    found = said(of)
    every = sum(len(list(registry.kernels(name))) for name in ("ladder", "hopper"))
    (sentence,) = found["kernels that cannot run"]
    assert re.match(rf"Of {every} kernels \d+ run on this GPU; 2", sentence)
    assert "need Hopper (sm_90a)" in sentence and "kernels not timed" not in found
    of.inputs.config["sweep"] = {"instead_of": {"hopper": "cuda12"}}
    assert "hopper: cuda12" in said(of)["another toolkit"][0]


def test_what_has_changed_since_or_is_not_asked_for_is_said_so():
    assert "no counters" not in said(data({"ladder": {}, "memory": {"has_counters": False, "evidence": None}}))
    of = data({"ada": {"skipped": [{"kernel": "ada.one", "toolkit": "cuda12", "reason": "its gate failed"}]}})
    assert said(of)["kernels not timed"] == ["ada.one failed its gate when the sweep ran, and passes it now, untimed."]
    of = data({"ladder": {}, "hopper": {}})
    of.inputs.measured["hopper"].run["gpu"] = {"name": "Another GPU"}
    assert "one model of GPU" not in said(of)


def test_rates_that_nothing_bounds_are_said_to_be_unchecked_in_one_sentence():
    rates = "1 row of fp32 with fp32 sums and 1 row of fp16 with fp16 sums"
    for capability, found in (("9.0", []), ("13.0", [f"Rate not checked: {rates}"])):
        gpu = {"name": "Card X", "compute_capability": capability, "sm_count": 10, "clock_max_mhz": 1000}
        of = {"ladder": {"kernel": "ladder.naive"}, "hopper": {"kernel": "hopper.sketch"}}
        sentences = said(data(of, RUN | {"gpu": gpu})).get("rates not checked", [])
        assert [each.split(". No ceiling that bounds them was measured")[0] for each in sentences] == found


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
    assert above.ratio_interval == "[0.8900, 0.9100]"  # a ratio has no ceiling


def test_a_loop_bounds_the_types_that_no_other_instruction_makes_faster():
    cells = {"build_key": "a", "clock_mhz": 2000.0, "power_w": 90.0, "gbps": np.nan}
    loop = pd.DataFrame([measured_row(kernel="ceilings.mma_f16", dtype="fp16", tflops=160.0, **cells)])
    found = {
        name: highest({"ceilings": Measurements("ceilings", loop, pd.DataFrame(), {"gpu": {**of, "name": name}})})
        for name, of in {
            "NVIDIA B200": {"compute_capability": "10.0", "sm_count": 148, "clock_max_mhz": 1965},
            "NVIDIA A100-SXM4-80GB": {"compute_capability": "8.0", "sm_count": 108, "clock_max_mhz": 1410},
            "NVIDIA GeForce RTX 4090": {"compute_capability": "8.9", "sm_count": 128, "clock_max_mhz": 3105},
        }.items()
    }
    assert list(found.values()) == [{}, {"fp16": 160.0, "bf16": 160.0}, {"bf16": 160.0}]

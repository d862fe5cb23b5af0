"""What the report says of the regimes."""

from dataclasses import replace

import pandas as pd
import pytest

from gemmrepro.measure.columns import REGIME_COLUMNS, REGIME_POINT
from gemmrepro.measure.regimes import BURST, IN_TURN, SUSTAINED
from gemmrepro.measure.rows import Measurements, Regimes
from gemmrepro.paper import exports, page
from gemmrepro.paper.regimes import THE_LIBRARY, Accuracies, Entry, leaders, recommendations, regime_lines, use_cases
from gemmrepro.paper.text import NONE, View, interval, regime_row_view, row_anchor

# By kernel: ratio in turn, sustained, in bursts.
RATIOS = {"hopper.lockstep": (0.99, 1.02, 1.05), "hopper.by_size": (1.01, 0.98, 1.04)}
REGIMES, NAN = (SUSTAINED, BURST), float("nan")


def row(kernel: str, regime: str, ratio: float | None, **cells: object) -> dict[str, object]:
    toolkit = "library" if kernel.startswith("cublas") else "cuda13"
    shape = {**dict.fromkeys("mnk", 4096), "dtype": "bf16", "dtype_out": "bf16", "layout": "row,col,row"}
    known = {"kernel": kernel, "toolkit": toolkit, "regime": regime, "cache": "warm", "status": "current"}
    values = {"ratio": ratio, "rung": kernel, "baseline": "cublas.gemm", "clock_mhz": 1500.0, "joules": 0.14}
    if ratio is not None:
        values |= {"ratio_ci_low": ratio - 0.004, "ratio_ci_high": ratio + 0.004}
    times = {"median_us": 200.0, "baseline_median_us": 200.0 if ratio else None, "samples": 60, "err_fro": 0.0017}
    return {**dict.fromkeys(REGIME_COLUMNS), **known, **shape, **values, **times, **cells}


def measured() -> tuple[dict[str, Measurements], dict[str, Regimes]]:
    turned = [row(kernel, IN_TURN, ratios[0]) for kernel, ratios in RATIOS.items()]
    turned.append(row("hopper.ping_pong", IN_TURN, 1.5))  # not measured in the regimes
    alone = [row(kernel, regime, of[1 + i]) for kernel, of in RATIOS.items() for i, regime in enumerate(REGIMES)]
    alone += [row("cublas.gemm", regime, None, joules=0.15) for regime in REGIMES]
    in_turn = Measurements("hopper", pd.DataFrame(turned).drop(columns="regime"), pd.DataFrame())
    taken = {"us": {" ".join(str(alone[0][name]) for name in REGIME_POINT): 0.02}}
    return {"hopper": in_turn}, {"hopper": Regimes("hopper", pd.DataFrame(alone), {"by_take": taken})}


def lines(in_turn: dict[str, Measurements], regimes: dict[str, Regimes]) -> list:
    return regime_lines(in_turn, regimes, Accuracies(None))


def test_the_best_kernel_is_named_for_each_regime():
    (line,) = lines(*measured())
    assert (line.family, line.dtype, line.n) == ("hopper", "bf16", 4096) and line.flips
    assert {regime: [entry.kernel for entry in best] for regime, best in line.leaders.items()} == {
        IN_TURN: ["hopper.by_size"],
        SUSTAINED: ["hopper.lockstep"],
        BURST: ["hopper.lockstep"],
    }
    (best,) = line.leaders[SUSTAINED]
    assert [entry.spread for entry in line.entries[SUSTAINED]] == [0.02, 0.0]
    assert (best.joules, best.library_joules) == (0.14, 0.15)
    cells = page._environment().get_template("sections/regimes.j2").make_module({"regimes": [], "families": []})
    assert f'<a href="#{best.anchor}" aria-label="0.140, joules' in cells.joules(best)
    assert best.anchor == row_anchor(row(best.kernel, SUSTAINED, None)) and best.anchor.endswith(SUSTAINED)
    assert best.error and (best.error.value, best.error.baseline) == (0.0017, 0.0017)


def test_a_kernel_that_a_regime_lacks_changes_no_lead_there():
    """It leads wherever it was measured, and the regime without it says so."""
    (line,) = lines(*measured())
    fast, slow = line.leaders[SUSTAINED][0], line.leaders[IN_TURN][0]
    best = replace(slow, kernel="hopper.by_energy", ratio=1.2, low=1.19, high=1.21)
    lacking = replace(line, entries={IN_TURN: (fast, best), SUSTAINED: (fast, best), BURST: (fast,)})
    assert not lacking.flips and lacking.missing == {IN_TURN: [], SUSTAINED: [], BURST: [best]}


def test_a_row_of_the_regimes_says_how_many_blocks_began_as_they_should():
    cells = {"rounds": 6, "ready": 6, "samples": 60, "ci_low_us": 199.0, "ci_high_us": 201.0, "power_w": 690.0}
    cells |= {"ratio_ci_low": 0.98, "ratio_ci_high": 1.02, "tflops": 687.2, "temp_c": 60.0, "throttle": "sw_power_cap"}
    shown = regime_row_view(row("hopper.by_size", SUSTAINED, 1.0, **cells))
    assert (shown.blocks, shown.joules, shown.row.size) == ("6 blocks, all steady", "0.140", "4096")
    assert shown.row.time == "200.0 \N{MICRO SIGN}s" and shown.row.ratio_interval == "[0.98, 1.02]"
    said = exports._row("hopper-by-size-alone", shown.row, shown.regime, shown.blocks, shown.joules)
    assert said[:3] == ["hopper-by-size-alone", "bf16 4096, sustained, cuda13", shown.row.time]
    assert said[9:11] == ["60", "6 blocks, all steady"] and said[14:] == [SUSTAINED, "0.001700", NONE, "0.140"]


def sustained(*rows: dict[str, object], base: str = "cublas.gemm", takes: bool = False, **cells: object) -> list[View]:
    """What is recommended of these rows, each of a take of its own if `takes`, and the library's at their sizes."""
    table = [{**each, "m": each["n"], "k": each["n"]} for each in rows]
    sizes = {each["n"] for each in rows}
    library = [row(base, SUSTAINED, None, **dict.fromkeys("mnk", n), **cells) for n in sizes]
    family = str(rows[0]["kernel"]).split(".")[0]
    nothing = Measurements(family, pd.DataFrame(columns=REGIME_COLUMNS).drop(columns="regime"), pd.DataFrame())
    take_of = {" ".join(str(each[name]) for name in REGIME_POINT): place for place, each in enumerate(table)}
    found = Regimes(family, pd.DataFrame([*table, *library]), {"take_of": take_of} if takes else {})
    return recommendations(lines({family: nothing}, {family: found}))


def test_a_kernel_is_recommended_for_the_sizes_at_which_none_is_surely_faster_the_library_included() -> None:
    ratios = {1024: (0.99, 0.95), 2048: (0.998, 0.997), 4096: (1.02, 1.03), 8192: (1.013, 1.019)}
    rows = [row(kernel, SUSTAINED, of[i], n=n) for n, of in ratios.items() for i, kernel in enumerate(RATIOS)]
    library, kernel = sustained(*rows)
    assert (library.kernel, [line.n for line in library.lines]) == ("", [1024, 2048])
    tied = [(entry.name, sizes) for entry, sizes in library.ties]
    assert tied == [("H10 Blocks in lockstep", (2048,)), ("H13 Tile chosen by size", (2048,))]
    assert [entry.ratio for entry in library.entries] == [0.99, 0.998]
    assert (kernel.kernel, [line.n for line in kernel.lines]) == ("hopper.by_size", [4096, 8192])
    assert [sizes for _, sizes in kernel.ties] == [(8192,)] and kernel.regime == SUSTAINED
    (kernel,) = sustained(*rows[4:], row("hopper.by_size", SUSTAINED, 1.001, n=16384))
    assert (kernel.last.ratio, library.last.ratio, library.library.library_joules) == (1.019, 0.998, 0.14)


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ([(1.82, 1.752, 1.891, 0), (1.66, 1.357, 1.961, 0), (1.03, 0.72, 1.34, 0)], [1.82, 1.66]),  # however wide
        ([(3.0, NAN, NAN, 0), (1.02, 1.016, 1.024, 0), (0.5, NAN, NAN, 0)], [1.02, 3.0]),  # without an interval
        ([(1.12, NAN, NAN, 0)], []),
        ([(1.0131, 1.0104, 1.015, 0.0046), (1.0086, 1.008, 1.0091, 0)], [1.0131, 1.0086]),  # by takes of one build
        ([(1.0131, 1.0104, 1.015, 0.0044), (1.0086, 1.008, 1.0091, 0)], [1.0131]),
    ],
)
def test_the_best_has_an_interval_and_what_cannot_be_told_from_it_ties(found, best) -> None:
    assert [entry.ratio for entry in leaders(Entry("x", "", "", *cells) for cells in found)] == best


def test_beside_one_sample_of_the_library_whose_interval_all_ratios_share_kernels_are_told_apart_by_their_times():
    found = ("lockstep", 1.72, 123.0), ("by_size", 1.71, 124.0), ("by_energy", 1.63, 130.0)
    wide = {"ratio_ci_low": 1.2, "ratio_ci_high": 2.1}
    rows = [
        row(f"hopper.{name}", SUSTAINED, ratio, median_us=us, ci_low_us=us - 1, ci_high_us=us + 1, **wide)
        for name, ratio, us in found
    ]
    (use,) = sustained(*rows)
    assert (use.kernel, [entry.kernel for entry, _ in use.ties]) == ("hopper.lockstep", ["hopper.by_size"])
    (use,) = sustained(*rows, takes=True)
    assert [entry.kernel for entry, _ in use.ties] == ["hopper.by_size", "hopper.by_energy"]
    best = Entry("x", "", "", 1.06, 1.05, 1.07, ratio_spread=0.1)
    assert leaders([best, replace(best, kernel="y", ratio=1.02, high=1.03)]) == (best,)
    assert leaders([best, THE_LIBRARY]) == (best, THE_LIBRARY)


@pytest.mark.parametrize(
    ("kernel", "dtype", "error", "competes"),
    [
        ("ada.half_tiles", "fp16", 2.3e-3, False),
        ("ada.stored", "fp16", 2.3e-3, True),
        ("sgemm.tf32", "fp32", 2.9e-4, False),
        ("sgemm.tf32_x3", "fp32", 7.3e-6, True),
        ("crt.shared", "fp64", 0.0, False),
    ],
)
def test_other_types_of_products_or_sums_compete_only_with_like_errors(kernel, dtype, error, competes) -> None:
    """Ratios of an fp16 sum or a TF32 product to a library that adds and multiplies in fp32 say nothing else."""
    base = "cublas.sgemm" if dtype == "fp32" else "cublas.gemm"
    own = row(kernel, SUSTAINED, 4.0, dtype=dtype, baseline=base, err_fro=error)
    found = sustained(own, base=base, dtype=dtype, err_fro=4.9e-6)
    assert [each.kernel for each in found] == [kernel] * competes
    outputs = [each.lines[0].library.partition(",")[2] for each in found]
    assert outputs == [" C in FP32" if kernel == "ada.stored" else ""] * competes


def test_an_interval_has_the_digits_of_its_value_and_holds_it_as_printed() -> None:
    cases = (1.0657, 1.0656, 1.0658), (0.9996, 0.9991, 1.0004), (1234.5, 1233.0, 1236.2), (1.82, NAN, 1.9)
    assert [interval(*each) for each in cases] == ["[1.06, 1.07]", "[0.999, 1.001]", "[1,233, 1,237]", ""]


def test_kernels_of_all_families_compete_for_a_use():
    (fast,) = lines(*measured())
    near = {SUSTAINED: [replace(fast.leaders[SUSTAINED][0], kernel="cute.hopper", name="5", ratio=1.019)]}
    other = replace(fast, dtype="fp8_e4m3", baseline="cublas.gemm_fast")
    outputs = [replace(fast, dtype="fp16", dtype_out=output) for output in ("fp32", "fp16")]
    uses = use_cases([replace(fast, family="cute", entries=near), fast, other, *outputs], measured()[0])
    assert [(use.name, use.what.kernel, [(entry.name, sizes) for entry, sizes in use.what.ties]) for use in uses] == [
        ("FP16, C in FP16", "hopper.lockstep", []),
        ("FP16, C in FP32", "hopper.lockstep", []),
        ("bf16", "hopper.lockstep", [("5", (4096,))]),
        ("FP8 E4M3, sums in the tensor core", "hopper.lockstep", []),
    ]
    assert not any(use.slower for use in uses)
    smaller = {**row("hopper.lockstep", IN_TURN, 0.7), "ratio_ci_high": 0.8, **dict.fromkeys("mnk", 2048)}
    turned = measured()[0]["hopper"]
    turned = replace(turned, summary=pd.concat([turned.summary, pd.DataFrame([smaller])[turned.summary.columns]]))
    (use,) = use_cases([fast], {"hopper": turned})
    (slower,) = use.slower
    assert (slower.n, slower.ratio, slower.anchor) == (2048, 0.7, row_anchor(turned.summary.iloc[-1]))

"""What the report says of the regimes."""

from dataclasses import replace

import pandas as pd
import pytest

from gemmrepro.measure.columns import REGIME_COLUMNS
from gemmrepro.measure.regimes import BURST, IN_TURN, SUSTAINED
from gemmrepro.measure.rows import Measurements, Regimes
from gemmrepro.paper import exports
from gemmrepro.paper.regimes import Accuracies, recommendations, regime_lines, use_cases
from gemmrepro.paper.text import NONE, View, regime_row_view, row_anchor

RATIOS = {
    # kernel: ratio in turn, sustained, in bursts
    "hopper.lockstep": (0.99, 1.02, 1.05),
    "hopper.by_size": (1.01, 0.98, 1.04),
}
REGIMES = (SUSTAINED, BURST)


def row(kernel: str, regime: str, ratio: float | None, **cells: object) -> dict[str, object]:
    toolkit = "library" if kernel.startswith("cublas") else "cuda13"
    shape = {"m": 4096, "n": 4096, "k": 4096}
    types = {"dtype": "bf16", "dtype_out": "bf16", "layout": "row,col,row"}
    known = {"kernel": kernel, "toolkit": toolkit, "regime": regime, "cache": "warm", "status": "current"}
    values = {"ratio": ratio, "rung": kernel, "baseline": "cublas.gemm", "clock_mhz": 1500.0, "joules": 0.14}
    if ratio is not None:
        values |= {"ratio_ci_low": ratio - 0.004, "ratio_ci_high": ratio + 0.004}
    times = {"median_us": 200.0, "baseline_median_us": None if toolkit == "library" else 200.0}
    times |= {"samples": 60, "err_fro": 0.0017}
    return {**dict.fromkeys(REGIME_COLUMNS), **known, **shape, **types, **values, **times, **cells}


def measured() -> tuple[dict[str, Measurements], dict[str, Regimes]]:
    turned = [row(kernel, IN_TURN, ratios[0]) for kernel, ratios in RATIOS.items()]
    turned.append(row("hopper.ping_pong", IN_TURN, 1.5))  # not measured in the regimes
    alone = [
        row(kernel, regime, ratios[1 + place])
        for kernel, ratios in RATIOS.items()
        for place, regime in enumerate(REGIMES)
    ]
    alone += [row("cublas.gemm", regime, None, joules=0.15) for regime in REGIMES]
    in_turn = Measurements("hopper", pd.DataFrame(turned).drop(columns="regime"), pd.DataFrame())
    return {"hopper": in_turn}, {"hopper": Regimes("hopper", pd.DataFrame(alone))}


def lines(in_turn: dict[str, Measurements], regimes: dict[str, Regimes]) -> list:
    return regime_lines(in_turn, regimes, Accuracies(None))


def test_the_best_kernel_is_named_for_each_regime():
    (line,) = lines(*measured())
    assert (line.family, line.dtype, line.n, line.kernels) == ("hopper", "bf16", 4096, 2)
    assert {regime: [entry.kernel for entry in best] for regime, best in line.leaders.items()} == {
        IN_TURN: ["hopper.by_size"],
        SUSTAINED: ["hopper.lockstep"],
        BURST: ["hopper.lockstep"],
    }
    (best,) = line.leaders[SUSTAINED]
    assert (best.joules, best.library_joules) == (0.14, 0.15)
    assert best.anchor == row_anchor(row(best.kernel, SUSTAINED, None)) and best.anchor.endswith(SUSTAINED)
    assert best.error and (best.error.value, best.error.baseline) == (0.0017, 0.0017)


def test_a_row_of_the_regimes_says_how_many_blocks_began_as_they_should():
    cells = {"rounds": 6, "ready": 6, "samples": 60, "ci_low_us": 199.0, "ci_high_us": 201.0, "power_w": 690.0}
    cells |= {"ratio_ci_low": 0.98, "ratio_ci_high": 1.02, "tflops": 687.2, "temp_c": 60.0, "throttle": "sw_power_cap"}
    shown = regime_row_view(row("hopper.by_size", SUSTAINED, 1.0, **cells))
    assert (shown.blocks, shown.joules, shown.row.size) == ("6 blocks, all steady", "0.140", "4096")
    assert shown.row.time == "200.0 \N{MICRO SIGN}s" and shown.row.ratio_interval == "[0.9800, 1.020]"
    said = exports._row("hopper-by-size-alone", shown.row, shown.regime, shown.blocks, shown.joules)
    assert said[:3] == ["hopper-by-size-alone", "bf16 4096, sustained, cuda13", shown.row.time]
    assert said[9:11] == ["60", "6 blocks, all steady"] and said[14:] == [SUSTAINED, "0.001700", NONE, "0.140"]


def sustained(*rows: dict[str, object], base: str = "cublas.gemm", **cells: object) -> list[View]:
    """What is recommended of these rows and one of the library at each of their sizes."""
    table = [{**each, "m": each["n"], "k": each["n"]} for each in rows]
    sizes = {each["n"] for each in rows}
    library = [row(base, SUSTAINED, None, **dict.fromkeys("mnk", n), **cells) for n in sizes]
    family = str(rows[0]["kernel"]).split(".")[0]
    nothing = Measurements(family, pd.DataFrame(columns=REGIME_COLUMNS).drop(columns="regime"), pd.DataFrame())
    found = Regimes(family, pd.DataFrame([*table, *library]))
    return recommendations(lines({family: nothing}, {family: found}))


def test_a_kernel_is_recommended_for_the_sizes_at_which_none_is_surely_faster_the_library_included() -> None:
    ratios = {
        1024: {"hopper.lockstep": 0.99, "hopper.by_size": 0.95},
        2048: {"hopper.lockstep": 0.998, "hopper.by_size": 0.997},
        4096: {"hopper.lockstep": 1.02, "hopper.by_size": 1.03},
        8192: {"hopper.lockstep": 1.013, "hopper.by_size": 1.019},
    }
    rows = [row(kernel, SUSTAINED, ratio, n=n) for n, of in ratios.items() for kernel, ratio in of.items()]
    library, kernel = sustained(*rows)
    assert (library.kernel, [line.n for line in library.lines]) == ("", [1024, 2048])
    assert library.ties == {"H10 lockstep": (2048,), "H13 by_size": (2048,)}
    assert [entry.ratio for entry in library.entries] == [0.99, 0.998]
    assert (kernel.kernel, [line.n for line in kernel.lines]) == ("hopper.by_size", [4096, 8192])
    assert kernel.ties == {"H10 lockstep": (8192,)} and kernel.regime == SUSTAINED


@pytest.mark.parametrize("cells", [{"ratio_ci_low": 0.9, "ratio_ci_high": 1.3}, {"samples": 3}])
def test_no_kernel_is_the_best_by_a_wide_interval_or_few_samples(cells) -> None:
    unsure, sure = row("hopper.by_size", SUSTAINED, 1.12, **cells), row("hopper.lockstep", SUSTAINED, 1.02)
    assert sustained(unsure, sure) == []
    slow = row("hopper.ping_pong", SUSTAINED, 0.5, samples=3)
    (tied,) = sustained({**unsure, "ratio": 1.01}, sure, slow)
    assert (tied.kernel, tied.ties) == ("hopper.lockstep", {"H13 by_size": (4096,)})


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


def test_kernels_of_all_families_compete_for_a_use():
    slow, fast = (replace(lines(*measured())[0], family=name) for name in ("cute", "hopper"))
    slow = replace(
        slow, entries={name: [replace(entry, ratio=0.9) for entry in of] for name, of in slow.entries.items()}
    )
    other = replace(fast, dtype="fp8_e4m3", baseline="cublas.gemm_fast")
    uses = use_cases([slow, fast, other])
    assert [(use.name, use.what.kernel) for use in uses] == [
        ("bf16", "hopper.lockstep"),
        ("FP8 E4M3, sums in the tensor core", "hopper.lockstep"),
    ]

"""What the report makes of the family ozaki: claims on columns of published tables, the article's slices and pairs."""

import csv
import json
from pathlib import Path

import pytest
from support import ROOT

from gemmrepro import experiments, registry
from gemmrepro.core.files import csv_text
from gemmrepro.experiments.results import Results, load
from gemmrepro.judge import claims, judging
from gemmrepro.judge.evidence import Evidence
from gemmrepro.judge.metrics.calculated import Inputs, calculation
from gemmrepro.measure import rows as measured
from gemmrepro.ozaki import pairs, programs

CLAIMS = claims.load(("ozaki",))


def write(folder: Path, name: str, rows: list[dict]) -> None:
    each = experiments.experiment("ozaki", name)
    target = folder / "ozaki"
    target.mkdir(parents=True, exist_ok=True)
    filled = [{**dict.fromkeys(each.header), **row, "build_key": "0" * 16, "status": "current"} for row in rows]
    (target / f"{name}.csv").write_text(csv_text(filled, each.header))
    about = {"source": "recorded", "declared": experiments.fingerprint(each), "gpu": {"name": "NVIDIA H200"}}
    (target / f"{name}.json").write_text(json.dumps({**about, "date": "2026-01-02T03:04:05Z", "skipped": []}))


@pytest.fixture
def results(tmp_path) -> dict[str, Results]:
    """Rows as the article's own figures would have them, times in microseconds."""
    rows = []
    for claim in CLAIMS:
        if "by" not in claim.compute or claim.compute["experiment"] != "products" or "over" in claim.compute:
            continue
        for row in claim.published:
            kernel = claim.compute["kernel"].format(d=row["d"])
            cells = next((one for one in rows if (one["kernel"], one["n"]) == (kernel, row["n"])), None)
            if cells is None:
                toolkit = "library" if kernel.startswith("cublas") else "cuda13"
                cells = {"kernel": kernel, "toolkit": toolkit, "n": row["n"], "d": row["d"]}
                rows.append(cells)
            cells[claim.compute["value"]] = row["value"] * (1000 if row["unit"] == "ms" else 1)
            cells["err_fro"] = cells.get("err_article")
    write(tmp_path, "products", rows)
    return load(tmp_path, "ozaki")


def judge(name: str, results) -> dict:
    (claim,) = (one for one in CLAIMS if one.id == name)
    unmeasured = measured.load("/nowhere", "ozaki")
    return judging.judge(claim, Evidence(unmeasured, {}, Path("/nowhere"), results))


@pytest.mark.parametrize(
    ("ends", "verdict", "words"),
    [
        ((7500.0, 7700.0, 7900.0), "reproduced", "1.66"),
        ((7000.0, 11_200.0, 12_000.0), "undecided", "its interval crosses the edge of the tolerance"),
        ((11_000.0, 11_200.0, 11_400.0), "not reproduced", "off by more than 1.5 times"),
    ],
)
def test_a_ratio_of_two_rows_has_the_interval_that_both_allow(tmp_path, ends, verdict, words):
    """The published one is 1.53, and 1.15 to 1.91 are within its tolerance; a median alone would decide by chance."""
    rows = [
        {"kernel": kernel, "toolkit": "cuda13", "n": 1024}
        | dict(zip(("total_low_us", "total_us", "total_high_us"), times, strict=True))
        for kernel, times in (("ozaki.naive_fp8_e4m3", ends), ("ozaki.naive_fp16", (4500.0, 4640.0, 4800.0)))
    ]
    write(tmp_path, "products", rows)
    entry = judge("ozaki.naive.e4m3_over_fp16.n1024", load(tmp_path, "ozaki"))
    assert (entry["verdict"], words in entry["explanation"]) == (verdict, True), entry["explanation"]
    (shown,) = entry["measured"]
    assert (shown["ci_low"], shown["ci_high"]) == pytest.approx((ends[0] / 4800, ends[2] / 4500))


def test_slopes_and_gains_are_quotients_of_two_published_rows(results):
    """The article's own rows reproduce them; a fifth more of one of two leaves a gain a gain."""
    for name in ("slope.d7", "slope.d6", "fast_mode.d5", "bf16_over_e4m3.n2048"):
        assert judge(f"ozaki.{name}", results)["verdict"] == "reproduced", name
    rows = results["products"].rows
    rows.loc[(rows["kernel"] == "ozaki.fused_bf16_d9") & (rows["n"] == 16384), "total_us"] *= 1.2
    assert judge("ozaki.fast_mode.d5", results)["verdict"] == "partly"
    rows.loc[rows["kernel"] == "ozaki.fused_bf16_d6", "err_article"] *= 1.3
    assert judge("ozaki.slope.d6", results)["verdict"] == judge("ozaki.slope.d5", results)["verdict"] == "partly"
    assert judge("ozaki.slope.d7", results)["verdict"] == "reproduced"


@pytest.mark.parametrize(("n", "slices"), [(2, 5), (1024, 7), (16384, 9)])
def test_rho_and_not_the_type_says_how_many_slices_one_binade_takes(n, slices):
    """In fp16: 53 bits in pieces of 11 where rho leaves them all, else of (24 - log2 k) / 2 and a sign."""
    assert calculation("ozaki", "slices_of_one_binade")(Inputs(n=n)).value == slices


def test_the_first_program_reads_once_more_than_it_has_slices_and_the_fused_split_never():
    reads = calculation("ozaki", "reads_of_the_host")(Inputs())
    assert reads.value == 8 and reads.working == "7 slices each of A and B, 16 reads in all"
    fused, naive = (registry.kernel(f"ozaki.{name}") for name in ("fused_bf16_d9", "naive_bf16"))
    values = [calculation("ozaki", "reads_of_the_fused_split")(Inputs(kernels=(one,))).value for one in (fused, naive)]
    assert values == [0, 1]


ROWS = list(csv.DictReader((ROOT / "articles/ozaki/numbers.csv").read_text().splitlines()))
NAIVE, FAST = "naive", ("fast mode + fused split", "d sweep")
E4M3_D = 16
"""The d that leaves the article's 130 of 14 x 14 pairs; it prints none for fp8."""


def published(metric: str, *tables: str) -> list[tuple[str, int, int, float]]:
    """(type, n, d, value) of each row."""
    return [
        (row["dtype"].removeprefix("fp8_"), int(row["n"]), int(row["d"] or E4M3_D), float(row["value"]))
        for row in ROWS
        if row["metric"] == metric and row["table"] in tables
    ]


def test_the_articles_own_slices_and_pairs_follow() -> None:
    counts = [published(metric, NAIVE) for metric in ("slices_a", "slices_b", "gemms")]
    assert len(counts[2]) == 9
    for (_, _, _, a), (_, _, _, b), (_, _, _, products) in zip(*counts, strict=True):
        assert len(pairs.select(int(a), int(b))) == products
    for dtype, n, _, slices in published("slices_a", *FAST) + published("slices_b", *FAST):
        assert programs.fused(n, dtype).count == slices
    for dtype, n, d, products in published("gemms", *FAST):
        slices = programs.fused(n, dtype).count
        assert len(pairs.select(slices, slices, d)) == products

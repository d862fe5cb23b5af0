"""What the report makes of the family ozaki: claims on columns of published tables, the article's slices and pairs."""

import json
from pathlib import Path

import pytest

from gemmrepro import experiments, registry
from gemmrepro.core.files import csv_text
from gemmrepro.experiments.results import load
from gemmrepro.judge import claims, judging
from gemmrepro.judge.evidence import Evidence
from gemmrepro.judge.metrics.calculated import Inputs, calculation
from gemmrepro.measure import rows as measured

CLAIMS = claims.load(("ozaki",), judged=True)


def write(folder: Path, name: str, rows: list[dict]) -> None:
    each = experiments.experiment("ozaki", name)
    target = folder / "ozaki"
    target.mkdir(parents=True, exist_ok=True)
    filled = [{**dict.fromkeys(each.header), **row, "build_key": "0" * 16, "status": "current"} for row in rows]
    (target / f"{name}.csv").write_text(csv_text(filled, each.header))
    about = {"source": "recorded", "declared": experiments.fingerprint(each), "gpu": {"name": "NVIDIA H200"}}
    (target / f"{name}.json").write_text(json.dumps({**about, "date": "2026-01-02T03:04:05Z", "skipped": []}))


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

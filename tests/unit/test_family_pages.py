"""Pages and verdicts of families whose kernels no other test of the report has: crt, cutile and sgemm together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import World
from test_report import make

SAID = {
    "families/crt.html": ("No number of moduli alone bounds single elements",),
    # An ordinary sum's bound alone would be a wrong one to hold their errors against.
    "kernels/crt.fused.html": ("the scheme\N{RIGHT SINGLE QUOTATION MARK}s own stated bound",),
    "kernels/sgemm.bf16_x6.html": ("the scheme\N{RIGHT SINGLE QUOTATION MARK}s own stated bound",),
    "families/sgemm.html": ("Two ways to an FP32 product", "experiment-sgemm-accuracy"),
    "families/cutile.html": ("One source, every type",),
    "kernels/cutile.matmul_fp64.html": ('id="cutile-matmul-fp64"',),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("families")
    families = ("crt", "cutile", "sgemm", "ceilings")
    make(World(folder, families=families, sizes=(4096, 8192)).write())
    return folder


def test_families_have_findings_and_their_schemes_bounds(made: Path) -> None:
    for page, sentences in SAID.items():
        text = (made / "report" / page).read_text()
        assert all(sentence in text for sentence in sentences), page
    assert "of an allowed" not in (made / "report/kernels/crt.fused.html").read_text()


def test_ratios_of_cutile_are_judged_and_what_says_the_same_is_covered(made: Path) -> None:
    entries = {entry["id"]: entry for entry in json.loads((made / "verdicts.json").read_text())["claims"]}
    ratio = entries["cutile.ratio.tf32.n8192"]
    assert "ublished 1.030 on NVIDIA B200" in ratio["explanation"] and len(ratio["published"]) == 2
    assert entries["cutile.throughput.tf32.n8192"]["verdict"] == "covered"
    assert entries["cutile.cublas.tf32.n8192"]["way"] == "share"

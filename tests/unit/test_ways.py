"""Ways of judging beside measuring: shares, models, counts, an article's own arithmetic, and what is covered."""

import functools
import json
import re
from pathlib import Path

import pytest
import yaml
from synthetic import World, stand_in

from gemmrepro import __main__ as command
from gemmrepro.core import paths
from gemmrepro.core.paths import KERNELS_DIR
from gemmrepro.errors import UserError
from gemmrepro.judge import claims, judging
from gemmrepro.judge.carrying import evaluate
from gemmrepro.judge.metrics.calculated import Inputs, calculation
from gemmrepro.judge.published import published_rows
from gemmrepro.judge.rules import CONSISTENT, CONTRADICTORY, COVERED, NOT, PARTLY, REPRODUCED
from gemmrepro.registry import chips
from gemmrepro.registry.articles import chip_of

BY = "\N{MULTIPLICATION SIGN}"
WRONG = yaml.safe_load((Path(__file__).parent / "data/wrong_claims.yaml").read_text())
RATIO = {"kind": "ratio", "why": "It cancels."}
every_claim = functools.cache(claims.load)
AS_IS = {"kind": "as is", "why": "Arithmetic."}
THROUGHPUT = {"system": "L7 warptile", "metric": "throughput", "n": 4096}
RATIO_ROW = {"system": "L7 warptile", "metric": "ratio_to_cublas", "n": 4096}


def of_throughput(**changes) -> dict:
    """A claim on level 7's GFLOP/s as a share of the chip's fp32 rate: 21.779 of 38.7 TFLOP/s."""
    claim = {
        "id": "ladder.x.throughput",
        "where": "roadmap table, level 7",
        "statement": "It reaches {value} GFLOP/s.",
        "published": [THROUGHPUT],
        "compute": {"metric": "tflops", "kernel": "ladder.warptile", "n": 4096},
        "transfer": {"kind": "share", "of": "fp32", "why": "The same share of the chip."},
        "tolerance": 0.1,
    }
    return {**claim, **changes}


def of_ratio(**changes) -> dict:
    claim = of_throughput(id="ladder.x.ratio", statement="It runs at {percent} of cuBLAS.", published=[RATIO_ROW])
    claim |= {"compute": {"metric": "ratio", "kernel": "ladder.warptile", "n": 4096}, "transfer": RATIO}
    return {**claim, **changes}


def of_arithmetic(**changes) -> dict:
    compute = {"metric": "consistent", "rows": {"l": THROUGHPUT, "q": RATIO_ROW}, "expect": "l / q", "equals": 23243}
    claim = {"id": "ladder.x.sum", "where": "table", "statement": "They agree.", "compute": compute}
    return {**claim, "transfer": AS_IS, "tolerance": 0.001, **changes}


def corrected(kind: str = "wrong") -> dict:
    return {"class": kind, "instead": "It is 23,243.", "known": "Arithmetic."}


def written(folder: Path, *entries: dict) -> Path:
    path = folder / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": list(entries)}))
    return path


def loaded(folder: Path, *entries: dict) -> list[claims.Claim]:
    return claims.load_file(written(folder, *entries), "ladder")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("world"), sizes=(4096,), samples=False).write()


@pytest.fixture
def judged(world, tmp_path):
    """The verdicts on claims, by id."""

    def judge(*entries: dict, article: str = "ladder") -> dict[str, dict]:
        of = claims.load_file(written(tmp_path, *entries), article)
        result = judging.judge_all(world.measure, world.gates, world.build, ("ladder",), lambda families: of)
        return {entry["id"]: entry for entry in result["claims"]}

    return judge


def refused(folder: Path, *entries: dict) -> str:
    with pytest.raises(UserError) as caught:
        loaded(folder, *entries)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("2*n**3/t/1e9", 2 * 4096**3 / 6.5 / 1e9), ("-(t - 1) + 2", -3.5), ("3", 3.0), (" t ", 6.5), ("2**-1", 0.5)],
)
def test_arithmetic(expression, value):
    assert evaluate(expression, {"n": 4096.0, "t": 6.5}) == pytest.approx(value)


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("__import__('os')", "only numbers"),
        ("2 +", "not arithmetic"),
        ("9**9**9**9", "too large"),
        ("t / 0", "divides by zero"),
        ("(0 - 1)**0.5", "no finite number"),
        ("u", "no 'u' among t"),
        ("(" * 300 + ")" * 300, "at most"),
    ],
)
def test_what_is_no_arithmetic_is_refused(expression, word):
    with pytest.raises(ValueError, match=word.replace("(", r"\(")):
        evaluate(expression, {"t": 1.0})


def test_every_hardware_is_a_chip_or_a_cpu_and_has_what_its_data_sheet_says():
    named = {(row["article"], row["hardware"]) for row in published_rows() if row["hardware"]}
    assert {name for article, name in named if chip_of(article, name) is None} == {"CPU (Colab)"}
    chip = chips.at_hand("NVIDIA H200")
    assert chip is not None and chip.rate("dram").value == 4800 and "H200" in chip.rate("dram").source
    assert chip.rate("cycles").value == pytest.approx(132 * 1.98)
    assert chip.rate("shared").value == pytest.approx(132 * 1980e6 * 128 / 1e9)
    assert chips.at_hand("NVIDIA H100 PCIe").rate("sms").value == 114 and chips.at_hand("Synthetic GPU") is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[38.7, sheet]", "[38.7, brochure]", "no document 'brochure'"),
        ("      fp32: [38.7", "      fp31: [38.7", "no rate 'fp31'"),
        ("[38.7, sheet]", "[0, sheet]", "chips.NVIDIA RTX A6000.rates.fp32.0"),
    ],
)
def test_a_wrong_chips_file_is_refused_in_a_line(tmp_path, monkeypatch, old, new, words):
    text = (KERNELS_DIR / "chips.yaml").read_text()
    assert old in text
    (tmp_path / "chips.yaml").write_text(text.replace(old, new, 1))
    monkeypatch.setattr(paths, "KERNELS_DIR", tmp_path)
    with pytest.raises(UserError) as caught:
        chips.chips()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_share_of_the_chip_is_expected_and_both_shares_are_shown(judged):
    """The synthetic FFMA ceiling is 60 TFLOP/s, level 7 runs at 44.1: 0.735 of it, where the article's was at 0.563."""
    entry = judged(of_throughput(tolerance=0.35), of_throughput(id="ladder.x.narrow"))
    wide, narrow = entry["ladder.x.throughput"], entry["ladder.x.narrow"]
    assert (wide["verdict"], narrow["verdict"], wide["way"]) == (REPRODUCED, PARTLY, "share")
    assert wide["expected"] == pytest.approx(21779 * 60.0 / 38.7)
    (shown,) = (each for each in wide["measured"] if each["judged"])
    assert shown["ci_low"] < shown["value"] < shown["ci_high"]
    assert "0.563 of the 38.70 TFLOP/s of fp32 (NVIDIA RTX A6000 data sheet)" in wide["explanation"]
    assert "of the 60.00 TFLOP/s of fp32 (measured by fp32 multiply-add)" in wide["explanation"]
    compute = {"metric": "ceiling_share", "kernel": "ladder.warptile", "ceiling": "ceilings.ffma", "n": 4096}
    (share, *_) = judged(of_ratio(compute=compute))["ladder.x.ratio"]["measured"]
    for name in ("value", "ci_low", "ci_high"):
        assert share[name] == pytest.approx(shown[name] / 60_000)
    assert (share["unit"], len(share["from"])) == ("ratio", 2) and share["label"].endswith("of 60.0 TFLOP/s")


def test_a_time_is_expected_to_shrink_as_the_rate_grows(judged):
    row = {"table": "histogram: 256M elements, 256 bins", "system": "global atomics", "metric": "time"}
    claim = of_throughput(published=[row], statement="It takes {value} s.", tolerance=1)
    claim["compute"] = {"metric": "time", "kernel": "ladder.warptile", "n": 4096}
    claim["transfer"] = {"kind": "share", "of": "dram", "chip": "NVIDIA A100-SXM4-40GB", "why": "Bytes decide."}
    (entry,) = judged(claim, article="gpu-notes").values()
    assert entry["expected"] == pytest.approx(0.0876 * 1555 / 3000)
    assert "the time of 136 GB at 1,555 GB/s of dram" in entry["explanation"]


def test_a_model_multiplies_the_published_ratio_by_the_rates(judged):
    transfer = {"kind": "model", "by": {"numerator": "fp32", "denominator": "dram"}, "why": "Reuse."}
    entry = judged(of_ratio(transfer=transfer, same_side_of=1))["ladder.x.ratio"]
    wanted = 0.937 * (60.0 / 3000) / (38.7 / 768)
    assert entry["expected"] == pytest.approx(wanted) and entry["way"] == "model"
    assert entry["verdict"] == NOT  # 0.90 beside 0.372: below 1, and off by more than a factor of 2
    assert "fp32 over dram was 0.0504" in entry["explanation"].lower()


@pytest.mark.parametrize(("transfer", "words"), WRONG["transfer"])
def test_a_transfer_without_its_rates_is_refused(tmp_path, transfer, words):
    message = refused(tmp_path, of_throughput(transfer=transfer))
    assert "ladder.x.throughput" in message and not [word for word in words if word not in message], message


LEVELS = [{"system": "L6 vectorized"}, {"system": "L7 warptile"}]
OF_LEVEL = {"l": {"metric": "throughput", "n": 4096}, "q": {"metric": "ratio_to_cublas", "n": 4096}}


@pytest.mark.parametrize(
    ("compute", "tolerance", "verdict", "words"),
    [
        ({"expect": "l / q", "equals": 23243}, 0.001, CONSISTENT, "within the 0.1%"),
        ({"expect": "l / q", "equals": 20000}, 0.001, CONTRADICTORY, "16% higher: outside the 0.1%"),
        ({"expect": "l", "below": "q * 2"}, None, CONTRADICTORY, f"21,779, not below 0.937 {BY} 2 = 1.8740"),
        ({"expect": "2*n**3/l/1e6 + q*0", "equals": "6.3107"}, 0.001, CONSISTENT, f"2{BY}4,096^3/21,779/1e6 + "),
        (
            {"expect": "l", "above": 20000, "each": LEVELS},
            None,
            CONTRADICTORY,
            "18,237, not above 20,000: against the statement; it holds in 1 of 2 cases",
        ),
    ],
)
def test_an_articles_numbers_are_held_against_each_other(judged, compute, tolerance, verdict, words):
    """Of several cases all must hold; the one that is furthest off is shown."""
    rows = OF_LEVEL if "each" in compute else {"l": THROUGHPUT, "q": RATIO_ROW}
    used = {
        name: row
        for name, row in rows.items()
        if name in f"{compute['expect']} {compute.get('below', '')} {compute.get('above', '')}"
    }
    claim = of_arithmetic(compute={"metric": "consistent", "rows": used, **compute})
    claim = {key: value for key, value in claim.items() if key != "tolerance"}
    claim |= {} if tolerance is None else {"tolerance": tolerance}
    entry = judged(claim)["ladder.x.sum"]
    assert (entry["verdict"], entry["way"], entry["judged_on"]) == (verdict, "consistent", None)
    assert words in entry["explanation"], entry["explanation"]
    assert "cases" not in entry["explanation"] or "each" in compute
    assert len(entry["published"]) == len(entry["measured"][0]["from"]) == len(used) * len(compute.get("each", [0]))
    assert entry["measured"][0]["from"][0] == f"articles/ladder: {entry['published'][0]['system']}, throughput"


@pytest.mark.parametrize(("compute", "words"), WRONG["arithmetic"])
def test_arithmetic_that_says_nothing_is_refused(tmp_path, compute, words):
    compute = {"metric": "consistent", "rows": {"l": THROUGHPUT, "q": RATIO_ROW}, **compute}
    message = refused(tmp_path, of_arithmetic(compute=compute))
    assert "ladder.x.sum" in message and not [word for word in words if word not in message], message


CALCULATIONS = """
from math import sqrt
from gemmrepro.judge.metrics.calculated import Calculated, Inputs

def dropped(given: Inputs) -> Calculated:
    return Calculated(given.option("tiles") - 1, working="counted over the grid")

def floor(given: Inputs) -> Calculated:
    (code,) = given.codes
    return Calculated(code.instructions["HGMMA.64x64x16.F32.BF16"] * given.rate("clock") / given.n, f"on {given.arch}")

def wrong(given: Inputs) -> Calculated:
    return 3

def _private(given: Inputs) -> Calculated:
    return Calculated(1.0)
"""


def calculated(**compute) -> dict:
    claim = {"id": "hopper.x", "where": "level 8", "statement": "So many.", "transfer": AS_IS}
    return {**claim, "compute": {"metric": "calculated", **compute}}


@pytest.fixture
def calculations(tmp_path, monkeypatch):
    folder = stand_in(monkeypatch, tmp_path)
    (folder / "chips.yaml").write_text((KERNELS_DIR / "chips.yaml").read_text())
    (folder / "hopper" / "calculations.py").write_text(CALCULATIONS)
    monkeypatch.setattr(claims, "mapping_problems", lambda *names: [])  # the map names real kernels

    def judge(claim: dict) -> dict:
        code = {"HGMMA.64x64x16.F32.BF16": 4}
        world = World(tmp_path / "w", families=("hopper",), instructions=code, ladder=False, ceilings=False).write()
        of = claims.load_file(written(tmp_path, claim), "ladder")
        result = judging.judge_all(world.measure, world.gates, world.build, ("hopper",), lambda families: of)
        return result["claims"][0]

    return judge


def test_a_formula_needs_no_gpu_and_machine_code_is_read_for_the_articles_architecture(calculations):
    entry = calculations(calculated(function="dropped", options={"tiles": 25}, least=24, most=24))
    assert (entry["verdict"], entry["way"]) == (REPRODUCED, "count")
    assert "Calculated 24" in entry["explanation"] and "counted over the grid" in entry["explanation"]
    assert calculations(calculated(function="dropped", options={"tiles": 25}, least=25))["verdict"] == NOT
    claim = calculated(function="floor", kernels=["hopper.wgmma"], arch="sm_90")
    claim |= {"published": [THROUGHPUT], "tolerance": 0.1}
    entry = calculations(claim)
    assert entry["measured"][0]["value"] == pytest.approx(4 * 1800 / 4096)
    assert entry["measured"][0]["from"][1].endswith("hopper.wgmma.json#archs.sm_90")
    claim["compute"]["arch"] = "sm_89"
    assert "for compute capability 8.9" in calculations(claim)["explanation"]


@pytest.mark.parametrize(("compute", "words"), WRONG["calculation"])
def test_a_calculation_that_cannot_be_is_refused_by_claim_and_key(calculations, compute, words):
    with pytest.raises(UserError) as caught:
        calculations(calculated(**compute, least=1))
    assert "hopper.x" in str(caught.value) and words in str(caught.value)


def test_a_rate_that_no_document_prints_and_a_file_that_is_missing_are_said():
    h200 = Inputs(chip=chips.at_hand("NVIDIA H200"))
    assert h200.rate("dram") == 4800
    with pytest.raises(UserError, match=r"has no rate 'tea' of .*H200"):
        h200.rate("tea")
    with pytest.raises(UserError, match="has no rate 'dram' of the article's GPU"):
        Inputs().rate("dram")
    with pytest.raises(UserError, match=r"kernels/tea/calculations\.py is missing"):
        calculation("tea", "sum")


def test_what_is_covered_is_shown_and_not_counted(judged):
    none = {"kind": "none", "why": "Only the A6000 can."}
    entry = judged(of_ratio(), of_throughput(transfer=none, covered_by="ladder.x.ratio"))
    covered = entry["ladder.x.throughput"]
    assert (covered["verdict"], covered["way"]) == (COVERED, "covered")
    assert covered["explanation"].startswith("Another statement judges this in other units")
    assert covered["measured"][0]["value"] == pytest.approx(44100, rel=0.05)
    assert re.search(r"not counted again\. Measured: 4[0-9],[0-9]{3}[^.]* GFLOP/s\.$", covered["explanation"])


@pytest.mark.parametrize(("changes", "of_other", "words"), WRONG["cover"])
def test_what_cannot_cover_is_refused(tmp_path, changes, of_other, words):
    message = refused(tmp_path, of_throughput(**changes), of_ratio(**of_other))
    assert "ladder.x.throughput" in message and words in message


def test_no_statement_that_arithmetic_finds_right_is_called_wrong():
    """Without a GPU only the article's own numbers can be judged; a run of the pipeline checks the others."""
    for claim in every_claim():
        if claim.metric == "consistent" and claim.correction:
            world = judging.Evidence(judging.load(Path("/nowhere"), claim.family), {}, Path("/nowhere"))
            assert judging.judge(claim, world)["verdict"] == CONTRADICTORY, claim.id


def test_the_tallies_are_tables_and_a_correction_of_what_holds_fails(world, tmp_path, monkeypatch, capsys):
    entries = (of_ratio(), of_arithmetic(), of_ratio(id="ladder.x.own", register="project"))
    path = tmp_path / "verdicts.json"

    def run(*claimed: dict) -> int:
        of = loaded(tmp_path, *claimed)
        judged = judging.judge_all(world.measure, world.gates, world.build, ("ladder",), lambda families: of)
        path.write_text(json.dumps(judged))
        return command.run(["article", "judge", "--verdicts", str(path)])

    assert run(*entries) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("article ")] == ["2"]
    assert [line.split()[-1] for line in lines if line.startswith("consistent ")] == ["1"]
    assert lines[0].startswith("ladder.ratio.") or lines[0].startswith("ladder.x")
    assert run(of_arithmetic(correction=corrected("of its generation"))) == 0
    assert run(of_arithmetic(correction=corrected("latent fault"))) == 1
    assert "ladder.x.sum is marked as wrong, yet its statement holds" in capsys.readouterr().out
    path.write_text("{}")
    with pytest.raises(UserError, match="another version"):
        command.run(["article", "judge", "--verdicts", str(path)])

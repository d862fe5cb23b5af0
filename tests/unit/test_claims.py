"""claims.yaml: every published number has a claim, every reference a row, and a wrong file an error that says where."""

import csv
import functools
import json
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gemmrepro import __main__ as command
from gemmrepro import experiments
from gemmrepro.core.paths import ARTICLES_DIR, ROOT
from gemmrepro.core.text import convert, format_number
from gemmrepro.errors import UserError
from gemmrepro.judge import claims
from gemmrepro.judge.judging import way_of
from gemmrepro.judge.metrics import METRICS
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.regimes import REGIMES, SUSTAINED
from gemmrepro.recordings.regimes import between_cards, rows_of
from gemmrepro.registry import articles, family_names
from gemmrepro.registry import family as family_of
from gemmrepro.registry.articles import article_names

every_claim = functools.cache(claims.load)


def test_every_published_row_of_every_article_is_claimed_and_the_command_says_so(monkeypatch, capsys):
    loaded = list(every_claim())
    assert {claim.article for claim in loaded} == set(article_names())
    assert {name for name in family_names() if family_of(name).article} <= {claim.family for claim in loaded}
    assert command.run(["article", "check"]) == 0 and "ladder: 111 claims, 0 problems" in capsys.readouterr().out
    few = [claim for claim in loaded if not any(row["system"] == "L1 naive" for row in claim.published)]
    monkeypatch.setattr(claims, "load_file", lambda path, article: [claim for claim in few if claim.article == article])
    assert command.run(["article", "check", "ladder"]) == 1
    assert "numbers.csv, line 2: no claim is about 'L1 naive' (throughput, n 4096)" in capsys.readouterr().out
    assert command.run(["article", "check", "--schema"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == claims.schema()


def test_a_correction_says_no_more_than_its_source():
    """An absolute word stands in the quotation marks of a word of the source, or nowhere."""
    every = {claim.id: claim for claim in every_claim()}
    corrected = {name: claim for name, claim in every.items() if claim.correction}
    assert corrected
    for name, claim in corrected.items():
        assert every.keys() - corrected.keys() >= set(claim.correction.get("also", ())), "one error, one entry"
        said = [claim.where, claim.statement, *(claim.correction[key] for key in ("instead", "known"))]
        own = re.sub("“.*?”", "", " ".join(said))
        assert re.findall(r"\b(?:all|always|any|every|must|never|none|only)\b", own, re.IGNORECASE) == [], name


def written() -> dict:
    """The ladder's claims with nothing left to derive."""
    document = articles.document_of(ARTICLES_DIR / "ladder" / "claims.yaml")
    return {**document, "claims": [deepcopy(claims.completed(each, "ladder")) for each in document["claims"]]}


def broken(tmp_path: Path, change) -> UserError:
    document = written()
    last = next(claim for claim in document["claims"] if claim["id"] == "ladder.code.L6.shared")
    document["claims"] = [*document["claims"][:8], last]
    change(document)
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UserError) as caught:
        claims.load_file(path, "ladder")
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["claims"][3].update(tolerance="wide"), ["ladder.throughput.L4", "'tolerance'", "wide"]),
        (lambda d: d["claims"][0]["compute"].update(metric="gigaflops"), ["ladder.throughput.L1", "'compute.metric'"]),
        (lambda d: d["claims"][0]["published"][0].update(n=4097), ["ladder.throughput.L1", "published", "0 rows"]),
        (lambda d: d["claims"][0]["compute"].update(kernel="ladder.nave"), ["'compute'", "ladder.nave"]),
        (lambda d: d["claims"][1].update(id="ladder.throughput.L1"), ["used twice"]),
        (lambda d: d["claims"][0].update(statement="It is {speed}."), ["'statement'"]),
        (lambda d: d["claims"][7]["compute"]["kernels"].pop(), ["ladder.order", "compute.kernels"]),
        (
            lambda d: d["claims"][0].update(id="latter.x", family="latter"),
            ["latter.x", "'family'", "no family 'latter'"],
        ),
        (lambda d: d["claims"][-1]["compute"].update(pattern="LDS(", least=1), ["ladder.code.L6.shared", "pattern"]),
    ],
)
def test_a_wrong_file_is_refused_by_claim_and_key(tmp_path, change, words):
    message = str(broken(tmp_path, change))
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012512, "0.0125"), (21779.0, "21,779"), (1.0, "1.00"), (0.0, "0"), (3.2e-7, "3.20e-07"), (999.6, "1,000")],
)
def test_format_number(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "to", "expected"),
    [
        (2.5e9, "byte/second", "GB/s", 2.5),
        (2.5, "Gbyte/second", "GB/s", 2.5),
        (3.0, "Mbyte", "byte", 3e6),
        (1, "byte", "GB/s", None),
    ],
)
def test_counter_units(value, unit, to, expected):
    found = convert(value, unit, to)
    assert found is None if expected is None else found == pytest.approx(expected)


def test_a_claim_without_a_figure_transfers_nowhere(tmp_path):
    document = written()
    claim = {"id": "ladder.speed.L8", "where": "level 8", "statement": "The article gives no speed."}
    claim["compute"] = {"metric": "ratio", "kernel": "ladder.warptile", "n": 4096}
    claim["transfer"] = {"kind": "none", "why": "There is no figure."}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({**document, "claims": [claim]}))
    (loaded,) = claims.load_file(path, "ladder")
    assert (loaded.published, loaded.tolerance) == ((), None)
    path.write_text(
        yaml.safe_dump({**document, "claims": [{**claim, "transfer": {**claim["transfer"], "kind": "ratio"}}]})
    )
    with pytest.raises(UserError, match="transfer"):
        claims.load_file(path, "ladder")


@pytest.mark.parametrize(
    ("word", "change", "words"),
    [
        ("ceiling_share", {"ceiling": "ceilings.nave"}, "no kernel 'ceilings.nave' in family ceilings"),
        ("opcodes", {"pattern": "LDS("}, "compute.pattern"),
        ("order", {"kernels": ["ada.scalar", "ada.packed"]}, "one kernel for each published row"),
        ("experiment", {"value": "speed"}, "speed"),
    ],
)
def test_a_metric_checks_what_no_schema_can(word, change, words):
    claim = next(claim for claim in every_claim() if claim.metric == word)
    assert METRICS[word].check(claim) == []
    changed = replace(claim, compute={**claim.compute, **change})
    assert words in " ".join(f"{key}: {message}" for key, message in METRICS[word].check(changed))


UNSTEADY = {("crt.overlapped", "16384", "sustained")}
"""Rows that no pass left steady on any card: their time is not settled (docs/limits-and-findings.md)."""


def between_recorded_cards() -> dict[str, list[float]]:
    """How far cards of one model are apart at most, by regime and for each family, apart from `UNSTEADY`."""
    found: dict[str, list[float]] = {regime: [] for regime in REGIMES}
    for gpu in (ROOT / "reports" / "recorded").iterdir():
        for family in family_names():
            takes = []
            for each in regime_files.takes(gpu, family):
                table = csv.DictReader((each / regime_files.SUMMARY).read_text().splitlines())
                steady = [row for row in table if (row["kernel"], row["n"], row["regime"]) not in UNSTEADY]
                takes.append((json.loads((each / regime_files.RUN).read_text()), steady))
            read = rows_of(takes)
            for regime in REGIMES:
                if spread := between_cards(read, regime):
                    found[regime].append(spread["largest"])
    return found


def of_times(claim: claims.Claim) -> bool:
    """Whether a claim compares times of this GPU, or what follows from them, with a published figure."""
    if claim.tolerance is None or way_of(claim) not in ("measured", "share", "model"):
        return False
    if claim.metric != "experiment":
        return METRICS[claim.metric].of_rows
    experiment = experiments.experiment(claim.family, claim.compute["experiment"])
    units = ("s", "ms", "us", "\N{MICRO SIGN}s", "TFLOP/s", "GB/s", "TB/s")
    return experiment.device == "gpu" and experiment.column(claim.compute["value"]).unit in units


def test_a_tolerance_is_wider_than_cards_of_one_model_differ():
    """Else a claim could hold on one card and not on the next.

    Bursts differ by more than sustained blocks, and only claims that are judged in bursts are held against them; those
    in turn, where both sides run at one clock, are held against the sustained ones.
    """
    spread = between_recorded_cards()
    assert all(spread.values()), "no family was recorded on two cards"
    compared = [claim for claim in every_claim() if of_times(claim)]
    assert len(compared) > 100
    limit = {claim.id: max(spread[claim.regime if claim.regime in REGIMES else SUSTAINED]) for claim in compared}
    assert {claim.id: claim.tolerance for claim in compared if claim.tolerance <= limit[claim.id]} == {}

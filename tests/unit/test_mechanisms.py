"""Mechanisms: each explains claims that exist, no claim has two, and only what does not hold is listed."""

import fnmatch
import shutil
from collections import Counter
from functools import cache

import pytest

from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.judge import claims
from gemmrepro.judge.rules import NOT, PARTLY
from gemmrepro.paper.claims import ClaimView, explained, mechanisms


@cache
def ids() -> list[str]:
    return [claim.id for claim in claims.load(judged=True)]


def test_every_pattern_names_a_claim_and_no_claim_has_two_causes():
    found = [{each for pattern in cause["claims"] for each in fnmatch.filter(ids(), pattern)} for cause in mechanisms()]
    assert [each for each, causes in Counter(each for of in found for each in of).items() if causes > 1] == []
    for cause in mechanisms():
        for pattern in cause["claims"]:
            assert fnmatch.filter(ids(), pattern), pattern


def test_a_cause_that_there_is_not_is_refused_with_its_line(tmp_path, monkeypatch):
    shutil.copytree(paths.ARTICLES_DIR / "ada", tmp_path / "ada")
    article = tmp_path / "ada/article.yaml"
    article.write_text(article.read_text().replace("  noise:", "  tea:"))
    monkeypatch.setattr(paths, "ARTICLES_DIR", tmp_path)
    with pytest.raises(UserError, match=r"ada/article\.yaml, line \d+, key 'causes\.tea': .* has no cause 'tea'"):
        mechanisms.__wrapped__()


def view(name: str, verdict: str, register: str = "article", correction: dict | None = None) -> ClaimView:
    return ClaimView(id=name, verdict=verdict, register=register, correction=correction)


def test_only_what_does_not_hold_is_listed():
    causes = [
        {"id": "few", "claims": ["a.one"]},
        {"id": "many", "claims": ["b.*"]},
        {"id": "elsewhere", "claims": ["d.*"], "capabilities": ["9.0"]},
    ]
    found = explained(
        [
            view("a.one", NOT),
            view("b.one", NOT),
            view("b.two", PARTLY),
            view("b.four", NOT, correction={"class": "wrong", "also": ["b.six"]}),
            view("b.six", NOT),
            view("b.seven", NOT, correction={"class": "of its generation"}),
            view("d.one", NOT),
        ],
        causes,
        "8.9",
    )
    assert [(cause["id"], [claim.id for claim in of]) for cause, of in found] == [
        ("many", ["b.one", "b.two", "b.seven"]),
        ("few", ["a.one"]),
    ]
    assert [cause["id"] for cause, _ in explained([view("d.one", NOT)], causes, "9.0")] == ["elsewhere"]

"""Mechanisms: each explains claims that exist, no claim has two, and only what does not hold is listed."""

from __future__ import annotations

import dataclasses
from functools import cache

from gemmrepro import registry
from gemmrepro.judge import claims
from gemmrepro.judge.rules import CONSISTENT, NOT, PARTLY, REPRODUCED
from gemmrepro.paper.claims import ClaimView, Mechanism, explained, mechanisms


@cache
def ids() -> list[str]:
    return [claim.id for claim in claims.load(tuple(registry.family_names()))]


def test_every_pattern_names_a_claim_and_no_claim_has_two_causes():
    assert [each for each in ids() if sum(cause.explains(each) for cause in mechanisms()) > 1] == []
    for cause in mechanisms():
        for pattern in cause.claims:
            assert any(dataclasses.replace(cause, claims=(pattern,)).explains(each) for each in ids()), pattern


def view(name: str, verdict: str, register: str = "article", correction: dict | None = None) -> ClaimView:
    return ClaimView(id=name, verdict=verdict, register=register, correction=correction)


def test_only_what_does_not_hold_is_listed():
    causes = [
        Mechanism("few", "Few", "Few.", ("a.one",)),
        Mechanism("many", "Many", "Many.", ("b.*",)),
        Mechanism("none", "None", "None.", ("c.*",)),
        Mechanism("elsewhere", "Elsewhere", "Elsewhere.", ("d.*",), ("9.0",)),
    ]
    found = explained(
        [
            view("a.one", NOT),
            view("b.one", NOT),
            view("b.two", PARTLY),
            view("b.three", REPRODUCED),
            view("b.four", NOT, correction={"class": "wrong", "also": ["b.six"]}),
            view("b.six", NOT),
            view("b.seven", NOT, correction={"class": "of its generation"}),
            view("c.one", CONSISTENT),
            view("d.one", NOT),
        ],
        causes,
        "8.9",
    )
    assert [(cause.title, [claim.id for claim in of]) for cause, of in found.mechanisms] == [
        ("Many", ["b.one", "b.two", "b.seven"]),
        ("Few", ["a.one"]),
    ]
    assert [claim.id for claim in found.unexplained] == ["d.one"]
    assert explained([view("d.one", NOT)], causes, "9.0").unexplained == []

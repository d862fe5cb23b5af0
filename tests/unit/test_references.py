"""The list of references: every article is in it, every citation of the paper leads to it."""

from __future__ import annotations

import re

import pytest

from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.judge.published import published_rows
from gemmrepro.paper.claims import references
from gemmrepro.paper.inputs import TEMPLATES

CITED = re.compile(r"cite\(([^)]*)\)")


def test_every_article_has_a_reference():
    assert {article for each in references() for article in each.articles} == {
        row["article"] for row in published_rows()
    }


def test_numbers_count_from_one():
    assert [each.number for each in references()] == list(range(1, len(references()) + 1))


def test_citations_lead_to_references():
    known = {each.id for each in references()}
    cited = {
        name
        for path in TEMPLATES.rglob("*.j2")
        if path.name != "macros.j2"
        for arguments in CITED.findall(path.read_text())
        for name in re.findall(r'"([^"]+)"', arguments)
    }
    assert cited and cited <= known
    assert known - cited <= {each.id for each in references() if each.articles}


def test_only_https_addresses():
    for each in references():
        for address in [each.url, *(part["url"] for part in each.parts)]:
            assert address is None or address.startswith("https://")


def test_authors():
    by = {each.id: each.by for each in references()}
    assert by["ladder"] == ""
    assert by["boehm"] == "Simon Boehm"
    assert by["ootomo"] == "Hiroyuki Ootomo, Katsuhisa Ozaki and Rio Yokota"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("references: [{id: a, title: A}, {id: a, title: B}]", "one reference with the id 'a', not 2"),
        ("references: [{id: b, article: x, same_as: a}]", "one reference with the id 'a', not 0"),
        ("references: [{id: a, title: A, url: 'http://plain'}]", "does not match"),
        ("references: [{id: a}]", "is not valid"),
        ("references: [", "is not YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, said):
    path = tmp_path / "references.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(said)):
        references(path)


def test_missing(tmp_path):
    with pytest.raises(UserError, match="is missing; restore it"):
        references(tmp_path / "references.yaml")
    assert (paths.KERNELS_DIR / "references.yaml").is_file()

"""The list of references: every article is in it, every citation of the paper leads to it."""

import re
import shutil

import pytest

from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.paper.claims import references
from gemmrepro.paper.inputs import TEMPLATES
from gemmrepro.registry.articles import article_names

CITED = re.compile(r"cite\(([^)]*)\)")


def test_every_article_has_a_reference():
    assert sorted(name for each in references() for name in each.articles) == list(article_names())


def test_references_are_numbered_and_lead_to_https_addresses():
    assert [each.number for each in references()] == list(range(1, len(references()) + 1))
    for each in references():
        for address in [each.url, *(part["url"] for part in each.parts)]:
            assert address is None or address.startswith("https://")
    by = {each.id: each.by for each in references()}
    assert (by["ladder"], by["ootomo"]) == ("", "Hiroyuki Ootomo, Katsuhisa Ozaki and Rio Yokota")


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("references: [{id: a, title: A}, {id: a, title: B}]", "one reference with the id 'a', not 2"),
        ("references: [{id: a, title: A, url: 'http://plain'}]", "does not match"),
        (None, "cannot be read (No such file or directory); correct its name, or restore it"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, monkeypatch, text, said):
    if text:
        (tmp_path / "references.yaml").write_text(text)
    shutil.copy(paths.KERNELS_DIR / "chips.yaml", tmp_path)
    monkeypatch.setattr(paths, "KERNELS_DIR", tmp_path)
    with pytest.raises(UserError, match=re.escape(said)):
        references()

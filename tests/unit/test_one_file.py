"""The one-file edition: every page's sections once, ids that are unique, links that stay inside."""

from __future__ import annotations

import re

import pytest

from gemmrepro.errors import UserError
from gemmrepro.paper.policy import LOADER, PLACE
from gemmrepro.paper.single import page_id, read, single


def page(body: str, kind: str = "paper") -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en" data-root="">\n<head>{PLACE}<style>a{{}}</style></head>\n'
        f'<body class="{kind}"><nav><a href="claims.html">Claims</a></nav>\n'
        f'<header><h1 id="top">x</h1></header>\n<main id="main">{body}</main>\n'
        f"<script>{LOADER}</script>\n</body></html>"
    )


PAGES = {
    "index.html": page('<a href="kernels/a.b.html#row-1">1</a> <a href="data/x.csv">CSV</a> <a href="#top">up</a>'),
    "claims.html": page('<p id="claim-1"><a href="claims.html#verdict=partly">partly</a></p>', "wide"),
    "kernels/a.b.html": page(
        '<p id="row-1"><a href="../index.html#top">paper</a> <a href="#top">up</a> <a href="../claims.html">all</a></p>'
        '<svg aria-labelledby="top"><style>#top .a{}</style><use href="#top"/><g clip-path="url(#top)"/></svg>',
        "kernel",
    ),
}


@pytest.fixture(scope="module")
def text() -> str:
    return single(PAGES, {"data/evidence.js": 'told("</script>")'})


def test_every_id_is_there_once(text):
    ids = re.findall(r' id="([^"]+)"', text)
    assert sorted(ids) == sorted(set(ids))
    assert {"top", "row-1", "claim-1", "page-index", "page-kernels-a-b", "page-kernels-a-b-top"} <= set(ids)


def test_links_lead_to_what_they_led_to(text):
    assert '<a href="#row-1">1</a>' in text
    assert '<a href="#top">paper</a> <a href="#page-kernels-a-b-top">up</a> <a href="#page-claims">all</a>' in text
    assert '<a href="#verdict=partly">' in text
    assert "<a>CSV</a>" in text, "a file beside the report is no link"
    assert '<nav><a href="#page-claims">Claims</a></nav>' in text


def test_drawings_keep_their_names(text):
    assert '<svg aria-labelledby="page-kernels-a-b-top"><style>#page-kernels-a-b-top .a{}</style>' in text
    assert '<use href="#page-kernels-a-b-top"/><g clip-path="url(#page-kernels-a-b-top)"/>' in text


def test_scripts_are_inside_and_end_where_they_should(text):
    assert '<script>\ntold("<\\/script>")</script>' in text
    assert text.count("'sha256-") == 4, "two scripts, the style of the paper and that of the drawing"


def test_a_report_that_is_not_whole_is_refused(tmp_path):
    with pytest.raises(UserError, match="make the report"):
        read(tmp_path)
    with pytest.raises(UserError, match="no main part"):
        single({"index.html": "<header></header>"}, {})


def test_the_id_of_a_page_follows_its_place():
    assert page_id("kernels/ladder.smem.html") == "page-kernels-ladder-smem"

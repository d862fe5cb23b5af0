"""What the report offers programs: schemas that its data keep, a citation, linked data, and badges."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from synthetic import World
from test_report import make

from gemmrepro.core import schemas
from gemmrepro.judge.rules import VERDICTS
from gemmrepro.judge.ways import REGISTERS, WAYS
from gemmrepro.paper.exports import Citation, linked_data


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder of a synthetic report, of a GPU whose name is hostile."""
    hostile = 'A100</script><script>alert("1")</script>'
    return make(World(tmp_path_factory.mktemp("readable"), gpu=hostile, samples=False).write(), drawn=False).parent


def test_verdicts_keep_their_schema(report):
    verdicts = json.loads((report / "data/verdicts.json").read_text())
    schema = json.loads((report / "data/verdicts.schema.json").read_text())
    assert len(verdicts["claims"]) > 20
    assert list(schemas.errors(verdicts, schema)) == []
    verdicts["claims"][0]["verdict"] = "true"
    assert [error.json_path for error in schemas.errors(verdicts, schema)] == ["$.claims[0].verdict"]


def test_the_schema_has_the_words_of_the_rules():
    schema = schemas.load("verdicts.schema.yaml")["$defs"]
    assert tuple(schema["verdict"]["enum"]) == tuple(VERDICTS)
    assert tuple(schema["register"]["enum"]) == tuple(REGISTERS)
    assert tuple(schema["claim"]["properties"]["way"]["enum"]) == tuple(WAYS)


def test_claims_keep_their_table_schema(report, validators, tmp_path):
    def ends(table):
        command = [validators / "frictionless", "validate", table, "--schema", report / "data/claims.schema.json"]
        return subprocess.run(
            [*map(str, command), "--trusted"], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    whole = ends(report / "data/claims.csv")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    (tmp_path / "wrong.csv").write_text((report / "data/claims.csv").read_text().replace("not reproduced", "perhaps"))
    wrong = ends(tmp_path / "wrong.csv")
    assert wrong.returncode == 1 and "constraint" in wrong.stdout


def test_linked_data_names_the_paper_its_sources_and_its_data(report):
    page = (report / "index.html").read_text()
    [text] = re.findall(r'<script type="application/ld\+json">(.*?)</script>', page, re.DOTALL)
    paper, data = json.loads(text)["@graph"]
    assert (paper["@type"], data["@type"]) == ("ScholarlyArticle", "Dataset")
    assert paper["name"] == 'GEMM articles, checked on A100</script><script>alert("1")</script>'
    assert any(each.get("url", "").startswith("https://siboehm.com") for each in paper["citation"])
    places = [each["contentUrl"] for each in data["distribution"]]
    assert "data/claims.csv" in places and all((report / place).is_file() for place in places)


def test_indexers_find_title_authors_and_date(report):
    page = (report / "index.html").read_text()
    for name in ("title", "author", "publication_date", "language", "keywords"):
        assert re.search(rf'<meta name="citation_{name}" content="[^"<>]+">', page), name


def test_bibtex_has_balanced_braces_and_no_bare_specials():
    cited = Citation("50% & more: a_b {c}", "", ("A & B",), "1.0", "MIT", ("x",), "2026-11-22")
    assert "title = {{50\\% \\& more: a\\_b \\{c\\}}}," in cited.bibtex
    assert "year = {2026}," in cited.bibtex
    assert "year" not in Citation("t", "", ("A",), "1", "MIT", ("x",), None).bibtex
    assert "datePublished" not in linked_data(Citation("t", "", ("A",), "1", "MIT", ("x",), None), (), {})


def test_badges_say_the_same(report):
    told = json.loads((report / "data/badge.json").read_text())
    assert told["schemaVersion"] == 1 and re.fullmatch(r"\d+ of \d+ hold", told["message"])
    assert f"<title>{told['label']}: {told['message']}</title>" in (report / "data/badge.svg").read_text()

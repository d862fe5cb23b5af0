"""articles/: one folder per article, and a line with file and remedy for whatever is wrong there."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from gemmrepro import __main__ as command
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.judge import claims, published
from gemmrepro.judge.published import as_csv, mapping_problems, published_rows
from gemmrepro.paper.claims import references
from gemmrepro.registry import articles


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A copy of articles/, for tests to change."""
    shutil.copytree(paths.ARTICLES_DIR, tmp_path / "articles")
    monkeypatch.setattr(paths, "ARTICLES_DIR", tmp_path / "articles")
    return tmp_path / "articles"


def test_an_article_is_what_its_folder_says(folder):
    shutil.rmtree(folder / "ladder")
    assert not any(text.tagline for text in articles.known_for()), "and the page does without one"
    shutil.copytree(folder / "ada", folder / "an-other")
    assert articles.article_names() == tuple(sorted(path.name for path in folder.iterdir()))
    ada, ozaki = articles.article("ada"), articles.article("ozaki")
    assert (ada.regime, ada.cache, ada.language) == ("profiled", "cold", "English")
    assert (ozaki.source, ozaki.title) == ("cutile", None)
    assert articles.chip_of("an-other", "RTX 4090").name == "NVIDIA GeForce RTX 4090"
    assert articles.chip_of("gpu-notes", "CPU (Colab)") is None and articles.chip_of("ada", "T4") is None
    assert articles.about("ada") == ("ada", "an-other") and articles.about("crt") == ("gemmul8",)
    assert articles.about("ozaki") == ("ozaki",) and articles.about("fp8") == ()
    with pytest.raises(UserError, match="there is no article 'adda'; known articles: ada, an-other, cute"):
        articles.article("adda")


def test_the_numbers_are_those_of_all_articles(folder):
    rows = published_rows()
    assert [row for row in rows if row["article"] == "ladder"] == published_rows("ladder") and len(rows) > 400
    table = as_csv().splitlines()
    assert table[0].startswith("article,table,system") and len(table) > len(rows)
    assert any(line.startswith("ladder,roadmap,L1 naive,fp32,4096,,throughput,309,") for line in table)


LATIN = "caf\xe9".encode("latin-1")
WRONG = [
    *yaml.safe_load((Path(__file__).parent / "data/wrong_articles.yaml").read_text()),
    ("ada/article.yaml", "", LATIN, "ada/article.yaml, line 1: it is not UTF-8; save the file as such."),
    ("ada/claims.yaml", "", "claims: " + 20000 * "[", "ada/claims.yaml, line 1: not YAML: maximum recursion depth"),
]


@pytest.mark.parametrize(("file", "old", "new", "said"), WRONG)
def test_what_is_wrong_has_a_line_with_its_file_and_a_remedy(folder, capsys, file, old, new, said):
    """`old` is what `new` replaces: "" the whole file, None its end."""
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    if isinstance(new, bytes):
        path.write_bytes(new)
    else:
        text = path.read_text() if path.exists() else ""
        assert (old or "") in text
        path.write_text(new if old == "" else text + new if old is None else text.replace(old, new, 1))
    name = file.split("/")[0]
    wrong = command.run(["article", "check", name if (paths.ROOT / "articles" / name).is_dir() else "ada"])
    *lines, tally = capsys.readouterr().out.splitlines()
    assert any(said in line for line in [*lines, tally]), lines
    assert not wrong or (all(str(folder) in line for line in lines) and re.search(rf"{len(lines)} problems?$", tally))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"derive": "rate"}, "claim 'x.y', key 'derive': 'rate' is none of share, ratio, step, order"),
        ({"derive": "share"}, "key 'published': name the rows of numbers.csv that it is derived from"),
        ({"derive": "share", "published": [{"system": "L9"}]}, "0 rows of numbers.csv match (system L9), not one"),
        ({"derive": "step", "published": [{"system": "L1 naive", "metric": "throughput"}]}, "step is of a row 'A over"),
        ({"derive": "share", "published": [{"system": "A6000", "metric": "peak_bandwidth"}]}, "map.yaml has no kernel"),
        *(({"each": each}, "'each': give") for each in ({}, {"n": 1}, {"n": []}, {"m": [1, 2]})),
        ({"each": [{"n": 1}, {"m": 2}]}, "key 'each': give lists of values by name"),
    ],
)
def test_what_cannot_be_derived_is_refused_with_its_line(tmp_path, entry, said):
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump({"claims": [{"id": "x.y", **entry}]}, sort_keys=False))
    with pytest.raises(UserError) as caught:
        claims.load_file(tmp_path / "claims.yaml", "ladder")
    assert said in str(caught.value) and "line 2, claim 'x.y'" in str(caught.value)


def test_a_folder_alone_makes_an_article(folder, monkeypatch, capsys):
    """Made by the command and filled in, it has claims, verdicts, a reference and a family's figures, named nowhere."""
    assert command.run(["article", "new", "fresh"]) == 0 and command.run(["article", "check", "fresh"]) == 1
    assert "fresh/map.yaml, line 4, key 'systems.Kernel 1': 'family.kernel' is neither a" in capsys.readouterr().out
    header = (folder / "fresh/numbers.csv").read_text().splitlines()[0]
    rates = {"Kernel 1": 9, "Kernel 2": 18, "cuBLAS": 20}
    rows = [f"a,{name},fp32,4096,,throughput,{rate},TFLOP/s,H100,p," for name, rate in rates.items()]
    rows.append("b,Kernel 2 over cuBLAS,fp32,4096,,speedup,0.9,ratio,H100,p,")
    (folder / "fresh/numbers.csv").write_text("\n".join([header, *rows]) + "\n")
    mapped = {"Kernel 1": "ladder.smem", "Kernel 2": "ladder.warptile", "cuBLAS": "cublas.sgemm"}
    systems = {name: {"kernels": [kernel], "program": "same idea", "why": "y"} for name, kernel in mapped.items()}
    (folder / "fresh/map.yaml").write_text(yaml.safe_dump({"systems": systems}))
    for read in (articles._read_map, published._read):
        read.cache_clear()
    assert command.run(["article", "check", "fresh"]) == 0
    found = {claim.id: claim for claim in claims.load() if claim.article == "fresh"}
    kinds = [name.split(".")[1] for name in found]
    assert [kinds.count(kind) for kind in ("share", "ratio", "step", "order")] == [2, 3, 1, 1]
    step = found["fresh.step.Kernel-2.a.fp32.n4096"]
    assert (step.value, step.same_side, step.family, step.where) == (2.0, True, "ladder", "p")
    assert found["fresh.ratio.Kernel-1.a.fp32.n4096"].value == 0.45
    assert "fresh" in articles.about("ladder") and "fresh" in {name for each in references() for name in each.articles}
    more = "causes: {noise: [a*], tea: [fresh*]}\nheadlines: {fresh.none: x}\n"
    (about := folder / "fresh/article.yaml").write_text(about.read_text() + more)
    articles._read.cache_clear()
    assert command.run(["article", "check", "fresh"]) == 1
    *_, headline, cause, other, last = capsys.readouterr().out.splitlines()
    assert "line 13, key 'headlines.fresh.none': no claim of fresh is called 'fresh.none'; name one" in headline
    assert "line 12, key 'causes.noise': no claim of fresh is called 'a*'" in cause and "no cause 'tea'" in other
    assert last == "fresh: 7 claims, 3 problems"
    assert command.run(["article", "judge", "fresh"]) == 0
    assert re.search(r"fresh.order\S+ +reproduced[^\0]*\n7 claims on NVIDIA H200", capsys.readouterr().out)
    for gpu in (path.name for path in paths.RECORDINGS.iterdir() if path.is_dir()):
        assert command.run(["article", "judge", "gpu-notes", "--gpu", gpu]) == 0, "older declarations are left out"
    with pytest.raises(UserError, match="this name is there already; choose another"):
        command.run(["article", "new", "fresh"])
    (text := folder.parent / "text.txt").write_text("9 of 20,\nand 31 more")
    assert command.run(["article", "check", "fresh", "--text", str(text)]) == 1
    assert "text.txt, line 2: no row of numbers.csv has the number 31; enter it" in capsys.readouterr().out


def test_a_claim_may_name_kernels_of_any_family(folder):
    entry = {
        "where": "text",
        "statement": "It is {value} times as fast.",
        "published": [{"system": "3.1 n-stage + 4x tiling", "metric": "throughput", "n": 4096}],
        "compute": {"metric": "speedup", "kernel": "hopper.sketch", "over": "ada.scalar", "n": 4096},
        "transfer": {"kind": "ratio", "why": "Both run here."},
        "tolerance": 0.1,
    }
    named = [{"id": "ada.across"}, {"id": "across.x"}, {"id": "across.y", "family": "memory"}]
    (folder / "claims.yaml").write_text(yaml.safe_dump({"claims": [{**each, **entry} for each in named]}))
    assert [claim.family for claim in claims.load_file(folder / "claims.yaml", "ada")] == ["ada", "hopper", "memory"]
    (folder / "claims.yaml").unlink()
    shutil.copytree(folder / "ada", folder / "an-other")
    with pytest.raises(UserError, match=r"an-other/claims.yaml: claim 'ada\.\S+' is called as one of ada; rename one"):
        claims.load()


def test_a_claim_rests_on_the_authors_program_on_the_same_idea_or_on_ours(folder):
    ladder, cute = articles.programs("ladder"), articles.programs("cute")
    assert ladder["L1 naive"].kernels == ("ladder.naive",) and ladder["L1 naive"].relation == articles.AUTHORS
    example = cute["figure 6: NVIDIA example"]
    assert (example.kernels, example.relation) == (("cute.dsl_nvidia_example",), articles.SAME_IDEA)
    assert articles.programs("plamo") == {}
    for kernels, whose in (
        (["ladder.naive", "ladder.smem"], articles.AUTHORS),
        (["ladder.naive", "ladder.warptile"], articles.SAME_IDEA),
        (["ladder.naive", "ladder.warptile", "ladder.cut"], articles.OURS),
        ([], ""),
    ):
        assert articles.whose("ladder", kernels) == whose
    path = folder / "ladder/map.yaml"
    path.write_text(path.read_text() + "  L9 nothing:\n    program: absent\n    why: It is not there.\n")
    articles._read_map.cache_clear()
    (problem,) = mapping_problems("ladder")
    assert problem.endswith(
        "line 42, key 'systems.L9 nothing': numbers.csv has no such system; remove it, or enter its numbers."
    )


def test_a_table_is_one_entry():
    table = {
        "id": "x.{n}.{type}",
        "each": {"n": [1, 2], "type": ["a", "b"]},
        "statement": "At {n}: {value}.",
        "at": [{"n": "{n}"}],
    }
    found = articles.expanded([table, {"id": "y"}])
    assert [each["id"] for each in found] == ["x.1.a", "x.1.b", "x.2.a", "x.2.b", "y"]
    assert found[2] == {"id": "x.2.a", "statement": "At 2: {value}.", "at": [{"n": 2}]}
    cases = [{"n": 1, "type": "a"}, {"n": 2, "type": "b"}]
    assert articles.expanded([{**table, "each": cases}]) == [found[0], found[3]]

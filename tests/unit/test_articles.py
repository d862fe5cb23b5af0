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
ROW = "x,final kernel,fp16,4096,,{},1,{},RTX 4090,p,\n"
CLAIM = "claims:\n- id: ada.x\n  "


def named(rest: str) -> str:
    return f"ada/claims.yaml, line 2, claim 'ada.x', {rest}"


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("notes.txt", "", "x", "notes.txt: nothing reads it; articles/ holds a folder per article"),
        ("Ada/article.yaml", "", "x", "Ada: an article's name has small letters, digits and hyphens; rename"),
        ("new/numbers.csv", "", "x", "new/article.yaml is missing; write it, or remove the folder"),
        ("ada/figure.py", "", "x", "ada/figure.py: nothing reads it; an article has article.yaml, numbers.csv,"),
        ("ada/pictures/x", "", "x", "ada/pictures: nothing reads it"),
        ("ada/article.yaml", "", "", "ada/article.yaml, line 1, key 'the top level': None is not of type 'object'"),
        ("ada/article.yaml", "", LATIN, "ada/article.yaml, line 1: it is not UTF-8; save the file as such."),
        ("ada/article.yaml", "cache: cold", "cache: tepid", "line 10, key 'cache': 'tepid' is not one of"),
        ("ada/article.yaml", "title:", "source: cute\ntitle:", "ada/article.yaml, line 1, key 'the top level'"),
        ("ada/article.yaml", "4090: NVIDIA", "4090: ATI", "hardware.RTX 4090': chips.yaml has no chip 'ATI GeForce"),
        ("ada/article.yaml", '"ada.naive.loads"', '"ada.ratio.*"', "causes.cause': ada.ratio.1_0 has the cause instr"),
        ("ozaki/article.yaml", "source: cutile", "source: ozaki", "key 'source': there is no other article 'ozaki'"),
        ("ada/numbers.csv", "", "", "ada/numbers.csv, line 1: the columns are table,system,dtype,"),
        ("ada/numbers.csv", "", LATIN, "ada/numbers.csv, line 1: it is not UTF-8"),
        ("ada/numbers.csv", "hardware,place", "hardware,page", "line 1: the columns are table,system,dtype,"),
        ("ada/numbers.csv", ",fp16,", ",half,", "line 2: dtype: 'half' is not one of fp32, fp16"),
        ("ada/numbers.csv", "TFLOP/s", "Tflops", "line 3: throughput in 'Tflops'; convert it to TFLOP/s or GFLOP/s."),
        ("ada/numbers.csv", "throughput,", "throughput,-", "line 3: value: -153.6 is below 0; correct it."),
        ("ada/numbers.csv", "throughput,", "throughput,1;", "value: '1;153.6' is not of type 'number'; correct it."),
        ("ada/numbers.csv", ",4096,,", ",4096,", "line 2: 10 cells, not 11; put text with a comma into quotes."),
        ("ada/numbers.csv", ",fp16,", ',"fp16,', "numbers.csv is not a CSV in UTF-8 with a header ("),
        ("ada/numbers.csv", ",895,us", ",153.6,TFLOP/s", "line 2: time in 'TFLOP/s'; convert it to s or ms or us."),
        ("ada/numbers.csv", "time,895,us", "throughput,1,TFLOP/s", "line 3: tells of the same as line 2; remove one"),
        ("ada/numbers.csv", "RTX 4090", "RTX 4080", "article.yaml has no hardware 'RTX 4080'; name its chip"),
        ("ada/numbers.csv", "final kernel", "final kernel ", "line 2: system: blanks around it; correct it."),
        ("ada/numbers.csv", None, ROW.format("bandwidth", ""), "line 43: bandwidth has no unit; write it, or ratio of"),
        ("ada/numbers.csv", None, ROW.format("lines", "lines").replace("4096", ""), "0 problems"),
        (
            "ada/numbers.csv",
            None,
            ROW.format("throughput", "TFLOP/s").replace("4096", "5000"),
            "line 43: no claim is about 'final kernel' (throughput, n 5000); write one, or map the system; no sweep of "
            "ada has the size 5000: add it to sweep.sizes of config/config.yaml",
        ),
        ("ada/map.yaml", "  1.1 naive 2x tiling", "  1.0 naive", "map.yaml, line 6 is not YAML: the key '1.0 naive"),
        ("ada/map.yaml", "[ada.scalar]", "[adda.scalar]", "line 2, key 'systems.1.0 naive': 'adda.scalar' is neither"),
        ("ada/map.yaml", "[ada.scalar]", "[ladder.naive]", "naive': ladder.naive takes fp32, and its rows are of fp16"),
        ("ada/map.yaml", "program: author's program", "whose: mine", "ada/map.yaml, line 2, key 'systems.1.0 naive'"),
        ("ada/map.yaml", "final kernel:", "last kernel:", "the system 'final kernel' of numbers.csv is missing"),
        ("cute/map.yaml", "[cublas.gemm]", "[cublas.gem]", "'cublas.gem' is neither a kernel nor a library; name one"),
        ("ladder/map.yaml", "[ladder.vectorized]", "[ladder.naive]", "is called 'author's program' above; settle"),
        ("ada/claims.yaml", "", "- id: a\n", "ada/claims.yaml, line 1: there must be a list 'claims'; write it, or"),
        ("ada/claims.yaml", "", "claims: [one]\n", "claims.yaml, claim number 1: it must be a mapping with an 'id'"),
        ("ada/claims.yaml", "", "claims:\n- id: [a]\n", "claims.yaml, claim number 1, key 'id': ['a'] is not text"),
        ("ada/claims.yaml", "", f"{CLAIM}each: n\n", named("key 'each': give lists of values by name")),
        ("ada/claims.yaml", "", f"{CLAIM}derive: [share]\n", named("key 'derive': ['share'] is not text")),
        ("ada/claims.yaml", "", f"{CLAIM}published: [text]\n", named("key 'published': each must be a mapping")),
        ("ada/claims.yaml", "", f"{CLAIM}compute: text\n", named("key 'compute': 'text' is not a mapping")),
        ("ada/claims.yaml", "", f"{CLAIM}compute: {{kernels: x}}\n", named("key 'compute.kernels': 'x' is not a list")),
        ("ada/claims.yaml", None, "x: *nothing\n", "ada/claims.yaml, line 640 is not YAML: found undefined alias"),
        ("ada/claims.yaml", "", "claims: " + 20000 * "[", "ada/claims.yaml is not YAML: maximum recursion depth"),
        (
            "ada/claims.yaml",
            "{value",
            "{velue",
            "ada.throughput.1_0', key 'statement': only {value} and {percent",
        ),
        ("ada/figures.py", "", "def (:\n", "ada/figures.py: its TABLES cannot be read (SyntaxError: invalid syntax"),
        (
            "ada/figures.py",
            "TABLES = (",
            "TABLES = 2 * (",
            "figures.py: table shares is declared twice; rename one",
        ),
        (
            "ada/figures.py",
            'family="ada"',
            'family="adda"',
            "figures.py: kernels/ has no family 'adda', which",
        ),
    ],
)
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
        ({"each": [1]}, "key 'each': give lists of values by name, or a list of cases"),
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
    rows = ["a,Kernel 1,fp32,4096,,throughput,9,TFLOP/s,H100,p,", "a,Kernel 2,fp32,4096,,throughput,18,TFLOP/s,H100,p,"]
    rows += [
        "a,cuBLAS,fp32,4096,,throughput,20,TFLOP/s,H100,p,",
        "b,Kernel 2 over cuBLAS,fp32,4096,,speedup,0.9,ratio,H100,p,",
    ]
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
    (about := folder / "fresh/article.yaml").write_text(about.read_text() + "causes: {noise: [a*], tea: [fresh*]}\n")
    about.write_text(about.read_text() + "headlines: {fresh.none: x}\ntagline: x\n")
    articles._read.cache_clear()
    capsys.readouterr()
    assert command.run(["article", "check", "fresh"]) == 1
    assert "ladder/article.yaml, line 34, key 'tagline': fresh has a tagline, and the report" in capsys.readouterr().out
    about.write_text(about.read_text().removesuffix("tagline: x\n"))
    articles._read.cache_clear()
    assert command.run(["article", "check", "fresh"]) == 1
    headline, cause, other, last = capsys.readouterr().out.splitlines()
    assert "line 13, key 'headlines.fresh.none': no claim of fresh is called 'fresh.none'; name one" in headline
    assert "line 12, key 'causes.noise': no claim of fresh is called 'a*'" in cause and "no cause 'tea'" in other
    assert last == "fresh: 7 claims, 3 problems"
    (ada := folder / "ada/article.yaml").write_text(ada.read_text().replace("ada.throughput.3_1:", "ada.peak.final:"))
    articles._read.cache_clear()
    assert command.run(["article", "check", "ada"]) == 1
    assert "'headlines.ada.peak.final': ada.throughput.3_1 carries the verdict" in capsys.readouterr().out
    assert command.run(["article", "judge", "fresh"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"fresh.order\S+ +reproduced", shown) and "7 claims on NVIDIA H200" in shown
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

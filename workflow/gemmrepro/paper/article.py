"""The command ``python -m gemmrepro article``: makes, checks and judges the folder of an article.

    python -m gemmrepro article new NAME        a folder to fill in
    python -m gemmrepro article check [NAME]    what is wrong or missing in it, a line each; by default in all
    python -m gemmrepro article judge [NAME]    verdicts and tallies, on a GPU's recordings, or of a verdicts.json

`judge` fails if a statement that is marked as wrong on any GPU holds: correction or test is wrong.
"""

from __future__ import annotations

import fnmatch
import re
import shutil
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import yaml

from gemmrepro import experiments, registry
from gemmrepro.core import paths, schemas
from gemmrepro.core.files import read_json
from gemmrepro.errors import UserError, at_line
from gemmrepro.experiments import tables
from gemmrepro.judge import claims, judging
from gemmrepro.judge.claim import Claim
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.published import published_rows
from gemmrepro.measure.columns import REGIME_POINT
from gemmrepro.measure.recording import SUMMARY
from gemmrepro.measure.regimes import takes
from gemmrepro.paper import findings
from gemmrepro.registry import articles

_CAUSES = "mechanisms.yaml"
TEMPLATE = paths.ROOT / "workflow" / "templates" / "article"


def main(options: Namespace) -> int:
    """Run a subcommand. Returns the exit code: 1 if an article is incomplete."""
    if options.schema:
        print(yaml.safe_dump(claims.schema(), sort_keys=False, width=120, allow_unicode=True), end="")
        return 0
    if options.do == "new":
        if not options.names:
            raise UserError("name the article: python -m gemmrepro article new NAME.")
        return max(_new(name) for name in options.names)
    if options.do == "check":
        return max(_check(name, options.text) for name in options.names or articles.article_names())
    names = [articles.article(name).name for name in options.names] or articles.article_names()
    if options.verdicts is None:
        return _show(_judged(names, paths.RECORDINGS / options.gpu), names)
    document = read_json(options.verdicts, "the verdicts", "make them with python -m gemmrepro verdicts")
    if not isinstance(document, dict) or document.get("schema") != judging.SCHEMA:
        raise UserError(f"{options.verdicts} was written by another version; judge again.")
    return _show(document, names)


def _new(name: str) -> int:
    folder = articles.folder(name)
    if not re.fullmatch(articles.NAME, name) or folder.exists():
        why = "is there already" if folder.exists() else "has other than small letters, digits and hyphens"
        raise UserError(f"{folder}: this name {why}; choose another.")
    shutil.copytree(TEMPLATE, folder)
    files = ", ".join(articles.FILES[:3])
    print(f"{paths.shown(folder)}: fill in {files}, then python -m gemmrepro article check {name}")
    return 0


def _check(name: str, text: Path | None) -> int:
    found, problems = list[Claim](), list[str]()
    for step in (articles.known_for, lambda: found.extend(_claims(name)), lambda: tables.of_article(name)):
        try:
            step()
        except UserError as error:
            problems += [line for line in error.lines if line not in problems]
    if not problems:
        problems = [*_unclaimed(name, found), *_unknown(name, found), *_untold(name, found)]
        problems += _uncovered(name, text) if text else ()
    for problem in problems:
        print(problem)
    for system, program in () if problems else articles.programs(name).items():
        if not program.kernels:
            print(f"  nothing here stands for '{system}', so its rates are not judged")
    print(f"{name}: {len(found)} claims, {len(problems)} problem{'s' * (len(problems) != 1)}")
    return 1 if problems else 0


def _claims(name: str) -> list[Claim]:
    return claims.load_file(articles.folder(name) / articles.CLAIMS, articles.article(name).name)


def _unclaimed(name: str, found: Sequence[Claim]) -> Iterator[str]:
    """A line for each row that no claim refers to, and for each size that no sweep has."""
    rows, programs = published_rows(name), articles.programs(name)
    swept = schemas.parse_yaml((paths.ROOT / "config/config.yaml").read_text())["sweep"]["sizes"]

    def place(row: Mapping[str, Any]) -> str:
        return f"{articles.folder(name) / articles.NUMBERS}, line {rows.index(dict(row)) + 2}"

    def unswept(kernels: Iterable[str], size: int | None) -> str:
        lacking = [each for each in kernels if size and size not in swept.get(each.split(".")[0], (size,))]
        what = f"; no sweep of {lacking[0].split('.')[0]} has the size {size}" if lacking else ""
        return f"{what}: add it to sweep.sizes of config/config.yaml, or give the claim transfer none" if what else ""

    for row in claims.uncovered(found, name):
        program = programs.get(row["system"])
        if program is None or program.kernels:
            more, named = unswept(program.kernels if program else (), row["n"]), f"'{row['system']}' ({row['metric']}"
            yield f"{place(row)}: no claim is about {named}, n {row['n']}); write one, or map the system{more}."
    for claim in found:
        of_rows = METRICS[claim.metric].of_rows and claim.transfer["kind"] != "none"
        if why := unswept(claim.kernels, claim.compute.get("n")) if of_rows else "":
            where = articles.claim_place(articles.folder(name) / articles.CLAIMS, claim.id)
            yield f"{place(claim.published[0]) if claim.published else where}: {claim.id}{why}."


def _unknown(name: str, found: Sequence[Claim]) -> Iterator[str]:
    """A line for each claim, and each cause of one, that article.yaml names and that is none, or family of a figure."""
    text, path = articles.article(name), articles.folder(name) / articles.ARTICLE
    judges = {claim.id: claim.covered_by for claim in found}
    ids, causes = list(judges), schemas.parse_yaml((paths.KERNELS_DIR / _CAUSES).read_text())
    known, cause_of = {entry["id"] for entry in causes["mechanisms"]}, dict[str, str]()
    named = [("headlines", each, each) for each in text.headlines] + [("stories", each, each) for each in text.stories]
    named += [("causes", cause, pattern) for cause, patterns in text.causes.items() for pattern in patterns]
    for key, entry, pattern in named:
        place = schemas.place(path, key, entry)
        if key == "causes" and entry not in known:
            yield f"{place}: kernels/{_CAUSES} has no cause '{entry}'; name one of {', '.join(sorted(known))}."
        elif not (matched := fnmatch.filter(ids, pattern)):
            yield f"{place}: no claim of {name} is called '{pattern}'; name one that `article judge {name}` prints."
        elif key == "headlines" and (judge := judges[entry]):
            yield f"{place}: {judge} carries the verdict of '{entry}'; name {judge}, or give '{entry}' its own."
        elif key == "causes" and (two := [each for each in matched if cause_of.setdefault(each, entry) != entry]):
            yield f"{place}: {two[0]} has the cause {cause_of[two[0]]} too; leave one."
    for table in tables.of_article(name):
        if table.family not in registry.family_names():
            where = articles.folder(name) / articles.FIGURES
            yield f"{where}: kernels/ has no family '{table.family}', which {table.name} is of; name one that there is."


def _uncovered(name: str, text: Path) -> Iterator[str]:
    """A line for each number of a text that no row has."""
    for line, words in enumerate(text.read_text().splitlines(), 1):
        for number in sorted(_numbers(words) - _covered(name)):
            yield str(at_line(text, line, f"no row of {articles.NUMBERS} has the number {number:.15g}; enter it."))


def _untold(name: str, found: Sequence[Claim]) -> Iterator[str]:
    """A line for each number of a story that neither a row nor its claim has, and each reference that leads nowhere."""
    path, claim_of = articles.folder(name) / articles.ARTICLE, {claim.id: claim for claim in found}
    for entry, text in articles.article(name).stories.items():
        if (claim := claim_of.get(entry)) is None:
            continue
        place, covered = schemas.place(path, "stories", entry), _covered(name) | _numbers(str(claim))
        for reference in findings.NUMBER.findall(text):
            try:
                findings.number(reference, claim.family, {})
            except UserError as error:
                yield f"{place}: {{{reference}}}: {error}"
        for number in sorted(_numbers(findings.NUMBER.sub("", text)) - covered):
            yield f"{place}: neither a row of {articles.NUMBERS} nor the claim has {number:.15g}; refer to a cell."


def _numbers(text: str) -> set[float]:
    """The numbers of a text; small integers are words as often as numbers."""
    values = {float(each.replace(",", "")) for each in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.]*\w)", text)}
    return {value for value in values if value >= 10 or not value.is_integer()}


def _covered(name: str) -> set[float]:
    return {number for row in published_rows(name) for number in (row["value"], row["n"]) if number is not None}


def _judged(names: Sequence[str], recorded: Path) -> Mapping[str, Any]:
    """The verdicts.json of some articles on a GPU's recordings, whose rows are taken as they are."""
    if not recorded.is_dir():
        known = ", ".join(sorted(path.name for path in recorded.parent.iterdir()))
        raise UserError(f"there are no recordings {recorded}; --gpu takes {known}.")
    found = [claim for name in names for claim in _claims(name)]
    with TemporaryDirectory() as folder:
        of = _laid_out(recorded, Path(folder))
        places = (recorded, of / "gates", paths.ROOT / "results/build", None, lambda _: found)
        return judging.judge_all(*places, of / "experiments", of / "regimes")


def _show(document: Mapping[str, Any], names: Sequence[str]) -> int:
    entries = [entry for entry in document["claims"] if entry["article"] in names]
    width = max((len(entry["id"]) for entry in entries), default=0)
    for entry in entries:
        printed, measured = (
            ", ".join(f"{value['value']:.4g} {value['unit']}".removesuffix(" ratio") for value in values[:2])
            for values in (entry["published"], [value for value in entry["measured"] if value["judged"]])
        )
        print(f"{entry['id']:<{width}}  {entry['verdict']:<19}  published {printed or '-'}; here {measured or '-'}")
    print(f"\n{len(entries)} claims on {document['gpu'] or 'no GPU'}\n\n{judging.tallies(entries)}")
    holding = judging.unfounded(entries)
    for name in holding:
        print(f"{name} is marked as wrong, yet its statement holds")
    return 1 if holding else 0


def _laid_out(recorded: Path, folder: Path) -> Path:
    """A GPU's experiments and regimes as the judge reads them: of each point of the regimes the last take."""
    for family in (path for path in recorded.iterdir() if path.is_dir()):
        (here := folder / "experiments" / family.name).mkdir(parents=True)
        for experiment in experiments.declared(family.name):
            rows = family / "experiments" / f"{experiment.name}.csv"
            # Those of another declaration are left out, as where recordings are taken over.
            if rows.is_file() and rows.read_text().split("\n", 1)[0] == ",".join(experiment.header):
                for path in (rows, rows.with_suffix(".json")):
                    (here / path.name).symlink_to(path.resolve())
        tables = [pd.read_csv(take / SUMMARY, dtype=str) for take in takes(recorded, family.name)]
        if tables:
            (folder / "regimes" / family.name).mkdir(parents=True)
            last = pd.concat(tables).drop_duplicates(list(REGIME_POINT), keep="last")
            last.to_csv(folder / "regimes" / family.name / SUMMARY, index=False)
    return folder

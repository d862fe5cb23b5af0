"""Loads what the articles claim: ``articles/<name>/claims.yaml``, checked, with the published values looked up.

An entry with ``derive: ratio`` needs no `compute`, `transfer` and `tolerance`: they follow from its rows and from the
kernels of their systems in map.yaml. What the entry says itself stands. The kinds that article.yaml lists under
`derive` need no entries: `derived_entries` makes one of each for every table of rates.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmrepro import registry
from gemmrepro.core import schemas
from gemmrepro.core.text import filled_in
from gemmrepro.errors import UserError
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.judge.carrying import problems as carrying_problems
from gemmrepro.judge.claim import ARTICLE, Claim, Problem
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.metrics.consistent import references as of_cases
from gemmrepro.judge.published import NEED_NO_CLAIM, mapping_problems, picked, published_rows
from gemmrepro.judge.rules import FACTOR
from gemmrepro.measure.regimes import NOT_STATED
from gemmrepro.registry import articles, family_names
from gemmrepro.registry.articles import SCHEMA, Article, claim_place

if TYPE_CHECKING:
    import jsonschema

RATES = {
    **{name: name for name in ("fp32", "tf32", "bf16", "int8")},
    **{"fp16": "fp16_acc32", "fp64": "fp64_tensor", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"},
}
"""The rate of a chip (`gemmrepro.registry.chips.RATES`) that products of a type are held against."""

THROUGHPUT, SPEEDUP, RATIO = "throughput", "speedup", "ratio_to_cublas"

Row = Mapping[str, Any]


_DEFINED = schemas.load("claims.schema.yaml")["$defs"]["derived"].items()
KINDS: Mapping[str, Mapping[str, Any]] = {kind: defined["default"] for kind, defined in _DEFINED}
"""The kinds of claims that follow from numbers and map."""


def completed(entry: Any, article: str) -> Any:
    """An entry of claims.yaml with what its `derive` leaves out; any other entry as it is.
    Raises UserError if the kind or a row does not exist, or its system has no one kernel in map.yaml."""
    if not isinstance(entry, dict) or "derive" not in entry:
        return entry
    kind = entry["derive"]
    if kind not in KINDS:
        raise UserError(f"key 'derive': '{kind}' is none of {', '.join(KINDS)}")
    found = [picked(reference, published_rows(article)) for reference in entry.get("published") or ()]
    rows = [row for row in found if not isinstance(row, str)]
    if wrong := [row for row in found if isinstance(row, str)]:
        raise UserError(f"key 'published': {wrong[0]}")
    if not rows:
        raise UserError("key 'published': name the rows of numbers.csv that it is derived from")
    rest = {key: value for key, value in entry.items() if key != "derive"}
    compute = {**_compute(kind, rows, article), **rest.get("compute", {})}
    of = {"of": RATES.get(rows[0]["dtype"], "")} if kind == "share" else {}
    return {**KINDS[kind], "transfer": {**KINDS[kind]["transfer"], **of}, **rest, "compute": compute}


def _compute(kind: str, rows: Sequence[Row], article: str) -> dict[str, Any]:
    """The keys of `compute` for a claim of a kind on some rows."""
    first = rows[0]
    if kind == "order":
        kernels = [_kernel(row["system"], row["dtype"], article) for row in rows]
        return {"metric": "order", "of": "tflops", "kernels": kernels, "n": first["n"]}
    if kind == "step":
        pair = first["system"].split(" over ") if len(rows) == 1 else [row["system"] for row in rows]
        if len(pair) != 2:
            raise UserError("key 'published': a step is of a row 'A over B', or of the rows of A and of B")
        kernel, over = (_kernel(name, row["dtype"], article) for name, row in zip(pair, (first, rows[-1]), strict=True))
        return {"metric": "speedup", "kernel": kernel, "over": over, "n": first["n"]}
    metric = "ratio" if kind == "ratio" else "time" if first["metric"] == "time" else "tflops"
    kernel = _kernel(first["system"].split(" over ")[0], first["dtype"], article)
    return {"metric": metric, "kernel": kernel, "n": first["n"]}


def _kernel(system: str, dtype: str, article: str) -> str:
    """The kernel that stands for a system, of several that which multiplies the row's type."""
    program = articles.programs(article).get(system)
    named = program.kernels if program else ()
    fitting = [name for name in named if len(named) == 1 or registry.kernel(name).compute.dtype_in == dtype]
    if len(fitting) != 1:
        raise UserError(
            f"key 'derive': {articles.MAP} has {len(fitting) or 'no'} kernels for the system '{system}' in {dtype}; "
            "map it, or write 'compute'"
        )
    return fitting[0]


def is_library(system: str, article: str) -> bool:
    """Whether a library's call stands for a system of an article."""
    program = articles.programs(article).get(system)
    return program is not None and bool(program.kernels) and set(program.kernels) <= BASELINES.keys()


def derived_entries(article: str) -> Iterator[dict[str, Any]]:
    """The entries that follow from the kinds in article.yaml, in the order of numbers.csv; none without such kinds."""
    kinds = articles.article(article).derive
    rows = [row for row in published_rows(article) if row["metric"] in (THROUGHPUT, SPEEDUP, RATIO)] if kinds else []
    for keys, group in groupby(rows, key=lambda row: (row["table"], row["dtype"], row["n"], row["hardware"])):
        # A system without a program here has nothing to be judged by; `article check` names it.
        here = [row for row in group if row["n"] and _stands_for(row["system"], keys[1], article)]
        for kind, of in _claims(here, article):
            if kind in kinds:
                yield _entry(kind, of, article)


def _stands_for(system: str, dtype: str, article: str) -> bool:
    try:
        return all(_kernel(name, dtype, article) for name in system.split(" over "))
    except UserError:
        return False


def _claims(rows: Sequence[Row], article: str) -> Iterator[tuple[str, list[Row]]]:
    """The kind and the rows of every claim that the rows of one table, type, size and GPU give."""
    timed = [row for row in rows if row["metric"] == THROUGHPUT]
    own = [row for row in timed if not is_library(row["system"], article)]
    library = [row for row in timed if is_library(row["system"], article)]
    yield from (("ratio", [row]) for row in rows if row["metric"] == RATIO)
    for row in (row for row in rows if row["metric"] == SPEEDUP and " over " in row["system"]):
        yield ("ratio" if is_library(row["system"].split(" over ")[1], article) else "step"), [row]
    yield from (("share", [row]) for row in own)
    yield from (("ratio", [row, library[0]]) for row in own if library)
    kernels = [_kernel(row["system"], row["dtype"], article) for row in own]
    steps = [(slow, fast) for (slow, one), (fast, other) in pairwise(zip(own, kernels, strict=True)) if one != other]
    yield from (("step", [fast, slow]) for slow, fast in steps)
    if len(own) > 1 and len(set(kernels)) == len(kernels):
        yield "order", own


def _entry(kind: str, rows: Sequence[Row], article: str) -> dict[str, Any]:
    """An entry of claims.yaml in standard words."""
    row = rows[0]
    first, last = row["system"], rows[-1]["system"]
    statement = {
        "share": f"{first} reaches {{value}} {row['unit']}",
        "ratio": f"{first} runs at {{percent}} of {last if len(rows) > 1 else 'the library'}",
        "step": f"{first} is {{value}} times as fast as {last}"
        if len(rows) > 1
        else f"{first}: {{value}} times as fast",
        "order": f"{len(rows)} programs, from {first} to {last}, have this order of speed",
    }[kind]
    name = ".".join(_slug(str(part)) for part in (article, kind, first, row["table"], row["dtype"], f"n{row['n']}"))
    named = ("system", "metric", "n", "d", "dtype", "table", "hardware")
    entry = {
        "id": name,
        "derive": kind,
        "where": row["place"],
        "statement": f"{statement} in {row['dtype']} at {row['n']}.",
        "published": [{key: each[key] for key in named if each[key]} for each in rows],
    }
    return {**entry, "family": _kernel(first.split(" over ")[0], row["dtype"], article).split(".")[0]}


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def schema() -> dict[str, Any]:
    """The JSON schema of a claims.yaml: the file in workflow/schemas, with the words of METRICS and their keys."""
    document = deepcopy(schemas.load(Path(SCHEMA).name))
    compute, claim = (document["$defs"][name] for name in ("compute", "claim"))
    compute["properties"]["metric"] = {"enum": list(METRICS)}
    for word in METRICS:
        chosen = {"required": ["metric"], "properties": {"metric": {"const": word}}}
        compute.setdefault("allOf", []).append({"if": chosen, "then": {"$ref": f"#/$defs/metrics/{word}/compute"}})
        held = {"if": {"required": ["compute"], "properties": {"compute": chosen}}}
        claim.setdefault("allOf", []).append({**held, "then": {"$ref": f"#/$defs/metrics/{word}/claim"}})
    return document


def load_file(
    path: Path, article: str, *, judged: bool = False, families: Collection[str] | None = None
) -> list[Claim]:
    """The claims of one file, of an article. Raises UserError, with a line for every wrong claim and key.
    `families`: only the claims that these judge are held against kernels, experiments and chips; default: all.
    `judged`: there are verdicts on them, so the slow check against the schema was made."""
    text, published = articles.article(article), published_rows(article)
    if wrong_map := [] if judged else mapping_problems(article, families is None):
        raise UserError(*wrong_map)
    entries = _entries(path, article, checked=judged)
    ids = [entry["id"] for entry in entries]
    wrong = [f"{claim_place(path, name)}, key 'id': used twice." for i, name in enumerate(ids) if name in ids[:i]]
    claims = []
    for entry in entries:
        claim, problems = _load_claim(entry, text, published, families)
        claims.append(claim)
        wrong += [f"{claim_place(path, claim.id)}, key '{key}': {message}." for key, message in problems]
    own = {claim.id: claim for claim in claims}
    for claim in (claim for claim in claims if claim.covered_by):
        if why := _not_covering(claim, own):
            wrong.append(f"{claim_place(path, claim.id)}, key 'covered_by': {why}.")
    if wrong:
        raise UserError(*wrong)
    return claims


def _not_covering(claim: Claim, own: Mapping[str, Claim]) -> str:
    """Why what is said to cover a claim cannot; '' if it is a claim of its register that is judged itself."""
    other = own.get(claim.covered_by or "")
    if other is None:
        return f"there is no claim '{claim.covered_by}' in this file"
    judged = other is not claim and not other.covered_by and other.transfer["kind"] != "none"
    if judged and other.register in (ARTICLE, claim.register):
        return ""
    return f"name another claim, judged itself, of the article or in the register {claim.register}"


def _entries(path: Path, article: str, *, checked: bool) -> list[dict[str, Any]]:
    """The entries of a file, with what is derived, that fit the schema, if need be as `checked` before."""
    document = articles.document_of(path) if path.is_file() else {"claims": []}
    ids = {entry["id"] for entry in document["claims"]}
    every = [*document["claims"], *(entry for entry in derived_entries(article) if entry["id"] not in ids)]
    entries, wrong = [], []
    for entry in every:
        try:
            entries.append(completed(entry, article))
        except UserError as error:
            wrong.append(f"{claim_place(path, entry)}, {error}.")
    if not wrong and not checked and entries:
        found = schemas.errors({**document, "claims": entries}, schema(), whole_numbers=True)
        errors = sorted(found, key=lambda error: [str(part) for part in error.absolute_path])
        wrong = list(dict.fromkeys(_told(path, entries, error) for error in errors))
    if wrong:
        raise UserError(*wrong)
    return entries


def _told(path: Path, entries: Sequence[Mapping[str, Any]], error: jsonschema.ValidationError) -> str:
    """A violation of the schema: its file, line, claim and key, and what is wrong there."""
    keys, where = list(error.absolute_path), str(path)
    if len(keys) > 1 and keys[0] == "claims":
        where, keys = claim_place(path, entries[int(keys[1])]), keys[2:]
    if keys:
        where += ", key '" + ".".join(str(key) for key in keys) + "'"
    why = schemas.told(error).replace("Unevaluated properties are not allowed", "unknown keys for this metric")
    return f"{where}: {why}. See {SCHEMA}."


def _load_claim(
    entry: Mapping[str, Any], article: Article, published: Sequence[Mapping[str, Any]], families: Collection[str] | None
) -> tuple[Claim, list[Problem]]:
    """One claim of a file that fits the schema, and its problems that the schema cannot catch."""
    compute = entry["compute"]
    references = of_cases(compute) if compute["metric"] == "consistent" else entry.get("published", ())
    rows, problems = _look_up(tuple(references), published)
    transfer, wrong = _with_rows(entry["transfer"], published)
    throughput, wrong_throughput = _look_up(tuple(filter(None, [entry.get("throughput")])), published)
    problems += wrong + wrong_throughput
    as_it_is = ("id", "where", "statement", "compute", "tolerance", "register", "covered_by", "correction")
    claim = Claim(
        **{name: entry[name] for name in as_it_is if name in entry},
        family=_family(entry),
        article=article.name,
        published=rows,
        transfer=transfer,
        within_factor=float(entry.get("within_factor", FACTOR)),
        same_side="same_side_of" in entry,
        toolkits=tuple(article.toolkits),
        cache=compute.get("cache", article.cache),
        regime=entry.get("regime", article.regime or NOT_STATED),
        throughput=throughput[0] if throughput else None,
    )
    if problems or (families is not None and claim.family not in families):
        return claim, problems
    if claim.family not in family_names():
        message = f"there is no family '{claim.family}' in kernels/; name that of the experiments or calculations"
        return claim, [("family", message)]
    problems += METRICS[claim.metric].check(claim)
    problems += carrying_problems(claim)
    exact = rows and claim.transfer["kind"] != "none" and not claim.of_two and rows[0]["unit"] == "count"
    if claim.tolerance and exact and compute["metric"] not in ("consistent", "none"):
        problems.append(("tolerance", "integer counts are compared exactly: 0"))
    if "over" in compute and compute["over"] == compute.get("kernel") and not compute.get("over_where"):
        problems.append(("compute.over", "a value over itself is 1 everywhere and tests nothing"))
    figures = {} if claim.value is None else {"value": claim.figure, "percent": f"{100 * claim.value:.4g}%"}
    try:
        return replace(claim, statement=" ".join(filled_in(claim.statement, figures).split())), problems
    except (KeyError, ValueError):
        allowed = "only {value} and {percent} may stand in braces" if rows else "without a figure, no braces"
        return claim, [*problems, ("statement", allowed)]


def _family(entry: Mapping[str, Any]) -> str:
    """The family that a claim is judged by: as it says, or the id's first word, or that of its first kernel."""
    compute, known = entry["compute"], family_names()
    named = [entry["id"], *compute.get("kernels", ()), compute.get("kernel", "")]
    found = (name.split(".")[0] for name in named)
    return str(entry.get("family") or next((name for name in found if name in known), entry["id"].split(".")[0]))


def _with_rows(
    transfer: Mapping[str, Any], published: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], list[Problem]]:
    """A transfer with the published rows of `there` looked up, and the problems of those that match not one row."""
    if "there" not in transfer:
        return transfer, []
    rows, problems = _look_up(tuple(transfer["there"].values()), published)
    wrong = [("transfer.there", message) for _, message in problems]
    return {**transfer, "there": {} if wrong else dict(zip(transfer["there"], rows, strict=True))}, wrong


def _look_up(
    references: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]
) -> tuple[tuple[Mapping[str, Any], ...], list[Problem]]:
    """The row of numbers.csv that each reference picks; a problem for each that does not pick exactly one.
    `published` are the rows of the claim's article; a reference may name another."""
    found = [picked(each, published_rows() if "article" in each else published) for each in references]
    rows = tuple(row for row in found if not isinstance(row, str))
    return rows, [("published", problem) for problem in found if isinstance(problem, str)]


def load(families: tuple[str, ...] | None = None, *, judged: bool = False) -> list[Claim]:
    """The articles' claims that are judged by `families` (default: all), by family, then in the order of the files.
    `judged`: see `load_file`. Raises UserError as `load_file` does."""
    wanted = family_names() if families is None else families
    names = articles.article_names()
    if families is not None:
        about = {name for family in wanted for name in articles.about(family)}
        names = tuple(name for name in names if name in about)
    paths = {name: articles.folder(name) / articles.CLAIMS for name in names}
    stating = {name: path for name, path in paths.items() if path.is_file() or articles.article(name).derive}
    files = [load_file(path, name, judged=judged, families=families) for name, path in stating.items()]
    first: dict[str, str] = {}
    for claim in (claim for claims in files for claim in claims):
        if (other := first.setdefault(claim.id, claim.article)) != claim.article:
            raise UserError(f"{paths[claim.article]}: claim '{claim.id}' is called as one of {other}; rename one.")
    return [claim for family in wanted for claims in files for claim in claims if claim.family == family]


def uncovered(claims: Sequence[Claim], article: str | None = None) -> list[dict[str, Any]]:
    """Rows of numbers.csv that none of `claims` refers to, of an article or of all, but for `NEED_NO_CLAIM`."""
    used = {tuple(row.items()) for claim in claims for row in claim.published}
    results = [row for row in published_rows(article) if row["metric"] not in NEED_NO_CLAIM]
    return [row for row in results if tuple(row.items()) not in used]

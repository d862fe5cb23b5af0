"""Loads what the articles claim: ``kernels/<family>/claims.yaml``, checked, with the published values looked up."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from gemmrepro import experiments
from gemmrepro.core import paths
from gemmrepro.core.paths import ROOT
from gemmrepro.core.text import as_published, format_number
from gemmrepro.errors import UserError, run_stage
from gemmrepro.judge.published import published_rows
from gemmrepro.registry import family_names, kernels

SCHEMA = ROOT / "workflow" / "schemas" / "claims.schema.yaml"


@dataclass(frozen=True)
class Claim:
    """One claim with its published rows (dicts of published.csv's columns) looked up.

    There are none where the article gives no figure: for a statement about machine code, and for what only stands
    beside the article.
    """

    id: str
    family: str
    article: str
    where: str
    statement: str
    published: tuple[Mapping[str, Any], ...]
    compute: Mapping[str, Any]
    transfer: Mapping[str, str]
    tolerance: float | None
    partly: Mapping[str, float]
    toolkits: tuple[str, ...]
    cache: str

    @property
    def kernels(self) -> tuple[str, ...]:
        """Ids of the kernels whose rows the claim is computed from."""
        compute = self.compute
        if "by" in compute:
            return tuple(dict.fromkeys(compute["kernel"].format(d=row["d"]) for row in self.published))
        return tuple(compute.get("kernels") or [compute[key] for key in ("kernel", "over") if key in compute])

    @property
    def value(self) -> float | None:
        """The published figure to compare with; of a ratio or speed-up that two rows give, their quotient."""
        if not self.published:
            return None
        first = self.published[0]
        if not self._of_two:
            return first["value"]
        quotient = first["value"] / self.published[1]["value"]
        if self.compute["metric"] == "experiment":
            return quotient
        return 1 / quotient if first["metric"] == "time" else quotient

    @property
    def figure(self) -> str:
        """`value` as text, without its unit: with the article's digits, a quotient with four."""
        if self.value is None:
            return ""
        return format_number(self.value, 4) if self._of_two else as_published(self.value)

    @property
    def _of_two(self) -> bool:
        """Whether its figure is the quotient of two published rows."""
        return len(self.published) > 1 and self.compute["metric"] in ("speedup", "ratio", "experiment")


def points(where: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the values that the `where` of an experiment's claim gives its columns."""
    lists = [each if isinstance(each, list) else [each] for each in where.values()]
    return [dict(zip(where, values, strict=True)) for values in product(*lists)]


def _schema() -> dict[str, Any]:
    return yaml.safe_load(SCHEMA.read_text())


def _place(document: Any, error: jsonschema.ValidationError) -> str:
    """Where in the file an error is: the claim's id where there is one, then the key."""
    path = list(error.absolute_path)
    parts = []
    if len(path) >= 2 and path[0] == "claims" and isinstance(path[1], int):
        claim = document["claims"][path[1]]
        name = claim.get("id") if isinstance(claim, dict) else None
        parts.append(f"claim '{name}'" if name else f"claim number {path[1] + 1}")
        path = path[2:]
    if path:
        parts.append("key '" + ".".join(str(part) for part in path) + "'")
    return ", ".join(parts) or "the top level"


def _message(error: jsonschema.ValidationError) -> str:
    if error.validator == "unevaluatedProperties":
        return error.message.replace("Unevaluated properties are not allowed", "unknown keys for this metric")
    if error.validator == "not":
        return "may not stand in such a claim"
    return error.message


def load_file(path: Path, family: str) -> list[Claim]:
    """The claims of one file.

    Raises:
        UserError: names the file, the claim and the key that is wrong; all findings of a kind at once.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    validator = jsonschema.Draft202012Validator(_schema())
    errors = sorted(validator.iter_errors(document), key=lambda error: [str(part) for part in error.absolute_path])
    if errors:
        shown = "; ".join(f"{_place(document, error)}: {_message(error)}" for error in errors[:8])
        more = f"; and {len(errors) - 8} more" if len(errors) > 8 else ""
        raise UserError(f"{path}: {shown}{more}. See {SCHEMA.relative_to(ROOT)}.")

    published = [row for row in published_rows() if row["article"] == document["article"]]
    if not published:
        raise UserError(f"{path}, key 'article': published.csv has no article '{document['article']}'.")
    known = {kernel.id for kernel in kernels(family)}
    claims: list[Claim] = []
    seen: set[str] = set()
    problems: list[str] = []
    for entry in document["claims"]:
        name = f"claim '{entry['id']}'"
        if entry["id"] in seen:
            problems.append(f"{name}, key 'id': used twice")
        seen.add(entry["id"])
        rows = []
        for reference in entry.get("published", ()):
            found = [row for row in published if all(row[key] == value for key, value in reference.items())]
            if len(found) != 1:
                wanted = ", ".join(f"{key} {value}" for key, value in reference.items())
                problems.append(
                    f"{name}, key 'published': {len(found)} rows of published.csv match ({wanted}), not one"
                )
            rows += found[:1]
        compute = entry["compute"]
        claim = Claim(
            id=entry["id"],
            family=family,
            article=entry.get("article", document["article"]),
            where=entry["where"],
            statement=entry["statement"],
            published=tuple(rows),
            compute=compute,
            transfer=entry["transfer"],
            tolerance=entry.get("tolerance"),
            partly=entry.get("partly") or {},
            toolkits=tuple(document["judge"]["toolkits"]),
            cache=compute.get("cache", document["judge"]["cache"]),
        )
        of_experiment: set[str] = set()
        if "article" in entry and rows:
            problems.append(f"{name}, key 'article': its published rows are those of {document['article']}")
        if compute["metric"] == "experiment":
            if claim.tolerance is not None and len(points(compute.get("where") or {})) > 1:
                problems.append(f"{name}, key 'compute.where': a figure is compared at one point")
            wrong, of_experiment = _check_experiment(family, compute)
            problems += [f"{name}, key 'compute': {each}" for each in wrong]
        for unknown in [kernel for kernel in claim.kernels if kernel not in known | of_experiment]:
            problems.append(f"{name}, key 'compute': there is no kernel '{unknown}' in family {family}")
        if "ceiling" in compute and compute["ceiling"] not in {kernel.id for kernel in kernels("ceilings")}:
            problems.append(f"{name}, key 'compute': there is no kernel '{compute['ceiling']}' in family ceilings")
        if compute["metric"] == "order" and len(compute["kernels"]) != len(entry["published"]):
            problems.append(f"{name}, key 'compute.kernels': one kernel for each published row is needed")
        if "pattern" in compute:
            try:
                re.compile(compute["pattern"])
            except re.error as error:
                problems.append(f"{name}, key 'compute.pattern': {error}")
        if rows or "published" not in entry:
            values = {"value": claim.figure, "percent": f"{100 * claim.value:.4g}%"} if rows else {}
            try:
                statement = entry["statement"].format(**values)
            except (KeyError, IndexError, ValueError):
                allowed = "only {value} and {percent} may stand in braces" if rows else "without a figure, no braces"
                problems.append(f"{name}, key 'statement': {allowed}")
                continue
            claims.append(Claim(**{**claim.__dict__, "statement": " ".join(statement.split())}))
    if problems:
        raise UserError(f"{path}: {'; '.join(problems)}.")
    return claims


def _check_experiment(family: str, compute: Mapping[str, Any]) -> tuple[list[str], set[str]]:
    """What is wrong with a claim on an experiment, and the kernels and libraries that one may name."""
    try:
        found = experiments.experiment(family, compute["experiment"])
        asked = (*(compute.get("where") or {}), *(compute.get("over_where") or {}), *compute.get("by", ()))
        for column in (compute["value"], *asked):
            found.column(column)
    except UserError as error:
        return [str(error).rstrip(".")], set()
    return [], {*found.kernels, *found.libraries}


def load(families: tuple[str, ...] | None = None) -> list[Claim]:
    """All claims of `families` (default: every family that has a claims.yaml), in the order of the files."""
    names = family_names() if families is None else families
    return [claim for name in names for claim in _load_family(name)]


def _load_family(name: str) -> Iterator[Claim]:
    path = paths.KERNELS_DIR / name / "claims.yaml"
    if path.is_file():
        yield from load_file(path, name)


def uncovered(claims: list[Claim]) -> list[dict[str, Any]]:
    """Rows of published.csv that no claim refers to, of the articles that `claims` are about."""
    articles = {claim.article for claim in claims}
    used = {tuple(row.items()) for claim in claims for row in claim.published}
    return [row for row in published_rows() if row["article"] in articles and tuple(row.items()) not in used]


def main() -> int:
    parser = argparse.ArgumentParser(description="Check every claims.yaml, and that it covers its article.")
    parser.parse_args()
    claims = load()
    missing = uncovered(claims)
    for row in missing:
        print(f"no claim refers to {row['article']}: {row['system']}, {row['metric']}, n {row['n']}")
    print(f"{len(claims)} claims checked; {len(missing)} published rows without one")
    return 1 if missing else 0


if __name__ == "__main__":
    run_stage(main)

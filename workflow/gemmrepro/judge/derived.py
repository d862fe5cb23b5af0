"""Derives claims from an article's numbers and its map: its rates, ratios to the library, steps and orders.

An entry of claims.yaml with ``derive: ratio`` needs no `compute`, `transfer` and `tolerance`: they follow from its rows
and from the kernels of their systems in map.yaml. What the entry says itself stands. The kinds that article.yaml lists
under `derive` need no entries: `entries` makes one of each for every table of rates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from gemmrepro import registry
from gemmrepro.core import schemas
from gemmrepro.errors import UserError
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.judge.published import picked, published_rows
from gemmrepro.registry import articles

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


def entries(article: str) -> Iterator[dict[str, Any]]:
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

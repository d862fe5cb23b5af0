"""Renders a family's discussion, ``kernels/<family>/discussion.html.j2``: prose whose numbers are read from the rows.

A fragment is HTML with Jinja2. Its functions return a `Live` number: rendered, it is a link to the samples behind it,
struck out where its row is stale, and "not measured" where there is none; compared in a condition, it is the number,
and an unknown one is neither above nor below anything. So a sentence that states a direction belongs in an ``if``.

`functions` lists what a fragment may ask for. Sizes are of cubes; rows are by the toolkit and of the state of
the cache that represent the family, unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from gemmrepro.core import paths
from gemmrepro.core.names import SIZE
from gemmrepro.core.paths import ROOT
from gemmrepro.core.text import listed
from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.discussion import live
from gemmrepro.paper.discussion.ladder import Ladder
from gemmrepro.paper.discussion.measured import Measured
from gemmrepro.paper.discussion.names import named
from gemmrepro.paper.discussion.reference import Reference
from gemmrepro.paper.discussion.sources import Sources
from gemmrepro.paper.discussion.table import table

FILE = "discussion.html.j2"

FINDING = "finding.html.j2"
"""A sentence for the abstract: what a family found, empty where this run does not bear it out."""


def functions(sources: Sources) -> dict[str, Any]:
    """The names that a fragment sees."""
    ladder, measured, reference = Ladder(sources), Measured(sources), Reference(sources)
    return {
        "size": SIZE,
        "gpu": sources.gpu(),
        "cache": sources.cache(),
        # The family's kernels.
        "steps": ladder.steps,
        "past_article": ladder.past_article,
        "last": ladder.last,
        "before": ladder.before,
        "tuned": ladder.tuned,
        "constants": ladder.constants,
        "level": ladder.level,
        "idea": ladder.idea,
        "registered": ladder.registered,
        # What was measured.
        "tflops": measured.tflops,
        "beside": measured.beside,
        "ratio": measured.ratio,
        "speedup": measured.speedup,
        "ahead": measured.ahead,
        "clock": measured.clock,
        "power": measured.power,
        "counter": measured.counter,
        "experiment": measured.experiment,
        # What it is compared with.
        "ceiling": reference.ceiling,
        "peak": reference.peak,
        "waves": reference.waves,
        "published": reference.published,
        # Arithmetic and text.
        "number": live.number,
        "percent": live.percent,
        "quotient": live.quotient,
        "product": live.product,
        "as_fast": live.as_fast,
        "outcome": live.outcome,
        "share": live.share,
        "table": table,
        "listed": lambda words: listed([*map(str, words)]),
    }


def render(
    family: str, measured: Mapping[str, Measurements], results: Mapping[str, Results] | None = None, file: str = FILE
) -> Markup | None:
    """The family's discussion as HTML, or another `file` of its kind; None where it has none.

    `results` are its experiments'.

    Raises:
        UserError: the fragment is not a template, or asks for something that does not exist.
    """
    path = paths.KERNELS_DIR / family / file
    if not path.is_file():
        return None
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    sources = Sources(family, measured, results or {})
    try:
        text = environment.from_string(path.read_text()).render(functions(sources))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{where}, line {error.lineno}: {error.message}.") from None
    except (jinja2.TemplateError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: {error}; see gemmrepro.paper.discussion for what a fragment may ask.") from None
    return Markup(named(text.strip()))

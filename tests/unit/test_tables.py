"""The articles' tables as figures: both sides are looked up, and only quotients of one chip stand side by side."""

from pathlib import Path

import pytest
from support import ROOT

from gemmrepro import experiments, registry
from gemmrepro.errors import UserError
from gemmrepro.experiments import Mark, Measured, Panel, Printed, Table, mark, quotient, tables
from gemmrepro.experiments import results as experiments_results
from gemmrepro.experiments.results import nothing
from gemmrepro.figures import declared, stage
from gemmrepro.figures.inputs import Inputs, Numbers
from gemmrepro.measure.rows import load

RECORDED = ROOT / "reports" / "recorded" / "h200"
WITH_TABLES = [name for name in registry.family_names() if tables.declared(name)]
ALL = [(family, name) for family in WITH_TABLES for name in tables.declared(family)]


def without(family: str) -> Numbers:
    """The look-ups where nothing was measured."""
    results = {each.name: nothing(each) for each in experiments.declared(family)}
    return Numbers(load(Path("nowhere"), family), None, results, str(registry.family(family).article))


@pytest.mark.parametrize(("family", "name"), ALL)
def test_a_table_draws_its_published_numbers_where_nothing_was_measured(family, name):
    table, numbers = tables.declared(family)[name], without(family)
    inputs = Inputs({family: numbers.measured}, {family: numbers.results}, family=family)
    drawing = stage.draw(inputs, (name,))[name]
    assert not drawing.stale and "Nothing was measured" in drawing.caption
    assert all(line["measured"] is None and line["keys"] == {"measured": ()} for line in drawing.table)
    shown = {*(panel.title for panel in table.panels.values()), *table.counts.values()}
    assert {line[""] for line in drawing.table} == shown and "published" in drawing.alt


def test_rows_rates_and_published_numbers_are_looked_up():
    recorded = experiments_results.load(None, "cutile")
    numbers = Numbers(load(RECORDED, "cutile"), load(RECORDED, "ceilings"), recorded, "cutile")
    there = numbers.printed("cuTile matmul", "throughput", dtype="fp16", n=8192)
    assert there == Printed(1483.030888, "NVIDIA B200")
    assert numbers.printed("cuTile matmul", "throughput", dtype="fp16", n=7) is None
    with pytest.raises(UserError, match="rows with"):
        numbers.printed("cuTile matmul", "throughput", n=8192)
    here = numbers.swept("cutile.matmul_fp16", "tflops", 8192)
    assert here.value > 100 and here.keys[0].startswith("cutile.matmul_fp16/")
    assert numbers.swept("cutile.matmul_fp16", "tflops", 7) is None
    assert numbers.rate("NVIDIA B200", "fp16_acc32") == 2250 and numbers.rate("no chip", "fp16_acc32") is None
    assert 600 < numbers.rate_here("fp16_acc32") < 990 and numbers.rate_here("fp8") > 1900


def test_quotients_keep_chip_interval_keys_and_staleness():
    assert quotient(Printed(3.0, "A"), Printed(2.0, "B")) == Printed(1.5, "A")
    assert quotient(None, 2.0) is None and quotient(Printed(3.0, "A"), None) is None
    one, two = Measured(4.0, 3.0, 5.0, False, ("a",)), Measured(2.0, 2.0, 2.0, True, ("b",))
    assert one / 2.0 == Measured(2.0, 1.5, 2.5, False, ("a",))
    assert one / two == Measured(2.0, 2.0, 2.0, True, ("a", "b")) and (one / one).keys == ("a",)


def test_a_figure_of_names_writes_both_numbers_and_marks_stale_ones(monkeypatch):
    def marks(_numbers):
        yield mark("p", "s", "first", Printed(2.0, "T4"), Measured(1.5, 1.4, 1.6, True, ("k",)))
        yield Mark("p", "s", "second", (Printed(1.0, "T4"), Printed(3.0, "V100")), None)
        yield mark("p", "s", "third", None, None)

    table = Table("t", "memory", "Title", {"p": Panel("Panel", "ratio", line=1.0)}, marks, caption="What.")
    numbers = without("memory")
    monkeypatch.setattr("gemmrepro.figures.inputs.tables_of", lambda family: {"t": table})
    drawing = declared.of_table(Inputs({"memory": numbers.measured}, family="memory"), table)
    assert drawing.stale and drawing.table[0]["keys"] == {"measured": ("k",)}
    assert "published for T4 and V100" in drawing.caption and "stale" in drawing.caption
    assert [(line["at"], line["measured"]) for line in drawing.table] == [("first", 1.5), ("second", None)]
    assert (drawing.table[0]["published, T4"], drawing.table[1]["published, V100"]) == (2.0, 3.0)

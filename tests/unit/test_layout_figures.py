"""The layouts and pipelines that the report draws: what CuTe printed agrees with PTX and with the protocol."""

from __future__ import annotations

from itertools import combinations

import pytest
from colour_difference import VISION, ciede2000, lab

from gemmrepro.core.files import load_module
from gemmrepro.errors import UserError
from gemmrepro.experiments import paper_figures

figures = load_module("figures_of_cute", paper_figures.path_of("cute"))
PRINTED = {name: list(own.itertuples()) for name, own in figures.read().groupby("layout")}


def test_a_tile_lies_as_the_atom_and_the_swizzle_say():
    for cell in PRINTED["tile"]:
        row, column = cell.row, cell.column
        plain = 8 * (row % 8) + column % 8 + 64 * (column // 8) + 512 * (row // 8)  # (8,(8,8)):(8,(1,64)), tiled
        assert cell.value == plain ^ (plain >> 6 & 7) << 3  # Swizzle<3,3,3>


def test_neither_a_row_of_copies_nor_an_ldmatrix_meets_a_bank_twice():
    slot = {(cell.row, cell.column // 8): cell.value // 8 % 8 for cell in PRINTED["tile"]}
    for row in range(16):
        assert {slot[row, chunk] for chunk in range(8)} == set(range(8))
        assert len({cell.value // 64 for cell in PRINTED["tile"] if cell.row == row}) == 8, "in eight lines"
    for chunk in range(8):
        for first in (0, 8):
            assert {slot[first + row, chunk] for row in range(8)} == set(range(8))


@pytest.mark.parametrize(("operand", "rows", "values"), [("A", 16, 8), ("C", 16, 4)])
def test_fragments_of_the_first_warp_are_those_of_the_ptx_manual(operand, rows, values):
    """mma.m16n8k16: rows by groups of four lanes, halves of eight rows by the second bit of the value."""
    for cell in PRINTED[f"mma: {operand}"]:
        if cell.thread < 32 and cell.value < values:
            group, place = divmod(cell.thread, 4)
            assert cell.row == group + 8 * (cell.value >> 1 & 1)
            assert cell.column == 2 * place + cell.value % 2 + 8 * (cell.value >> 2)


def test_a_family_without_layouts_has_none(tmp_path):
    assert figures.read(tmp_path / "layouts.csv").empty
    (tmp_path / "layouts.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="holds no layouts"):
        figures.read(tmp_path / "layouts.csv")


@pytest.mark.parametrize("vision", VISION)
def test_any_two_shades_are_told_apart(vision):
    for a, b in combinations(figures.SHADES, 2):
        assert ciede2000(lab(a, vision), lab(b, vision)) >= 12, (a, b)

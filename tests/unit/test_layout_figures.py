"""The layouts and pipelines that the report draws: what CuTe printed agrees with PTX and with the protocol."""

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


def test_a_family_without_layouts_has_none(tmp_path):
    assert figures.read(tmp_path / "layouts.csv").empty
    (tmp_path / "layouts.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="holds no layouts"):
        figures.read(tmp_path / "layouts.csv")


@pytest.mark.parametrize("vision", VISION)
def test_any_two_shades_are_told_apart(vision):
    for a, b in combinations(figures.SHADES, 2):
        assert ciede2000(lab(a, vision), lab(b, vision)) >= 12, (a, b)

"""What a search found of each tile, as cuTile's figure has it."""

import pytest

from gemmrepro import registry
from gemmrepro.core.files import load_module
from gemmrepro.core.paths import RECORDINGS
from gemmrepro.errors import UserError
from gemmrepro.experiments import paper_figures
from gemmrepro.figures.inputs import Inputs
from gemmrepro.figures.style import COLOURS, WIDE
from gemmrepro.measure.rows import load

figures = load_module("figures_of_cutile", paper_figures.path_of("cutile"))


@pytest.fixture(scope="module")
def measured() -> Inputs:
    return Inputs({"cutile": load(RECORDINGS / "h200", "cutile")}, family="cutile")


TABLE = """\
bm,bn,bk,group,num_worker_warps,occupancy,num_ctas,stage,score,us_4096,ratio_4096,us_8192,ratio_8192,left_out,build_key
128,128,64,16,0,2,1,final,0.95,200,0.95,1500,0.97,,k
128,128,64,8,0,0,1,coarse,0.91,210,0.91,,,,k
128,256,64,16,8,0,1,coarse,0.90,212,0.90,,,,k
256,128,64,8,8,0,1,,,,,,,spills 16 bytes,k
128,64,64,4,8,0,1,coarse,2.0,90,2.0,,,,k
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    path = tmp_path / "matmul_bf16_tuned.csv"
    path.write_text(TABLE)

    def found(name, gpu=None):
        return path if name == "cutile.matmul_bf16_tuned" else tmp_path / "none.csv"

    monkeypatch.setattr(registry, "candidates_path", found)
    return path


def test_a_cell_is_the_best_candidate_of_its_tile(table, measured):
    search = figures.read(registry.tunable("cutile.matmul_bf16_tuned"))
    assert search.size == 4096
    tiles = search.tiles.set_index(["bm", "bn"])
    assert {tile: (best["ratio"], best["candidates"]) for tile, best in tiles.iterrows()} == {
        (128, 128): (0.95, 2),
        (128, 256): (0.90, 1),
    }, "one that was not timed, and one that the space does not hold, make no cell"
    drawn = figures.tiles(measured)
    assert [row["tile"] for row in drawn.table] == ["128 x 128", "128 x 256"]
    assert "0.950, of matmul_bf16 in tiles of 128 x 128" in drawn.alt and "at 4096" in drawn.caption
    axes = drawn.paint(WIDE).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert "0.95\nocc 2" in texts and "0.90\n8 w" in texts
    colours = {text.get_color() for text in axes.texts}
    assert colours == {figures.ON_DARK, figures.ON_LIGHT} and not colours & set(COLOURS)


def test_the_committed_table_is_read_a_broken_one_is_named_and_without_one_the_figure_says_so(measured, request):
    search = figures.read(registry.tunable("cutile.matmul_bf16_tuned"))
    assert search.size == 4096 and len(search.tiles) == 8 and (search.best["bm"], search.best["bn"]) == (128, 128)
    table = request.getfixturevalue("table")
    table.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"matmul_bf16_tuned\.csv is no table of candidates"):
        figures.tiles(measured)
    table.unlink()
    drawn = figures.tiles(measured)
    assert drawn.caption == "No search was recorded for this family." and not drawn.table

"""What families draw of their own: what a search found of each tile, and a layout that CuTe printed."""

import pytest
from colour_difference import VISION, too_near

from gemmrepro import registry
from gemmrepro.core.files import load_module
from gemmrepro.core.paths import RECORDINGS
from gemmrepro.errors import UserError
from gemmrepro.experiments import paper_figures
from gemmrepro.figures.inputs import Inputs
from gemmrepro.measure.rows import load

cute, cutile = (load_module(f"figures_of_{name}", paper_figures.path_of(name)) for name in ("cute", "cutile"))

TABLE = """\
bm,bn,bk,group,num_worker_warps,occupancy,num_ctas,stage,score,us_4096,ratio_4096,us_8192,ratio_8192,left_out,build_key
128,128,64,16,0,2,1,final,0.95,200,0.95,1500,0.97,,k
128,128,64,8,0,0,1,coarse,0.91,210,0.91,,,,k
128,256,64,16,8,0,1,coarse,0.90,252,0.80,,,,k
256,128,64,8,8,0,1,,,,,,,spills 16 bytes,k
128,64,64,4,8,0,1,coarse,2.0,90,2.0,,,,k
"""


def test_a_cell_is_the_best_candidate_of_its_tile_over_that_of_its_search(tmp_path, monkeypatch):
    """A candidate that was not timed, and one that the space does not hold, make no cell."""
    tunable, path = registry.tunable("cutile.matmul_bf16_tuned"), tmp_path / "matmul_bf16_tuned.csv"
    path.write_text(TABLE)
    monkeypatch.setattr(
        registry, "candidates_path", lambda name, gpu=None: path if name == tunable.id else tmp_path / "none.csv"
    )
    measured = Inputs({"cutile": load(RECORDINGS / "h200", "cutile")}, family="cutile")
    cells = [(row["tile"], row["ratio"], row["candidates"]) for row in cutile.tiles(measured).table]
    assert cells == [("128 x 128", 0.95, 2), ("128 x 256", 0.80, 1)]
    assert cutile.read(tunable)["share"].tolist() == pytest.approx([1, 0.80 / 0.95])
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"matmul_bf16_tuned\.csv is no table of candidates"):
        cutile.tiles(measured)
    path.unlink()
    drawn = cutile.tiles(measured)
    assert drawn.caption == "No search was recorded for this family." and not drawn.table


def test_a_tile_lies_as_the_atom_and_the_swizzle_say(tmp_path):
    for cell in cute.read().itertuples():
        row, column = cell.row, cell.column
        plain = 8 * (row % 8) + column % 8 + 64 * (column // 8) + 512 * (row // 8)  # (8,(8,8)):(8,(1,64)), tiled
        assert cell.value == plain ^ (plain >> 6 & 7) << 3  # Swizzle<3,3,3>
    (tmp_path / "layouts.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="holds no layouts"):
        cute.read(tmp_path / "layouts.csv")
    assert [too_near(cute.SHADES, vision) for vision in VISION] == [[], [], []]

"""Rings, turns and hand-overs of kernels, under every order of events that the programming model allows.

compute-sanitizer sees no hazard between TMA, wgmma and threads. Here the kernels' own sources run on the CPU against a
model of mbarriers, TMA, wgmma and mma.sync (hopper_grid.hpp, mma_grid.hpp) in which copies and products take place as
late, as early or as randomly as PTX allows. Bugs planted in the protocols must show.

Not here: kernels/cute/5_hopper.cu and its port to the Python DSL, dsl_hopper.py: their barriers, copies and wgmma are
in headers of CuTe and CUTLASS, which are not at hand here; the model replaces the functions of kernels/common. Their
ring is written after that of kernels/hopper/9_overlapped.cu, which does run here; the numerical gate judges them alone.
"""

import shutil

import hopper_grid
import pytest
from rings import RINGS

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")


@pytest.mark.parametrize("name", RINGS)
def test_every_order_gives_the_product(name: str) -> None:
    assert RINGS[name].problem() == ""


TURN = r"barrier_arrive\(&shared\.turn\[warpgroup \^ 1\]\);"
WAIT_EMPTY = r"barrier_wait\(&shared\.empty\[(stage|slot)\], parity \^ 1\);"
WAIT_FULL = r"barrier_wait\(&shared\.full\[(stage|slot)\], parity\);"
ROUND = r"(stage|slot) = 0, parity \^= 1;"
FINISH = r"wgmma_finish\((sums|fresh)(\[half\])?\);"
RESTAGED = r"tma_store_wait_read<[^>]+>\(\);"
UNIT_OF_B = r"if (u == 0) barrier_wait(&shared.full[stage], parity);"
FORM = "hopper.by_energy/"
OWN, SHARED, WIDE, TWO_WIDTHS = (
    f"{FORM}{entry}" for entry in ("own_128x128", "shared_128x256", "shared_256x192", "own_128x200")
)
DIVIDED, SHARING = "hopper.any_shape/joint_128x128", "hopper.any_shape/alternating_64x96_x"

MECHANISMS = {
    # what: (pattern, replacement, rings, each with the match that is replaced, from 0, behind #), once or several times
    "a stage released while it is multiplied": [
        (r"wgmma_wait<0>\(\);", "", "hopper.specialized"),
        (r"wgmma_wait<1>\(\);", "wgmma_wait<2>();", OWN),
        (r"wgmma_arrived<1>\(fresh\[0\]\);", "", "fp8.by_size/tile_128x128#1"),
    ],
    "no wait for an empty stage": [(WAIT_EMPTY, "", "hopper.specialized")],
    "no wait for a full stage": [(WAIT_FULL, "", "ada.half_tiles"), (WAIT_FULL, UNIT_OF_B, OWN)],
    "the ring begins full": [(WAIT_EMPTY, "barrier_wait(&shared.empty[stage], parity);", "hopper.specialized")],
    "parity stays": [
        (ROUND, r"\1 = 0;", "hopper.specialized#1"),
    ],
    "parity restarts with a tile": [
        (r"(const Tile tile = \S+ rows, cols\);)", r"\1 parity = 0;", "hopper.persistent"),
        (r"parity = first / STAGES % 2", "parity = 0", "crt.ping_pong"),
    ],
    "too few bytes announced": [
        (r"sizeof\(shared\.A\[0\]\) \+ sizeof\(shared\.B\[0\]\)", "sizeof(shared.A[0])", "hopper.specialized"),
        (r" \+ bytes_a\);", ");", "fp8.scaled_bulk/tile_192x128"),
    ],
    "barriers used before they are there": [(r"cluster_sync\(\);", "", "crt.fused")],
    "one may release for all": [
        (r"empty\[s\], CONSUMERS", "empty[s], 1", "hopper.two_consumers"),
        (r"walk\.peers\(\) \* \(F::ALT", "1 * (F::ALT", SHARING),
    ],
    "too many releases, or too few": [
        (r"threadIdx\.x % 128 == 0", "threadIdx.x % 32 == 0", "hopper.two_consumers"),
        (r"release\(\);", "", "crt.shared#5"),
        (r"empty\[before\[u\]\](, walk)?", r"empty[before[0]]\1", SHARING),
    ],
    "the stage in use released": [(r"empty\[before\]", "empty[stage]", "fp8.hidden")],
    "own block alone is told": [
        (r"(empty\[(stage|before)\]), threadIdx\.x % 128\)", r"\1, cluster_rank())", "hopper.multicast"),
        (r"walk\.peer\(i\)\)", "walk.rank)", SHARING),
    ],
    "a tile for one block alone": [(r"\(1 << CLUSTER\) - 1", "1 << rank", "crt.multicast")],
    "both blocks load the same share": [
        (r"\+ rank \* SHARE, \(1", "+ 0 * SHARE, (1", "crt.shared"),
        (r"tile\.row \+ walk\.y \* height, row", "tile.row, row", SHARING),
    ],
    "a block leaves before its neighbour": [
        (r"cluster_sync\(\);", "", f"{SHARED}#1"),
        (r"cluster_meet\(\);  // nobody leaves", "// nobody leaves", SHARING),
    ],
    "a consumer's rows taken by both": [
        (r"warpgroup \* (BM|ROWS) \* BK", r"0 * \1 * BK", SHARED),
    ],
    "turn not handed over": [(TURN, ";", f"{OWN} crt.two_widths")],
    "consumers walk the same stages": [
        (r"first \+= CONSUMERS \* steps", "first += steps", "hopper.ping_pong"),
        (r"first \+= CONSUMERS \* walk\.steps", "first += walk.steps", OWN),
    ],
    "sums taken before they are done": [
        (FINISH, "", f"{WIDE}#1 crt.accurate/find_peaks"),
        (r"wgmma_arrived<0>\(fresh\);", "", "fp8.scaled_bulk/tile_256x128"),
    ],
    "sums of the tile before": [
        (r"sums\[i\]\[j\]\[0\] = sums\[i\]\[j\]\[1\] = 0;", "", "ada.half_tiles"),
        (r"left < every \|\| s > 0", "true", "fp8.promoted"),
    ],
    "no fence before the store": [(r"shared_fence\(\);", "", WIDE)],
    "staging reused while it is stored": [
        (RESTAGED, "", "hopper.ping_pong"),
        (r"piece % F::BUFFERS\]", "(piece < 4 ? piece % 3 : 5 - piece)]", WIDE),
    ],
    "C staged in a stage not yet read": [(r" && steps >= (F::)?STAGES", "", OWN)],
    "a warp leaves while its tile is stored": [(r"tma_store_wait<0>\(\);", "", "ada.half_tiles")],
    "a cluster without a tile stores": [
        (r"if \(!first\)", "if (true)", "hopper.overlapped#1"),
        (r"if \(keeps\) \{  //", "if (true) { //", SHARED),
    ],
    "hand-overs of split tiles": [
        (r"await\(&ready\[twin\]\[warp\]\);", "", "hopper.stream_k/split"),
        (r"given\[\(walk\.z \* each", "given[(0 * each", DIVIDED),
        (r"cluster_meet\(\);  // every block is done with its ring", "", DIVIDED),
    ],
    "a launch does not wait for the one before": [(r"wait_for_previous\(\);", "", SHARING)],
    "tiles of two widths": [
        (r"walk\.at\(t\)\.col < walk\.wide", "false", TWO_WIDTHS),
        (r"min\(col, wide\)", "0", "crt.two_widths"),
    ],
    "steps that are skipped": [
        (r"barrier_arrive\(&shared\.full\[s\]\);", ";", "fp8.scaled_bulk/tile_192x128"),
        (r"p \+ STAGES >= depth;", "false;", "fp8.scaled_bulk/tile_256x128"),
    ],
    "halves and slices of a slot": [
        (r"fetch_b\(1, s\);", "if (s == 0) fetch_b(1, s);", "ada.half_tiles"),
        (r"2 \* rounds : rounds", "(k + BK - 1) / BK : rounds", "fp8.by_size/tile_128x128"),
    ],
    "residues of the modulus before": [(r"modulus\(tile\.product\)", "modulus(0)", "crt.two_widths")],
    "rows below C stored": [(r"row < stored_rows", "true", "crt.shared")],
    "C and the bias of an epilogue": [
        (r"barrier_wait\(&shared\.loaded\[warp\], brought\);", "", "hopper.epilogue"),
        (r"col \+ part \* 64 \+ chunk", "col + chunk", "hopper.epilogue"),
    ],
    "scales of FP8": [
        (r"fetch\(scales\[1\], next \+ 1\)", "fetch(scales[1], next)", "fp8.scaled"),
        (r"\[stage\]\[warp \* 16", "[(stage + 5) % 6][warp * 16", "fp8.scaled_ring/tile_128x128"),
        (r"of_b\[stage\]\[half \+ side\]", "of_b[stage][half]", "fp8.scaled_ring/tile_128x192"),
        (r"barrier_arrive_copied\(", "barrier_arrive(", "fp8.scaled_ring/tile_128x128"),
    ],
}
PLANTS = [
    (what, ring, pattern, replacement, int(which or 0))
    for what, rows in MECHANISMS.items()
    for pattern, replacement, rings in rows
    for ring, _, which in (target.partition("#") for target in rings.split())
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant[1]}-{plant[0]}")
def test_a_planted_bug_shows(plant: tuple[str, str, str, str, int]) -> None:
    _, ring, pattern, replacement, which = plant
    planted = hopper_grid.with_plant(RINGS[ring].text(), pattern, replacement, which)
    assert RINGS[ring].problem(planted) != ""

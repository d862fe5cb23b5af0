"""Rings, turns and hand-overs of the Hopper kernels, under every order of events that the programming model allows.

compute-sanitizer sees no hazard between TMA, wgmma and threads. Here the kernels' own sources run on the CPU against a
model of mbarriers, TMA and wgmma (hopper_grid.hpp) in which copies and products take place as late, as early or as
randomly as PTX allows. Bugs planted in the protocols must show. The INT8 rings of kernels/crt run under the same model.

Not here: kernels/cute/5_hopper.cu. Its barriers, copies and wgmma are inline PTX in the headers of CuTe and CUTLASS,
which are not at hand here; the model replaces the functions of kernels/common. Its ring is written after that of
kernels/hopper/9_overlapped.cu, which does run here; the CuTe code itself is judged by the numerical gate alone. Of the
port to the Python DSL, kernels/cute/dsl_hopper.py, test_ptx_rings.py runs the PTX.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import crt_grid
import crt_kinds
import hopper_grid
import pytest

from gemmrepro import registry
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Step

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")

SEEDS = range(0, 4)
"""Three fixed orders (latest, earliest, latest in reverse), and a random one."""
TRIES = range(0, 24)
"""For a planted bug, until it shows."""

BY_ENERGY = registry.kernel("hopper.by_energy")
FORMS = {part.code.entry: part for part in BY_ENERGY.parts}
ANY_SHAPE = registry.kernel("hopper.any_shape")
SHAPED = {part.code.entry: part for part in ANY_SHAPE.parts}
KERNELS = [
    kernel
    for kernel in registry.kernels("hopper")
    if kernel.compute.dtype_in == "bf16" and kernel.code.headers and kernel.compute.dtype_acc == "fp32"
    if kernel.id not in (BY_ENERGY.id, ANY_SHAPE.id) and kernel.compute.op == "gemm"
]


@dataclass(frozen=True)
class Case:
    """A problem, and for persistent kernels how many clusters (or blocks, where there are none) work on it."""

    shape: Shape
    clusters: int = 2


def cases(kernel: Kernel) -> list[Case]:
    """More steps than stages and fewer; several tiles a block, and none for some; tails."""
    if kernel.id in ("hopper.wgmma", "hopper.tiles"):
        return [Case(Shape(130, 136, 200))]
    if kernel.launch(Shape(4096, 4096, 64)).grid[1] > 1:
        return [Case(Shape(200, 264, 64 * 9)), Case(Shape(128, 256, 64))]
    return [Case(Shape(264, 520, 64 * 5)), Case(Shape(520, 264, 64 * 2)), Case(Shape(256, 256, 64), clusters=3)]


def grid_of(kernel: Kernel, case: Case) -> tuple[tuple[int, int], int, int]:
    """Grid, threads of a block, and blocks of a cluster."""
    launch = kernel.launch(case.shape)
    cluster = launch.cluster[0] if launch.cluster else 1
    persistent = kernel.launch(Shape(1 << 14, 1 << 14, 64)).grid[1] == 1
    grid = (case.clusters * cluster, 1) if persistent else (launch.grid[0], launch.grid[1])
    return grid, launch.block[0], cluster


def run(program: Path, kernel: Kernel, case: Case, seeds: range) -> str:
    grid, threads, cluster = grid_of(kernel, case)
    return hopper_grid.run_model(program, case.shape, grid, threads, cluster, seeds)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_every_order_gives_the_product(kernel: Kernel, tmp_path: Path) -> None:
    for part in kernel.parts:
        entry, maps = part.code.entry, dict(part.call.tensor_maps)
        program = hopper_grid.compile_model(kernel, kernel.source_path.read_text(), tmp_path / entry, entry, maps)
        for case in cases(kernel):
            assert run(program, part, case, SEEDS) == "", f"{entry} {case}"


def form_case(part: Kernel, rows: int, cols: int, steps: int, clusters: int = 2) -> Case:
    """So many tiles of a cluster and steps; the last tile of each row and column is cut to eight, the last step too."""
    height, width = part.params["bm"] * part.params["cluster"], part.params["bn"]
    return Case(Shape(height * (rows - 1) + 8, width * (cols - 1) + 8, 64 * (steps - 1) + 8), clusters)


def width_case(part: Kernel) -> Case:
    """A column of wide tiles and two of narrow ones."""
    return Case(Shape(140, part.params["bn"] + 2 * part.params["narrow"], 64 * 3), 2)


@pytest.mark.parametrize("entry", FORMS)
def test_every_order_gives_the_product_of_a_form(entry: str, tmp_path: Path) -> None:
    """Several tiles a block, of an odd number of steps; meetings; fewer steps than pieces of C, and no tile at all."""
    part = FORMS[entry]
    source, maps = part.source_path.read_text(), dict(part.call.tensor_maps)
    program = hopper_grid.compile_model(BY_ENERGY, source, tmp_path / entry, entry, maps)
    meeting = [form_case(part, 1, 10, 1)] if part.params["every"] else []  # of two clusters before their fifth tiles
    both = [width_case(part)] if "narrow" in part.params else []
    for case in (form_case(part, 2, 3, 5), *meeting, *both, form_case(part, 1, 1, 2, clusters=3)):
        assert run(program, part, case, SEEDS) == "", str(case)


# Three tiles for two clusters, and so much to save that the last wave is split.
SPLIT = Case(Shape(256, 768, 64 * 8))
WORTH = (r"constexpr int WORTH = \d+;", "constexpr int WORTH = 2;")


def test_tiles_of_a_last_wave_that_are_split(tmp_path: Path) -> None:
    kernel = registry.kernel("hopper.stream_k")
    source, times = re.subn(*WORTH, kernel.source_path.read_text())
    assert times == 1
    program = hopper_grid.compile_model(kernel, source, tmp_path / "split")
    assert run(program, kernel, SPLIT, SEEDS) == ""


LONG = Case(Shape(512, 512, 64 * 6))
SHORT = Case(Shape(512, 512, 64 * 2))
ONE_TILE = Case(Shape(256, 256, 64 * 5), clusters=3)
WAIT_EMPTY = r"barrier_wait\(&shared\.empty\[stage\], parity \^ 1\);"
WAIT_FULL = r"barrier_wait\(&shared\.full\[stage\], parity\);"
ROUND = r"stage = 0, parity \^= 1;"
BOTH_TILES = r"sizeof\(shared\.A\[0\]\) \+ sizeof\(shared\.B\[0\]\)"

PLANTS = [
    # (kernel, what, pattern, replacement, occurrence, case)
    ("specialized", "stage released while it is multiplied", r"wgmma_wait<0>\(\);", "", 0, LONG),
    ("specialized", "no wait for an empty stage", WAIT_EMPTY, "", 0, LONG),
    ("specialized", "no wait for a full stage", WAIT_FULL, "", 0, LONG),
    ("specialized", "parity of the consumer stays", ROUND, "stage = 0;", 1, LONG),
    ("specialized", "parity of the producer stays", ROUND, "stage = 0;", 0, LONG),
    ("specialized", "ring begins full", WAIT_EMPTY, "barrier_wait(&shared.empty[stage], parity);", 0, LONG),
    ("specialized", "bytes of A alone announced", BOTH_TILES, "sizeof(shared.A[0])", 0, LONG),
    ("specialized", "threads do not wait for the barriers", r"__syncthreads\(\);", "", 0, LONG),
    ("two_consumers", "one consumer may release for both", r"empty\[s\], CONSUMERS", "empty[s], 1", 0, LONG),
    ("two_consumers", "every warp releases", r"threadIdx\.x % 128 == 0", "threadIdx.x % 32 == 0", 0, LONG),
    ("persistent", "parity restarts with a tile", r"(const Tile tile = \S+ rows, cols\);)", r"\1 parity = 0;", 0, LONG),
    (
        "multicast",
        "own block alone is told",
        r"(empty\[stage\]), threadIdx\.x % 128\)",
        r"\1, cluster_rank())",
        0,
        LONG,
    ),
    ("multicast", "tile of B for one block alone", r"\(1 << CLUSTER\) - 1", "1 << rank", 0, LONG),
    ("multicast", "both blocks load the same half", r"\+ rank \* SHARE, \(1", "+ 0 * SHARE, (1", 0, LONG),
    ("tma_store", "a block leaves before its neighbour", r"cluster_sync\(\);", "", 1, LONG),
    ("tma_store", "blocks do not wait for each other's barriers", r"cluster_sync\(\);", "", 0, LONG),
    ("tma_store", "no fence before the store", r"shared_fence\(\);", "", 0, LONG),
    ("tma_store", "staging reused while it is stored", r"tma_store_wait_read<PIECES - 1>\(\);", "", 0, LONG),
    ("tma_store", "warp leaves while its tile is stored", r"tma_store_wait<0>\(\);", "", 0, LONG),
    ("in_flight", "the stage in use released", r"empty\[before\]", "empty[stage]", 0, LONG),
    ("in_flight", "two steps in flight, one stage kept", r"wgmma_wait<1>\(\);", "wgmma_wait<2>();", 0, LONG),
    ("in_flight", "last stage of a tile kept", r"barrier_arrive_at\(&shared\.empty\[before\].*", ";", 1, LONG),
    ("overlapped", "sums rounded before they are done", r"wgmma_finish\(sums\);", "", 0, LONG),
    ("overlapped", "a cluster without a tile stores", r"if \(!first\)", "if (true)", 1, ONE_TILE),
    ("lockstep", "a cluster without a tile stores", r"if \(!first\)", "if (true)", 1, ONE_TILE),
    ("stream_k", "sums taken before they are there", r"await\(&ready\[twin\]\[warp\]\);", "", 0, SPLIT),
    ("stream_k", "flag left up for the next launch", r"\*flag = 0;", "", 0, SPLIT),
    ("ping_pong", "turn not handed over", r"barrier_arrive\(&shared\.turn\[warpgroup \^ 1\]\);", "", 0, LONG),
    ("ping_pong", "consumers walk the same stages", r"first \+= CONSUMERS \* steps", "first += steps", 0, LONG),
    ("ping_pong", "C staged in a stage not yet read", r" && steps >= STAGES", "", 0, SHORT),
    ("ping_pong", "staging reused while it is stored", r"tma_store_wait_read<\d>\(\);", "", 0, LONG),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant[0]}-{plant[1]}")
def test_a_planted_bug_shows(plant: tuple[str, str, str, str, int, Case], tmp_path: Path) -> None:
    name, what, pattern, replacement, which, case = plant
    kernel = registry.kernel(f"hopper.{name}")
    planted = hopper_grid.with_plant(kernel.source_path.read_text(), pattern, replacement, which)
    if case is SPLIT:
        planted = re.sub(*WORTH, planted)
    program = hopper_grid.compile_model(kernel, planted, tmp_path / "planted")
    assert run(program, kernel, case, TRIES) != "", what


OWN, SHARED, WIDE, TWO_WIDTHS = "own_128x128", "shared_128x256", "shared_256x192", "own_128x200"
FORM_PLANTS = [
    # (form, what, pattern, replacement, occurrence, rows and columns of tiles, and steps)
    (
        OWN,
        "one stage of two waited for",
        WAIT_FULL,
        "if (u == 0) barrier_wait(&shared.full[stage], parity);",
        0,
        (2, 3, 5),
    ),
    (OWN, "one stage of two released", r"empty\[before\[u\]\]", "empty[before[0]]", 0, (2, 3, 5)),
    (OWN, "two groups in flight, one kept", r"wgmma_wait<1>\(\);", "wgmma_wait<2>();", 0, (2, 3, 5)),
    (OWN, "an odd step left out of the count", r"\* F::UNIT\), tiles", "), tiles", 0, (2, 3, 5)),
    (OWN, "turn not handed over", r"barrier_arrive\(&shared\.turn\[warpgroup \^ 1\]\);", "", 0, (2, 3, 5)),
    (OWN, "consumers walk the same stages", r"first \+= CONSUMERS \* walk\.steps", "first += walk.steps", 0, (2, 3, 5)),
    (OWN, "C staged in a stage not yet read", r" && steps >= F::STAGES", "", 0, (1, 10, 2)),
    (OWN, "a launch does not wait for the one before", r"wait_for_previous\(\);", "", 0, (1, 1, 2)),
    (SHARED, "a consumer's rows taken by both", r"warpgroup \* ROWS \* BK", "0 * ROWS * BK", 0, (2, 3, 5)),
    (SHARED, "both blocks load the same share", r"\+ walk\.rank \* F::SHARE, \(1", "+ 0 * F::SHARE, (1", 0, (2, 3, 5)),
    (SHARED, "one consumer may release for both", r"F::CLUSTER \* releases", "F::CLUSTER", 0, (2, 3, 5)),
    (SHARED, "a block leaves before its neighbour", r"cluster_sync\(\);", "", 1, (2, 3, 5)),
    (SHARED, "staging reused while it is stored", r"tma_store_wait_read<F::BUFFERS - 1>\(\);", "", 0, (2, 3, 5)),
    (SHARED, "a cluster without a tile stores", r"if \(keeps\) \{  //", "if (true) { //", 0, (1, 1, 2)),
    (WIDE, "sums stored before they are done", r"wgmma_finish\(sums\[half\]\);", "", 1, (2, 3, 5)),
    (WIDE, "last stage of a tile kept", r"release\(\);", "", 3, (2, 3, 5)),
    (
        WIDE,
        "a buffer used out of turn",
        r"piece % F::BUFFERS\]",
        "(piece < 4 ? piece % 3 : 5 - piece)]",
        0,
        (2, 3, 5),
    ),
    (WIDE, "no fence before the store", r"shared_fence\(\);", "", 0, (2, 3, 5)),
    # On `width_case`.
    (TWO_WIDTHS, "all tiles multiplied as narrow ones", r"walk\.at\(t\)\.col < walk\.wide", "false", 0, None),
    (TWO_WIDTHS, "narrow tiles begin as behind wide ones", r"min\(col, wide\)", "col", 0, None),
]


@pytest.mark.parametrize("plant", FORM_PLANTS, ids=lambda plant: f"{plant[0]}-{plant[1]}")
def test_a_bug_planted_in_a_form_shows(
    plant: tuple[str, str, str, str, int, tuple[int, int, int] | None], tmp_path: Path
) -> None:
    entry, what, pattern, replacement, which, size = plant
    part = FORMS[entry]
    planted = hopper_grid.with_plant(part.source_path.read_text(), pattern, replacement, which)
    maps = dict(part.call.tensor_maps)
    program = hopper_grid.compile_model(BY_ENERGY, planted, tmp_path / "planted", entry, maps)
    case = form_case(part, *size, clusters=3 if size[:2] == (1, 1) else 2) if size else width_case(part)
    assert run(program, part, case, TRIES) != "", what


def alone(source: str, entry: str) -> str:
    """The source without its other entry points, which take long to compile."""
    return re.sub(rf'extern "C" [^{{]*?\b(?!{entry}\()\w+\(OPERANDS\) \{{.*?\n\}}\n', "", source, flags=re.DOTALL)


def run_shaped(program: Path, part: Kernel, tiles: tuple[int, int], steps: int, seeds: range) -> str:
    """Rows and columns of tiles of a cluster, the last ones cut to eight; for each a cluster where K is in parts."""
    lengths = part.launch(Shape(64, 64, 4096)).cluster or (1, 1, 1)
    sides = (part.params["bm"], part.params["bn"])
    high, wide = (side * count * (number - 1) + 8 for side, count, number in zip(sides, lengths, tiles, strict=False))
    m, n = (wide, high) if part.code.entry.endswith("_x") else (high, wide)
    clusters = math.prod(tiles) if lengths[2] > 1 else 2
    shape = Shape(m, n, 64 * (steps - 1) + 8)
    return hopper_grid.run_model(program, shape, (clusters * math.prod(lengths), 1), 384, lengths, seeds)


@pytest.mark.parametrize(
    "entry",
    [
        *("joint_128x32_x", "joint_128x128", "joint_128x256", "joint_256x192"),
        *("alternating_64x72", "alternating_64x96_x", "alternating_64x128"),
    ],
)
def test_every_order_gives_the_product_of_a_plan(entry: str, tmp_path: Path) -> None:
    """Shared rows, shared columns, both and neither, parts of K, exchanged operands, odd steps of a group of two."""
    part = SHAPED[entry]
    source, maps = alone(part.source_path.read_text(), entry), dict(part.call.tensor_maps)
    program = hopper_grid.compile_model(ANY_SHAPE, source, tmp_path / entry, entry, maps)
    for tiles, steps in (((2, 2), 9), ((1, 3), 5)):
        assert run_shaped(program, part, tiles, steps, SEEDS) == "", (tiles, steps)


DIVIDED, SHARING = "joint_128x128", "alternating_64x96_x"
SHAPED_PLANTS = [
    (DIVIDED, "sums of one part put in the place of another's", r"given\[\(walk\.z \* each", "given[(0 * each"),
    (DIVIDED, "sums handed over while a ring is read", r"cluster_meet\(\);  // every block is done with its ring", ""),
    (SHARING, "own block alone is told", r"walk\.peer\(i\)\)", "walk.rank)"),
    (SHARING, "every block of a row loads the same share", r"tile\.row \+ walk\.y \* height, row", "tile.row, row"),
    (SHARING, "one block may release for all", r"walk\.peers\(\) \* \(F::ALT", "1 * (F::ALT"),
    (SHARING, "one stage of two released", r"empty\[before\[u\]\], walk", "empty[before[0]], walk"),
    (SHARING, "a block leaves before its neighbour", r"cluster_meet\(\);  // nobody leaves", "// nobody leaves"),
    (SHARING, "a launch does not wait for the one before", r"wait_for_previous\(\);", ""),
]


@pytest.mark.parametrize("plant", SHAPED_PLANTS, ids=lambda plant: f"{plant[0]}-{plant[1]}")
def test_a_bug_planted_in_a_plan_shows(plant: tuple[str, str, str, str], tmp_path: Path) -> None:
    entry, what, pattern, replacement = plant
    part = SHAPED[entry]
    planted = hopper_grid.with_plant(alone(part.source_path.read_text(), entry), pattern, replacement, 0)
    maps = dict(part.call.tensor_maps)
    program = hopper_grid.compile_model(ANY_SHAPE, planted, tmp_path / "planted", entry, maps)
    assert any(run_shaped(program, part, tiles, steps, TRIES) for tiles, steps in (((2, 2), 9), ((1, 1), 3))), what


# The rings of kernels/crt: as those above, on 8-bit integers ----------------------------------------------------------

CRT_SHAPES = {
    # Twelve tiles of three steps; several rows and columns of tiles, of one step.
    "multiply": [Case(Shape(100, 200, 300)), Case(Shape(140, 264, 40), clusters=3)],
    # A cluster without a tile.
    "find_peaks": [Case(Shape(200, 140, 700))],
}
WINOGRAD_SHAPES = [Case(Shape(150, 200, 300))]
# Three rows of tiles of 128: of the second block of each cluster, one consumer's lies below C.
SHARED_SHAPES = [Case(Shape(600, 200, 300)), Case(Shape(150, 200, 1100), clusters=3)]
# Of R16: a wide and a narrow column of tiles; a narrow one alone; two of each.
WIDTHS_SHAPES = [
    Case(Shape(100, 400, 300)),
    Case(Shape(140, 190, 40), clusters=1),
    Case(Shape(20, 800, 300), clusters=3),
]
CRT_RINGS = [
    (kernel, step.entry)
    for kernel in registry.kernels("crt")
    if not re.search(r"_\d+$", kernel.id)  # the same sources with other numbers of moduli
    and kernel not in crt_kinds.CERTIFIED  # their tiles a list names: test_certified runs all of them
    for step in kernel.run.steps
    if isinstance(step, Step) and step.tensor_maps
]


def crt_cases(kernel: Kernel, entry: str) -> list[Case]:
    if kernel.id == "crt.shared":
        return SHARED_SHAPES
    if kernel.id == "crt.two_widths":
        return WIDTHS_SHAPES
    return WINOGRAD_SHAPES if kernel.id in crt_grid.IN_BLOCKS else CRT_SHAPES[entry]


def run_crt(program: Path, kernel: Kernel, entry: str, case: Case, seeds: range) -> str:
    step = next(step for step in kernel.run.steps if isinstance(step, Step) and step.entry == entry)
    launch = step.launch(case.shape)
    cluster = launch.cluster[0] if launch.cluster else 1
    grid = (case.clusters * cluster, 1)
    return hopper_grid.run_model(program, case.shape, grid, launch.block[0], cluster, seeds)


@pytest.mark.parametrize(("kernel", "entry"), CRT_RINGS, ids=lambda part: getattr(part, "id", part))
def test_every_order_gives_the_residues(kernel: Kernel, entry: str, tmp_path: Path) -> None:
    """Each product modulo each number, word by word in the documented order."""
    program = crt_grid.compile_model(kernel, crt_grid.text_of(kernel), tmp_path / entry, entry)
    for case in crt_cases(kernel, entry):
        assert run_crt(program, kernel, entry, case, SEEDS) == "", str(case)


CRT_TURN = r"barrier_arrive\(&shared\.turn\[warpgroup \^ 1\]\);"
CRT_RELEASE = r"release\(\);"
CRT_PLANTS = [
    # (kernel, what, pattern, replacement, occurrence, step)
    ("batched", "stage released while it is multiplied", r"wgmma_wait<1>\(\);", "", 0, "multiply"),
    ("batched", "one consumer may release for both", r"empty\[s\], CONSUMERS", "empty[s], 1", 0, "multiply"),
    ("batched", "parity of the consumer stays", ROUND, "stage = 0;", 1, "multiply"),
    ("reduced", "parity of the producer stays", ROUND, "stage = 0;", 0, "multiply"),
    ("reduced", "last stage of a tile kept", CRT_RELEASE, "", 1, "multiply"),
    (
        "multicast",
        "own block alone is told",
        r"(empty\[before\]), threadIdx\.x % 128\)",
        r"\1, cluster_rank())",
        0,
        "multiply",
    ),
    ("multicast", "tile of B for one block alone", r"\(1 << CLUSTER\) - 1", "1 << rank", 0, "multiply"),
    ("unsigned", "bytes of a block's own loads announced", r"sizeof\(shared\.B\[0\]\)", "SHARE * BK", 0, "multiply"),
    ("unsigned", "sums reduced before they are done", r"wgmma_finish\(sums\);", "", 0, "multiply"),
    ("fused", "blocks do not wait for each other's barriers", r"cluster_sync\(\);", "", 0, "multiply"),
    ("fused", "the stage in use released", r"empty\[before\]", "empty[stage]", 0, "multiply"),
    ("accurate", "a block leaves before its neighbour", r"cluster_sync\(\);", "", 1, "multiply"),
    ("accurate", "peaks of sums that are not done", r"wgmma_finish\(sums\);", "", 0, "find_peaks"),
    ("ping_pong", "turn not handed over", CRT_TURN, ";", 0, "multiply"),
    ("ping_pong", "consumers walk the same stages", r"first \+= CONSUMERS \* steps", "first += steps", 0, "multiply"),
    ("ping_pong", "parity restarts with a tile", r"parity = first / STAGES % 2", "parity = 0", 0, "multiply"),
    ("winograd", "a stage waits for both consumers", r"empty\[s\], 1", "empty[s], CONSUMERS", 0, "multiply"),
    ("winograd", "a stage released while it is multiplied", r"wgmma_wait<1>\(\);", "", 0, "multiply"),
    # Of lockstep.cuh, behind in_turn.cuh.
    ("lockstep", "turn not handed over", CRT_TURN, ";", 1, "multiply"),
    ("lockstep", "no wait for an empty stage", WAIT_EMPTY, "", 1, "multiply"),
    ("lockstep", "sums reduced before they are done", r"wgmma_finish\(sums\[half\]\);", "", 1, "multiply"),
    ("lockstep", "residues of the modulus before", r"modulus\(tile\.product / PRODUCTS\)", "modulus(0)", 1, "multiply"),
    # Of shared_tile.cuh, behind both.
    ("shared", "own block alone is told", r"(empty\[before\]), threadIdx\.x % 128\)", r"\1, rank)", 0, "multiply"),
    ("shared", "both blocks load the same share", r" \+ rank \* SHARE, \(1", ", (1", 0, "multiply"),
    ("shared", "one consumer may release for both", r"CLUSTER \* CONSUMERS\);", "CLUSTER);", 0, "multiply"),
    ("shared", "a block leaves before its neighbour", r"cluster_sync\(\);", "", 1, "multiply"),
    ("shared", "a consumer's rows taken by both", r"warpgroup \* BM \* BK", "0 * BM * BK", 0, "multiply"),
    ("shared", "sums reduced before they are done", r"wgmma_finish\(sums\[half\]\);", "", 2, "multiply"),
    ("shared", "last stage of a tile kept", CRT_RELEASE, "", 5, "multiply"),
    ("shared", "a row of tiles below C stored", r"row < stored_rows", "true", 0, "multiply"),
    ("shared", "residues of the modulus before", r"modulus\(tile\.product / PER\)", "modulus(0)", 0, "multiply"),
    ("two_widths", "turn not handed over", CRT_TURN, ";", 0, "multiply"),
    ("two_widths", "parity restarts with a tile", r"parity = first / STAGES % 2", "parity = 0", 0, "multiply"),
    ("two_widths", "sums reduced before they are done", r"wgmma_finish\(sums\[half\]\);", "", 0, "multiply"),
    ("two_widths", "all tiles multiplied as narrow ones", r"tile\.col < columns\.wide", "false", 0, "multiply"),
    ("two_widths", "wide tiles begin as narrow ones", r"min\(col, wide\)", "0", 0, "multiply"),
    ("two_widths", "residues of the modulus before", r"modulus\(tile\.product\)", "modulus(0)", 0, "multiply"),
]


@pytest.mark.parametrize("plant", CRT_PLANTS, ids=lambda plant: f"{plant[0]}-{plant[1]}")
def test_a_bug_planted_in_residues_shows(plant: tuple[str, str, str, str, int, str], tmp_path: Path) -> None:
    name, what, pattern, replacement, which, entry = plant
    kernel = registry.kernel(f"crt.{name}")
    planted = hopper_grid.with_plant(crt_grid.text_of(kernel), pattern, replacement, which)
    program = crt_grid.compile_model(kernel, planted, tmp_path / "planted", entry)
    assert run_crt(program, kernel, entry, crt_cases(kernel, entry)[0], TRIES) != "", what


# Meetings of kernels/crt ----------------------------------------------------------------------------------------------

LOCKSTEP = registry.kernel("crt.lockstep")
PATIENCE = 100
EARLIEST = 1
"""The seed under which copies and products take place at once; under others they may have to wait until no thread runs,
and one that looks for the others does."""
MEETING_EVERY = {
    # Steps from one meeting to the next, and on which blocks: 84 tiles of two steps, or of five.
    "before every tile": (2, Case(Shape(150, 200, 300), clusters=2)),
    "in the middle of a tile, one block with a tile more": (3, Case(Shape(150, 200, 1100), clusters=5)),
    "every third tile, all blocks alike": (15, Case(Shape(150, 200, 1100), clusters=3)),
    "never, as blocks have fewer steps": (64, Case(Shape(150, 200, 300), clusters=3)),
}


def meetings_of(every: int, case: Case) -> int:
    """How often each block meets the others: before every so many steps, but the first, that all of them have."""
    tiles, steps = 7 * crt_grid.NUMBERS, -(-LOCKSTEP.run.workspace["factors_a"].lengths(case.shape)[1] // 128)
    return max(0, (tiles // case.clusters * steps - 1) // every)


def sleeps(program: Path, case: Case) -> int:
    """How often producers looked for the others in vain, where copies and products take no time."""
    shape, threads = case.shape, LOCKSTEP.launch(case.shape).block[0]
    numbers = (shape.m, shape.n, shape.k, case.clusters, 1, threads, 1, EARLIEST, EARLIEST + 1)
    return int(subprocess.run([program, *map(str, numbers)], capture_output=True, text=True, timeout=60).stdout)


def most_sleeps(every: int, case: Case, alone: bool) -> int:
    """A block that is alone looks for twice its patience and once a meeting; among others it finds them soon."""
    meetings = meetings_of(every, case)
    return case.clusters * (2 * PATIENCE + meetings if alone else 2 * meetings)


def meeting_model(source: str, program: Path, every: int, alone: bool) -> Path:
    return crt_grid.compile_model(LOCKSTEP, source, program, "multiply", {"EVERY": every}, alone)


@pytest.mark.parametrize("alone", [False, True], ids=["together", "alone"])
@pytest.mark.parametrize("name", MEETING_EVERY)
def test_producers_meet_and_go_on(name: str, alone: bool, tmp_path: Path) -> None:
    """Whatever the order, and if each block runs when the one before has left: the product is right, the counters are
    zero again. Together nobody waits for long; alone patience ends, and there is less of it each time."""
    every, case = MEETING_EVERY[name]
    program = meeting_model(crt_grid.text_of(LOCKSTEP), tmp_path / "meeting", every, alone)
    assert run_crt(program, LOCKSTEP, "multiply", case, SEEDS) == ""
    assert (meetings_of(every, case) == 0) == name.startswith("never")
    assert sleeps(program, case) <= most_sleeps(every, case, alone)


MEETING_PLANTS = [
    # (what, pattern, replacement, whether blocks run alone)
    ("the count of who came is left", r"meeting->met = 0;", ";", False),
    ("the last one to end is not told", r"&meeting->done, gridDim\.x - 1", "&meeting->done, gridDim.x", False),
    ("the first one to end sets the count back", r"== gridDim\.x - 1\) \{", ">= 0) {", False),
    ("a meeting that some blocks do not come to", r" \|\| loaded >= common", "", False),
    ("a meeting more is waited for", r"loaded / EVERY \* gridDim", "(loaded / EVERY + 1) * gridDim", False),
    ("nobody is counted", r"atomicAdd\(&meeting->met, 1\);", "", False),
    ("patience does not wear off", r"patience /= 2;", "", True),
]


@pytest.mark.parametrize("plant", MEETING_PLANTS, ids=lambda plant: plant[0])
def test_a_bug_planted_in_a_meeting_shows(plant: tuple[str, str, str, bool], tmp_path: Path) -> None:
    """In the counters that it leaves, or in how long producers wait: it cannot change the product."""
    what, pattern, replacement, alone = plant
    every, case = MEETING_EVERY["in the middle of a tile, one block with a tile more"]
    planted = hopper_grid.with_plant(crt_grid.text_of(LOCKSTEP), pattern, replacement, 0)
    program = meeting_model(planted, tmp_path / "planted", every, alone)
    if run_crt(program, LOCKSTEP, "multiply", case, SEEDS) == "":
        assert sleeps(program, case) > most_sleeps(every, case, alone), what
